"""Why mutants survive: by module and mutant, as chaos/mutants.json names them."""

from __future__ import annotations

REASONS: dict[tuple[str, str], str] = {}
