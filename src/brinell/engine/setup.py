"""From a config to what runs: models and data opened, and one job per lens and model."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from brinell.config.lens import LensOptions
from brinell.config.model import ModelOptions
from brinell.criteria.criterion import Criterion, find_criterion
from brinell.datasets.objects import ObjectRule, object_rule
from brinell.datasets.sources import open_dataset
from brinell.engine.reading_ahead.ahead import ReadAhead, start_reading
from brinell.engine.reading_ahead.processes import ImageProcesses
from brinell.engine.shards import Entry
from brinell.engine.survey import select_indices
from brinell.engine.threads import torch_alone
from brinell.engine.truth.masks import has_masks
from brinell.errors import BrinellError, ConfigError, LabelError
from brinell.lenses.lens import LENSES, Lens
from brinell.lenses.method import Method, Size
from brinell.models.compile_choice import expecting
from brinell.models.device import wake
from brinell.models.model import Model
from brinell.models.sources import check_model, open_model
from brinell.perturb.change import Change
from brinell.run_config import RunConfig
from brinell.runs.store import Store
from brinell.types import Dataset

LOG = logging.getLogger(__name__)
TYPICAL = (224, 224)  # height and width of images and model inputs, where they are not known yet
NO_GRADIENTS = "the model has no gradients"
NO_LABELS = (
    "the images of {} have no labels; add labels, or use the model's predictions on the clean images with "
    "--labels prediction"
)
NO_MASKS = (
    "the images of {} have no masks, which segmenters need; give a folder with images/ and masks/ (docs/data.md), or use "
    "the model's answers to the clean images with --labels prediction"
)


@dataclass(frozen=True)
class RunSetup:
    """A config with the models and the dataset that it names; `ahead` are its images, if they are being read already."""

    config: RunConfig
    models: tuple[Model, ...]
    dataset: Dataset
    ahead: ReadAhead | None = None

    def close(self) -> None:
        """Stop reading ahead, if the run has not asked for the images."""
        if self.ahead is not None:
            self.ahead.close()


@dataclass(frozen=True)
class Job:
    """One lens with one model: the changes that the model supports, and those that it doesn't, with the reason."""

    lens: Lens
    options: LensOptions
    model: Model
    changes: tuple[Change, ...]
    unsupported: dict[str, str]

    @cached_property
    def method(self) -> Method[Any]:
        """How the lens measures."""
        return self.lens.method

    @property
    def model_input(self) -> Size:
        """Height and width of the model input."""
        return self.model.preprocess.height, self.model.preprocess.width

    @property
    def unit(self) -> str:
        """What progress counts."""
        return "windows" if self.method.by_window else "images"

    def criterion(self) -> Criterion:
        """Return what counts as broken."""
        return criterion_of(self.options.criterion, self.model)

    def trials(self, change: Change, entries: Sequence[Entry]) -> int:
        """Return the most trials that images can take."""
        sizes = Counter(entry.size for entry in entries)
        return sum(
            count * self.method.trials(self.options, change, size, self.model_input) for size, count in sizes.items()
        )


def assemble(
    config: RunConfig,
    models: Sequence[Model | None] | None = None,
    dataset: Any = None,
    *,
    read_ahead: bool = False,
    processes: ImageProcesses | None = None,
) -> RunSetup:
    """Open what a config names; objects that are given replace names. Models, which take longest, come last.

    With `read_ahead`, images are read meanwhile where that pays off, by `processes` if they have been started; the setup is
    for a run then, and has to be closed.
    """
    wake(config.execution)
    given = [None] * len(config.models) if models is None else models
    for options in config.lenses:
        list(LENSES[options.name].method.changes(options))  # raises if an operator doesn't exist
    data = open_dataset(config.data if dataset is None else dataset)
    # segmenters need masks instead, see below, and embedders without a gallery nothing
    other = all(named.task == "segmentation" or _compares_vectors(named) for named in config.models)
    if config.data.labels != "prediction" and getattr(data, "unlabelled", False) and not other:
        raise LabelError(NO_LABELS.format(data.name))
    for one, named in zip(given, config.models, strict=True):
        if one is None:
            check_model(named)
    indices = select_indices(data, config.data, config.seed)
    ahead = start_reading(data, indices, config.execution, processes) if read_ahead else None
    try:
        if ahead is not None and given[0] is not None:
            ahead.begin(given[0].preprocess)
        opened = [
            _open_model(named, config, len(indices), ahead) if one is None else one
            for one, named in zip(given, config.models, strict=True)
        ]
    except BaseException:
        if ahead is not None:
            ahead.close()
        raise
    return RunSetup(config, tuple(opened), data, ahead)


def _compares_vectors(options: ModelOptions) -> bool:
    return options.task == "embedding" and options.gallery is None


def _open_model(options: ModelOptions, config: RunConfig, images: int, ahead: ReadAhead | None) -> Model:
    LOG.info("Loading %s …", options.label)
    begin = None if ahead is None else ahead.begin
    # a few images need one core alone; several would share each operation, and wait for those that do other work
    with expecting(rough_passes(config, images), _runtime_before(options, config), begin), torch_alone():
        model = open_model(options, config.execution)
    if begin is not None:  # not every kind of model says earlier how its inputs are made
        begin(model.preprocess)
    return model


def rough_passes(config: RunConfig, images: int) -> int:
    """Return about how many forward passes a model makes in a run, before its size and those of the images are known."""
    each = sum(
        LENSES[options.name].method.trials(options, change, TYPICAL, TYPICAL)
        for options in config.lenses
        for change in LENSES[options.name].method.changes(options)
    )
    share = 1.0 if config.budget is None or config.budget.share is None else config.budget.share
    return round(images * (1 + each * share))


def _runtime_before(options: ModelOptions, config: RunConfig) -> str | None:
    """Return the runtime that the run in the folder has used for a model; None if there is none, or if one is given."""
    store = Store(config.folder())
    if config.execution.runtime != "auto" or not store.exists("manifest.json"):
        return None
    with suppress(BrinellError):
        runtime: str | None = store.manifest().get("models", {}).get(options.label, {}).get("runtime")
        return runtime
    return None


def jobs_of(setup: RunSetup) -> list[Job]:
    """Return every lens with every model. Unsupported changes are skipped, or refused if requested by name."""
    jobs = []
    for options in setup.config.lenses:
        lens = LENSES[options.name]
        changes = list(lens.method.changes(options))
        for model in setup.models:
            if (reason := lens.method.refuses.get(model.task)) is not None:
                raise ConfigError(f"the {lens.name} lens can't measure model {model.name}: {reason}")
            criterion = criterion_of(options.criterion, model)
            _check_criterion(criterion, model)
            if criterion.clean and setup.config.data.labels != "prediction":
                raise ConfigError(
                    f"criterion {criterion.name} compares with the answer to the clean image; add --labels prediction"
                )
            refused = [change for change in changes if change.white_box and model.differentiable is None]
            requested = [change for change in refused if options.requests(change.name)]
            if requested:
                kind = "a detector" if model.detector is not None else "not a torch model"
                raise ConfigError(
                    f"{requested[0].id} needs gradients, and model {model.name} has none (it is {kind}); "
                    f"{options.without_gradients}"
                )
            reasons = {change.id: NO_GRADIENTS for change in refused}
            supported = tuple(change for change in changes if change.id not in reasons)
            jobs.append(Job(lens, options, model, supported, reasons))
    return jobs


def required_truth(setup: RunSetup) -> tuple[ObjectRule | None, bool]:
    """Return which object gives an image its label, if labels are of objects, and whether images need masks."""
    tasks, own = {model.task for model in setup.models}, setup.config.data.labels == "prediction"
    masks = "segmentation" in tasks and not own
    if masks and not has_masks(setup.dataset):
        raise LabelError(NO_MASKS.format(setup.dataset.name))
    return object_rule(setup.config.data, "detection" in tasks), masks


def criterion_of(text: str, model: Model) -> Criterion:
    """Return a criterion for a model's classes."""
    return find_criterion(text, model.classes, model.outputs, task=model.task)


def _check_criterion(criterion: Criterion, model: Model) -> None:
    if criterion.detections and model.detector is None:
        raise ConfigError(
            f"criterion {criterion.name} needs a detector, but model {model.name} is a classifier; choose another one "
            "(brinell ls criteria), or declare a detector with task=detection"
        )
    if criterion.masks and model.segmenter is None:
        raise ConfigError(
            f"criterion {criterion.name} needs a segmenter, but model {model.name} is none; choose another one "
            "(brinell ls criteria), or declare a segmenter with task=segmentation"
        )
    if criterion.embeddings and model.embedder is None:
        raise ConfigError(
            f"criterion {criterion.name} needs an embedder, but model {model.name} is none; choose another one "
            "(brinell ls criteria), or declare an embedder with task=embedding"
        )
    if criterion.scores and not model.scores:
        raise ConfigError(
            f"criterion {criterion.name} needs scores, but model {model.name} returns labels alone; use misclassification, "
            "or map its scores"
        )
