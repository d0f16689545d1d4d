"""Segmenters behind HTTP: how masks are read from responses.

The mask of an image is float32 (H, W): the index of each pixel's class. It is cached as a PNG file in base64.
"""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from brinell.classes import Classes
from brinell.errors import ServiceError
from brinell.mask_pictures import to_mask_picture
from brinell.masks import IGNORED, class_shares
from brinell.models.model import Model
from brinell.models.remote.inference import InferenceCodec
from brinell.models.remote.mapping import ResponseOptions
from brinell.models.remote.protocol import MappingCodec, unknown_class, value_at
from brinell.models.segmentation import PixelScores, Segmenter, find_background
from brinell.pictures import encode_png, open_picture

OUTPUT = "masks"
ALL_CLASSES = 1 << 15
ON = 128  # grey level from which a pixel belongs to the mask of one class


@dataclass(frozen=True)
class MappingMaskCodec(MappingCodec):
    """The codec of a segmenter that is described by a mapping."""

    def scores(self, answer: Any) -> np.ndarray:
        """Read the mask at the mapping's path."""
        return read_mask(answer, self.response, self.classes)


@dataclass(frozen=True)
class InferenceMaskCodec(InferenceCodec):
    """The codec of a segmenter with the Open Inference Protocol: classes (N, H, W), or scores (N, classes, h, w)."""

    classes: int | None = None

    def split(self, response: Any, count: int) -> list[Any]:
        """Split the output into masks, one per image."""
        values = self.tensor(response, self.output)
        output = torch.from_numpy(values.reshape(_shape(response, self.output, values)))
        if output.ndim not in (3, 4):
            raise ServiceError(f"its output should be classes (N, H, W) or scores (N, classes, H, W), not {output.shape}")
        if output.ndim == 3 or (output.shape[1] == 1 and bool((output == output.round()).all())):
            pixels = PixelScores(self.classes or ALL_CLASSES)
            output = output.reshape(len(output), *output.shape[-2:])
        else:
            pixels = PixelScores.of(output, self.classes, "behind HTTP")
        masks = pixels.masks(output, self.scaling.height, self.scaling.width)
        return [encode_mask(mask.numpy()) for mask in masks[:count]]

    def scores(self, answer: Any) -> np.ndarray:
        """Read the mask of an image."""
        return decode_mask(answer)


def read_mask(answer: Any, options: ResponseOptions, classes: Classes) -> np.ndarray:
    """Return a response's mask: a PNG file, rows of classes, or, where it has labels, a mask for each of them."""
    assert options.mask is not None
    value = value_at(answer, options.mask)
    if options.labels is None:
        return decode_mask(value)
    names = value_at(answer, options.labels)
    if not isinstance(names, list) or not isinstance(value, list) or len(names) != len(value) or not names:
        raise ServiceError(f"its response should have as many labels as masks at {options.labels!r} and {options.mask!r}")
    found = None
    for name, one in zip(names, value, strict=True):
        indices = classes.find(str(name))
        if not indices:
            raise ServiceError(unknown_class(name))
        mask = _decode(one)
        found = np.full(mask.shape, float(IGNORED), np.float32) if found is None else found
        inside = mask >= ON if mask.max() > 1 else mask > 0
        found[inside] = indices[0]
    assert found is not None
    return found


def encode_mask(mask: np.ndarray) -> str:
    """Return a mask, int (H, W), as a PNG file in base64; pixels without a class have the largest value."""
    return base64.b64encode(encode_png(to_mask_picture(mask))).decode()


def decode_mask(value: Any) -> np.ndarray:
    """Return a mask, float32 (H, W), from a PNG file in base64 or from rows of numbers; the largest value is no class."""
    found = _decode(value)
    return np.where(found == (255 if found.max() <= 255 else 65535), np.float32(IGNORED), found)


def _decode(value: Any) -> np.ndarray:
    try:
        if isinstance(value, str):
            text = value.partition("base64,")[2] if value.startswith("data:") else value
            picture = open_picture(base64.b64decode(text, validate=True))
            picture.load()
            found = np.array(picture.convert("L") if picture.mode == "1" else picture)
        else:
            found = np.array(value, np.float32)
        if found.ndim != 2 or not found.size:
            raise ValueError(f"a mask of shape {found.shape}")
    except (ValueError, TypeError, OverflowError, OSError, binascii.Error, io.UnsupportedOperation) as error:
        raise ServiceError(f"its response should have a mask, a PNG file in base64 or rows of classes: {error}") from None
    return found.astype(np.float32)


def to_segmenter(model: Model) -> Model:
    """Turn a model whose forward function returns masks into a segmenter."""
    pixels, preprocess, ask = PixelScores(model.outputs, differentiable=False), model.preprocess, model.forward
    background = None if model.classes is None else find_background(model.classes.names)

    def segment(images: torch.Tensor) -> torch.Tensor:
        return pixels.masks(ask(images), preprocess.height, preprocess.width)

    return replace(
        model,
        forward=lambda images: class_shares(segment(images), model.outputs, background),
        probabilities=True,
        segmenter=Segmenter(segment, background),
        scores=True,
    )


def _shape(response: Any, name: str | None, values: np.ndarray) -> tuple[int, ...]:
    """Return the shape of an output, by its own word."""
    output = next(one for one in response["outputs"] if name in (None, one["name"]))
    shape = tuple(int(side) for side in output.get("shape") or ())
    if not shape or int(np.prod(shape)) != values.size:
        raise ServiceError(f"its output should have {values.size} numbers of a shape, not of {list(shape)}")
    return shape
