"""Tries settings on a few images of a dataset, and says which one fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from brinell.checking.settings import as_given, colour_settings, resize_settings, with_boxes
from brinell.checking.trial import Trial, Tried
from brinell.classes import align
from brinell.config.data import DataOptions
from brinell.config.execution import Execution
from brinell.config.model import URLS, ModelOptions
from brinell.engine.truth.masks import read_mask, true_masks
from brinell.errors import BrinellError, DataError, LabelError
from brinell.models.model import Model
from brinell.models.sources import open_model
from brinell.types import Dataset, Sample

CLEARLY = 0.1  # by which a share must be better before another setting is suggested
CLEARLY_SURER = 0.25  # by which confidence must be better where there are no labels
_LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"layout": "nhwc"},
    {"layout": "nchw"},
    {"channels": 1},
    {"channels": 3},
    {"layout": "nhwc", "channels": 1},
    {"layout": "nhwc", "channels": 3},
)


@dataclass(frozen=True)
class CheckResult:
    """What was tried, the given setting first, and the one to use."""

    trial: Trial
    options: ModelOptions
    tried: list[Tried]
    replaced: dict[str, Any]  # options that the model can't be run with as given
    best: Tried

    @property
    def model(self) -> Model:
        """The model, as it was opened."""
        return self.trial.model

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
    options, model, replaced = _open(options, execution)
    samples, indices = _read(dataset, limit)
    labels = _labels(samples, dataset, model)
    trial = Trial(model, samples, labels, _objects(samples, dataset, model), _masks(indices, dataset, model))
    tried = [trial.run(as_given(model, replaced))]
    best = tried[0]
    for stage in (colour_settings, resize_settings) if model.service is None else ():
        found = trial.run_all(with_boxes(model, best.setting, stage(model, best.setting)))
        tried += found
        best = _better(best, found)
    return CheckResult(trial, options, tried, replaced, best)


def _open(options: ModelOptions, execution: Execution) -> tuple[ModelOptions, Model, dict[str, Any]]:
    """Open a model; an ONNX file that can't be run as given is opened with other layouts, too."""
    first: BrinellError | None = None
    for layout in _LAYOUTS if options.source.startswith("onnx:") else _LAYOUTS[:1]:
        changed = ModelOptions.model_validate({**options.model_dump(exclude_unset=True), **layout})
        try:
            return changed, open_model(changed, execution), layout
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


def _read(dataset: Dataset, limit: int) -> tuple[list[Sample], list[int]]:
    """Return readable samples from all over a dataset, which may be sorted by class, and their indices."""
    count = min(limit, len(dataset))
    found, indices = [], []
    for index in (place * len(dataset) // count for place in range(count)):
        try:
            found.append(dataset[index])
        except DataError:
            continue
        indices.append(index)
    if not found:
        raise DataError(f"{dataset.name} has no image that can be read")
    return found, indices


def _labels(samples: Sequence[Sample], dataset: Dataset, model: Model) -> list[int | None]:
    """Return the labels as the model's outputs; None where there is none."""
    known = {sample.label for sample in samples if sample.label is not None}
    found = align(known, own=dataset.classes, model=model.classes, outputs=model.outputs)
    return [None if sample.label is None else found[sample.label] for sample in samples]


def _masks(indices: Sequence[int], dataset: Dataset, model: Model) -> list[Tensor | None]:
    """Return the true masks of images as a segmenter's outputs; none for other models."""
    if model.segmenter is None:
        return []
    truth = true_masks(dataset, DataOptions(source="given"), model)
    assert truth is not None
    raw = [read_mask(dataset, index) for index in indices]
    return [None if mask is None else truth.outputs[mask.long()] for mask in raw]


def _objects(samples: Sequence[Sample], dataset: Dataset, model: Model) -> list[list[int]]:
    """Return the classes of the objects of each image as the model's outputs; -1: the model doesn't know it."""

    def output(label: int | str) -> int:
        try:
            return align([label], own=dataset.classes, model=model.classes, outputs=model.outputs)[label]
        except LabelError:
            return -1

    known = {label: output(label) for sample in samples for label in sample.box_labels}
    return [[known[label] for label in sample.box_labels] for sample in samples]


def _ordered(options: ModelOptions) -> list[str]:
    return [key for key in type(options).model_fields if key in options.chosen()]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{each:g}" for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
