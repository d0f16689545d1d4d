"""A leaderboard: models ranked over everything that they were measured by."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell.comparison.measures import TITLES, Column, describe_measure, format_estimate, image_values, measures_of
from brinell.comparison.pairing import Subject, require_pairable
from brinell.comparison.resampling import RESAMPLES, Array, resampled_sums
from brinell.errors import ConfigError, RunError
from brinell.lenses.reader import Measure
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.statistics import CONFIDENCE, Estimate, mean


@dataclass(frozen=True)
class LeaderboardRow:
    """One model: its mean rank (1 is best) over measures, within each of which operators count equally, and its figures.

    `figures` are means over operators and `ranks` mean ranks over operators, by measure. Intervals are over images.
    """

    model: str
    rank: Estimate
    ranks: dict[str, float]
    figures: dict[str, Estimate]


@dataclass(frozen=True)
class Leaderboard:
    """The models, the best first. `measures` are the columns, with the titles of their operators and numbers of images."""

    rows: tuple[LeaderboardRow, ...]
    measures: tuple[Measure, ...]
    operators: Mapping[str, Mapping[str, str]]
    images: Mapping[str, int]
    left_out: tuple[str, ...] = ()

    def heading(self, measure: Measure) -> str:
        """Return what a column shows."""
        count = len(self.operators[measure.name])
        over = "" if measure.lens is None else f", mean over {count} operator{'s' * (count > 1)}"
        what = describe_measure(measure, having="a value for all models")
        return f"{what}{over}; {measure.better} is better; {self.images[measure.name]} images"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "models": [{"position": position, **to_plain(row)} for position, row in enumerate(self.rows, 1)],
            "columns": {
                measure.name: {
                    "what": self.heading(measure),
                    "better": measure.better,
                    "operators": list(self.operators[measure.name]),
                    "images": self.images[measure.name],
                }
                for measure in self.measures
            },
            "left_out": list(self.left_out),
        }

    def _repr_html_(self) -> str:
        """Return the table, for notebooks."""
        heads = "".join(f"<th>{measure.name}</th>" for measure in self.measures)
        rows = "".join(
            f"<tr><td>{position}</td><td>{html.escape(row.model)}</td><td>{row.rank:.2f}</td>"
            + "".join(f"<td>{format_estimate(measure, row.figures[measure.name])}</td>" for measure in self.measures)
            + "</tr>"
            for position, row in enumerate(self.rows, 1)
        )
        return f"<table><tr><th></th><th>model</th><th>mean rank</th>{heads}</tr>{rows}</table>"


@dataclass(frozen=True)
class _Values:
    """A measure's values, (images, operators, models), with the titles of the operators."""

    measure: Measure
    operators: dict[str, str]
    values: Array


def rank_models(
    runs: Sequence[Run], *, seed: int = 0, resamples: int = RESAMPLES, other_draws: bool = False
) -> Leaderboard:
    """Rank the models of some runs. The same model, by name and content, may be in several runs of different lenses."""
    for run in runs:
        run.require_finished()
    entries = _find_entries(runs)
    if len(entries) < 2:
        raise ConfigError("a leaderboard needs two models or more; give the runs of several models")
    _require_rankable(runs, other_draws)
    images = list(dict.fromkeys(image for run in runs for image in run.image_names))
    found: list[_Values] = []
    left_out = []
    for measure in (one for one in measures_of(lens for run in runs for lens in run.lenses) if one.ranked):
        values = _collect(measure, list(entries.values()), images)
        if values.operators:
            found.append(values)
        else:
            left_out.append(f"{measure.name}: the models have no operator in common")
    if not found:
        raise RunError("the models have no measure in common; run them with the same lens, operators and images")
    overall, ranks, figures = _rank(found, seed, resamples)
    rows = [
        LeaderboardRow(
            model,
            overall[index],
            {one.measure.name: ranks[k][index] for k, one in enumerate(found)},
            {one.measure.name: figures[k][index] for k, one in enumerate(found)},
        )
        for index, model in enumerate(entries)
    ]
    return Leaderboard(
        tuple(sorted(rows, key=lambda row: row.rank.value)),
        tuple(one.measure for one in found),
        {one.measure.name: one.operators for one in found},
        {one.measure.name: int((~np.isnan(one.values)).all((1, 2)).sum()) for one in found},
        tuple(left_out),
    )


def _find_entries(runs: Sequence[Run]) -> dict[str, list[Subject]]:
    """Return the models, each with its runs: one model, by name and content, may have been measured by several lenses.

    Different models of the same name, and one that was measured twice by one lens, are distinguished by their folders.
    """
    held: dict[tuple[str, str, int], list[Subject]] = {}
    for run in runs:
        for name, model in run.models.items():
            turn = 0
            while any(set(other.run.lenses) & set(run.lenses) for other in held.get((name, model.fingerprint, turn), [])):
                turn += 1
            held.setdefault((name, model.fingerprint, turn), []).append(Subject(run, name))
    names = [name for name, _, _ in held]
    return {
        name if names.count(name) == 1 else f"{name} ({', '.join(one.run.folder for one in subjects)})": subjects
        for (name, _, _), subjects in held.items()
    }


def _require_rankable(runs: Sequence[Run], other_draws: bool) -> None:
    """Raise if runs of one lens did not measure the same on the same images."""
    firsts: dict[str, Run] = {}
    for run in runs:
        for lens in run.lenses:
            first = firsts.setdefault(lens, run)
            if first is not run:
                require_pairable(first, run, other_draws=other_draws)


def _collect(measure: Measure, entries: list[list[Subject]], images: list[str]) -> _Values:
    """Return the values of the operators that every model has, for the images that every model has."""
    held: list[dict[Column, Array]] = []
    titles = dict(TITLES)
    for sides in entries:
        mine: dict[Column, Array] = {}
        for side in sides:
            found = image_values(side.run, measure, side.model, images)
            mine = {**found, **mine}
            titles |= {operator: side.run.title(operator) for operator, _ in found if operator not in TITLES}
        held.append(mine)
    columns = [column for column in held[0] if all(column in mine for mine in held)]
    operators, kept = {}, [np.empty((len(images), 0, len(held)))]
    for column in columns:
        values = np.stack([mine[column] for mine in held], 1)
        values = np.where(np.isnan(values).any(1, keepdims=True), np.nan, values)
        if not np.isnan(values).all():
            operators[column[0]] = titles[column[0]]
            kept.append(values[:, None])
    return _Values(measure, operators, np.concatenate(kept, 1))


def _rank(
    found: list[_Values], seed: int, resamples: int
) -> tuple[list[Estimate], list[list[float]], list[list[Estimate]]]:
    """Return mean ranks over measures with intervals, each measure's own ranks, and its figures with intervals."""
    per_measure, figures = [], []
    for one in found:
        known = ~np.isnan(one.values)
        columns = np.stack([np.nan_to_num(one.values), known.astype(np.float64)], 1)  # (N, 2, operators, models)
        sums = np.concatenate([columns.sum(0)[None], resampled_sums(columns, seed, resamples)])
        with np.errstate(invalid="ignore"):
            means = sums[:, 0] / sums[:, 1]  # the first is the sample itself
        per_measure.append(_ranks(means * -one.measure.sign).mean(1))  # (1 + resamples, models)
        figures.append(mean_over_operators(one.values, 1.0 if one.measure.unit == "points" else math.inf))
    overall = _intervals(np.stack(per_measure).mean(0))
    return overall, [ranks[0].tolist() for ranks in per_measure], figures


def mean_over_operators(values: Array, most: float) -> list[Estimate]:
    """Return each model's mean over operators, of values (images, operators, models) in [0, most].

    Intervals are over images. Operators may have values for different images.
    """
    values = values[(~np.isnan(values)).any((1, 2))]
    images, known = len(values), ~np.isnan(values)
    count = known.sum(0)  # by operator and model
    means = np.nansum(values, 0) / count
    contributions = np.where(known, (values - means) * images / count, 0).mean(1)  # of every image to the mean
    deviations = np.sqrt((contributions**2).sum(0) / max(1, images - 1))
    return [mean(float(m), float(d), images, most) for m, d in zip(means.mean(0), deviations, strict=True)]


def _ranks(values: Array) -> Array:
    """Return ranks along the last axis, from 1 for the smallest; equal values share their mean rank."""
    less = (values[..., None, :] < values[..., :, None]).sum(-1)
    same = (values[..., None, :] == values[..., :, None]).sum(-1)
    ranks: Array = less + (same + 1) / 2
    return ranks


def _intervals(samples: Array) -> list[Estimate]:
    """Return the first row with the percentiles of the others."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(samples[1:], [tail, 1 - tail], axis=0)
    return [Estimate(*map(float, each)) for each in zip(samples[0], low, high, strict=True)]


def format_operators(board: Leaderboard, measure: Measure) -> str:
    """Return the operators of a column in words."""
    return ", ".join(board.operators[measure.name].values())
