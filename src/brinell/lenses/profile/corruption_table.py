"""The table of models under ImageNet-C's corruptions: what benchmarks report, in one place."""

from __future__ import annotations

from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.profile.robustness import ALEXNET
from brinell.report.grid import Grid
from brinell.runs.statistics import Estimate
from brinell.runs.words import format_share


def make_corruption_tables(findings: ProfileFindings) -> list[Grid]:
    """Return the table, where a run has corruptions of ImageNet-C."""
    if not any(found.errors for found in findings.robustness.values()):
        return []
    heads = ["model", "mCE", "relative mCE", "accuracy under change", "worst operator", "ECE, clean → changed"]
    rows = []
    for model in findings.models:
        found = findings.robustness[model]
        rows.append(
            (
                model,
                _hundredths(found.mce),
                _hundredths(found.relative_mce),
                format_share(found.accuracy),
                f"{format_share(found.worst)} ({findings.title(found.worst_operator)})",
                ""
                if found.ece is None or found.ece_clean is None
                else f"{found.ece_clean.value:.1%} → {found.ece.value:.1%}",
            )
        )
    note = "mCE and relative mCE: 100 is AlexNet; lower is better."
    if any(found.mce is None for found in findings.robustness.values()):
        note = f"mCE needs all {len(ALEXNET)} corruptions at 5 severities: --preset imagenet_c."
    return [Grid(tuple(heads), tuple(rows), "ImageNet-C", note, frozenset({0, 4}))]


def _hundredths(found: Estimate | None) -> str:
    """Return a ratio as mCE is written: 76.7 [70.1–83.2]."""
    return "" if found is None else f"{100 * found.value:.1f} [{100 * found.low:.1f}–{100 * found.high:.1f}]"
