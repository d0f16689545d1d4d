"""What the searches for the smallest motion share: their result, and the reasons for finding none."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.lenses.geometry.reasons import AT_EDGE as AT_EDGE_REASON
from brinell.lenses.method import Done, Stage, Task
from brinell.motion.geodesic import geodesic_scores
from brinell.motion.groups import Group

BACKTRACKS = 20  # shortened motions that are queried at the end of a search

REASONS = (
    "",
    "not fooled within the steps allowed",
    "no motion of the group changes the image",
    "the gradient of the scores is zero",
    "the image left the frame",
    "the model has one class",
    "the model gave no answer",
    "wrong when clean",
    "no motion of the grid changes the label",
    "not fooled within the nodes of the grid allowed",
    AT_EDGE_REASON,
)
(
    FOOLED,
    OUT_OF_STEPS,
    NO_EFFECT,
    ZERO_GRADIENT,
    LEFT_FRAME,
    ONE_CLASS,
    UNANSWERED,
    WRONG_WHEN_CLEAN,
    NOT_ON_GRID,
    OUT_OF_NODES,
    AT_EDGE,
) = range(len(REASONS))


@dataclass(frozen=True)
class PathSteps:
    """How geodesic scores are measured: the step `eta`, which widens where an image changes by less than `min_change`."""

    eta: float = 0.05
    min_change: float = 0.02


@dataclass
class SearchResult:
    """The smallest motion found for each sample, (N,) each; where there is none, `score` is infinite and `motion` zero.

    `reason` indexes `REASONS`; with `FOOLED` and `AT_EDGE` there is a motion. `label` is the label under the motion;
    `target` is the class that the search went towards.
    """

    score: Tensor
    motion: Tensor
    label: Tensor
    target: Tensor
    reason: Tensor
    steps: Tensor
    queries: Tensor
    gradients: Tensor

    @classmethod
    def empty(cls, count: int, dimension: int, reason: int) -> SearchResult:
        """Return a result without any motion."""
        return cls(
            score=torch.full((count,), torch.inf, dtype=torch.float64),
            motion=torch.zeros(count, dimension, dtype=torch.float64),
            label=torch.full((count,), -1),
            target=torch.full((count,), -1),
            reason=torch.full((count,), reason),
            steps=torch.zeros(count, dtype=torch.int64),
            queries=torch.zeros(count, dtype=torch.int64),
            gradients=torch.zeros(count, dtype=torch.int64),
        )


def score_motions(group: Group, samples: Tensor, motions: Tensor, path: PathSteps, stops: int | None = None) -> Task:
    """Return the task of measuring geodesic scores of motions; with a limit of `stops`, lower bounds of them."""

    def do(stage: Stage, part: Tensor) -> Done:
        frames = stage.frames(samples[part])
        scores = geodesic_scores(frames, group, motions[part], eta=path.eta, min_change=path.min_change, most=stops)
        return {"score": scores}

    return Task(samples, do, few=True)


def query_motions(group: Group, samples: Tensor, motions: Tensor) -> Task:
    """Return the task of querying the labels of samples under motions, given by their coordinates (N, d)."""

    def do(stage: Stage, part: Tensor) -> Done:
        return {"label": stage.scores(samples[part], group.exp(motions[part]))[1]}

    return Task(samples, do, queries=True)


def query_labels(samples: Tensor, matrices: Tensor) -> Task:
    """Return the task of querying the labels of samples moved by matrices."""

    def do(stage: Stage, part: Tensor) -> Done:
        return {"label": stage.scores(samples[part], matrices[part])[1]}

    return Task(samples, do, queries=True)


def query_clean_labels(count: int) -> Task:
    """Return the task of querying the labels of samples as they are."""

    def do(stage: Stage, part: Tensor) -> Done:
        return {"label": stage.scores(part)[1]}

    return Task(torch.arange(count), do, queries=True)
