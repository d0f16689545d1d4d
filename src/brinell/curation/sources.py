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
from brinell.engine.manifest import preprocess_of
from brinell.engine.shards import Entry
from brinell.engine.survey import box_labels_of, labels_of
from brinell.errors import BrinellError, ConfigError, DataError, RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.lens import Asked as Asks
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from brinell.runs.store import Store
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
    store: Store
    manifest: dict[str, Any]
    data: Any = None

    @property
    def config(self) -> dict[str, Any]:
        """As it was given: with paths, and what the user named."""
        config: dict[str, Any] = self.manifest["source"]
        return config

    @property
    def seed(self) -> int:
        """Names its draws."""
        return int(self.config["seed"])

    def lenses(self) -> dict[str, dict[str, Any]]:
        """Its lenses' options by their names."""
        return {lens["name"]: lens for lens in self.config["lenses"]}

    def change(self, lens: str, operator: str, preprocess: Preprocess) -> Asks:
        """What an operator of a lens is, by its full name, for a model's inputs."""
        known = lens, operator, preprocess.height, preprocess.width
        if known not in self._changes:
            again = LENSES[lens].again
            assert again is not None
            options = LENSES[lens].options.model_validate(self.lenses()[lens])
            self._changes[known] = again.change(options, operator, known[2:])
        return self._changes[known]

    @cached_property
    def _changes(self) -> dict[tuple[str, str, int, int], Asks]:
        return {}

    @cached_property
    def dataset(self) -> Dataset:
        """Its data, opened again."""
        options = DataOptions(**self.config["data"])
        if self.data is not None and not isinstance(self.data, str):
            return open_dataset(self.data)
        if self.data is None and options.source.startswith("object:"):
            raise ConfigError(
                f"the data of {self.store.url} was a Python object; give it again with data=…, or --data PATH"
            )
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
                f"the images of {self.store.url} are not what they were: {told}; restore them, or say where they lie now "
                "with --data"
            ) from error

    @cached_property
    def samples(self) -> pa.Table:
        """Its table of images."""
        return self.store.table("samples")

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
        table = self.store.table("clean")
        columns = (table[name].to_pylist() for name in ("model", "index", "prediction", "confidence", "region"))
        return {(model, index): Clean(*told) for model, index, *told in zip(*columns, strict=True)}


def sources_of(stores: Sequence[Store], data: Any) -> list[Source]:
    """The runs, which must be finished."""
    found = []
    for number, store in enumerate(stores):
        manifest = store.manifest()
        if not manifest.get("finished"):
            raise RunError(f"the run in {store.url} is not finished; finish it with the command that began it")
        found.append(Source(number, store, manifest, data))
    return found


def models_of(sources: Sequence[Source]) -> list[Asked]:
    """All models of all runs. Models of one name that differ are told apart by their runs."""
    prints: dict[str, set[str]] = {}
    for source in sources:
        for own, told in source.manifest["identity"]["models"].items():
            prints.setdefault(own, set()).add(told["fingerprint"])
    found = []
    for source in sources:
        for own, told in source.manifest["identity"]["models"].items():
            name = own if len(prints[own]) == 1 else f"{own} of {source.store.url.rstrip('/').rpartition('/')[2]}"
            classes = source.manifest["models"][own]["classes"]
            preprocess = preprocess_of(source.manifest, own)
            names = None if classes is None else tuple(classes)
            found.append(Asked(name, own, source.number, told["fingerprint"], preprocess, names))
    return found


def opened(asked: Asked, source: Source, given: Sequence[Model], execution: Execution, why: str) -> Model:
    """A run's model again, the very same; `why` is for the error."""
    model = next((one for one in given if one.name == asked.own), None)
    if model is None:
        options = next(one for one in map(ModelOptions.model_validate, source.config["models"]) if one.label == asked.own)
        precision = source.manifest["identity"]["config"]["precision"]
        try:
            model = open_model(options, execution.model_copy(update={"precision": precision}))
        except BrinellError as error:
            raise ConfigError(f"{why}, and model {asked.own} can't be opened: {error}") from error
    if model.fingerprint != asked.fingerprint:
        raise ConfigError(f"{why}, and model {asked.own} is not the one of {source.store.url} any more: restore it")
    return model


def connected(sources: Sequence[Source]) -> duckdb.DuckDBPyConnection:
    """A connection in which the rows of run 0 are the table rows_0, its clean answers clean_0, and so on."""
    connection = duckdb.connect()
    for source in sources:
        connection.register(f"rows_{source.number}", source.store.rows())
        connection.register("clean", source.store.table("clean"))
        connection.register("samples", source.samples)
        connection.execute(
            f"create temp table clean_{source.number} as select model, image, correct from clean join samples using (index)"
        )
    return connection


def regions_of(source: Source, model: str, entries: Sequence[Entry]) -> Tensor:
    """Where a detector's objects are, (N, 4), NaN where that is not known."""
    return torch.tensor([source.clean[model, entry.index].region or [torch.nan] * 4 for entry in entries])
