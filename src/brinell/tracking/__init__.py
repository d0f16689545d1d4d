"""Finished runs in a tracking server (MLflow)."""
