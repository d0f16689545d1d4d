"""The result of a query over a run's tables: complete as data, and as a table for people.

People see the columns that have values, names instead of ids and class indices, and amounts with their units.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

from brinell.classes import Classes
from brinell.errors import ConfigError, RunError
from brinell.registry import nearest
from brinell.report.grid import Grid, to_html, to_text
from brinell.runs.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 20  # rows
CLASS_COLUMNS = ("label", "prediction", "clean_prediction", "target")
SHARED = ("lens", "model", "operator")  # named above the table where they are the same in all rows
FIRST = (*SHARED, "image", "amount", "direction", "status", "correct", "label", "prediction", "level", "confidence")


class Rows:
    """The rows of a query. It prints as a table; .df(), .arrow(), .to_polars() and .fetchall() return all of it.

    Everything else is an attribute of the DuckDB relation behind it, such as .write_parquet(file) or .filter(sql).
    """

    def __init__(self, relation: duckdb.DuckDBPyRelation, run: Run) -> None:
        self.relation, self.run = relation, run

    def df(self) -> Any:
        """Return a pandas data frame."""
        _require("pandas")
        return self.relation.df()

    def to_polars(self) -> Any:
        """Return a polars data frame."""
        _require("polars")
        return self.relation.pl()

    def arrow(self) -> pa.Table:
        """Return a pyarrow table."""
        with sql_errors():
            return _to_table(self.relation.arrow())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a notebook asks for other ways of showing it
            raise AttributeError(name)
        return getattr(self.relation, name)

    def __len__(self) -> int:
        return len(self.relation)

    def __repr__(self) -> str:
        return to_text(self.shown())

    def _repr_html_(self) -> str:
        return to_html(self.shown(room=None))

    def shown(self, columns: Sequence[str] = (), room: int | None = 80) -> list[Any]:
        """Return a table of the first rows, and notes on what it leaves out.

        `columns` selects what is shown (default: the columns with values, as many as fit in `room` characters).
        """
        with sql_errors():
            head = self.relation.limit(SHOWN + 1)
            records = _to_table(head.arrow()).to_pylist()
        names = list(self.relation.columns)
        for name in columns:
            if name not in names:
                raise ConfigError(f"the result has no column {name!r}; {nearest(name, names)}")
        notes = [f"The first {SHOWN} rows."] if len(records) > SHOWN else []
        records = records[:SHOWN]
        if not records:
            return ["no rows"]
        kept = list(columns) or [name for name in _ordered(names) if any(_known(record[name]) for record in records)]
        shared = []
        if not columns and len(records) > 1:
            shared = [name for name in SHARED if name in kept and len({record[name] for record in records}) == 1]
        title = ", ".join(str(records[0][name]) for name in shared)
        cells = [(name, [self._cell(name, record) for record in records]) for name in kept if name not in shared]
        fitting = cells if columns or room is None else _fit(cells, room)
        notes += _describe_rest([name for name, _ in cells[len(fitting) :]])
        rows = tuple(zip(*(values for _, values in fitting), strict=True))
        return [Grid(tuple(name for name, _ in fitting), rows, title, left=_texts(fitting)), *notes]

    def _cell(self, name: str, record: Mapping[str, Any]) -> str:
        value = record[name]
        if not _known(value):
            return "–"
        if name in CLASS_COLUMNS and isinstance(value, int):
            return self._class_name(record.get("model"), value)
        if name == "image" and value in self.run.image_names:
            return self.run.image_names[value].rpartition("/")[2]
        if name == "amount" and isinstance(record.get("operator"), str):
            return self.run.format(record["operator"], value)
        return _format(value)

    def _class_name(self, model: str | None, index: int) -> str:
        """Return "tabby (281)"; the number alone where the model is not known or has no names."""
        name = model if model in self.run.models else next(iter(self.run.models)) if len(self.run.models) == 1 else None
        classes = self.run.models[name].classes if name is not None else None
        if classes is None or not 0 <= index < len(classes):
            return str(index)
        return f"{Classes(classes).short_name(index)} ({index})"


def shown_by_lens(query: Callable[[str], Rows], run: Run, columns: Sequence[str], room: int) -> Iterator[Any]:
    """Yield the first rows of every lens of a run, each with the columns that it has values in."""
    for lens in (name for name in run.lenses if name in run.measured):
        yield from query(f"select * from rows where lens = '{lens}' limit {SHOWN}").shown(columns, room)


@contextmanager
def sql_errors() -> Iterator[None]:
    """Turn DuckDB's errors, which can come as late as a result is read, into ours."""
    try:
        yield
    except duckdb.Error as error:
        raise RunError(f"the query failed: {str(error).strip()}") from None


def _to_table(found: Any) -> pa.Table:
    """Return what DuckDB returns as Arrow data, which is a reader or a table by its version, as a table."""
    return found.read_all() if hasattr(found, "read_all") else found


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise RunError(
            f"this needs {package}, which is not installed: pip install {package}; .arrow() and .fetchall() work without"
        )


def _known(value: Any) -> bool:
    return value is not None and value != ""


def _ordered(names: Sequence[str]) -> list[str]:
    first = [name for name in FIRST if name in names]
    return first + [name for name in names if name not in first] if set(SHARED) <= set(names) else list(names)


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        flat = [_format(each) for each in value]
        return f"[{', '.join(flat)}]" if len(flat) <= 3 and not any("[" in each for each in flat) else f"{len(flat)} values"
    return str(value)


def _fit(cells: Sequence[tuple[str, list[str]]], room: int) -> list[tuple[str, list[str]]]:
    """Return the first columns that fit next to each other, whole."""
    fitting: list[tuple[str, list[str]]] = []
    for name, values in cells:
        width = max(len(text) for text in (name, *values))
        if fitting and width > room:
            break
        fitting.append((name, values))
        room -= width + 2
    return fitting


def _texts(cells: Sequence[tuple[str, list[str]]]) -> frozenset[int]:
    """Return the columns that are aligned to the left: those that hold text."""
    return frozenset(index for index, (_, values) in enumerate(cells) if any(text[:1].isalpha() for text in values))


def _describe_rest(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"{len(names)} more columns have values: {', '.join(names)}. Select them in the SQL, or with --columns."]
