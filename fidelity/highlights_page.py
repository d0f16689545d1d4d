"""The page about the highlights lens, from stored results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from fidelity import glare, glare_results
from fidelity.measure import ROOT

PAGE = ROOT / "docs" / "fidelity-highlights.md"


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page."""
    raise NotImplementedError
