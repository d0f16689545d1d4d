"""Criteria for segmenters. They compare masks with the true ones, or with those of the clean image, moved as the image is.

Without true masks, that of the clean image counts as true. Importing this module does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brinell.criteria.criterion import CRITERIA, Answer, Criterion, Namer, format_compared

if TYPE_CHECKING:
    from torch import Tensor

WORST = 3  # classes that an explanation names


@CRITERIA.register("miou_below")
def miou_below(iou: float = 0.5) -> Criterion:
    """The mean IoU of the classes in the image is below this."""

    def explain(answer: Answer, name: Namer) -> list[str]:
        texts = []
        for mean, row in zip(answer.overlap.iou.tolist(), _of_true_classes(answer), strict=True):
            worst = ", ".join(f"{name(label)} {value:.2f}" for value, label in sorted(row)[:WORST])
            texts.append(f"mean IoU {format_compared(mean, iou)} is below {iou:g} ({worst})")
        return texts

    return Criterion(f"miou_below({iou:g})", lambda answer: answer.overlap.iou < iou, masks=True, explain=explain)


@CRITERIA.register("class_iou_below")
def class_iou_below(target: int, iou: float = 0.5) -> Criterion:
    """The IoU of the target class, given by name or index, is below this; an image without it is never broken."""

    def is_below(answer: Answer) -> Tensor:
        return (answer.overlap.class_iou[:, target] < iou) & (answer.overlap.true[:, target] > 0)

    def explain(answer: Answer, name: Namer) -> list[str]:
        values = answer.overlap.class_iou[:, target].tolist()
        return [f"IoU of {name(target)} {format_compared(value, iou)} is below {iou:g}" for value in values]

    return Criterion(f"class_iou_below({target}, {iou:g})", is_below, masks=True, explain=explain)


@CRITERIA.register("pixels_changed")
def pixels_changed(share: float = 0.1) -> Criterion:
    """More than this share of the pixels has another class than on the clean image."""

    def explain(answer: Answer, name: Namer) -> list[str]:
        shares = answer.overlap.relabelled.tolist()
        return [f"{value:.1%} of the pixels have another class, more than {share:.3g}" for value in shares]

    return Criterion(
        f"pixels_changed({share:g})", lambda answer: answer.overlap.relabelled > share, masks=True, explain=explain
    )


def _of_true_classes(answer: Answer) -> list[list[tuple[float, int]]]:
    """Return the IoU of the classes that each image has, with their indices."""
    there, values = (answer.overlap.true > 0).tolist(), answer.overlap.class_iou.tolist()
    rows = zip(there, values, strict=True)
    return [[(value, label) for label, (own, value) in enumerate(zip(*row, strict=True)) if own] for row in rows]
