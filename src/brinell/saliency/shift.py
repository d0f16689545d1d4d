"""How two saliency maps differ: has the model's saliency shifted? Pure functions of maps (N, H, W).

The rule of the paper (specular highlights, Vats and Jerripothula 2023): pixels above a map's third quartile are hot;
the image is divided into cells, and the max-cell is the one with the most hot pixels; saliency has shifted if the
max-cells of two maps differ. The paper's cells are whole pixels wide and the remainder goes to the last ones, which
are larger and so win more often; and often several cells are completely hot, of which the first counts. With equal
cells, a pixel on a border counts for both sides in part, all cells have one size, and of equally full cells the
hottest counts. Two continuous measures complement the rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

QUARTILE = 0.75


@dataclass(frozen=True)
class Shift:
    """How saliency shifts from one map to another, (N,) each.

    `cell` is the max-cell by the paper's rule, `equal_cell` the one with cells of equal size, counted row by row from
    0; -1 for a map without hot pixels. `tied`: several cells are the fullest, and the first counts. `overlap` is the
    intersection over union of the hot pixels, `distance` the distance between the maps' centres of mass, as a share
    of the image's diagonal; both are NaN where a map is empty.
    """

    clean_cell: Tensor
    cell: Tensor
    clean_equal_cell: Tensor
    equal_cell: Tensor
    tied: Tensor
    overlap: Tensor
    distance: Tensor


def compare_maps(clean: Tensor, changed: Tensor, cells: int = 5) -> Shift:
    """Return how saliency shifts between pairs of maps."""
    before, after = hot_pixels(clean), hot_pixels(changed)
    (clean_cell, clean_tied), (cell, tied) = (fullest_cell(each, cells) for each in (before, after))
    (clean_equal, _), (equal, _) = (fullest_cell(each, cells, maps) for each, maps in ((before, clean), (after, changed)))
    union = (before | after).flatten(1).sum(1)
    return Shift(
        clean_cell=clean_cell,
        cell=cell,
        clean_equal_cell=clean_equal,
        equal_cell=equal,
        tied=clean_tied | tied,
        overlap=(before & after).flatten(1).sum(1) / union,
        distance=(centre(clean) - centre(changed)).norm(dim=1) / sum(side**2 for side in clean.shape[1:]) ** 0.5,
    )


def hot_pixels(maps: Tensor) -> Tensor:
    """Return the pixels strictly above their map's third quartile (interpolated linearly, as in NumPy)."""
    flat = maps.flatten(1)
    position = QUARTILE * (flat.shape[1] - 1)
    low = flat.kthvalue(int(position) + 1, 1, keepdim=True).values
    high = flat.kthvalue(min(int(position) + 2, flat.shape[1]), 1, keepdim=True).values
    return (flat > torch.lerp(low, high, position - int(position))).view_as(maps)


def fullest_cell(pixels: Tensor, cells: int, heat: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the cell with the most of some pixels (-1 if there are none), and whether others have as many.

    With the maps' `heat`, cells have equal size and the hottest of tied ones counts; without it, the paper's rule holds.
    """
    height, width = pixels.shape[1:]
    rows, columns = (_cell_shares(side, cells, equal=heat is not None).to(pixels.device) for side in (height, width))
    inside = (rows @ pixels.to(torch.float64) @ columns.T).flatten(1)
    most = inside.amax(1, keepdim=True)
    best = inside >= most - 1e-9 * height * width  # sums of parts of pixels are not exact
    none = most[:, 0] <= 0
    weight = best.to(torch.float64)
    if heat is not None:
        weight *= 1 + (rows @ heat.to(torch.float64) @ columns.T).flatten(1)
    return weight.argmax(1).masked_fill(none, -1), (best.sum(1) > 1) & ~none


def _cell_shares(side: int, cells: int, *, equal: bool) -> Tensor:
    """Return how much of each pixel of a side lies in each cell, float64 (cells, side)."""
    pixels = torch.arange(side, dtype=torch.float64)
    if equal:
        edges = torch.arange(cells + 1, dtype=torch.float64)[:, None] * (side / cells)
        return (torch.minimum(edges[1:], pixels + 1) - torch.maximum(edges[:-1], pixels)).clamp(min=0)
    cell = (pixels // max(1, side // cells)).clamp(max=cells - 1)
    return (cell == torch.arange(cells)[:, None]).to(torch.float64)


def centre(maps: Tensor) -> Tensor:
    """Return each map's centre of mass, y and x in pixels, float64 (N, 2); NaN for an empty map."""
    heat = maps.to(torch.float64)
    height, width = (torch.arange(side, dtype=torch.float64, device=maps.device) for side in maps.shape[1:])
    mass = heat.sum((1, 2))
    return torch.stack([heat.sum(2) @ height, heat.sum(1) @ width], 1) / mass[:, None]
