"""Lossy compression (seed 1): by OpenCV's codec on a CPU, one image a thread; by the same in tensor code elsewhere."""

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
    """JPEG quality: 31 at level 1 down to 2 at level 30, and no lower."""
    return 100 if level == 0 else max(2, 32 - level)


_JPEG = Facts("JPEG", "quality", lambda level, h, w: quality(level), "global", "colour", source=SWINGLER_2022)


@level_operator("jpeg", _JPEG)
def jpeg(images: Tensor, levels: Tensor) -> Tensor:
    """Encoded and decoded with red and blue exchanged inside the codec, as the published code does."""
    return _compressed(images, levels, exchanged=True)


@level_operator("jpeg", _JPEG, variant="paper")
def jpeg_as_written(images: Tensor, levels: Tensor) -> Tensor:
    """Encoded and decoded with the channels in their right order."""
    return _compressed(images, levels, exchanged=False)


@step_operator("jpeg", _JPEG, variant="cumulative")
def jpeg_again(images: Tensor, step: int) -> Tensor:
    """The published codec, each level on top of the last."""
    return jpeg(images, torch.full((len(images),), step + 1))


def _compressed(images: Tensor, levels: Tensor, *, exchanged: bool) -> Tensor:
    return (_by_codec if images.device.type == "cpu" else _in_tensors)(images, levels, exchanged)


def _in_tensors(images: Tensor, levels: Tensor, exchanged: bool) -> Tensor:
    qualities = torch.tensor([quality(level) for level in range(32)], device=images.device)[levels.clamp(max=31)]
    return jpeg_in_tensors(images.flip(1), qualities).flip(1) if exchanged else jpeg_in_tensors(images, qualities)


def _by_codec(images: Tensor, levels: Tensor, exchanged: bool) -> Tensor:
    pictures = images.permute(0, 2, 3, 1).numpy()
    # OpenCV's codec expects blue first: handing it red first is what exchanges the two
    turn = slice(None) if exchanged else slice(None, None, -1)

    def through(picture: np.ndarray, level: int) -> np.ndarray:
        options = [cv2.IMWRITE_JPEG_QUALITY, quality(level)]
        _, code = cv2.imencode(".jpg", np.ascontiguousarray(picture[..., turn]), options)
        decoded = cv2.imdecode(code, cv2.IMREAD_UNCHANGED)
        assert decoded is not None
        return decoded.reshape(picture.shape)[..., turn]

    decoded = np.stack(list(_threads().map(through, pictures, levels.tolist())))
    return torch.from_numpy(decoded).permute(0, 3, 1, 2).contiguous()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "codec")
