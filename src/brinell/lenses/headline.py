"""The headline figure of each lens and model, with its interval: what a budget with a target width makes narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from brinell.lenses.lens import LENSES
from brinell.lenses.reader import Measure
from brinell.runs.run import Run
from brinell.runs.sequences import ConfidenceSequence
from brinell.runs.statistics import Estimate

_VALUES = "select model, image, avg(value) as value from ({sql}) where value is not null group by all order by all"


@dataclass(frozen=True)
class Headline:
    """A model's headline share by a lens, averaged over operators within each image."""

    lens: str
    model: str
    measure: Measure
    value: Estimate

    @property
    def what(self) -> str:
        """The figure in words."""
        return self.measure.what

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.value.high - self.value.low) / 2

    @property
    def words(self) -> str:
        """The value and its interval, such as "61.3% ± 2.1%"."""
        return f"{self.value.value:.1%} ± {self.half_width:.1%}"


def headline_sequences(run: Run, images: Sequence[str], total: int, width: float) -> list[Headline]:
    """Return headline figures with intervals that hold whenever a run stops, from images in the order in which they came.

    They are about the mean over all `total` images, of which these were drawn at random.
    """
    order = {image: place for place, image in enumerate(images)}
    found = []
    for lens in run.lenses:
        measure = share_measure(lens)
        if measure is None or lens not in run.measured:
            continue
        rows = run.query(_VALUES.format(sql=measure.sql.format(**run.lens(lens))))
        for model in dict.fromkeys(row[0] for row in rows):
            known = sorted((order[image], value) for owner, image, value in rows if owner == model and image in order)
            values = np.array([value for _, value in known])
            sequence = ConfidenceSequence(width, size=total if len(known) == len(images) else None)
            sequence.add(values)
            found.append(Headline(lens, model, measure, sequence.estimate))
    return found


def share_measure(lens: str) -> Measure | None:
    """Return the headline measure of a lens that is a share, or else its first measure that is one; None if it has none."""
    shares = [one for one in LENSES[lens].reader.measures if one.unit == "points" and not one.by_level]
    return next((one for one in shares if one.headline), shares[0] if shares else None)
