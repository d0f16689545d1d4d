"""ManiFool (seed 2): from each image towards a class, along the slope, staying among the moved images.

All pairs of an image and a target class advance together. A step goes along the projection of the gradient of
g = f_original - f_target on the tangent space; its length is the best of a grid; a share of the last step is added. Where
the label changes, to whatever class, the last step is shortened: its shares 1 - 0.8^k are asked, and the first that fools
stands. Of an image's targets the one with the least geodesic score counts.

Published steps are of a pixel at most, so that fifty of them can't bring a photograph far. Images that are not fooled get a
second try from where they were, with longer steps, if the pace has them; it changes nothing of those that are.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brinell.lenses.method import NO_ANSWER, Done, Stage, Task
from brinell.motion.geodesic import geodesic_scores
from brinell.motion.groups import Group
from brinell.motion.jacobian import gram, jacobian_gram, numerical_jacobian, pullback, solve_normal_equations

BACKTRACKS = 20  # shares of the last step that are asked; 0.8^20 is 1 %
_ROUNDS = (4, 6, 10)  # how many of them at once: the first that fools is mostly among the first few
_STOPS = 12  # on the direct path to where a pair stands, for a bound of its score

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
)
FOOLED, TOO_LONG, FLAT, NO_SLOPE, LEFT, ONE_CLASS, SILENT, WRONG, NOT_ON_GRID = range(len(REASONS))


@dataclass(frozen=True)
class Pace:
    """How ManiFool goes: the lengths of a step, those of a second try, the share of the last step, and when to stop.

    `numerical`: the Jacobian by differences, as the published scripts took it. `left`: steps are composed on the left, as
    they did. `inside`: lengths are tried with the share of the last step, which is else added to the best of them. `drop`:
    targets are left when the direct path to where they stand is longer than that of another target that has fooled already;
    they would have to come back to win.
    """

    lengths: Tensor
    momentum: float
    retry: Tensor | None = None
    most: int = 50
    targets: int = 10
    eta: float = 0.05
    least: float = 0.02
    inside: bool = True
    backtrack: bool = True
    drop: bool = True
    numerical: bool = False
    left: bool = False


def default_pace(height: int, width: int) -> tuple[int, float, float]:
    """How many lengths, the largest, and the momentum, as published for MNIST, CIFAR-10 and ImageNet."""
    side = min(height, width)
    if side <= 28:
        return 10, 0.5, 0.1
    return (20, 1.0, 0.0) if side <= 64 else (20, 1.0, 0.2)


def default_retry(height: int, width: int) -> float:
    """The longest step of a second try, in pixels: for photographs a 32nd of the shorter side, for small images none."""
    side = min(height, width)
    return side / 32 if side > 64 else 0.0


@dataclass
class Fooled:
    """What was found for each sample, (N,) each; `score` is infinite and `motion` zero where nothing was."""

    score: Tensor
    motion: Tensor
    label: Tensor
    target: Tensor
    reason: Tensor
    steps: Tensor
    queries: Tensor
    gradients: Tensor


@dataclass
class _Pairs:
    """Pairs of a sample and a target that are under way."""

    sample: Tensor
    target: Tensor
    place: Tensor  # motions (P, 3, 3)
    pace: Tensor  # the last step (P, d)

    def at(self, which: Tensor) -> _Pairs:
        return _Pairs(self.sample[which], self.target[which], self.place[which], self.pace[which])


def manifool(group: Group, count: int, pace: Pace, truth: Tensor | None = None) -> Generator[Task, Done, Fooled]:
    """The smallest motion that ManiFool finds for each of `count` samples; `truth` in place of the model's own labels."""
    first = yield _looked(torch.arange(count), pace.targets)
    original = first["label"] if truth is None else truth
    found = Fooled(
        score=torch.full((count,), torch.inf, dtype=torch.float64),
        motion=torch.zeros(count, group.dimension, dtype=torch.float64),
        label=first["label"].clone(),
        target=torch.full((count,), -1),
        reason=torch.full((count,), ONE_CLASS if not first["others"].shape[1] else TOO_LONG),
        steps=torch.zeros(count, dtype=torch.int64),
        queries=torch.ones(count, dtype=torch.int64),
        gradients=torch.zeros(count, dtype=torch.int64),
    )
    found.reason[first["label"] != original] = WRONG
    found.reason[first["label"] == NO_ANSWER] = SILENT
    yield from _tried(group, first["others"], original, found, pace, 0)
    if pace.retry is not None:
        yield from _tried(group, first["others"], original, found, replace(pace, lengths=pace.retry), pace.most)
    return found


def _tried(
    group: Group, others: Tensor, original: Tensor, found: Fooled, pace: Pace, before: int
) -> Generator[Task, Done, None]:
    """Go from images that nothing was found of towards their targets; so many steps were made `before`."""
    missed = (found.reason == TOO_LONG) | (found.reason == LEFT)
    able = (missed[:, None] & (others >= 0)).nonzero()
    still = torch.eye(3, dtype=torch.float64).repeat(len(able), 1, 1)
    none = torch.zeros(len(able), group.dimension, dtype=torch.float64)
    pairs = _Pairs(able[:, 0], others[able[:, 0], able[:, 1]], still, none)
    for step in range(1, pace.most + 1):
        if not len(pairs.sample):
            break
        pairs = yield from _advanced(group, pairs, original, found, pace, before + step)
    late = pairs.sample[found.reason[pairs.sample] != FOOLED]
    found.reason[late] = TOO_LONG  # whatever stopped other targets of theirs


def _advanced(
    group: Group, pairs: _Pairs, original: Tensor, found: Fooled, pace: Pace, step: int
) -> Generator[Task, Done, _Pairs]:
    """One step of all pairs; those that go on."""
    if pace.drop:
        pairs = yield from _able_to_win(group, pairs, found, pace)
        if not len(pairs.sample):
            return pairs
    slope = yield _slopes(group, pairs, original, pace)
    _count(found.gradients, pairs.sample, 1)
    direction = solve_normal_equations(slope["products"], slope["pulls"]).nan_to_num(0.0, 0.0, 0.0)
    length = direction.norm(dim=1)
    stop = torch.where(length > 0, FOOLED, slope["why"])
    _stopped(found, pairs.sample, stop)
    going = (stop == FOOLED).nonzero()[:, 0]
    if not len(going):
        return pairs.at(going)
    pairs = pairs.at(going)
    unit = (direction / length[:, None])[going]
    carried = pace.momentum * pairs.pace
    ways = pace.lengths[:, None] * unit[:, None]  # (P, L, d)
    ways = ways + carried[:, None] if pace.inside else ways
    many = len(pace.lengths)
    told = yield _asked(
        pairs.sample.repeat_interleave(many),
        _moved_on(group, pairs.place.repeat_interleave(many, 0), ways.flatten(0, 1), pace.left),
        original,
        pairs.target.repeat_interleave(many),
    )
    _count(found.queries, pairs.sample, many)
    best = told["gap"].view(-1, many).nan_to_num(nan=torch.inf).argmin(1)
    label = told["label"].view(-1, many).gather(1, best[:, None])[:, 0]
    way = ways[torch.arange(len(best)), best]
    way = way if pace.inside else way + carried
    ahead = _Pairs(pairs.sample, pairs.target, _moved_on(group, pairs.place, way, pace.left), way)
    if not pace.inside:
        label = (yield _asked(ahead.sample, ahead.place, original, ahead.target))["label"]
        _count(found.queries, ahead.sample, 1)
    silent = label == NO_ANSWER
    _stopped(found, pairs.sample, torch.where(silent, SILENT, FOOLED))
    fooled = (label != original[pairs.sample]) & ~silent
    won = fooled.nonzero()[:, 0]
    if len(won):
        yield from _settled(group, pairs.at(won), ahead.at(won), label[won], original, found, pace, step)
    return ahead.at((~fooled & ~silent).nonzero()[:, 0])


def _able_to_win(group: Group, pairs: _Pairs, found: Fooled, pace: Pace) -> Generator[Task, Done, _Pairs]:
    """Pairs that are not further than another target of their sample that has fooled already."""
    rows = torch.isfinite(found.score[pairs.sample]).nonzero()[:, 0]
    if not len(rows):
        return pairs
    samples = pairs.sample[rows]
    motion = group.log(pairs.place[rows]).nan_to_num(0.0, 0.0, 0.0)
    told = yield _measured(group, samples, motion, pace, most=_STOPS)
    able = torch.ones_like(pairs.sample, dtype=torch.bool)
    able[rows] = told["score"] <= found.score[samples]
    return pairs.at(able.nonzero()[:, 0])


def _settled(
    group: Group,
    before: _Pairs,
    after: _Pairs,
    label: Tensor,
    original: Tensor,
    found: Fooled,
    pace: Pace,
    step: int,
) -> Generator[Task, Done, None]:
    """Shorten the last step of pairs that fool, and keep the motions that are smaller than those of other targets."""
    place, label = after.place.clone(), label.clone()
    shares = 1 - 0.8 ** torch.arange(1, BACKTRACKS + 1, dtype=torch.float64)
    rows = torch.arange(len(label))
    for some in torch.split(shares, list(_ROUNDS)) if pace.backtrack else ():
        if not len(rows):
            break
        own, many = before.at(rows), len(some)
        ways = (some[:, None] * after.pace[rows, None]).flatten(0, 1)
        tries = _moved_on(group, own.place.repeat_interleave(many, 0), ways, pace.left)
        told = yield _asked(own.sample.repeat_interleave(many), tries, original, own.target.repeat_interleave(many))
        _count(found.queries, own.sample, many)
        labels = told["label"].view(-1, many)
        fooling = (labels != original[own.sample][:, None]) & (labels != NO_ANSWER)
        first, shorter = fooling.to(torch.int8).argmax(1), fooling.any(1)
        place[rows[shorter]] = tries.view(-1, many, 3, 3)[shorter, first[shorter]]
        label[rows[shorter]] = labels[shorter, first[shorter]]
        rows = rows[~shorter]
    motion = group.log(place)
    whole = torch.isfinite(motion).all(1)
    motion = torch.where(whole[:, None], motion, 0.0)
    bound = yield _measured(group, before.sample, motion, pace, most=_STOPS)
    near = (whole & (bound["score"] < found.score[before.sample])).nonzero()[:, 0]
    if not len(near):
        return
    told = yield _measured(group, before.sample[near], motion[near], pace)
    for row, score in zip(near.tolist(), told["score"].tolist(), strict=True):
        sample = int(before.sample[row])
        if score < found.score[sample]:
            found.score[sample] = score
            found.motion[sample] = motion[row]
            found.label[sample] = label[row]
            found.target[sample] = before.target[row]
            found.steps[sample] = step
            found.reason[sample] = FOOLED


def _moved_on(group: Group, places: Tensor, ways: Tensor, left: bool) -> Tensor:
    """Motions a step further: on the right, as the paper's equations say."""
    on = group.exp(-ways)
    return on @ places if left else places @ on


def _stopped(found: Fooled, samples: Tensor, why: Tensor) -> None:
    """Note why pairs stopped, for samples of which nothing better is known."""
    for code in (FLAT, NO_SLOPE, LEFT, SILENT):
        stopped = samples[why == code]
        open_ones = stopped[found.reason[stopped] != FOOLED]
        found.reason[open_ones] = code


def _count(counts: Tensor, samples: Tensor, each: int) -> None:
    counts.index_add_(0, samples, torch.full_like(samples, each))


def _looked(samples: Tensor, targets: int) -> Task:
    """The labels of unmoved images, and their most probable other classes (N, targets), the likeliest first."""

    def do(stage: Stage, part: slice) -> Done:
        rows = samples[part]
        values, labels = stage.scores(rows)
        others = values.clone().nan_to_num(nan=-torch.inf)
        others.scatter_(1, labels.clamp(min=0)[:, None], -torch.inf)
        best = others.topk(min(targets, values.shape[1] - 1), dim=1)
        return {"label": labels, "others": best.indices}

    return Task(len(samples), do, images=len(samples))


def _asked(samples: Tensor, matrices: Tensor, original: Tensor, targets: Tensor) -> Task:
    """The labels of moved images, and by how much the original class leads the target."""

    def do(stage: Stage, part: slice) -> Done:
        rows = samples[part]
        values, labels = stage.scores(rows, matrices[part])
        plus, minus = (which.to(values.device)[:, None] for which in (original[rows].clamp(min=0), targets[part]))
        return {"label": labels, "gap": (values.gather(1, plus) - values.gather(1, minus))[:, 0]}

    return Task(len(samples), do, images=len(samples))


def _slopes(group: Group, pairs: _Pairs, original: Tensor, pace: Pace) -> Task:
    """What says where to go: the Jacobian's products with itself and with the gradient; or why nothing does."""

    def do(stage: Stage, part: slice) -> Done:
        rows, place = pairs.sample[part], pairs.place[part]
        frames, seen = stage.frames(rows), stage.seen(rows)
        images = frames.move(place)
        gradient = stage.gradient(images, rows, original[rows], pairs.target[part])
        gone = images.flatten(1).any(1).logical_not()
        level = gradient.flatten(1).any(1).logical_not()
        why = torch.where(level, NO_SLOPE, FLAT)
        why = torch.where(gone & frames.images.flatten(1).any(1), LEFT, why)
        if not pace.numerical:
            own, along = jacobian_gram(images, frames, group, seen), pullback(images, gradient, frames, group)
            return {"products": own, "pulls": along, "why": why}
        columns = numerical_jacobian(frames, place, group, left=pace.left)
        columns = columns if seen is None else columns * seen[:, None]
        along = (columns.flatten(2) @ gradient.flatten(1)[..., None])[..., 0]
        return {"products": gram(columns), "pulls": along.to(torch.float64), "why": why}

    return Task(len(pairs.sample), do, images=len(pairs.sample))


def _measured(group: Group, samples: Tensor, motions: Tensor, pace: Pace, most: int | None = None) -> Task:
    """The geodesic scores of motions, or with at `most` so many stops a bound of them."""

    def do(stage: Stage, part: slice) -> Done:
        frames = stage.frames(samples[part])
        return {"score": geodesic_scores(frames, group, motions[part], eta=pace.eta, least=pace.least, most=most)}

    return Task(len(samples), do)
