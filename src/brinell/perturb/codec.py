"""JPEG compression (Swingler 2022): OpenCV's codec on a CPU, equal kernels or tensor code elsewhere.

The paper starts at quality 31, below what anyone uses, and its code swaps red and blue. The standard variant goes through
the whole range of qualities with the channels in their order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.kernels import kernels_for
from brinell.perturb.dct import constants, jpeg_in_tensors
from brinell.perturb.operator import Facts, level_operator, step_operator
from brinell.perturb.papers import SWINGLER_2022

A = TypeVar("A")
Quality = Callable[[int], int]  # level to JPEG quality


def standard_quality(level: int) -> int:
    """Return the JPEG quality of a level: 95 at level 1, evenly down to 5 at level 30 and above."""
    return 100 if level == 0 else max(5, round(95 - 90 * (level - 1) / 29))


def quality(level: int) -> int:
    """Return the paper's JPEG quality of a level: 31 at level 1 down to 2 at level 30 and above."""
    return 100 if level == 0 else max(2, 32 - level)


def _jpeg_facts(quality: Quality) -> Facts:
    return Facts("JPEG", "quality", lambda level, h, w: quality(level), "global", "colour", source=SWINGLER_2022)


@level_operator("jpeg", _jpeg_facts(quality))
def jpeg(images: Tensor, levels: Tensor) -> Tensor:
    """Compress as JPEG of quality 31 to 2, with red and blue swapped inside the codec as in the published code."""
    return compress(images, _qualities(levels, quality), swapped=True)


@level_operator("jpeg", _jpeg_facts(quality), variant="paper")
def jpeg_as_written(images: Tensor, levels: Tensor) -> Tensor:
    """Compress as JPEG of quality 31 to 2 ("from 32 to 2": level 0, the clean image, stands for 32)."""
    return compress(images, _qualities(levels, quality), swapped=False)


@step_operator("jpeg", _jpeg_facts(quality), variant="cumulative")
def jpeg_cumulative(images: Tensor, step: int) -> Tensor:
    """Compress the image of the level below as JPEG, one quality step lower, with red and blue swapped."""
    return jpeg(images, torch.full((len(images),), step + 1, device=images.device))


@level_operator("jpeg", _jpeg_facts(standard_quality), variant="standard")
def jpeg_standard(images: Tensor, levels: Tensor) -> Tensor:
    """Compress as JPEG, of quality 95 at level 1 down to 5 at level 30."""
    return compress(images, _qualities(levels, standard_quality), swapped=False)


def _qualities(levels: Tensor, quality: Quality) -> Tensor:
    return _quality_table(quality, levels.device)[levels.clamp(max=31)]


@cache
def _quality_table(quality: Quality, device: torch.device) -> Tensor:
    return torch.tensor([quality(level) for level in range(32)], device=device)


def compress(images: Tensor, qualities: Tensor, *, swapped: bool) -> Tensor:
    """Return images after JPEG compression at qualities (B,); with red and blue `swapped` inside the codec."""
    if images.device.type == "cpu":
        return _compress_by_codec(images, qualities, swapped)
    qualities = qualities.to(images.device, non_blocking=True)
    if (kernels := kernels_for("jpeg", images)) is not None:
        made: Tensor = kernels.compress(images, qualities, constants(images.device), swapped=swapped)
        return made
    return _compress_in_tensors(images, qualities, swapped)


def _compress_in_tensors(images: Tensor, qualities: Tensor, swapped: bool) -> Tensor:
    return jpeg_in_tensors(images.flip(1), qualities).flip(1) if swapped else jpeg_in_tensors(images, qualities)


def _compress_by_codec(images: Tensor, qualities: Tensor, swapped: bool) -> Tensor:
    # OpenCV's codec expects blue first, so passing red first swaps the two
    order = slice(None) if swapped else slice(None, None, -1)
    made = torch.empty_like(images, memory_format=torch.contiguous_format)

    def compress(planes: np.ndarray, target: np.ndarray, quality: int) -> None:
        _, code = cv2.imencode(".jpg", cv2.merge(list(planes[order])), [cv2.IMWRITE_JPEG_QUALITY, quality])
        decoded = cv2.imdecode(code, cv2.IMREAD_UNCHANGED)
        assert decoded is not None
        cv2.split(decoded, list(target[order]))

    each_image(images.device, compress, images.contiguous().numpy(), made.numpy(), qualities.tolist())
    return made


def each_image(device: torch.device, work: Callable[..., A], *given: Iterable[Any]) -> list[A]:
    """Return what a library makes of single images on the host, with all cores.

    Where images are on a CPU and torch has one thread, every core has batches of its own, and this one stays on its core.
    """
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    return list(map(work, *given) if alone else _threads().map(work, *given))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "codec")
