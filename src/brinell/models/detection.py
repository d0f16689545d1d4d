"""Detectors: a network's outputs decoded into boxes, labels and scores.

Networks differ in how they write boxes, in what their scores mean and in whether they suppress duplicates. `Decoding` says
how a network does it; `read_heads` finds its outputs and `decode_heads` turns them into `Detections`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.boxes import Detections, box_iou
from brinell.config.detection import MAX_CANDIDATES, Decoding
from brinell.errors import ModelError

DEFAULT_IOU = 0.5  # overlap above which a box is suppressed, unless the network suppresses boxes itself


@dataclass(frozen=True)
class Detector:
    """What makes a model a detector: a function from normalised images to detections, and how it decodes outputs."""

    detect: Callable[[Tensor], Detections]
    decoding: Decoding

    @property
    def score_threshold(self) -> float:
        """The score from which a detection counts as found."""
        return self.decoding.score_threshold

    def found(self, detections: Detections) -> Detections:
        """Return the detections that count as found."""
        return detections.where(detections.scores >= self.score_threshold)


@dataclass(frozen=True)
class Heads:
    """A network's outputs by their roles: boxes (N, A, 4), and scores (N, A, K), or scores (N, A) and labels (N, A)."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor | None = None
    objectness: Tensor | None = None
    pixels: bool = False  # boxes are xyxy in pixels, whatever the decoding says


def decode_heads(heads: Heads, decoding: Decoding, height: int, width: int) -> Detections:
    """Return the detections on a model input of a height and width."""
    boxes, scores = box_corners(heads, decoding, height, width), box_probabilities(heads, decoding)
    unanswered = scores.isnan().flatten(1).any(1) | boxes.isnan().flatten(1).any(1)
    scores = scores.nan_to_num(0)
    if heads.labels is None:
        owners, labels, scores = _best_pairs(scores, decoding.keep_from)
    else:
        labels = box_labels(heads.labels, decoding)
        scores = scores.masked_fill(labels < 0, 0)
        owners, scores = _best(scores, decoding.keep_from)
        labels = labels.gather(1, owners)
    boxes = boxes.gather(1, owners[..., None].expand(-1, -1, 4)).nan_to_num(0)
    limit = decoding.iou_threshold
    if limit is None:
        limit = DEFAULT_IOU if heads.labels is None else 1.0
    kept = scores >= decoding.keep_from
    if limit < 1:
        kept = suppress(boxes, labels, kept, limit)
    found = _pack(Detections(boxes, labels, scores).where(kept), decoding.max_detections)
    return Detections(found.boxes, found.labels, found.scores.masked_fill(unanswered[:, None], torch.nan))


@dataclass(frozen=True)
class BoxScores:
    """Every box that a network returns, in pixels (N, A, 4), with its scores (N, A, K), or scores and labels (N, A).

    Unlike `Detections` they are not sorted, cut or suppressed, so scores keep their gradients.
    """

    boxes: Tensor
    scores: Tensor
    labels: Tensor | None

    def of_classes(self, classes: Tensor) -> Tensor:
        """Return each box's score for the image's class, (N, A); classes (N,)."""
        if self.labels is not None:
            return self.scores * (self.labels == classes[:, None])
        return self.scores.gather(2, classes[:, None, None].expand(-1, self.scores.shape[1], 1))[..., 0]


def box_scores(heads: Heads, decoding: Decoding, height: int, width: int) -> BoxScores:
    """Return every box on a model input of a height and width, and its scores."""
    labels = None if heads.labels is None else box_labels(heads.labels, decoding)
    return BoxScores(box_corners(heads, decoding, height, width), box_probabilities(heads, decoding), labels)


def box_corners(heads: Heads, decoding: Decoding, height: int, width: int) -> Tensor:
    """Return a network's boxes as xyxy in pixels, float32 (N, A, 4)."""
    boxes = heads.boxes.to(torch.float32)
    if heads.pixels:
        return boxes
    boxes = to_corners(boxes, decoding.box_format)
    return boxes * boxes.new_tensor([width, height, width, height]) if decoding.box_units == "relative" else boxes


def box_labels(labels: Tensor, decoding: Decoding) -> Tensor:
    """Return a network's labels as indices of classes, int64; negative for the background."""
    return labels.to(torch.int64) - int(decoding.background == "first")


def box_probabilities(heads: Heads, decoding: Decoding) -> Tensor:
    """Return the probabilities of a network's boxes, float32: (N, A, K), or (N, A) if there are labels."""
    scores = _probabilities(heads.scores.to(torch.float32), decoding)
    if heads.objectness is None:
        return scores
    objectness = heads.objectness.to(torch.float32).reshape(scores.shape[:2] + (1,) * (scores.ndim - 2))
    return scores * (objectness.sigmoid() if decoding.activation != "none" else objectness)


def suppress(boxes: Tensor, labels: Tensor, alive: Tensor, limit: float) -> Tensor:
    """Non-maximum suppression: return which boxes (N, M, 4), sorted by score, remain, (N, M).

    A box is suppressed if a better box of its class that remains overlaps it by more than the limit. All boxes are decided
    in parallel from what is known so far, repeatedly: the best boxes settle first, and in the end all are settled.
    """
    count = boxes.shape[1]
    better = torch.ones(count, count, dtype=torch.bool, device=boxes.device).triu(1)
    classes = labels.to(torch.int16).masked_fill(~alive, -1)
    pairs = (classes[:, :, None] == classes[:, None, :]) & better & alive[:, :, None]
    image, first, second = pairs.nonzero(as_tuple=True)
    over = box_iou(boxes[image, first, None], boxes[image, second, None])[:, 0, 0] > limit
    winner, loser = (image * count + first)[over], (image * count + second)[over]
    start = kept = alive.flatten()
    while True:
        beaten = torch.zeros_like(kept).index_fill_(0, loser[kept[winner]], 1)
        remaining = start & ~beaten
        if torch.equal(remaining, kept):
            return kept.view_as(alive)
        kept = remaining


def to_corners(boxes: Tensor, box_format: str) -> Tensor:
    """Return boxes (…, 4) of a format as xyxy."""
    if box_format == "xyxy":
        return boxes
    first, sides = boxes[..., :2], boxes[..., 2:]
    low = first - sides / 2 if box_format == "cxcywh" else first
    return torch.cat([low, low + sides], -1)


def _probabilities(scores: Tensor, decoding: Decoding) -> Tensor:
    if decoding.activation == "sigmoid":
        scores = scores.sigmoid()
    elif decoding.activation == "softmax":
        scores = scores.softmax(-1)
    if scores.ndim == 3 and decoding.background != "none":
        scores = scores[..., 1:] if decoding.background == "first" else scores[..., :-1]
    return scores


def _best(scores: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return the indices (N, M) of the best scores of (N, A), and the scores; ties in the order of their index."""
    count = min(MAX_CANDIDATES, int((scores >= floor).sum(1).max()))
    indices = scores.topk(count, 1).indices.sort(1).values
    best, order = scores.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return indices.gather(1, order), best


def _best_pairs(scores: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best pairs of a box and a class: the box's index, the class and the score, (N, M) each."""
    classes = scores.shape[2]
    indices, best = _best(scores.flatten(1), floor)
    return indices // classes, indices % classes, best


def _pack(found: Detections, size: int) -> Detections:
    """Move detections to the front, and cut or pad them to a size."""
    order = (found.labels < 0).to(torch.int8).sort(dim=1, stable=True).indices[:, :size]
    boxes = found.boxes.gather(1, order[..., None].expand(-1, -1, 4))
    labels, scores = found.labels.gather(1, order), found.scores.gather(1, order)
    free = size - order.shape[1]
    boxes = torch.nn.functional.pad(boxes, (0, 0, 0, free))
    labels, scores = (torch.nn.functional.pad(each, (0, free), value=fill) for each, fill in ((labels, -1), (scores, 0)))
    return Detections(boxes.masked_fill((labels < 0)[..., None], 0), labels, scores)


# ---- finding the outputs ----

_ROLES = ("boxes", "scores", "labels", "objectness")


def read_heads(outputs: Any, decoding: Decoding, name: str) -> Heads:
    """Return a network's outputs by their roles.

    Outputs are a mapping or a sequence of tensors, one tensor, or a list with one mapping per image, as in torchvision.
    """
    if isinstance(outputs, (list, tuple)) and outputs and isinstance(outputs[0], Mapping):
        return _from_list(outputs, name)
    if isinstance(outputs, Tensor):
        return _from_columns(outputs, decoding, name)
    if isinstance(outputs, (list, tuple)):
        outputs = dict(enumerate(outputs))
    if not isinstance(outputs, Mapping) or not all(isinstance(each, Tensor) for each in outputs.values()):
        raise ModelError(
            f"detector {name} should return tensors of boxes and scores, but returned {type(outputs).__name__}"
        )
    if len(outputs) == 1:
        return _from_columns(next(iter(outputs.values())), decoding, name)
    return _check_shapes(_from_mapping(outputs, decoding, name), name)


def _from_mapping(outputs: Mapping[Any, Tensor], decoding: Decoding, name: str) -> Heads:
    """Find outputs by the names of the decoding, then by their usual names, then by their shapes."""
    found = {role: _named(outputs, key, name) for role in _ROLES if (key := getattr(decoding, role)) is not None}
    for role in ("boxes", "scores", "labels"):
        if role not in found and role in outputs:
            found[role] = outputs[role]
    rest = [each for each in outputs.values() if not any(each is other for other in found.values())]
    if "boxes" not in found:
        found["boxes"] = _only([each for each in rest if each.ndim == 3 and each.shape[2] == 4], "boxes", outputs, name)
        rest = [each for each in rest if each is not found["boxes"]]
    if "scores" not in found:
        found["scores"] = _only([each for each in rest if each.is_floating_point()], "scores", outputs, name)
    return Heads(found["boxes"], found["scores"], found.get("labels"), found.get("objectness"))


def _check_shapes(heads: Heads, name: str) -> Heads:
    count = heads.boxes.shape[:2]
    expected = 3 if heads.labels is None else 2
    if heads.boxes.shape[2:] != (4,) or heads.scores.shape[:2] != count or heads.scores.ndim != expected:
        shapes = f"{tuple(heads.boxes.shape)} and {tuple(heads.scores.shape)}"
        wanted = "(N, A, classes)" if heads.labels is None else "(N, A), since it returns labels"
        raise ModelError(f"detector {name} should return boxes (N, A, 4) and scores {wanted}, but returned {shapes}")
    return heads


def _named(outputs: Mapping[Any, Tensor], output: str, name: str) -> Tensor:
    key: Any = int(output) if output.isdigit() and output not in outputs else output
    if key not in outputs:
        raise ModelError(f"detector {name} has no output {output!r}; it has {', '.join(map(str, outputs))}")
    return outputs[key]


def _only(fitting: Sequence[Tensor], role: str, outputs: Mapping[Any, Tensor], name: str) -> Tensor:
    if len(fitting) != 1:
        shapes = ", ".join(f"{key} {tuple(each.shape)}" for key, each in outputs.items())
        raise ModelError(f"name the output of detector {name} that holds the {role} (?{role}=NAME); it returns {shapes}")
    return fitting[0]


def _from_columns(output: Tensor, decoding: Decoding, name: str) -> Heads:
    """Split one tensor (N, A, 4 + classes), or (N, 4 + classes, A): there are more boxes than columns."""
    if output.ndim == 3 and decoding.labels == "column":
        return _from_found(output, name)
    if output.ndim != 3:
        raise ModelError(f"detector {name} should return a tensor (N, A, 4 + classes), but returned {tuple(output.shape)}")
    if output.shape[1] < output.shape[2]:
        output = output.transpose(1, 2)
    first = 4 if decoding.objectness is None else 5
    if output.shape[2] <= first:
        raise ModelError(f"detector {name} returns {output.shape[2]} columns, which leaves none for the scores of classes")
    objectness = None if decoding.objectness is None else output[..., 4]
    return Heads(output[..., :4], output[..., first:], objectness=objectness)


def _from_found(output: Tensor, name: str) -> Heads:
    """Split one tensor (N, A, 6) of boxes that a network has suppressed itself: box, score and class."""
    if output.shape[2] != 6:
        raise ModelError(f"detector {name} should return 6 columns with labels=column, but returned {tuple(output.shape)}")
    return Heads(output[..., :4], output[..., 4], output[..., 5].round())


def _from_list(outputs: Sequence[Mapping[str, Tensor]], name: str) -> Heads:
    """Pad outputs in torchvision's form, one mapping per image with boxes in pixels, to a batch."""
    missing = [key for key in ("boxes", "labels", "scores") if key not in outputs[0]]
    if missing:
        raise ModelError(
            f"detector {name} should return boxes, labels and scores for each image, but returned no {missing[0]}"
        )
    boxes, labels, scores = (
        torch.nn.utils.rnn.pad_sequence([each[key] for each in outputs], batch_first=True)
        for key in ("boxes", "labels", "scores")
    )
    return Heads(boxes.reshape(len(outputs), -1, 4), scores, labels, pixels=True)
