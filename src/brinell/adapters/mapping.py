"""Operators as functions of batches: `dataset.map(perturb_batches("fog", 0.4), batched=True)` of Hugging Face `datasets`,
`dataset.map_batches(perturb_batches("fog", 0.4))` of Ray Data. Needs neither library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from brinell.boxes import areas
from brinell.errors import DataError
from brinell.perturb.perturbation import Perturbation, apply
from brinell.registry import nearest

Batch = Mapping[str, Any]
_OTHERS = ("categories", "category", "label", "labels", "area", "id", "bbox_id", "iscrowd")  # one entry per box


def perturb_batches(
    operator: str,
    severity: float,
    *,
    seed: int = 0,
    image: str = "image",
    mask: str | None = None,
    objects: str | None = None,
) -> Callable[[Batch], dict[str, Any]]:
    """Return a function that changes the column `image` of a batch, a mapping from columns to lists or arrays.

    Images are Pillow images or NumPy arrays, channels last. Geometric operators also move the columns `mask` and `objects`
    (mappings with `bbox` as x, y, width and height, as in COCO) where they are named; objects that leave the image are
    dropped. The function can be pickled and keeps no state.
    """
    perturbation = Perturbation(operator, severity, seed)
    perturbation.parameters(1, 32, 32)  # a wrong name or severity is reported here, not in a worker
    return partial(_perturb, perturbation, image, mask, objects)


def _perturb(perturbation: Perturbation, image: str, mask: str | None, objects: str | None, batch: Batch) -> dict[str, Any]:
    for column in (image, mask, objects):
        if column is not None and column not in batch:
            raise DataError(f"the batch has no column {column!r}; {nearest(column, list(batch))}")
    images = batch[image]
    each = list(images)
    changed = apply(each, perturbation.operator, perturbation.severity, seed=perturbation.seed)
    found = {**batch, image: _alike(changed, images)}
    sizes = [_size(one) for one in each]
    if mask is not None:
        found[mask] = _alike([_move_mask(perturbation, one) for one in batch[mask]], batch[mask])
    if objects is not None:
        pairs = zip(batch[objects], sizes, strict=True)
        found[objects] = [_move_objects(perturbation, one, *size) for one, size in pairs]
    return found


def _alike(images: list[Any], given: Any) -> Any:
    """Return images as the column was: an array of one shape, an array of objects, or a list."""
    if not isinstance(given, np.ndarray):
        return images
    if given.dtype != object:
        return np.stack(images)
    column = np.empty(len(images), dtype=object)
    column[:] = images
    return column


def _size(image: Any) -> tuple[int, int]:
    return (image.height, image.width) if hasattr(image, "height") else (image.shape[0], image.shape[1])


def _move_mask(perturbation: Perturbation, mask: Any) -> Any:
    moved = perturbation.masks(torch.from_numpy(np.array(mask))).numpy()
    return type(mask)(moved) if isinstance(mask, np.generic) else _as_picture(moved, mask)


def _as_picture(array: np.ndarray, like: Any) -> Any:
    if isinstance(like, np.ndarray):
        return array
    from PIL import Image

    picture = Image.fromarray(array)
    if like.mode == "P":
        picture.putpalette(like.getpalette() or [])
    return picture


def _move_objects(perturbation: Perturbation, objects: Mapping[str, Any], height: int, width: int) -> dict[str, Any]:
    boxes = torch.tensor(np.asarray(objects["bbox"], np.float64)).reshape(-1, 4)
    corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
    moved = perturbation.boxes(corners, height, width)
    kept = (areas(moved) > 0).nonzero()[:, 0].tolist()
    placed = torch.cat([moved[:, :2], moved[:, 2:] - moved[:, :2]], 1)
    others = {key: [value[number] for number in kept] for key, value in objects.items() if _is_per_box(key, value, boxes)}
    return {**objects, **others, "bbox": placed[kept].tolist()}


def _is_per_box(key: str, value: Any, boxes: Sequence[Any] | torch.Tensor) -> bool:
    return key in _OTHERS and hasattr(value, "__len__") and len(value) == len(boxes)
