"""Quantised copies of models: int8 by onnxruntime's quantiser, fp8 by torch's number format.

int8: weights and activations, dynamically (ranges of activations are measured for each image), or statically with
`calibration` images, per channel. fp8: weights alone, in torch's float8_e4m3fn with a scale per output channel.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from brinell.caching import cache_folder
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, MissingExtra, ModelError
from brinell.models.exports import keep
from brinell.models.preprocess import Preprocess
from brinell.versions import package_version

LOG = logging.getLogger(__name__)
CALIBRATION = 64  # images
INT8_FACTS = {"quantised": "int8 by onnxruntime", "runtime": "onnxruntime"}
FP8_FACTS = {"quantised": "fp8 weights"}
_BATCH = 8
_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_LARGEST = 448.0  # of float8_e4m3fn


def is_dynamic(options: ModelOptions) -> bool:
    """Whether ranges of activations are measured as images come; these then go one by one, since they would share them."""
    return options.quantise == "int8" and options.calibration is None


def round_to_fp8(weight: Tensor) -> Tensor:
    """Return a weight as fp8 holds it, with a scale for each output channel (the first axis)."""
    rows = weight.flatten(1) if weight.ndim > 1 else weight[None]
    scale = rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / _LARGEST
    return ((rows / scale).to(torch.float8_e4m3fn).to(weight.dtype) * scale).view_as(weight)


def fp8_module(module: nn.Module) -> nn.Module:
    """Return a copy of a module whose convolutions and linear layers have fp8 weights."""
    made = copy.deepcopy(module)
    with torch.no_grad():
        for part in made.modules():
            if isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                part.weight.copy_(round_to_fp8(part.weight))
    return made


def quantise_file(file: Path, options: ModelOptions, preprocess: Preprocess, *, last: bool = False) -> Path:
    """Return a quantised copy of an ONNX file, from the cache if it was made before; `last`: channels are last."""
    digest = hashlib.blake2b(file.read_bytes(), digest_size=16)
    images = list(_calibration_files(options))
    settings = [options.quantise, str(preprocess) if images else "", last]
    settings += [package_version(name) for name in ("onnx", "onnxruntime", "torch")]
    digest.update(str(settings).encode())
    for image in images:
        digest.update(image.read_bytes())
    target = cache_folder() / "quantised" / f"{digest.hexdigest()}.onnx"
    if target.is_file():
        target.touch()  # it was used
        return target
    LOG.info("Quantising %s to %s …", file.name, options.quantise)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model.onnx"
        try:
            if options.quantise == "fp8":
                _write_fp8(file, made)
            else:
                _write_int8(file, made, _Images(images, preprocess, last, _input_name(file)) if images else None)
        except ImportError:
            raise MissingExtra("onnx and onnxruntime", "onnx") from None
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(f"{file.name} can't be quantised to {options.quantise}: {reason}") from error
        keep(made, target)
    if not target.is_file():
        raise ModelError(f"{file.name} can't be quantised: the cache folder {target.parent} can't be written to")
    return target


def _input_name(file: Path) -> str:
    import onnx

    graph = onnx.load(file, load_external_data=False).graph
    initialisers = {each.name for each in graph.initializer}
    return str(next(entry.name for entry in graph.input if entry.name not in initialisers))


def _write_int8(file: Path, made: Path, images: _Images | None) -> None:
    """Quantise by onnxruntime: statically with images, otherwise dynamically."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, ready = made.with_name("plain.onnx"), made.with_name("ready.onnx")
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)  # it logs to the root
    try:
        _forget_shapes(file, plain)
        quant_pre_process(str(plain), str(ready), skip_symbolic_shape=True)
        _forget_shapes(ready, ready)
        if images is None:
            quantize_dynamic(ready, made, weight_type=QuantType.QUInt8)  # convolutions need unsigned weights
        else:
            quantize_static(
                ready,
                made,
                images,
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                weight_type=QuantType.QInt8,
                activation_type=QuantType.QUInt8,
            )
    finally:
        root.setLevel(before)


def _forget_shapes(file: Path, made: Path) -> None:
    """Copy a file without the shapes of its inner values: the quantiser transposes weights and then finds them wrong."""
    import onnx

    model = onnx.load(file)
    del model.graph.value_info[:]
    onnx.save(model, made)


def _write_fp8(file: Path, made: Path) -> None:
    """Round the weights of convolutions and matrix products."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(file)
    transposed = {  # weights whose output channels are the last axis
        name
        for node in model.graph.node
        for name in node.input[1:2]
        if node.op_type == "MatMul"
        or (node.op_type == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute))
    }
    weights = {node.input[1] for node in model.graph.node if node.op_type in ("Conv", "MatMul", "Gemm")}
    for each in model.graph.initializer:
        if each.name in weights and each.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            value = torch.from_numpy(numpy_helper.to_array(each).copy())
            turned = each.name in transposed and value.ndim > 1
            rounded = round_to_fp8(value.transpose(0, -1)).transpose(0, -1) if turned else round_to_fp8(value)
            each.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(rounded.numpy()), each.name))
    onnx.save(model, made)


# ---- calibration ----


def _calibration_files(options: ModelOptions) -> Iterator[Path]:
    """Yield the first images of the folder that the options name."""
    if options.calibration is None:
        return
    folder = Path(options.calibration).expanduser()
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS) if folder.is_dir() else []
    if not found:
        raise ConfigError(f"the calibration {options.calibration!r} is not a folder with image files")
    step = max(1, len(found) // CALIBRATION)  # from all over it, since it may be sorted by class
    yield from found[::step][:CALIBRATION]


class _Images:
    """Calibration images as onnxruntime's quantiser reads them."""

    def __init__(self, files: list[Path], preprocess: Preprocess, last: bool, name: str) -> None:
        self.parts = iter([files[start : start + _BATCH] for start in range(0, len(files), _BATCH)])
        self.preprocess, self.last, self.name = preprocess, last, name

    def get_next(self) -> dict[str, Any] | None:
        """Return the next batch; None after the last."""
        part = next(self.parts, None)
        if part is None:
            return None
        images = self.preprocess.normalise(torch.stack([self.preprocess.model_input(_read(file)) for file in part]))
        array = images.numpy()
        return {self.name: np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if self.last else array}


def _read(file: Path) -> Tensor:
    with Image.open(file) as picture:
        return torch.from_numpy(np.asarray(picture.convert("RGB")).copy()).permute(2, 0, 1)
