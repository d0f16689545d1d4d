"""Specular highlights (seed 5): a spot of light, a Gaussian of peak 255 that is added to the image and clipped.

A spot is four numbers: x and y of its centre, sigma, and its strength, all in pixels of the image it falls on; the
strength is the peak as a share of 255. Coordinates are pixel indices: a spot at (0, 0) is brightest in the middle of the
first pixel. The authors published no code; on the one pair of images that they did publish, the formula holds to 0.7 grey
levels.

Same light on every device: a Gaussian is a product of a row and a column, both made on the host in float64; a device only
multiplies them and rounds down.
"""

from __future__ import annotations

from functools import cache, partial

import torch
from torch import Tensor

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
    """Images under spots, one each: uint8 (N, C, H, W), where N is 1 or the number of spots, and float64 (T, 4) on the
    host.

    What a spot can't add any more is lost: white stays white. On a grey image a coloured spot is as grey as its colour.
    Where images are windows of larger ones, `corners` says where they lie, int64 (T, 2), y and x.
    """
    channels, height, width = images.shape[1:]
    column, row = light_profiles(spots, channels, height, width, colour, corners)
    both = to_device(torch.cat([column.flatten(1), row], 1), images.device)
    added = both[:, :-width].view(len(spots), -1, height, 1) * both[:, None, None, -width:]
    if float(spots[:, 3].max()) * max(colour) > 255:  # a float beyond 255 has no byte
        added = added.clamp_(max=255)
    return torch.minimum(added.to(torch.uint8), images.bitwise_not()).add_(images)  # ~x is 255 - x


def light_profiles(
    spots: Tensor, channels: int, height: int, width: int, colour: Colour = WHITE, corners: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What spots add, as a column for each or every channel, float64 (T, 1 or C, height), times a row (T, width)."""
    parts = colour if channels == 3 else (_grey(colour),)
    if corners is None:
        corners = torch.zeros(len(spots), 2, dtype=torch.int64)
    x, y, sigma, strength = spots.to(torch.float64).unbind(1)
    column = strength[:, None] * _fall(corners[:, :1] + torch.arange(height), y, sigma)
    peaks = torch.tensor(parts[:1] if len(set(parts)) == 1 else parts, dtype=torch.float64)
    return peaks[:, None] * column[:, None], _fall(corners[:, 1:] + torch.arange(width), x, sigma)


def _grey(colour: Colour) -> float:
    """How light a colour is (ITU-R 601)."""
    red, green, blue = colour
    return red if red == green == blue else 0.299 * red + 0.587 * green + 0.114 * blue


def _fall(places: Tensor, centre: Tensor, sigma: Tensor) -> Tensor:
    """exp(-d²/2σ²) at whole places (T, K)."""
    away = places.to(torch.float64) - centre[:, None]
    return torch.exp(-away.square() / (2 * sigma[:, None].square()))


def highlight_boxes(spots: Tensor, height: int, width: int, peak: float = 255.0) -> Tensor:
    """Boxes around all pixels that spots add a whole grey level to, int64 (T, 4): top, left, bottom, right; never empty."""
    x, y, sigma, strength = spots.unbind(1)
    reach = sigma * (2 * (peak * strength).clamp(min=1).log()).sqrt()
    low = torch.stack([y - reach, x - reach], 1).floor()
    high = torch.stack([y + reach, x + reach], 1).ceil() + 1
    most = torch.tensor([height, width], dtype=torch.float64)
    low = torch.minimum(low.clamp(min=0), most - 1)
    return torch.cat([low, torch.minimum(high, most).maximum(low + 1)], 1).to(torch.int64)


def highlight_view(variant: str, colour: Colour = WHITE) -> View:
    """A spot of light on the original as a view; its parameters are those of the spot. `variant` is who chose them."""
    local = _local(colour)
    title = TITLES.get(variant, "a spot of light")
    return View("highlight", variant, local.inputs, title=title, parameters=SPOT, local=local)


@cache
def _local(colour: Colour) -> Local:
    """The same one for the same colour: what is kept for it is found again."""

    def paint(windows: Tensor, corners: Tensor, spots: Tensor) -> Tensor:
        return add_highlights(windows, spots, colour, corners)

    return Local(partial(highlight_boxes, peak=max(colour)), paint, partial(light_profiles, colour=colour))


def cell_centres(cells: int, length: int) -> Tensor:
    """The middles of equal cells along a side, float64 (cells,)."""
    return (torch.arange(cells, dtype=torch.float64) + 0.5) * (length / cells)


def authors_centres(cells: int, length: int) -> Tensor:
    """As measured on the authors' images: cells of whole pixels, each two wider, so that spots lie a little right and
    low.
    """
    return (torch.arange(cells, dtype=torch.float64) + 0.5) * (length // cells + 2)


CENTRES = {"exact": cell_centres, "authors": authors_centres}


def highlight_grid(
    height: int, width: int, cells: int, sigmas: Tensor, strength: float = 1.0, centres: str = "exact"
) -> Tensor:
    """A spot of each sigma in each cell, float64 (sigmas * cells², 4): sigma by sigma, and row by row in each, as the
    authors number them.
    """
    y, x = CENTRES[centres](cells, height), CENTRES[centres](cells, width)
    sigma, row, column = torch.meshgrid(sigmas.to(torch.float64), y, x, indexing="ij")
    return torch.stack([column, row, sigma, torch.full_like(sigma, strength)], -1).flatten(0, 2)
