"""A leaderboard: models ranked over everything that they were measured by."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from brinell.comparison.cells import share_smallest
from brinell.comparison.measures import TITLES, Column, describe_measure, format_estimate, image_values, measures_of
from brinell.comparison.overall import read_overall
from brinell.comparison.paired import MIN_IMAGES
from brinell.comparison.pairing import Subject, require_pairable, shorten_folders
from brinell.comparison.ranks import mean_over_operators, percentile_intervals, rank_values
from brinell.comparison.resampling import RESAMPLES, Array, resampled_sums
from brinell.comparison.slices import images_of
from brinell.errors import ConfigError, RunError
from brinell.lenses.reader import Measure
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.slices import Slice
from brinell.runs.statistics import CONFIDENCE, Estimate
from brinell.runs.words import join_names, note_few


@dataclass(frozen=True)
class LeaderboardRow:
    """One model: its mean rank (1 is best) over measures, within each of which operators count equally, and its figures.

    `position` is 1 + the number of models that are clearly better: models that can't be told apart share a position.
    `figures` are means over operators and `ranks` mean ranks over operators, by measure; `overall` are further figures that
    don't count in ranks, such as mPC and calibration. Intervals are over images.
    """

    model: str
    rank: Estimate
    ranks: dict[str, float]
    figures: dict[str, Estimate]
    position: int = 1
    overall: dict[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class Leaderboard:
    """The models, the best first. `measures` are the columns, with the titles of their operators and numbers of images.

    `skipped` are runs that could not be ranked with the others, by folder, with the reason. `slice` names the images that
    counted, if not all.
    """

    rows: tuple[LeaderboardRow, ...]
    measures: tuple[Measure, ...]
    operators: Mapping[str, Mapping[str, str]]
    images: Mapping[str, int]
    left_out: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    slice: str | None = None

    def verdict(self) -> str:
        """Return which models are ahead, in a sentence."""
        first = [row.model for row in self.rows if row.position == 1]
        few = note_few(min(self.images.values()))
        if len(first) == len(self.rows):
            return f"No model is clearly ahead: {join_names(first)} are tied.{few}"
        if len(first) == 1:
            return f"{first[0]} is clearly ahead of the others.{few}"
        return f"{join_names(first)} are tied for the first place.{few}"

    def heading(self, measure: Measure) -> str:
        """Return what a column shows."""
        count = len(self.operators[measure.name])
        over = "" if measure.lens is None else f", mean over {count} operator{'s' * (count > 1)}"
        what = describe_measure(measure, having="a value for all models")
        return f"{what}{over}; {measure.better} is better; {self.images[measure.name]} images"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "models": [to_plain(row) for row in self.rows],
            "columns": {
                measure.name: {
                    "what": self.heading(measure),
                    "better": measure.better,
                    "operators": list(self.operators[measure.name]),
                    "images": self.images[measure.name],
                }
                for measure in self.measures
            },
            "slice": self.slice,
            "left_out": list(self.left_out),
            "skipped": dict(self.skipped),
        }

    def _repr_html_(self) -> str:
        """Return the table, for notebooks."""
        heads = "".join(f"<th>{measure.name}</th>" for measure in self.measures)
        rows = "".join(
            f"<tr><td>{row.position}</td><td>{html.escape(row.model)}</td><td>{row.rank:.2f}</td>"
            + "".join(f"<td>{format_estimate(measure, row.figures[measure.name])}</td>" for measure in self.measures)
            + "</tr>"
            for row in self.rows
        )
        notes = [self.verdict(), *(f"skipped: {name}: {reason}" for name, reason in self.skipped.items())]
        paragraphs = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
        return f"<table><tr><th></th><th>model</th><th>mean rank</th>{heads}</tr>{rows}</table>{paragraphs}"


@dataclass(frozen=True)
class _Values:
    """A measure's values, (images, operators, models), with the titles of the operators."""

    measure: Measure
    operators: dict[str, str]
    values: Array


def rank_models(
    runs: Sequence[Run],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    other_draws: bool = False,
    slice: Slice | None = None,
) -> Leaderboard:
    """Rank the models of some runs. The same model, by name and content, may be in several runs of different lenses.

    Runs that are not finished, or did not measure the same on the same images, are skipped. With a `slice`, its images
    alone count.
    """
    runs, skipped = select_rankable(runs, other_draws=other_draws)
    runs = share_smallest(runs)
    entries = _find_entries(runs)
    if len(entries) < 2:
        first = next((f"; skipped {folder}: {reason}" for folder, reason in skipped.items()), "")
        others = f" (and {len(skipped) - 1} more)" if len(skipped) > 1 else ""
        raise ConfigError(f"a leaderboard needs two models or more; give the runs of several models{first}{others}")
    images = list(dict.fromkeys(image for run in runs for image in run.image_names))
    if slice is not None:
        images = images_of(slice, runs)
    found: list[_Values] = []
    left_out = []
    for measure in (one for one in measures_of(lens for run in runs for lens in run.lenses) if one.ranked):
        values = _collect(measure, list(entries.values()), images)
        if values.operators:
            found.append(values)
        else:
            left_out.append(f"{measure.name}: the models have no operator in common")
    if not found:
        options = {"seed": seed, "resamples": resamples, "other_draws": other_draws, "slice": slice}
        return _rank_by_one_lens(runs, entries, skipped, **options)
    overall, ranks, figures, better = _rank(found, seed, resamples)
    rows = [
        LeaderboardRow(
            model,
            overall[index],
            {one.measure.name: ranks[k][index] for k, one in enumerate(found)},
            {one.measure.name: figures[k][index] for k, one in enumerate(found)},
            1 + int(better[:, index].sum()),
            {} if slice is not None else read_overall(entries[model], next(iter(entries.values()))),
        )
        for index, model in enumerate(entries)
    ]
    return Leaderboard(
        tuple(sorted(rows, key=lambda row: (row.position, round(row.rank.value, 9)))),
        tuple(one.measure for one in found),
        {one.measure.name: one.operators for one in found},
        {one.measure.name: int((~np.isnan(one.values)).all((1, 2)).sum()) for one in found},
        tuple(left_out),
        skipped,
        None if slice is None else str(slice),
    )


def _rank_by_one_lens(
    runs: Sequence[Run], entries: Mapping[str, list[Subject]], skipped: Mapping[str, str], **options: Any
) -> Leaderboard:
    """Rank the runs of the lens that the most models were measured by, where the models have no measure in common."""
    lenses = {
        lens: sum(any(lens in one.run.lenses for one in own) for own in entries.values())
        for lens in dict.fromkeys(lens for run in runs for lens in run.lenses)
    }
    lens = max(lenses, key=lenses.__getitem__)
    others = {run.folder: f"no rows of the {lens} lens, which most models have" for run in runs if lens not in run.lenses}
    if not others:
        raise RunError("the models have no measure in common; run them with the same lens, operators and images")
    board = rank_models([run for run in runs if lens in run.lenses], **options)
    return replace(board, skipped={**skipped, **others, **board.skipped})


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
    folders = [run.folder for run in runs]
    short = dict(zip(folders, shorten_folders(folders), strict=True))
    return {
        name if names.count(name) == 1 else f"{name} ({', '.join(short[one.run.folder] for one in subjects)})": subjects
        for (name, _, _), subjects in held.items()
    }


def select_rankable(runs: Sequence[Run], *, other_draws: bool) -> tuple[list[Run], dict[str, str]]:
    """Return the finished runs that measured the same on the same images, and why the others are skipped.

    Of several such selections it is the one with the most models, then the most runs.
    """
    unfinished = {run.folder: "not finished; rerun its command to finish it" for run in runs if not run.finished}
    finished = [run for run in runs if run.finished]
    best, skipped = _keep_rankable(finished, other_draws)
    for first in finished[1:] if skipped else ():  # the first run may be the odd one
        others = [first, *(run for run in finished if run is not first)]
        kept, refused = _keep_rankable(others, other_draws)
        if (len(_find_entries(kept)), len(kept)) > (len(_find_entries(best)), len(best)):
            best, skipped = kept, refused
    return [run for run in finished if run in best], unfinished | skipped


def _keep_rankable(runs: Sequence[Run], other_draws: bool) -> tuple[list[Run], dict[str, str]]:
    """Return the runs that can be paired with the first one of their lens, and why the others can't."""
    firsts: dict[str, Run] = {}
    kept: list[Run] = []
    refused: dict[str, str] = {}
    for run in runs:
        try:
            for first in dict.fromkeys(firsts[lens] for lens in run.lenses if lens in firsts):
                require_pairable(first, run, other_draws=other_draws)
        except RunError as error:
            refused[run.folder] = str(error).partition("can't be paired: ")[2] or str(error)
            continue
        kept.append(run)
        firsts = {**dict.fromkeys(run.lenses, run), **firsts}
    return kept, refused


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
) -> tuple[list[Estimate], list[list[float]], list[list[Estimate]], Array]:
    """Return mean ranks over measures with intervals, each measure's own ranks, and its figures with intervals; and which
    models (rows) are clearly better than which (columns): in 97.5 % of the resamples or more.
    """
    per_measure, figures = [], []
    for one in found:
        known = ~np.isnan(one.values)
        columns = np.stack([np.nan_to_num(one.values), known.astype(np.float64)], 1)  # (N, 2, operators, models)
        sums = np.concatenate([columns.sum(0)[None], resampled_sums(columns, seed, resamples)])
        with np.errstate(invalid="ignore"):
            means = sums[:, 0] / sums[:, 1]  # the first is the sample itself
        per_measure.append(rank_values(means * -one.measure.sign).mean(1))  # (1 + resamples, models)
        figures.append(mean_over_operators(one.values, 1.0 if one.measure.unit == "points" else math.inf))
    mean_ranks = np.stack(per_measure).mean(0)
    differences = mean_ranks[1:, None, :] - mean_ranks[1:, :, None]  # (resamples, better, worse)
    enough = min(len(one.values) for one in found) >= MIN_IMAGES
    better = ((differences > 0).mean(0) >= (1 + CONFIDENCE) / 2) & enough
    return percentile_intervals(mean_ranks), [ranks[0].tolist() for ranks in per_measure], figures, better


def format_operators(board: Leaderboard, measure: Measure) -> str:
    """Return the operators of a column in words."""
    return ", ".join(board.operators[measure.name].values())
