"""`python -m benchmarks [SECTION …]`: measure the sections (all by default) and write docs/performance.md.

`page` alone writes the page from stored results. Figures of an accelerator come from `python -m benchmarks.accelerator
profile`, `search` and `runtimes`, `python -m benchmarks.fragility`, `python -m benchmarks.highlights --device cuda` and
`python -m benchmarks.geometry --device cuda`. Results are stored in benchmarks/results: accelerator.json,
accelerator_search.json, accelerator_runtimes.json, and fragility_, highlights_ and geometry_accelerator.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks import (
    command,
    corruptions,
    estimates,
    fragility,
    geometry,
    highlights,
    knob,
    memory,
    operators,
    processor,
    report,
    viewer,
)
from benchmarks.page import render_page

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"
SECTIONS = {
    "command": command.measure,
    "corruptions_cpu": corruptions.measure,
    "estimates": estimates.measure,
    "fragility": fragility.measure,
    "highlights": highlights.measure,
    "geometry": geometry.measure,
    "knob": knob.measure,
    "memory": memory.measure,
    "operators": operators.measure,
    "processor": processor.measure,
    "report": report.measure,
    "viewer": viewer.measure,
}


def main(requested: list[str]) -> None:
    """Measure, store the results, and write the page."""
    sections = [] if requested == ["page"] else requested or list(SECTIONS)
    for name in sections:
        print(f"measuring: {name}", flush=True)
        (HERE / "results" / f"{name}.json").write_text(json.dumps(SECTIONS[name](), indent=1) + "\n")
    PAGE.write_text(render_page())
    print(f"wrote {PAGE.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main(sys.argv[1:])
