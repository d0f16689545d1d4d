"""Faults on purpose: `python -m chaos` (make chaos) tries them and writes docs/reliability.md."""
