"""The run folder and everything in it: configuration, recipes, checkpoints, classifier files, metrics."""
