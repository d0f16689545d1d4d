"""Maps of windows as pictures: for the page, where they lie over the photograph, and as sheets of their own."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageOps
from torch import Tensor

from brinell.lenses.fragility.findings import Fragility, map_file, read_maps
from brinell.lenses.fragility.fragile import KINDS, fragile
from brinell.lenses.fragility.maps import Maps
from brinell.lenses.fragility.pictures import PairPicture, Photo, WindowExhibits
from brinell.lenses.fragility.windows import Neighbourhood
from brinell.report.section import Namer, sure
from brinell.runs.names import title
from brinell.runs.store import Store

Colour = tuple[int, int, int, int]  # red, green, blue, opacity
LEVELS = 32  # of confidence, on the page
# nothing, right and becomes wrong, wrong and becomes right
FLIPS: tuple[Colour, ...] = ((0, 0, 0, 110), (255, 80, 80, 235), (80, 160, 255, 235))
RIGHTS: tuple[Colour, ...] = ((214, 90, 160, 130), (60, 180, 75, 130))
CELL, LINE, GAP = 220, 16, 6  # pixels of a sheet's picture, of a line of text, and between


@dataclass(frozen=True)
class Overlay:
    """Maps of one size as pictures with a palette, and the part of the photograph that they lie on: left, top, width and
    height, as shares.
    """

    title: str
    side: int
    box: tuple[float, float, float, float]
    maps: dict[str, Image.Image]


def overlays(store: Store, found: Fragility, model: str, photo: Photo) -> list[Overlay]:
    """The maps of a photograph, size by size."""
    operators = [name for name in found.operators if name.startswith("windows:")]
    there = [name for name in operators if store.exists(*map_file(model, name, photo.image))]
    return [_overlay(title(name), read_maps(store, model, name, photo.image), photo, found.neighbours) for name in there]


def _overlay(name: str, maps: Maps, photo: Photo, neighbours: int) -> Overlay:
    hood = Neighbourhood.of(maps.large.grid.side, photo.height, photo.width, maps.stride)
    tops, lefts, side = hood.judged.tops, hood.judged.lefts, hood.judged.side
    right, _ = maps.large.at(tops, lefts, "correct")
    confidence, _ = maps.large.at(tops, lefts, "confidence")
    pictures = {
        "right or wrong": indexed(right.to(torch.uint8), RIGHTS),
        "confidence": indexed((confidence * (LEVELS - 1)).round().to(torch.uint8), _heat()),
    }
    assert maps.small is not None
    for kind in KINDS:
        degree, change = kind.split()
        after = maps.large if change == "shift" else maps.small
        flips = fragile(hood, maps.large, after, change, "correct", neighbours).signs(degree)  # type: ignore[arg-type]
        pictures[kind] = indexed((flips.to(torch.int64) % 3).to(torch.uint8), FLIPS)
    begin = side / 2 - maps.stride / 2  # each pixel lies over the middle of its window
    across, down = len(lefts) * maps.stride / photo.width, len(tops) * maps.stride / photo.height
    return Overlay(name, side, (begin / photo.width, begin / photo.height, across, down), pictures)


def _heat() -> tuple[Colour, ...]:
    """From dark blue over red to yellow."""
    steps = [place / (LEVELS - 1) for place in range(LEVELS)]
    return tuple((int(255 * min(1, 1.6 * s)), int(255 * max(0, 1.8 * s - 0.8)), int(110 * (1 - s)), 170) for s in steps)


def indexed(values: Tensor, colours: tuple[Colour, ...]) -> Image.Image:
    """A map of places in a list of colours."""
    picture = Image.fromarray(np.ascontiguousarray(values.numpy())).convert("P")
    picture.putpalette([part for colour in colours for part in colour], "RGBA")
    return picture


def png(picture: Image.Image) -> bytes:
    """A picture as a file."""
    sink = io.BytesIO()
    picture.save(sink, "png", optimize=True)
    return sink.getvalue()


def sheets(store: Store, found: Fragility, exhibits: WindowExhibits, names: dict[str, Namer]) -> dict[str, bytes]:
    """Maps over photographs (the paper's Figs. 3, 4, A.7-A.9) and pairs of windows (Figs. 2, A.10-A.12), as PNG files."""
    made = {}
    for model, photos in exhibits.photos.items():
        for photo in photos:
            shown = overlays(store, found, model, photo)
            if shown:
                made[f"maps-{_plain(model)}-{photo.image}"] = png(_map_sheet(store, photo, shown))
    for pair in exhibits.pairs:
        name = f"pair-{_plain(pair.model)}-{_plain(pair.operator)}-{pair.change}-{pair.image}"
        made[name] = png(_pair_sheet(store, pair, names[pair.model]))
    return made


def _map_sheet(store: Store, photo: Photo, shown: list[Overlay]) -> Image.Image:
    """A row a kind of map, a column a size."""
    under = ImageOps.contain(_opened(store, photo.file), (CELL, CELL))
    kinds = list(shown[0].maps)
    sheet = Image.new("RGB", ((under.width + GAP) * len(shown), (under.height + LINE + GAP) * len(kinds)), "white")
    draw = ImageDraw.Draw(sheet)
    for row, kind in enumerate(kinds):
        for column, overlay in enumerate(shown):
            left, top = column * (under.width + GAP), row * (under.height + LINE + GAP)
            draw.text((left, top), f"{kind}, {overlay.title}", fill="black")
            x, y, across, down = (share * side for share, side in zip(overlay.box, [*under.size] * 2, strict=True))
            over = overlay.maps[kind].convert("RGBA").resize((round(across), round(down)), Image.Resampling.NEAREST)
            cell = under.copy().convert("RGBA")
            cell.alpha_composite(over, (round(x), round(y)))
            sheet.paste(cell.convert("RGB"), (left, top + LINE))
    return sheet


def _pair_sheet(store: Store, pair: PairPicture, name: Namer) -> Image.Image:
    """Two windows side by side, their activations under them, and what was said."""
    rows = [(pair.first.file, pair.second.file), *((first, second) for _, first, second in pair.layers)]
    said = [
        f"{pair.told}; the label is {name(pair.label)}",
        *(f"{name(one.prediction)}{sure(one.confidence)}" for one in (pair.first, pair.second)),
        *(f"activations of {layer}" for layer, _, _ in pair.layers),
    ]
    sheet = Image.new("RGB", (2 * CELL + GAP, (CELL + GAP) * len(rows) + LINE * len(said)), "white")
    for row, files in enumerate(rows):
        for column, file in enumerate(files):
            sheet.paste(_opened(store, file).resize((CELL, CELL)), (column * (CELL + GAP), row * (CELL + GAP)))
    for place, line in enumerate(said):
        ImageDraw.Draw(sheet).text((0, (CELL + GAP) * len(rows) + place * LINE), line, fill="black")
    return sheet


def _opened(store: Store, file: str) -> Image.Image:
    return Image.open(io.BytesIO(store.read(file))).convert("RGB")


def _plain(name: str) -> str:
    """A name for a file."""
    return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in name)
