"""Maps of windows as pictures: laid over photographs on the report's page, and as sheets of their own."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageOps

from brinell.lenses.fragility.exhibits import PairPicture, Photo, WindowExhibits
from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.fragile import find_fragile
from brinell.lenses.fragility.maps import Maps, map_file, read_maps
from brinell.lenses.fragility.names import KINDS
from brinell.lenses.fragility.windows import Array
from brinell.marks import draw_marks
from brinell.pictures import encode_png, open_picture
from brinell.report.show import Context, Namer, format_confidence
from brinell.runs.run import Run

Rgba = tuple[int, int, int, int]  # red, green, blue, opacity
LEVELS = 32  # of confidence, on the page
# unchanged, right becomes wrong, wrong becomes right
FLIPS: tuple[Rgba, ...] = ((0, 0, 0, 110), (255, 80, 80, 235), (80, 160, 255, 235))
CORRECT: tuple[Rgba, ...] = ((214, 90, 160, 130), (60, 180, 75, 130))  # wrong, right
CELL, LINE, GAP = 220, 16, 6  # of a sheet, in pixels: a picture's side, a line of text, the gap between pictures
MARK_TEXT = 11
NOTHING: Rgba = (0, 0, 0, 0)  # a window that a budget left out


@dataclass(frozen=True)
class Overlay:
    """Maps of one size of windows as pictures, and the part of the photograph that they cover: left, top, width and height
    as shares.
    """

    title: str
    side: int
    box: tuple[float, float, float, float]
    maps: dict[str, Image.Image]


def draw_overlays(run: Run, findings: FragilityFindings, model: str, photo: Photo) -> list[Overlay]:
    """Return the maps of a photograph, size by size."""
    operators = [name for name in findings.windows if run.store.exists(*map_file(model, name, photo.image))]
    return [
        _overlay(findings.title(name), read_maps(run, model, name, photo.image), photo, findings.neighbours)
        for name in operators
    ]


def _overlay(title: str, maps: Maps, photo: Photo, neighbours: int) -> Overlay:
    hood = maps.windows(photo.height, photo.width)
    tops, lefts, side = hood.judged.tops, hood.judged.lefts, hood.judged.side
    correct, _ = maps.large.at(tops, lefts, "correct")
    confidence, _ = maps.large.at(tops, lefts, "confidence")

    def paint(values: Array, colours: tuple[Rgba, ...]) -> Image.Image:
        known = values if hood.chosen is None else np.where(hood.chosen, values, len(colours))
        return colour(known.astype(np.uint8), (*colours, NOTHING))

    pictures = {
        "right or wrong": paint(correct, CORRECT),
        "confidence": paint((confidence * (LEVELS - 1)).round(), _heat()),
    }
    assert maps.small is not None
    for kind in KINDS:
        degree, move = kind.split()
        after = maps.large if move == "shift" else maps.small
        signs = find_fragile(hood, maps.large, after, move, neighbours=neighbours).signs(degree)  # type: ignore[arg-type]
        pictures[kind] = paint(signs % 3, FLIPS)
    start = side / 2 - maps.stride / 2  # each pixel lies over the centre of its window
    across, down = len(lefts) * maps.stride / photo.width, len(tops) * maps.stride / photo.height
    return Overlay(title, side, (start / photo.width, start / photo.height, across, down), pictures)


def _heat() -> tuple[Rgba, ...]:
    """Return colours from dark blue over red to yellow."""
    steps = [level / (LEVELS - 1) for level in range(LEVELS)]
    return tuple((int(255 * min(1, 1.6 * s)), int(255 * max(0, 1.8 * s - 0.8)), int(110 * (1 - s)), 170) for s in steps)


def colour(values: Array, colours: tuple[Rgba, ...]) -> Image.Image:
    """Return a map of indices into a list of colours as a picture with a palette."""
    picture = Image.fromarray(np.ascontiguousarray(values)).convert("P")
    picture.putpalette([part for each in colours for part in each], "RGBA")
    return picture


def draw_sheets(context: Context, findings: FragilityFindings, exhibits: WindowExhibits) -> dict[str, bytes]:
    """Return maps over photographs (the paper's Figs. 3, 4, A.7-A.9) and pairs of windows (Figs. 2, A.10-A.12) as PNG."""
    run, sheets = context.run, {}
    for model, photos in exhibits.photos.items():
        for photo in photos:
            shown = draw_overlays(run, findings, model, photo)
            if shown:
                sheets[f"maps-{_file_name(model)}-{photo.image}"] = encode_png(_map_sheet(run, photo, shown))
    for pair in exhibits.pairs:
        name = f"pair-{_file_name(pair.model)}-{_file_name(pair.operator)}-{pair.move}-{pair.image}"
        sheets[name] = encode_png(_pair_sheet(run, pair, context.names[pair.model]))
    return sheets


def _map_sheet(run: Run, photo: Photo, shown: list[Overlay]) -> Image.Image:
    """Return one row per kind of map and one column per size."""
    photograph = ImageOps.contain(_open(run, photo.file), (CELL, CELL))
    kinds = list(shown[0].maps)
    size = (photograph.width + GAP) * len(shown), (photograph.height + LINE + GAP) * len(kinds)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for row, kind in enumerate(kinds):
        for column, overlay in enumerate(shown):
            left, top = column * (photograph.width + GAP), row * (photograph.height + LINE + GAP)
            draw.text((left, top), f"{kind}, {overlay.title}", fill="black")
            x, y, across, down = (share * side for share, side in zip(overlay.box, [*photograph.size] * 2, strict=True))
            over = overlay.maps[kind].convert("RGBA").resize((round(across), round(down)), Image.Resampling.NEAREST)
            cell = photograph.copy().convert("RGBA")
            cell.alpha_composite(over, (round(x), round(y)))
            sheet.paste(cell.convert("RGB"), (left, top + LINE))
    return sheet


def _pair_sheet(run: Run, pair: PairPicture, name: Namer) -> Image.Image:
    """Return two windows next to each other, their activations below, and the answers."""
    windows = pair.first, pair.second
    rows = [
        tuple((one.file, one.marks) for one in windows),
        *(((first, ()), (second, ())) for _, first, second in pair.layers),
    ]
    lines = [
        f"{pair.caption}; label: {name(pair.label)}",
        *(f"{name(one.prediction)}{format_confidence(one.confidence)}" for one in windows),
        *([f"broken: {pair.reason}"] if pair.reason else []),
        *(f"activations of {layer}" for layer, _, _ in pair.layers),
    ]
    sheet = Image.new("RGB", (2 * CELL + GAP, (CELL + GAP) * len(rows) + LINE * len(lines)), "white")
    for row, files in enumerate(rows):
        for column, (file, marks) in enumerate(files):
            picture = draw_marks(_open(run, file).resize((CELL, CELL)), marks, text_size=MARK_TEXT)
            sheet.paste(picture, (column * (CELL + GAP), row * (CELL + GAP)))
    for number, line in enumerate(lines):
        ImageDraw.Draw(sheet).text((0, (CELL + GAP) * len(rows) + number * LINE), line, fill="black")
    return sheet


def _open(run: Run, file: str) -> Image.Image:
    return open_picture(run.store.read(file)).convert("RGB")


def _file_name(text: str) -> str:
    """Return a text as part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in text)


def inline_map(picture: Image.Image) -> str:
    """Return a map as the source of an image element."""
    return "data:image/png;base64," + base64.b64encode(encode_png(picture)).decode()
