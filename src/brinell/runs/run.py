"""An opened run: its folder, what ran, and its tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from brinell.config.criterion import Task
from brinell.errors import ConfigError, RunError
from brinell.registry import nearest
from brinell.runs.integrity import FOREIGN, foreign_rows, rows_problems
from brinell.runs.store import Store, digest_of
from brinell.units import format_amount


@dataclass(frozen=True)
class ModelRecord:
    """What a run's manifest stores about one of its models."""

    name: str
    fingerprint: str
    classes: tuple[str, ...] | None
    task: Task
    input: tuple[int, int, int]  # channels, height, width
    preprocess: Mapping[str, Any]  # the fields of `models.preprocess.Preprocess`
    options: Mapping[str, Any]  # as the config names it

    @property
    def detector(self) -> bool:
        """Whether it is a detector."""
        return self.task == "detection"

    def class_name(self, index: int | None) -> str | None:
        """Return the name of an output; None where it has none, or where a detector finds nothing."""
        if index is None or self.classes is None or not 0 <= index < len(self.classes):
            return None
        return self.classes[index]


class Run:
    """A run's folder, opened for reading."""

    def __init__(self, folder: str | os.PathLike[str] | Store) -> None:
        self.store = folder if isinstance(folder, Store) else Store(folder)
        if not self.store.exists("manifest.json"):
            raise RunError(f"{self.store.url} is not the folder of a brinell run: it has no manifest.json")
        self.refresh()

    def refresh(self) -> None:
        """Read the manifest and the tables again, after something was written."""
        self.refresh_manifest()
        for cached in ("connection", "measured", "image_names"):
            self.__dict__.pop(cached, None)

    def refresh_manifest(self) -> None:
        """Read the manifest again, after no table was written."""
        self.manifest: dict[str, Any] = self.store.manifest()
        for cached in ("lenses", "models"):
            self.__dict__.pop(cached, None)

    @property
    def folder(self) -> str:
        """Path or URL of the folder."""
        return self.store.url

    @property
    def finished(self) -> bool:
        """Whether all rows are there."""
        return bool(self.manifest.get("finished"))

    @property
    def share(self) -> float:
        """Share of the queries of a full run that were made; below 1, rows are a sample."""
        return float(self.manifest.get("budget", {}).get("share", 1.0))

    @property
    def sampled(self) -> bool:
        """Whether a budget left queries out."""
        return self.share < 1

    def require_finished(self) -> Run:
        """Return the run, or raise if it is not finished."""
        if not self.finished:
            raise RunError(f"the run in {self.folder} is not finished; rerun its command to finish it")
        return self

    @property
    def config(self) -> dict[str, Any]:
        """What was measured: the config without how and where it ran."""
        config: dict[str, Any] = self.manifest["identity"]["config"]
        return config

    @property
    def source(self) -> dict[str, Any]:
        """The config as it was given, with paths."""
        source: dict[str, Any] = self.manifest["source"]
        return source

    @property
    def seed(self) -> int:
        """Names the random draws."""
        return int(self.config["seed"])

    @property
    def data(self) -> Mapping[str, str]:
        """Name and fingerprint of the dataset."""
        data: Mapping[str, str] = self.manifest["identity"]["data"]
        return data

    @cached_property
    def lenses(self) -> dict[str, dict[str, Any]]:
        """Options of the run's lenses, by name."""
        return {lens["name"]: lens for lens in self.config["lenses"]}

    def lens(self, name: str | None) -> dict[str, Any]:
        """Return a lens's options; none if the run doesn't have it."""
        return self.lenses.get(name or "", {})

    @cached_property
    def models(self) -> dict[str, ModelRecord]:
        """The run's models by name, in their order."""
        identities = self.manifest["identity"]["models"]
        options = dict(zip(identities, self.config["models"], strict=True))
        return {name: self._model(name, identity, options[name]) for name, identity in identities.items()}

    def _model(self, name: str, identity: Mapping[str, Any], options: Mapping[str, Any]) -> ModelRecord:
        facts = self.manifest["models"][name]
        classes = facts["classes"]
        if "answers" in facts:  # of a model that answers freely
            classes = [facts["answers"].get(str(index), f"answer {index}") for index in range(facts["outputs"])]
        return ModelRecord(
            name=name,
            fingerprint=identity["fingerprint"],
            classes=None if classes is None else tuple(classes),
            task=facts.get("task", "detection" if "detection" in facts else "classification"),
            input=tuple(facts["input"]),
            preprocess=facts["preprocess"],
            options=options,
        )

    # ---- operators ----

    def facts(self, operator: str) -> Mapping[str, Any]:
        """Return what the manifest stores about an operator, by its id."""
        facts: Mapping[str, Any] = self.manifest["operators"].get(operator, {})
        return facts

    def title(self, operator: str) -> str:
        """Return an operator's name for people."""
        title: str = self.facts(operator).get("title", operator)
        return title

    def format(self, operator: str, amount: float) -> str:
        """Return an amount in the operator's natural unit."""
        return format_amount(amount, self.facts(operator).get("unit") or "")

    # ---- tables ----

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """DuckDB connection with the run's tables; one for all who read the run."""
        with self._damage_named():
            connection = self.store.connect()
            foreign = foreign_rows(connection, self.store, digest_of(self.manifest))
        if foreign is not None:
            raise RunError(f"{foreign} {FOREIGN}; rerun the run's command to measure it again")
        return connection

    def query(self, sql: str, parameters: Mapping[str, Any] | list[Any] | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of an SQL query over the run's tables."""
        connection = self.connection
        with self._damage_named():
            return connection.execute(sql, parameters).fetchall()

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Name the damaged file where that is why reading fails."""
        try:
            yield
        except (duckdb.Error, OSError, ValueError) as error:  # Arrow's errors are of the last two kinds
            problem = next(rows_problems(self.store), None)
            if problem is None:
                raise
            raise RunError(f"{problem}; rerun the run's command to measure it again") from error

    @cached_property
    def measured(self) -> set[str]:
        """Names of the lenses that have rows."""
        return {lens for (lens,) in self.query("select distinct lens from rows")}

    @cached_property
    def image_names(self) -> dict[str, str]:
        """Names of the readable images, by id."""
        return dict(self.query("select image, name from samples where problem is null"))

    def labels(self, model: str) -> dict[str, int]:
        """Return the output index that counts as right, by image."""
        sql = "select image, clean.label from clean join samples using (index) where model = $model"
        return dict(self.query(sql, {"model": model}))

    def require_lens(self, name: str) -> dict[str, Any]:
        """Return a lens's options, or raise if the run doesn't have it."""
        if name not in self.lenses:
            raise ConfigError(f"the run in {self.folder} has no lens {name!r}; {nearest(name, list(self.lenses))}")
        return self.lenses[name]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder!r})"
