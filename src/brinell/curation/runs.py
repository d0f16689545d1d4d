"""The runs that failures come from: their rows in one connection, and their data and models, opened again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
import torch
from torch import Tensor

from brinell.config.data import DataOptions
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.datasets.sources import open_dataset
from brinell.engine.clean import readable
from brinell.engine.shards import Entry
from brinell.engine.survey import box_labels_of, labels_of
from brinell.engine.truth.masks import true_masks
from brinell.errors import BrinellError, ConfigError, DataError, RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import Failures
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_stored_model
from brinell.perturb.change import Change
from brinell.runs.run import ModelRecord, Run
from brinell.types import Dataset, Label


@dataclass(frozen=True)
class Original:
    """What a run knows about one of its images."""

    entry: Entry
    label: Label | None
    height: int
    width: int
    boxes: list[list[float]] | None
    box_labels: list[Label]
    preferred: int | None


@dataclass(frozen=True)
class CleanAnswer:
    """A model's answer to a clean image, its confidence, and the box of the labelled object."""

    prediction: int
    confidence: float | None
    region: list[float] | None


@dataclass(frozen=True)
class RunModel:
    """A model of a run. `name` is unique among all runs; `own` is its name in the rows; `run` is the run's number."""

    name: str
    own: str
    run: int
    fingerprint: str
    preprocess: Preprocess
    classes: tuple[str, ...] | None

    @property
    def model_input(self) -> Preprocess:
        """How images get their size. Models that share it see the same pixels."""
        return replace(self.preprocess, mean=(0.0,), std=(1.0,))

    def class_name(self, index: int | None) -> str | None:
        """Return the name of an output; None if classes have no names, or a detector found nothing."""
        if index is None or self.classes is None or not 0 <= index < len(self.classes):
            return None
        return self.classes[index]


@dataclass(frozen=True, eq=False)
class SourceRun:
    """A run that failures come from. `data` replaces its dataset if that moved or was an object."""

    number: int
    run: Run
    data: Any = None

    @property
    def url(self) -> str:
        """Folder or URL of the run."""
        return self.run.folder

    @property
    def config(self) -> dict[str, Any]:
        """The config as it was given, with paths."""
        return self.run.source

    @property
    def seed(self) -> int:
        """Seed of the random draws."""
        return self.run.seed

    def options(self, lens: str) -> dict[str, Any]:
        """Return a lens's options, with the paths that were given."""
        return next(options for options in self.config["lenses"] if options["name"] == lens)

    def change(self, lens: str, operator: str, preprocess: Preprocess) -> Change:
        """Return the change with this operator id, for a model's inputs, in whole grey levels: as it is written."""
        return self._measured_change(lens, operator, preprocess).rounded()

    def has_answers(self, lens: str, operator: str, preprocess: Preprocess) -> bool:
        """Whether rows have the answers to the very images that are written."""
        failures = failures_of(lens)
        return failures is not None and failures.answers and self._measured_change(lens, operator, preprocess).whole

    def _measured_change(self, lens: str, operator: str, preprocess: Preprocess) -> Change:
        """Return the change as the model saw it."""
        known = lens, operator, preprocess.height, preprocess.width
        if known not in self._changes:
            options = LENSES[lens].options.model_validate(self.options(lens))
            self._changes[known] = LENSES[lens].method.replay(options, operator, known[2:])
        return self._changes[known]

    @cached_property
    def _changes(self) -> dict[tuple[str, str, int, int], Change]:
        return {}

    @cached_property
    def dataset(self) -> Dataset:
        """The run's dataset, opened again."""
        options = DataOptions(**self.config["data"])
        if self.data is not None and not isinstance(self.data, str):
            return open_dataset(self.data)
        if self.data is None and options.source.startswith("object:"):
            raise ConfigError(
                f"the data of {self.url} was a Python object; pass it again from Python (data=…), or give the same images "
                "with --data PATH"
            )
        with self.explain_missing_images():
            return open_dataset(options.model_copy(update={} if self.data is None else {"source": self.data}))

    @contextmanager
    def explain_missing_images(self) -> Iterator[None]:
        """Raise an error that says what to do if images can't be read."""
        try:
            yield
        except DataError as error:
            problem = str(error).partition(";")[0]
            raise RunError(
                f"the images of {self.url} have changed: {problem}; restore them, or give their new location with --data"
            ) from error

    @cached_property
    def samples(self) -> pa.Table:
        """The table of images."""
        return self.run.store.table("samples")

    @cached_property
    def originals(self) -> dict[str, Original]:
        """Readable images by id; of equal images, the first."""
        columns = (self.samples[name].to_pylist() for name in ("height", "width", "boxes", "object", "problem"))
        facts = zip(labels_of(self.samples), box_labels_of(self.samples), *columns, strict=True)
        usable = [fact[:-1] for fact in facts if fact[-1] is None]
        found: dict[str, Original] = {}
        for entry, (label, box_labels, height, width, boxes, preferred) in zip(readable(self.samples), usable, strict=True):
            found.setdefault(entry.image, Original(entry, label, height, width, boxes, box_labels, preferred))
        return found

    @cached_property
    def clean(self) -> dict[tuple[str, int], CleanAnswer]:
        """Answers to the clean images, by model name and index in the dataset."""
        table = self.run.store.table("clean")
        columns = (table[name].to_pylist() for name in ("model", "index", "prediction", "confidence", "region"))
        return {(model, index): CleanAnswer(*answer) for model, index, *answer in zip(*columns, strict=True)}


def failures_of(lens: str) -> Failures | None:
    """Return how a lens's failures are read; None if it has none."""
    return LENSES[lens].reader.failures


def source_runs(runs: Sequence[Run], data: Any) -> list[SourceRun]:
    """Return the runs as sources of failures; raise if one is not finished."""
    return [SourceRun(number, run.require_finished(), data) for number, run in enumerate(runs)]


def list_models(sources: Sequence[SourceRun]) -> list[RunModel]:
    """Return all models of all runs. Different models of the same name are named after their runs, too."""
    prints: dict[str, set[str]] = {}
    for source in sources:
        for own, record in source.run.models.items():
            prints.setdefault(own, set()).add(record.fingerprint)
    found = []
    for source in sources:
        for own, record in source.run.models.items():
            name = own if len(prints[own]) == 1 else f"{own} of {source.url.rstrip('/').rpartition('/')[2]}"
            preprocess = preprocess_of(record)
            found.append(RunModel(name, own, source.number, record.fingerprint, preprocess, record.classes))
    return found


def preprocess_of(record: ModelRecord) -> Preprocess:
    """Return how a run's model gets its inputs, from what the manifest stores."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in record.preprocess.items()
    }
    return Preprocess(**fields)


@dataclass(frozen=True)
class ModelOpener:
    """Opens models of runs; those that are `given` as objects need not be opened."""

    given: Sequence[Model]
    execution: Execution

    def open(self, known: RunModel, source: SourceRun, reason: str) -> Model:
        """Return a run's model; raise an error that gives the `reason` if it can't be opened or has changed."""
        model = next((one for one in self.given if one.name == known.own), None)
        if model is None:
            every = map(ModelOptions.model_validate, source.config["models"])
            options = next(one for one in every if one.label == known.own)
            precision = source.run.config["precision"]
            try:
                execution = self.execution.model_copy(update={"precision": precision})
                model = open_stored_model(options, execution, file=source.run.store.place("manifest.json"))
            except BrinellError as error:
                raise ConfigError(f"{reason}, and model {known.own} can't be opened: {error}") from error
        if model.fingerprint != known.fingerprint:
            raise ConfigError(f"{reason}, and model {known.own} differs from the one of {source.url}; restore it")
        return model


def connect(sources: Sequence[SourceRun]) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables rows_N and clean_N of each run N."""
    connection = duckdb.connect()
    for source in sources:
        connection.register(f"rows_{source.number}", source.run.store.rows())
        connection.register("clean", source.run.store.table("clean"))
        connection.register("samples", source.samples)
        connection.execute(
            f"create temp table clean_{source.number} as "
            "select model, image, correct, height, width from clean join samples using (index)"
        )
    return connection


def true_masks_of(source: SourceRun, model: Model, entries: Sequence[Entry], pool: ThreadPoolExecutor) -> Tensor | None:
    """Return the masks of a segmenter's images; None for other models, or if its own answers count as true."""
    options = DataOptions.model_validate(source.config["data"])
    masks = true_masks(source.dataset, options, model)
    return None if masks is None else masks.load(entries, pool)


def regions_of(source: SourceRun, model: str, entries: Sequence[Entry]) -> Tensor:
    """Return the boxes of a detector's labelled objects, (N, 4), NaN where unknown."""
    return torch.tensor([source.clean[model, entry.index].region or [torch.nan] * 4 for entry in entries])
