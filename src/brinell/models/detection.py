"""Detectors: what a network gives, as boxes, labels and scores.

Networks differ in how they write boxes, in what their scores mean and in whether they suppress boxes that tell the same
object twice. `Decoding` says which it is; `decoded` brings it all to `Detections`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.boxes import Detections, overlaps
from brinell.config.detection import MAX_CANDIDATES, Decoding
from brinell.errors import ModelError


@dataclass(frozen=True)
class Detector:
    """What makes a model a detector: normalised images to detections, and how its outputs are read."""

    detect: Callable[[Tensor], Detections]
    how: Decoding

    @property
    def score_threshold(self) -> float:
        """The score from which a detection counts as found."""
        return self.how.score_threshold

    def found(self, detections: Detections) -> Detections:
        """The detections that count."""
        return detections.where(detections.scores >= self.score_threshold)


@dataclass(frozen=True)
class Heads:
    """A network's outputs, each in its place: boxes (N, A, 4), scores (N, A, K), or (N, A) with labels (N, A)."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor | None = None
    objectness: Tensor | None = None
    pixels: bool = False  # corners in pixels, whatever else is said


def decoded(heads: Heads, how: Decoding, height: int, width: int) -> Detections:
    """Detections on a model input of that size."""
    boxes = heads.boxes.to(torch.float32)
    if not heads.pixels:
        boxes = _corners(boxes, how.box_format)
    if how.box_units == "relative" and not heads.pixels:
        boxes = boxes * boxes.new_tensor([width, height, width, height])
    scores = scored(heads, how)
    unanswered = scores.isnan().flatten(1).any(1) | boxes.isnan().flatten(1).any(1)
    scores = scores.nan_to_num(0)
    if heads.labels is None:
        owners, labels, scores = _best_pairs(scores, how.keep_from)
    else:
        labels = heads.labels.to(torch.int64) - int(how.background == "first")
        scores = scores.masked_fill(labels < 0, 0)
        owners, scores = _best(scores, how.keep_from)
        labels = labels.gather(1, owners)
    boxes = boxes.gather(1, owners[..., None].expand(-1, -1, 4)).nan_to_num(0)
    limit = how.iou_threshold if how.iou_threshold is not None else 0.5 if heads.labels is None else 1.0
    kept = scores >= how.keep_from
    if limit < 1:
        kept = unsuppressed(boxes, labels, kept, limit)
    found = _packed(Detections(boxes, labels, scores).where(kept), how.max_detections)
    return Detections(found.boxes, found.labels, found.scores.masked_fill(unanswered[:, None], torch.nan))


def scored(heads: Heads, how: Decoding) -> Tensor:
    """The probabilities of a network's boxes, float32: (N, A, K), or (N, A) beside labels."""
    scores = _probabilities(heads.scores.to(torch.float32), how)
    if heads.objectness is None:
        return scores
    own = heads.objectness.to(torch.float32).reshape(scores.shape[:2] + (1,) * (scores.ndim - 2))
    return scores * (own.sigmoid() if how.activation != "none" else own)


def unsuppressed(boxes: Tensor, labels: Tensor, alive: Tensor, limit: float) -> Tensor:
    """Which boxes (N, M, 4), the best first, no better box of their class overlaps by more than the limit: (N, M).

    Greedy: a box that is suppressed itself suppresses nobody. Only pairs of one class are looked at. All boxes are judged
    at once by what is known so far, again and again: the first places are settled first, and in the end all are.
    """
    count = boxes.shape[1]
    better = torch.ones(count, count, dtype=torch.bool, device=boxes.device).triu(1)
    kinds = labels.to(torch.int16).masked_fill(~alive, -1)
    pairs = (kinds[:, :, None] == kinds[:, None, :]) & better & alive[:, :, None]
    image, first, second = pairs.nonzero(as_tuple=True)
    over = overlaps(boxes[image, first, None], boxes[image, second, None])[:, 0, 0] > limit
    winner, loser = (image * count + first)[over], (image * count + second)[over]
    start = kept = alive.flatten()
    while True:
        beaten = torch.zeros_like(kept).index_fill_(0, loser[kept[winner]], 1)
        again = start & ~beaten
        if torch.equal(again, kept):
            return kept.view_as(alive)
        kept = again


def _corners(boxes: Tensor, form: str) -> Tensor:
    if form == "xyxy":
        return boxes
    first, sides = boxes[..., :2], boxes[..., 2:]
    low = first - sides / 2 if form == "cxcywh" else first
    return torch.cat([low, low + sides], -1)


def _probabilities(scores: Tensor, how: Decoding) -> Tensor:
    if how.activation == "sigmoid":
        scores = scores.sigmoid()
    elif how.activation == "softmax":
        scores = scores.softmax(-1)
    if scores.ndim == 3 and how.background != "none":
        scores = scores[..., 1:] if how.background == "first" else scores[..., :-1]
    return scores


def _best(scores: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """The places (N, M) of the best scores of (N, A), and the scores; equal ones in the order of their place."""
    count = min(MAX_CANDIDATES, int((scores >= floor).sum(1).max()))
    places = scores.topk(count, 1).indices.sort(1).values
    best, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    return places.gather(1, order), best


def _best_pairs(scores: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """The best pairs of a box and a class: which box, which class, and the score, (N, M) each."""
    classes = scores.shape[2]
    places, best = _best(scores.flatten(1), floor)
    return places // classes, places % classes, best


def _packed(found: Detections, size: int) -> Detections:
    """The detections moved together to the front, as many as there is room for."""
    order = (found.labels < 0).to(torch.int8).sort(dim=1, stable=True).indices[:, :size]
    boxes = found.boxes.gather(1, order[..., None].expand(-1, -1, 4))
    labels, scores = found.labels.gather(1, order), found.scores.gather(1, order)
    free = size - order.shape[1]
    boxes = torch.nn.functional.pad(boxes, (0, 0, 0, free))
    labels, scores = (torch.nn.functional.pad(each, (0, free), value=fill) for each, fill in ((labels, -1), (scores, 0)))
    return Detections(boxes.masked_fill((labels < 0)[..., None], 0), labels, scores)


def heads_of(outputs: Any, how: Decoding, name: str) -> Heads:
    """A network's outputs put in their places: a mapping of tensors, a sequence of them, one tensor, or torchvision's
    list with a mapping for each image.
    """
    if isinstance(outputs, (list, tuple)) and outputs and isinstance(outputs[0], Mapping):
        return _listed(outputs, name)
    if isinstance(outputs, Tensor):
        return _from_columns(outputs, how, name)
    if isinstance(outputs, (list, tuple)):
        outputs = dict(enumerate(outputs))
    if not isinstance(outputs, Mapping) or not all(isinstance(each, Tensor) for each in outputs.values()):
        raise ModelError(f"detector {name} should give tensors of boxes and scores, but gave {type(outputs).__name__}")
    if len(outputs) == 1:
        return _from_columns(next(iter(outputs.values())), how, name)
    named = {role: _named(outputs, asked, name) for role in _ROLES if (asked := getattr(how, role)) is not None}
    for role in ("boxes", "scores", "labels"):
        if role not in named and role in outputs:
            named[role] = outputs[role]
    rest = [each for each in outputs.values() if not any(each is other for other in named.values())]
    if "boxes" not in named:
        named["boxes"] = _only([each for each in rest if each.ndim == 3 and each.shape[2] == 4], "boxes", outputs, name)
        rest = [each for each in rest if each is not named["boxes"]]
    if "scores" not in named:
        named["scores"] = _only([each for each in rest if each.is_floating_point()], "scores", outputs, name)
    heads = Heads(named["boxes"], named["scores"], named.get("labels"), named.get("objectness"))
    count = heads.boxes.shape[:2]
    expected = 3 if heads.labels is None else 2
    if heads.boxes.shape[2:] != (4,) or heads.scores.shape[:2] != count or heads.scores.ndim != expected:
        shapes = f"{tuple(heads.boxes.shape)} and {tuple(heads.scores.shape)}"
        wanted = "(N, A, classes)" if heads.labels is None else "(N, A), beside labels"
        raise ModelError(f"detector {name} should give boxes (N, A, 4) and scores {wanted}, but gave {shapes}")
    return heads


_ROLES = ("boxes", "scores", "labels", "objectness")


def _named(outputs: Mapping[Any, Tensor], asked: str, name: str) -> Tensor:
    key: Any = int(asked) if asked.isdigit() and asked not in outputs else asked
    if key not in outputs:
        raise ModelError(f"detector {name} has no output {asked!r}; it has {', '.join(map(str, outputs))}")
    return outputs[key]


def _only(fitting: Sequence[Tensor], role: str, outputs: Mapping[Any, Tensor], name: str) -> Tensor:
    if len(fitting) != 1:
        shapes = ", ".join(f"{key} {tuple(each.shape)}" for key, each in outputs.items())
        raise ModelError(f"say which output of detector {name} holds the {role} (?{role}=NAME): it gives {shapes}")
    return fitting[0]


def _from_columns(output: Tensor, how: Decoding, name: str) -> Heads:
    """Heads from one tensor (N, A, 4 + classes), or with axes 1 and 2 exchanged: there are more boxes than columns."""
    if output.ndim != 3:
        raise ModelError(f"detector {name} should give one tensor (N, A, 4 + classes), but gave {tuple(output.shape)}")
    if output.shape[1] < output.shape[2]:
        output = output.transpose(1, 2)
    skipped = 4 if how.objectness is None else 5
    if output.shape[2] <= skipped:
        raise ModelError(f"detector {name} gives {output.shape[2]} columns, which leaves none for classes' scores")
    objectness = None if how.objectness is None else output[..., 4]
    return Heads(output[..., :4], output[..., skipped:], objectness=objectness)


def _listed(outputs: Sequence[Mapping[str, Tensor]], name: str) -> Heads:
    """Answers as torchvision gives them, a mapping for each image, padded; boxes are pixels there."""
    missing = [key for key in ("boxes", "labels", "scores") if key not in outputs[0]]
    if missing:
        raise ModelError(f"detector {name} should give boxes, labels and scores for each image, but gave no {missing[0]}")
    boxes, labels, scores = (
        torch.nn.utils.rnn.pad_sequence([each[key] for each in outputs], batch_first=True)
        for key in ("boxes", "labels", "scores")
    )
    return Heads(boxes.reshape(len(outputs), -1, 4), scores, labels, pixels=True)
