"""Perturbed copies of datasets: `brinell corrupt`."""
