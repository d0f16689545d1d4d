"""What a detector or segmenter found in changed images, next to what it found in the clean ones, which move with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brinell.boxes import Detections, areas, clip_boxes, move_boxes
from brinell.criteria.criterion import Scene
from brinell.criteria.distance import own_regions
from brinell.masks import Overlap, move_masks, overlap
from brinell.models.model import Model
from brinell.perturb.change import Change, Layout


@dataclass(frozen=True)
class Move:
    """How images were changed: by a change, its parameters (T, P), and where their originals lie on the model input."""

    change: Change
    parameters: Tensor
    layout: Layout

    def boxes(self, boxes: Tensor) -> Tensor:
        """Return where boxes (T, K, 4) of the clean model input lie on the changed one."""
        matrices = self.change.matrices(self.parameters, self.layout)
        return boxes if matrices is None else move_boxes(boxes, matrices)

    def masks(self, *masks: Tensor) -> tuple[Tensor, ...]:
        """Return masks (T, H, W) of the clean model input as they are on the changed one."""
        matrices = self.change.matrices(self.parameters, self.layout)
        return masks if matrices is None else tuple(move_masks(each, matrices) for each in masks)


def make_overlap(model: Model, masks: Tensor, clean: Tensor, true: Tensor | None, move: Move | None) -> Overlap:
    """Return how a segmenter's masks agree with the true ones, and with those of the clean images (N, H, W each).

    Without true masks, those of the clean images count as true.
    """
    true = clean if true is None else true
    if move is not None:
        true, clean = move.masks(true, clean)
    return overlap(masks, true, clean, model.outputs)


def make_scene(
    model: Model, detections: Detections, clean: Detections, *, labels: Tensor, regions: Tensor, move: Move | None
) -> Scene:
    """Return what a detector found. `regions` are NaN where it has to find the object itself, on the clean image."""
    detector, height, width = model.detector, model.preprocess.height, model.preprocess.width
    assert detector is not None
    before = detector.found(clean)
    regions = torch.where(regions.isnan(), own_regions(before, labels), regions)
    if move is not None and move.change.matrices(move.parameters, move.layout) is not None:
        regions = clip_boxes(move.boxes(regions[:, None]), height, width)[:, 0]
        before = replace(before, boxes=move.boxes(before.boxes))
        before = _visible(before, height, width) if move.change.crops else before
    return Scene(
        detections=detector.found(detections),
        clean=before,
        clean_probabilities=clean.class_scores(model.outputs),
        labels=labels,
        regions=regions,
        height=height,
        width=width,
        score_threshold=detector.score_threshold,
    )


def _visible(detections: Detections, height: int, width: int) -> Detections:
    """Return the detections of which any part lies on the model input."""
    return detections.where(areas(clip_boxes(detections.boxes, height, width)) > 0)
