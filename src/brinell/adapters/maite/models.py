"""Models both ways: ours as MAITE's, and MAITE's as ours, so that every lens can query them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.adapters.maite.datasets import Target
from brinell.boxes import clip_boxes
from brinell.classes import Classes
from brinell.config.detection import Decoding
from brinell.errors import ModelError
from brinell.models.detection import Heads
from brinell.models.model import Description, Model
from brinell.models.preprocess import Preprocess
from brinell.models.probe import make_classifier, make_detector, probe, probe_images
from brinell.perturb.arrays import to_batch

Predict = Callable[[Sequence[Any]], Sequence[Any]]


class _Wrapped:
    """A model of ours: it resizes and normalises images itself."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.metadata: dict[str, Any] = {"id": model.name}
        if model.classes is not None:
            self.metadata["index2label"] = dict(enumerate(model.classes.names))

    def _inputs(self, images: Sequence[Tensor]) -> Tensor:
        return torch.stack([self.model.preprocess.model_input(image) for image in images]).to(self.model.device)


class Classifier(_Wrapped):
    """A classifier of ours as MAITE's: images (C, H, W) of any size, uint8 or floats in [0, 1], to probabilities."""

    def __call__(self, batch_input: Sequence[Any], /) -> list[np.ndarray]:
        """Return each image's probabilities (classes,)."""
        scores = self.model.predict(self._inputs([_to_levels(image) for image in batch_input]))
        return list(scores.cpu().numpy())


class Detector(_Wrapped):
    """A detector of ours as MAITE's: images (C, H, W) of any size to boxes in pixels of the image, labels and scores."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        if model.detector is None:
            raise ModelError(f"{model.name} is a classifier; use Classifier")

    def __call__(self, batch_input: Sequence[Any], /) -> list[Target]:
        """Return what is found in each image, the best first."""
        images = [_to_levels(image) for image in batch_input]
        _, detections = self.model.answer(self._inputs(images))
        assert detections is not None and self.model.detector is not None
        found = self.model.detector.found(detections)
        targets = []
        for image, boxes, labels, scores in zip(images, found.boxes, found.labels, found.scores, strict=True):
            kept = (labels >= 0) & (scores > 0)
            size = (image.shape[1], image.shape[2])
            own = clip_boxes(self.model.preprocess.unmap_boxes(boxes[kept].cpu(), *size), *size)
            targets.append(Target(own.numpy(), labels[kept].cpu().numpy(), scores[kept].cpu().numpy()))
        return targets


def from_classifier(model: Any, *, size: int | tuple[int, int], scale: str = "uint8", channels: int = 3) -> Model:
    """Return an image classifier of MAITE as a model of ours.

    MAITE doesn't say what a model expects: it gets NumPy arrays (C, H, W) of one `size`, as `scale` says: "uint8", or
    "unit" for float32 in [0, 1]. Its outputs are probabilities or logits, one vector per image.
    """
    description, predict = _describe(model, size, scale, channels)

    def forward(images: Tensor) -> Tensor:
        return torch.stack([torch.as_tensor(np.asarray(one), dtype=torch.float32) for one in predict(images)])

    device = torch.device("cpu")
    probed = probe(forward, description, device)
    first = forward(description.preprocess.normalise(probe_images(description.preprocess)))
    facts = {"source": description.source, "runtime": "maite"}
    fingerprint = _fingerprint(model, first.numpy())
    return make_classifier(forward, probed, description, device=device, fingerprint=fingerprint, facts=facts)


def from_detector(
    model: Any, *, size: int | tuple[int, int], scale: str = "uint8", decoding: Mapping[str, Any] | None = None
) -> Model:
    """Return an object detector of MAITE as a model of ours; it needs `index2label` in its metadata.

    `decoding` sets thresholds (see `Decoding`): {"score_threshold": 0.5}. The other arguments are those of
    `from_classifier`.
    """
    description, predict = _describe(model, size, scale, 3)

    def heads(images: Tensor) -> Heads:
        targets = predict(images)
        most = max([1, *(len(np.asarray(one.labels)) for one in targets)])
        boxes, scores = torch.zeros(len(targets), most, 4), torch.zeros(len(targets), most)
        labels = torch.zeros(len(targets), most, dtype=torch.int64)
        for row, one in enumerate(targets):
            count = len(np.asarray(one.labels))
            boxes[row, :count] = torch.as_tensor(np.asarray(one.boxes), dtype=torch.float32).reshape(-1, 4)
            own = torch.as_tensor(np.asarray(one.scores), dtype=torch.float32)
            scores[row, :count] = own.amax(1) if own.ndim == 2 else own
            labels[row, :count] = torch.as_tensor(np.asarray(one.labels), dtype=torch.int64).reshape(-1)
        return Heads(boxes, scores, labels, pixels=True)

    first = heads(description.preprocess.normalise(probe_images(description.preprocess)))
    return make_detector(
        heads,
        Decoding.model_validate(dict(decoding or {})),
        description,
        device=torch.device("cpu"),
        fingerprint=_fingerprint(model, torch.cat([first.boxes.flatten(), first.scores.flatten()]).numpy()),
        facts={"source": description.source, "runtime": "maite"},
    )


def _describe(
    model: Any, size: int | tuple[int, int], scale: str, channels: int
) -> tuple[Description, Callable[[Tensor], Any]]:
    if scale not in ("uint8", "unit"):
        raise ModelError(f"expected the scale uint8 or unit, got {scale!r}")
    height, width = (size, size) if isinstance(size, int) else size
    metadata = getattr(model, "metadata", {})
    by_index = metadata.get("index2label")
    classes = Classes(tuple(str(by_index[index]) for index in sorted(by_index))) if by_index else None
    name = str(metadata.get("id", type(model).__name__))

    def predict(images: Tensor) -> Any:
        """Query the model with images in [0, 1]."""
        arrays = images.cpu().to(torch.float32) if scale == "unit" else (images.cpu() * 255).round().to(torch.uint8)
        return model(list(arrays.numpy()))

    preprocess = Preprocess(height, width, channels)
    return Description(name=name, source=f"maite:{name}", preprocess=preprocess, classes=classes), predict


def _fingerprint(model: Any, answers: np.ndarray) -> str:
    """Return what tells a model from others: its kind, its name, and its answers to plain images."""
    digest = hashlib.blake2b(
        repr((type(model).__qualname__, getattr(model, "metadata", {}).get("id"))).encode(), digest_size=8
    )
    digest.update(np.ascontiguousarray(answers.round(4)).tobytes())
    return digest.hexdigest()


def _to_levels(image: Any) -> Tensor:
    """Return an image (C, H, W), uint8 or floats in [0, 1], in grey levels."""
    given = image if isinstance(image, (Tensor, np.ndarray)) else np.asarray(image)
    return to_batch(given, "CHW").images[0].cpu()
