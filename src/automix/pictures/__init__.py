"""Pictures of mixed samples: grids of images, and masks over training time."""
