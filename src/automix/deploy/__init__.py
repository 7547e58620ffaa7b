"""A trained classifier in use: predictions for image files, and exports that run without automix."""
