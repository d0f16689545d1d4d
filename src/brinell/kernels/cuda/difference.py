"""Triton kernels that measure how far images are from clean ones, and their mean grey value, reading every byte once.

A program sums one image in whole numbers, so that the order does not matter, and rounds as `perturb.difference` does on a
CPU: divisions and the square root in float64 are correctly rounded. Where planes consist of whole words, a word of four
bytes is read at a time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 512  # words that a program reads at a time from each plane
WARPS = 4


@triton.jit(do_not_specialize=["words", "count"])  # type: ignore[untyped-decorator]
def _distances(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    clean,
    changed,
    found,
    words,
    count,
    CHANNELS: tl.constexpr,
    BYTES: tl.constexpr,
    SHARED: tl.constexpr,
    TILE: tl.constexpr,
):
    image = tl.program_id(0)
    own = image.to(tl.int64) * words * CHANNELS
    changed += own
    if not SHARED:
        clean += own
    pixels = tl.zeros((TILE,), tl.int32)
    values = tl.zeros((TILE,), tl.int32)
    largest = tl.zeros((TILE,), tl.int32)
    total = tl.zeros((TILE,), tl.int64)
    squares = tl.zeros((TILE,), tl.int64)
    for start in range(0, words, TILE):
        word = start + tl.arange(0, TILE)
        inside = word < words
        bits = tl.zeros((TILE,), tl.int32)
        sums = tl.zeros((TILE,), tl.int32)
        powers = tl.zeros((TILE,), tl.int32)
        for channel in tl.static_range(CHANNELS):
            before = tl.load(clean + channel * words + word, mask=inside, other=0).to(tl.int32)
            after = tl.load(changed + channel * words + word, mask=inside, other=0).to(tl.int32)
            bits |= before ^ after
            for byte in tl.static_range(BYTES):
                gap = tl.abs(((after >> (8 * byte)) & 255) - ((before >> (8 * byte)) & 255))
                largest = tl.maximum(largest, gap)
                values += tl.minimum(gap, 1)
                sums += gap
                powers += gap * gap
        for byte in tl.static_range(BYTES):
            pixels += tl.minimum((bits >> (8 * byte)) & 255, 1)
        total += sums.to(tl.int64)
        squares += powers.to(tl.int64)
    area = (words * BYTES).to(tl.float64)
    size = area * CHANNELS
    whole, power = tl.sum(total).to(tl.float64), tl.sum(squares).to(tl.float64)
    found += image
    tl.store(found, tl.div_rn(tl.sum(pixels).to(tl.float32), area.to(tl.float32)))
    tl.store(found + count, tl.sum(values).to(tl.float32))
    tl.store(found + 2 * count, (whole / 255.0).to(tl.float32))
    tl.store(found + 3 * count, (tl.sqrt(power) / 255.0).to(tl.float32))
    tl.store(found + 4 * count, (tl.max(largest, 0).to(tl.float64) / 255.0).to(tl.float32))
    tl.store(found + 5 * count, (whole / (size * 255.0)).to(tl.float32))
    tl.store(found + 6 * count, (power / (size * 65025.0)).to(tl.float32))


def distances(clean: Tensor, changed: Tensor) -> Tensor:
    """Return the fields of a `Difference`, float32 (7, T), of images (T, C, H, W) from clean ones or from one, uint8."""
    count, channels, height, width = changed.shape
    found = torch.empty(7, count, device=changed.device)
    (before, after), size = _in_words(height * width, clean.contiguous(), changed.contiguous())
    with torch.cuda.device_of(changed):  # type: ignore[no-untyped-call]
        _distances[(count,)](
            before,
            after,
            found,
            height * width // size,
            count,
            CHANNELS=channels,
            BYTES=size,
            SHARED=len(clean) == 1,
            TILE=TILE,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return found


@triton.jit(do_not_specialize=["words"])  # type: ignore[untyped-decorator]
def _mean_grey(images, means, words, BYTES: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    image = tl.program_id(0)
    images += image.to(tl.int64) * words
    total = tl.zeros((TILE,), tl.int64)
    for start in range(0, words, TILE):
        word = start + tl.arange(0, TILE)
        read = tl.load(images + word, mask=word < words, other=0).to(tl.int32)
        sums = tl.zeros((TILE,), tl.int32)
        for byte in tl.static_range(BYTES):
            sums += (read >> (8 * byte)) & 255
        total += sums.to(tl.int64)
    size = (words * BYTES).to(tl.float32)
    tl.store(means + image, tl.div_rn(tl.sum(total).to(tl.float32), size))


def mean_grey(images: Tensor) -> Tensor:
    """Return the mean of all values of each image (N, C, H, W), uint8: their exact sum, rounded and divided in float32."""
    means = torch.empty(len(images), device=images.device)
    length = images[0].numel()
    (words,), size = _in_words(length, images.contiguous())
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _mean_grey[(len(images),)](
            words, means, length // size, BYTES=size, TILE=2 * TILE, num_warps=WARPS, enable_fp_fusion=False
        )
    return means


def _in_words(length: int, *images: Tensor) -> tuple[list[Tensor], int]:
    """Return images, whose planes have a length, in words of four bytes or else of one, and how many these are."""
    if length % 4 or any(each.storage_offset() % 4 for each in images):
        return list(images), 1
    return [each.view(-1).view(torch.int32) for each in images], 4
