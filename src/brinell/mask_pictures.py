"""Masks on pictures: classes of pixels as colours with their names, and where true classes end. It needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from brinell.marks import enlarge, shorten

if TYPE_CHECKING:
    from PIL import Image  # imported by what draws

OPACITY = 0.5
SIDE = 320  # least length of a picture's shorter side, so that names can be read
TEXT = 14  # height of names in pixels
MOST = 8  # names on a picture
LEAST = 0.005  # share of a picture that a class must cover to be named
# told apart with colour blindness, too, as far as so many can be
COLOURS = np.array(
    [
        (0, 114, 178), (230, 159, 0), (0, 158, 115), (213, 94, 0), (204, 121, 167), (86, 180, 233), (240, 228, 66),
        (148, 52, 110), (102, 166, 30), (117, 112, 179), (166, 86, 40), (27, 120, 120), (250, 128, 114), (90, 90, 200),
    ],
    np.uint8,
)  # fmt: skip


@dataclass(frozen=True)
class MaskStyle:
    """How a mask is drawn: `name` names classes, and the background has no colour and no name."""

    name: Callable[[int], str]
    background: int | None = None


def draw_mask(picture: Image.Image, mask: np.ndarray, style: MaskStyle, true: np.ndarray | None = None) -> Image.Image:
    """Return a picture with a mask (H, W) of any size over it, and white lines where the true classes end."""
    from PIL import Image

    large = enlarge(picture.convert("RGB"), SIDE)
    over = colour_mask(mask, style, large.size)
    drawn = Image.alpha_composite(large.convert("RGBA"), over)
    if true is not None:
        pixels = np.array(drawn)
        edges = _edges(_fit(true, large.size))
        pixels[_grown(edges)] = (0, 0, 0, 255)
        pixels[edges] = (255, 255, 255, 255)
        drawn = Image.fromarray(pixels)
    _write_names(drawn, _fit(mask, large.size), style)
    return drawn.convert("RGB")


def colour_mask(mask: np.ndarray, style: MaskStyle, size: tuple[int, int], *, named: bool = False) -> Image.Image:
    """Return a mask as half transparent colours, in a picture of a width and height."""
    from PIL import Image

    classes = _fit(mask, size)
    shown = (classes >= 0) & (classes != (-1 if style.background is None else style.background))
    pixels = np.zeros((*classes.shape, 4), np.uint8)
    pixels[..., :3] = COLOURS[classes % len(COLOURS)]
    pixels[..., 3] = np.where(shown, round(255 * OPACITY), 0)
    drawn = Image.fromarray(pixels)
    if named:
        _write_names(drawn, classes, style)
    return drawn


def to_mask_picture(mask: np.ndarray) -> Image.Image:
    """Return a mask as a picture whose values are classes; pixels without a class have the largest value."""
    from PIL import Image

    small = mask.max(initial=0) < 255
    return Image.fromarray(np.where(mask < 0, 255 if small else 65535, mask).astype(np.uint8 if small else np.uint16))


def _fit(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return a mask at a width and height: each pixel has the class that its centre falls on."""
    width, height = size
    rows, columns = (
        ((np.arange(there) + 0.5) * here / there).astype(int)
        for here, there in zip(mask.shape, (height, width), strict=True)
    )
    fitted: np.ndarray = mask[np.ix_(rows, columns)].astype(int)
    return fitted


def _edges(mask: np.ndarray) -> np.ndarray:
    """Return the pixels whose right or lower neighbour has another class."""
    edges = np.zeros(mask.shape, bool)
    edges[:, :-1] |= mask[:, 1:] != mask[:, :-1]
    edges[:-1] |= mask[1:] != mask[:-1]
    return edges


def _grown(edges: np.ndarray) -> np.ndarray:
    """Return the pixels next to edges, too."""
    grown = edges.copy()
    grown[1:] |= edges[:-1]
    grown[:, 1:] |= edges[:, :-1]
    return grown


def _write_names(picture: Image.Image, mask: np.ndarray, style: MaskStyle) -> None:
    """Write the names of the largest classes, each on the pixel of its class that is nearest to their middle."""
    from PIL import ImageDraw, ImageFont

    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(TEXT)
    labels, counts = np.unique(mask[mask >= 0], return_counts=True)
    largest = [(count, int(label)) for count, label in zip(counts, labels, strict=True) if count >= LEAST * mask.size]
    for _, label in sorted(largest, reverse=True)[:MOST]:
        if label == style.background:
            continue
        places = np.argwhere(mask == label)
        row, column = places[np.abs(places - places.mean(0)).sum(1).argmin()].tolist()
        text = shorten(style.name(label), picture.width - 8, font)
        width, height = font.getlength(text) + 6, TEXT + 4
        left = min(max(column - width / 2, 0), picture.width - width)
        top = min(max(row - height / 2, 0), picture.height - height)
        colour = tuple(COLOURS[label % len(COLOURS)].tolist())
        ink = "black" if np.dot(colour, (0.3, 0.6, 0.1)) > 140 else "white"
        pen.rectangle((left, top, left + width, top + height), fill=colour)
        pen.text((left + 3, top + 1), text, fill=ink, font=font)
