"""How a lens's rows are read: its columns, findings, measures, failures and exhibits. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from brinell.registry import load_reference
from brinell.report.exhibits import Exhibit
from brinell.runs.hardness import Scale
from brinell.runs.run import Run
from brinell.runs.schema import Schema
from brinell.runs.statistics import Estimate

Figures = tuple[str, str, int, Any]  # model, operator, step, and figures as a dataclass or a mapping
AVERAGE = "average"  # in the place of an operator: figures of a model over all operators


class Findings(Protocol):
    """What a lens found in a run, as facts."""

    @property
    def models(self) -> list[str]:
        """Models, the most robust first."""
        ...

    @property
    def operators(self) -> list[str]:
        """Operators, in the order in which they are shown."""
        ...

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence."""
        ...

    def table(self) -> list[dict[str, Any]]:
        """Return the findings as flat records."""
        ...

    def figures(self) -> Iterator[Figures]:
        """Yield named figures for a tracking server, by model, operator and step."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        ...

    def _repr_html_(self) -> str: ...


class PrintedFindings:
    """Findings that print themselves as `brinell summary` does, by the `show.py` next to their module."""

    def __str__(self) -> str:
        text: str = load_reference("brinell.report.grid:to_text")(self._shown())
        return text

    def __repr__(self: Findings) -> str:
        models, operators = len(self.models), len(self.operators)
        counts = f"{models} model{'s' * (models != 1)}, {operators} operator{'s' * (operators != 1)}"
        return f"<{type(self).__name__}: {counts}; print it, or use .verdict(model), .table(), .to_json()>"

    def _repr_html_(self) -> str:
        """Return the tables and verdicts, for notebooks."""
        text: str = load_reference("brinell.report.grid:to_html")(self._shown())
        return text

    def _shown(self) -> list[Any]:
        """Return what a terminal prints; `show.py` is loaded late, because findings don't depend on it."""
        package = type(self).__module__.rpartition(".")[0]
        shown: list[Any] = load_reference(f"{package}.show:SHOW").table(self)
        return shown


@dataclass(frozen=True)
class Measure:
    """One number per image that runs can be compared by, of a `lens`, or of the clean answers where that is None.

    `sql` selects model, operator, image and value, and level where it is `by_level`; names in braces are the lens's
    options. Images without a row have no value. Changes are reported in `unit`: percentage points, or percent of the
    old value. Values of `yes_or_no` are 0 or 1. A measure that only details another one is not `ranked`. Operators that
    need gradients count in no average unless `with_white_box`. The effect of hardening is reported by a lens's `headline`
    measures, or else by its first one; `phrases` say, by operator name, how a sentence names an operator, with {title}.
    `by_amount` returns the SQL of the same at an amount in the operators' natural units, where that can be read from rows.
    """

    name: str
    lens: str | None
    what: str
    better: Literal["higher", "lower"]
    unit: Literal["points", "percent"]
    sql: str
    yes_or_no: bool = False
    by_level: bool = False
    ranked: bool = True
    with_white_box: bool = True
    headline: bool = False
    phrases: tuple[tuple[str, str], ...] = ()
    by_amount: Callable[[Run, float], str] | None = None

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return 1 if self.better == "higher" else -1


@dataclass(frozen=True)
class Reading:
    """A figure of a model under an operator with its interval, and the number of images that it is computed from.

    `level` is where it was measured, if it goes by levels; `detail` says more, such as a direction; `unit` is that of
    a value that is not a share. A value that is never reached is infinite. `slice` names the images, if not all.
    """

    model: str
    operator: str
    value: Estimate
    images: int
    level: int | None = None
    detail: str = ""
    unit: str = ""
    slice: str = ""


@dataclass(frozen=True)
class Statistic:
    """A figure of a run that is not a mean over images, such as a failure point, so that rules can limit it.

    `read` gets the run, the lens's options and a share in [0, 1]: the accuracy, or the share of broken images, that
    makes a failure point, {threshold} percent in `what`. Values of unit "points" are shares.
    """

    name: str
    lens: str
    what: str
    better: Literal["higher", "lower"]
    unit: Literal["points", "level", "amount"]
    read: Callable[[Run, Mapping[str, Any], float], list[Reading]]
    by_level: ClassVar[bool] = False
    by_amount: ClassVar[None] = None


class Compared(Protocol):
    """The change of a measure under an operator (at a level), from an old model to a new one, over the same images."""

    @property
    def measure(self) -> Measure:
        """What changed."""
        ...

    @property
    def operator(self) -> str:
        """Id of the operator."""
        ...

    @property
    def title(self) -> str:
        """Name of the operator for people."""
        ...

    @property
    def level(self) -> int | None:
        """Level, if the measure goes by levels."""
        ...

    @property
    def old(self) -> float:
        """Mean of the old model."""
        ...

    @property
    def new(self) -> float:
        """Mean of the new model."""
        ...


@dataclass(frozen=True)
class ComparisonTable:
    """A further table of a comparison: `rows` for people, under `heads`, and the same as plain `records`.

    Terminals and Markdown show only those that are `brief`.
    """

    name: str
    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    records: tuple[dict[str, Any], ...]
    brief: bool = False


@dataclass(frozen=True)
class Failures:
    """A lens's failures: images that a model gets right when clean, and the changes under which it fails.

    `query` gets the lens's options and returns SQL over the tables `rows` and `clean` (model, image, correct, height and
    width of the original) that selects `FAILURE_COLUMNS`. `parameters` names what the parameters are in metadata. Where the
    rows of an operator are `complete`, a model without a row for a replay doesn't fail there; elsewhere it has to be
    queried. Where rows have no `answers` to the very images, models are queried again, by this `criterion` or else the
    lens's own. In `pairs`, the parameters of a failure are followed by those of the similar image that is right.
    """

    query: Callable[[Mapping[str, Any]], str]
    parameters: str
    complete: Callable[[str], bool] = lambda operator: False
    answers: bool = True
    criterion: str | None = None
    pairs: bool = False


@dataclass(frozen=True)
class Reader:
    """How a lens's rows are read.

    `columns` are its own, in addition to the common ones. `find` computes the findings, with the options of the lens in
    the run and those of `brinell summary`. `changed` selects, in SQL, the rows that describe one changed image each;
    `parameters` is an SQL expression for the list of parameters that replays it, and `field` one for its random field.
    Where images are variants of an original in the dataset, `compare_with_original` compares them with that instead of
    the clean image. `cells` says, for an operator's id, what a budget chooses of each image, such as levels; None where an
    image's queries can't be divided, so that it chooses images. Where rows count cells, those of an image are `counted`
    again when a larger budget adds to it. `order` are the columns that a full run's rows are sorted
    by within a unit; "changed" puts clean images first.
    `finish` computes further `tables` once, when a run has all rows, and returns advice in a line if it lacks something
    that it needs. `motions` is for a lens that moves images: the coordinates of an operator's motions by image, and the
    score of random ones (see `brinell export-moved`). `compare` makes a further table for a comparison, from what changed
    in the lens's measures, and `compare_overall` one of figures over everything that it measured, from the runs and names
    of two models. `overall` returns such figures of one model, some of them against a baseline, for leaderboards. Rules can
    limit `measures` and `statistics`. `hardness` says what hardness means under this lens. `maps` is for a lens that asks
    about places: "module:function" of a function from the run, the lens's options, a model and an image to `AnswerMap`s.
    """

    columns: Schema
    find: Callable[[Run, Mapping[str, Any], Mapping[str, Any]], Findings]
    changed: str
    parameters: str
    field: Callable[[Mapping[str, Any]], str] = lambda options: "0"
    compare_with_original: bool = False
    cells: Callable[[str], str | None] = lambda operator: None
    order: tuple[str, ...] = ("image",)
    counted: bool = False
    measures: tuple[Measure, ...] = ()
    statistics: tuple[Statistic, ...] = ()
    hardness: Scale | None = None
    compare: Callable[[Sequence[Compared]], ComparisonTable | None] | None = None
    compare_overall: Callable[[tuple[Run, str], tuple[Run, str]], ComparisonTable | None] | None = None
    overall: Callable[[Run, str, tuple[Run, str] | None], Mapping[str, Estimate]] | None = None
    failures: Failures | None = None
    exhibits: Callable[[Run, Mapping[str, Any]], list[Exhibit]] | None = None
    finish: Callable[[Run], str | None] | None = None
    tables: tuple[str, ...] = ()
    motions: Callable[[Run, str, float | None], tuple[dict[str, list[float]], float | None]] | None = None
    maps: str | None = None


FAILURE_COLUMNS = (
    "model",
    "operator",
    "image",
    "label",  # the output index that counts as right
    "parameters",  # double[]
    "field",
    "direction",  # replays of one direction follow each other
    "intensity",  # 0 to 100
    "amount",
    "prediction",
    "confidence",
    "probability",
    "mse",
    "mae",
    "l1",
    "l2",
    "linf",
    "l0",
    "changed",
)
DISTANCE_COLUMNS = FAILURE_COLUMNS[-7:]
ANSWER = f"prediction, confidence, probability, {', '.join(DISTANCE_COLUMNS)}"
NO_ANSWER = ", ".join(["null::int", *["null::double"] * (2 + len(DISTANCE_COLUMNS))])


def parameter_list(*columns: str) -> str:
    """Return an SQL expression for the list of parameters in some columns, without nulls."""
    if not columns:
        return "[0]::double[]"
    values = ", ".join(f"{column}::double" for column in columns)
    return f"list_filter([{values}], lambda number: number is not null)"
