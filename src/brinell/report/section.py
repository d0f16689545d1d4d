"""What a report shows, as plain data: figures, sentences, tables and pictures. One template renders all sections."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brinell.runs.statistics import Estimate

Chart = Any  # an Altair chart or a Panel: altair is imported by the modules that draw, and not here


@dataclass(frozen=True)
class Picture:
    """A changed image on the page, next to the clean one if `clean_source` is given.

    `heading` says what was done to it, `before` and `after` what the model answered, `lines` what else there is to know and
    `detail` what only some want to know, such as a distance. `tag` names its place among others: "easiest", "median".
    `image` is the image's name, for texts that stand for the picture. One with boxes (`boxed`) is shown larger.
    """

    source: str
    heading: str
    lines: tuple[str, ...] = ()
    correct: bool | None = None
    clean_source: str | None = None
    boxed: bool = False
    before: str = ""
    after: str = ""
    detail: str = ""
    tag: str = ""
    image: str = ""
    clean_correct: bool | None = True
    more: tuple[tuple[str, str, str], ...] = ()  # further pairs below it: what they show, and two sources

    @property
    def alt(self) -> str:
        """What the changed picture shows."""
        answer = f": {self.after}" if self.after else ""
        return f"{self.image or 'image'}, {self.heading}{answer}"

    @property
    def clean_alt(self) -> str:
        """What the clean picture shows."""
        answer = f": {self.before}" if self.before else ""
        return f"{self.image or 'image'}, clean{answer}"


@dataclass(frozen=True)
class PictureGroup:
    """Pictures of one model under one operator, the easiest to break first."""

    model: str
    operator: str
    title: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Gallery:
    """Pictures with a heading and a sentence, in groups. In `pairs`, a picture is next to the clean one.

    A `folded` one opens on demand; pictures of a `wide` one are several side by side.
    """

    title: str
    sentence: str
    groups: Sequence[PictureGroup]
    pairs: bool = True
    folded: bool = False
    wide: bool = False

    @property
    def by_model(self) -> dict[str, list[PictureGroup]]:
        """Its groups by model, in their order."""
        found: dict[str, list[PictureGroup]] = {}
        for group in self.groups:
            found.setdefault(group.model, []).append(group)
        return found

    @property
    def pictures(self) -> list[Picture]:
        """All of its pictures."""
        return [picture for group in self.groups for picture in group.pictures]


@dataclass(frozen=True)
class Maps:
    """Maps over photographs, by model: what the page's map viewer needs, as plain data."""

    title: str
    sentence: str
    by_model: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Figure:
    """A figure: one chart, or small multiples that fill the width of the page.

    `alt` says what it shows. `legend` pairs names with colours. `records` are its data, for the CSV file.
    """

    name: str
    alt: str
    panels: Sequence[Chart]
    records: Sequence[Mapping[str, Any]]
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, the number that it is sorted by, and a `detail` in small print.

    `bar` draws a value and its interval on a scale from 0 to 1. A `best` cell is in bold.
    """

    text: str
    sort: float | None = None
    detail: str = ""
    bar: Estimate | None = None
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table, whose first column names the rows. `groups` are heads over several columns: a text and a number each."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[tuple[str, int]] = ()
    note: str = ""


@dataclass(frozen=True)
class Block:
    """A part of a section: figure, sentence, table. A `folded` one opens on demand."""

    title: str
    sentence: str = ""
    figure: Figure | None = None
    table: Table | None = None
    folded: bool = False
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    """A lens's section of the report.

    The first block comes before the pictures, the others after them, and `method` (paragraphs) last.
    """

    question: str
    topic: str
    findings: Any
    options: Mapping[str, Any]
    blocks: Sequence[Block]
    galleries: Sequence[Gallery] = ()
    maps: Maps | None = None
    method: Sequence[str] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def figures(self) -> list[Figure]:
        """Its figures, in their order."""
        return [block.figure for block in self.blocks if block.figure is not None]


def number(value: float | None, spec: str = ".3g", unit: str = "") -> Cell:
    """Return a cell with a number; a dash where there is none."""
    if value is None or math.isnan(value):
        return Cell("–")
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:{spec}}"
    return Cell(f"{text} {unit}".rstrip(), value)


def share(estimate: Estimate, *, best: bool = False, detail: str | None = None) -> Cell:
    """Return a cell with a share in [0, 1] and its interval, which is also drawn."""
    if math.isnan(estimate.value):
        return Cell("–")
    digits = 1 if estimate.value < 0.1 and not math.isnan(estimate.high) and estimate.high < 0.1 else 0
    interval = ""
    if estimate.low < estimate.high:
        interval = f"{100 * estimate.low:.{digits}f}–{100 * estimate.high:.{digits}f}"
    shown = " · ".join(part for part in (interval, detail) if part)
    return Cell(f"{100 * estimate.value:.{digits}f} %", estimate.value, shown, estimate, best)


def to_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """Return records as CSV, with the keys of all of them as columns."""
    rows = list(records)
    names = list(dict.fromkeys(name for row in rows for name in row))
    sink = io.StringIO()
    writer = csv.DictWriter(sink, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows([{name: _plain(value) for name, value in row.items()} for row in rows])
    return sink.getvalue()


def _plain(value: Any) -> Any:
    """Return a value as a spreadsheet should see it: no NaN, and no text that it would take for a formula."""
    if isinstance(value, float):
        return "" if math.isnan(value) else value
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
