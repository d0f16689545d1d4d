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
from brinell.lenses.entry import Entry
from brinell.lenses.geometry.black_box import grid_motions, grid_points, grid_search, measure_parts, random_motions
from brinell.lenses.geometry.manifool import ManiFoolSettings, default_retry, default_steps, manifool
from brinell.lenses.geometry.manitest import CANDIDATES, MAX_DIMENSIONS, MAX_NODES, make_grid, manitest
from brinell.lenses.geometry.options import GeometryOptions
from brinell.lenses.geometry.search import (
    AT_EDGE,
    BACKTRACKS,
    FOOLED,
    NOT_ON_GRID,
    REASONS,
    UNANSWERED,
    WRONG_WHEN_CLEAN,
    PathSteps,
    SearchResult,
    query_clean_labels,
)
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
from brinell.registry import VariantId

OUT_OF_REACH = len(REASONS)
_REASONS = (*REASONS, "the motion leaves the frame or turns by more than a half before it has this score")


def measure(shard: Shard, operator: Motion, options: GeometryOptions) -> Measuring:
    """Return one row per sample, with the smallest motion; for random motions one per sample, draw and score."""
    group, verdict = operator.group, shard.clean.verdict
    label = verdict.prediction.cpu()
    wrong = (verdict.rank > 0).cpu() if options.against == "truth" else torch.zeros_like(label, dtype=torch.bool)
    truth = None if options.against == "answer" else torch.where(wrong, -3, label)
    size, path = (shard.height, shard.width), PathSteps(options.eta, options.min_change)
    if operator.method in ("random", "grid") and truth is None:
        label = (yield query_clean_labels(shard.count))["label"]  # in batches of a fixed size, unlike the clean outcome
    if operator.method == "random":
        return (yield from _measure_random(shard, operator, label, wrong, options))
    if operator.method == "manifool":
        result = yield from manifool(group, shard.count, manifool_settings(options, *size), truth)
    elif operator.method == "manitest":
        grid = make_grid(group, *size, options.grid_pixels)
        result = yield from manitest(group, shard.count, grid, path=path, truth=truth, backtrack=options.backtrack)
    else:
        motions = grid_motions(group, *size, options.grid_motions)
        result = yield from _search_grid(group, label, wrong, motions, path)
    parts = (yield measure_parts(group, result.motion))["parts"]
    return _columns(result, parts)


def _measure_random(shard: Shard, operator: Motion, label: Tensor, wrong: Tensor, options: GeometryOptions) -> Measuring:
    """Return one row per sample, draw and score, or for those that a budget chooses: evenly over scores."""
    wanted, path = torch.tensor(options.radii, dtype=torch.float64), PathSteps(options.eta, options.min_change)
    chosen = shard.choose(operator, len(wanted) * options.draws)
    cells = chosen.cells.view(shard.count, len(wanted), options.draws).transpose(1, 2)
    if not bool(cells.any()):
        return {"sample": torch.zeros(0, dtype=torch.int64)}
    whitened = options.directions == "metric"
    moved = yield from random_motions(operator.group, cells, wanted=wanted, whitened=whitened, path=path, sizes=shard.sizes)
    status = torch.where(moved.label != label[moved.sample], BROKEN, SURVIVED)
    status[moved.label == NO_ANSWER] = FAILED
    reason = torch.where(moved.reached, FOOLED, OUT_OF_REACH)
    reason[wrong[moved.sample]] = WRONG_WHEN_CLEAN
    status[reason != FOOLED] = SKIPPED
    return {
        **_common(moved.sample, status, moved.label, reason, moved.reached),
        "level": moved.level,
        "amount": moved.wanted,
        "draw": moved.draw,
        "score": Nullable(moved.score, moved.reached),
        "motion": Nullable(moved.motion, moved.reached),
        **({} if shard.sampling is None else {"inclusion": chosen.inclusion[moved.sample]}),
    }


def _search_grid(
    group: Group, label: Tensor, wrong: Tensor, motions: Tensor, path: PathSteps
) -> Generator[Task, Done, SearchResult]:
    near = yield from grid_search(group, label, motions, path)
    reason = torch.where(torch.isfinite(near.score), FOOLED, torch.where(near.unanswered, UNANSWERED, NOT_ON_GRID))
    reason[wrong] = WRONG_WHEN_CLEAN
    reason[label == NO_ANSWER] = UNANSWERED
    zeros = torch.zeros_like(label)
    queries = torch.full_like(label, len(motions))
    return SearchResult(near.score, near.motion, near.label, near.label.clone(), reason, zeros, queries, zeros)


def manifool_settings(options: GeometryOptions, height: int, width: int) -> ManiFoolSettings:
    """Return ManiFool's settings for images of a size."""
    number, longest, momentum = default_steps(height, width)
    number, longest = options.step_lengths or number, options.max_step or longest
    retry = default_retry(height, width) if options.retry is None else options.retry
    return ManiFoolSettings(
        step_lengths=_lengths(longest, number),
        retry_lengths=_lengths(retry, number) if retry > longest else None,
        momentum=momentum if options.momentum is None else options.momentum,
        max_steps=options.max_steps,
        targets=options.targets,
        path=PathSteps(options.eta, options.min_change),
        momentum_inside=options.momentum_inside,
        backtrack=options.backtrack,
        drop=options.drop,
        numerical=options.jacobian == "numerical",
        left=options.composed == "left",
    )


def _lengths(longest: float, number: int) -> Tensor:
    if number == 1:
        return torch.tensor([longest], dtype=torch.float64)
    return torch.logspace(-2, math.log10(longest), number, dtype=torch.float64)


def _columns(result: SearchResult, parts: Tensor) -> Columns:
    fooled = (result.reason == FOOLED) | (result.reason == AT_EDGE)
    status = torch.where(fooled, BROKEN, SURVIVED)
    status[result.reason == WRONG_WHEN_CLEAN] = SKIPPED
    status[result.reason == UNANSWERED] = FAILED
    broke = status == BROKEN
    return {
        **_common(torch.arange(len(status)), status, result.label, result.reason, broke | (status == SURVIVED)),
        "score": Nullable(result.score, broke),
        "motion": Nullable(result.motion, broke),
        "parts": Nullable(parts, broke),
        "target": Nullable(result.target, broke),
        "steps": Nullable(result.steps, broke),
        "queries": result.queries,
        "gradients": result.gradients,
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
    if method == "manitest" and group.dimension > MAX_DIMENSIONS:
        limit = f"manitest searches up to {MAX_DIMENSIONS} coordinates"
        return f"{limit}, but {group.name} has {group.dimension}; use manifool"
    if method == "grid" and grid_points(group, options.grid_motions) ** group.dimension > options.grid_motions:
        limit = f"has more than {options.grid_motions} motions (grid_motions)"
        return f"a grid over the {group.dimension} coordinates of {group.name} {limit}; use random"
    return None


def count_trials(options: GeometryOptions, operator: Change, image: Size, model_input: Size) -> int:
    """Return the largest number of queries that a method can need for one image."""
    assert isinstance(operator, Motion)
    height, width = model_input
    if operator.method == "random":
        return 1 + options.draws * len(options.radii)
    if operator.method == "grid":
        return int(grid_points(operator.group, options.grid_motions) ** operator.group.dimension)  # with the clean image
    if operator.method == "manitest":
        nodes = int((2 * make_grid(operator.group, height, width, options.grid_pixels).half + 1).prod())
        return min(MAX_NODES, nodes) + CANDIDATES * BACKTRACKS
    settings = manifool_settings(options, height, width)
    once = options.targets * (options.max_steps * (len(settings.step_lengths) + 2) + BACKTRACKS)
    return 1 + (once if settings.retry_lengths is None else 2 * once)


def sketch(options: GeometryOptions, times: float) -> GeometryOptions:
    """Return options with fewer random motions, and with fewer classes that ManiFool moves towards."""
    fewer = {name: max(1, round(getattr(options, name) / times)) for name in ("draws", "targets")}
    return options.model_copy(update=fewer)


def replay(options: GeometryOptions, name: str, size: Size) -> Motion:
    """Return the motions of a group and a method by their id."""
    group, method = VariantId.parse(name)
    return Motion(GROUPS[group], method)


METHOD = Method(
    changes=select_motions,
    measure=measure,
    trials=count_trials,
    replay=replay,
    search=True,
    sketch=sketch,
    overhead=3.0,  # whole images are moved at their own size
    with_originals=True,
    images_per_unit=250,
    timed=True,
    weaker=halve,
    refuses={
        "segmentation": "it looks for motions that change the top class of an image, and a segmenter has a class for each "
        "pixel; use --lens knob with properties that move the image, such as rotation",
        "embedding": "it looks for motions that change the top class, and an embedder without a gallery has none; add "
        "?gallery=FOLDER, or use --lens knob with properties that move the image, such as rotation",
    },
    catalogue=lambda: [
        Entry(group.name, (), f"Motions with the coordinates {', '.join(group.parts)}.") for group in GROUPS.values()
    ],
)
