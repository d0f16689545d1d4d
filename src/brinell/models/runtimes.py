"""Which runtime computes a torch module on a CPU: the one that is asked for, or the faster one of those installed.

What is faster is measured once for a model and a machine, and kept in the cache, so that processes of a run agree.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from brinell.caching import cache_folder
from brinell.errors import ModelError
from brinell.models.compile_choice import expected
from brinell.models.export import check_scores, export_forward, exported_file, known_scores
from brinell.models.exports import cached_file, read_record, write_record
from brinell.models.model import Forward
from brinell.models.onnx import session_forward
from brinell.models.openvino import OpenVinoSession, is_installed
from brinell.models.preprocess import Preprocess
from brinell.models.probe import probe_images
from brinell.versions import package_version

LOG = logging.getLogger(__name__)
EXPORTED = frozenset({"onnxruntime", "openvino"})  # runtimes of exports: gradients come from torch
MARGIN = 1.05  # OpenVINO has to be so many times as fast: a tie should not depend on the moment
BATCH, ROUNDS, SECONDS = 2, 15, 2.0  # images of a batch, batches at most, and seconds after which no more follow


def processor_forward(
    module: nn.Module, preprocess: Preprocess, name: str, wanted: str, scores: Tensor | None = None
) -> tuple[Forward, str]:
    """Return a module's forward pass in the runtime that is wanted, after a check of its scores, and the runtime's name.

    `scores` are the module's for `probe_images`, if they are known.
    """
    before = expected().runtime
    if wanted == "auto" and (before == "onnxruntime" or (before == "openvino" and is_installed())):
        wanted = before  # rows of one run come from one runtime
    if wanted == "openvino":
        images = preprocess.normalise(probe_images(preprocess))
        forward = session_forward(OpenVinoSession(exported_file(module, preprocess, name)))
        return check_scores(forward, images, known_scores(module, images, scores), f"model {name}", "OpenVINO"), wanted
    plain = export_forward(module, preprocess, name, scores)
    if wanted == "auto" and is_installed():
        return _faster(plain, cached_file(module, preprocess), preprocess, name)
    return plain, "onnxruntime"


def _faster(plain: Forward, file: Path, preprocess: Preprocess, name: str) -> tuple[Forward, str]:
    """Return the faster one of onnxruntime and OpenVINO for an export: as measured before, or now."""
    record = cache_folder() / "runtimes" / f"{_key(file)}.json"
    known = _known(record)
    if known == "onnxruntime" or not file.is_file():
        return plain, "onnxruntime"
    images = preprocess.normalise(probe_images(preprocess))
    try:
        other = session_forward(OpenVinoSession(file))
        with torch.inference_mode():
            check_scores(other, images, plain(images), f"model {name}", "OpenVINO")
    except ModelError as error:
        LOG.info("%s", error)
        write_record(record, {"runtime": "onnxruntime", "reason": str(error)})
        return plain, "onnxruntime"
    if known is None:
        LOG.info("Comparing onnxruntime and OpenVINO on %s …", name)
        batch = images[:1].expand(BATCH, -1, -1, -1).contiguous()
        seconds = seconds_each({"onnxruntime": plain, "openvino": other}, batch)
        known = choose(seconds)
        write_record(
            record, {"runtime": known, "cpu_seconds_per_image": {key: each / BATCH for key, each in seconds.items()}}
        )
    return (other, known) if known == "openvino" else (plain, "onnxruntime")


def choose(seconds: Mapping[str, float]) -> str:
    """Return the runtime to use, from the seconds that a batch takes in each."""
    return "openvino" if seconds["onnxruntime"] > MARGIN * seconds["openvino"] else "onnxruntime"


def seconds_each(
    forwards: Mapping[str, Forward], batch: Tensor, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Return the CPU seconds that a batch takes in each runtime, in turns; the shortest counts.

    CPU time, because in a run every core computes a batch of its own, and other programs don't disturb it as much.
    """
    taken: dict[str, list[float]] = {name: [] for name in forwards}
    began = time.monotonic()
    with torch.inference_mode():
        for forward in forwards.values():
            forward(batch)  # the first one allocates
        while len(next(iter(taken.values()))) < ROUNDS:
            for name, forward in forwards.items():
                start = clock()
                forward(batch)
                taken[name].append(clock() - start)
            if time.monotonic() - began > SECONDS:
                break
    return {name: min(each) for name, each in taken.items()}


def _key(file: Path) -> str:
    """Return a digest of what the choice depends on: the export (its name is a digest of the model), versions, machine."""
    facts = [file.stem, package_version("openvino"), package_version("onnxruntime"), processor(), os.cpu_count(), BATCH]
    return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _known(record: Path) -> str | None:
    """Return the runtime that was chosen before; None if there is no valid record."""
    found = (read_record(record) or {}).get("runtime")
    return str(found) if found in EXPORTED else None
