"""Resizing as Pillow does it, to the bit, on any device."""
