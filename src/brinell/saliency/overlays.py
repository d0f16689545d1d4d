"""Saliency maps drawn over images, as in the paper's Fig. 9: the image, the map over it, and its hot pixels in cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.saliency.sheets import GAP

# from cold to hot, equally spaced
_COLOURS = torch.tensor([[20.0, 20, 110], [20, 130, 220], [90, 220, 150], [250, 220, 60], [220, 30, 20]])
_FRAME = torch.tensor([230.0, 40, 40])  # around the fullest cell


def draw_sheet(images: Tensor, maps: Tensor, hot: Tensor, fullest: Sequence[int], cells: int) -> Tensor:
    """Return one picture of several images (N, C, H, W), one per row: the image, the map over it, and its hot pixels in
    cells.
    """
    rows = []
    for image, heat, pixels, cell in zip(images, maps, hot, fullest, strict=True):
        plain = image.expand(3, -1, -1).to(torch.float32)
        overlay = 0.5 * plain + 0.5 * colour_map(heat)
        mask = pixels.to(torch.float32).expand(3, -1, -1) * 215 + 30
        row = [plain, overlay, draw_cells(mask, cell, cells)]
        rows.append(torch.cat([_add_gap(part, 2) for part in row], 2)[:, :, :-GAP])
    whole = torch.cat([_add_gap(row, 1) for row in rows], 1)[:, :-GAP]
    return whole.round().clamp(0, 255).to(torch.uint8)


def colour_map(heat: Tensor) -> Tensor:
    """Return a map (H, W) in 0..1 as colours (3, H, W)."""
    position = heat.clamp(0, 1) * (len(_COLOURS) - 1)
    low = position.floor().clamp(max=len(_COLOURS) - 2).to(torch.int64)
    share = (position - low)[..., None]
    return torch.lerp(_COLOURS[low], _COLOURS[low + 1], share).permute(2, 0, 1)


def draw_cells(picture: Tensor, fullest: int, cells: int) -> Tensor:
    """Return a picture (3, H, W) with lines between the paper's cells and a frame around the fullest one."""
    picture = picture.clone()
    height, width = picture.shape[1:]
    for step in range(1, cells):
        picture[:, step * (height // cells), :] = 110
        picture[:, :, step * (width // cells)] = 110
    row, column = divmod(fullest, cells)
    top, left = row * (height // cells), column * (width // cells)
    bottom = height if row == cells - 1 else top + height // cells
    right = width if column == cells - 1 else left + width // cells
    inner = picture[:, top + 3 : bottom - 3, left + 3 : right - 3].clone()
    picture[:, top:bottom, left:right] = _FRAME[:, None, None]
    picture[:, top + 3 : bottom - 3, left + 3 : right - 3] = inner
    return picture


def _add_gap(picture: Tensor, side: int) -> Tensor:
    """Return a picture with a white gap after it."""
    shape = list(picture.shape)
    shape[side] = GAP
    return torch.cat([picture, torch.full(shape, 255.0)], side)
