"""Kernels of `perturb.weather`: fields of fog and of snow."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512  # pixels of a program


@triton.jit
def _corner(corners, row, column, octave):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    last = (1 << octave) - 1  # the map is a torus
    return tl.load(corners + ((row & last) << octave) + (column & last))


@triton.jit
def _term(bits, width, row, column, octave):  # type: ignore[no-untyped-def]
    return (_corner(bits, row, column, octave) >> 8).to(tl.float32) * width


@triton.jit
def _centre(corners, bits, width, row, column, octave):  # type: ignore[no-untyped-def]
    """Return the mean of a square's corners plus a random term."""
    left = _corner(corners, row + 1, column, octave) + _corner(corners, row, column, octave)
    right = _corner(corners, row + 1, column + 1, octave) + _corner(corners, row, column + 1, octave)
    return (right + left) * 0.25 + _term(bits, width, row, column, octave)


@triton.jit(do_not_specialize=["draws", "octave", "octaves"])  # type: ignore[untyped-decorator]
def _fill_in(corners, bits, widths, made, draws, octave, octaves, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    image = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row, column = at >> octave, at & ((1 << octave) - 1)
    area = 1 << (2 * octave)
    corners += image * area
    bits += image * draws + area - 1
    width = tl.load(widths + image * octaves + octave)
    corner = _corner(corners, row, column, octave)
    centre = _centre(corners, bits, width, row, column, octave)
    right = _centre(corners, bits, width, row - 1, column, octave) + centre
    right += _corner(corners, row, column + 1, octave) + corner
    right = right * 0.25 + _term(bits + area, width, row, column, octave)
    below = _centre(corners, bits, width, row, column - 1, octave) + centre
    below += _corner(corners, row + 1, column, octave) + corner
    below = below * 0.25 + _term(bits + 2 * area, width, row, column, octave)
    own = made + image * 4 * area + (row << (octave + 2)) + 2 * column
    inside = at < area
    tl.store(own, corner, mask=inside)
    tl.store(own + 1, right, mask=inside)
    tl.store(own + (2 << octave), below, mask=inside)
    tl.store(own + (2 << octave) + 1, centre, mask=inside)


def plasma(bits: Tensor, widths: Tensor) -> Tensor:
    """Return diamond-square maps of 2**octaves pixels a side, float32 (B, side, side).

    `bits`, int32 (B, 4**octaves - 1), are the random terms, which `widths`, float32 (B, octaves), scale.
    """
    count, octaves = widths.shape
    corners = torch.zeros(count, 1, 1, dtype=torch.float32, device=bits.device)
    with torch.cuda.device_of(bits):  # type: ignore[no-untyped-call]
        for octave in range(octaves):
            made = corners.new_empty(count, 2 << octave, 2 << octave)
            blocks = (count, triton.cdiv(1 << 2 * octave, BLOCK))
            _fill_in[blocks](
                corners, bits, widths, made, bits.shape[1], octave, octaves, BLOCK=BLOCK, enable_fp_fusion=False
            )
            corners = made
    return corners


@triton.jit(do_not_specialize=["side", "height", "width"])  # type: ignore[untyped-decorator]
def _lay_flakes(top, left, fallen, flake, counts, side, height, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    image, number = tl.program_id(0), tl.program_id(1)
    at = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    area = tl.where(number < tl.load(fallen + image), side * side, 0)
    value = tl.load(flake + at, mask=at < area, other=0.0)
    drawn = image * tl.num_programs(1) + number
    row, column = tl.load(top + drawn) + at // side, tl.load(left + drawn) + at % side
    own = counts + image.to(tl.int64) * height * width + row * width + column
    tl.atomic_add(own, value, mask=value != 0, sem="relaxed")  # whole numbers, whose order doesn't matter


def lay_flakes(top: Tensor, left: Tensor, fallen: Tensor, flake: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the sums of the first flakes of each image where they lie, float32 (B, 1, H, W).

    The corners `top` and `left` of all flakes are int64 (B, flakes); `fallen`, int32 (B,), counts those that are there.
    """
    counts = torch.zeros(len(top), 1, *size, dtype=torch.float32, device=top.device)
    blocks = (*top.shape, triton.cdiv(flake.numel(), BLOCK))
    with torch.cuda.device_of(top):  # type: ignore[no-untyped-call]
        _lay_flakes[blocks](top, left, fallen, flake, counts, len(flake), *size, BLOCK=BLOCK)
    return counts
