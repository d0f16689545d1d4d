"""Tries settings on a few images of a dataset, and says which one fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from brinell.boxes import Detections, box_iou
from brinell.checking.settings import Setting, as_given, box_settings, colour_settings, resize_settings
from brinell.classes import align
from brinell.config.execution import Execution
from brinell.config.model import URLS, ModelOptions
from brinell.errors import BrinellError, ConfigError, DataError, LabelError
from brinell.models.decoding_check import read_boxes, write_boxes
from brinell.models.model import Model
from brinell.models.sources import open_model
from brinell.types import Dataset, Sample

SAME_OBJECT = 0.5  # IoU
CLEARLY = 0.1  # by which a share must be better before another setting is suggested
CLEARLY_SURER = 0.25  # by which confidence must be better where there are no labels
_LAYOUTS: tuple[dict[str, Any], ...] = ({}, {"layout": "nhwc"}, {"channels": 1}, {"layout": "nhwc", "channels": 1})
_BATCH = 16


@dataclass(frozen=True)
class Tried:
    """A setting and how well a model does with it.

    `right` is the share of images that it gets right, for a detector the F1 score of its boxes; None without labels.
    `likelihood` is the mean probability of the labels, which tells equal shares apart.
    """

    setting: Setting
    right: float | None
    confidence: float
    likelihood: float
    scores: Tensor
    detections: Detections | None

    @property
    def rank(self) -> tuple[float, float]:
        """What the best setting is best by."""
        return (self.confidence, 0.0) if self.right is None else (self.right, self.likelihood)


@dataclass(frozen=True)
class CheckResult:
    """What was tried, the given setting first, and the one to use."""

    model: Model
    options: ModelOptions
    samples: list[Sample]
    labels: list[int | None]
    tried: list[Tried]
    best: Tried

    @property
    def given(self) -> Tried:
        """The setting of the model string."""
        return self.tried[0]

    @property
    def source(self) -> str:
        """The model string to use."""
        given = {key: _text(getattr(self.options, key)) for key in _ordered(self.options)}
        if "resize" in self.best.setting.options:
            given.pop("short_side", None)
        pairs = given | self.best.setting.options
        mark = "#" if self.options.source.startswith(URLS) else "?"
        return self.options.source + (mark + "&".join(f"{key}={value}" for key, value in pairs.items()) if pairs else "")


def check(options: ModelOptions, dataset: Dataset, execution: Execution, limit: int) -> CheckResult:
    """Try the usual settings on images from all over a dataset. A service is queried with the given setting alone."""
    options, model = _open(options, execution)
    if model.segmenter is not None:
        raise ConfigError(f"brinell check tries settings of classifiers and detectors, and {model.name} is a segmenter")
    samples = _read(dataset, limit)
    labels = _labels(samples, dataset, model)
    trial = _Trial(model, samples, labels, _objects(samples, dataset, model))
    tried = [trial.run(as_given(model))]
    best = tried[0]
    stages = (
        (colour_settings, resize_settings) if model.detector is None else (colour_settings, resize_settings, box_settings)
    )
    for stage in stages if model.service is None else ():
        found = trial.run_all(stage(model, best.setting))
        tried += found
        best = _better(best, found)
    return CheckResult(model, options, samples, labels, tried, best)


def _open(options: ModelOptions, execution: Execution) -> tuple[ModelOptions, Model]:
    """Open a model; an ONNX file that says nothing about its input is opened with other layouts, too."""
    first: BrinellError | None = None
    for layout in _LAYOUTS if options.source.startswith("onnx:") else _LAYOUTS[:1]:
        if layout.keys() & options.model_fields_set:
            continue
        changed = options.model_copy(update=layout)
        try:
            return ModelOptions.model_validate({**options.model_dump(exclude_unset=True), **layout}), open_model(
                changed, execution
            )
        except BrinellError as error:
            first = first or error
    assert first is not None
    raise first


def _better(base: Tried, tried: Sequence[Tried]) -> Tried:
    """Return the best setting if it is clearly better than another one, else that one."""
    best = max(tried, key=lambda each: each.rank, default=base)
    if base.right is None or best.right is None:
        return best if best.confidence > base.confidence + CLEARLY_SURER else base
    return best if best.right >= base.right + CLEARLY else base


def _read(dataset: Dataset, limit: int) -> list[Sample]:
    """Return readable samples from all over a dataset, which may be sorted by class."""
    count = min(limit, len(dataset))
    found = []
    for place in range(count):
        try:
            found.append(dataset[place * len(dataset) // count])
        except DataError:
            continue
    if not found:
        raise DataError(f"{dataset.name} has no image that can be read")
    return found


def _labels(samples: Sequence[Sample], dataset: Dataset, model: Model) -> list[int | None]:
    """Return the labels as the model's outputs; None where there is none."""
    known = {sample.label for sample in samples if sample.label is not None}
    found = align(known, own=dataset.classes, model=model.classes, outputs=model.outputs)
    return [None if sample.label is None else found[sample.label] for sample in samples]


def _objects(samples: Sequence[Sample], dataset: Dataset, model: Model) -> list[list[int]]:
    """Return the classes of the objects of each image as the model's outputs; -1: the model doesn't know it."""

    def output(label: int | str) -> int:
        try:
            return align([label], own=dataset.classes, model=model.classes, outputs=model.outputs)[label]
        except LabelError:
            return -1

    known = {label: output(label) for sample in samples for label in sample.box_labels}
    return [[known[label] for label in sample.box_labels] for sample in samples]


@dataclass(frozen=True)
class _Trial:
    """A model and the images that settings are tried on."""

    model: Model
    samples: list[Sample]
    labels: list[int | None]
    objects: list[list[int]]

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
        model = replace(self.model, preprocess=setting.preprocess)
        inputs = torch.stack([setting.preprocess.model_input(sample.image) for sample in self.samples])
        parts = [model.answer(part.to(model.device)) for part in torch.split(inputs, _BATCH)]
        scores = torch.cat([part[0] for part in parts]).cpu().nan_to_num(0)
        confidence = float(scores.amax(1).mean())
        if model.detector is not None:
            detections = self._read_boxes(_join([part[1] for part in parts if part[1] is not None]), setting)
            right = self._f1(detections, setting)
            return Tried(setting, right, confidence, confidence, scores, detections)
        places = [place for place, label in enumerate(self.labels) if label is not None]
        if not places:
            return Tried(setting, None, confidence, confidence, scores, None)
        labels = torch.tensor([self.labels[place] for place in places])
        of_labels = scores[places].gather(1, labels[:, None]).mean()
        right = float((scores[places].argmax(1) == labels).to(torch.float32).mean())
        return Tried(setting, right, confidence, float(of_labels), scores, None)

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


def _join(parts: Sequence[Detections]) -> Detections:
    """Return the detections of several batches as one, on the host."""
    take: Callable[[str], Tensor] = lambda name: torch.cat([getattr(part, name) for part in parts]).cpu()  # noqa: E731
    return Detections(take("boxes"), take("labels"), take("scores"))


def _ordered(options: ModelOptions) -> list[str]:
    return [key for key in type(options).model_fields if key in options.chosen()]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{each:g}" for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
