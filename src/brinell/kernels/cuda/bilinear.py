"""Bilinear interpolation for kernels, which call these functions: sources of pixels are found once for all channels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def find_neighbours(motion, x, y, inside, tall, wide, width, PERSPECTIVE: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Return where pixels at (x, y) come from: the place of the upper left of four neighbours, the shares of the right and
    of the lower ones, and which of the four are in the image (upper left, upper right, lower left, lower right).

    `motion` points at nine numbers that map (x, y, 1) to column and row, with `PERSPECTIVE` divided by what the last three
    give.
    """
    across = tl.load(motion) * x + tl.load(motion + 1) * y + tl.load(motion + 2)
    down = tl.load(motion + 3) * x + tl.load(motion + 4) * y + tl.load(motion + 5)
    if PERSPECTIVE:
        far = tl.load(motion + 6) * x + tl.load(motion + 7) * y + tl.load(motion + 8)
        inside = inside & (far > 0)  # pixels behind the camera are not seen
        far = tl.where(inside, far, 1.0)
        across, down = tl.div_rn(across, far), tl.div_rn(down, far)
    inside = inside & (across > -1) & (across < wide) & (down > -1) & (down < tall)  # False for NaN
    across, down = tl.where(inside, across, 0.0), tl.where(inside, down, 0.0)
    left, top = tl.floor(across), tl.floor(down)
    column, row = left.to(tl.int32), top.to(tl.int32)
    in_left, in_right = inside & (column >= 0), inside & (column + 1 < wide)
    in_top, in_low = row >= 0, row + 1 < tall
    place = row * width + column
    return place, across - left, down - top, in_left & in_top, in_right & in_top, in_left & in_low, in_right & in_low


@triton.jit
def interpolate(plane, width, place, right, low, upper_left, upper_right, lower_left, lower_right):  # type: ignore[no-untyped-def]
    """Return a plane's values between four neighbours as they were found; 0 outside of the image."""
    corner = plane + place
    first, second = tl.load(corner, mask=upper_left, other=0.0), tl.load(corner + 1, mask=upper_right, other=0.0)
    third = tl.load(corner + width, mask=lower_left, other=0.0)
    fourth = tl.load(corner + width + 1, mask=lower_right, other=0.0)
    upper = first + (second - first) * right
    lower = third + (fourth - third) * right
    return upper + (lower - upper) * low
