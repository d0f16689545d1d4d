"""JPEG compression, to the bits of `perturb.dct`: a launch each for luma, colour differences, and images of them.

All integers fit in int32. Samples are in -128..127, so that the two forward passes sum up to at most 2**23 and 2**28, and
coefficients are at most 1024; tables of at most 255 round them to at most 1151. The absolute values in a column of the
matrix sum up to at most 61214, so that the two inverse passes sum up to less than 2**27 and 2**31.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCKS, WARPS = 8, 2  # of 8×8 samples and of threads in a program; 16 and 4 need 1.5 times as many registers per thread
PIXELS = 1024  # joined by one program


@triton.jit
def _convert(image, pixel, size, blue, of_red, of_green, of_blue, offset):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Return luma or a colour difference of pixels, from weights with 16 fractional bits."""
    total = tl.load(image + (2 - blue) * size + pixel).to(tl.int32) * of_red + offset
    total += tl.load(image + size + pixel).to(tl.int32) * of_green
    return (total + tl.load(image + blue * size + pixel).to(tl.int32) * of_blue) >> 16


@triton.jit
def _halve(image, plane, y, x, height, width, blue):  # type: ignore[no-untyped-def]
    """Return means of a colour difference (blue in plane 0, red in plane 1) over 2×2 pixels each."""
    of_red = tl.where(plane == 0, -11059, 32768)
    of_green = tl.where(plane == 0, -21709, -27439)
    of_blue = tl.where(plane == 0, 32768, -5329)
    total = 1 + x % 2  # halves are alternately rounded down and up along a row
    for down in tl.static_range(2):
        for right in tl.static_range(2):
            pixel = tl.minimum(2 * y + down, height - 1) * width + tl.minimum(2 * x + right, width - 1)
            total += _convert(image, pixel, height * width, blue, of_red, of_green, of_blue, (128 << 16) + (1 << 15) - 1)
    return total >> 2


@triton.jit
def _clip(value):  # type: ignore[no-untyped-def]
    return tl.minimum(tl.maximum(value, 0), 255).to(tl.uint8)


@triton.jit  # type: ignore[untyped-decorator]
def _transform(tile, matrix, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Multiply the first axis of a tile (8, blocks, 8) by a matrix and shift right, halves rounded up."""
    # a sum over the first or second axis stays within each thread
    return (tl.sum(matrix[:, :, None, None] * tile[None, :, :, :], 1) + (1 << (BITS - 1))) >> BITS


@triton.jit
def _quantise(tile, constants, quality, base):  # type: ignore[no-untyped-def]
    """Transform samples (8 rows, blocks, 8 columns), quantise them by a base table at a quality, and transform them back.

    Along rows and then along columns, and back along columns first, as libjpeg does: rounding depends on it.
    """
    row, column = tl.arange(0, 8)[:, None], tl.arange(0, 8)[None, :]
    forward, inverse = tl.load(constants + row * 8 + column), tl.load(constants + column * 8 + row)
    scale = tl.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    table = (tl.load(constants + base * 64 + row * 8 + column) * scale + 50) // 100
    table = tl.minimum(tl.maximum(table, 1), 255)[:, None, :]
    tile = tl.trans(_transform(tl.trans(tile, 2, 1, 0), forward, 11), 2, 1, 0)
    tile = _transform(tile, forward, 15)  # 8 times the orthonormal coefficients
    amount = (tl.abs(tile) + 4 * table) // (8 * table) * table
    tile = _transform(tl.where(tile < 0, -amount, amount), inverse, 11)
    return tl.trans(_transform(tl.trans(tile, 2, 1, 0), inverse, 18), 2, 1, 0)


# do_not_specialize: compiled once, instead of again for sizes that are 1 or multiples of 16
@triton.jit(do_not_specialize=["height", "width", "blue"])  # type: ignore[untyped-decorator]
def _code(  # type: ignore[no-untyped-def]
    images,
    coded,
    qualities,
    constants,
    height,
    width,
    blue,
    CHANNELS: tl.constexpr,
    HALVED: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Code grey or luma (or if `HALVED`, both colour differences) of all images."""
    size, high, wide, across = height * width, height, width, tl.cdiv(width, 8)
    planes, begin, length = 1, 0, size  # in the image; of the first plane and of the whole in `coded`
    if CHANNELS == 3:
        length += 2 * tl.cdiv(height, 2) * tl.cdiv(width, 2)
    if HALVED:
        planes, begin, high, wide, across = 2, size, tl.cdiv(height, 2), tl.cdiv(width, 2), tl.cdiv(width, 16)
    tiles = tl.cdiv(tl.cdiv(high, 8) * across, BLOCKS)
    image, plane = tl.program_id(0) // tiles // planes, tl.program_id(0) // tiles % planes
    block = (tl.program_id(0) % tiles * BLOCKS + tl.arange(0, BLOCKS))[None, :, None]
    y, x = block // across * 8 + tl.arange(0, 8)[:, None, None], block % across * 8 + tl.arange(0, 8)[None, None, :]
    source, row = images + image.to(tl.int64) * size * CHANNELS, tl.minimum(y, high - 1)
    if HALVED:
        tile = _halve(source, plane, row, x, height, width, blue)
    else:
        pixel = row * width + tl.minimum(x, width - 1)
        if CHANNELS == 3:
            tile = _convert(source, pixel, size, blue, 19595, 38470, 7471, 1 << 15)
        else:
            tile = tl.load(source + pixel).to(tl.int32)
    tile = _quantise(tile - 128, constants, tl.load(qualities + image).to(tl.int32), 2 if HALVED else 1)
    target = coded + image.to(tl.int64) * length + begin + plane * high * wide + y * wide + x
    tl.store(target, _clip(tile + 128), mask=(y < high) & (x < wide))


@triton.jit
def _double(plane, y, x, high, wide):  # type: ignore[no-untyped-def]
    """Return a colour difference at pixels less 128: 3/4 of the nearer and 1/4 of the farther neighbour, both ways."""
    row, far_row = y // 2 * wide, tl.minimum(tl.maximum(y // 2 + y % 2 * 2 - 1, 0), high - 1) * wide
    column, far_column = x // 2, tl.minimum(tl.maximum(x // 2 + x % 2 * 2 - 1, 0), wide - 1)
    near = 3 * tl.load(plane + row + column).to(tl.int32) + tl.load(plane + far_row + column).to(tl.int32)
    far = 3 * tl.load(plane + row + far_column).to(tl.int32) + tl.load(plane + far_row + far_column).to(tl.int32)
    return ((3 * near + far + 8 - x % 2) >> 4) - 128


# `size` is specialised: several bytes are stored at once where it is a multiple of 16
@triton.jit(do_not_specialize=["height", "width", "blue"])  # type: ignore[untyped-decorator]
def _join(coded, made, size, height, width, blue, PIXELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Make images of their coded planes."""
    high, wide = tl.cdiv(height, 2), tl.cdiv(width, 2)
    tiles = tl.cdiv(size, PIXELS)
    image = (tl.program_id(0) // tiles).to(tl.int64)
    pixel = tl.program_id(0) % tiles * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < size
    y, x = tl.minimum(pixel // width, height - 1), pixel % width
    planes, target = coded + image * (size + 2 * high * wide), made + image * size * 3 + pixel
    luma = tl.load(planes + pixel, mask=inside, other=0).to(tl.int32)
    cb, cr = _double(planes + size, y, x, high, wide), _double(planes + size + high * wide, y, x, high, wide)
    tl.store(target + (2 - blue) * size, _clip(luma + ((91881 * cr + 32768) >> 16)), mask=inside)
    tl.store(target + size, _clip(luma + ((-22554 * cb - 46802 * cr + 32768) >> 16)), mask=inside)
    tl.store(target + blue * size, _clip(luma + ((116130 * cb + 32768) >> 16)), mask=inside)


def compress(images: Tensor, qualities: Tensor, constants: Tensor, *, swapped: bool) -> Tensor:
    """Return images (B, 1 or 3, H, W), uint8, after JPEG compression at qualities (B,); `swapped` if blue comes first.

    `constants` are the matrix of a pass of the DCT and the tables of luma and of colour differences, int32 (3, 8, 8).
    """
    count, channels, height, width = images.shape
    size, high, wide = height * width, triton.cdiv(height, 2), triton.cdiv(width, 2)
    images, made, blue = images.contiguous(), images.new_empty(images.shape), 0 if swapped else 2
    qualities = qualities.contiguous()
    # the planes of an image one after another
    coded = made if channels == 1 else images.new_empty(count, size + 2 * high * wide)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        for halved in (False,) if channels == 1 else (False, True):
            planes, side = (2, 16) if halved else (1, 8)
            programs = count * planes * triton.cdiv(triton.cdiv(height, side) * triton.cdiv(width, side), BLOCKS)
            _code[(programs,)](
                images,
                coded,
                qualities,
                constants,
                height,
                width,
                blue,
                CHANNELS=channels,
                HALVED=halved,
                BLOCKS=BLOCKS,
                num_warps=WARPS,
                enable_fp_fusion=False,
            )
        if channels == 3:
            programs = count * triton.cdiv(size, PIXELS)
            _join[(programs,)](coded, made, size, height, width, blue, PIXELS=PIXELS, enable_fp_fusion=False)
    return made
