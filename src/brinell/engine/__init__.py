"""Putting it together."""
