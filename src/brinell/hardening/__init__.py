"""From failures to a better model."""
