"""The `Model` type: what the rest of the package queries."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from brinell.boxes import Detections
from brinell.classes import Classes
from brinell.config.criterion import Task
from brinell.errors import ModelError
from brinell.masks import class_shares
from brinell.models.detection import BoxScores, Detector
from brinell.models.embedding import Embedder
from brinell.models.preprocess import PLAIN, Format, Preprocess
from brinell.models.segmentation import Segmenter
from brinell.models.tf32 import tf32

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Counts:
    """Images sent to a service (including retries), images answered from the cache, and the date of the oldest answer."""

    sent: int = 0
    cached: int = 0
    oldest: str | None = None


class Service(Protocol):
    """A service behind HTTP, as the engine sees it: how to query it efficiently, and what that costs."""

    @property
    def batch(self) -> int:
        """The number of images per batch that keeps the service busy."""
        ...

    @property
    def price(self) -> float | None:
        """The price of a query, if it is known."""
        ...

    @property
    def currency(self) -> str:
        """The currency of the price."""
        ...

    @property
    def rate(self) -> float | None:
        """The maximum number of images per second, if there is one."""
        ...

    @property
    def tolerant(self) -> bool:
        """Whether images may remain without an answer."""
        ...

    @property
    def unanswered(self) -> int:
        """The number of images without an answer since the run was started or resumed."""
        ...

    @property
    def counts(self) -> Counts:
        """The queries of the current run."""
        ...

    @property
    def seen(self) -> Mapping[int, str]:
        """The texts of answers that are no classes, by output."""
        ...

    def begin(self, run: str) -> None:
        """Count queries for a run from now on, in addition to those it made before it was interrupted."""
        ...


@dataclass(frozen=True)
class Internals:
    """A torch model's module, and what it returns as a differentiable function of normalised images.

    `scores` over classes are logits or logarithms of probabilities; a detector has `boxes` instead.
    """

    module: nn.Module
    scores: Forward | None = None
    boxes: Callable[[Tensor], BoxScores] | None = None


@dataclass(frozen=True)
class Description:
    """What is known about a model before it is first run.

    `probabilities`: whether its scores are known to be probabilities, though they need not add up to 1; None: a first run
    shows it.
    """

    name: str
    source: str
    preprocess: Preprocess
    classes: Classes | None = None
    probabilities: bool | None = None


@dataclass(frozen=True)
class Speed:
    """The batch size that suits a model on its device, and its images per second."""

    batch: int
    rate: float


@dataclass(frozen=True)
class Model:
    """A classifier, detector or segmenter on its device.

    `forward` maps normalised float32 images (N, C, H, W), or those of the format it `takes`, to scores (N, K);
    `differentiable` does the same with gradients, if the model has them. `facts` (source, runtime, precision and so on)
    are stored in the manifest. A model without `scores` only names a class: its output is 1 for that class and 0 for
    all others. A model with a `service` is queried over HTTP, which may cost money. A model with a `detector` can also
    be used as a classifier: a class's score is that of its best detection in the image, or 0 if there is none. With a
    `segmenter`, it is the share of pixels that the class has. With an `embedder`, classes are those of its gallery, or
    there is only one. `internals` give access to a torch model's layers. A model that is `whole_only` takes images in
    whole grey levels, such as files; others take floats, too. The `speed` is known where choosing a runtime has measured
    it.
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
    segmenter: Segmenter | None = None
    embedder: Embedder | None = None
    internals: Internals | None = None
    whole_only: bool = False
    speed: Speed | None = None
    takes: Format = PLAIN

    @property
    def task(self) -> Task:
        """What the model is for."""
        if self.segmenter is not None:
            return "segmentation"
        if self.embedder is not None and self.embedder.head is None:
            return "embedding"
        return "classification" if self.detector is None else "detection"

    def predict(self, inputs: Tensor) -> Tensor:
        """Return probabilities, float32 (N, K), for inputs (uint8, or floats in 0..255) on the model's device."""
        return self.answer(inputs)[0]

    def answer(self, inputs: Tensor) -> tuple[Tensor, Detections | None]:
        """Return probabilities, and for a detector the detections they come from."""
        with torch.inference_mode():
            images, count = self._images(inputs), len(inputs)
            if self.detector is not None:
                detections = self.detector.detect(images).at(slice(count))
                return detections.class_scores(self.outputs), detections
            if self.segmenter is not None:
                return self.pixel_shares(self.segmenter.segment(images)[:count]), None
            if self.embedder is not None:
                return self.embedder.scores(self.embedder.embed(images)[:count]), None
            return self._probabilities(self.forward(images), len(images))[:count], None

    def predict_in_batches(self, inputs: Tensor, most: int) -> Tensor:
        """Return a classifier's probabilities for inputs on a CPU, which it gets in batches of at most `most`.

        Everything after the network is done once for all batches, because each torch call between two passes is expensive.
        """
        with torch.inference_mode():
            batches = inputs.tensor_split(-(-len(inputs) // most))
            images = _scratch(batches[0].shape)
            scores = []
            for batch in batches:
                own = self.preprocess.normalise(batch, out=images[: len(batch)])
                scores.append(self.forward(own).clone())  # it may be a view of the images
            return self._probabilities(torch.cat(scores), len(inputs))

    def _probabilities(self, raw: Tensor, count: int) -> Tensor:
        """Return the scores of so many images as probabilities."""
        scores = check_scores(raw, count, self.outputs, self.name)
        return scores if self.probabilities else scores.softmax(1)

    def segment(self, inputs: Tensor) -> Tensor:
        """Return a segmenter's masks, int16 (N, H, W), for inputs on its device."""
        assert self.segmenter is not None
        with torch.inference_mode():
            return self.segmenter.segment(self._images(inputs))[: len(inputs)]

    def embed(self, inputs: Tensor) -> Tensor:
        """Return an embedder's vectors, float32 (N, D), of length 1, for inputs on its device."""
        assert self.embedder is not None
        with torch.inference_mode():
            return self.embedder.embed(self._images(inputs))[: len(inputs)]

    def _images(self, inputs: Tensor) -> Tensor:
        """Return inputs as what `forward` takes, on an accelerator in a padded batch."""
        full = inputs if self.device.type == "cpu" else pad_batch(inputs)  # now, while a value is a byte
        return self.preprocess.normalise(full, self.takes)

    def pixel_shares(self, masks: Tensor) -> Tensor:
        """Return a segmenter's scores, float32 (N, K): the share of the pixels that each class has."""
        assert self.segmenter is not None
        return class_shares(masks, self.outputs, self.segmenter.background)

    def gradient(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of each image's cross entropy with respect to its values in 0..255, float32 (N, C, H, W)."""
        if self.differentiable is None:
            raise ModelError(f"model {self.name} has no gradients, which white-box operators need; use a torch model")
        with torch.enable_grad(), self.own_precision():
            pixels = inputs.to(torch.float32).requires_grad_()
            scores = self.differentiable(self.preprocess.normalise(pixels)).to(torch.float32)
            logs = scores.clamp(min=1e-30).log() if self.probabilities else scores.log_softmax(1)
            loss = -logs.gather(1, labels[:, None]).sum()
            return torch.autograd.grad(loss, pixels)[0]

    def own_precision(self) -> AbstractContextManager[None]:
        """Let backward passes have the model's precision in this context: the setting of a forward pass ends with it."""
        return tf32(self.facts.get("precision") == "tf32")


_local = threading.local()


def _scratch(shape: Sequence[int]) -> Tensor:
    """Return memory of this thread, float32, which the next call overwrites: new memory is slow, page by page."""
    count = math.prod(shape)
    if len(getattr(_local, "memory", ())) < count:
        _local.memory = torch.empty(count)
    memory: Tensor = _local.memory
    return memory[:count].view(*shape)


def pad_batch(images: Tensor) -> Tensor:
    """Repeat the last image of a batch until its size is a power of two.

    For every new batch size an accelerator selects its algorithms again, and a compiled network is compiled again, which
    takes longer than thousands of images; searches need batches of every size.
    """
    missing = (1 << (len(images) - 1).bit_length()) - len(images)
    return torch.cat([images, images[-1:].expand(missing, -1, -1, -1)]) if missing else images


def check_scores(raw: Tensor, count: int, outputs: int | None, name: str) -> Tensor:
    """Return scores as float32 (N, K), and raise if they have another shape."""
    if not isinstance(raw, Tensor):
        raise ModelError(f"model {name} should return a tensor of scores (N, classes), but returned {type(raw).__name__}")
    if raw.ndim != 2 or len(raw) != count or (outputs is not None and raw.shape[1] != outputs):
        expected = f"({count}, {outputs if outputs is not None else 'classes'})"
        raise ModelError(
            f"model {name} should return scores of shape {expected}, but returned {tuple(raw.shape)}; "
            "wrap it so that it returns one row of class scores per image"
        )
    return raw.to(torch.float32)
