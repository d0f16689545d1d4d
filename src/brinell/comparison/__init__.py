"""Runs next to each other: paired tests, gates and leaderboards."""
