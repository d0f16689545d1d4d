"""Triton kernels that resize along one axis on CUDA devices (Triton comes with torch for CUDA).

A product with a matrix of weights mostly multiplies by zero and stores sums of eight bytes; the kernels read and write
bytes only. `resample` explains what is computed. Tests run the kernels on a CPU in Triton's interpreter.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.resizing.plans import LightPlan, WindowPlan

LONG, SHORT = 64, 16  # pixels of a block along rows, where bytes are contiguous, and along columns


# do_not_specialize: compiled once, instead of again for sizes that are 1 or multiples of 16
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
    CROSS: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    window, plane = program // planes, program % planes
    along = tl.program_id(1) * ALONG + tl.arange(0, ALONG)
    cross = tl.program_id(2) * CROSS + tl.arange(0, CROSS)
    valid, inside = along < count, cross < others
    pixel = tl.load(begin + window).to(tl.int32) + along
    start = tl.load(first + pixel, mask=valid, other=0) - tl.load(low + window).to(tl.int32)
    plane_start = source + program.to(tl.int64) * length * others
    total = tl.full((ALONG, CROSS), 1 << (BITS - 1), tl.int32)
    for tap in range(taps):
        weight = tl.load(whole + pixel * taps + tap, mask=valid, other=0)
        at = start + tap
        offset = cross[None, :] * length + at[:, None] if ACROSS else at[:, None] * others + cross[None, :]
        readable = (valid & (at < length))[:, None] & inside[None, :]
        total += weight[:, None] * tl.load(plane_start + offset, mask=readable, other=0).to(tl.int32)
    value = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
    offset = cross[None, :] * row_size + along[:, None] if ACROSS else along[:, None] * row_size + cross[None, :]
    corner = target + tl.load(to + window) + plane.to(tl.int64) * plane_size
    tl.store(corner + offset, value, mask=valid[:, None] & inside[None, :])


def resize_windows(
    source: Tensor, target: Tensor, taps: tuple[Tensor, Tensor], plan: WindowPlan, *, across: bool, bits: int
) -> None:
    """Resize windows (T, C, h, w), uint8, along their rows (`across`) or columns, into `target` (N, C, H, W).

    `taps` are the first source pixel of each target pixel, int32 (target,), and its weights of `bits` bits from there on,
    int32 (target, taps). All tensors are on the device.
    """
    windows, planes, height, width = source.shape
    length, others = (width, height) if across else (height, width)
    along, cross = (LONG, SHORT) if across else (SHORT, LONG)
    first, whole = taps
    blocks = (windows * planes, triton.cdiv(plan.count, along), triton.cdiv(others, cross))
    with torch.cuda.device_of(source):  # type: ignore[no-untyped-call]
        _resize_windows[blocks](
            source,
            target,
            first,
            whole,
            plan.low,
            plan.begin,
            plan.to,
            planes,
            whole.shape[1],
            length,
            others,
            plan.count,
            target.shape[2] * target.shape[3],
            target.shape[3],
            ACROSS=across,
            BITS=bits,
            ALONG=along,
            CROSS=cross,
        )


@triton.jit(do_not_specialize=["planes", "parts", "height", "width", "taps"])  # type: ignore[untyped-decorator]
def _light_and_resize_across(  # type: ignore[no-untyped-def]
    image,
    buffer,
    first,
    whole,
    profiles,
    windows,
    planes,
    parts,
    height,
    width,
    taps,
    BITS: tl.constexpr,  # noqa: N803
    ALONG: tl.constexpr,  # noqa: N803
    CROSS: tl.constexpr,  # noqa: N803
):
    window, plane = tl.program_id(0) // planes, tl.program_id(0) % planes
    entry = windows + window * 7
    top, rows = tl.load(entry).to(tl.int32), tl.load(entry + 1).to(tl.int32)
    left, columns = tl.load(entry + 4).to(tl.int32), tl.load(entry + 5).to(tl.int32)
    if tl.program_id(1) * ALONG >= columns or tl.program_id(2) * CROSS >= rows:
        return
    along = tl.program_id(1) * ALONG + tl.arange(0, ALONG)
    cross = tl.program_id(2) * CROSS + tl.arange(0, CROSS)
    valid, inside = along < columns, cross < rows
    start = tl.load(first + left + along, mask=valid, other=0)
    profile = profiles + window.to(tl.int64) * (parts * height + width)
    down = tl.load(profile + tl.minimum(plane, parts - 1) * height + top + cross, mask=inside, other=0)
    row_start = image + plane.to(tl.int64) * height * width + (top + cross).to(tl.int64) * width
    total = tl.full((ALONG, CROSS), 1 << (BITS - 1), tl.int32)
    for tap in range(taps):
        at = start + tap
        readable = valid & (at < width)
        weight = tl.load(whole + (left + along) * taps + tap, mask=valid, other=0)
        across = tl.load(profile + parts * height + at, mask=readable, other=0)
        value = tl.load(row_start[None, :] + at[:, None], mask=readable[:, None] & inside[None, :], other=0).to(tl.int32)
        light = (across[:, None] * down[None, :]).to(tl.int32)
        total += weight[:, None] * (value + tl.minimum(light, 255 - value))
    value = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
    corner = buffer + tl.load(entry + 6) + plane.to(tl.int64) * rows * columns
    tl.store(corner + cross[None, :] * columns + along[:, None], value, mask=valid[:, None] & inside[None, :])


@triton.jit(do_not_specialize=["planes", "height", "width", "taps"])  # type: ignore[untyped-decorator]
def _resize_down(  # type: ignore[no-untyped-def]
    buffer,
    made,
    first,
    whole,
    windows,
    planes,
    height,
    width,
    taps,
    BITS: tl.constexpr,  # noqa: N803
    ALONG: tl.constexpr,  # noqa: N803
    CROSS: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0)
    window, plane = program // planes, program % planes
    entry = windows + window * 7
    top, rows = tl.load(entry).to(tl.int32), tl.load(entry + 1).to(tl.int32)
    begin, count = tl.load(entry + 2).to(tl.int32), tl.load(entry + 3).to(tl.int32)
    left, columns = tl.load(entry + 4).to(tl.int32), tl.load(entry + 5).to(tl.int32)
    if tl.program_id(1) * ALONG >= count or tl.program_id(2) * CROSS >= columns:
        return
    along = tl.program_id(1) * ALONG + tl.arange(0, ALONG)
    cross = tl.program_id(2) * CROSS + tl.arange(0, CROSS)
    valid, inside = along < count, cross < columns
    start = tl.load(first + begin + along, mask=valid, other=0) - top
    plane_start = buffer + tl.load(entry + 6) + plane.to(tl.int64) * rows * columns
    total = tl.full((ALONG, CROSS), 1 << (BITS - 1), tl.int32)
    for tap in range(taps):
        at = start + tap
        weight = tl.load(whole + (begin + along) * taps + tap, mask=valid, other=0)
        readable = (valid & (at < rows))[:, None] & inside[None, :]
        value = tl.load(plane_start + at[:, None] * columns + cross[None, :], mask=readable, other=0).to(tl.int32)
        total += weight[:, None] * value
    value = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
    corner = made + program.to(tl.int64) * height * width + begin * width + left
    tl.store(corner + along[:, None] * width + cross[None, :], value, mask=valid[:, None] & inside[None, :])


def light_and_resize(
    image: Tensor, made: Tensor, across: tuple[Tensor, Tensor], down: tuple[Tensor, Tensor], plan: LightPlan, *, bits: int
) -> None:
    """Add light to windows of an image (C, H, W), uint8, and resize them into `made` (T, C, h, w), in two launches.

    Sums of light and image are clipped at 255. `across` and `down` are the `taps` of `resize_windows` for both axes.
    """
    windows, planes, height, width = made.shape
    high, wide = image.shape[1:]
    rows, count, columns = plan.largest
    buffer = made.new_empty(plan.buffer)
    with torch.cuda.device_of(image):  # type: ignore[no-untyped-call]
        _light_and_resize_across[windows * planes, triton.cdiv(columns, LONG), triton.cdiv(rows, SHORT)](
            image,
            buffer,
            *across,
            plan.profiles,
            plan.windows,
            planes,
            (plan.profiles.shape[1] - wide) // high,
            high,
            wide,
            across[1].shape[1],
            BITS=bits,
            ALONG=LONG,
            CROSS=SHORT,
        )
        _resize_down[windows * planes, triton.cdiv(count, SHORT), triton.cdiv(columns, LONG)](
            buffer,
            made,
            *down,
            plan.windows,
            planes,
            height,
            width,
            down[1].shape[1],
            BITS=bits,
            ALONG=SHORT,
            CROSS=LONG,
        )
