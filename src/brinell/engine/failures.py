"""What each lens's rows say of failures, as versions that can be made again.

A lens takes part by one entry in `FAILURES`: a question to its rows that gives the columns of `COLUMNS`, and the way from
an operator's name to the change that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from brinell.engine.remake import Makeable
from brinell.perturb import find_operator, find_property, highlight, use_frost_template
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

    `question` is given the lens's options and asks the table `rows`; `change` is told an operator's name and the options.
    Where the rows of an operator are `complete`, a model that they don't name at a version doesn't fail there; elsewhere it
    has to be asked.
    `told` is what the parameters are called.
    """

    question: Callable[[Mapping[str, Any]], str]
    change: Callable[[str, Mapping[str, Any]], Makeable]
    told: str
    complete: Callable[[str], bool] = lambda operator: False
    originals: bool = False


FAILURES: Registry[Failures] = Registry("lens with failures")

_ANSWER = f"prediction, confidence, probability, {', '.join(DISTANCES)}"


def _failing_levels(options: Mapping[str, Any]) -> str:
    return f"""
        select model, operator, image, label, [level::double], 0, null, 100 * level / {LEVELS}, amount, {_ANSWER}
        from rows semi join
             (select model, operator, image, label from rows where lens = 'profile' and level = 0 and correct)
             using (model, operator, image, label)
        where lens = 'profile' and level > 0 and not correct
    """


def _breaks(options: Mapping[str, Any]) -> str:
    field = "level" if options["resample"] else "0"  # see `search.Search.ask`
    return f"""
        select model, operator, image, label,
               case when severity_x is null then [severity] else [severity, severity_x, severity_y] end, {field}, direction,
               100 * greatest(abs(severity), abs(coalesce(severity_x, 0)), abs(coalesce(severity_y, 0))), amount, {_ANSWER}
        from rows where lens = 'knob' and status = 'broken'
    """


def _property(name: str, options: Mapping[str, Any]) -> Makeable:
    if options.get("frost") is not None and name.partition(":")[0] == "frost":
        use_frost_template(options["frost"])
    return find_property(name)


def _spots(options: Mapping[str, Any]) -> str:
    return f"""
        select model, operator, image, label, [spot_x, spot_y, sigma, strength], 0, null, least(100, 100 * strength), null,
               {_ANSWER}
        from rows where lens = 'highlights' and spot_x is not null and (status = 'broken' or (level > 0 and not correct and
             (model, operator, image, label) in (
                 select (model, operator, image, label) from rows where lens = 'highlights' and level = 0 and correct)))
    """


def _spot(name: str, options: Mapping[str, Any]) -> Makeable:
    red, green, blue = options["colour"]
    return highlight(name.partition(":")[2], (red, green, blue))


FAILURES.add(
    "profile", Failures(_failing_levels, lambda name, _: find_operator(name), told="level", complete=lambda _: True)
)
FAILURES.add("knob", Failures(_breaks, _property, told="severities"))
FAILURES.add(
    "highlights",
    # all models are asked about the same grid; the faintest spots are each one's own
    Failures(_spots, _spot, told="spot", complete=lambda name: name != "highlight:least", originals=True),
)
