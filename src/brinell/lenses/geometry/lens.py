"""The geometry lens (ManiFool, CVPR 2018): the smallest motion that changes a model's label, and what random motions do.

Four methods. `manifool` follows the gradient of the scores and needs a differentiable model; `manitest` marches over a
grid of up to four coordinates; `random` moves images by given geodesic scores; `grid` queries a fixed grid of motions.
The label that has to change is the model's own on the clean image, or with `against: truth` the true one.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.geometry.black_box import grid_motions, grid_points, grid_search, parts_of, random_motions
from brinell.lenses.geometry.manifool import (
    BACKTRACKS,
    FOOLED,
    NOT_ON_GRID,
    REASONS,
    SILENT,
    WRONG,
    Fooled,
    Pace,
    default_pace,
    default_retry,
    manifool,
)
from brinell.lenses.geometry.manitest import CANDIDATES, MOST_DIMENSIONS, MOST_NODES, grid_of, manitest
from brinell.lenses.geometry.options import GeometryOptions
from brinell.lenses.lens import Entry
from brinell.lenses.method import (
    NO_ANSWER,
    Categorical,
    Columns,
    Done,
    Measuring,
    Method,
    Nullable,
    Shard,
    Size,
    Task,
    halve,
)
from brinell.lenses.outcomes import BROKEN, FAILED, SKIPPED, STATUSES, SURVIVED
from brinell.motion.groups import GROUPS, Group
from brinell.perturb.change import Change
from brinell.perturb.motion import Motion

OUT_OF_REACH = len(REASONS)
_REASONS = (*REASONS, "the motion leaves the frame or turns by more than a half before it has this score")


def measure(shard: Shard, operator: Motion, options: GeometryOptions) -> Measuring:
    """Return one row per sample, with the smallest motion; for random motions one per sample, draw and score."""
    group, verdict = operator.group, shard.clean.verdict
    label = verdict.prediction.cpu()
    wrong = (verdict.rank > 0).cpu() if options.against == "truth" else torch.zeros_like(label, dtype=torch.bool)
    height, width = shard.height, shard.width
    if operator.method == "random":
        wanted = torch.tensor(options.radii, dtype=torch.float64)
        whitened = options.directions == "metric"
        moved = yield from random_motions(
            group, shard.count, wanted, options.draws, whitened=whitened, eta=options.eta, least=options.min_change
        )
        status = torch.where(moved.label != label[moved.sample], BROKEN, SURVIVED)
        status[moved.label == NO_ANSWER] = FAILED
        reason = torch.where(moved.reached, FOOLED, OUT_OF_REACH)
        reason[wrong[moved.sample]] = WRONG
        status[reason != FOOLED] = SKIPPED
        told = moved.reached
        return {
            **_common(moved.sample, status, moved.label, reason, told),
            "level": torch.arange(len(wanted)).repeat(shard.count * options.draws),
            "amount": moved.wanted,
            "draw": moved.draw,
            "score": Nullable(moved.score, told),
            "motion": Nullable(moved.motion, told),
        }
    truth = None if options.against == "answer" else torch.where(wrong, -3, label)
    if operator.method == "manifool":
        found = yield from manifool(group, shard.count, pace_of(options, height, width), truth)
    elif operator.method == "manitest":
        grid = grid_of(group, height, width, options.grid_pixels)
        found = yield from manitest(
            group,
            shard.count,
            grid,
            eta=options.eta,
            least=options.min_change,
            truth=truth,
            backtrack=options.backtrack,
        )
    else:
        found = yield from _on_grid(group, label, wrong, height, width, options)
    parts = (yield parts_of(group, found.motion))["parts"]
    return _columns(found, parts)


def _on_grid(
    group: Group, label: Tensor, wrong: Tensor, height: int, width: int, options: GeometryOptions
) -> Generator[Task, Done, Fooled]:
    motions = grid_motions(group, height, width, options.grid_motions)
    near = yield from grid_search(group, label, motions, eta=options.eta, least=options.min_change)
    reason = torch.where(torch.isfinite(near.score), FOOLED, torch.where(near.silent, SILENT, NOT_ON_GRID))
    reason[wrong] = WRONG
    reason[label == NO_ANSWER] = SILENT
    nothing = torch.zeros_like(label)
    queries = torch.full_like(label, len(motions))
    return Fooled(near.score, near.motion, near.label, near.label.clone(), reason, nothing, queries, nothing)


def pace_of(options: GeometryOptions, height: int, width: int) -> Pace:
    """How ManiFool goes on images of a size."""
    number, longest, momentum = default_pace(height, width)
    number, longest = options.step_lengths or number, options.max_step or longest
    retry = default_retry(height, width) if options.retry is None else options.retry
    return Pace(
        lengths=_lengths(longest, number),
        retry=_lengths(retry, number) if retry > longest else None,
        momentum=momentum if options.momentum is None else options.momentum,
        most=options.max_steps,
        targets=options.targets,
        eta=options.eta,
        least=options.min_change,
        inside=options.momentum_inside,
        backtrack=options.backtrack,
        drop=options.drop,
        numerical=options.jacobian == "numerical",
        left=options.composed == "left",
    )


def _lengths(longest: float, number: int) -> Tensor:
    if number == 1:
        return torch.tensor([longest], dtype=torch.float64)
    return torch.logspace(-2, math.log10(longest), number, dtype=torch.float64)


def _columns(found: Fooled, parts: Tensor) -> Columns:
    status = torch.where(found.reason == FOOLED, BROKEN, SURVIVED)
    status[found.reason == WRONG] = SKIPPED
    status[found.reason == SILENT] = FAILED
    broke = status == BROKEN
    return {
        **_common(torch.arange(len(status)), status, found.label, found.reason, broke | (status == SURVIVED)),
        "score": Nullable(found.score, broke),
        "motion": Nullable(found.motion, broke),
        "parts": Nullable(parts, broke),
        "target": Nullable(found.target, broke),
        "steps": Nullable(found.steps, broke),
        "queries": found.queries,
        "gradients": found.gradients,
    }


def _common(sample: Tensor, status: Tensor, label: Tensor, reason: Tensor, answered: Tensor) -> Columns:
    return {
        "sample": sample,
        "status": Categorical(status, STATUSES),
        "correct": Nullable(status == SURVIVED, (status == SURVIVED) | (status == BROKEN)),
        "prediction": Nullable(label, answered & (label > NO_ANSWER)),
        "reason": Categorical(reason, _REASONS),
    }


def select_motions(options: GeometryOptions) -> list[Motion]:
    """Return the groups that the options name with each of the methods."""
    names = [name for given in options.operators for name in (GROUPS if given == "all" else [given])]
    found: dict[str, Motion] = {}
    for name in names:
        group = GROUPS[name]
        for method in options.methods:
            problem = _too_large(group, method, options)
            if problem is None:
                motion = Motion(group, method, searching=True)
                found[motion.id] = motion
            elif options.operators != ("all",):
                raise ConfigError(problem)
    return list(found.values())


def _too_large(group: Group, method: str, options: GeometryOptions) -> str | None:
    """Return why a group has too many coordinates for a method; None if it does not."""
    if method == "manitest" and group.dimension > MOST_DIMENSIONS:
        most = f"manitest searches up to {MOST_DIMENSIONS} coordinates"
        return f"{most}, but {group.name} has {group.dimension}; use manifool"
    if method == "grid" and grid_points(group, options.grid_motions) ** group.dimension > options.grid_motions:
        most = f"has more than {options.grid_motions} motions (grid_motions)"
        return f"a grid over the {group.dimension} coordinates of {group.name} {most}; use random"
    return None


def count_trials(options: GeometryOptions, operator: Change, image: Size, model_input: Size) -> int:
    """Return the most queries that a method can need for one image."""
    assert isinstance(operator, Motion)
    height, width = model_input
    if operator.method == "random":
        return options.draws * len(options.radii)
    if operator.method == "grid":
        return int(grid_points(operator.group, options.grid_motions) ** operator.group.dimension) - 1
    if operator.method == "manitest":
        nodes = int((2 * grid_of(operator.group, height, width, options.grid_pixels).half + 1).prod())
        return min(MOST_NODES, nodes) + CANDIDATES * BACKTRACKS
    pace = pace_of(options, height, width)
    once = options.targets * (options.max_steps * (len(pace.lengths) + 2) + BACKTRACKS)
    return 1 + (once if pace.retry is None else 2 * once)


def replay(options: GeometryOptions, name: str, size: Size) -> Motion:
    """Return the motions of a group and a method by their id."""
    group, _, method = name.partition(":")
    return Motion(GROUPS[group], method)


METHOD = Method(
    changes=select_motions,
    measure=measure,
    trials=count_trials,
    replay=replay,
    search=True,
    with_originals=True,
    images_per_unit=250,
    timed=True,
    weaker=halve,
    catalogue=lambda: [
        Entry(group.name, (), f"Motions of {group.dimension} coordinates: {', '.join(group.parts)}.")
        for group in GROUPS.values()
    ],
)
