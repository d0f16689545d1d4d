"""Runs torch modules on an accelerator in the way that ends a run soonest: eager, fused, or compiled."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brinell.caching import cache_folder
from brinell.models.compile_choice import (
    COMPILED,
    EAGER,
    FUSED,
    GAINS,
    WARM,
    Expected,
    Way,
    assumed_ways,
    order_of_ways,
)
from brinell.models.export import check_scores
from brinell.models.exports import read_record, write_record
from brinell.models.fusing import fold_batch_norms, fuse_activations
from brinell.models.model import Forward, Speed, pad_batch
from brinell.models.preprocess import Preprocess
from brinell.versions import package_version

LOG = logging.getLogger(__name__)
ROUNDS = 5  # of a measurement
BATCHES = (64, 128, 256, 512, 1024)  # batch sizes to choose from
GAIN = 1.02  # least speed-up that justifies a larger batch
# largest difference of scores from eager torch, as a share of the largest: other ways round at other places
AGREEMENT = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2}


@dataclass(frozen=True)
class Chosen:
    """A forward pass, the way in which it runs, and its speed, where it was measured."""

    forward: Forward
    way: str
    speed: Speed | None = None


def compile_module(module: nn.Module) -> nn.Module:
    """Return a module that compiles itself when it is first called. What Inductor has compiled is kept between runs."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    compiled: nn.Module = torch.compile(module)  # type: ignore[assignment]
    return compiled


class Ways:
    """The ways to run a module: `wrap` makes a forward pass of one, `place` moves one to its device and precision.

    Of the module, which is in float32, copies are made; `compiler` is torch's.
    """

    def __init__(
        self,
        module: nn.Module,
        place: Callable[[nn.Module], nn.Module],
        wrap: Callable[[nn.Module], Forward],
        compiler: Callable[[nn.Module], nn.Module] = compile_module,
    ) -> None:
        self._module, self._place, self._compiler = module, place, compiler
        self.wrap = wrap

    def make(self, way: str, eager: Forward, batch: int) -> Forward:
        """Return the forward pass of a way; raise if there is none for this module."""
        folded = fold_batch_norms(self._module)
        if way == FUSED:
            fused = None if folded is None else fuse_activations(folded)
            if fused is None:
                raise ValueError("it has no convolutions that are followed by batch norms and ReLUs")
            return self.wrap(self._place(fused))
        plain = copy.deepcopy(self._module) if folded is None else folded
        return _one_shape(self.wrap(self._compiler(self._place(plain))), eager, batch)


def accelerated(
    ways: Ways, eager: Forward, images: Tensor, record: str, precision: str, wanted: Expected, batch: int | None
) -> Chosen:
    """Return a module's forward pass in the way that ends a run soonest.

    `eager` is the plain way, and `images` are normalised ones on its device. A way that fails, or that scores differently
    from eager torch, is left out. What is measured is kept for the next run with this `batch`, under `record`.
    """
    if not wanted.passes and wanted.runtime not in GAINS:
        return Chosen(eager, EAGER)
    file = cache_folder() / "runtimes" / (f"{record}.json" if batch is None else f"{record}-{batch}.json")
    size, known = _read_record(read_record(file), batch)
    if wanted.runtime in known and not math.isfinite(known[wanted.runtime].start):
        del known[wanted.runtime]  # it worked when the run began
    if EAGER not in known:
        size, known[EAGER] = best_speed(eager, images, [batch] if batch else BATCHES)
        _write_record(file, size, known)
    full = images.repeat(-(-size // len(images)), 1, 1, 1)[:size].contiguous(memory_format=torch.channels_last)
    made: dict[str, Forward] = {}
    while True:
        name = _best(known, made, wanted)
        if name == EAGER:
            if wanted.runtime in (FUSED, COMPILED):
                LOG.warning(
                    "The run began with the runtime %s, which fails now; it goes on with %s.", wanted.runtime, EAGER
                )
            return Chosen(eager, EAGER, Speed(size, known[EAGER].rate))
        if name in made:
            return Chosen(made[name], name, Speed(size, known[name].rate))
        try:
            began = time.perf_counter()
            run = ways.make(name, eager, size)
            making, way = time.perf_counter() - began, measure_way(run, full)
            known[name] = _expected_next(Way(making + way.start, way.rate), name, known.get(name))
            with torch.inference_mode():
                check_scores(run, full, eager(full), "the model", name, AGREEMENT[precision])
            made[name] = run
        except torch.OutOfMemoryError:
            LOG.info("Not %s: out of memory", name)
            torch.cuda.empty_cache()
            known[name] = Way(math.inf, 1.0)
            continue  # the next run may have more
        except Exception as error:  # compilers raise anything
            LOG.info("Not %s: %s", name, (str(error).strip() or type(error).__name__).splitlines()[0])
            known[name] = Way(math.inf, 1.0)  # not tried again
        _write_record(file, size, known)


def _best(known: Mapping[str, Way], made: Collection[str], wanted: Expected) -> str:
    """Return the way that ends the run soonest; those that are made start at once. Rows of one run come from one way."""
    if wanted.runtime in GAINS:
        return wanted.runtime if math.isfinite(known.get(wanted.runtime, Way(0.0, 1.0)).start) else EAGER
    ready = {name: Way(0.0, known[name].rate) for name in made}
    return order_of_ways({**assumed_ways(known[EAGER].rate), **known, **ready}, wanted.passes)[0]


def _expected_next(now: Way, name: str, before: Way | None) -> Way:
    """Return what to expect of a way the next time: a first compilation takes longer than the following ones."""
    return Way(now.start * WARM, now.rate) if name == COMPILED and before is None else now


def best_speed(forward: Forward, images: Tensor, sizes: Sequence[int]) -> tuple[int, Way]:
    """Return a small batch size that is nearly as fast as any of the sizes, and the way that it is measured to be.

    If not even the first one fits into memory, smaller ones are tried.
    """
    best, way, smaller = sizes[0], Way(0.0, 0.0), sizes[0] // 2
    for size in sizes:
        found = _measure_batch(forward, images, size)
        if found is None or found.rate <= way.rate * GAIN:
            break
        best, way = size, Way(0.0, found.rate)
    while not way.rate and smaller > 1:
        if (found := _measure_batch(forward, images, smaller)) is not None:
            return smaller, Way(0.0, found.rate)
        smaller //= 2
    return (best, way) if way.rate else (1, Way(0.0, measure_way(forward, images[:1]).rate))


def _measure_batch(forward: Forward, images: Tensor, size: int) -> Way | None:
    """Measure a batch of a size; None if it doesn't fit into memory."""
    try:
        return measure_way(forward, images[:1].expand(size, -1, -1, -1).contiguous(memory_format=torch.channels_last))
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None


def measure_way(forward: Forward, batch: Tensor, clock: Callable[[], float] = time.perf_counter) -> Way:
    """Return how long the first call takes, and the rate of the next ones."""
    with torch.inference_mode():
        began = clock()
        _finish(forward(batch))
        first = clock()
        for _ in range(ROUNDS):
            scores = forward(batch)
        _finish(scores)
        each = (clock() - first) / ROUNDS
    return Way(max(0.0, first - began - each), len(batch) / max(each, 1e-9))


def _finish(scores: Tensor) -> None:
    scores.flatten()[0].item()  # waits for the device


def _one_shape(run: Forward, eager: Forward, batch: int) -> Forward:
    """Return a forward pass that is compiled for one batch size: compiling for another takes longer than it saves."""

    def forward(images: Tensor) -> Tensor:
        count = len(images)
        if count == batch:
            return run(images)
        if not batch // 2 < count < batch:
            return eager(pad_batch(images))[:count]
        return run(torch.cat([images, images[-1:].expand(batch - count, -1, -1, -1)]))[:count]

    return forward


def record_name(module: nn.Module, fingerprint: str, preprocess: Preprocess, precision: str, device: torch.device) -> str:
    """Return the name of the record of a module's ways: a digest of what their speed depends on."""
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    shape = [preprocess.channels, preprocess.height, preprocess.width]
    facts = [fingerprint, str(module), shape, precision, named, package_version("torch")]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def _read_record(content: Mapping[str, Any] | None, batch: int | None) -> tuple[int, dict[str, Way]]:
    """Return the batch size and the ways of a record; none from one that is damaged, or of another batch size."""
    with suppress(TypeError, KeyError, ValueError, AttributeError):
        if content is not None and batch in (None, content["batch"]):
            ways = {name: Way(**each) for name, each in content["ways"].items() if name in GAINS}
            return int(content["batch"]), ways
    return batch or BATCHES[0], {}


def _write_record(file: Path, batch: int, ways: Mapping[str, Way]) -> None:
    write_record(file, {"batch": batch, "ways": {name: asdict(way) for name, way in ways.items()}})
