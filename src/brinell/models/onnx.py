"""ONNX files as models, run by onnxruntime."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, MissingExtra, ModelError
from brinell.models.detection import Heads, read_heads
from brinell.models.device import select_device
from brinell.models.model import Description, Forward, Model
from brinell.models.onnx_metadata import Known, read_known
from brinell.models.openvino import OpenVinoSession
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.probe import make_classifier, make_detector, make_segmenter, probe
from brinell.models.quantise import FP8_FACTS, INT8_FACTS, is_dynamic, quantise_file


def open_onnx(path: str, options: ModelOptions, execution: Execution) -> Model:
    """Open an ONNX file with one image input: RGB, BGR or grey, NCHW or NHWC, float or uint8.

    Size and channels are read from the file, and what else `onnx_metadata` finds; options override it.
    """
    file = Path(path).expanduser()
    device = select_device(execution)
    session = open_session(file, device)
    known = read_known(file, session, _read_input(session, options))
    options = known.override(options)
    preprocess = select_preprocess(options, known.preprocess)
    _check_size(preprocess, known, options)
    description = Description(options.label, options.source, preprocess, select_classes(options, known.classes))
    facts = {"source": options.source, "runtime": "onnxruntime", "precision": "fp32", "device": str(device)}
    if options.quantise is not None:
        last = _channels_last(session.get_inputs()[0].shape) if options.layout is None else options.layout == "nhwc"
        file = quantise_file(file, options, preprocess, last=last)
        session = open_session(file, device)
        facts |= INT8_FACTS if options.quantise == "int8" else FP8_FACTS
    if execution.runtime == "openvino":
        if device.type != "cpu":
            raise ConfigError("runtime openvino needs the CPU; use --device cpu, or runtime auto")
        session, facts["runtime"] = OpenVinoSession(file), "openvino"
    model = _make_model(session, description, options, fingerprint=file_fingerprint(file), facts=facts)
    return replace(model, whole_only=_takes_bytes(session))


def _make_model(
    session: Any, description: Description, options: ModelOptions, *, fingerprint: str, facts: dict[str, str]
) -> Model:
    """Make a model of the task that the options name from a session."""
    device = torch.device(facts["device"])
    if options.is_detector():  # raises for options of detectors that another task has
        heads = _session_heads(session, options)
        return make_detector(heads, options, description, device=device, fingerprint=fingerprint, facts=facts)
    run = session_forward(session, options.output, last=_last(options), single=is_dynamic(options))
    if options.task == "embedding":
        from brinell.models.embedders import check_embedder, make_embedder  # it imports this module

        check_embedder(options)
        return make_embedder(run, description, options, device=device, fingerprint=fingerprint, facts=facts)
    if options.is_segmenter():
        return make_segmenter(run, description, device=device, fingerprint=fingerprint, facts=facts)[0]
    probed = probe(run, description, device)
    return make_classifier(run, probed, description, device=device, fingerprint=fingerprint, facts=facts)


def open_session(path: Path, device: torch.device | None = None) -> Any:
    """Open an onnxruntime session on a device."""
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "onnx") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # batches run in parallel, one per core
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    if device is not None and device.type == "cuda":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ModelError("this onnxruntime has no CUDA support: pip install onnxruntime-gpu, or use --device cpu")
        providers.insert(0, "CUDAExecutionProvider")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # onnxruntime's errors have no common base
        raise ModelError(f"onnxruntime can't load {path.name}: {str(error).strip().splitlines()[0]}") from error


def session_forward(session: Any, output: str | None = None, *, last: bool | None = None, single: bool = False) -> Forward:
    """Return a session as a function of float32 NCHW tensors; `single`: it gets one image at a time."""
    names = [out.name for out in session.get_outputs()]
    if output is not None and output not in names:
        raise ModelError(f"the ONNX file has no output {output!r}; it has {', '.join(names)}")
    run = _session_runner(session, [output or names[0]], last, single=single)
    return lambda images: run(images)[0]


def _session_heads(session: Any, options: ModelOptions) -> Callable[[Tensor], Heads]:
    """Return a session as a function that returns a detector's outputs by their roles."""
    names = [out.name for out in session.get_outputs()]
    run = _session_runner(session, names, _last(options), single=is_dynamic(options))
    return lambda images: read_heads(dict(zip(names, run(images), strict=True)), options, options.label)


def _session_runner(
    session: Any, chosen: list[str], last: bool | None = None, *, single: bool = False
) -> Callable[[Tensor], list[Tensor]]:
    """Return a function from float32 NCHW tensors to the chosen outputs of a session."""
    entry = session.get_inputs()[0]
    fixed_batch = entry.shape[0] if isinstance(entry.shape[0], int) else 1 if single else None
    last = _channels_last(entry.shape) if last is None else last
    whole = _takes_bytes(session)
    half = entry.type == "tensor(float16)"

    def run(images: Tensor) -> list[Tensor]:
        array = images.detach().cpu().numpy()
        if last:
            array = np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        if whole:
            array = np.rint(array * 255).clip(0, 255).astype(np.uint8)
        elif half:
            array = array.astype(np.float16)
        parts = [
            [out[:count] for out in session.run(chosen, {entry.name: part})] for part, count in _batches(array, fixed_batch)
        ]
        outputs = parts[0] if len(parts) == 1 else [np.concatenate(each) for each in zip(*parts, strict=True)]
        return [torch.from_numpy(each).to(images.device) for each in outputs]

    return run


def _batches(array: np.ndarray, size: int | None) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the array as it is, or, if the file has a fixed batch size, in batches of that size, the last one padded."""
    if size is None:
        yield array, len(array)
        return
    for start in range(0, len(array), size):
        part = array[start : start + size]
        missing = size - len(part)
        yield np.concatenate([part, np.repeat(part[-1:], missing, 0)]) if missing else part, len(part)


def _takes_bytes(session: Any) -> bool:
    return bool(session.get_inputs()[0].type == "tensor(uint8)")


def _last(options: ModelOptions) -> bool | None:
    """Whether channels are the last axis; None: the shape of the input says it."""
    return None if options.layout is None else options.layout == "nhwc"


def _channels_last(shape: list[Any]) -> bool:
    return len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)


def _read_input(session: Any, options: ModelOptions) -> Preprocess:
    """Return the size and channels of the model input that the file declares; a side of any length is 0."""
    inputs = session.get_inputs()
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        described = ", ".join(f"{entry.name}{entry.shape}" for entry in inputs)
        raise ModelError(f"{options.source} should have one image input (N, C, H, W), but has {described}")
    shape = inputs[0].shape
    chosen = _last(options)
    last = _channels_last(shape) if chosen is None else chosen
    channels, height, width = (shape[3], shape[1], shape[2]) if last else shape[1:]
    sides = [side if isinstance(side, int) else 0 for side in (height, width)]
    return Preprocess(height=sides[0], width=sides[1], channels=channels if channels in (1, 3) else 3)


def _check_size(preprocess: Preprocess, known: Known, options: ModelOptions) -> None:
    """Raise if the size of the model input is unknown, or doesn't fit the network's stride."""
    if 0 in (preprocess.height, preprocess.width):
        raise ModelError(f"{options.source} takes images of any size; choose one: {options.source}?size=224")
    if preprocess.height % known.stride or preprocess.width % known.stride:
        raise ModelError(
            f"{options.source} has a stride of {known.stride}, of which the sides of its input should be multiples, "
            f"but they are {preprocess.height} and {preprocess.width}"
        )


def file_fingerprint(path: Path) -> str:
    """Return 16 hex digits of a hash of a file and, if its weights are in other files, of those."""
    digest = hashlib.blake2b(digest_size=8)
    for file in (path, *_weight_files(path)):
        if file.exists() and not file.is_file():  # a device would be read for ever
            raise ModelError(f"{path.name} can't be read: {file} is not a regular file")
        try:
            with file.open("rb") as opened:
                for block in itertools.takewhile(bool, (opened.read(1 << 20) for _ in itertools.count())):
                    digest.update(block)
        except OSError as error:
            raise ModelError(f"{path.name} can't be read: {file}: {error.strerror or error}") from error
    return digest.hexdigest()


def _weight_files(path: Path) -> list[Path]:
    """Return the files that hold an ONNX file's weights outside of it."""
    try:
        import onnx
        from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, uses_external_data
    except ImportError:
        return []
    tensors = filter(uses_external_data, _get_all_tensors(onnx.load(path, load_external_data=False)))
    return [path.parent / name for name in sorted({ExternalDataInfo(tensor).location for tensor in tensors})]
