"""Kernel of `perturb.blur`: a 5×5 box filter."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 32, 256  # pixels of a program


@triton.jit
def _reflect(place, side):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Return pixels up to two outside of an axis as pixels inside, by reflection without the edge."""
    place = tl.abs(place)
    return tl.where(place < side, place, tl.minimum(tl.abs(2 * side - 2 - place), side - 1))


@triton.jit
def _five_along(row, column, width):  # type: ignore[no-untyped-def]
    total = tl.load(row + _reflect(column, width)).to(tl.int32)
    for step in tl.static_range(2):
        total += tl.load(row + _reflect(column - step - 1, width)).to(tl.int32)
        total += tl.load(row + _reflect(column + step + 1, width)).to(tl.int32)
    return total


@triton.jit(do_not_specialize=["height", "width"])  # type: ignore[untyped-decorator]
def _blur(images, made, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    plane = tl.program_id(0).to(tl.int64) * height * width
    top = tl.program_id(1) * ROWS
    place = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.minimum(place, width - 1)
    # sums of five along the four rows before; Triton 3.6 takes names of one value for one variable of the loop
    first, second = tl.full((COLUMNS,), 0, tl.int32), tl.full((COLUMNS,), 0, tl.int32)
    third, fourth = tl.full((COLUMNS,), 0, tl.int32), tl.full((COLUMNS,), 0, tl.int32)
    for row in range(top - 2, tl.minimum(top + ROWS, height) + 2):
        fifth = _five_along(images + plane + _reflect(row, height) * width, column, width)
        # a mean of 25 whole numbers is never half-way between two
        mean = (first + second + third + fourth + fifth + 12) // 25
        own = made + plane + (row - 2) * width + column
        tl.store(own, mean.to(tl.uint8), mask=place < tl.where(row < top + 2, 0, width))
        first, second, third, fourth = second, third, fourth, fifth


def blur(images: Tensor) -> Tensor:
    """Return uint8 images (B, C, H, W) blurred once (border reflect-101)."""
    count, channels, height, width = images.shape
    made = torch.empty(images.shape, dtype=torch.uint8, device=images.device)
    blocks = (count * channels, triton.cdiv(height, ROWS), triton.cdiv(width, COLUMNS))
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _blur[blocks](images.contiguous(), made, height, width, ROWS=ROWS, COLUMNS=COLUMNS)
    return made
