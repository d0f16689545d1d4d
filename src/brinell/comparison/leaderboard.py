"""A leaderboard: many models over all that was measured of them, by their mean rank."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.comparison.contrasts import operator_title
from brinell.comparison.measures import Column, Measure, image_values, measures_of
from brinell.comparison.paired import RESAMPLES, Array, resampled_sums
from brinell.comparison.pairing import Opened, Subject, refuse_unpaired
from brinell.errors import ConfigError, RunError
from brinell.runs.statistics import CONFIDENCE, Estimate


@dataclass(frozen=True)
class Standing:
    """One model: its mean rank (1 is best) over measures, in each of which operators count the same, and its figures.

    `figures` are means over operators, and `ranks` mean ranks over them, by measure. Intervals are over images.
    """

    model: str
    rank: Estimate
    ranks: dict[str, float]
    figures: dict[str, Estimate]


@dataclass(frozen=True)
class Leaderboard:
    """The models, the best first; `measures` are its columns, each over so many operators and images."""

    standings: tuple[Standing, ...]
    measures: tuple[Measure, ...]
    operators: dict[str, tuple[str, ...]]
    images: dict[str, int]
    left_out: tuple[str, ...] = ()

    def heading(self, measure: Measure) -> str:
        """What a column is."""
        count = len(self.operators[measure.name])
        over = "" if measure.lens is None else f", mean over {count} operator{'s' * (count > 1)}"
        common = measure.what.replace(", of images that broke in both", ", of images that broke for all")
        return f"{common}{over}; {measure.better} is better; {self.images[measure.name]} images"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "models": [
                {
                    "place": place,
                    "model": one.model,
                    "rank": _plain(asdict(one.rank)),
                    "ranks": one.ranks,
                    "figures": {name: _plain(asdict(figure)) for name, figure in one.figures.items()},
                }
                for place, one in enumerate(self.standings, 1)
            ],
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
        """The table, for notebooks."""
        heads = "".join(f"<th>{measure.name}</th>" for measure in self.measures)
        rows = "".join(
            f"<tr><td>{place}</td><td>{html.escape(one.model)}</td><td>{one.rank:.2f}</td>"
            + "".join(f"<td>{figure(measure, one.figures[measure.name])}</td>" for measure in self.measures)
            + "</tr>"
            for place, one in enumerate(self.standings, 1)
        )
        return f"<table><tr><th></th><th>model</th><th>mean rank</th>{heads}</tr>{rows}</table>"


def leaderboard(
    folders: Sequence[str | os.PathLike[str]], *, seed: int = 0, resamples: int = RESAMPLES, other_draws: bool = False
) -> Leaderboard:
    """Rank the models of some runs. The same model, by name and content, may be in several, each of another lens."""
    runs = [Opened.of(folder) for folder in folders]
    entries = _entries(runs)
    if len(entries) < 2:
        raise ConfigError("a leaderboard needs two models or more; give the runs of several")
    _refuse_unranked(runs, other_draws)
    images = list(dict.fromkeys(image for run in runs for image in run.names))
    found: list[tuple[Measure, list[str], Array]] = []
    left_out = []
    for measure in (one for one in measures_of([lens for run in runs for lens in run.lenses]) if one.ranked):
        columns, values = _values(measure, entries, images)
        if columns:
            found.append((measure, [operator for operator, _ in columns], values))
        else:
            left_out.append(f"{measure.name}: not every model has an operator in common")
    if not found:
        raise RunError("the models have no measure in common; run them with the same lens, operators and images")
    ranks, figures = _ranked(found, seed, resamples)
    standings = [
        Standing(
            model,
            ranks[0][place],
            {measure.name: ranks[1][k][place] for k, (measure, _, _) in enumerate(found)},
            {measure.name: figures[k][place] for k, (measure, _, _) in enumerate(found)},
        )
        for place, model in enumerate(entries)
    ]
    standings.sort(key=lambda one: one.rank.value)
    return Leaderboard(
        tuple(standings),
        tuple(measure for measure, _, _ in found),
        {measure.name: tuple(operators) for measure, operators, _ in found},
        {measure.name: int((~np.isnan(values)).all((1, 2)).sum()) for measure, _, values in found},
        tuple(left_out),
    )


def _entries(runs: list[Opened]) -> dict[str, list[Subject]]:
    """The models, each with its runs: the same one, by name and content, may have been measured by several lenses.

    Others of the same name, and one that was measured twice by one lens, are told apart by their folders.
    """
    held: dict[tuple[str, str, int], list[Subject]] = {}
    for run in runs:
        for model in run.models:
            content, turn = str(run.manifest["identity"]["models"][model].get("fingerprint")), 0
            while any(set(other.run.lenses) & set(run.lenses) for other in held.get((model, content, turn), [])):
                turn += 1
            held.setdefault((model, content, turn), []).append(Subject(run, model))
    names = [model for model, _, _ in held]
    return {
        model if names.count(model) == 1 else f"{model} ({', '.join(one.run.folder for one in subjects)})": subjects
        for (model, _, _), subjects in held.items()
    }


def _refuse_unranked(runs: list[Opened], other_draws: bool) -> None:
    """Runs of one lens must have asked the same about the same images."""
    firsts: dict[str, Opened] = {}
    for run in runs:
        for lens in run.lenses:
            first = firsts.setdefault(lens, run)
            if first is not run:
                refuse_unpaired(first, run, other_draws=other_draws)


def _values(measure: Measure, entries: dict[str, list[Subject]], images: list[str]) -> tuple[list[Column], Array]:
    """The columns that every model has, and their values, (images, columns, models)."""
    held: list[dict[Column, Array]] = []
    for sides in entries.values():
        mine: dict[Column, Array] = {}
        for side in sides:
            if measure.lens is None or measure.lens in side.run.lenses:
                options = side.run.lens(measure.lens)
                found = image_values(side.run.store.connect(), measure, options, side.model, images)
                mine = {**found, **mine}
        held.append(mine)
    columns = [column for column in held[0] if all(column in mine for mine in held)]
    # only images that all models have count: figures of others would be about other images
    stacked = [np.stack([mine[column] for mine in held], 1) for column in columns]
    shared = [np.where(np.isnan(values).any(1, keepdims=True), np.nan, values) for values in stacked]
    kept = [place for place, values in enumerate(shared) if not np.isnan(values).all()]
    if not kept:
        return [], np.empty((len(images), 0, len(held)))
    return [columns[place] for place in kept], np.stack([shared[place] for place in kept], 1)


def _ranked(
    found: list[tuple[Measure, list[str], Array]], seed: int, resamples: int
) -> tuple[tuple[list[Estimate], list[list[float]]], list[list[Estimate]]]:
    """Mean ranks over measures with intervals, each measure's own, and its figures with intervals."""
    per_measure, figures = [], []
    for measure, _, values in found:
        known = torch.from_numpy(~np.isnan(values))
        filled = torch.from_numpy(np.nan_to_num(values))
        columns = torch.stack([filled, known.to(torch.float64)], 1)  # (N, 2, columns, models)
        sums = torch.cat([columns.sum(0)[None], resampled_sums(columns, seed, resamples)])
        means = sums[:, 0] / sums[:, 1]  # the first is the sample itself
        per_measure.append(_ranks(means * -measure.sign).mean(1))  # (1 + resamples, models)
        figures.append(_intervals(means.mean(1)))
    overall = _intervals(torch.stack(per_measure).mean(0))
    return (overall, [ranks[0].tolist() for ranks in per_measure]), figures


def _ranks(values: Tensor) -> Tensor:
    """Places along the last axis, from 1, the smallest first; equals share their mean place."""
    less = (values[..., None, :] < values[..., :, None]).sum(-1)
    same = (values[..., None, :] == values[..., :, None]).sum(-1)
    return less + (same + 1) / 2


def _intervals(samples: Tensor) -> list[Estimate]:
    """The first row with the percentiles of the others."""
    tail = (1 - CONFIDENCE) / 2
    low, high = torch.nanquantile(samples[1:], torch.tensor([tail, 1 - tail], dtype=samples.dtype), dim=0)
    return [Estimate(*map(float, each)) for each in zip(samples[0], low, high, strict=True)]


def figure(measure: Measure, value: Estimate) -> str:
    """A figure for people, in its measure's unit."""
    if math.isnan(value.value):
        return "–"
    if measure.unit == "points":
        return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}]"
    return f"{value.value:.2g} [{value.low:.2g}, {value.high:.2g}]"


def operators_told(board: Leaderboard, measure: Measure) -> str:
    """The operators of a column in words."""
    return ", ".join(operator_title(operator) for operator in board.operators[measure.name])


def _plain(record: dict[str, float]) -> dict[str, float | None]:
    return {key: value if math.isfinite(value) else None for key, value in record.items()}
