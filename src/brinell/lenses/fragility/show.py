"""How fragile windows are shown: maps over photographs, shares against size, and pairs."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from PIL import Image

from brinell.lenses.fragility.exhibits import PairPicture, Photo, read_window_exhibits
from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.fragile import KINDS
from brinell.lenses.fragility.overlays import draw_overlays, draw_sheets
from brinell.lenses.fragility.tables import findings_table
from brinell.pictures import encode_png
from brinell.report.show import Chart, Context, NamedChart, Namer, Picture, Section, Show, format_confidence, inline
from brinell.runs.run import Run

PairWithLayers = tuple[Picture, list[tuple[str, str, str]]]
Gallery = list[tuple[str, list[tuple[str, list[PairWithLayers]]]]]  # by model and size

PHOTO_TEXT = 17  # pixels of a box's text on a photograph, which is shown nearly at its size


def section(context: Context, findings: FragilityFindings) -> Section:
    """Return the report's section."""
    from brinell.lenses.fragility import charts  # altair is slow to import, and a table needs none

    drawn: dict[str, Chart] = {}
    exhibits = read_window_exhibits(context.run.store)
    if findings.windows:
        drawn = {
            "fragile": charts.fragile_curves(findings),
            "signs": charts.sign_bars(findings),
            "recognised": charts.recognised_curves(findings),
            "classes": charts.class_bars(findings, context.names),
        }
    if findings.locations:
        drawn["location"] = charts.location_curves(findings)
    return Section(
        template="brinell.lenses.fragility:section.html",
        question="Where does one pixel flip the answer?",
        topic="fragile recognition",
        findings=findings,
        options=context.options,
        charts=drawn,
        content={
            "kinds": KINDS,
            "smallest": {
                model: [side for (own, _), side in findings.smallest.items() if own == model] for model in findings.models
            },
            "viewers": {
                model: json.dumps(_viewer(context.run, findings, model, exhibits.photos.get(model, [])))
                for model in findings.models
            },
            "pairs": _gallery(context, findings, exhibits.pairs),
        },
    )


def all_charts(findings: FragilityFindings) -> dict[str, Chart]:
    """Return all charts, by the names of their files."""
    from brinell.lenses.fragility import charts

    drawn: dict[str, Chart] = {}
    if findings.windows:
        drawn = {f"fragile-{kind.replace(' ', '-')}": charts.fragile_curves(findings, kind) for kind in KINDS}
        drawn["recognised"] = charts.recognised_curves(findings)
    if findings.locations:
        drawn["location"] = charts.location_curves(findings)
    return drawn


def pictures(context: Context, findings: FragilityFindings) -> dict[str, bytes]:
    """Return maps over photographs, and pairs."""
    return draw_sheets(context, findings, read_window_exhibits(context.run.store))


def _viewer(run: Run, findings: FragilityFindings, model: str, photos: list[Photo]) -> list[dict[str, Any]]:
    """Return what the page's map viewer needs: photographs, and for each size its maps and the part that they cover."""
    shown = []
    for photo in photos:
        sizes = [
            {
                "title": overlay.title,
                "side": overlay.side,
                "box": [round(100 * share, 3) for share in overlay.box],
                "maps": {kind: _source(picture) for kind, picture in overlay.maps.items()},
            }
            for overlay in draw_overlays(run, findings, model, photo)
        ]
        minimal = [
            {"side": side, "x": left, "y": top, "confidence": confidence}
            for one in findings.minimal
            if (one.model, one.image) == (model, photo.image)
            for side, left, top, confidence in one.windows
        ]
        size = {"height": photo.height, "width": photo.width}
        shown.append({"name": photo.name, "source": _photograph(run, photo), **size, "sizes": sizes, "minimal": minimal})
    return shown


def _photograph(run: Run, photo: Photo) -> str:
    return inline(run, photo.file, photo.marks, text_size=PHOTO_TEXT)


def _source(picture: Image.Image) -> str:
    return "data:image/png;base64," + base64.b64encode(encode_png(picture)).decode()


def _gallery(context: Context, findings: FragilityFindings, pairs: Sequence[PairPicture]) -> Gallery:
    """Return the pairs of windows with their activations, by model, size and move."""
    groups = []
    for model in findings.models:
        by_size = []
        for operator in findings.operators:
            for move in ("shift", "shrink"):
                own = [pair for pair in pairs if (pair.model, pair.operator, pair.move) == (model, operator, move)]
                if own:
                    shown = [(_pair(context.run, pair, context.names[model]), _layers(context.run, pair)) for pair in own]
                    by_size.append((f"{findings.title(operator)}, {move}", shown))
        if by_size:
            groups.append((model, by_size))
    return groups


def _pair(run: Run, pair: PairPicture, name: Namer) -> Picture:
    first, second = pair.first, pair.second
    probabilities = f"{_percent(first.probability)} → {_percent(second.probability)}"
    lines = [
        f"probability of {name(pair.label)}: {probabilities}",
        f"before: {name(first.prediction)}{format_confidence(first.confidence)}",
        f"after: {name(second.prediction)}{format_confidence(second.confidence)}",
    ]
    if pair.reason:
        lines.append(f"broken: {pair.reason}")
    return Picture(
        source=inline(run, second.file, second.marks),
        heading=pair.caption,
        lines=tuple(lines),
        correct=False,
        clean_source=inline(run, first.file, first.marks),
        boxed=bool(first.marks or second.marks),
    )


def _layers(run: Run, pair: PairPicture) -> list[tuple[str, str, str]]:
    return [(layer, inline(run, first), inline(run, second)) for layer, first, second in pair.layers]


def _percent(probability: float | None) -> str:
    return "–" if probability is None else f"{probability:.0%}"


def _named(name: str, *choices: str) -> NamedChart:
    """Return a chart of charts.py by its name."""

    def draw(findings: FragilityFindings, **chosen: Any) -> Chart:
        from brinell.lenses.fragility import charts

        return getattr(charts, name)(findings, **chosen)

    return NamedChart(draw, {choice: lambda findings: list(KINDS) for choice in choices})


SHOW = Show(
    table=findings_table,
    section=section,
    charts=all_charts,
    named={
        "fragile": _named("fragile_curves", "kind"),
        "recognised": _named("recognised_curves"),
        "location": _named("location_curves"),
    },
    pictures=pictures,
)
