"""Decisions from runs: compare them, gate a release, rank models. Importing this needs no torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from brinell.comparison.compare import Comparison, compare_runs
from brinell.comparison.gates import Gate, GateResult, check_gate, load_gate
from brinell.comparison.leaderboard import Leaderboard, rank_models
from brinell.errors import RunError
from brinell.results import Run
from brinell.runs.run import Run as OpenedRun
from brinell.validation import validate


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


def gate(comparison: Comparison, rules: str | os.PathLike[str] | Mapping[str, Any] | Gate) -> GateResult:
    """Check a comparison against rules: a YAML file, or the same as a mapping."""
    if isinstance(rules, (str, os.PathLike)):
        rules = load_gate(Path(rules))
    return check_gate(rules if isinstance(rules, Gate) else validate(Gate, dict(rules)), comparison)


def leaderboard(*runs: Run | str | os.PathLike[str], other_draws: bool = False) -> Leaderboard:
    """Rank the models of several runs over everything that they were measured by.

    Folders that hold no run, unfinished runs and those that can't be compared are skipped, and listed in `skipped`.
    """
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
    board = rank_models(opened, other_draws=other_draws)
    return replace(board, skipped={**skipped, **board.skipped})
