"""Glass blur of ImageNet-C: pixels copied from near ones, one after the other, without a loop over pixels."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.corruptions.blur import blur, floor_blur
from brinell.perturb.corruptions.severity import Constants, Corruption, Row, corruption


@corruption(
    "glass_blur",
    Corruption(
        "glass blur",
        "blur",
        Constants(
            [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
            [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
            (0, 1, 0),
            counts=(1, 2),
        ),
    ),
)
def glass_blur(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Blur, copy every pixel from a near one, and blur again, as frosted glass does.

    The published code means to swap two pixels, but assigns views of one array to each other: the first becomes a copy
    of the second, which stays. It goes through the image backwards, and reads pixels that it has written before.
    """
    sigma, distance, times = constants
    images = floor_blur(images, sigma)
    batch, channels, height, width = images.shape
    origin: Tensor | None = None
    for time in range(int(times)):
        read = _origins(draws.bits(time, height * width), int(distance), height, width)
        origin = read if origin is None else origin.index_select(0, read)
    if origin is not None:
        planes = images.transpose(0, 1).reshape(channels, -1)
        moved = torch.stack([plane.index_select(0, origin) for plane in planes])
        images = moved.view(channels, batch, height, width).transpose(0, 1)
    return blur(images.contiguous(), sigma)


def _origins(bits: Tensor, distance: int, height: int, width: int) -> Tensor:
    """Return which pixel each pixel's colour comes from after one pass, int32 (B·H·W,), as positions in the whole batch.

    Every pixel at least `distance` from the border reads one at most `distance` away. A pixel that comes later in the image
    was written before, so its own origin counts: such links are followed to their end, twice as far in every round.
    """
    place, inside = _places(distance, height, width, bits.device)
    along = (bits & 0xFFFF).mul_(2 * distance).bitwise_right_shift_(16)
    down = bits.bitwise_right_shift_(16).bitwise_and_(0xFFFF).mul_(2 * distance).bitwise_right_shift_(16)
    step = down.mul_(width).add_(along).sub_(distance * (width + 1)).mul_(inside)
    if len(bits) > 1:
        place = place + torch.arange(len(bits), dtype=torch.int32, device=bits.device)[:, None] * (height * width)
    origin = (step + place).flatten()
    if distance == 1:  # reads one pixel back at most, which is written later
        return origin
    end = step.clamp_(min=0).add_(place).flatten()  # itself, or a pixel that was written before
    while not torch.equal(further := end.index_select(0, end), end):
        end = further
    return origin.index_select(0, end)


@lru_cache(32)
def _places(distance: int, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the position of each pixel, and whether it is read and written, as 0 or 1; int32 (H·W,) both."""
    row, column = torch.arange(height)[:, None], torch.arange(width)
    inside = (row > distance) & (row <= height - distance) & (column > distance) & (column <= width - distance)
    place = torch.arange(height * width, dtype=torch.int32)
    return place.to(device), inside.flatten().to(torch.int32).to(device)
