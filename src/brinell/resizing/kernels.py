"""Resizing along one side as kernels of Triton's, which comes with torch for CUDA: every sum is made in one go.

A product with a matrix of weights multiplies by zeros for the most part, and keeps sums of eight bytes; this reads and
writes bytes alone. See `resampling` for what is computed; tests have the kernels interpreted on a CPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LONG, SHORT = 64, 16  # pixels of a block: along rows, where bytes lie side by side, and down


# compiled once, and not anew for sizes that are 1 or multiples of 16
@triton.jit(do_not_specialize=["planes", "taps", "length", "others", "count", "plane_size", "row_size"])  # type: ignore[untyped-decorator]
def _resize_windows(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    source,
    target,
    first,
    whole,
    low,
    begin,
    to,
    planes,
    taps,
    length,
    others,
    count,
    plane_size,
    row_size,
    ACROSS: tl.constexpr,  # noqa: N803
    BITS: tl.constexpr,  # noqa: N803
    ALONG: tl.constexpr,  # noqa: N803
    BESIDE: tl.constexpr,  # noqa: N803
):
    place = tl.program_id(0)
    window, plane = place // planes, place % planes
    along = tl.program_id(1) * ALONG + tl.arange(0, ALONG)
    beside = tl.program_id(2) * BESIDE + tl.arange(0, BESIDE)
    there, inside = along < count, beside < others
    pixel = tl.load(begin + window).to(tl.int32) + along
    start = tl.load(first + pixel, mask=there, other=0) - tl.load(low + window).to(tl.int32)
    plane_of = source + place.to(tl.int64) * length * others
    total = tl.full((ALONG, BESIDE), 1 << (BITS - 1), tl.int32)
    for tap in range(taps):
        weight = tl.load(whole + pixel * taps + tap, mask=there, other=0)
        at = start + tap
        where = beside[None, :] * length + at[:, None] if ACROSS else at[:, None] * others + beside[None, :]
        held = (there & (at < length))[:, None] & inside[None, :]
        total += weight[:, None] * tl.load(plane_of + where, mask=held, other=0).to(tl.int32)
    value = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
    where = beside[None, :] * row_size + along[:, None] if ACROSS else along[:, None] * row_size + beside[None, :]
    corner = target + tl.load(to + window) + plane.to(tl.int64) * plane_size
    tl.store(corner + where, value, mask=there[:, None] & inside[None, :])


def resize_windows(
    source: Tensor,
    target: Tensor,
    first: Tensor,
    whole: Tensor,
    low: Tensor,
    begin: Tensor,
    to: Tensor,
    count: int,
    *,
    across: bool,
    bits: int,
) -> None:
    """Make `count` pixels of every row (or column) of windows (T, C, h, w), uint8, from weighted sums along it.

    Target pixel x takes `whole[x]`, int32 (target, taps), of the source's pixels from `first[x]` on. Window t begins at the
    source's pixel `low[t]`, and its first made pixel is `begin[t]`. They go to `target`, (N, C, H, W), from its element
    `to[t]` on. These three are int64 (T,), and all lie on the device.
    """
    windows, planes, height, width = source.shape
    length, others = (width, height) if across else (height, width)
    along, beside = (LONG, SHORT) if across else (SHORT, LONG)
    blocks = (windows * planes, triton.cdiv(count, along), triton.cdiv(others, beside))
    with torch.cuda.device_of(source):  # type: ignore[no-untyped-call]
        _resize_windows[blocks](
            source,
            target,
            first,
            whole,
            low,
            begin,
            to,
            planes,
            whole.shape[1],
            length,
            others,
            count,
            target.shape[2] * target.shape[3],
            target.shape[3],
            ACROSS=across,
            BITS=bits,
            ALONG=along,
            BESIDE=beside,
        )


@triton.jit(do_not_specialize=["planes", "parts", "height", "width", "taps"])  # type: ignore[untyped-decorator]
def _light_and_resize_across(  # type: ignore[no-untyped-def]
    image,
    middle,
    first,
    whole,
    falls,
    places,
    planes,
    parts,
    height,
    width,
    taps,
    BITS: tl.constexpr,  # noqa: N803
    ALONG: tl.constexpr,  # noqa: N803
    BESIDE: tl.constexpr,  # noqa: N803
):
    window, plane = tl.program_id(0) // planes, tl.program_id(0) % planes
    own = places + window * 7
    top, rows = tl.load(own).to(tl.int32), tl.load(own + 1).to(tl.int32)
    left, columns = tl.load(own + 4).to(tl.int32), tl.load(own + 5).to(tl.int32)
    if tl.program_id(1) * ALONG >= columns or tl.program_id(2) * BESIDE >= rows:
        return
    along = tl.program_id(1) * ALONG + tl.arange(0, ALONG)
    beside = tl.program_id(2) * BESIDE + tl.arange(0, BESIDE)
    there, inside = along < columns, beside < rows
    start = tl.load(first + left + along, mask=there, other=0)
    fall = falls + window.to(tl.int64) * (parts * height + width)
    down = tl.load(fall + tl.minimum(plane, parts - 1) * height + top + beside, mask=inside, other=0)
    rows_of = image + plane.to(tl.int64) * height * width + (top + beside).to(tl.int64) * width
    total = tl.full((ALONG, BESIDE), 1 << (BITS - 1), tl.int32)
    for tap in range(taps):
        at = start + tap
        held = there & (at < width)
        weight = tl.load(whole + (left + along) * taps + tap, mask=there, other=0)
        across = tl.load(fall + parts * height + at, mask=held, other=0)
        value = tl.load(rows_of[None, :] + at[:, None], mask=held[:, None] & inside[None, :], other=0).to(tl.int32)
        light = (across[:, None] * down[None, :]).to(tl.int32)
        total += weight[:, None] * (value + tl.minimum(light, 255 - value))
    value = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
    corner = middle + tl.load(own + 6) + plane.to(tl.int64) * rows * columns
    tl.store(corner + beside[None, :] * columns + along[:, None], value, mask=there[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["planes", "height", "width", "taps"])  # type: ignore[untyped-decorator]
def _resize_down(  # type: ignore[no-untyped-def]
    middle,
    made,
    first,
    whole,
    places,
    planes,
    height,
    width,
    taps,
    BITS: tl.constexpr,  # noqa: N803
    ALONG: tl.constexpr,  # noqa: N803
    BESIDE: tl.constexpr,  # noqa: N803
):
    place = tl.program_id(0)
    window, plane = place // planes, place % planes
    own = places + window * 7
    top, rows = tl.load(own).to(tl.int32), tl.load(own + 1).to(tl.int32)
    begin, count = tl.load(own + 2).to(tl.int32), tl.load(own + 3).to(tl.int32)
    left, columns = tl.load(own + 4).to(tl.int32), tl.load(own + 5).to(tl.int32)
    if tl.program_id(1) * ALONG >= count or tl.program_id(2) * BESIDE >= columns:
        return
    along = tl.program_id(1) * ALONG + tl.arange(0, ALONG)
    beside = tl.program_id(2) * BESIDE + tl.arange(0, BESIDE)
    there, inside = along < count, beside < columns
    start = tl.load(first + begin + along, mask=there, other=0) - top
    plane_of = middle + tl.load(own + 6) + plane.to(tl.int64) * rows * columns
    total = tl.full((ALONG, BESIDE), 1 << (BITS - 1), tl.int32)
    for tap in range(taps):
        at = start + tap
        weight = tl.load(whole + (begin + along) * taps + tap, mask=there, other=0)
        held = (there & (at < rows))[:, None] & inside[None, :]
        value = tl.load(plane_of + at[:, None] * columns + beside[None, :], mask=held, other=0).to(tl.int32)
        total += weight[:, None] * value
    value = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
    corner = made + place.to(tl.int64) * height * width + begin * width + left
    tl.store(corner + along[:, None] * width + beside[None, :], value, mask=there[:, None] & inside[None, :])


def light_and_resize(
    image: Tensor,
    middle: Tensor,
    made: Tensor,
    across: tuple[Tensor, Tensor],
    down: tuple[Tensor, Tensor],
    falls: Tensor,
    places: Tensor,
    most: tuple[int, int, int],
    *,
    bits: int,
) -> None:
    """Light on an image (C, H, W), uint8, resized: two launches for all T windows that it changes.

    The light on a pixel is the product of what `falls`, float64 (T, P * H + W), has for its row and column, rounded
    down; P is 1 or C, and what the light can't add is lost. `across` and `down` are what `resize_windows` takes.
    `places` are int64 (T, 7): where a window begins in the image and how many rows it has there; the same on the model
    input; the same for its columns on the model input; and where it lies in `middle`, which holds what the first pass
    gives. None is larger than `most` (rows of the image, rows and columns of the model input).
    """
    windows, planes, height, width = made.shape
    high, wide = image.shape[1:]
    rows, count, columns = most
    with torch.cuda.device_of(image):  # type: ignore[no-untyped-call]
        _light_and_resize_across[windows * planes, triton.cdiv(columns, LONG), triton.cdiv(rows, SHORT)](
            image,
            middle,
            *across,
            falls,
            places,
            planes,
            (falls.shape[1] - wide) // high,
            high,
            wide,
            across[1].shape[1],
            BITS=bits,
            ALONG=LONG,
            BESIDE=SHORT,
        )
        _resize_down[windows * planes, triton.cdiv(count, SHORT), triton.cdiv(columns, LONG)](
            middle,
            made,
            *down,
            places,
            planes,
            height,
            width,
            down[1].shape[1],
            BITS=bits,
            ALONG=SHORT,
            BESIDE=LONG,
        )
