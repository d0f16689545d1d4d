"""Resizing exactly as Pillow does, on any device, and resizing again after local changes."""
