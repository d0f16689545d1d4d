"""Write failures of runs as a dataset (`brinell curate`)."""
