"""Boxes on pictures: where a detector found objects, and what became of them. Kinds differ in colour, line and text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont  # imported by what draws: reading marks needs none

Kind = Literal["found", "new", "changed", "weak", "lost"]
Area = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Mark:
    """A box on a picture: its corners as shares of width and height, its text, and what became of the object.

    It was `found` (on the clean image, too), is `new`, `changed` its class, is `weak` (scores below the threshold), or was
    `lost`.
    """

    box: Area
    text: str
    kind: Kind


@dataclass(frozen=True)
class Style:
    """How a kind is drawn: its colour, the colour of its text, the lengths of dashes and gaps in line widths, and the
    nearest border style of a page.
    """

    colour: str
    ink: str
    dashes: tuple[float, float] | None
    css: str
    meaning: str


STYLES: dict[Kind, Style] = {
    "found": Style("#1f6fd6", "white", None, "solid", "found"),
    "lost": Style("#d62828", "white", (5, 3), "dashed", "lost"),
    "weak": Style("#ffb000", "black", (1.2, 2), "dotted", "score below the threshold"),
    "changed": Style("#8e44ad", "white", (12, 3), "double", "found as another class (“was …”)"),
    "new": Style("#0a7d6c", "white", None, "solid", "found only in the changed image (“new”)"),
}


def read_marks(records: Iterable[Mapping[str, Any]]) -> tuple[Mark, ...]:
    """Return marks that were stored as plain data."""
    return tuple(Mark(tuple(record["box"]), record["text"], record["kind"]) for record in records)


def draw_marks(picture: Image.Image, marks: Sequence[Mark], *, text_size: int) -> Image.Image:
    """Return a picture with boxes; text is `text_size` pixels high, and lines are drawn to match."""
    from PIL import ImageDraw, ImageFont

    picture = picture.convert("RGB")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(text_size)
    line = max(2, round(text_size / 6))
    areas = [_area(mark, picture.size, line) for mark in marks]
    for mark, area in zip(marks, areas, strict=True):
        _draw_box(pen, area, STYLES[mark.kind], line)
    taken: list[Area] = []
    for mark, area in zip(marks, areas, strict=True):
        label = shorten(mark.text, picture.width - 2 * line, font)
        place = _place_label(area, _label_size(label, font), picture.size, taken)
        taken.append(place)
        pen.rectangle(place, fill=STYLES[mark.kind].colour)
        pen.text((place[0] + 3, place[1] + 1), label, fill=STYLES[mark.kind].ink, font=font)
    return picture


def enlarge(picture: Image.Image, side: int) -> Image.Image:
    """Return a picture whose shorter side has at least this many pixels, so that text on it can be read."""
    from PIL import Image

    scale = side / min(picture.size)
    if scale <= 1:
        return picture
    how = Image.Resampling.NEAREST if scale >= 4 else Image.Resampling.BICUBIC
    return picture.resize((round(picture.width * scale), round(picture.height * scale)), how)


def shorten(text: str, width: float, font: ImageFont.ImageFont | ImageFont.FreeTypeFont) -> str:
    """Return a text that fits into a width, in characters that the font has."""
    text = text.encode("latin-1", "replace").decode("latin-1")
    while len(text) > 1 and font.getlength(text) > width:
        text = text[:-1]
    return text


def _area(mark: Mark, size: tuple[int, int], line: int) -> Area:
    """Return a mark's box in pixels, inside the picture."""
    last = [size[0] - 1, size[1] - 1]
    left, top, right, bottom = (
        min(max(share * side, 0), end) for share, side, end in zip(mark.box, [*size] * 2, last * 2, strict=True)
    )
    return left, top, max(right, min(left + 2 * line, last[0])), max(bottom, min(top + 2 * line, last[1]))


def _draw_box(pen: ImageDraw.ImageDraw, area: Area, style: Style, line: int) -> None:
    left, top, right, bottom = area
    corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    for outline, width in (("white", line + 2), (style.colour, line)):  # white around it, to be seen on any ground
        for start, end in pairwise(corners):
            for dash in _dashes(start, end, style.dashes, line):
                pen.line(dash, fill=outline, width=width)


def _dashes(
    start: tuple[float, float], end: tuple[float, float], dashes: tuple[float, float] | None, line: int
) -> Iterator[list[tuple[float, float]]]:
    """Yield the parts of a line that are drawn."""
    length = abs(end[0] - start[0]) + abs(end[1] - start[1])  # lines are horizontal or vertical
    if dashes is None or length == 0:
        yield [start, end]
        return
    dash, gap = (max(1.0, part * line) for part in dashes)
    position = 0.0
    while position < length:
        shares = position / length, min(position + dash, length) / length
        yield [(start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share) for share in shares]
        position += dash + gap


def _label_size(label: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont) -> tuple[float, float]:
    _, _, right, _ = font.getbbox(label)
    _, _, _, bottom = font.getbbox("Ag")
    return right + 6, bottom + 4


def _place_label(area: Area, label: tuple[float, float], size: tuple[int, int], taken: Sequence[Area]) -> Area:
    """Return where a label goes: above its box, inside it or below it, where the fewest other labels are."""
    wide, tall = label
    left, top, right, bottom = area
    tries = [(x, y) for y in (top - tall, top, bottom - tall, bottom) for x in (left, right - wide)] + [
        (left, top + tall * step) for step in (1, 2, 3)
    ]
    places = []
    for x, y in tries:
        x, y = min(max(x, 0), max(size[0] - wide, 0)), min(max(y, 0), max(size[1] - tall, 0))
        places.append((x, y, x + wide, y + tall))
    return min(places, key=lambda place: sum(_overlap(place, other) for other in taken))


def _overlap(one: Area, two: Area) -> float:
    wide, tall = min(one[2], two[2]) - max(one[0], two[0]), min(one[3], two[3]) - max(one[1], two[1])
    return wide * tall if wide > 0 and tall > 0 else 0
