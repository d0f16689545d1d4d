"""What a detector found in one image, as marks on a picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brinell.boxes import Detections, areas, box_iou, clip_boxes
from brinell.classes import Classes
from brinell.marks import Kind, Mark
from brinell.models.model import Model

SAME_OBJECT = 0.5  # overlap (IoU) from which two boxes are the same object
WEAK_OBJECT = 0.3  # overlap from which a detection below the threshold is what is left of an object
MOST = 7  # marks on a picture
ORDER: tuple[Kind, ...] = ("lost", "weak", "changed", "found", "new")  # which marks matter most


@dataclass(frozen=True)
class Marker:
    """Makes marks on model inputs of a height and width: `name` names classes, and detections count from a threshold."""

    name: Callable[[int], str]
    score_threshold: float
    height: int
    width: int

    def mark_clean(self, detections: Detections, first: Collection[int] = ()) -> tuple[Mark, ...]:
        """Return what was found in one image, (1, M); objects of some classes first."""
        found = _Boxes.of(detections, detections.scores >= self.score_threshold)
        marks = [self._mark(*each, "found") for each in zip(found.boxes, self._texts(found), strict=True)]
        return self._most_important(marks, first)

    def mark_changed(self, detections: Detections, before: Detections, first: Collection[int] = ()) -> tuple[Mark, ...]:
        """Return what was found in one changed image, (1, M), and what became of what was found `before`, moved with it.

        Objects of some classes come `first`.
        """
        found = _Boxes.of(detections, detections.scores >= self.score_threshold)
        weak = _Boxes.of(detections, detections.scores < self.score_threshold)
        seen = replace(before, boxes=clip_boxes(before.boxes, self.height, self.width))  # a part may have left the picture
        was = _Boxes.of(seen, (before.scores >= self.score_threshold) & (areas(seen.boxes) > 0))
        match = box_iou(found.boxes, was.boxes) >= SAME_OBJECT
        same = match & (found.labels[:, None] == was.labels)
        marks = [*self._mark_found(found, was, match, same), *self._mark_missing(weak, was, match.any(0))]
        return self._most_important(marks, first)

    def _most_important(self, marks: list[Mark], first: Collection[int]) -> tuple[Mark, ...]:
        """Return as many marks as a picture has room for: those about some classes, then lost objects, and so on."""
        starts = tuple(f"{self.name(label)} " for label in first)
        ends = tuple(f" was {self.name(label)}" for label in first)

        def rank(mark: Mark) -> tuple[bool, int]:
            return not (mark.text.startswith(starts) or mark.text.endswith(ends)), ORDER.index(mark.kind)

        return tuple(sorted(marks, key=rank)[:MOST])

    def _mark_found(self, found: _Boxes, was: _Boxes, match: Tensor, same: Tensor) -> Iterator[Mark]:
        """Yield what was found: again, as another class, or for the first time."""
        renamed = match & ~same.any(0)  # of those that are not found as what they are
        for number, (box, text) in enumerate(zip(found.boxes, self._texts(found), strict=True)):
            if bool(same[number].any()):
                yield self._mark(box, text, "found")
            elif bool(renamed[number].any()):
                yield self._mark(box, f"{text}, was {self.name(int(was.labels[renamed[number]][0]))}", "changed")
            else:
                yield self._mark(box, f"{text}, new", "new")

    def _mark_missing(self, weak: _Boxes, was: _Boxes, again: Tensor) -> Iterator[Mark]:
        """Yield what was found before and isn't any more: with too low a score, or lost."""
        left = (box_iou(was.boxes, weak.boxes) >= WEAK_OBJECT) & (was.labels[:, None] == weak.labels)
        for number in (~again).nonzero()[:, 0].tolist():
            name = self.name(int(was.labels[number]))
            if bool(left[number].any()):
                best = int((weak.scores * left[number]).argmax())
                text = f"{name} {float(weak.scores[best]):.2f} < {self.score_threshold:g}"
                yield self._mark(weak.boxes[best], text, "weak")
            else:
                yield self._mark(was.boxes[number], f"{name} lost", "lost")

    def _texts(self, found: _Boxes) -> list[str]:
        pairs = zip(found.labels.tolist(), found.scores.tolist(), strict=True)
        return [f"{self.name(label)} {score:.2f}" for label, score in pairs]

    def _mark(self, box: Tensor, text: str, kind: Kind) -> Mark:
        left, top, right, bottom = (box.cpu() / torch.tensor([self.width, self.height] * 2)).tolist()
        return Mark((left, top, right, bottom), text, kind)


def marker_of(model: Model) -> Marker:
    """Return what makes marks of a model's detections."""
    classes = model.classes or Classes(())
    threshold = 0.0 if model.detector is None else model.detector.score_threshold
    name = lambda index: "nothing" if index < 0 else classes.short_name(index)  # noqa: E731
    return Marker(name, threshold, model.preprocess.height, model.preprocess.width)


@dataclass(frozen=True)
class _Boxes:
    """Some detections of one image: boxes (M, 4), labels and scores (M,)."""

    boxes: Tensor
    labels: Tensor
    scores: Tensor

    @classmethod
    def of(cls, detections: Detections, chosen: Tensor) -> _Boxes:
        kept = (chosen & (detections.labels >= 0))[0]
        return cls(detections.boxes[0][kept], detections.labels[0][kept], detections.scores[0][kept])
