"""The report's part on fragile windows: maps over photographs, shares against size, and pairs."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from brinell.engine import PairPicture, Photo, WindowExhibits
from brinell.lenses import KINDS, Maps, Neighbourhood, fragile
from brinell.report.figures import Figure
from brinell.report.fragility_figures import class_bars, fragile_curves, location_curves, recognised_curves, sign_bars
from brinell.report.section import Namer, Picture, Section, inline, sure
from brinell.results import Fragility, Store, map_file, read_maps, title

LEVELS = 32  # of confidence, on the page
# red, green, blue, opacity: unjudged or nothing, right and becomes wrong, wrong and becomes right
FLIPS = ((0, 0, 0, 110), (255, 80, 80, 235), (80, 160, 255, 235))
RIGHTS = ((214, 90, 160, 130), (60, 180, 75, 130))


def fragility_section(
    store: Store, found: Fragility, options: Mapping[str, Any], exhibits: WindowExhibits, names: dict[str, Namer]
) -> Section:
    """Shares and maps, where they are fragile, and what the pairs look like."""
    charts: dict[str, Figure] = {}
    windows = [operator for operator in found.operators if operator.startswith("windows:")]
    if windows:
        charts |= {"fragile": fragile_curves(found), "signs": sign_bars(found), "recognised": recognised_curves(found)}
        charts["classes"] = class_bars(found, names)
    if len(windows) < len(found.operators):
        charts["location"] = location_curves(found)
    return Section(
        template="fragility.html",
        question="Where does one pixel flip the answer?",
        what="fragile recognition",
        found=found,
        options=options,
        charts=charts,
        content={
            "kinds": KINDS,
            "windows": windows,
            "viewers": {
                model: json.dumps(viewer(store, found, model, exhibits.photos.get(model, []))) for model in found.models
            },
            "pairs": _gallery(store, found, exhibits.pairs, names),
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


def viewer(store: Store, found: Fragility, model: str, photos: list[Photo]) -> list[dict[str, Any]]:
    """What the page's viewer of maps needs: photographs, and for each size where its maps lie and their pictures."""
    operators = [name for name in found.operators if name.startswith("windows:")]
    shown = []
    for photo in photos:
        sizes = [
            {"title": title(operator), **_overlays(read_maps(store, model, operator, photo.image), photo, found.neighbours)}
            for operator in operators
            if store.exists(*map_file(model, operator, photo.image))
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


def _overlays(maps: Maps, photo: Photo, neighbours: int) -> dict[str, Any]:
    """Maps as pictures, and the part of the photograph that they lie on: each pixel over the middle of its window."""
    hood = Neighbourhood.of(maps.large.grid.side, photo.height, photo.width, maps.stride)
    tops, lefts, side = hood.judged.tops, hood.judged.lefts, hood.judged.side
    right, _ = maps.large.at(tops, lefts, "correct")
    confidence, _ = maps.large.at(tops, lefts, "confidence")
    pictures = {
        "right or wrong": _indexed(right.to(torch.uint8), RIGHTS),
        "confidence": _indexed((confidence * (LEVELS - 1)).round().to(torch.uint8), _heat()),
    }
    assert maps.small is not None
    for kind in KINDS:
        degree, change = kind.split()
        after = maps.large if change == "shift" else maps.small
        flips = fragile(hood, maps.large, after, change, "correct", neighbours).signs(degree)  # type: ignore[arg-type]
        pictures[kind] = _indexed((flips.to(torch.int64) % 3).to(torch.uint8), FLIPS)
    begin = side / 2 - maps.stride / 2
    box = [
        begin / photo.width,
        begin / photo.height,
        len(lefts) * maps.stride / photo.width,
        len(tops) * maps.stride / photo.height,
    ]
    return {"side": side, "box": [round(100 * number, 3) for number in box], "maps": pictures}


def _heat() -> tuple[tuple[int, int, int, int], ...]:
    """From dark blue over red to yellow."""
    steps = [place / (LEVELS - 1) for place in range(LEVELS)]
    return tuple((int(255 * min(1, 1.6 * s)), int(255 * max(0, 1.8 * s - 0.8)), int(110 * (1 - s)), 170) for s in steps)


def _indexed(values: Tensor, colours: tuple[tuple[int, int, int, int], ...]) -> str:
    """A map of places in a list of colours, as the source of an image element."""
    picture = Image.fromarray(values.contiguous().numpy(), "P")
    picture.putpalette([part for colour in colours for part in colour[:3]])
    sink = io.BytesIO()
    picture.save(sink, "png", transparency=bytes(colour[3] for colour in colours), optimize=True)
    return "data:image/png;base64," + base64.b64encode(sink.getvalue()).decode()


def _gallery(
    store: Store, found: Fragility, pairs: list[PairPicture], names: dict[str, Namer]
) -> list[tuple[str, list[tuple[str, list[tuple[Picture, list[tuple[str, str, str]]]]]]]]:
    """For each model, size and change the pairs of windows, with their activations."""
    groups = []
    for model in found.models:
        by_size = []
        for operator in found.operators:
            for change in ("shift", "shrink"):
                own = [one for one in pairs if (one.model, one.operator, one.change) == (model, operator, change)]
                if own:
                    shown = [(_pair(store, one, names[model]), _layers(store, one)) for one in own]
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
