"""Builds the documentation site: docs/, a page for every operator and property, and the API reference."""
