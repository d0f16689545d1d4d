"""The box whose score a detector's saliency map explains.

On the clean image it is the best box of the label. On the changed one it is the best box of the label that overlaps it,
moved with the image: the same object, however low its score has become. Where no box overlaps it the object has no score,
and its map is empty.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.boxes import box_iou, clip_boxes
from brinell.models.detection import BoxScores
from brinell.models.marking import WEAK_OBJECT


def select_boxes(found: BoxScores, classes: Tensor, near: Tensor | None, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the score of each image's box (N,), and the box (N, 4).

    `near` (N, 4) is where the object is, NaN if any box will do. Without a box, the score is 0 and has no gradient, and the
    box is NaN.
    """
    scores, boxes = found.of_classes(classes), found.boxes.detach()
    if scores.shape[1] == 0:
        return scores.new_zeros(len(scores)), boxes.new_full((len(scores), 4), torch.nan)
    fits = scores.detach() > 0
    if near is not None:
        seen = clip_boxes(near.to(boxes), height, width)[:, None]
        overlaps = box_iou(clip_boxes(boxes, height, width), seen)[..., 0] >= WEAK_OBJECT
        fits &= overlaps | near.isnan().any(1, keepdim=True)
    best = scores.detach().masked_fill(~fits, -1).argmax(1, keepdim=True)
    found_any = fits.gather(1, best)[:, 0]
    values = scores.gather(1, best)[:, 0].clamp(min=1e-30).log() * found_any
    chosen = boxes.gather(1, best[..., None].expand(-1, 1, 4))[:, 0]
    return values, chosen.masked_fill(~found_any[:, None], torch.nan)
