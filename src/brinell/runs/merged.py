"""Several runs over the same images, read as one: their lenses and models side by side."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from typing import Any

import duckdb
import pyarrow as pa

from brinell.errors import RunError
from brinell.runs.store import GATE, Store

_ONCE = ("samples",)  # tables that are the same in all runs


class MergedStore(Store):
    """Reads the folders of several runs as that of one run. It can't be written to."""

    def __init__(self, stores: Sequence[Store]) -> None:
        super().__init__(stores[0].url)
        self.stores = list(stores)
        self.url = ", ".join(store.url for store in stores)
        self._manifest = reduce(merge_manifests, [(store.url, store.manifest()) for store in stores])[1]
        for one, two in combinations(stores, 2):
            _refuse_repeated(one, two)

    def exists(self, *parts: str) -> bool:
        """Whether one of the runs has a file; rules belong to a single run."""
        return parts != (GATE,) and any(store.exists(*parts) for store in self.stores)

    def read(self, *parts: str) -> bytes:
        """Return the content of a file of one of the runs; lists of pictures, which several have, are joined."""
        owners = [store for store in self.stores if store.exists(*parts)]
        if len(owners) > 1 and parts[-1].endswith(".json"):
            return json.dumps(reduce(_join, [store.read_json(*parts) for store in owners])).encode()
        return (owners or self.stores)[0].read(*parts)

    def write(self, data: bytes, *parts: str) -> None:
        """Refuse to write: it is not clear which run a file belongs to."""
        raise RunError(
            f"several runs are read as one, so nothing can be written into a run; got {parts[-1]}: use --out FILE"
        )

    def manifest(self) -> dict[str, Any]:
        """Return the manifests as one."""
        return copy.deepcopy(self._manifest)

    def measured(self) -> bool:
        """Whether anything was measured."""
        return any(store.measured() for store in self.stores)

    def unit_files(self) -> list[str]:
        """Return none: the files of each run are checked where it is opened."""
        return []

    def tables(self) -> list[str]:
        """Return the names of the tables besides the rows."""
        return sorted({name for store in self.stores for name in store.tables()})

    def table(self, name: str) -> pa.Table:
        """Return a table other than the rows."""
        found: pa.Table = self.connect().sql(f'from "{name}"').arrow()
        return found if isinstance(found, pa.Table) else found.read_all()

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection with the rows and tables of all runs; a model's clean answers are taken once."""
        connection = duckdb.connect()
        names: dict[str, list[str]] = {}
        for number, store in enumerate(self.stores):
            tables = {"rows": store.rows(), **{name: store.table(name) for name in store.tables()}}
            for name, table in tables.items():
                connection.register(f"{name}_{number}", table)
                names.setdefault(name, []).append(f"{name}_{number}")
        for name, parts in names.items():
            connection.execute(f'create view "{name}" as {_union(name, parts)}')
        return connection


def _union(name: str, tables: Sequence[str]) -> str:
    if name in _ONCE:
        return f"from {tables[0]}"
    if name != "clean":
        return " union all by name ".join(f"from {table}" for table in tables)
    parts = []
    for number, table in enumerate(tables):
        known = " union ".join(f"select model from {earlier}" for earlier in tables[:number])
        parts.append(f"from {table}" + (f" where model not in ({known})" if known else ""))
    return " union all by name ".join(parts)


def merge_manifests(
    first: tuple[str, Mapping[str, Any]], second: tuple[str, Mapping[str, Any]]
) -> tuple[str, dict[str, Any]]:
    """Return two manifests as one, each with its run's folder; raise if the runs can't be read together."""
    (one, old), (two, new) = first, second
    merged: dict[str, Any] = copy.deepcopy(dict(old))
    mine, other = merged["identity"], new["identity"]
    if mine["data"]["fingerprint"] != other["data"]["fingerprint"] or mine["config"]["select"] != other["config"]["select"]:
        raise RunError(f"{one} and {two} were measured on different images; report them one by one")
    lenses = {lens["name"]: lens for lens in mine["config"]["lenses"]}
    for lens in other["config"]["lenses"]:
        if lenses.setdefault(lens["name"], lens) != lens:
            raise RunError(f"{one} and {two} have different options of the lens {lens['name']}; report them one by one")
    configs = dict(zip(mine["models"], mine["config"]["models"], strict=True))
    for name, config in zip(other["models"], other["config"]["models"], strict=True):
        if mine["models"].setdefault(name, other["models"][name])["fingerprint"] != other["models"][name]["fingerprint"]:
            raise RunError(f"{one} and {two} call different models {name!r}; run one of them with another --name")
        configs.setdefault(name, config)
    mine["config"] |= {"lenses": list(lenses.values()), "models": list(configs.values())}
    for name in ("models", "operators", "queries"):
        merged[name] = {**new.get(name, {}), **merged.get(name, {})}
    for name in ("unsupported", "warnings"):
        merged[name] = [*merged.get(name, []), *(each for each in new.get(name, []) if each not in merged.get(name, []))]
    merged["finished"] = bool(merged.get("finished") and new.get("finished"))
    merged["created"] = max(str(merged.get("created", "")), str(new.get("created", "")))
    if "saliency" in new:
        merged["saliency"] = _join(merged.get("saliency", {}), new["saliency"])
    return f"{one}, {two}", merged


def _join(one: Any, two: Any) -> Any:
    """Return lists one after the other, and mappings with the keys of both; of two other values, the first."""
    if isinstance(one, list) and isinstance(two, list):
        return [*one, *two]
    if isinstance(one, dict) and isinstance(two, dict):
        common = {key: _join(one[key], two[key]) for key in one if key in two}
        return {**one, **two, **common}
    return one


def _refuse_repeated(one: Store, two: Store) -> None:
    """Raise if two runs measured the same model by the same lens."""
    both = _measured(one) & _measured(two)
    if both:
        lens, model = sorted(both)[0]
        raise RunError(f"{one.url} and {two.url} both measured {model} by the lens {lens}; leave one of them out")


def _measured(store: Store) -> set[tuple[str, str]]:
    """Return the lenses and models that a run has rows of, as its folders name them."""
    depth = len(store.path("rows").split("/"))
    return {(parts[depth], parts[depth + 1]) for parts in (file.split("/") for file in store.unit_files())}
