"""Workarounds for the packages around us: today, a torchvision wheel that does not fit a CPU-only torch."""
