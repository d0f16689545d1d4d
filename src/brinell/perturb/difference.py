"""Distances between changed and clean images, and the mean grey value and number of colours of an image."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.kernels import kernels_for


@dataclass(frozen=True)
class Difference:
    """Distances of a batch, float32 (T,) each, for values scaled to [0, 1].

    `changed` is the share of pixels with a difference in any channel, `l0` the number of values that differ.
    """

    changed: Tensor
    l0: Tensor
    l1: Tensor
    l2: Tensor
    linf: Tensor
    mae: Tensor
    mse: Tensor


def difference(clean: Tensor, changed: Tensor) -> Difference:
    """Return the distances between two batches of images, in grey levels: uint8, or floats.

    Distances of uint8 images come from sums of whole numbers, so that every device gives the same.
    """
    kernels = kernels_for("difference", changed) if changed.dtype == torch.uint8 else None
    if kernels is not None:
        return Difference(*kernels.distances(clean, changed).unbind())
    if clean.device.type != "cpu":
        return _by_norms(clean, changed)
    return _by_floats(clean, changed) if changed.is_floating_point() else _by_bytes(clean, changed)


def _by_bytes(clean: Tensor, changed: Tensor) -> Difference:
    """Measure on a CPU, image by image: OpenCV's norms of bytes are many times faster than sums in torch."""
    pairs = zip(clean.expand_as(changed).flatten(2).numpy(), changed.flatten(2).numpy(), strict=True)
    pixels, l0, linf, total, squares = np.array([_gap_of(*pair) for pair in pairs]).T
    share, values = pixels.astype(np.float32) / np.float32(changed.shape[2:].numel()), changed[0].numel()
    # in NumPy, which takes less time per call; otherwise as in `_from_sums`
    l1, l2, mae, mse = total / 255, np.sqrt(squares) / 255, total / (255 * values), squares / (255**2 * values)
    return Difference(*torch.from_numpy(np.array([share, l0, l1, l2, linf / 255, mae, mse], np.float32)).unbind())


def _gap_of(clean: np.ndarray, changed: np.ndarray) -> tuple[float, ...]:
    """Return the pixels and the values (C, N) that differ, the largest gap, and the sums of gaps and of their squares."""
    gap = cv2.absdiff(clean, changed)
    return (
        cv2.countNonZero(functools.reduce(cv2.bitwise_or, gap)),
        cv2.countNonZero(gap),
        cv2.norm(gap, cv2.NORM_INF),
        cv2.norm(gap, cv2.NORM_L1),
        cv2.norm(gap, cv2.NORM_L2SQR),
    )


def _by_floats(clean: Tensor, changed: Tensor) -> Difference:
    """Measure floats on a CPU."""
    gap = (changed - clean).abs_().flatten(2)
    pixels, flat = gap.amax(1), gap.flatten(1)
    return _from_sums(
        changed=pixels.sign().sum(1) / pixels.shape[1],
        l0=flat.sign().sum(1),
        linf=flat.amax(1),
        sums=_sum_in_runs(flat),
        values=flat.shape[1],
    )


_RUN = 256  # values per sum in float32: 256 · 255² < 2²⁴, so that sums of whole numbers are exact in any order


def _sum_in_runs(gaps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of gaps (B, N) and of their squares, float64: of short runs in float32, then of all runs."""
    runs = pad(gaps, (0, -gaps.shape[1] % _RUN)).to(torch.float32, copy=True).view(len(gaps), -1, _RUN)
    total = runs.sum(2).sum(1, dtype=torch.float64)
    return total, runs.square_().sum(2).sum(1, dtype=torch.float64)


def _by_norms(clean: Tensor, changed: Tensor) -> Difference:
    """Measure floats on an accelerator, or bytes on one without kernels: norms read the gaps once and sum in float64."""
    whole = not changed.is_floating_point()
    # float16 holds -255..255 exactly
    gap = (changed.to(torch.float16).sub_(clean) if whole else changed - clean).flatten(2)
    pixels = torch.linalg.vector_norm(gap, torch.inf, dim=1)
    flat = gap.flatten(1)

    def norm(values: Tensor, order: float, dtype: torch.dtype = torch.float32) -> Tensor:
        found: Tensor = torch.linalg.vector_norm(values, order, dim=1, dtype=dtype)
        return found

    total, squares = norm(flat, 1, torch.float64), norm(flat, 2, torch.float64).square_()
    return _from_sums(
        changed=norm(pixels, 0) / pixels.shape[1],
        l0=norm(flat, 0),
        linf=norm(flat, torch.inf),
        # the square of a rounded square root may miss a whole number by a little
        sums=(total, squares.round_() if whole else squares),
        values=flat.shape[1],
    )


def _from_sums(*, changed: Tensor, l0: Tensor, linf: Tensor, sums: tuple[Tensor, Tensor], values: int) -> Difference:
    """Return all distances from the sums of the absolute and of the squared gaps in grey levels, float64."""
    total, squares = sums
    l1, l2 = total / 255, squares.sqrt() / 255
    mae, mse = total / (255 * values), squares / (255**2 * values)
    # in float64, which every device divides alike
    return Difference(changed, l0, l1.float(), l2.float(), (linf.double() / 255).float(), mae.float(), mse.float())


def no_difference(count: int, device: torch.device) -> Difference:
    """Return NaN distances, for images that can't be compared."""
    unknown = torch.full((count,), torch.nan, device=device)
    return Difference(*[unknown] * len(dataclasses.fields(Difference)))


def mean_grey(images: Tensor) -> Tensor:
    """Return the mean of all values of each image, 0..255: their exact sum, rounded and divided in float32."""
    kernels = kernels_for("difference", images) if images.dtype == torch.uint8 else None
    if kernels is not None:
        means: Tensor = kernels.mean_grey(images)
        return means
    rows = images.sum(3, dtype=torch.float32)  # of up to 2¹⁶ values, so that their sums are exact
    return rows.sum((1, 2), dtype=torch.float64).to(torch.float32) / images[0].numel()


def count_colours(images: Tensor) -> Tensor:
    """Return the number of distinct colours of each image."""
    if images.device.type == "cpu" and images.shape[1] <= 3:
        return torch.tensor([_colours_of(image) for image in images.flatten(2).numpy()])
    return _count_on_a_device(images)


def _count_on_a_device(images: Tensor) -> Tensor:
    kernels = (
        kernels_for("colour_counts", images) if images.shape[1] <= 3 else None
    )  # a table has 32 KiB for three channels
    if kernels is None:
        return _count_in_tensors(images)
    counts: Tensor = kernels.count_posterised(images)
    return counts if int(counts.min()) > 0 else _count_distinct(_pack(images.flatten(2).to(torch.int64), 8))


def _count_in_tensors(images: Tensor) -> Tensor:
    batch, channels = images.shape[:2]
    values = images.flatten(2).to(torch.int64)
    used = torch.zeros(batch, channels, 256, dtype=torch.uint8, device=images.device).scatter_(2, values, 1)
    if int(used.view(batch, channels, 32, 8).sum(-1).max()) > 1:
        return _count_distinct(_pack(values, 8))
    # posterised: five bits identify a channel's value, so a table of all colours is small
    code = _pack(values >> 3, 5)
    return code.new_zeros(batch, 32**channels, dtype=torch.uint8).scatter_(1, code, 1).sum(1)


def _colours_of(image: np.ndarray) -> int:
    """Return the number of distinct colours of one image of up to three channels (C, N): sorted, which NumPy does fast."""
    channels = [image[channel % len(image)] for channel in range(4)]
    colours = cv2.merge(channels).view(np.uint32).ravel()
    colours.sort()
    return int(np.count_nonzero(colours[1:] != colours[:-1])) + 1


def _pack(values: Tensor, bits: int) -> Tensor:
    """Pack the channels (B, C, N) of each pixel into one number."""
    shifts = torch.arange(values.shape[1], device=values.device)[:, None] * bits
    return (values << shifts).sum(1)


def _count_distinct(values: Tensor) -> Tensor:
    ordered = values.to(torch.int32).sort(1).values
    return (ordered[:, 1:] != ordered[:, :-1]).sum(1) + 1
