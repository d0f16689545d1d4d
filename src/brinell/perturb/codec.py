"""JPEG compression (Swingler 2022): OpenCV's codec with one thread per image on a CPU, equal tensor code elsewhere."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.perturb.dct import jpeg_in_tensors
from brinell.perturb.operator import Facts, level_operator, step_operator
from brinell.perturb.papers import SWINGLER_2022


def quality(level: int) -> int:
    """Return the JPEG quality of a level: 31 at level 1 down to 2 at level 30 and above."""
    return 100 if level == 0 else max(2, 32 - level)


_JPEG = Facts("JPEG", "quality", lambda level, h, w: quality(level), "global", "colour", source=SWINGLER_2022)


@level_operator("jpeg", _JPEG)
def jpeg(images: Tensor, levels: Tensor) -> Tensor:
    """Compress as JPEG, one quality step lower, with red and blue swapped inside the codec as in the published code."""
    return _compress(images, levels, swapped=True)


@level_operator("jpeg", _JPEG, variant="paper")
def jpeg_as_written(images: Tensor, levels: Tensor) -> Tensor:
    """Compress as JPEG, one quality step lower, with the channels in their right order."""
    return _compress(images, levels, swapped=False)


@step_operator("jpeg", _JPEG, variant="cumulative")
def jpeg_cumulative(images: Tensor, step: int) -> Tensor:
    """Compress the image of the level below as JPEG, one quality step lower."""
    return jpeg(images, torch.full((len(images),), step + 1))


def _compress(images: Tensor, levels: Tensor, *, swapped: bool) -> Tensor:
    return (_compress_by_codec if images.device.type == "cpu" else _compress_in_tensors)(images, levels, swapped)


def _compress_in_tensors(images: Tensor, levels: Tensor, swapped: bool) -> Tensor:
    qualities = torch.tensor([quality(level) for level in range(32)], device=images.device)[levels.clamp(max=31)]
    return jpeg_in_tensors(images.flip(1), qualities).flip(1) if swapped else jpeg_in_tensors(images, qualities)


def _compress_by_codec(images: Tensor, levels: Tensor, swapped: bool) -> Tensor:
    pictures = images.permute(0, 2, 3, 1).numpy()
    # OpenCV's codec expects blue first, so passing red first swaps the two
    order = slice(None) if swapped else slice(None, None, -1)

    def compress(picture: np.ndarray, level: int) -> np.ndarray:
        options = [cv2.IMWRITE_JPEG_QUALITY, quality(level)]
        _, code = cv2.imencode(".jpg", np.ascontiguousarray(picture[..., order]), options)
        decoded = cv2.imdecode(code, cv2.IMREAD_UNCHANGED)
        assert decoded is not None
        return decoded.reshape(picture.shape)[..., order]

    decoded = np.stack(list(_threads().map(compress, pictures, levels.tolist())))
    return torch.from_numpy(decoded).permute(0, 3, 1, 2).contiguous()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "codec")
