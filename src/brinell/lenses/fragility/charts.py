"""Charts of fragile windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.names import KINDS
from brinell.lenses.fragility.queries import FragileShare
from brinell.registry import VariantId
from brinell.report.charts import Chart, grouped_bars, inline_data, menu, model_colour
from brinell.report.panels import Panel, line_panel, number_axis, share_axis
from brinell.report.show import Namer
from brinell.runs.words import format_share

JUDGED_BY = {"correct": "right or wrong", "label": "label"}
MAX_CLASSES = 40  # shown
SIZE = "P: window side as a share of the image's shorter side"
PIXELS = "window side in pixels"


def fragile_curves(findings: FragilityFindings, kind: str | None = None) -> Chart:
    """Return the share of fragile windows against their size, one line per model (the paper's Figs. 5 and A.1).

    Without a kind, the reader selects it, and whether right or wrong or the label has to change.
    """
    records = [_record(share, "share") for share in _measured(findings, findings.windows) if kind in (None, share.kind)]
    if kind is not None:
        records = [record for record in records if record["judged by"] == JUDGED_BY["correct"]]
        return _lines(records, findings, "fragile windows").properties(title=f"{kind}, judged by right or wrong")
    ways = [way for way in JUDGED_BY.values() if any(record["judged by"] == way for record in records)]
    selected = "datum.kind === chosen_kind && datum['judged by'] === chosen_way"
    lines = _lines(records, findings, "fragile windows", selected)
    return lines.add_params(menu("chosen_kind", "kind", KINDS), menu("chosen_way", "what changes", ways or [""]))


def location_curves(findings: FragilityFindings) -> Chart:
    """Return the share of positions on black at which a one-pixel shift changes the label (Fig. 7a)."""
    shares = _measured(findings, findings.locations)
    records = [_record(share, "share") for share in shares if (share.kind, share.judged_by) == ("loose shift", "label")]
    return _lines(records, findings, "positions where the label changes")


def recognised_curves(findings: FragilityFindings) -> Chart:
    """Return the share of recognised windows against their size (Figs. A.2 and A.5a)."""
    shares = _measured(findings, findings.windows)
    chosen = [share for share in shares if (share.kind, share.judged_by) == ("loose shrink", "correct")]
    return _lines([_record(share, "recognised") for share in chosen], findings, "recognised windows")


def kind_panels(findings: FragilityFindings) -> Sequence[Chart | Panel]:
    """Return a small chart for each kind of fragility: the share of fragile windows by their size."""
    shares = [share for share in _measured(findings, findings.windows) if share.judged_by == "correct"]
    if len(findings.windows) == 1:
        records = [{"model": one.model, "kind": one.kind, **asdict(one.share)} for one in shares]
        title = f"fragile windows ({findings.title(findings.windows[0])})"
        return [grouped_bars(records, findings.models, group="kind", groups=KINDS, title=title)]
    x = number_axis("size", _size_title(findings), axis={"tickCount": 4, "grid": False})
    panels = []
    for kind in KINDS:
        records = [
            _record(one, "share") | {"text": f"{one.model}, {findings.title(one.operator)}: {format_share(one.share)}"}
            for one in shares
            if one.kind == kind
        ]
        panels.append(line_panel(records, findings.models, title=kind, x=x, y=share_axis("value", top=None)))
    return panels


def class_records(findings: FragilityFindings, names: Mapping[str, Namer]) -> list[dict[str, Any]]:
    """Return the share of fragile windows by class, the mean over sizes, for the classes with the most."""
    shares: dict[tuple[str, str], list[float]] = {}
    for record in findings.by_class:
        if record["kind"] == "loose shift" and record["operator"] in findings.windows:
            name = names[record["model"]](record["label"]) if record["model"] in names else str(record["label"])
            shares.setdefault((record["model"], name), []).append(record["share"])
    ranked = sorted(shares.items(), key=lambda entry: -sum(entry[1]) / len(entry[1]))[:MAX_CLASSES]
    return [{"model": model, "class": name, "share": sum(own) / len(own)} for (model, name), own in ranked]


def _measured(findings: FragilityFindings, operators: list[str]) -> list[FragileShare]:
    """Return the shares of some operators, in their order."""
    shares = [share for share in findings.shares.values() if share.operator in operators and share.images]
    return sorted(shares, key=lambda share: operators.index(share.operator))


def _lines(records: Iterable[dict[str, Any]], findings: FragilityFindings, name: str, selected: str | None = None) -> Chart:
    """Return one line per model against the size of windows, with its interval; `selected` filters the records."""
    chart = alt.Chart(inline_data(records))
    if selected is not None:
        chart = chart.transform_filter(selected)
    x = alt.X("size:Q", title=_size_title(findings))
    y = alt.Y("value:Q", axis=alt.Axis(format="%"), title=name, scale=alt.Scale(zero=True))
    colour = model_colour(findings.models)
    band = chart.mark_area(opacity=0.15).encode(x=x, y="low:Q", y2="high:Q", color=colour)
    line = chart.mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=50)).encode(
        x=x, y=y, color=colour, tooltip=["model:N", "size:Q", "images:Q", alt.Tooltip("value:Q", format=".2%")]
    )
    return alt.layer(band, line).properties(width=740, height=320)


def _size_title(findings: FragilityFindings) -> str:
    return PIXELS if any(operator.endswith("px") for operator in findings.operators) else SIZE


def _record(share: FragileShare, name: str) -> dict[str, Any]:
    size = VariantId.parse(share.operator).variant
    return {
        "model": share.model,
        "kind": share.kind,
        "judged by": JUDGED_BY[share.judged_by],
        "size": float(size.removesuffix("px")),
        "images": share.images,
        **asdict(getattr(share, name)),
    }
