"""Tasks: an `nn.Module` that owns what a method needs and turns a batch into a loss."""
