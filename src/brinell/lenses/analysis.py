"""What a run found, lens by lens: computed once per command and passed on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.errors import RunError
from brinell.lenses.lens import LENSES, Analysis
from brinell.lenses.reader import Findings
from brinell.registry import Registry, load_reference
from brinell.runs.run import Run


def _built_in(registry: Registry[Analysis]) -> None:
    analysis: Analysis = load_reference("brinell.saliency:ANALYSIS")
    registry.add(analysis.name, analysis)


ANALYSES: Registry[Analysis] = Registry("analysis", group="brinell.analyses", built_in=_built_in)


def analyses_of(run: Run) -> dict[str, Analysis]:
    """Return the run's lenses that have rows, and the further analyses that were made of it."""
    lenses: dict[str, Analysis] = {name: LENSES[name] for name in run.lenses if name in run.measured}
    return lenses | {analysis.name: analysis for analysis in ANALYSES.values() if analysis.name in run.manifest}


def require_rows(run: Run) -> dict[str, Analysis]:
    """Return the run's analyses, or raise if it has no rows yet."""
    if not run.measured:
        raise RunError(f"the run in {run.folder} has no rows yet; rerun its command to finish it")
    return analyses_of(run)


def find_one(run: Run, name: str, summary: Mapping[str, Any] | None = None) -> Findings:
    """Return the findings of one lens or analysis."""
    return analyses_of(run)[name].reader.find(run, run.lens(name), summary or {})


def find(run: Run, summary: Mapping[str, Any] | None = None) -> dict[str, Findings]:
    """Return the findings of every lens of the run, and of further analyses, by name."""
    return {name: find_one(run, name, summary) for name in require_rows(run)}
