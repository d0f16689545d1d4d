"""Where two heat maps differ: has the model's attention moved? Pure functions of maps (N, H, W).

The paper's rule (seed 5): what lies above a map's third quartile is hot; the image is cut into cells, and the max-cell is
the one with the most hot pixels; attention has moved if the max-cells of two maps differ. Its cells are of whole pixels,
and what is left over goes to the last ones, which are larger then and draw the maximum; and often several cells are all
hot, of which the first counts. With equal cells a pixel on a border counts for both sides in part, all cells are of one
size, and of those that are equally full the hottest counts. Two continuous measures stand beside the rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

QUARTILE = 0.75


@dataclass(frozen=True)
class Drift:
    """How attention moved from one map to another, (N,) each.

    `cell` is the max-cell by the paper's rule, `equal_cell` with cells of one size, counted row by row from 0 and -1 for
    a map of which nothing is hot; `tied` says that several cells are the fullest, of which the first counts. `overlap` is
    intersection over union of the hot pixels, `distance` that of the maps' centres of mass, as a share of the image's
    diagonal; both are NaN where a map is empty.
    """

    clean_cell: Tensor
    cell: Tensor
    clean_equal_cell: Tensor
    equal_cell: Tensor
    tied: Tensor
    overlap: Tensor
    distance: Tensor


def drift(clean: Tensor, changed: Tensor, cells: int = 5) -> Drift:
    """How the model's attention moved between pairs of maps."""
    before, after = hot(clean), hot(changed)
    (clean_cell, first), (cell, second) = (fullest(each, cells) for each in (before, after))
    (clean_equal, _), (equal, _) = (fullest(each, cells, maps) for each, maps in ((before, clean), (after, changed)))
    either = (before | after).flatten(1).sum(1)
    return Drift(
        clean_cell=clean_cell,
        cell=cell,
        clean_equal_cell=clean_equal,
        equal_cell=equal,
        tied=first | second,
        overlap=(before & after).flatten(1).sum(1) / either,
        distance=(centre(clean) - centre(changed)).norm(dim=1) / sum(side**2 for side in clean.shape[1:]) ** 0.5,
    )


def hot(maps: Tensor) -> Tensor:
    """Pixels strictly above their map's third quartile (linear between neighbours, as NumPy has it)."""
    flat = maps.flatten(1)
    place = QUARTILE * (flat.shape[1] - 1)
    low = flat.kthvalue(int(place) + 1, 1, keepdim=True).values
    high = flat.kthvalue(min(int(place) + 2, flat.shape[1]), 1, keepdim=True).values
    return (flat > torch.lerp(low, high, place - int(place))).view_as(maps)


def fullest(pixels: Tensor, cells: int, heat: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The cell with the most of some pixels, and whether others have as many; -1 where there are none at all.

    With the pixels' `heat` cells are equal, and of several the hottest is told; without it, the first of the paper's.
    """
    height, width = pixels.shape[1:]
    rows, columns = (_shares(side, cells, heat is not None).to(pixels.device) for side in (height, width))
    inside = (rows @ pixels.to(torch.float64) @ columns.T).flatten(1)
    most = inside.amax(1, keepdim=True)
    best = inside >= most - 1e-9 * height * width  # parts of pixels don't add up to the last digit
    none = most[:, 0] <= 0
    weight = best.to(torch.float64)
    if heat is not None:
        weight *= 1 + (rows @ heat.to(torch.float64) @ columns.T).flatten(1)
    return weight.argmax(1).masked_fill(none, -1), (best.sum(1) > 1) & ~none


def _shares(side: int, cells: int, equal: bool) -> Tensor:
    """How much of each pixel of a side lies in each cell, float64 (cells, side)."""
    places = torch.arange(side, dtype=torch.float64)
    if equal:
        edges = torch.arange(cells + 1, dtype=torch.float64)[:, None] * (side / cells)
        return (torch.minimum(edges[1:], places + 1) - torch.maximum(edges[:-1], places)).clamp(min=0)
    cell = (places // max(1, side // cells)).clamp(max=cells - 1)
    return (cell == torch.arange(cells)[:, None]).to(torch.float64)


def centre(maps: Tensor) -> Tensor:
    """Each map's centre of mass, y and x in pixels, float64 (N, 2); NaN for an empty map."""
    heat = maps.to(torch.float64)
    height, width = (torch.arange(side, dtype=torch.float64, device=maps.device) for side in maps.shape[1:])
    mass = heat.sum((1, 2))
    return torch.stack([heat.sum(2) @ height, heat.sum(1) @ width], 1) / mass[:, None]
