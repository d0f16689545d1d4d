"""The server's responses as plain data: a model's metadata, and its results for tensors and image files.

Axes: model inputs are (N, C, H, W), as in the metadata; (N, H, W, C) is accepted, too.
"""

from __future__ import annotations

import base64
import binascii
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import torch
from torch import Tensor

from brinell.datasets.decode import decode
from brinell.documents import load_json
from brinell.errors import ModelError, UnreadableImage
from brinell.listening import Refused
from brinell.models.model import Model
from brinell.models.remote.masks import encode_mask
from brinell.pictures import open_picture

INPUT, OUTPUT = "images", "probabilities"
#: a detector's outputs with their datatypes and last axes: boxes are xyxy in pixels of the model input, labels are class
#: indices, or -1 for unused rows
DETECTIONS: dict[str, tuple[Any, ...]] = {"boxes": ("FP32", 4), "labels": ("INT64",), "scores": ("FP32",)}
MASKS = "masks"  # a segmenter's output: the class of each pixel of the model input
_DATATYPES = {**{name: datatype for name, (datatype, *_) in DETECTIONS.items()}, MASKS: "INT16"}


LARGE = 8_000_000  # pixels; decoding takes some 8 bytes for each
# one thread reads all large images: one at a time, and in the memory that the allocator keeps for that thread
_large_images = ThreadPoolExecutor(1, "large-image")


def model_path(model: Model) -> str:
    """Return the path of a model's metadata."""
    return f"/v2/models/{quote(model.name, safe='')}"


def metadata(model: Model) -> dict[str, Any]:
    """Return a model's name, version and tensors; `parameters` hold what the protocol doesn't define."""
    pre = model.preprocess
    parameters: dict[str, Any] = {"short_side": pre.short_side, "interpolation": pre.interpolation}
    if pre.fill is not None:
        parameters["fill"] = pre.fill
    if model.classes is not None:
        parameters["classes"] = list(model.classes.names)
    outputs = [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, model.outputs]}]
    if model.detector is not None:
        parameters |= {"task": "detection", "box_units": "pixels"}
        outputs = [
            {"name": name, "datatype": datatype, "shape": [-1, -1, *axes]} for name, (datatype, *axes) in DETECTIONS.items()
        ]
    if model.segmenter is not None:
        parameters["task"] = model.task
        outputs = [{"name": MASKS, "datatype": _DATATYPES[MASKS], "shape": [-1, pre.height, pre.width]}]
    return {
        "name": model.name,
        "versions": [model.fingerprint],
        "platform": "brinell",
        "inputs": [{"name": INPUT, "datatype": "UINT8", "shape": [-1, pre.channels, pre.height, pre.width]}],
        "outputs": outputs,
        "parameters": {name: value for name, value in parameters.items() if value is not None},
    }


def infer(model: Model, request: Any) -> dict[str, Any]:
    """Return the response to an inference request."""
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise Refused(f'expected {{"inputs": [one tensor named "{INPUT}"]}}')
    known = {"detection": tuple(DETECTIONS), "segmentation": (MASKS,)}.get(model.task, (OUTPUT,))
    requested = request.get("outputs") or [{"name": name} for name in known]
    if any(not isinstance(one, dict) or one.get("name") not in known for one in requested):
        raise Refused(f"expected outputs among {', '.join(known)}")
    results = _run(model, _read_tensor(model, inputs[0]))
    outputs = [
        {
            "name": one["name"],
            "datatype": _DATATYPES.get(one["name"], "FP32"),
            "shape": list(results[one["name"]].shape),
            "data": results[one["name"]].flatten().tolist(),
        }
        for one in requested
    ]
    response = {"model_name": model.name, "model_version": model.fingerprint, "outputs": outputs}
    return response if request.get("id") is None else {"id": request["id"], **response}


def predict(model: Model, body: bytes, content_type: str) -> dict[str, Any]:
    """Return the result for an image file of any size: raw, in a form, or in base64 in JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        body = _file_in_form(body, content_type)
    elif kind == "application/json":
        body = _file_in_json(body)
    inputs, size = _read_image(model, body)
    results, names = _run(model, inputs[None]), class_names(model)
    if model.detector is not None:
        boxes = model.preprocess.unmap_boxes(results["boxes"][0], *size)
        found = zip(boxes.tolist(), results["labels"][0].tolist(), results["scores"][0].tolist(), strict=True)
        objects = [{"label": names[label], "score": score, "box": box} for box, label, score in found if label >= 0]
        return {"objects": objects}
    if model.segmenter is not None:
        return {"mask": encode_mask(results[MASKS][0].numpy()), "classes": names}
    scores = results[OUTPUT][0]
    return {"label": names[int(scores.argmax())], "scores": dict(zip(names, scores.tolist(), strict=True))}


def class_names(model: Model) -> list[str]:
    """Return a unique name for each class."""
    if model.classes is None:
        return [str(index) for index in range(model.outputs)]
    names = list(model.classes.names)
    return [name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names)]


def _run(model: Model, inputs: Tensor) -> dict[str, Tensor]:
    """Return a model's results by the names of its outputs."""
    if model.segmenter is not None:
        return {MASKS: model.segment(inputs.to(model.device)).cpu()}
    scores, found = model.answer(inputs.to(model.device))
    if not bool(scores.isfinite().all()):
        raise ModelError(f"model {model.name} returned NaN")
    if found is None:
        return {OUTPUT: scores.cpu()}
    return {"boxes": found.boxes.cpu(), "labels": found.labels.cpu(), "scores": found.scores.cpu()}


def _read_tensor(model: Model, tensor: dict[str, Any]) -> Tensor:
    """Return a request's tensor as model inputs in 0..255: UINT8, FP32 in [0, 1], or BYTES (image files in base64)."""
    data, shape, datatype = tensor.get("data"), tensor.get("shape"), tensor.get("datatype")
    if not isinstance(data, list) or not data or not isinstance(shape, list):
        raise Refused("the tensor needs a shape and a non-empty list of data")
    if datatype == "BYTES":
        files = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in data]
        return torch.stack([_read_image(model, _from_base64(file))[0] for file in files])
    if datatype not in ("UINT8", "FP32"):
        raise Refused(f"the datatype should be UINT8, FP32 (in [0, 1]) or BYTES, but is {datatype}")
    pre = model.preprocess
    planes, interleaved = (pre.channels, pre.height, pre.width), (pre.height, pre.width, pre.channels)
    if len(shape) != 4 or tuple(shape[1:]) not in (planes, interleaved):
        raise Refused(f"the shape should be {[-1, *planes]} (or {[-1, *interleaved]}), but is {shape}")
    try:
        values = torch.tensor(data, dtype=torch.float32).reshape(shape)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise Refused(f"the data should be numbers of shape {shape}") from None
    most = 255 if datatype == "UINT8" else 1
    if not bool(((values >= 0) & (values <= most)).all()):
        raise Refused(f"values of {datatype} images should be in 0..{most}")
    if tuple(shape[1:]) != planes:
        values = values.permute(0, 3, 1, 2).contiguous()
    return values.to(torch.uint8) if datatype == "UINT8" else values * 255


def _read_image(model: Model, file: bytes) -> tuple[Tensor, tuple[int, int]]:
    """Return an image file as a model input, and its height and width. Large images are read one at a time."""
    if _is_large(file):
        return _large_images.submit(_decode_input, model, file).result()
    return _decode_input(model, file)


def _decode_input(model: Model, file: bytes) -> tuple[Tensor, tuple[int, int]]:
    try:
        image = decode(file, "the image")
    except UnreadableImage as error:
        raise Refused(f"the image can't be read: {error.problem}") from None
    return model.preprocess.model_input(image), (image.shape[1], image.shape[2])


def _is_large(file: bytes) -> bool:
    """Whether an image takes much memory when it is decoded, by its header."""
    try:
        width, height = open_picture(file).size
    except Exception:  # what is not an image is refused later
        return False
    return width * height > LARGE


def _file_in_form(body: bytes, content_type: str) -> bytes:
    """Return the bytes of the first file in a form."""
    boundary = re.search(r'boundary="?([^";]+)"?', content_type)
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode()) if boundary else []
    for part in parts[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        if b"filename" in head.lower():
            return content
    raise Refused("the form has no file")


def _file_in_json(body: bytes) -> bytes:
    found = parse_json(body)
    if not isinstance(found, dict) or "image" not in found:
        raise Refused('expected {"image": an image file in base64}')
    return _from_base64(found["image"])


def _from_base64(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise Refused("an image in JSON should be the bytes of a file in base64") from None


def parse_json(body: bytes) -> Any:
    """Parse a body as JSON, and raise a `Refused` if it isn't."""
    try:
        return load_json(body)
    except ValueError:
        raise Refused("the body is not JSON") from None
