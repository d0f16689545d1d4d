"""JPEG as tensor code: what libjpeg's baseline codec makes of an image, to the bit, for accelerators.

Only what loses information is here: colour conversion, chroma halved in both directions, the integer DCT ("islow"),
quantisation, and the way back with smooth ("fancy") upsampling; entropy coding loses nothing. Each pass of the integer
DCT is a product with a whole-numbered 8×8 matrix followed by a rounding shift. Its sums stay below 2**53, so float64
holds them exactly, and whatever multiplies matrices fastest may do it. Constants and rounding: libjpeg-turbo 3, jfdctint.c,
jidctint.c, jccolor.c, jdcolor.c, jcsample.c, jdsample.c.
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
_TO_YCC = [[19595, 38470, 7471], [-11059, -21709, 32768], [32768, -27439, -5329]]  # 16 bits of fraction


def jpeg_in_tensors(images: Tensor, qualities: Tensor) -> Tensor:
    """Images (B, 1 or 3, H, W) of at least 8×8 after JPEG of the given qualities (B,); red, green, blue in this order."""
    if images.shape[1] == 1:
        return _through_dct(images[:, 0], _table(_LUMINANCE, qualities))[:, None].to(torch.uint8)
    height, width = images.shape[-2:]
    luma, *chroma = _to_ycc(images)
    luma = _through_dct(luma, _table(_LUMINANCE, qualities))
    table = _table(_CHROMINANCE, qualities)
    half = -(-width // 2)  # what lies beyond was for whole blocks only, and smoothing shouldn't see it
    blue, red = (_doubled(_through_dct(_halved(plane), table)[..., :half])[:, :height, :width] for plane in chroma)
    return _to_rgb(luma, blue, red)


def _to_ycc(images: Tensor) -> list[Tensor]:
    """Luma, blue and red difference as int32 (B, H, W) each, 0..255."""
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


def _halved(plane: Tensor) -> Tensor:
    """Means of 2×2 pixels; halves are rounded down and up in turns along a row."""
    plane = _extended(plane, 2, 16)  # whole blocks to the right, as libjpeg does before it halves, but not below
    sums = plane[:, ::2, ::2] + plane[:, ::2, 1::2] + plane[:, 1::2, ::2] + plane[:, 1::2, 1::2]
    return (sums + 1 + torch.arange(sums.shape[-1], device=plane.device, dtype=plane.dtype) % 2) >> 2


def _doubled(plane: Tensor) -> Tensor:
    """Twice the size by a triangle filter: three parts of the nearer, one of the farther neighbour, in both directions."""
    above = torch.cat([plane[:, :1], plane[:, :-1]], 1)
    below = torch.cat([plane[:, 1:], plane[:, -1:]], 1)
    rows = torch.stack([3 * plane + above, 3 * plane + below], 2).flatten(1, 2)
    left = torch.cat([rows[..., :1], rows[..., :-1]], -1)
    right = torch.cat([rows[..., 1:], rows[..., -1:]], -1)
    rows = 3 * rows
    return torch.stack([(rows + left + 8) >> 4, (rows + right + 7) >> 4], -1).flatten(2)


def _through_dct(plane: Tensor, table: Tensor) -> Tensor:
    """A plane of whole numbers 0..255 (B, H, W) through the DCT, quantisation by the tables (B, 8, 8), and back.

    Every pass works along the rows of blocks; between the two of a transform the blocks are turned over.
    """
    height, width = plane.shape[-2:]
    whole = _extended(plane, 8, 8)
    blocks = whole.view(len(whole), whole.shape[1] // 8, 8, whole.shape[2] // 8, 8).transpose(2, 3)
    there, back = _matrix(plane.device), _matrix(plane.device).T
    rows = _pass(blocks.to(torch.float64, memory_format=torch.contiguous_format).sub_(128), there, 11)
    turned = _pass(rows.transpose(3, 4).contiguous(), there, 15)  # eight times the orthonormal coefficients
    table = table.mT[:, None, None]
    # a hair more than 1 rounds halves away from zero
    turned.mul_((1 + 2.0**-40) / (8 * table)).round_().mul_(table)
    columns = _pass(turned, back, 11)
    values = _pass(columns.transpose(3, 4).contiguous(), back, 18)
    values = values.clamp_(-128, 127).add_(128).to(torch.int16)
    return values.transpose(2, 3).reshape(whole.shape)[:, :height, :width]


def _pass(blocks: Tensor, matrix: Tensor, bits: int) -> Tensor:
    """The rows of blocks (…, 8, 8) times a matrix, shifted right by so many bits, halves rounded up."""
    half = torch.full((1,), 0.5, dtype=blocks.dtype, device=blocks.device)
    return torch.addmm(half, blocks.view(-1, 8), matrix.T * 2.0**-bits).floor_().view(blocks.shape)


def _extended(plane: Tensor, tall: int, wide: int) -> Tensor:
    """The plane with its last row and column repeated up to a multiple of a height and a width."""
    height, width = plane.shape[-2:]
    right, below = -width % wide, -height % tall
    if right:
        plane = torch.cat([plane, plane[..., -1:].expand(-1, -1, right)], -1)
    return torch.cat([plane, plane[:, -1:].expand(-1, below, -1)], 1) if below else plane


def _table(base: list[list[int]], qualities: Tensor) -> Tensor:
    """Quantisation tables float64 (B, 8, 8) for qualities 1..100."""
    scale = torch.where(qualities < 50, 5000 // qualities, 200 - 2 * qualities)[:, None, None]
    entries = torch.tensor(base, device=qualities.device)
    return ((entries * scale + 50) // 100).clamp(1, 255).to(torch.float64)


def _fix(value: float) -> int:
    """A constant with 13 bits of fraction."""
    return math.floor(value * 8192 + 0.5)


@cache
def _matrix(device: torch.device) -> Tensor:
    """The matrix of one pass of the integer DCT, with 13 bits of fraction; its transpose is the inverse's."""
    columns = [_forward_pass(unit) for unit in torch.eye(8, dtype=torch.int64).tolist()]
    return torch.tensor(columns, dtype=torch.float64).T.contiguous().to(device)


def _forward_pass(x: list[int]) -> list[int]:
    """One pass on eight values, before its rounding shift: after Loeffler, Ligtenberg and Moschytz (1989)."""
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
