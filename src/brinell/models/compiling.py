"""Runs torch modules on an accelerator in the way that ends a run soonest: eager, compiled, or compiled and frozen."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

import torch
from torch import Tensor, nn

from brinell.caching import cache_folder
from brinell.models.compile_choice import EAGER, FROZEN, GAINS, Expected, Way, assumed_ways, order_of_ways
from brinell.models.export import check_scores
from brinell.models.exports import read_record, weights_fingerprint, write_record
from brinell.models.model import Forward, pad_batch
from brinell.versions import package_version

LOG = logging.getLogger(__name__)
BATCH, ROUNDS = 64, 10  # of a measurement
# largest difference of scores from eager torch, as a share of the largest: compilers round at other places
AGREEMENT = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2}


def compile_module(module: nn.Module, way: str) -> nn.Module:
    """Return a module that compiles itself when it is first called. What Inductor has compiled is kept between runs."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    compiled: nn.Module = torch.compile(module, options={"freezing": True} if way == FROZEN else None)  # type: ignore[assignment]
    return compiled


def accelerated(
    module: nn.Module,
    wrap: Callable[[nn.Module], Forward],
    images: Tensor,
    precision: str,
    wanted: Expected,
    compiler: Callable[[nn.Module, str], nn.Module] = compile_module,
) -> tuple[Forward, str]:
    """Return a module's forward pass in the way that ends a run soonest, and its name.

    `wrap` makes a forward pass of a module, and `images` are normalised ones on its device. A way that fails, or that
    scores differently from eager torch, is left out. What is measured is kept for the next run.
    """
    eager = wrap(module)
    record = cache_folder() / "runtimes" / f"{_key(module, images, precision)}.json"
    batch = images[:1].expand(BATCH, -1, -1, -1).contiguous()
    known = _read_ways(read_record(record))
    if wanted.runtime in GAINS:
        order = [wanted.runtime]  # rows of one run come from one runtime
    elif not wanted.passes:
        order = []
    else:
        known.setdefault(EAGER, measure_way(eager, batch))
        order = order_of_ways({**assumed_ways(known[EAGER].rate), **known}, wanted.passes)
    for name in order:
        if name == EAGER:
            break
        try:
            run = _padded(wrap(compiler(module, name)))
            known[name] = measure_way(run, batch)
            with torch.inference_mode():
                check_scores(run, images, eager(images), "the model", name, AGREEMENT[precision])
        except Exception as error:  # compilers raise anything
            LOG.info("Not %s: %s", name, (str(error).strip() or type(error).__name__).splitlines()[0])
            known[name] = Way(math.inf, 1.0)  # not tried again
        write_record(record, {way: asdict(each) for way, each in known.items()})
        if math.isfinite(known[name].start) and (wanted.runtime == name or known[name].rate > known[EAGER].rate):
            return run, name
    return eager, EAGER


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


def _padded(run: Forward) -> Forward:
    return lambda images: run(pad_batch(images))[: len(images)]


def _key(module: nn.Module, images: Tensor, precision: str) -> str:
    """Return a digest of what times depend on."""
    device = torch.cuda.get_device_name(images.device) if images.is_cuda else images.device.type
    facts = [weights_fingerprint(module), str(module), list(images.shape[1:]), precision, device, package_version("torch")]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def _read_ways(content: Mapping[str, object] | None) -> dict[str, Way]:
    """Return ways from a record; none from one that is damaged."""
    try:
        return {name: Way(**each) for name, each in (content or {}).items()}  # type: ignore[arg-type]
    except TypeError:
        return {}
