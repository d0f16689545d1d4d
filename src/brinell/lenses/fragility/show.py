"""The report's part on fragile windows: maps over photographs, shares against size, and pairs."""

from __future__ import annotations

import base64
import json
from typing import Any

from PIL import Image

from brinell.lenses.fragility.charts import class_bars, fragile_curves, location_curves, recognised_curves, sign_bars
from brinell.lenses.fragility.findings import Fragility
from brinell.lenses.fragility.fragile import KINDS
from brinell.lenses.fragility.overlays import overlays, png, sheets
from brinell.lenses.fragility.pictures import PairPicture, Photo, read_window_exhibits
from brinell.lenses.profile.charts import Figure
from brinell.report.section import Namer, Picture, Section, Told, inline, sure
from brinell.runs.names import title
from brinell.runs.store import Store


def fragility_section(told: Told, found: Fragility) -> Section:
    """Shares and maps, where they are fragile, and what the pairs look like."""
    charts: dict[str, Figure] = {}
    exhibits = read_window_exhibits(told.store)
    windows = [operator for operator in found.operators if operator.startswith("windows:")]
    if windows:
        charts |= {"fragile": fragile_curves(found), "signs": sign_bars(found), "recognised": recognised_curves(found)}
        charts["classes"] = class_bars(found, told.names)
    if len(windows) < len(found.operators):
        charts["location"] = location_curves(found)
    return Section(
        template="fragility.html",
        question="Where does one pixel flip the answer?",
        what="fragile recognition",
        found=found,
        options=told.options,
        charts=charts,
        content={
            "kinds": KINDS,
            "windows": windows,
            "smallest": {
                model: [side for (own, _), side in found.smallest.items() if own == model] for model in found.models
            },
            "viewers": {
                model: json.dumps(viewer(told.store, found, model, exhibits.photos.get(model, [])))
                for model in found.models
            },
            "pairs": _gallery(told, found, exhibits.pairs),
        },
    )


def fragility_figures(found: Fragility) -> dict[str, Figure]:
    """All figures of the paper's kind that are no maps."""
    charts: dict[str, Figure] = {}
    if any(operator.startswith("windows:") for operator in found.operators):
        charts = {f"fragile-{kind.replace(' ', '-')}": fragile_curves(found, kind) for kind in KINDS}
        charts["recognised"] = recognised_curves(found)
    if any(operator.startswith("location:") for operator in found.operators):
        charts["location"] = location_curves(found)
    return charts


def fragility_pictures(told: Told, found: Fragility) -> dict[str, bytes]:
    """Maps over photographs, and pairs."""
    return sheets(told.store, found, read_window_exhibits(told.store), told.names)


def viewer(store: Store, found: Fragility, model: str, photos: list[Photo]) -> list[dict[str, Any]]:
    """What the page's viewer of maps needs: photographs, and for each size where its maps lie and their pictures."""
    shown = []
    for photo in photos:
        sizes = [
            {
                "title": one.title,
                "side": one.side,
                "box": [round(100 * share, 3) for share in one.box],
                "maps": {kind: _source(picture) for kind, picture in one.maps.items()},
            }
            for one in overlays(store, found, model, photo)
        ]
        squares = [
            {"side": side, "x": left, "y": top, "sure": confidence}
            for one in found.minimal
            if (one.model, one.image) == (model, photo.image)
            for side, left, top, confidence in one.windows
        ]
        size = {"height": photo.height, "width": photo.width}
        shown.append({"name": photo.name, "source": inline(store, photo.file), **size, "sizes": sizes, "minimal": squares})
    return shown


def _source(picture: Image.Image) -> str:
    return "data:image/png;base64," + base64.b64encode(png(picture)).decode()


def _gallery(
    told: Told, found: Fragility, pairs: list[PairPicture]
) -> list[tuple[str, list[tuple[str, list[tuple[Picture, list[tuple[str, str, str]]]]]]]]:
    """For each model, size and change the pairs of windows, with their activations."""
    groups = []
    for model in found.models:
        by_size = []
        for operator in found.operators:
            for change in ("shift", "shrink"):
                own = [one for one in pairs if (one.model, one.operator, one.change) == (model, operator, change)]
                if own:
                    shown = [(_pair(told.store, one, told.names[model]), _layers(told.store, one)) for one in own]
                    by_size.append((f"{title(operator)}, {change}", shown))
        if by_size:
            groups.append((model, by_size))
    return groups


def _pair(store: Store, pair: PairPicture, name: Namer) -> Picture:
    first, second = pair.first, pair.second
    lines = (
        f"{name(pair.label)}: {_share(first.probability)} → {_share(second.probability)}",
        f"said {name(first.prediction)}{sure(first.confidence)}",
        f"then {name(second.prediction)}{sure(second.confidence)}",
    )
    return Picture(inline(store, second.file), pair.told, lines, False, inline(store, first.file))


def _layers(store: Store, pair: PairPicture) -> list[tuple[str, str, str]]:
    return [(layer, inline(store, first), inline(store, second)) for layer, first, second in pair.layers]


def _share(probability: float | None) -> str:
    return "–" if probability is None else f"{probability:.0%}"
