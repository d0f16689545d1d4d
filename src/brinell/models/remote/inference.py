"""The Open Inference Protocol (v2) of KServe, Triton, MLServer and `brinell serve`: tensors as JSON.

Axes: a model input is uint8 (C, H, W); scores are float32 (K,), one per class.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.errors import ServiceError
from brinell.models.preprocess import Preprocess
from brinell.models.remote.mapping import RequestOptions
from brinell.models.remote.protocol import Request, encode_image

#: supported datatypes; FP16 has no JSON form
_DTYPES = {"UINT8": np.uint8, "INT32": np.int32, "INT64": np.int64, "FP32": np.float32, "FP64": np.float64, "BYTES": None}


@dataclass(frozen=True)
class Input:
    """A model's image input, as in its metadata; -1 in `shape` means any number."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def batched(self) -> bool:
        """Whether the first axis is the batch."""
        return self.datatype == "BYTES" or len(self.shape) == 4

    @property
    def channels_last(self) -> bool:
        """Whether channels are the last axis."""
        axes = self.shape[-3:]
        return len(axes) == 3 and axes[2] in (1, 3) and axes[0] not in (1, 3)

    @property
    def image(self) -> tuple[int, int, int]:
        """Channels, height and width, -1 for any."""
        if self.datatype == "BYTES":
            return -1, -1, -1
        one, two, three = self.shape[-3:]
        return (three, one, two) if self.channels_last else (one, two, three)

    @property
    def most(self) -> int | None:
        """The number of images per request, or None for any number."""
        return 1 if not self.batched else self.shape[0] if self.shape and self.shape[0] > 0 else None


def image_input(metadata: Any) -> Input:
    """Return the image input in a model's metadata, and raise if there isn't exactly one."""
    try:
        entries = [
            Input(str(entry["name"]), str(entry["datatype"]), tuple(int(side) for side in entry["shape"]))
            for entry in metadata["inputs"]
        ]
    except (KeyError, TypeError, ValueError):
        raise ServiceError("its metadata lists no inputs with name, datatype and shape") from None
    described = ", ".join(f"{entry.name} {entry.datatype}{list(entry.shape)}" for entry in entries)
    if len(entries) != 1 or entries[0].datatype not in _DTYPES:
        raise ServiceError(f"it should have one input of {', '.join(_DTYPES)}, but has {described or 'none'}")
    if entries[0].datatype != "BYTES" and len(entries[0].shape) not in (3, 4):
        raise ServiceError(f"its input should be images (N, C, H, W) or (N, H, W, C), but is {described}")
    return entries[0]


@dataclass(frozen=True)
class InferenceCodec:
    """The codec of the Open Inference Protocol. Float images are sent as (x/255 - mean) / std of `scaling`."""

    entry: Input
    scaling: Preprocess
    output: str | None
    most: int

    def request(self, inputs: list[np.ndarray]) -> Request:
        """Write model inputs as one tensor, with the last one repeated if the server takes a fixed number."""
        size = self.entry.most or len(inputs)
        images = np.stack([*inputs, *[inputs[-1]] * (size - len(inputs))])
        tensor = {"name": self.entry.name, "datatype": self.entry.datatype, **self._data(images)}
        if self.entry.datatype == "BYTES":
            tensor["parameters"] = {"content_type": "base64"}  # as in MLServer
        requested = self.requested_outputs()
        outputs = {"outputs": [{"name": name} for name in requested]} if requested else {}
        return Request(json.dumps({"inputs": [tensor], **outputs}).encode(), "application/json")

    def requested_outputs(self) -> list[str]:
        """Return the names of the outputs to request; an empty list requests all."""
        return [] if self.output is None else [self.output]

    def split(self, response: Any, count: int) -> list[Any]:
        """Split the output into rows, one per image."""
        try:
            rows = self.tensor(response, self.output).reshape(self.entry.most or count, -1)
        except ValueError:
            raise ServiceError("its output should have one row of scores per image") from None
        return [row.tolist() for row in rows[:count]]

    @staticmethod
    def tensor(response: Any, name: str | None) -> np.ndarray:
        """Return the numbers of an output, or of the first output if no name is given."""
        try:
            outputs = {str(output["name"]): output["data"] for output in response["outputs"]}
        except (KeyError, TypeError):
            raise ServiceError("its response has no outputs with name and data") from None
        name = name or next(iter(outputs), "")
        if name not in outputs:
            raise ServiceError(f"its response has no output {name!r}; it has {', '.join(outputs) or 'none'}")
        try:
            return np.array(outputs[name], np.float32)
        except (ValueError, TypeError, OverflowError):
            raise ServiceError(f"its output {name!r} should be numbers") from None

    def scores(self, answer: Any) -> np.ndarray:
        """Read a row of scores."""
        scores = np.array(answer, np.float32)
        if scores.ndim != 1 or not np.isfinite(scores).all():
            raise ServiceError("its response has NaN or nothing instead of scores")
        return scores

    def _data(self, images: np.ndarray) -> dict[str, Any]:
        if self.entry.datatype == "BYTES":
            files = [base64.b64encode(encode_image(image, RequestOptions())).decode() for image in images]
            return {"shape": [len(files), 1][: max(1, len(self.entry.shape))], "data": files}
        last = self.entry.channels_last
        values = images.transpose(0, 2, 3, 1) if last else images
        if self.entry.datatype.startswith("FP"):
            mean, std = (
                np.array(numbers, np.float32) if last else np.array(numbers, np.float32)[:, None, None]
                for numbers in (self.scaling.mean, self.scaling.std)
            )
            values = ((values / np.float32(255) - mean) / std).astype(_DTYPES[self.entry.datatype])
        shape = values.shape if self.entry.batched else values.shape[1:]
        return {"shape": list(shape), "data": values.ravel().tolist()}
