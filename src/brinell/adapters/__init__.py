"""Operators, datasets, models and runs as other libraries know them. Each module alone imports its library."""
