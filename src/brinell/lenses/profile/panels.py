"""The small charts of degradation profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.reader import AVERAGE
from brinell.report.panels import Panel, line_panel, number_axis, share_axis
from brinell.runs.statistics import Estimate
from brinell.runs.words import format_mean, format_share

SHARES = ("accuracy", "probability", "confidence", "map", "map50", "miou")
_TITLES = {
    "rank": "rank of the true label",
    "probability": "probability of the true label",
    "confidence": "confidence of the prediction",
    "map": "mAP (IoU 0.5 to 0.95)",
    "map50": "mAP50 (IoU 0.5)",
    "miou": "mean IoU of all classes",
}


def operator_panels(findings: ProfileFindings) -> list[Panel]:
    """Return a small chart of accuracy for each operator, the most damaging first, after their average."""
    operators = [AVERAGE, *findings.operators] if len(findings.averaged_operators) > 1 else findings.operators
    records = [record for record in findings.table() if record["metric"] == "accuracy"]
    titles = {AVERAGE: "average of all"}
    return [
        _panel(findings, [record for record in records if record["operator"] == operator], titles.get(operator))
        for operator in operators
    ]


def metric_panels(findings: ProfileFindings, metrics: Sequence[str]) -> list[Panel]:
    """Return a small chart for each metric, averaged over operators."""
    records = [record for record in findings.table() if record["operator"] == AVERAGE and record["value"] is not None]
    return [
        _panel(findings, [record for record in records if record["metric"] == metric], _TITLES[metric])
        for metric in metrics
    ]


def _panel(findings: ProfileFindings, records: list[dict[str, Any]], title: str | None) -> Panel:
    metric = records[0]["metric"]
    drawn = []
    for record in records:
        value = Estimate(record["value"], record["low"], record["high"])
        number = format_share(value) if metric in SHARES else format_mean(value)
        caption = f" ({record['caption']})" if record["caption"] else ""
        drawn.append({**record, "text": f"{record['model']}, level {record['level']}{caption}: {number}"})
    x = number_axis("level", "level", axis={"tickMinStep": 1, "tickCount": 5, "grid": False})
    y = share_axis("value") if metric in SHARES else number_axis("value", None, axis={"tickCount": 4})
    return line_panel(drawn, findings.models, title=title or findings.title(records[0]["operator"]), x=x, y=y)
