"""Segmenters: a network's outputs turned into masks, the class of each pixel of the model input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from brinell.errors import ModelError
from brinell.masks import IGNORED, resize_masks

NAMES = ("out", "logits")  # of the output that holds the scores of pixels, in torchvision and transformers


@dataclass(frozen=True)
class Segmenter:
    """What makes a model a segmenter: a function from normalised images to masks, and the class that is no object."""

    segment: Callable[[Tensor], Tensor]
    background: int | None = None


class PixelOutput(nn.Module):
    """A network that returns only the output that says what pixels are: see `read_pixels`."""

    def __init__(self, module: nn.Module, output: str | None, name: str) -> None:
        super().__init__()
        self.module, self.output, self.name = module, output, name

    def forward(self, images: Tensor) -> Tensor:
        """Return scores (N, K, h, w), or classes (N, h, w)."""
        return read_pixels(self.module(images), self.output, self.name)


def read_pixels(outputs: Any, output: str | None, name: str) -> Tensor:
    """Return the output of a network that says what pixels are: by its name, by a usual name, or else the first one."""
    if isinstance(outputs, Tensor):
        return outputs
    if not isinstance(outputs, Mapping):
        outputs = dict(enumerate(outputs)) if isinstance(outputs, (list, tuple)) else {}
    found = outputs.get(output) if output is not None else next((outputs[key] for key in NAMES if key in outputs), None)
    if found is None and output is not None:
        raise ModelError(f"segmenter {name} has no output {output!r}; it has {', '.join(map(str, outputs))}")
    if found is None:
        found = next(iter(outputs.values()), None)
    if not isinstance(found, Tensor):
        raise ModelError(f"segmenter {name} should return a tensor of scores (N, classes, height, width)")
    return found


@dataclass(frozen=True)
class PixelScores:
    """How a network's output is read: its number of classes, whether they are its last axis, and where a network with
    one score per pixel draws the line between its two classes.
    """

    classes: int
    last: bool = False
    threshold: float | None = None
    differentiable: bool = True

    @classmethod
    def of(cls, first: Tensor, classes: int | None, name: str) -> PixelScores:
        """Return how an output is read, from what a network returns for its first images and its number of classes."""
        if first.ndim == 3 or not first.is_floating_point():
            if classes is None:
                raise ModelError(
                    f"segmenter {name} returns classes and no scores, so it needs its class list (?classes=FILE, one name "
                    "per line)"
                )
            return cls(classes, differentiable=False)
        if first.ndim != 4:
            raise ModelError(
                f"segmenter {name} should return scores (N, classes, height, width), but returned {tuple(first.shape)}"
            )
        axes = first.shape[1], first.shape[3]
        last = classes not in (axes[0], None) and axes[1] == classes
        last = last or (classes is None and axes[1] < min(first.shape[1:3]))
        found = axes[1] if last else axes[0]
        if found == 1:  # of two classes
            shares = bool(((first >= 0) & (first <= 1)).all())
            return cls(2, last, 0.5 if shares else 0.0)
        return cls(found, last)

    def scores(self, output: Tensor) -> Tensor | None:
        """Return an output as scores, float32 (N, K, h, w), the highest for a pixel's class; None if it has classes."""
        if output.ndim == 3 or not output.is_floating_point():
            return None
        output = (output.permute(0, 3, 1, 2) if self.last else output).to(torch.float32)
        if self.threshold is not None:
            output = torch.cat([torch.zeros_like(output), output - self.threshold], 1)
        return output

    def masks(self, output: Tensor, height: int, width: int) -> Tensor:
        """Return an output as masks of a size: scores are scaled by bilinear interpolation first, as libraries do."""
        scores = self.scores(output)
        if scores is None:
            classes = output.reshape(len(output), *output.shape[-2:])
            if classes.is_floating_point():
                classes = classes.nan_to_num(IGNORED).round()  # NaN: a service gave no answer
            classes = classes.to(torch.int16)
            classes = resize_masks(classes, height, width)
            return classes.masked_fill((classes < 0) | (classes >= self.classes), IGNORED)
        if scores.shape[2:] != (height, width):
            scores = interpolate(scores, (height, width), mode="bilinear", align_corners=False)
        unanswered = scores.isnan().flatten(1).any(1)
        return scores.argmax(1).to(torch.int16).masked_fill(unanswered[:, None, None], IGNORED)

    def shares(self, output: Tensor) -> Tensor:
        """Return the mean probability of each class over all pixels, (N, K), with gradients."""
        scores = self.scores(output)
        if scores is None:
            raise ModelError("it returns classes and no scores, so a class has no gradient")
        positive = scores.detach().amin() >= 0 and torch.allclose(scores.detach().sum(1), scores.new_ones(()), atol=1e-3)
        return (scores if positive else scores.softmax(1)).mean((2, 3))


def find_background(names: tuple[str, ...]) -> int | None:
    """Return the index of the class that is no object, if it is named so."""
    return next((index for index, name in enumerate(names) if "background" in name.lower().lstrip("_")), None)
