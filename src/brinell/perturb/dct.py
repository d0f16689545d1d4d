"""JPEG compression in tensor code for accelerators, equal to libjpeg's baseline codec to the bit.

Only the lossy steps are computed: colour conversion, chroma subsampling by two in both directions, the integer DCT
("islow"), quantisation, and the way back with smooth ("fancy") upsampling. Entropy coding is lossless and left out. Each
pass of the integer DCT is a product with an 8×8 integer matrix and a rounding shift. Its sums stay below 2**53, so float64
products are exact on any device. Constants and rounding follow libjpeg-turbo 3: jfdctint.c, jidctint.c, jccolor.c,
jdcolor.c, jcsample.c, jdsample.c.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

_LUMINANCE = [
    [16, 11, 10, 16, 24, 40, 51, 61],
    [12, 12, 14, 19, 26, 58, 60, 55],
    [14, 13, 16, 24, 40, 57, 69, 56],
    [14, 17, 22, 29, 51, 87, 80, 62],
    [18, 22, 37, 56, 68, 109, 103, 77],
    [24, 35, 55, 64, 81, 104, 113, 92],
    [49, 64, 78, 87, 103, 121, 120, 101],
    [72, 92, 95, 98, 112, 100, 103, 99],
]
_CHROMINANCE = [
    [17, 18, 24, 47, 99, 99, 99, 99],
    [18, 21, 26, 66, 99, 99, 99, 99],
    [24, 26, 56, 99, 99, 99, 99, 99],
    [47, 66, 99, 99, 99, 99, 99, 99],
    *([[99] * 8] * 4),
]
_TO_YCC = [[19595, 38470, 7471], [-11059, -21709, 32768], [32768, -27439, -5329]]  # 16 fractional bits


def jpeg_in_tensors(images: Tensor, qualities: Tensor) -> Tensor:
    """Return images (B, 1 or 3, H, W) of at least 8×8 pixels, in RGB, after JPEG compression at qualities (B,)."""
    if images.shape[1] == 1:
        return _quantise(images[:, 0], _table(_LUMINANCE, qualities))[:, None].to(torch.uint8)
    height, width = images.shape[-2:]
    luma, *chroma = _to_ycc(images)
    luma = _quantise(luma, _table(_LUMINANCE, qualities))
    table = _table(_CHROMINANCE, qualities)
    half = -(-width // 2)  # without the columns that only complete a block, which smoothing must not see
    blue, red = (_double(_quantise(_halve(plane), table)[..., :half])[:, :height, :width] for plane in chroma)
    return _to_rgb(luma, blue, red)


def _to_ycc(images: Tensor) -> list[Tensor]:
    """Return luma, blue difference and red difference, int32 (B, H, W) each, in 0..255."""
    red, green, blue = images.to(torch.int32).unbind(1)
    planes = []
    for (r, g, b), offset in zip(_TO_YCC, (1 << 15, (128 << 16) + (1 << 15) - 1, (128 << 16) + (1 << 15) - 1), strict=True):
        planes.append((red * r).add_(green, alpha=g).add_(blue, alpha=b).add_(offset).bitwise_right_shift_(16))
    return planes


def _to_rgb(luma: Tensor, blue: Tensor, red: Tensor) -> Tensor:
    half = 1 << 15
    blue, red = (plane.to(torch.int32).sub_(128) for plane in (blue, red))
    planes = (
        luma + (91881 * red).add_(half).bitwise_right_shift_(16),
        luma + (-22554 * blue).sub_(red, alpha=46802).add_(half).bitwise_right_shift_(16),
        luma + (116130 * blue).add_(half).bitwise_right_shift_(16),
    )
    return torch.stack([plane.clamp_(0, 255).to(torch.uint8) for plane in planes], 1)


def _halve(plane: Tensor) -> Tensor:
    """Average 2×2 pixels; halves are alternately rounded down and up along a row."""
    plane = _extend(plane, 2, 16)  # to whole blocks on the right, but not below, as in libjpeg
    sums = plane[:, ::2, ::2] + plane[:, ::2, 1::2] + plane[:, 1::2, ::2] + plane[:, 1::2, 1::2]
    return (sums + 1 + torch.arange(sums.shape[-1], device=plane.device, dtype=plane.dtype) % 2) >> 2


def _double(plane: Tensor) -> Tensor:
    """Double the size with a triangle filter: 3/4 of the nearer and 1/4 of the farther neighbour, in both directions."""
    above = torch.cat([plane[:, :1], plane[:, :-1]], 1)
    below = torch.cat([plane[:, 1:], plane[:, -1:]], 1)
    rows = torch.stack([3 * plane + above, 3 * plane + below], 2).flatten(1, 2)
    left = torch.cat([rows[..., :1], rows[..., :-1]], -1)
    right = torch.cat([rows[..., 1:], rows[..., -1:]], -1)
    rows = 3 * rows
    return torch.stack([(rows + left + 8) >> 4, (rows + right + 7) >> 4], -1).flatten(2)


def _quantise(plane: Tensor, table: Tensor) -> Tensor:
    """Transform a plane of integers 0..255 (B, H, W), quantise it by tables (B, 8, 8) and transform it back.

    Every pass multiplies the rows of blocks; blocks are transposed between the two passes of a transform.
    """
    height, width = plane.shape[-2:]
    whole = _extend(plane, 8, 8)
    blocks = whole.view(len(whole), whole.shape[1] // 8, 8, whole.shape[2] // 8, 8).transpose(2, 3)
    forward, inverse = _matrix(plane.device), _matrix(plane.device).T
    rows = _multiply_rows(blocks.to(torch.float64, memory_format=torch.contiguous_format).sub_(128), forward, 11)
    turned = _multiply_rows(rows.transpose(3, 4).contiguous(), forward, 15)  # 8 times the orthonormal coefficients
    table = table.mT[:, None, None]
    # a factor slightly above 1 rounds halves away from zero
    turned.mul_((1 + 2.0**-40) / (8 * table)).round_().mul_(table)
    columns = _multiply_rows(turned, inverse, 11)
    values = _multiply_rows(columns.transpose(3, 4).contiguous(), inverse, 18)
    values = values.clamp_(-128, 127).add_(128).to(torch.int16)
    return values.transpose(2, 3).reshape(whole.shape)[:, :height, :width]


def _multiply_rows(blocks: Tensor, matrix: Tensor, bits: int) -> Tensor:
    """Multiply the rows of blocks (…, 8, 8) by a matrix and shift right by `bits`, halves rounded up."""
    half = torch.full((1,), 0.5, dtype=blocks.dtype, device=blocks.device)
    return torch.addmm(half, blocks.view(-1, 8), matrix.T * 2.0**-bits).floor_().view(blocks.shape)


def _extend(plane: Tensor, tall: int, wide: int) -> Tensor:
    """Repeat the last row and column until height and width are multiples of `tall` and `wide`."""
    height, width = plane.shape[-2:]
    right, below = -width % wide, -height % tall
    if right:
        plane = torch.cat([plane, plane[..., -1:].expand(-1, -1, right)], -1)
    return torch.cat([plane, plane[:, -1:].expand(-1, below, -1)], 1) if below else plane


def _table(base: list[list[int]], qualities: Tensor) -> Tensor:
    """Return the quantisation tables, float64 (B, 8, 8), of qualities 1..100."""
    scale = torch.where(qualities < 50, 5000 // qualities, 200 - 2 * qualities)[:, None, None]
    entries = torch.tensor(base, device=qualities.device)
    return ((entries * scale + 50) // 100).clamp(1, 255).to(torch.float64)


@cache
def constants(device: torch.device) -> Tensor:
    """Return the matrix of one pass of the integer DCT and both base tables, int32 (3, 8, 8), as kernels need them."""
    tables = torch.tensor([_LUMINANCE, _CHROMINANCE], dtype=torch.int32)
    return torch.cat([_matrix(torch.device("cpu")).to(torch.int32)[None], tables]).to(device)


def _fix(value: float) -> int:
    """Return a constant with 13 fractional bits."""
    return math.floor(value * 8192 + 0.5)


@cache
def _matrix(device: torch.device) -> Tensor:
    """Return the matrix of one pass of the integer DCT, with 13 fractional bits; the inverse DCT uses its transpose."""
    columns = [_dct_pass(unit) for unit in torch.eye(8, dtype=torch.int64).tolist()]
    return torch.tensor(columns, dtype=torch.float64).T.contiguous().to(device)


def _dct_pass(x: list[int]) -> list[int]:
    """Transform eight values, before the rounding shift, after Loeffler, Ligtenberg and Moschytz (1989)."""
    s0, s1, s2, s3 = (x[i] + x[7 - i] for i in range(4))
    d0, d1, d2, d3 = (x[i] - x[7 - i] for i in range(4))
    even = _fix(0.541196100) * (s1 - s2 + s0 - s3)
    z1, z2, z3, z4 = d3 + d0, d2 + d1, d3 + d1, d2 + d0
    z5 = _fix(1.175875602) * (z3 + z4)
    z1, z2 = -_fix(0.899976223) * z1, -_fix(2.562915447) * z2
    z3, z4 = z5 - _fix(1.961570560) * z3, z5 - _fix(0.390180644) * z4
    return [
        (s0 + s1 + s2 + s3) << 13,
        _fix(1.501321110) * d0 + z1 + z4,
        even + _fix(0.765366865) * (s0 - s3),
        _fix(3.072711026) * d1 + z2 + z3,
        (s0 - s1 - s2 + s3) << 13,
        _fix(2.053119869) * d2 + z2 + z4,
        even - _fix(1.847759065) * (s1 - s2),
        _fix(0.298631336) * d3 + z1 + z3,
    ]
