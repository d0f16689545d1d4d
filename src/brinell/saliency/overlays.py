"""Heat maps drawn over images, as the paper's Fig. 9 has them: the image, the map on it, and its hot pixels in cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# from cold to hot, at equal distances
_COLOURS = torch.tensor([[20.0, 20, 110], [20, 130, 220], [90, 220, 150], [250, 220, 60], [220, 30, 20]])
_FOUND = torch.tensor([230.0, 40, 40])  # the fullest cell's frame
_GAP = 6


def sheet(images: Tensor, maps: Tensor, hot: Tensor, fullest: Sequence[int], cells: int) -> Tensor:
    """One picture of several images (N, C, H, W), a row each: as it is, with its map over it, and its hot pixels in
    cells.
    """
    rows = []
    for image, heat, pixels, cell in zip(images, maps, hot, fullest, strict=True):
        plain = image.expand(3, -1, -1).to(torch.float32)
        over = 0.5 * plain + 0.5 * coloured(heat)
        flat = pixels.to(torch.float32).expand(3, -1, -1) * 215 + 30
        row = [plain, over, framed(flat, cell, cells)]
        rows.append(torch.cat([_spaced(part, 2) for part in row], 2)[:, :, :-_GAP])
    whole = torch.cat([_spaced(row, 1) for row in rows], 1)[:, :-_GAP]
    return whole.round().clamp(0, 255).to(torch.uint8)


def coloured(heat: Tensor) -> Tensor:
    """A map (H, W) in 0..1 as colours (3, H, W)."""
    place = heat.clamp(0, 1) * (len(_COLOURS) - 1)
    low = place.floor().clamp(max=len(_COLOURS) - 2).to(torch.int64)
    share = (place - low)[..., None]
    return torch.lerp(_COLOURS[low], _COLOURS[low + 1], share).permute(2, 0, 1)


def framed(picture: Tensor, fullest: int, cells: int) -> Tensor:
    """A picture (3, H, W) with the lines between cells, and a frame around the fullest one, by the paper's rule."""
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
    picture[:, top:bottom, left:right] = _FOUND[:, None, None]
    picture[:, top + 3 : bottom - 3, left + 3 : right - 3] = inner
    return picture


def _spaced(picture: Tensor, side: int) -> Tensor:
    """With a gap behind it."""
    shape = list(picture.shape)
    shape[side] = _GAP
    return torch.cat([picture, torch.full(shape, 255.0)], side)
