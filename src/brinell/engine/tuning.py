"""Settings that are measured on this machine."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from brinell.caching import cache_folder
from brinell.engine.checks import OBJECT
from brinell.engine.threads import CORES, answers
from brinell.models.exports import read_record, write_record
from brinell.models.model import Model
from brinell.models.runtimes import processor
from brinell.versions import package_version

SMALLEST = {"cpu": 2, "cuda": 32}
LARGEST = {"cpu": 32, "cuda": 1024}
SHARD = {"cpu": 128, "cuda": 4096}
GAIN = 1.05  # least speed-up that justifies a larger batch
SECONDS = 0.25  # measuring time per batch size on a CPU, whose cores others use, too
STEADY_SECONDS = 0.1  # the same on an accelerator
KEPT_SECONDS = 24 * 3600.0  # how long a measurement counts: the load of a machine changes

_measured: dict[tuple[str, ...], tuple[int, float]] = {}  # batch sizes and rates of models in this process
_rates: dict[tuple[str, ...], float] = {}  # the same for batch sizes that are given


def best_batch(model: Model) -> int:
    """Return a small batch size that is nearly as fast as any, found by doubling. Services are not measured."""
    return model.service.batch if model.service is not None else measured_speed(model)[0]


def measured_speed(model: Model) -> tuple[int, float]:
    """Return the best batch size of a model and its images per second, measured once in a process; on a CPU, once a day."""
    if model.speed is not None:
        return model.speed.batch, model.speed.rate
    own = _describe(model)
    if own not in _measured:
        # what an object computes is not known from its weights alone: it may be another one in the next process
        kept = model.device.type == "cpu" and not model.facts.get("source", OBJECT).startswith(OBJECT)
        _measured[own] = _kept_speed(model, _record_of(own)) if kept else _measure_speed(model)
    return _measured[own]


def _kept_speed(model: Model, file: Path) -> tuple[int, float]:
    """Return the speed of a model as it was measured lately, or now."""
    known = _read_speed(file)
    if known is None:
        known = _measure_speed(model)
        write_record(file, {"batch": known[0], "rate": known[1], "time": time.time()})
    return known


def _record_of(model: tuple[str, ...]) -> Path:
    """Return the file in which the speed of a model on this machine is kept."""
    versions = [package_version(name) for name in ("brinell", "torch", "onnxruntime", "openvino")]
    facts = [*model, processor(), CORES, SECONDS, *versions]
    name = hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()
    return cache_folder() / "speeds" / f"{name}.json"


def _read_speed(file: Path) -> tuple[int, float] | None:
    """Return a batch size and its rate as they were measured lately; None if there is no such record."""
    content = read_record(file) or {}
    with suppress(KeyError, TypeError, ValueError):
        batch, rate, age = int(content["batch"]), float(content["rate"]), time.time() - float(content["time"])
        if 1 <= batch <= max(LARGEST.values()) and rate > 0 and 0 <= age < KEPT_SECONDS:
            return batch, rate
    return None


def measured_rate(model: Model, batch: int) -> float:
    """Return a model's images per second in batches of a size, measured once in a process: every lens asks for it."""
    own = (*_describe(model), str(batch))
    if own not in _rates:
        _rates[own] = images_per_second(model, batch)
    return _rates[own]


def _describe(model: Model) -> tuple[str, ...]:
    """Return what the speed of a model depends on."""
    how = str(model.preprocess), str(model.takes), str(model.device), str(sorted(model.facts.items()))
    return model.name, model.fingerprint, model.task, *how


def _measure_speed(model: Model) -> tuple[int, float]:
    """Return the batch size and its rate. On a CPU, the first doubling that gains little is the last.

    If not even the smallest size fits into memory, smaller ones are tried.
    """
    kind = model.device.type
    best, best_rate = 1, 0.0
    size = SMALLEST.get(kind, 8)
    while size <= LARGEST.get(kind, 64):
        try:
            rate = images_per_second(model, size)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            if best_rate or size == 1:
                break
            size //= 2
            continue
        if rate > best_rate * GAIN:
            best, best_rate = size, rate
        elif kind == "cpu":
            break
        size *= 2
    return best, best_rate or images_per_second(model, best)


def images_per_second(model: Model, batch: int) -> float:
    """Return the number of images that a model processes per second, after one warm-up."""
    pre = model.preprocess
    count = batch * CORES if model.device.type == "cpu" else batch
    # on an accelerator where runs make their images, too
    images = torch.full((count, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8, device=model.device)
    seconds = SECONDS if model.device.type == "cpu" else STEADY_SECONDS

    def query() -> Tensor:  # a batch that is too large for an accelerator raises here; it is not halved
        return answers(model, images, batch) if model.device.type == "cpu" else model.predict(images)

    query()
    start = time.perf_counter()
    rounds = 0
    while time.perf_counter() - start < seconds or rounds < 2:
        query()[0, 0].item()  # waits for the device
        rounds += 1
    return rounds * count / (time.perf_counter() - start)
