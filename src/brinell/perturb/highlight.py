"""Specular highlights (Vats and Jerripothula 2023): a Gaussian spot of light with peak 255, added to the image and clipped.

A spot has four parameters: x, y and sigma in pixels of the image, and its strength, the peak as a share of 255.
Coordinates are pixel indices: a spot at (0, 0) is brightest at the centre of the first pixel. The authors published no
code; on the one pair of images that they did publish, the formula holds to 0.7 grey levels.

The light is the same on every device: a Gaussian is the product of a row and a column, both computed on the host in
float64; a device only multiplies them and rounds down.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

import torch
from torch import Tensor

from brinell.perturb.change import Size, Slider
from brinell.perturb.view import View
from brinell.resizing.local import Local
from brinell.resizing.resample import to_device

Colour = tuple[float, float, float]
WHITE: Colour = (255.0, 255.0, 255.0)
SPOT = ("spot_x", "spot_y", "sigma", "strength")  # the parameters of a spot
TITLES = {
    "exact": "a spot of light",
    "authors": "a spot of light (the authors' grid)",
    "least": "the faintest spot of light",
}


def add_highlights(images: Tensor, spots: Tensor, colour: Colour = WHITE, corners: Tensor | None = None) -> Tensor:
    """Add one spot to each image: uint8 images (N, C, H, W), N = 1 or T, and spots float64 (T, 4) on the host.

    Sums are clipped at 255, so white stays white. On a grey image a coloured spot has the luma of its colour. Where the
    images are windows of larger ones, `corners`, int64 (T, 2), are their top left corners (y, x).
    """
    channels, height, width = images.shape[1:]
    column, row = light_profiles(spots, channels, height, width, colour, corners)
    profiles = to_device(torch.cat([column.flatten(1), row], 1), images.device)
    added = profiles[:, :-width].view(len(spots), -1, height, 1) * profiles[:, None, None, -width:]
    if float(spots[:, 3].max()) * max(colour) > 255:  # floats above 255 do not fit into a byte
        added = added.clamp_(max=255)
    return torch.minimum(added.to(torch.uint8), images.bitwise_not()).add_(images)  # ~x is 255 - x


def light_profiles(
    spots: Tensor, channels: int, height: int, width: int, colour: Colour = WHITE, corners: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return columns, float64 (T, 1 or C, height), and rows (T, width), whose products are the light of spots."""
    parts = colour if channels == 3 else (_luma(colour),)
    if corners is None:
        corners = torch.zeros(len(spots), 2, dtype=torch.int64)
    x, y, sigma, strength = spots.to(torch.float64).unbind(1)
    column = strength[:, None] * _gaussian(corners[:, :1] + torch.arange(height), y, sigma)
    peaks = torch.tensor(parts[:1] if len(set(parts)) == 1 else parts, dtype=torch.float64)
    return peaks[:, None] * column[:, None], _gaussian(corners[:, 1:] + torch.arange(width), x, sigma)


def _luma(colour: Colour) -> float:
    """Return the luma of a colour (ITU-R BT.601)."""
    red, green, blue = colour
    return red if red == green == blue else 0.299 * red + 0.587 * green + 0.114 * blue


def _gaussian(positions: Tensor, centre: Tensor, sigma: Tensor) -> Tensor:
    """Return exp(-d²/2σ²) at pixel indices (T, K)."""
    distance = positions.to(torch.float64) - centre[:, None]
    return torch.exp(-distance.square() / (2 * sigma[:, None].square()))


def highlight_boxes(spots: Tensor, height: int, width: int, peak: float = 255.0) -> Tensor:
    """Return boxes around all pixels that spots brighten, int64 (T, 4): top, left, bottom, right; never empty."""
    x, y, sigma, strength = spots.unbind(1)
    reach = sigma * (2 * (peak * strength).clamp(min=1).log()).sqrt()
    low = torch.stack([y - reach, x - reach], 1).floor()
    high = torch.stack([y + reach, x + reach], 1).ceil() + 1
    most = torch.tensor([height, width], dtype=torch.float64)
    low = torch.minimum(low.clamp(min=0), most - 1)
    return torch.cat([low, torch.minimum(high, most).maximum(low + 1)], 1).to(torch.int64)


def highlight_view(variant: str, colour: Colour = WHITE) -> View:
    """Return the view that adds a spot of light to the original; `variant` names who chose the spots."""
    local = _local_change(colour)
    title = TITLES.get(variant, "a spot of light")
    return View(
        "highlight",
        variant,
        local.inputs,
        title=title,
        parameters=SPOT,
        local=local,
        ranges=spot_ranges,
        words=describe_spot,
    )


def spot_ranges(original: Size) -> tuple[Slider, ...]:
    """Return the ranges of a spot's parameters: it starts in the middle, and a strength of 0 changes nothing."""
    height, width = original
    shorter = min(original)
    return (
        Slider("spot_x", 0, width - 1, 1, neutral=None, start=width // 2),
        Slider("spot_y", 0, height - 1, 1, neutral=None, start=height // 2),
        Slider("sigma", 1, max(2, shorter // 2), 1, neutral=None, start=max(1, shorter // 8)),
        Slider("strength", 0, 2, 0.01),
    )


def describe_spot(spot: Sequence[float]) -> str:
    """Return a spot in words."""
    x, y, sigma, strength = spot
    return f"σ {sigma:.3g} px at ({x:.0f}, {y:.0f}), {strength:.0%} of white" if strength else "clean"


@cache
def _local_change(colour: Colour) -> Local:
    """Return one object per colour, because plans for kernels are cached by it."""

    def paint(windows: Tensor, corners: Tensor, spots: Tensor) -> Tensor:
        return add_highlights(windows, spots, colour, corners)

    return Local(partial(highlight_boxes, peak=max(colour)), paint, partial(light_profiles, colour=colour))


def cell_centres(cells: int, length: int) -> Tensor:
    """Return the centres of equal cells along a side, float64 (cells,)."""
    return (torch.arange(cells, dtype=torch.float64) + 0.5) * (length / cells)


def authors_centres(cells: int, length: int) -> Tensor:
    """Return the centres measured on the authors' images: cells of whole pixels, each two pixels too wide, so that spots
    lie a little to the right and too low.
    """
    return (torch.arange(cells, dtype=torch.float64) + 0.5) * (length // cells + 2)


CENTRES = {"exact": cell_centres, "authors": authors_centres}


def highlight_grid(
    height: int, width: int, cells: int, sigmas: Tensor, strength: float = 1.0, centres: str = "exact"
) -> Tensor:
    """Return a spot of each sigma in each cell, float64 (sigmas * cells², 4), in the authors' order: sigma by sigma, row by
    row.
    """
    y, x = CENTRES[centres](cells, height), CENTRES[centres](cells, width)
    sigma, row, column = torch.meshgrid(sigmas.to(torch.float64), y, x, indexing="ij")
    return torch.stack([column, row, sigma, torch.full_like(sigma, strength)], -1).flatten(0, 2)
