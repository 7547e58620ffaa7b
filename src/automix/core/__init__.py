"""What every other room uses: targets and losses, blending, draws and seeds, validation, files. Needs torch alone."""
