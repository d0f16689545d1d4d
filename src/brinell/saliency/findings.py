"""How far saliency shifts, from the table of pairs: for changed images that fail, and for those that don't."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from brinell.lenses.reader import Figures, PrintedFindings, Reader
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.schema import Schema
from brinell.runs.statistics import Estimate, mean, overlap, ratio
from brinell.runs.words import format_share

#: the table saliency.parquet: one row per changed image that was compared
COLUMNS: Schema = {
    "lens": "name",
    "model": "name",
    "operator": "name",
    "image": "name",
    # of the lens's row; null for a control that the lens has no row for
    "level": "int16",
    "parameters": "float64[]",
    "label": "int32",
    "clean_prediction": "int32",
    "prediction": "int32",
    "failed": "bool",  # by the criterion; the others are the control
    "clean_cell": "int16",  # the fullest cell, by the paper's rule; null where a map is empty
    "cell": "int16",
    "shifted": "bool",  # those two differ
    "clean_equal_cell": "int16",  # the same with cells of equal size
    "equal_cell": "int16",
    "equal_shifted": "bool",
    "tied": "bool",  # several cells are the fullest
    "overlap": "float64",  # intersection over union of the hot pixels
    "distance": "float64",  # between the maps' centres of mass, as a share of the diagonal
}


@dataclass(frozen=True)
class ShiftRate:
    """One model under one operator of a lens: changed images that `failed`, or the control, those that did not.

    `shifted` is the share of pairs whose fullest cells differ, by the paper's rule; `equal_shifted` is the same with
    cells of equal size; `tied` is the share of pairs in which several cells are the fullest. `overlap` and `distance`
    are means over images.
    """

    lens: str
    model: str
    operator: str
    failed: bool
    pairs: int
    images: int
    shifted: Estimate
    equal_shifted: Estimate
    tied: float
    overlap: Estimate
    distance: Estimate


@dataclass(frozen=True, repr=False)
class SaliencyFindings(PrintedFindings):
    """Everything about saliency: how often it shifts, from which layers, and which models have no maps (`without`)."""

    shifts: list[ShiftRate]
    options: Mapping[str, Any]
    layers: dict[str, str]
    without: dict[str, str]
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Models, in the order of the run."""
        return [*self.layers, *self.without]

    @property
    def operators(self) -> list[str]:
        """Operators, in the order in which they are shown."""
        return list(dict.fromkeys(one.operator for one in self.shifts))

    def of(self, model: str) -> list[ShiftRate]:
        """Return the rates of one model."""
        return [one for one in self.shifts if one.model == model]

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence."""
        if model in self.without:
            return f"{model} has no saliency maps: {self.without[model]}."
        own = self.of(model)
        failing = [one for one in own if one.failed]
        if not failing:
            return f"No change made {model} fail, so there is nothing to compare."
        one = max(failing, key=lambda one: one.pairs)
        change = self.titles.get(one.operator, one.operator)
        shifts = f"Under {change}, the saliency of {model} shifts in {_describe_rate(one)} failing images"
        control = [each for each in own if not each.failed and (each.lens, each.operator) == (one.lens, one.operator)]
        if not control:
            return f"{shifts}."
        clear = ": no clear difference" if overlap(one.equal_shifted, control[0].equal_shifted) else ""
        return f"{shifts} and in {_describe_rate(control[0])} images that don't fail{clear}."

    def table(self) -> list[dict[str, Any]]:
        """Return one record per model, operator and kind of pair."""
        return [to_plain(one) for one in self.shifts]

    def figures(self) -> Iterator[Figures]:
        """Yield the figures of each model and operator, under the lens that changed the images."""
        for one in self.shifts:
            kind = "failing" if one.failed else "control"
            values = {name: value for name, value in vars(one).items() if name != "failed"}
            yield one.model, one.operator, 0, {one.lens: {kind: values}}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "options": dict(self.options),
            "layers": self.layers,
            "without": self.without,
            "verdicts": {model: self.verdict(model) for model in self.models},
            "shifts": self.table(),
        }


def _describe_rate(one: ShiftRate) -> str:
    """Return "1 of 1", or a share with its interval, "36% [12–68%] of 25"."""
    share = one.equal_shifted
    if math.isnan(share.low):
        return "no" if math.isnan(share.value) else f"{round(share.value * one.pairs)} of {one.pairs}"
    return f"{format_share(share)} of {one.pairs}"


_IMAGES = """
    select lens, model, operator, failed, image, count(*) as pairs, count(shifted) as b, count(*) filter (shifted) as a,
           count(*) filter (equal_shifted) as e, count(*) filter (tied) as tied, avg(overlap) as overlap,
           avg(distance) as distance
    from saliency group by all
"""
_SHIFTS = f"""
    select lens, model, operator, failed, sum(pairs), count(*), sum(tied) / sum(pairs),
           sum(a), sum(b), sum(a * a), sum(a * b), sum(b * b), sum(e), sum(e * e), sum(e * b),
           avg(overlap), stddev_samp(overlap), avg(distance), stddev_samp(distance)
    from ({_IMAGES}) group by all order by lens, model, operator, failed desc
"""


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> SaliencyFindings:
    """Compute the findings from the table `saliency` and what the manifest stores about it."""
    stored = run.manifest["saliency"]
    shifts = []
    for lens, model, operator, failed, pairs, images, tied, *rest in run.query(_SHIFTS):
        a, b, aa, ab, bb, e, ee, eb, overlap, spread, distance, deviation = rest
        shifts.append(
            ShiftRate(
                lens=lens,
                model=model,
                operator=operator,
                failed=failed,
                pairs=pairs,
                images=images,
                shifted=ratio(a, b, aa, ab, bb),
                equal_shifted=ratio(e, b, ee, eb, bb),
                tied=tied,
                overlap=mean(math.nan if overlap is None else overlap, spread, images, most=1),
                distance=mean(math.nan if distance is None else distance, deviation, images),
            )
        )
    titles = {one.operator: run.title(one.operator) for one in shifts}
    return SaliencyFindings(shifts, stored["options"], stored["layers"], stored["without"], titles)


READER = Reader(columns=COLUMNS, find=find, changed="false", parameters="[]")
