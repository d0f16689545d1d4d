"""The geometry lens (seed 2): the smallest motion that changes a model's label, and what random motions do.

Four methods. `manifool` follows the slope of the scores and needs a differentiable model; `manitest` marches over a grid of
up to four coordinates; `random` moves images by given geodesic scores; `grid` asks a fixed grid of motions. The label that
counts is the model's own on the clean image, or with `against: truth` the right one.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Literal, cast

import torch
from pydantic import Field, field_validator
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
    manifool,
    usual_again,
    usual_pace,
)
from brinell.lenses.geometry.manitest import CANDIDATES, MOST_DIMENSIONS, MOST_NODES, grid_of, manitest
from brinell.lenses.knob.search import BROKEN, FAILED, SKIPPED, STATUSES, SURVIVED
from brinell.lenses.lens import (
    LENSES,
    Again,
    Asking,
    Categorical,
    Change,
    Columns,
    Lens,
    LensOptions,
    Nullable,
    Shard,
    Size,
    half,
)
from brinell.lenses.tasks import NO_ANSWER, Done, Method, Motion, MotionSearch, Task
from brinell.motion.groups import GROUPS, Group

OUT_OF_REACH = len(REASONS)
_REASONS = (*REASONS, "the motion leaves the frame or turns by more than a half before it has this score")


class GeometryOptions(LensOptions):
    """Which groups and methods, and how they go; what is not given is as published for images of the model's size.

    `most_steps`, `targets`, `momentum`, `lengths` and `longest` are ManiFool's N_max, ĉ, γ and its grid of step lengths
    (from 0.01 on), which are tried with the momentum or, where `momentum_inside` is false, without it. `again` is the
    longest step, in pixels, of a second try for images that the first doesn't fool; 0, or no more than `longest`, is none,
    as published; not given, it is for photographs a 32nd of the shorter side. `grid_pixels` is the step of Manitest's grid
    in pixels; `eta` is the step of geodesic scores; `least` widens it where an image changes slowly (0: never).
    `radii` and `draws` are the scores of random motions, and how many of each; their `directions` are drawn in raw units or
    by the images' metric. `threshold` is the misclassification rate that tells r̂. `grid_motions` is how many motions the
    grid search asks about, at most.
    """

    name: Literal["geometry"] = "geometry"
    operators: tuple[str, ...] = ("similarity", "affine")
    methods: tuple[Method, ...] = Field(("manifool", "random"), min_length=1)
    against: Literal["answer", "truth"] = "answer"
    most_steps: int = Field(50, ge=1, le=10_000)
    targets: int = Field(10, ge=1)
    momentum: float | None = Field(None, ge=0, lt=1)
    momentum_inside: bool = True
    lengths: int | None = Field(None, ge=1, le=1000)
    longest: float | None = Field(None, gt=0.01)
    again: float | None = Field(None, ge=0)
    grid_pixels: float | None = Field(None, gt=0)
    eta: float = Field(0.05, gt=0, le=1)
    least: float = Field(0.02, ge=0, le=1)
    backtrack: bool = True
    drop: bool = True
    jacobian: Literal["analytic", "numerical"] = "analytic"
    composed: Literal["right", "left"] = "right"
    radii: tuple[float, ...] = tuple(0.5 * step for step in range(1, 11))
    draws: int = Field(10, ge=1, le=1000)
    directions: Literal["raw", "metric"] = "raw"
    grid_motions: int = Field(1000, ge=3, le=100_000)
    threshold: float = Field(0.5, gt=0, lt=1)

    @field_validator("methods", mode="before")
    @classmethod
    def _one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("radii")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or min(value) < 0 or not all(map(math.isfinite, value)) or list(value) != sorted(set(value)):
            raise ValueError("radii should be scores from 0 on, in increasing order")
        return value

    def names(self, change: Change) -> bool:
        """Whether a method was asked for by its name, and not as one of the usual ones."""
        return isinstance(change, MotionSearch) and "methods" in self.model_fields_set


def geometry(shard: Shard, operator: MotionSearch, options: LensOptions) -> Asking:
    """One row a sample, with the smallest motion that was found; of random motions a row a sample, draw and score."""
    assert isinstance(options, GeometryOptions)
    group, verdict = operator.group, shard.clean.verdict
    label = verdict.prediction.cpu()
    wrong = (verdict.rank > 0).cpu() if options.against == "truth" else torch.zeros_like(label, dtype=torch.bool)
    height, width = shard.height, shard.width
    if operator.method == "random":
        wanted = torch.tensor(options.radii, dtype=torch.float64)
        whitened = options.directions == "metric"
        moved = yield from random_motions(
            group, shard.count, wanted, options.draws, whitened=whitened, eta=options.eta, least=options.least
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
            least=options.least,
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
    near = yield from grid_search(group, label, motions, eta=options.eta, least=options.least)
    reason = torch.where(torch.isfinite(near.score), FOOLED, torch.where(near.silent, SILENT, NOT_ON_GRID))
    reason[wrong] = WRONG
    reason[label == NO_ANSWER] = SILENT
    nothing = torch.zeros_like(label)
    queries = torch.full_like(label, len(motions))
    return Fooled(near.score, near.motion, near.label, near.label.clone(), reason, nothing, queries, nothing)


def pace_of(options: GeometryOptions, height: int, width: int) -> Pace:
    """How ManiFool goes on images of a size."""
    number, longest, momentum = usual_pace(height, width)
    number, longest = options.lengths or number, options.longest or longest
    again = usual_again(height, width) if options.again is None else options.again
    return Pace(
        lengths=_lengths(longest, number),
        again=_lengths(again, number) if again > longest else None,
        momentum=momentum if options.momentum is None else options.momentum,
        most=options.most_steps,
        targets=options.targets,
        eta=options.eta,
        least=options.least,
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


def chosen_searches(options: LensOptions) -> list[Change]:
    """The groups that were asked for with each of the methods; "all" are all groups."""
    assert isinstance(options, GeometryOptions)
    names = [name for asked in options.operators for name in (GROUPS if asked == "all" else [asked])]
    found: dict[str, Change] = {}
    for name in names:
        group = GROUPS[name]
        for method in options.methods:
            if method == "manitest" and (group.dimension > MOST_DIMENSIONS):
                if options.operators == ("all",):
                    continue
                few = f"manitest's grid takes up to {MOST_DIMENSIONS} coordinates"
                raise ConfigError(f"{few}, and {name} has {group.dimension}; use manifool")
            if method == "grid" and grid_points(group, options.grid_motions) ** group.dimension > options.grid_motions:
                if options.operators == ("all",):
                    continue
                most = f"has more than {options.grid_motions} motions (grid_motions)"
                raise ConfigError(f"a grid over the {group.dimension} coordinates of {name} {most}; use random")
            search = MotionSearch(group, method)
            found[search.id] = search
    return list(found.values())


def most_trials(options: LensOptions, operator: Change, height: int, width: int) -> int:
    """As many questions as a method can ask of one image."""
    assert isinstance(options, GeometryOptions) and isinstance(operator, MotionSearch)
    if operator.method == "random":
        return options.draws * len(options.radii)
    if operator.method == "grid":
        return int(grid_points(operator.group, options.grid_motions) ** operator.group.dimension) - 1
    if operator.method == "manitest":
        nodes = int((2 * grid_of(operator.group, height, width, options.grid_pixels).half + 1).prod())
        return min(MOST_NODES, nodes) + CANDIDATES * BACKTRACKS
    pace = pace_of(options, height, width)
    once = options.targets * (options.most_steps * (len(pace.lengths) + 2) + BACKTRACKS)
    return 1 + (once if pace.again is None else 2 * once)


def _named(options: GeometryOptions, name: str, size: Size) -> Motion:
    """A group and a method by their full name."""
    group, _, method = name.partition(":")
    return Motion(GROUPS[group], cast(Method, method))


LENSES.add(
    "geometry",
    Lens(
        name="geometry",
        what="the smallest motion that changes a model's label, and what random motions do (CVPR 2018)",
        options=GeometryOptions,
        ask=geometry,
        operators=chosen_searches,
        trials=most_trials,
        searching=True,
        originals=True,
        unit=250,
        timed=True,
        again=Again(_named, weaker=half),
    ),
)
