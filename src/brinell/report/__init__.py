"""Telling what was found: figures, and one HTML page."""
