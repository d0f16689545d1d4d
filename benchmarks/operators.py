"""Images per second of each operator on one core, compared with other packages and with plain reference code.

Times are CPU times, so that other programs matter less.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import torch
from torch import Tensor

import brinell
from benchmarks.end_to_end import operators
from benchmarks.peers import peers
from brinell.models.preprocess import Preprocess
from brinell.perturb.operator import Kind, Operator

BATCH, ROUNDS = 16, 5


def measure() -> dict[str, Any]:
    """Return images per second by operator and package: the best of several rounds, in which all alternate."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    images = _photographs()
    ids = torch.arange(len(images)) * 7919
    others = peers()
    best: dict[str, dict[str, float]] = defaultdict(dict)
    for _ in range(ROUNDS):
        for name in operators():
            operator = brinell.find_operator(name, "published")
            ways: dict[str, Callable[[Tensor], object]] = {
                "brinell": lambda batch, operator=operator: _one_level(operator, batch, ids),  # type: ignore[misc]
                **others.get(name, {}),
                "plain code": lambda batch, operator=operator: _plain(operator, batch[:2]),  # type: ignore[misc]
            }
            for package, way in ways.items():
                count = 2 if package == "plain code" else len(images)
                best[name][package] = max(best[name].get(package, 0.0), count / _seconds(way, images))
    torch.set_num_threads(threads)
    return {"batch": BATCH, "operators": dict(best)}


def _one_level(operator: Operator, images: Tensor, ids: Tensor) -> Tensor:
    """Apply one level of a step operator, or level 15 of others."""
    level = 1 if operator.kind is Kind.STEP else 15
    return operator.at(images, level, seed=0, ids=ids)


def _plain(operator: Operator, images: Tensor) -> list[Any]:
    """Apply the reference code that tests compare operators with."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import reference

    level = 1 if operator.kind is Kind.STEP else 15
    pictures = images.permute(0, 2, 3, 1).contiguous().numpy()
    return [
        reference.apply_operator(operator.id, picture, level, seed=0, identity=row) for row, picture in enumerate(pictures)
    ]


def _seconds(way: Callable[[Tensor], object], images: Tensor) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        way(images)
        start = time.process_time()
        way(images)
    return time.process_time() - start


def _photographs() -> Tensor:
    photos, model_input = brinell.open_dataset("demo-photos"), Preprocess(224, 224).model_input
    return torch.stack([model_input(photos[index].image) for index in range(BATCH)])
