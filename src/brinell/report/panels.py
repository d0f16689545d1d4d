"""Small charts with a line per model, written in Vega-Lite itself: to import altair, and have it check charts, takes longer
than to draw them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# distinct for most people, and on light and dark ground
PALETTE = [
    "#2f7fd1",
    "#e07b00",
    "#1a9e77",
    "#b05fb0",
    "#d1495b",
    "#8a8f00",
    "#5bb5d6",
    "#9c755f",
    "#7f7f7f",
    "#e377c2",
    "#4c6a92",
    "#c9a227",
    "#2e8b57",
    "#a0522d",
    "#6a5acd",
]
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
PANEL_WIDTH, PANEL_HEIGHT = 178, 118  # pixels of one of several charts, without axes

Encoding = dict[str, Any]  # how a field is drawn, in the words of Vega-Lite


@dataclass(frozen=True)
class Panel:
    """One of several small charts, as its specification in Vega-Lite."""

    spec: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the specification, as an Altair chart does."""
        return dict(self.spec)


def model_colours(models: Iterable[str]) -> dict[str, str]:
    """Return one colour per model: by name, so that it is the same in all charts of a run."""
    return {model: PALETTE[index % len(PALETTE)] for index, model in enumerate(sorted(models))}


def model_dashes(models: Iterable[str]) -> dict[str, list[int]]:
    """Return the dashes of models' lines, which tell them apart without colour."""
    return {model: DASHES[index % len(DASHES)] for index, model in enumerate(sorted(models))}


def drop_nan(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without values that are NaN or infinite: JSON has none."""
    return {key: value for key, value in record.items() if not isinstance(value, float) or math.isfinite(value)}


def number_axis(
    field: str, title: str | None, *, axis: Mapping[str, Any], scale: Mapping[str, Any] | None = None
) -> Encoding:
    """Return an axis of numbers."""
    encoding = {"field": field, "type": "quantitative", "title": title, "axis": axis}
    return encoding if scale is None else {**encoding, "scale": scale}


def share_axis(field: str, title: str | None = None, *, top: float | None = 1.0) -> Encoding:
    """Return a vertical axis of shares from 0 to `top`; None: as high as the values."""
    scale = {"domain": [0, top]} if top is not None else {"zero": True}
    return number_axis(field, title, axis={"format": "%", "tickCount": 4}, scale=scale)


def line_panel(
    records: Iterable[Mapping[str, Any]], models: Sequence[str], *, title: str, x: Encoding, y: Encoding
) -> Panel:
    """Return one of several small charts: a line per model, with its interval where records have low and high.

    Records have model, x, value and text, which is shown under the pointer; lines of several `part`s are separate.
    """
    colours, dashes = model_colours(models), model_dashes(models)
    legend = {"symbolOpacity": 1, "values": list(models)}
    colour = _by_model(colours, title="model", legend=legend)
    shared = {"x": x, "color": colour, "detail": {"field": "part", "type": "nominal"}}
    low = {"field": "low", "type": "quantitative", "title": None}
    layers: list[tuple[Encoding, Encoding]] = [
        ({"type": "area", "opacity": 0.16, "aria": False}, {"y": low, "y2": {"field": "high"}}),
        ({"type": "line", "strokeWidth": 2, "aria": False}, {"y": y, "strokeDash": _by_model(dashes, legend=None)}),
        ({"type": "circle", "size": 46, "opacity": 0}, {"y": y, "description": {"field": "text", "type": "nominal"}}),
    ]
    return Panel(
        {
            "data": {"values": [drop_nan(record) for record in records]},
            "layer": [{"mark": mark, "encoding": {**shared, **own}} for mark, own in layers],
            "title": {"text": title, "limit": PANEL_WIDTH + 40},
            "width": PANEL_WIDTH,
            "height": PANEL_HEIGHT,
        }
    )


def _by_model(values: Mapping[str, Any], **more: Any) -> Encoding:
    """Return what tells models apart: a value for each."""
    return {"field": "model", "type": "nominal", "scale": {"domain": list(values), "range": list(values.values())}, **more}
