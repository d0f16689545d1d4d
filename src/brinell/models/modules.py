"""Torch modules as models: device, precision, memory format, compilation, or exported to onnxruntime."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, MissingExtra, ModelError
from brinell.models.detection import Heads, heads_of, scored
from brinell.models.device import select_device
from brinell.models.export import exported
from brinell.models.model import Forward, Insides, Model, as_detector, filled_up, probe
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def model_from_module(
    module: nn.Module,
    options: ModelOptions,
    execution: Execution,
    *,
    known: Preprocess,
    classes: Classes | None,
    detector: bool = False,
) -> Model:
    """Make a classifier or detector from a torch module, the user's options and what is known about the model."""
    make = partial(detector_from_module, module, options) if options.is_detector(detector) else partial(from_module, module)
    return make(
        name=options.label,
        preprocess=select_preprocess(options, known),
        classes=select_classes(options, classes),
        source=options.source,
        execution=execution,
    )


def from_module(
    module: nn.Module, *, name: str, preprocess: Preprocess, classes: Classes | None, source: str, execution: Execution
) -> Model:
    """A model from a torch module that takes normalised images and gives scores (N, K)."""
    device = select_device(execution)
    fingerprint = weights_fingerprint(module)
    module = module.eval().requires_grad_(False)
    first_look = probe(module.to(device, torch.float32), preprocess, device, name)
    if classes is not None and len(classes) != first_look.outputs:
        raise ModelError(f"model {name} has {first_look.outputs} outputs, but its class list has {len(classes)} names")
    forward, running = _fastest(module, name, preprocess, device, execution)
    differentiable = _in_torch(module, execution) if running["runtime"] != "onnxruntime" else module

    def logs(images: Tensor) -> Tensor:
        return differentiable(images).to(torch.float32).clamp(min=1e-30).log()

    return Model(
        name=name,
        forward=forward,
        preprocess=preprocess,
        device=device,
        fingerprint=fingerprint,
        outputs=first_look.outputs,
        probabilities=first_look.probabilities,
        classes=classes,
        differentiable=differentiable,
        facts={"source": source, **running, "precision": execution.precision, "device": str(device)},
        insides=Insides(module, logs if first_look.probabilities else differentiable),
    )


def detector_from_module(
    module: nn.Module,
    how: Decoding,
    *,
    name: str,
    preprocess: Preprocess,
    classes: Classes | None,
    source: str,
    execution: Execution,
) -> Model:
    """A detector from a torch module that takes normalised images: see `heads_of` for what it may give."""
    if execution.runtime == "onnxruntime" or execution.compile:
        raise ConfigError(f"detector {name} is a torch module, and runs in eager torch; use runtime auto without --compile")
    device = select_device(execution)
    fingerprint = weights_fingerprint(module)
    module = module.eval().requires_grad_(False).to(device, DTYPES[execution.precision])
    run: Any = _in_torch(module, execution)

    def heads(images: Tensor) -> Heads:
        return heads_of(run(images), how, name)

    def best(images: Tensor) -> Tensor:
        found = heads(images)
        if found.labels is not None:
            raise ModelError("it gives labels beside its scores, and no gradient says what speaks for a class")
        return scored(found, how).amax(1).clamp(min=1e-30).log()

    return as_detector(
        heads,
        how,
        name=name,
        preprocess=preprocess,
        device=device,
        fingerprint=fingerprint,
        classes=classes,
        facts={"source": source, "runtime": "torch", "precision": execution.precision, "device": str(device)},
        insides=Insides(module, best),
    )


def _fastest(
    module: nn.Module, name: str, preprocess: Preprocess, device: torch.device, execution: Execution
) -> tuple[Forward, dict[str, str]]:
    """The way to run a module that was asked for, its name, and why it is not a faster one."""
    plain = execution.precision == "fp32" and not execution.compile
    slower: dict[str, str] = {}
    if execution.runtime == "onnxruntime" and (device.type != "cpu" or not plain):
        raise ConfigError("runtime onnxruntime is for the CPU in fp32 without --compile; use runtime torch or auto")
    if device.type == "cpu" and plain and execution.runtime != "torch":
        try:
            return exported(module, preprocess, name), {"runtime": "onnxruntime"}
        except (MissingExtra, ModelError) as error:
            if execution.runtime == "onnxruntime":
                raise
            slower = {"slower": str(error)}
    dtype = DTYPES[execution.precision]
    layout = torch.channels_last if execution.channels_last else torch.contiguous_format
    module.to(device, dtype).to(memory_format=layout)  # type: ignore[call-overload]  # missing in torch's stubs
    if not execution.compile:
        return _in_torch(module, execution), {"runtime": "torch", **slower}
    compiled = _in_torch(torch.compile(module), execution)
    return lambda images: compiled(filled_up(images))[: len(images)], {"runtime": "torch compiled"}


def _in_torch(module: Forward, execution: Execution) -> Forward:
    """A module with its inputs brought to its precision and memory format."""
    dtype = DTYPES[execution.precision]
    layout = torch.channels_last if execution.channels_last else torch.contiguous_format

    def forward(images: Tensor) -> Tensor:
        with tf32(execution.precision == "tf32"):
            return module(images.to(dtype, memory_format=layout))

    return forward


class _Tf32:
    """fp32 means fp32: torch would let convolutions use TF32 by default. The setting is the whole process's, so it is put
    back when the last of the threads that are inside leaves.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.before = (False, False)
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def __call__(self, allowed: bool) -> Iterator[None]:
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        with self.lock:
            if self.inside == 0:
                self.before = cudnn.allow_tf32, matmul.allow_tf32
            self.inside += 1
            cudnn.allow_tf32 = matmul.allow_tf32 = allowed
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    cudnn.allow_tf32, matmul.allow_tf32 = self.before


tf32 = _Tf32()


def weights_fingerprint(module: nn.Module) -> str:
    """16 hex digits of a module's class and all its weights and buffers."""
    digest = hashlib.blake2b(type(module).__qualname__.encode(), digest_size=8)
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        if isinstance(value, Tensor):
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
