"""A model queried about a few images with a setting, and how well it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from brinell.boxes import Detections, box_iou
from brinell.checking.settings import Setting
from brinell.errors import BrinellError
from brinell.masks import IGNORED, overlap
from brinell.models.decoding_check import read_boxes, write_boxes
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.types import Sample

SAME_OBJECT = 0.5  # IoU
_BATCH = 16


@dataclass(frozen=True)
class Tried:
    """A setting and how well a model does with it.

    `right` is the share of images that it gets right, for a detector the F1 score of its boxes, for a segmenter its mean
    IoU; None without labels. `likelihood` is the mean probability of the labels, which tells equal shares apart. A
    segmenter has no `confidence` (NaN).
    """

    setting: Setting
    right: float | None
    confidence: float
    likelihood: float
    scores: Tensor
    detections: Detections | None = None
    masks: Tensor | None = None  # a segmenter's, int16 (N, H, W)

    @property
    def rank(self) -> tuple[float, float]:
        """What the best setting is best by."""
        return (self.confidence, 0.0) if self.right is None else (self.right, self.likelihood)


@dataclass(frozen=True)
class Trial:
    """A model and the images that settings are tried on.

    `labels` and `objects` are as the model's outputs; `masks` are true masks (H, W), one per image, or empty.
    """

    model: Model
    samples: list[Sample]
    labels: list[int | None]
    objects: list[list[int]]
    masks: list[Tensor | None] = field(default_factory=list)
    _last: dict[Preprocess, _Answers] = field(default_factory=dict)  # boxes are read in several ways from one query

    def run_all(self, settings: Iterable[Setting]) -> list[Tried]:
        """Try settings; those that a model can't be run with are left out."""
        found = []
        for setting in settings:
            try:
                found.append(self.run(setting))
            except BrinellError:
                continue
        return found

    def run(self, setting: Setting) -> Tried:
        """Query the model about all images with a setting."""
        answers = self._query(setting.preprocess)
        scores, confidence = answers.scores, float(answers.scores.amax(1).mean())
        if answers.masks is not None:
            right, pixels = self._overlap(answers.masks, setting)
            return Tried(setting, right, math.nan, pixels, scores, masks=answers.masks)
        if answers.detections is not None:
            detections = self._read_boxes(answers.detections, setting)
            return Tried(setting, self._f1(detections, setting), confidence, confidence, scores, detections)
        places = [place for place, label in enumerate(self.labels) if label is not None]
        if not places:
            return Tried(setting, None, confidence, confidence, scores)
        labels = torch.tensor([self.labels[place] for place in places])
        of_labels = scores[places].gather(1, labels[:, None]).mean()
        right = float((scores[places].argmax(1) == labels).to(torch.float32).mean())
        return Tried(setting, right, confidence, float(of_labels), scores)

    def true_masks(self, preprocess: Preprocess) -> Tensor | None:
        """Return the true masks on the model input, int16 (N, H, W); None if no image has one."""
        if all(mask is None for mask in self.masks):
            return None
        empty = torch.full((preprocess.height, preprocess.width), IGNORED, dtype=torch.int16)
        return torch.stack([empty if mask is None else preprocess.masks(mask[None])[0] for mask in self.masks])

    def _query(self, preprocess: Preprocess) -> _Answers:
        if preprocess not in self._last:
            self._last.clear()
            model = replace(self.model, preprocess=preprocess)
            inputs = torch.stack([preprocess.model_input(sample.image) for sample in self.samples])
            self._last[preprocess] = _ask(model, inputs)
        return self._last[preprocess]

    def _overlap(self, masks: Tensor, setting: Setting) -> tuple[float | None, float]:
        """Return a segmenter's mean IoU, None without true masks, and the share of pixels that are right."""
        true = self.true_masks(setting.preprocess)
        if true is None:
            return None, 0.0
        counted = true >= 0
        pixels = float(((masks == true) & counted).sum() / counted.sum().clamp(min=1))
        return float(overlap(masks, true, masks, self.model.outputs).iou.nanmean()), pixels

    def _read_boxes(self, detections: Detections, setting: Setting) -> Detections:
        """Return detections with their boxes read in a setting's format and units."""
        assert self.model.detector is not None
        if setting.boxes is None:
            return detections
        decoding, size = self.model.detector.decoding, (setting.preprocess.height, setting.preprocess.width)
        raw = write_boxes(detections.boxes.flatten(0, 1), decoding.box_format, decoding.box_units, size)
        return replace(detections, boxes=read_boxes(raw, *setting.boxes, size).view_as(detections.boxes))

    def _f1(self, detections: Detections, setting: Setting) -> float | None:
        """Return the F1 score of what was found; without annotated boxes, None."""
        assert self.model.detector is not None
        found = self.model.detector.found(detections)
        hits = truths = boxes = 0
        for place, (sample, classes) in enumerate(zip(self.samples, self.objects, strict=True)):
            if sample.boxes is None:
                continue
            truth = setting.preprocess.map_boxes(sample.boxes, *sample.image.shape[1:])
            labels = torch.tensor(classes, dtype=torch.int64)
            same = found.labels[place][:, None] == labels
            overlap = (box_iou(found.boxes[place], truth) >= SAME_OBJECT) & same & (labels >= 0)
            hits += int(overlap.any(0).sum())
            truths += int((labels >= 0).sum())
            boxes += int((found.labels[place] >= 0).sum())
        return 2 * hits / (truths + boxes) if truths else None


@dataclass(frozen=True)
class _Answers:
    """What a model says about images, on the host."""

    scores: Tensor
    detections: Detections | None = None
    masks: Tensor | None = None


def _ask(model: Model, inputs: Tensor) -> _Answers:
    batches = [part.to(model.device) for part in torch.split(inputs, _BATCH)]
    if model.segmenter is not None:
        masks = torch.cat([model.segment(part) for part in batches])
        return _Answers(model.pixel_shares(masks).cpu().nan_to_num(0), masks=masks.cpu())
    parts = [model.answer(part) for part in batches]
    scores = torch.cat([part[0] for part in parts]).cpu().nan_to_num(0)
    found = [part[1] for part in parts if part[1] is not None]
    return _Answers(scores, _join(found) if model.detector is not None else None)


def _join(parts: Sequence[Detections]) -> Detections:
    """Return the detections of several batches as one, on the host."""
    take: Callable[[str], Tensor] = lambda name: torch.cat([getattr(part, name) for part in parts]).cpu()  # noqa: E731
    return Detections(take("boxes"), take("labels"), take("scores"))
