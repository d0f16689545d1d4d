"""Decisions from runs: compare them, gate a release, rank models. Importing this needs no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.comparison.compare import Comparison, compare_runs
from brinell.comparison.gates import GateResult, check_gate, check_run, store_gate
from brinell.comparison.leaderboard import Leaderboard, rank_models
from brinell.comparison.rules import Gate, read_gate
from brinell.comparison.slices import list_slices
from brinell.errors import RunError
from brinell.results import Run
from brinell.runs.run import Run as OpenedRun
from brinell.runs.slices import Slice


def compare(
    *runs: Run | str | os.PathLike[str],
    pairs: Sequence[str] = (),
    other_draws: bool = False,
    common_images: bool = False,
    alpha: float = 0.05,
) -> Comparison:
    """Compare runs with the first of them, or the models of one run with its first, image by image.

    Models are matched by `pairs` ("OLD=NEW"), else by name, else the only one of each. Runs must have measured the same on
    the same images; `other_draws` allows other seeds, `common_images` compares the images that both have.
    """
    opened = [one if isinstance(one, OpenedRun) else Run(one) for one in runs]
    return compare_runs(opened, pairs, other_draws=other_draws, common_images=common_images, alpha=alpha)


def gate(
    subject: Run | Comparison | str | os.PathLike[str],
    rules: str | os.PathLike[str] | Mapping[str, Any] | Gate,
    *,
    store: bool = True,
) -> GateResult:
    """Check a run, or a comparison of runs, against rules: a YAML file, or the same as a mapping.

    The rules of a run and their checks are stored in its folder, so that its report shows them, unless `store` is False.
    """
    chosen = read_gate(Path(rules) if isinstance(rules, (str, os.PathLike)) else rules)
    if isinstance(subject, Comparison):
        return check_gate(chosen, subject)
    run = subject if isinstance(subject, OpenedRun) else Run(subject)
    result = check_run(chosen, run)
    if store:
        store_gate(run, result)
    return result


def leaderboard(
    *runs: Run | str | os.PathLike[str],
    other_draws: bool = False,
    slice: str | None = None,
) -> Leaderboard:
    """Rank the models of several runs over everything that they were measured by.

    Folders that hold no run, unfinished runs and those that can't be compared are skipped, and listed in `skipped`. With a
    `slice`, COLUMN=VALUE of the images' metadata or of `class`, its images alone count.
    """
    opened, skipped = _open(runs)
    board = rank_models(opened, other_draws=other_draws, slice=None if slice is None else Slice.parse(slice))
    return replace(board, skipped={**skipped, **board.skipped})


def slices(*runs: Run | str | os.PathLike[str], column: str) -> list[str]:
    """Return the slices of a column, as COLUMN=VALUE: of the images' metadata, or of `class`."""
    return [str(one) for one in list_slices(_open(runs)[0], column)]


def _open(runs: Sequence[Run | str | os.PathLike[str]]) -> tuple[list[OpenedRun], dict[str, str]]:
    """Return the runs, and why some folders hold none."""
    opened: list[OpenedRun] = []
    skipped = {}
    for one in runs:
        if isinstance(one, OpenedRun):
            opened.append(one)
            continue
        folder = os.fspath(one)
        try:
            opened.append(Run(folder))
        except RunError as error:
            skipped[folder] = str(error).removeprefix(f"{folder} is ")
    if not opened:
        raise RunError("; ".join(skipped.values()) or "no run was given; give the folders of finished runs")
    return opened, skipped
