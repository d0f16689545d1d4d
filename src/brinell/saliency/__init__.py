"""Where a model looks, and whether that shifts when an image changes."""
