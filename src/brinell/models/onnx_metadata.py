"""What an ONNX file says about itself, and what lies next to it: preprocessing, classes, and how boxes are written.

Three sources, the most specific first: the metadata of YOLO-family exports (`task`, `names`, `imgsz`, `stride`), the files
`preprocessor_config.json` (Hugging Face) and `config.json` (Hugging Face, timm) in the same folder, and ONNX's own metadata
for images (`Image.BitmapPixelFormat`, `Image.NominalPixelRange`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from brinell.classes import Classes
from brinell.config.model import ModelOptions
from brinell.documents import load_json
from brinell.errors import BrinellError, ModelError
from brinell.models.options import LETTERBOX_FILL
from brinell.models.preprocess import Preprocess
from brinell.models.processors import read_interpolation, read_processor

_YOLO_TASKS = {"detect": "detection", "classify": "classification"}
_RANGES = {  # of Image.NominalPixelRange, as mean and std of values in [0, 1]
    "NominalRange_0_255": (0.0, 1 / 255),
    "Normalized_0_1": (0.0, 1.0),
    "Normalized_1_1": (0.5, 0.5),
}
_YOLO_COLUMNS = 6  # of an output whose boxes were suppressed already: box, score and class
_MOST_SUPPRESSED = 1000  # rows of such an output; others have a row for each of thousands of anchors


@dataclass(frozen=True)
class Known:
    """What is known about an ONNX file. `options` are its task and how it writes boxes, which a user's options override."""

    preprocess: Preprocess
    classes: Classes | None = None
    options: dict[str, Any] = field(default_factory=dict)
    stride: int = 1

    def override(self, options: ModelOptions) -> ModelOptions:
        """Return the user's options, with the file's own where the user says nothing."""
        own = {key: value for key, value in self.options.items() if key not in options.model_fields_set}
        if options.task not in (None, own.get("task", options.task)):
            return options  # another task has other options
        return options.model_copy(update=own)


def read_known(file: Path, session: Any, preprocess: Preprocess) -> Known:
    """Return what is known about a file; `preprocess` has what its input declares, with 0 for sides of any length."""
    metadata = dict(session.get_modelmeta().custom_metadata_map)
    known = _read_neighbours(file.parent, Known(_read_image_metadata(metadata, preprocess)))
    if "names" in metadata and "stride" in metadata:
        known = _read_yolo(metadata, [out.shape for out in session.get_outputs()], known)
    return known


def _read_image_metadata(metadata: Mapping[str, str], preprocess: Preprocess) -> Preprocess:
    """Read ONNX's own metadata for images."""
    if preprocess.channels == 3 and metadata.get("Image.BitmapPixelFormat", "").lower().startswith("bgr"):
        preprocess = replace(preprocess, bgr=True)
    if (found := _RANGES.get(metadata.get("Image.NominalPixelRange", ""))) is not None:
        preprocess = replace(preprocess, mean=(found[0],), std=(found[1],))
    return preprocess


# ---- files in the same folder ----


def _read_neighbours(folder: Path, known: Known) -> Known:
    """Read the configurations that Hugging Face's and timm's exports leave next to a file."""
    processor, config = _read_json(folder / "preprocessor_config.json"), _read_json(folder / "config.json")
    preprocess = known.preprocess
    if isinstance(processor.get("size"), Mapping):
        preprocess = _fit(preprocess, _read_hf(processor))
    elif isinstance(timm := config.get("pretrained_cfg"), Mapping) and "mean" in timm and "input_size" in timm:
        preprocess = _fit(preprocess, _read_timm(timm))
    return replace(known, preprocess=preprocess, classes=_read_labels(config))


def _fit(declared: Preprocess, found: Preprocess) -> Preprocess:
    """Return a configuration's preprocessing at the size that a file declares."""
    height, width = declared.height or found.height, declared.width or found.width
    short_side = found.short_side
    if short_side is not None and short_side < max(height, width):
        short_side = None
    return replace(found, height=height, width=width, channels=declared.channels, short_side=short_side, bgr=declared.bgr)


def _read_hf(processor: Mapping[str, Any]) -> Preprocess:
    defaults: dict[str, Any] = {"do_normalize": True, "do_rescale": True, "rescale_factor": 1 / 255, "resample": 3}
    defaults |= {"image_mean": [0.0], "image_std": [1.0]}
    return read_processor(SimpleNamespace(**(defaults | dict(processor))))


def _read_timm(config: Mapping[str, Any]) -> Preprocess:
    _, height, width = config["input_size"]
    share = config.get("crop_pct") or 1.0
    return Preprocess(
        height=height,
        width=width,
        short_side=max(int(min(height, width) / share), height, width),
        interpolation=read_interpolation(config.get("interpolation")),
        mean=tuple(config["mean"]),
        std=tuple(config.get("std") or (1.0,)),
    )


def _read_labels(config: Mapping[str, Any]) -> Classes | None:
    """Return the class names of a configuration of Hugging Face or timm."""
    labels = config.get("id2label")
    if isinstance(labels, Mapping) and set(labels) == {str(index) for index in range(len(labels))}:
        return Classes(tuple(str(labels[str(index)]) for index in range(len(labels))))
    names = config.get("label_names")
    return Classes(tuple(map(str, names))) if isinstance(names, list) and names else None


def _read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object, or nothing if there is none."""
    try:
        found = load_json(file.read_bytes())
    except (OSError, ValueError, BrinellError):
        return {}
    return found if isinstance(found, dict) else {}


# ---- YOLO ----


def _read_yolo(metadata: Mapping[str, str], outputs: Sequence[Sequence[Any]], known: Known) -> Known:
    """Read what the exporters of the YOLO family write."""
    names, stride = _literal(metadata, "names"), int(float(metadata["stride"]))
    names = list(names.values()) if isinstance(names, dict) else names
    if not isinstance(names, list) or not names:
        return known
    task = metadata.get("task", "detect")
    if task not in _YOLO_TASKS:
        raise ModelError(f"the ONNX file is a YOLO model for {task!r}; brinell tests those for detect and classify")
    size = _literal(metadata, "imgsz")
    height, width = (size * 2)[:2] if isinstance(size, list) and size else (0, 0)
    preprocess = replace(
        known.preprocess,
        height=known.preprocess.height or height,
        width=known.preprocess.width or width,
        interpolation="bilinear",
    )
    options: dict[str, Any] = {"task": _YOLO_TASKS[task]}
    if task == "classify":
        preprocess = replace(preprocess, short_side=max(preprocess.height, preprocess.width))
    else:
        preprocess = replace(preprocess, fill=LETTERBOX_FILL)
        options |= _yolo_boxes(metadata, outputs, len(names))
    return Known(preprocess, Classes(tuple(map(str, names))), options, stride)


def _yolo_boxes(metadata: Mapping[str, str], outputs: Sequence[Sequence[Any]], classes: int) -> dict[str, Any]:
    """Return how boxes are written, by the shape of the output: (columns, anchors), or (anchors, columns) of older ones."""
    sides = [side for side in outputs[0][1:] if isinstance(side, int)] if len(outputs) == 1 else []
    if sides and sides[-1] == _YOLO_COLUMNS and _is_suppressed(metadata, sides):
        return {"box_format": "xyxy", "box_units": "pixels", "labels": "column"}
    boxes = {"box_format": "cxcywh", "box_units": "pixels"}
    return boxes | ({"objectness": "column"} if 5 + classes in sides and 4 + classes not in sides else {})


def _is_suppressed(metadata: Mapping[str, str], sides: Sequence[int]) -> bool:
    """Whether the network suppresses boxes itself, as newer exporters say; by the number of rows for others."""
    settings = _literal(metadata, "args")
    if metadata.get("end2end") == "True" or (isinstance(settings, dict) and settings.get("nms")):
        return True
    return "end2end" not in metadata and sides[0] <= _MOST_SUPPRESSED


def _literal(metadata: Mapping[str, str], key: str) -> Any:
    """Return a value that was written as a Python literal; None if it wasn't."""
    try:
        return ast.literal_eval(metadata.get(key, ""))
    except (ValueError, SyntaxError):
        return None
