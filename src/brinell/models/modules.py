"""Torch modules as models: device, precision, memory format, compilation, or export to onnxruntime."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.criterion import Task
from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, MissingExtra, ModelError
from brinell.models.code import code_digest
from brinell.models.compile_choice import COMPILED, EAGER, announce_preprocess, expected
from brinell.models.compiling import Ways, accelerated, compile_module, record_name
from brinell.models.detection import BoxScores, Heads, box_scores, read_heads
from brinell.models.device import select_device
from brinell.models.export import exported_file
from brinell.models.exports import weights_fingerprint
from brinell.models.fusing import folded_when_called
from brinell.models.model import Description, Forward, Internals, Model, Speed, pad_batch
from brinell.models.onnx import file_fingerprint, open_session, session_forward
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import PLAIN, Format, Preprocess
from brinell.models.probe import make_classifier, make_detector, make_segmenter, probe, probe_images
from brinell.models.quantise import FP8_FACTS, INT8_FACTS, fp8_module, is_dynamic, quantise_file
from brinell.models.runtimes import EXPORTED, processor_forward
from brinell.models.segmentation import PixelOutput
from brinell.models.tf32 import tf32

LOG = logging.getLogger(__name__)
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def model_from_module(
    module: nn.Module,
    options: ModelOptions,
    execution: Execution,
    *,
    known: Preprocess,
    classes: Classes | None,
    task: Task = "classification",
) -> Model:
    """Make a model from a torch module, the user's options and what is known about it: `task` is what it is known for."""
    detector = options.is_detector(task == "detection")
    if options.task == "embedding":
        from brinell.models.embedders import embedder_from_module  # it imports this module

        return embedder_from_module(module, options, execution, known)
    preprocess, classes = select_preprocess(options, known), select_classes(options, classes)
    description = Description(options.label, options.source, preprocess, classes)
    if options.is_segmenter(task == "segmentation"):
        return _quantised_segmenter(module, description, options, execution)
    return from_quantised(module, description, options, execution, detector=detector)


def from_quantised(
    module: nn.Module, description: Description, options: ModelOptions, execution: Execution, *, detector: bool = False
) -> Model:
    """Make a model from a torch module, quantised if the options ask for it."""
    decoding = options if detector else None
    if options.quantise is None:
        return from_module(module, description, execution, decoding)
    if options.quantise == "fp8":
        model = from_module(fp8_module(module), description, execution, decoding)
        return replace(model, facts={**model.facts, **FP8_FACTS})
    if detector:
        raise ConfigError(f"{options.source} is a torch detector, which quantise=int8 can't export; use quantise=fp8")
    model = from_module(module, description, execution.model_copy(update={"runtime": "torch"}), decoding)
    forward, fingerprint = int8_forward(module, description, options, execution)
    model = replace(model, forward=forward, fingerprint=fingerprint, facts={**model.facts, **INT8_FACTS})
    return replace(model, differentiable=None, internals=None, takes=PLAIN)


def int8_forward(
    module: nn.Module, description: Description, options: ModelOptions, execution: Execution
) -> tuple[Forward, str]:
    """Return an int8 copy of a module as a function, and its fingerprint."""
    if select_device(execution).type != "cpu":
        raise ConfigError(f"quantise=int8 needs the CPU for {options.source}; use --device cpu, or quantise=fp8")
    exported = exported_file(module.eval(), description.preprocess, description.name)
    file = quantise_file(exported, options, description.preprocess)
    return session_forward(open_session(file), single=is_dynamic(options)), file_fingerprint(file)


def from_module(
    module: nn.Module, description: Description, execution: Execution, decoding: Decoding | None = None
) -> Model:
    """Make a model from a torch module that takes normalised images.

    A classifier returns scores (N, K). With a `decoding` it is a detector; `read_heads` says what it may return.
    """
    announce_preprocess(description.preprocess)
    if decoding is not None:
        return _detector_from_module(module, decoding, description, execution)
    device, fingerprint = select_device(execution), weights_fingerprint(module)
    module = module.eval().requires_grad_(False)
    probed = probe(module.to(device, torch.float32), description, device)
    running = fastest_forward(module, description, fingerprint, execution, probed.scores)
    exported = running.runtime in EXPORTED
    plain = module if exported else torch_forward(module, execution)

    def log_probabilities(images: Tensor) -> Tensor:
        return plain(images).to(torch.float32).clamp(min=1e-30).log()

    facts = make_facts(description, execution, running.facts, code_digest(module))
    model = make_classifier(running.forward, probed, description, device=device, fingerprint=fingerprint, facts=facts)
    internals = Internals(module, log_probabilities if probed.probabilities else plain)
    differentiable = module if exported else _differentiable(module, execution)
    return replace(model, differentiable=differentiable, internals=internals, speed=running.speed, takes=running.takes)


def _quantised_segmenter(module: nn.Module, description: Description, options: ModelOptions, execution: Execution) -> Model:
    """Make a segmenter from a torch module, quantised if the options ask for it."""
    if options.quantise is None:
        return segmenter_from_module(module, description, execution, options.output)
    if options.quantise == "fp8":
        model = segmenter_from_module(fp8_module(module), description, execution, options.output)
        return replace(model, facts={**model.facts, **FP8_FACTS})
    pixels = PixelOutput(module, options.output, description.name)
    forward, fingerprint = int8_forward(pixels, description, options, execution)
    facts = make_facts(description, execution, INT8_FACTS, code_digest(module))
    return make_segmenter(forward, description, device=select_device(execution), fingerprint=fingerprint, facts=facts)[0]


def segmenter_from_module(
    module: nn.Module, description: Description, execution: Execution, output: str | None = None
) -> Model:
    """Make a segmenter from a torch module that takes normalised images; `read_pixels` says what it may return."""
    device, name = select_device(execution), description.name
    fingerprint, code = weights_fingerprint(module), code_digest(module)
    pixels = PixelOutput(module, output, name).eval().requires_grad_(False).to(device, torch.float32)
    running = fastest_forward(pixels, description, fingerprint, execution)
    differentiable = torch_forward(pixels, execution) if running.runtime not in EXPORTED else pixels
    facts = make_facts(description, execution, running.facts, code)
    model, reading = make_segmenter(running.forward, description, device=device, fingerprint=fingerprint, facts=facts)

    def shares(images: Tensor) -> Tensor:
        return reading.shares(differentiable(images))

    def log_shares(images: Tensor) -> Tensor:
        return shares(images).clamp(min=1e-30).log()

    graded = shares if reading.differentiable else None
    internals = Internals(module, log_shares)
    return replace(model, differentiable=graded, internals=internals, speed=running.speed, takes=running.takes)


def make_facts(
    description: Description, execution: Execution, running: Mapping[str, str], code: str | None
) -> dict[str, str]:
    """Return what the manifest says about a torch model: `running` is how it runs, `code` the digest of its own code."""
    device = str(select_device(execution))
    facts = {"source": description.source, **running, "precision": execution.precision, "device": device}
    return facts | code_facts(code)


def code_facts(digest: str | None) -> dict[str, str]:
    """Return the digest of a model's code for the manifest, if any of it is the user's."""
    return {} if digest is None else {"code": digest}


def _detector_from_module(module: nn.Module, decoding: Decoding, description: Description, execution: Execution) -> Model:
    name = description.name
    if execution.runtime in EXPORTED or execution.compile:
        raise ConfigError(
            f"detector {name} is a torch module, which runs in eager torch only; use runtime auto without --compile"
        )
    device = select_device(execution)
    fingerprint = weights_fingerprint(module)
    module = module.eval().requires_grad_(False).to(device, DTYPES[execution.precision])
    run: Any = torch_forward(module, execution)

    def heads(images: Tensor) -> Heads:
        return read_heads(run(images), decoding, name)

    def boxes(images: Tensor) -> BoxScores:
        return box_scores(heads(images), decoding, *images.shape[2:])

    facts = make_facts(description, execution, {"runtime": EAGER}, code_digest(module))
    model = make_detector(heads, decoding, description, device=device, fingerprint=fingerprint, facts=facts)
    return replace(model, internals=Internals(module, boxes=boxes), takes=_format(execution))


@dataclass(frozen=True)
class Running:
    """How a module runs: its forward pass, the runtime's name, why it is not a faster one, and its speed if measured.

    The forward pass `takes` images in one format as they are.
    """

    forward: Forward
    runtime: str
    slower: str | None = None
    speed: Speed | None = None
    takes: Format = PLAIN

    @property
    def facts(self) -> dict[str, str]:
        """What the manifest says about it."""
        return {"runtime": self.runtime} | ({} if self.slower is None else {"slower": self.slower})


def fastest_forward(
    module: nn.Module, description: Description, fingerprint: str, execution: Execution, scores: Tensor | None = None
) -> Running:
    """Return the fastest way to run a module that the options allow.

    `scores` are the module's for `probe_images`, if they are known; `fingerprint` is that of its weights.
    """
    device, preprocess, slower = select_device(execution), description.preprocess, None
    plain = execution.precision == "fp32" and not execution.compile
    if execution.runtime in EXPORTED and (device.type != "cpu" or not plain):
        raise ConfigError(f"runtime {execution.runtime} needs the CPU, fp32 and no --compile; use runtime torch or auto")
    if device.type == "cpu" and plain and execution.runtime != "torch":
        try:
            return Running(*processor_forward(module, preprocess, description.name, execution.runtime, scores))
        except (MissingExtra, ModelError) as error:
            if execution.runtime in EXPORTED:
                raise
            slower = str(error)
    foreseen = expected().passes or expected().runtime
    if device.type == "cuda" and execution.runtime == "auto" and not execution.compile and foreseen:
        return _accelerated(module, preprocess, fingerprint, execution)
    run, runtime = torch_forward(_placed(module, execution), execution), EAGER
    if execution.compile:
        compiled = torch_forward(compile_module(module), execution)
        run, runtime = lambda images: compiled(pad_batch(images))[: len(images)], COMPILED
    return Running(run, runtime, slower, takes=_format(execution))


def _accelerated(module: nn.Module, preprocess: Preprocess, fingerprint: str, execution: Execution) -> Running:
    """Return the way to run a module on a GPU that ends a run soonest. The module itself gets the run's precision."""
    device = select_device(execution)
    record = record_name(module, fingerprint, preprocess, execution.precision, device)
    try:
        spare = copy.deepcopy(module)
    except Exception as error:  # it holds a lock or an open file, for example
        LOG.info("Neither fused nor compiled, as it can't be copied: %s", str(error).strip() or type(error).__name__)
        return Running(torch_forward(_placed(module, execution), execution), EAGER, takes=_format(execution))
    ways = Ways(spare, lambda each: _placed(each, execution), lambda each: torch_forward(each, execution))
    eager = torch_forward(_placed(module, execution), execution)
    images = preprocess.normalise(probe_images(preprocess).to(device), _format(execution))
    chosen = accelerated(ways, eager, images, record, execution.precision, expected(), execution.batch)
    return Running(chosen.forward, chosen.way, speed=chosen.speed, takes=_format(execution))


def _placed(module: nn.Module, execution: Execution) -> nn.Module:
    """Move a module to the run's device, precision and memory format, in place."""
    form = _format(execution)
    placed: nn.Module = module.to(select_device(execution), form.dtype).to(memory_format=form.memory)  # type: ignore[call-overload]  # missing in torch's stubs
    return placed


def torch_forward(module: Forward, execution: Execution) -> Forward:
    """Return a function that converts images to a module's precision and memory format, and runs it."""
    form = _format(execution)

    def forward(images: Tensor) -> Tensor:
        with tf32(execution.precision == "tf32"):
            return module(form.convert(images))

    return forward


def _differentiable(module: nn.Module, execution: Execution) -> Forward:
    """Return a module's forward pass for gradients, on a GPU with folded batch norms.

    In lower precisions folded weights would be rounded again, and the function would no longer be the model's.
    """
    plain = torch_forward(module, execution)
    if select_device(execution).type != "cuda" or DTYPES[execution.precision] != torch.float32:
        return plain
    return folded_when_called(module, plain, lambda folded: torch_forward(_placed(folded, execution), execution))


def _format(execution: Execution) -> Format:
    return Format(DTYPES[execution.precision], torch.channels_last if execution.channels_last else torch.contiguous_format)
