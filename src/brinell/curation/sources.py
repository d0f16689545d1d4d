"""The runs that failures are taken from: their rows in one connection, their data and their models opened again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from brinell.errors import BrinellError, ConfigError, DataError, RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import Failures
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from brinell.perturb.change import Change
from brinell.runs.run import ModelRecord, Run
from brinell.types import Dataset, Label


@dataclass(frozen=True)
class Original:
    """What a run knows of one of its images."""

    entry: Entry
    label: Label | None
    height: int
    width: int
    boxes: list[list[float]] | None
    box_labels: list[Label]
    preferred: int | None


@dataclass(frozen=True)
class Clean:
    """A model's answer on a clean image, how sure it was, and where the object is that the label is of."""

    prediction: int
    confidence: float | None
    region: list[float] | None


@dataclass(frozen=True)
class Asked:
    """One of a run's models. `name` tells it from all others, `own` is what its rows call it; those that get the same
    pixels for an image share a `model_input`.
    """

    name: str
    own: str
    source: int
    fingerprint: str
    preprocess: Preprocess
    classes: tuple[str, ...] | None

    @property
    def model_input(self) -> Preprocess:
        """How images get their size, whatever is done to them after that."""
        return replace(self.preprocess, mean=(0.0,), std=(1.0,))

    def class_name(self, index: int | None) -> str | None:
        """The name of an output; None where the classes have none, and for a detector that finds nothing."""
        known = index is not None and self.classes is not None and 0 <= index < len(self.classes)
        return self.classes[index] if known and self.classes is not None and index is not None else None


@dataclass(frozen=True, eq=False)
class Source:
    """One run. `data` stands for its dataset where that lies elsewhere now, or is an object."""

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
        """Names the random draws."""
        return self.run.seed

    def options(self, lens: str) -> dict[str, Any]:
        """Return a lens's options, with the paths that were given."""
        return next(options for options in self.config["lenses"] if options["name"] == lens)

    def change(self, lens: str, operator: str, preprocess: Preprocess) -> Change:
        """Return the change that an operator's id names, for a model's inputs."""
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
        """Its data, opened again."""
        options = DataOptions(**self.config["data"])
        if self.data is not None and not isinstance(self.data, str):
            return open_dataset(self.data)
        if self.data is None and options.source.startswith("object:"):
            raise ConfigError(f"the data of {self.url} was a Python object; give it again with data=…, or --data PATH")
        with self.found():
            return open_dataset(options.model_copy(update={} if self.data is None else {"source": self.data}))

    @contextmanager
    def found(self) -> Iterator[None]:
        """Say of data that can't be read what to do about it."""
        try:
            yield
        except DataError as error:
            told = str(error).partition(";")[0]
            raise RunError(
                f"the images of {self.url} are not what they were: {told}; restore them, or say where they lie now "
                "with --data"
            ) from error

    @cached_property
    def samples(self) -> pa.Table:
        """Its table of images."""
        return self.run.store.table("samples")

    @cached_property
    def originals(self) -> dict[str, Original]:
        """Its readable images by their ids, the first of equal ones."""
        columns = (self.samples[name].to_pylist() for name in ("height", "width", "boxes", "object", "problem"))
        facts = zip(labels_of(self.samples), box_labels_of(self.samples), *columns, strict=True)
        usable = [fact[:-1] for fact in facts if fact[-1] is None]
        found: dict[str, Original] = {}
        for entry, (label, box_labels, height, width, boxes, place) in zip(readable(self.samples), usable, strict=True):
            found.setdefault(entry.image, Original(entry, label, height, width, boxes, box_labels, place))
        return found

    @cached_property
    def clean(self) -> dict[tuple[str, int], Clean]:
        """What models said to the clean images, by their names and places in the dataset."""
        table = self.run.store.table("clean")
        columns = (table[name].to_pylist() for name in ("model", "index", "prediction", "confidence", "region"))
        return {(model, index): Clean(*told) for model, index, *told in zip(*columns, strict=True)}


def failures_of(lens: str) -> Failures | None:
    """Return how a lens's failures are read; None if it has none."""
    return LENSES[lens].reader.failures


def sources_of(runs: Sequence[Run], data: Any) -> list[Source]:
    """Return the runs, which must be finished."""
    return [Source(number, run.require_finished(), data) for number, run in enumerate(runs)]


def models_of(sources: Sequence[Source]) -> list[Asked]:
    """All models of all runs. Models of one name that differ are told apart by their runs."""
    prints: dict[str, set[str]] = {}
    for source in sources:
        for own, record in source.run.models.items():
            prints.setdefault(own, set()).add(record.fingerprint)
    found = []
    for source in sources:
        for own, record in source.run.models.items():
            name = own if len(prints[own]) == 1 else f"{own} of {source.url.rstrip('/').rpartition('/')[2]}"
            preprocess = preprocess_of(record)
            found.append(Asked(name, own, source.number, record.fingerprint, preprocess, record.classes))
    return found


def preprocess_of(record: ModelRecord) -> Preprocess:
    """Return how a run's model gets its inputs, from what the manifest stores."""
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in record.preprocess.items()
    }
    return Preprocess(**fields)


def opened(asked: Asked, source: Source, given: Sequence[Model], execution: Execution, why: str) -> Model:
    """A run's model again, the very same; `why` is for the error."""
    model = next((one for one in given if one.name == asked.own), None)
    if model is None:
        options = next(one for one in map(ModelOptions.model_validate, source.config["models"]) if one.label == asked.own)
        precision = source.run.config["precision"]
        try:
            model = open_model(options, execution.model_copy(update={"precision": precision}))
        except BrinellError as error:
            raise ConfigError(f"{why}, and model {asked.own} can't be opened: {error}") from error
    if model.fingerprint != asked.fingerprint:
        raise ConfigError(f"{why}, and model {asked.own} is not the one of {source.url} any more: restore it")
    return model


def connected(sources: Sequence[Source]) -> duckdb.DuckDBPyConnection:
    """A connection in which the rows of run 0 are the table rows_0, its clean answers clean_0, and so on."""
    connection = duckdb.connect()
    for source in sources:
        connection.register(f"rows_{source.number}", source.run.store.rows())
        connection.register("clean", source.run.store.table("clean"))
        connection.register("samples", source.samples)
        connection.execute(
            f"create temp table clean_{source.number} as select model, image, correct from clean join samples using (index)"
        )
    return connection


def regions_of(source: Source, model: str, entries: Sequence[Entry]) -> Tensor:
    """Where a detector's objects are, (N, 4), NaN where that is not known."""
    return torch.tensor([source.clean[model, entry.index].region or [torch.nan] * 4 for entry in entries])
