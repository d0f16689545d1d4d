"""Datasets: images and their labels, from files, arrays and Python objects."""
