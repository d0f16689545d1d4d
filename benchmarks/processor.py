"""Speed on a CPU: a run with EfficientNet-Lite0 compared with the bare model in the fastest available runtime."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch import nn

import brinell
from benchmarks.end_to_end import one_round, operators, per_second, summary
from benchmarks.photographs import photographs
from brinell.config.execution import Execution
from brinell.models.export import export
from brinell.models.model import Model

MODEL = "efficientnet_lite0"
IMAGES, ROUNDS, SECONDS = 96, 5, 1.5


def measure() -> dict[str, Any]:
    """Find the fastest runtime of the bare model, then alternate runs and the bare model."""
    data = [(image, None) for image in photographs(IMAGES)]
    model = brinell.open_model(MODEL, Execution())
    inputs = torch.stack([model.preprocess.model_input(image) for image, _ in data[:16]])
    images = model.preprocess.normalise(inputs)
    ways = bare_runtimes(images)
    turns = [{name: per_second(query, 1.5) for name, query in ways.items()} for _ in range(5)]
    rates = {name: median(turn[name] for turn in turns) for name in ways}
    fastest = max(rates, key=lambda name: rates[name])
    rounds = [one_round(model, data, operators(), Execution(), ways[fastest], SECONDS) for _ in range(ROUNDS)]
    facts = {"model": MODEL, "cores": os.cpu_count(), "images": IMAGES, "ways": rates, "fastest": fastest}
    return facts | summary(rounds)


def bare_runtimes(images: torch.Tensor) -> dict[str, Callable[[], int]]:
    """Return functions that run the network on normalised images, each returning the number of images."""
    plain = brinell.open_model(MODEL, Execution(runtime="torch"))
    compiled = brinell.open_model(MODEL, Execution(runtime="torch", compile=True))
    session, alone = _sessions(images)
    array = images.numpy()
    name = session.get_inputs()[0].name
    pool = ThreadPoolExecutor(os.cpu_count())

    def in_torch(model: Model, batch: int) -> Callable[[], int]:
        def query() -> int:
            with torch.inference_mode():
                return len(model.forward(images[:batch]))

        query()
        return query

    def together(batch: int) -> Callable[[], int]:
        return lambda: len(session.run(None, {name: array[:batch]})[0])

    def side_by_side(batch: int) -> Callable[[], int]:
        parts = [np.ascontiguousarray(array[:batch])] * (4 * (os.cpu_count() or 1))
        return lambda: sum(pool.map(lambda part: len(alone.run(None, {name: part})[0]), parts))

    return {
        "torch, channels last, batch 16": in_torch(plain, 16),
        "torch.compile, channels last, batch 16": in_torch(compiled, 16),
        "onnxruntime, all cores on one batch of 1": together(1),
        "onnxruntime, all cores on one batch of 16": together(16),
        **{f"onnxruntime, a batch of {size} on each core": side_by_side(size) for size in (1, 2, 4, 8, 16)},
    }


def _sessions(images: torch.Tensor) -> tuple[Any, Any]:
    """Return the network in onnxruntime, with all cores per operation and with one."""
    module = brinell.open_model(MODEL, Execution(runtime="onnxruntime")).differentiable
    assert isinstance(module, nn.Module)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(module, images[:2], path, MODEL)
        sessions = []
        for threads in (0, 1):
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            sessions.append(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
    return sessions[0], sessions[1]
