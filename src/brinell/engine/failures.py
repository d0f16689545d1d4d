"""What each lens's rows say of failures, as versions that can be made again.

A lens takes part by one entry in `FAILURES`, a question to its rows that gives the columns of `COLUMNS`, and by its
`again`: the way from an operator's name to the change that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from brinell.lenses.lens import LENSES
from brinell.registry import Registry

LEVELS = 30  # as far as operators go
DISTANCES = ("mse", "mae", "l1", "l2", "linf", "l0", "changed")
COLUMNS = (
    "model",
    "operator",
    "image",
    "label",  # the output that counts as right
    "parameters",  # double[]: of a `Version`
    "field",
    "direction",  # versions of one direction follow each other
    "intensity",  # 0 to 100
    "amount",
    "prediction",
    "confidence",
    "probability",
    *DISTANCES,
)


@dataclass(frozen=True)
class Failures:
    """A lens's failures: images that a model gets right when clean, and what is done to them when it fails.

    `question` is given the lens's options and asks the tables `rows` and `clean` (model, image, correct). `told` is what
    the parameters are called. Where the rows of an operator are `complete`, a model that they don't name at a version
    doesn't fail there; elsewhere it has to be asked. Where the rows have no `answers` to the very pictures, the models are
    asked about them, by this `criterion` or else the lens's own, and what they get right is no failure. In `pairs`, a
    failure is beside something right, whose parameters follow its own.
    """

    question: Callable[[Mapping[str, Any]], str]
    told: str
    complete: Callable[[str], bool] = lambda operator: False
    answers: bool = True
    criterion: str | None = None
    pairs: bool = False


FAILURES: Registry[Failures] = Registry("lens with failures")

_ANSWER = f"prediction, confidence, probability, {', '.join(DISTANCES)}"
_UNASKED = ", ".join(["null::int", *["null::double"] * (2 + len(DISTANCES))])


_SHRUNK = "case when kind like '%shrink' then 2 else 0 end"  # by how many pixels; a shift is of one
_LISTS = {"geometry": "motion", "fragility": f"[to_x, to_y, side - {_SHRUNK}, x, y, side]::double[]"}


def parameters(lens: str) -> str:
    """What its rows say of how far a change went, as one list; in pairs of what fails, then of what is right."""
    if lens in _LISTS:
        return _LISTS[lens]
    again = LENSES[lens].again
    assert again is not None and again.columns is not None
    columns = ", ".join(f"{column}::double" for column in again.columns)
    return f"list_filter([{columns}], lambda number: number is not null)" if columns else "[0]::double[]"


def _failing_levels(options: Mapping[str, Any]) -> str:
    return f"""
        select model, operator, image, label, {parameters("profile")}, 0, null, 100 * level / {LEVELS}, amount, {_ANSWER}
        from rows semi join
             (select model, operator, image, label from rows where lens = 'profile' and level = 0 and correct)
             using (model, operator, image, label)
        where lens = 'profile' and level > 0 and not correct
    """


def _breaks(options: Mapping[str, Any]) -> str:
    field = "level" if options["resample"] else "0"  # see `search.Search.ask`
    return f"""
        select model, operator, image, label, {parameters("knob")}, {field}, direction,
               100 * greatest(abs(severity), abs(coalesce(severity_x, 0)), abs(coalesce(severity_y, 0))), amount, {_ANSWER}
        from rows where lens = 'knob' and status = 'broken'
    """


def _spots(options: Mapping[str, Any]) -> str:
    return f"""
        select model, operator, image, label, {parameters("highlights")}, 0, null, least(100, 100 * strength), null,
               {_ANSWER}
        from rows where lens = 'highlights' and spot_x is not null and (status = 'broken' or (level > 0 and not correct and
             (model, operator, image, label) in (
                 select (model, operator, image, label) from rows where lens = 'highlights' and level = 0 and correct)))
    """


def _motions(options: Mapping[str, Any]) -> str:
    # scores have no end: 1, a path as long as the image's norm, is the middle of the scale
    return f"""
        select model, operator, image, label, {parameters("geometry")}, 0, null, 100 * score / (1 + score), score,
               {_UNASKED}
        from rows semi join (select model, image from clean where correct) using (model, image)
        where lens = 'geometry' and status = 'broken' and motion is not null
    """


def _windows(options: Mapping[str, Any]) -> str:
    """The window that is lost, then the one beside it that is right."""
    return f"""
        select model, operator, image, label, {parameters("fragility")}, 0, split_part(kind, ' ', 2),
               100 * greatest(1, {_SHRUNK}) / side, greatest(1, {_SHRUNK}), {_UNASKED}
        from rows where lens = 'fragility' and operator like 'windows:%' and fall is not null
    """


FAILURES.add("profile", Failures(_failing_levels, told="level", complete=lambda _: True))
FAILURES.add("knob", Failures(_breaks, told="severities"))
FAILURES.add(
    "highlights",
    # all models are asked about the same grid; the faintest spots are each one's own
    Failures(_spots, told="spot", complete=lambda name: name != "highlight:least"),
)
# searches move images without rounding, and a label is all that they look at
FAILURES.add("geometry", Failures(_motions, told="motion", answers=False, criterion="misclassification"))
FAILURES.add("fragility", Failures(_windows, told="windows", answers=False, pairs=True))
