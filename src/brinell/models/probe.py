"""A first run on plain images, which shows what a model returns, and models made from what it showed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.config.detection import Decoding
from brinell.errors import BrinellError, ModelError
from brinell.masks import class_shares
from brinell.models.detection import Detector, Heads, decode_heads
from brinell.models.model import Description, Forward, Model, check_scores
from brinell.models.preprocess import Preprocess
from brinell.models.segmentation import PixelScores, Segmenter, find_background

A = TypeVar("A")


@dataclass(frozen=True)
class Probe:
    """The number of a model's outputs, whether they are probabilities, and those of `probe_images`."""

    outputs: int
    probabilities: bool
    scores: Tensor | None = None


def probe(forward: Forward, description: Description, device: torch.device) -> Probe:
    """Run a model on plain images to find the number of its outputs and whether they are probabilities.

    Raise if the model can't be run, or if its class list doesn't match its outputs.
    """
    name, classes = description.name, description.classes
    inputs = probe_images(description.preprocess).to(device)
    scores = check_scores(run_first(forward, description, inputs), len(inputs), None, name)
    if scores.shape[1] == 0:
        raise ModelError(f"model {name} returns no scores: its output has the shape {tuple(scores.shape)}")
    if bool(scores.isnan().any()):
        raise ModelError(f"model {name} returns NaN for plain images; try --precision fp32, or check its weights")
    if classes is not None and len(classes) != scores.shape[1]:
        raise ModelError(f"model {name} has {scores.shape[1]} outputs, but its class list has {len(classes)} names")
    sums = scores.sum(1)
    positive = bool((scores >= 0).all()) and bool((scores <= 1).all())
    if description.probabilities is not None:
        return Probe(scores.shape[1], description.probabilities, scores)
    return Probe(scores.shape[1], positive and torch.allclose(sums, torch.ones_like(sums), atol=1e-3), scores)


def make_classifier(
    forward: Forward,
    probed: Probe,
    description: Description,
    *,
    device: torch.device,
    fingerprint: str,
    facts: Mapping[str, str],
) -> Model:
    """Make a classifier from its forward function and what its first run showed."""
    return Model(
        name=description.name,
        forward=forward,
        preprocess=description.preprocess,
        device=device,
        fingerprint=fingerprint,
        outputs=probed.outputs,
        probabilities=probed.probabilities,
        classes=description.classes,
        facts=facts,
    )


def make_detector(
    heads: Callable[[Tensor], Heads],
    decoding: Decoding,
    description: Description,
    *,
    device: torch.device,
    fingerprint: str,
    facts: Mapping[str, str],
) -> Model:
    """Make a detector from a function that returns a network's outputs by their roles."""
    preprocess, classes = description.preprocess, description.classes

    def detect(images: Tensor) -> Detections:
        return decode_heads(heads(images), decoding, preprocess.height, preprocess.width)

    first = run_first(heads, description, probe_images(preprocess).to(device))
    outputs = _count_classes(first, decoding, description)
    return Model(
        name=description.name,
        forward=lambda images: detect(images).class_scores(outputs),
        preprocess=preprocess,
        device=device,
        fingerprint=fingerprint,
        outputs=outputs,
        probabilities=True,
        classes=classes,
        facts=facts,
        detector=Detector(detect, decoding),
    )


def make_segmenter(
    run: Forward,
    description: Description,
    *,
    device: torch.device,
    fingerprint: str,
    facts: Mapping[str, str],
) -> tuple[Model, PixelScores]:
    """Make a segmenter from a function that returns what pixels are; and return how its output is read."""
    preprocess, classes, name = description.preprocess, description.classes, description.name
    first = run_first(run, description, probe_images(preprocess).to(device))
    if first.is_floating_point() and bool(first.isnan().any()):
        raise ModelError(f"segmenter {name} returns NaN for plain images; try --precision fp32, or check its weights")
    pixels = PixelScores.of(first, None if classes is None else len(classes), name)
    if classes is not None and len(classes) != pixels.classes:
        raise ModelError(f"segmenter {name} has {pixels.classes} classes, but its class list has {len(classes)} names")
    background = None if classes is None else find_background(classes.names)

    def segment(images: Tensor) -> Tensor:
        return pixels.masks(run(images), preprocess.height, preprocess.width)

    model = Model(
        name=name,
        forward=lambda images: class_shares(segment(images), pixels.classes, background),
        preprocess=preprocess,
        device=device,
        fingerprint=fingerprint,
        outputs=pixels.classes,
        probabilities=True,
        classes=classes,
        facts=facts,
        segmenter=Segmenter(segment, background),
    )
    return model, pixels


def _count_classes(heads: Heads, decoding: Decoding, description: Description) -> int:
    """Return the number of a detector's classes, and raise if its class list is missing or doesn't match."""
    name, classes = description.name, description.classes
    if heads.labels is None:
        outputs = heads.scores.shape[2] - (decoding.background != "none")
        if classes is not None and len(classes) != outputs:
            raise ModelError(
                f"detector {name} has scores for {outputs} classes, but its class list has {len(classes)} names; if one "
                "of its scores is for the background, set ?background=first or last and leave it out of the list"
            )
        return outputs
    if classes is None:
        raise ModelError(f"detector {name} returns labels, so it needs its class list (?classes=FILE, one name per line)")
    return len(classes)


def run_first(run: Callable[[Tensor], A], description: Description, inputs: Tensor) -> A:
    """Return what a model returns for its first images, and raise if it can't be run on them."""
    preprocess = description.preprocess
    with torch.inference_mode():
        try:
            return run(preprocess.normalise(inputs))
        except BrinellError:
            raise
        except Exception as error:  # a module may raise anything
            shape = (preprocess.channels, preprocess.height, preprocess.width)
            raise ModelError(
                f"model {description.name} can't be run on images of shape {shape}: {_first_line(error)}; "
                "set its input size (?size=N, ?channels=N)"
            ) from error


def probe_images(preprocess: Preprocess) -> Tensor:
    """Return three uint8 images of the model input's size: mid-grey, a ramp and a chequerboard."""
    height, width = preprocess.height, preprocess.width
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    plain = torch.full((height, width), 128)
    ramp = (rows + columns) * 255 // max(1, height + width - 2)
    chequered = ((rows // 8 + columns // 8) % 2) * 200 + 20
    images = torch.stack([plain, ramp, chequered]).to(torch.uint8)
    return images[:, None].expand(-1, preprocess.channels, -1, -1).contiguous()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
