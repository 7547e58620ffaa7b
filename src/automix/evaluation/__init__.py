"""Evaluations of a trained classifier: one file each, a function of a plain classifier and test images.

The classifier takes pixels in [0, 1]; put the normalization inside (`automix.runs.classifier.WithNormalization`).
"""
