"""Helpers that several methods share: pixel operations, saliency, fractal pictures."""
