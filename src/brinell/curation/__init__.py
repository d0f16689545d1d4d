"""From failures to a data set."""
