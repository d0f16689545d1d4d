"""The page about performance, from stored results. Importing this needs no package that is measured."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2

HERE = Path(__file__).parent


def render_page() -> str:
    """Return the page."""
    found = {file.stem: json.loads(file.read_text()) for file in sorted((HERE / "results").glob("*.json"))}
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.from_string((HERE / "performance.md.j2").read_text()).render(found)
