"""ManiFool (CVPR 2018): follow the gradient from each image towards another class, on the manifold of moved images.

All pairs of an image and a target class advance together. A step goes along the projection of the gradient of
g = f_original - f_target on the tangent space; its length is the best of several; a share of the last step is added as
momentum. When the label changes, to whatever class, the last step is shortened: its shares 1 - 0.8^k are queried, and the
first that fools is taken. Of an image's targets, the one with the smallest geodesic score counts.

Published steps are at most one pixel long, so that fifty of them can't move a photograph far. Images that are not fooled
get a second try from the start with longer steps, if the settings have them; images that were fooled keep their motions.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from brinell.lenses.geometry.search import (
    BACKTRACKS,
    FOOLED,
    LEFT_FRAME,
    NO_EFFECT,
    ONE_CLASS,
    OUT_OF_STEPS,
    UNANSWERED,
    WRONG_WHEN_CLEAN,
    ZERO_GRADIENT,
    PathSteps,
    SearchResult,
    score_motions,
)
from brinell.lenses.method import NO_ANSWER, Done, Stage, Task
from brinell.motion.groups import Group
from brinell.motion.jacobian import gram, jacobian_gram, numerical_jacobian, pullback, solve_normal_equations

_SHARES = 1 - 0.8 ** torch.arange(1, BACKTRACKS + 1, dtype=torch.float64)  # of the last step; 0.8^20 is 1 %
_ROUNDS = (4, 6, 10)  # how many of them are queried at once: the first that fools is mostly among the first few
_STOPS = 12  # on the direct path to a motion, for a lower bound of its score


@dataclass(frozen=True)
class ManiFoolSettings:
    """ManiFool's settings: step lengths in pixels, those of a second try, momentum, and when to stop.

    `momentum_inside`: step lengths are tried with the momentum included; otherwise it is added to the best. `drop`: a
    target is dropped when the direct path to its motion is longer than that of a target that has fooled already.
    `numerical`: the Jacobian is computed by differences, and `left`: steps are composed on the left, both as in the
    published scripts.
    """

    step_lengths: Tensor
    momentum: float
    retry_lengths: Tensor | None = None
    max_steps: int = 50
    targets: int = 10
    path: PathSteps = field(default_factory=PathSteps)
    momentum_inside: bool = True
    backtrack: bool = True
    drop: bool = True
    numerical: bool = False
    left: bool = False


def default_steps(height: int, width: int) -> tuple[int, float, float]:
    """Return the number of step lengths, the longest, and the momentum, as published for MNIST, CIFAR-10 and ImageNet."""
    side = min(height, width)
    if side <= 28:
        return 10, 0.5, 0.1
    return (20, 1.0, 0.0) if side <= 64 else (20, 1.0, 0.2)


def default_retry(height: int, width: int) -> float:
    """Return the longest step of a second try in pixels: a 32nd of the shorter side for photographs, else 0 (none)."""
    side = min(height, width)
    return side / 32 if side > 64 else 0.0


def manifool(
    group: Group, count: int, settings: ManiFoolSettings, truth: Tensor | None = None
) -> Generator[Task, Done, SearchResult]:
    """Return the smallest motion found for each of `count` samples; `truth` replaces the model's own labels."""
    first = yield _query_clean(torch.arange(count), settings.targets)
    result = SearchResult.empty(count, group.dimension, OUT_OF_STEPS if first["others"].shape[1] else ONE_CLASS)
    result.label, result.queries = first["label"].clone(), torch.ones(count, dtype=torch.int64)
    search = _Search(group, settings, first["label"] if truth is None else truth, result)
    result.reason[first["label"] != search.original] = WRONG_WHEN_CLEAN
    result.reason[first["label"] == NO_ANSWER] = UNANSWERED
    yield from search.run(first["others"], settings.step_lengths)
    if settings.retry_lengths is not None:
        yield from search.run(first["others"], settings.retry_lengths, steps_before=settings.max_steps)
    return result


@dataclass
class _Pairs:
    """Pairs of a sample and a target that are still moving."""

    sample: Tensor
    target: Tensor
    matrices: Tensor  # the motion so far, (P, 3, 3)
    step: Tensor  # the last one, (P, d)

    def at(self, which: Tensor) -> _Pairs:
        return _Pairs(self.sample[which], self.target[which], self.matrices[which], self.step[which])


@dataclass
class _Search:
    """A search under way: `original` are the labels to leave, `result` what was found so far."""

    group: Group
    settings: ManiFoolSettings
    original: Tensor
    result: SearchResult

    def run(self, others: Tensor, lengths: Tensor, steps_before: int = 0) -> Generator[Task, Done, None]:
        """Move images that have no motion yet towards their targets."""
        result = self.result
        missed = (result.reason == OUT_OF_STEPS) | (result.reason == LEFT_FRAME)
        able = (missed[:, None] & (others >= 0)).nonzero()
        still = torch.eye(3, dtype=torch.float64).repeat(len(able), 1, 1)
        no_step = torch.zeros(len(able), self.group.dimension, dtype=torch.float64)
        pairs = _Pairs(able[:, 0], others[able[:, 0], able[:, 1]], still, no_step)
        for step in range(1, self.settings.max_steps + 1):
            if not len(pairs.sample):
                break
            pairs = yield from self._advance(pairs, lengths, steps_before + step)
        late = pairs.sample[result.reason[pairs.sample] != FOOLED]
        result.reason[late] = OUT_OF_STEPS  # whatever stopped their other targets

    def _advance(self, pairs: _Pairs, lengths: Tensor, step: int) -> Generator[Task, Done, _Pairs]:
        """Make one step of all pairs and return those that go on."""
        settings, result = self.settings, self.result
        if settings.drop:
            pairs = yield from self._drop_losers(pairs)
            if not len(pairs.sample):
                return pairs
        slope = yield replace(self._slopes(pairs), ended=self._count_ended(pairs, step))
        _count(result.gradients, pairs.sample, 1)
        direction = slope["direction"]
        length = direction.norm(dim=1)
        stop = torch.where(length > 0, FOOLED, slope["why"])
        self._note_stop(pairs.sample, stop)
        going = (stop == FOOLED).nonzero()[:, 0]
        if not len(going):
            return pairs.at(going)
        pairs = pairs.at(going)
        unit = (direction / length[:, None])[going]
        carried = settings.momentum * pairs.step
        steps = lengths[:, None] * unit[:, None]  # (P, L, d)
        steps = steps + carried[:, None] if settings.momentum_inside else steps
        many = len(lengths)
        answers = yield self._query(pairs, steps)
        _count(result.queries, pairs.sample, many)
        best = answers["gap"].view(-1, many).nan_to_num(nan=torch.inf).argmin(1)
        label = answers["label"].view(-1, many).gather(1, best[:, None])[:, 0]
        taken = steps[torch.arange(len(best)), best]
        taken = taken if settings.momentum_inside else taken + carried
        ahead = _Pairs(pairs.sample, pairs.target, self._compose(pairs.matrices, taken), taken)
        if not settings.momentum_inside:
            label = (yield self._query(pairs, taken[:, None]))["label"]
            _count(result.queries, ahead.sample, 1)
        silent = label == NO_ANSWER
        self._note_stop(pairs.sample, torch.where(silent, UNANSWERED, FOOLED))
        fooled = (label != self.original[pairs.sample]) & ~silent
        won = fooled.nonzero()[:, 0]
        if len(won):
            yield from self._settle(pairs.at(won), ahead.at(won), label[won], step)
        return ahead.at((~fooled & ~silent).nonzero()[:, 0])

    def _drop_losers(self, pairs: _Pairs) -> Generator[Task, Done, _Pairs]:
        """Return the pairs that are not farther than a target of their sample that has fooled already."""
        rows = torch.isfinite(self.result.score[pairs.sample]).nonzero()[:, 0]
        if not len(rows):
            return pairs
        samples = pairs.sample[rows]
        motion = self.group.log(pairs.matrices[rows]).nan_to_num(0.0, 0.0, 0.0)
        bound = yield score_motions(self.group, samples, motion, self.settings.path, _STOPS)
        able = torch.ones_like(pairs.sample, dtype=torch.bool)
        able[rows] = bound["score"] <= self.result.score[samples]
        return pairs.at(able.nonzero()[:, 0])

    def _settle(self, before: _Pairs, after: _Pairs, label: Tensor, step: int) -> Generator[Task, Done, None]:
        """Shorten the last step of pairs that fool, and keep the motions that are the smallest of their samples."""
        group, path = self.group, self.settings.path
        matrices, label = yield from self._backtrack(before, after, label)
        motion = group.log(matrices)
        whole = torch.isfinite(motion).all(1)
        motion = torch.where(whole[:, None], motion, 0.0)
        bound = yield score_motions(group, before.sample, motion, path, _STOPS)
        near = (whole & (bound["score"] < self.result.score[before.sample])).nonzero()[:, 0]
        if not len(near):
            return
        scores = yield score_motions(group, before.sample[near], motion[near], path)
        result = self.result
        for row, score in zip(near.tolist(), scores["score"].tolist(), strict=True):
            sample = int(before.sample[row])
            if score < result.score[sample]:
                result.score[sample] = score
                result.motion[sample] = motion[row]
                result.label[sample] = label[row]
                result.target[sample] = before.target[row]
                result.steps[sample] = step
                result.reason[sample] = FOOLED

    def _backtrack(self, before: _Pairs, after: _Pairs, label: Tensor) -> Generator[Task, Done, tuple[Tensor, Tensor]]:
        """Return the motions with the shortest share of the last step that fools, and their labels."""
        matrices, label = after.matrices.clone(), label.clone()
        rows = torch.arange(len(label))
        for shares in torch.split(_SHARES, list(_ROUNDS)) if self.settings.backtrack else ():
            if not len(rows):
                break
            own, many = before.at(rows), len(shares)
            steps = shares[:, None] * after.step[rows, None]
            answers = yield self._query(own, steps)
            _count(self.result.queries, own.sample, many)
            labels = answers["label"].view(-1, many)
            fooling = (labels != self.original[own.sample][:, None]) & (labels != NO_ANSWER)
            first, shorter = fooling.to(torch.int8).argmax(1), fooling.any(1)
            matrices[rows[shorter]] = self._compose(own.matrices[shorter], steps[shorter, first[shorter]])
            label[rows[shorter]] = labels[shorter, first[shorter]]
            rows = rows[~shorter]
        return matrices, label

    def _compose(self, matrices: Tensor, steps: Tensor) -> Tensor:
        """Return motions after a step: on the right, as in the paper's equations."""
        moved = self.group.exp(-steps)
        return moved @ matrices if self.settings.left else matrices @ moved

    def _note_stop(self, samples: Tensor, reasons: Tensor) -> None:
        """Note why pairs stopped, for samples that no other target has fooled."""
        for code in (NO_EFFECT, ZERO_GRADIENT, LEFT_FRAME, UNANSWERED):
            stopped = samples[reasons == code]
            self.result.reason[stopped[self.result.reason[stopped] != FOOLED]] = code

    def _query(self, pairs: _Pairs, steps: Tensor) -> Task:
        """Return the task of querying labels after each of the steps (P, L, d) of pairs, and by how much the original class
        leads the target; results are in one row for each step.
        """
        original, many = self.original, steps.shape[1]

        def do(stage: Stage, part: Tensor) -> Done:
            own, number = part // many, part % many
            rows = pairs.sample[own]
            values, labels = stage.scores(rows, self._compose(pairs.matrices[own], steps[own, number]))
            targets = pairs.target[own]
            plus, minus = (which.to(values.device)[:, None] for which in (original[rows].clamp(min=0), targets))
            return {"label": labels, "gap": (values.gather(1, plus) - values.gather(1, minus))[:, 0]}

        return Task(pairs.sample.repeat_interleave(many), do, queries=True)

    def _slopes(self, pairs: _Pairs) -> Task:
        """Return the task of projecting gradients on the Jacobian: directions, and why there is none where one is zero."""
        group, settings, original = self.group, self.settings, self.original

        def do(stage: Stage, part: Tensor) -> Done:
            rows, matrices = pairs.sample[part], pairs.matrices[part]
            frames, seen = stage.frames(rows), stage.seen(rows)
            images = frames.move(matrices)
            gradient = stage.gradient(images, rows, original[rows], pairs.target[part])
            gone = images.flatten(1).any(1).logical_not()
            level = gradient.flatten(1).any(1).logical_not()
            why = torch.where(level, ZERO_GRADIENT, NO_EFFECT)
            why = torch.where(gone & frames.images.flatten(1).any(1), LEFT_FRAME, why)
            if not settings.numerical:
                own, along = jacobian_gram(images, frames, group, seen), pullback(images, gradient, frames, group)
            else:
                columns = numerical_jacobian(frames, matrices, group, left=settings.left)
                columns = columns if seen is None else columns * seen[:, None]
                own, along = gram(columns), (columns.flatten(2) @ gradient.flatten(1)[..., None])[..., 0].to(torch.float64)
            direction = solve_normal_equations(own.cpu(), along.cpu()).nan_to_num(0.0, 0.0, 0.0)
            return {"direction": direction, "why": why}

        return Task(pairs.sample, do, queries=True, few=True)

    def _count_ended(self, pairs: _Pairs, step: int) -> int:
        """Return how many images need nothing more: no second try, either."""
        going, reason = torch.zeros_like(self.original, dtype=torch.bool), self.result.reason
        going[pairs.sample] = True
        if self.settings.retry_lengths is not None and step <= self.settings.max_steps:
            going |= (reason == OUT_OF_STEPS) | (reason == LEFT_FRAME)
        return int((~going).sum())


def _count(counts: Tensor, samples: Tensor, each: int) -> None:
    counts.index_add_(0, samples, torch.full_like(samples, each))


def _query_clean(samples: Tensor, targets: int) -> Task:
    """Return the task of querying clean images: labels, and the most probable other classes (N, targets), best first."""

    def do(stage: Stage, part: Tensor) -> Done:
        rows = samples[part]
        values, labels = stage.scores(rows)
        others = values.clone().nan_to_num(nan=-torch.inf)
        others.scatter_(1, labels.clamp(min=0)[:, None], -torch.inf)
        best = others.topk(min(targets, values.shape[1] - 1), dim=1)
        return {"label": labels, "others": best.indices}

    return Task(samples, do, queries=True)
