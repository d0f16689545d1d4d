"""Slices of a run's images: those of one class, or those that share a value in a column of the dataset's metadata.

A slice is written COLUMN=VALUE; the column `class` is the label. A column of numbers is divided at its quartiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from brinell.errors import ConfigError
from brinell.registry import nearest
from brinell.runs.run import Run

CLASS = "class"
MOST = 24  # values of a column that is shown without being asked for
PARTS = 4  # of a column of numbers
_METADATA = """
    select entry.key, image, entry.value
    from (select image, unnest(map_entries(metadata)) as entry from samples where problem is null) order by all
"""


@dataclass(frozen=True, order=True)
class Slice:
    """Images that share a value in a column; without a value, the column as a whole."""

    column: str
    value: str | None = None

    @classmethod
    def parse(cls, text: str) -> Slice:
        """Return a slice from COLUMN or COLUMN=VALUE."""
        column, equals, value = text.partition("=")
        if not column.strip() or (equals and not value.strip()):
            raise ConfigError(f"expected a slice as COLUMN or COLUMN=VALUE (such as weather=fog), got {text!r}")
        return cls(column.strip(), value.strip() if equals else None)

    def __str__(self) -> str:
        return self.column if self.value is None else f"{self.column}={self.value}"


def read_columns(run: Run) -> dict[str, dict[str, str]]:
    """Return the values of each column of metadata by image; numbers of many values as ranges."""
    found: dict[str, dict[str, str]] = {}
    for column, image, value in run.query(_METADATA):
        found.setdefault(column, {})[image] = value
    return {column: _divide(values) for column, values in found.items()}


def select_columns(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the columns that divide images into a few slices; names and the like divide them into too many."""
    return [column for column, values in columns.items() if 1 < len(set(values.values())) <= MOST]


def slice_values(run: Run, column: str, model: str) -> dict[str, str]:
    """Return the value of each image in a column; an image's class is that of the model's label."""
    if column == CLASS:
        record = run.models[model]
        return {image: record.class_name(label) or str(label) for image, label in run.labels(model).items()}
    known = read_columns(run)
    if column not in known:
        raise ConfigError(f"{run.folder} has no metadata column {column!r}; {nearest(column, [CLASS, *known])}")
    return known[column]


def find_slices(run: Run, wanted: Slice, model: str) -> dict[Slice, list[str]]:
    """Return the images of a slice, or of every slice of a column, in the order of their values."""
    values = slice_values(run, wanted.column, model)
    if wanted.value is not None and wanted.value not in set(values.values()):
        known = [f"{wanted.column}={value}" for value in order_values(set(values.values()))]
        raise ConfigError(f"no image has {wanted}; {nearest(str(wanted), known)}")
    images: dict[str, list[str]] = {}
    for image, value in values.items():
        images.setdefault(value, []).append(image)
    chosen = order_values(images) if wanted.value is None else [wanted.value]
    return {Slice(wanted.column, value): images[value] for value in chosen}


def order_values(values: Iterable[str]) -> list[str]:
    """Return values in order: numbers, and ranges of them, by size."""
    starts = {value: _number(value.partition(" to ")[0]) for value in values}
    return sorted(starts, key=lambda value: (starts[value] is None, starts[value] or 0, value))


def _divide(values: Mapping[str, str]) -> dict[str, str]:
    """Return values as they are, or, if they are many numbers, the range that each is in."""
    numbers = {image: _number(value) for image, value in values.items()}
    known = [number for number in numbers.values() if number is not None]
    if len(known) < len(values) or len(set(known)) <= MOST or not _repeats(known):
        return dict(values)
    ordered = sorted(known)
    edges = sorted({ordered[round(part * (len(ordered) - 1) / PARTS)] for part in range(PARTS + 1)})
    ranges = list(pairwise(edges))
    names = [f"{low:g} to {high:g}" for low, high in ranges]
    return {image: names[_place(ranges, number)] for image, number in numbers.items() if number is not None}


def _repeats(numbers: Sequence[float]) -> bool:
    """Whether numbers measure something: identifiers are whole numbers that are all different."""
    return any(not number.is_integer() for number in numbers) or max(Counter(numbers).values()) > 1


def _place(ranges: Sequence[tuple[float, float]], number: float) -> int:
    return next(place for place, (_, high) in enumerate(ranges) if number <= high)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None
