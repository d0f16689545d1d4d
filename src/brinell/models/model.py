"""What a model is to the rest of the package: something that scores a batch of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from brinell.boxes import Detections
from brinell.classes import Classes
from brinell.config.detection import Decoding
from brinell.errors import BrinellError, ModelError
from brinell.models.detection import Detector, Heads, decoded
from brinell.models.preprocess import Preprocess
from brinell.models.remote.service import Service

A = TypeVar("A")
Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Insides:
    """A torch model as it can be looked into: its module, and how that gives scores over classes, with gradients.

    Scores are logits, the logarithms of probabilities, or a detector's best ones of each class.
    """

    module: nn.Module
    scores: Forward


@dataclass(frozen=True)
class Model:
    """A classifier or detector, ready on its device.

    `forward` takes normalised float32 images (N, C, H, W) and gives scores (N, K); `differentiable` does the same with
    gradients, where the model has them. `facts` go into the manifest: source, runtime, precision and the like. A model
    without `scores` names a class and says no more: its answers are 1 for that class and 0 for the others. A model with
    a `service` is asked over HTTP, which may cost something. To whoever asks for scores over classes, a model with a
    `detector` gives the best score of each class's detections in the image, 0 where there are none. A torch model can be
    looked into by its `insides`.
    """

    name: str
    forward: Forward
    preprocess: Preprocess
    device: torch.device
    fingerprint: str
    outputs: int
    probabilities: bool
    classes: Classes | None = None
    differentiable: Forward | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    scores: bool = True
    service: Service | None = None
    detector: Detector | None = None
    insides: Insides | None = None

    def predict(self, inputs: Tensor) -> Tensor:
        """Probabilities as float32 (N, K) for uint8 inputs on the model's device."""
        return self.answer(inputs)[0]

    def answer(self, inputs: Tensor) -> tuple[Tensor, Detections | None]:
        """Probabilities, and the detections that a detector's are from."""
        with torch.inference_mode():
            images, count = self.preprocess.normalise(inputs), len(inputs)
            if self.device.type != "cpu":
                images = filled_up(images)
            if self.detector is not None:
                detections = self.detector.detect(images).at(slice(count))
                return detections.class_scores(self.outputs), detections
            scores = checked(self.forward(images), len(images), self.outputs, self.name)[:count]
            return (scores if self.probabilities else scores.softmax(1)), None

    def gradient(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The gradient of each image's cross entropy with respect to its values in 0..255, float32 (N, C, H, W)."""
        if self.differentiable is None:
            raise ModelError(f"model {self.name} gives no gradients: white-box operators need a torch model")
        with torch.enable_grad():
            pixels = inputs.to(torch.float32).requires_grad_()
            scores = self.differentiable(self.preprocess.normalise(pixels)).to(torch.float32)
            logs = scores.clamp(min=1e-30).log() if self.probabilities else scores.log_softmax(1)
            loss = -logs.gather(1, labels[:, None]).sum()
            return torch.autograd.grad(loss, pixels)[0]


def filled_up(images: Tensor) -> Tensor:
    """A batch with its last image repeated, up to 1, 2, 4, 8 … images.

    For every size of batch that is new to it, an accelerator chooses its way through a network anew, and a compiled
    network is compiled anew: that takes longer than thousands of images, and searches ask for batches of every size.
    """
    missing = (1 << (len(images) - 1).bit_length()) - len(images)
    return torch.cat([images, images[-1:].expand(missing, -1, -1, -1)]) if missing else images


def checked(raw: Tensor, count: int, outputs: int | None, name: str) -> Tensor:
    """Scores as float32 (N, K), or an error that says what came instead."""
    if not isinstance(raw, Tensor):
        raise ModelError(f"model {name} should give a tensor of scores (N, classes), but gave {type(raw).__name__}")
    if raw.ndim != 2 or len(raw) != count or (outputs is not None and raw.shape[1] != outputs):
        expected = f"({count}, {outputs if outputs is not None else 'classes'})"
        raise ModelError(
            f"model {name} should give scores of shape {expected}, but gave {tuple(raw.shape)}; "
            "wrap it so that it returns one row of class scores an image"
        )
    return raw.to(torch.float32)


@dataclass(frozen=True)
class Probe:
    """What a first look at a model's answers shows."""

    outputs: int
    probabilities: bool


def probe(forward: Forward, preprocess: Preprocess, device: torch.device, name: str) -> Probe:
    """Ask a model about three plain images, and see how many classes it has and whether scores are probabilities."""
    inputs = probe_images(preprocess).to(device)
    scores = checked(_first_answer(forward, preprocess, inputs, name), len(inputs), None, name)
    if bool(scores.isnan().any()):
        raise ModelError(f"model {name} gives NaN for plain images; try --precision fp32 or check its weights")
    sums = scores.sum(1)
    positive = bool((scores >= 0).all()) and bool((scores <= 1).all())
    return Probe(scores.shape[1], positive and torch.allclose(sums, torch.ones_like(sums), atol=1e-3))


def as_detector(
    heads: Callable[[Tensor], Heads],
    how: Decoding,
    *,
    name: str,
    preprocess: Preprocess,
    device: torch.device,
    fingerprint: str,
    classes: Classes | None,
    facts: Mapping[str, str],
    insides: Insides | None = None,
) -> Model:
    """A detector from a function that gives a network's outputs in their places."""

    def detect(images: Tensor) -> Detections:
        return decoded(heads(images), how, preprocess.height, preprocess.width)

    first = _first_answer(heads, preprocess, probe_images(preprocess).to(device), name)
    if first.labels is None:
        outputs = first.scores.shape[2] - (how.background != "none")
        if classes is not None and len(classes) != outputs:
            raise ModelError(
                f"detector {name} has scores for {outputs} classes, but its class list has {len(classes)} names (a class "
                "that stands for nothing is told by ?background=first or last, and is no name)"
            )
    elif classes is None:
        raise ModelError(f"detector {name} gives labels alone: give it its class list (?classes=FILE, one name a line)")
    else:
        outputs = len(classes)
    return Model(
        name=name,
        forward=lambda images: detect(images).class_scores(outputs),
        preprocess=preprocess,
        device=device,
        fingerprint=fingerprint,
        outputs=outputs,
        probabilities=True,
        classes=classes,
        facts=facts,
        detector=Detector(detect, how),
        insides=insides,
    )


def _first_answer(ask: Callable[[Tensor], A], preprocess: Preprocess, inputs: Tensor, name: str) -> A:
    """What a model says to some first images, or an error that says why it can't."""
    with torch.inference_mode():
        try:
            return ask(preprocess.normalise(inputs))
        except BrinellError:
            raise
        except Exception as error:  # a module may raise anything
            shape = (preprocess.channels, preprocess.height, preprocess.width)
            raise ModelError(
                f"model {name} can't be run on images of shape {shape}: {_first_line(error)}; "
                "give it its input size (?size=N, ?channels=N)"
            ) from error


def probe_images(preprocess: Preprocess) -> Tensor:
    """Mid-grey, a ramp, and a chequered image."""
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
