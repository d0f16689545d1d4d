"""A run's folder: its rows, tables and statistics. Nothing here imports torch."""
