"""Workarounds for installations of other packages: a torchvision wheel that does not fit a CPU-only torch."""
