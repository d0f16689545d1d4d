"""Measurements of how closely the package reproduces the papers that it implements."""
