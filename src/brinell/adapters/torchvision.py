"""Operators as transforms of torchvision v2: images, videos, boxes, masks and keypoints of a sample change together."""

from __future__ import annotations

from typing import Any

from PIL import Image
from torch import Tensor

from brinell.errors import DataError, MissingExtra
from brinell.perturb.arrays import to_batch
from brinell.perturb.perturbation import Perturbation

try:
    from torchvision import tv_tensors
    from torchvision.transforms import v2
except ImportError as error:
    raise MissingExtra("torchvision", "torchvision") from error

_ROTATED = ("XYWHR", "CXCYWHR", "XYXYXYXY")


class Perturb(v2.Transform):  # type: ignore[misc]
    """An operator at one severity as a transform: `Perturb("fog", 0.4)`.

    Images are tensors (…, C, H, W) of uint8 or floats in [0, 1], or Pillow images. Geometric operators move boxes, masks
    and keypoints with the image. Random operators draw by the seed and the image's content.
    """

    def __init__(self, operator: str, severity: float, *, seed: int = 0) -> None:
        super().__init__()
        self.operator, self.severity, self.seed = operator, severity, seed
        self._perturbation = Perturbation(operator, severity, seed)
        self._perturbation.parameters(1, 32, 32)  # a wrong name or severity is reported here, not in a worker

    def transform(self, inpt: Any, params: dict[str, Any]) -> Any:
        """Return one part of a sample under the operator."""
        if isinstance(inpt, tv_tensors.BoundingBoxes):
            return self._move_boxes(inpt)
        if isinstance(inpt, tv_tensors.KeyPoints):
            return self._move_points(inpt)
        if isinstance(inpt, tv_tensors.Mask):
            return tv_tensors.wrap(self._perturbation.masks(inpt.as_subclass(Tensor)), like=inpt)
        if isinstance(inpt, Image.Image):
            batch = to_batch(inpt)
            return batch.restore(self._perturbation.images(batch.images))
        plain = inpt.as_subclass(Tensor)
        if plain.ndim < 3:
            raise DataError(f"expected an image (…, C, H, W), got shape {tuple(plain.shape)}")
        batch = to_batch(plain.reshape(-1, *plain.shape[-3:]), "NCHW")
        changed = batch.restore(self._perturbation.images(batch.images)).view_as(plain)
        return tv_tensors.wrap(changed, like=inpt) if isinstance(inpt, tv_tensors.TVTensor) else changed

    def _move_boxes(self, boxes: Any) -> Any:
        matrices = self._perturbation.matrices(1, *boxes.canvas_size)
        if matrices is None:
            return boxes
        if boxes.format.name in _ROTATED:
            raise DataError(f"boxes in the format {boxes.format.name} can't be moved; convert them to XYXY first")
        upright = v2.functional.convert_bounding_box_format(boxes, new_format=tv_tensors.BoundingBoxFormat.XYXY)
        moved = self._perturbation.boxes(upright.as_subclass(Tensor), *boxes.canvas_size)
        wrapped = tv_tensors.wrap(moved, like=upright)
        return v2.functional.convert_bounding_box_format(wrapped, new_format=boxes.format)

    def _move_points(self, points: Any) -> Any:
        plain = points.as_subclass(Tensor)
        moved = self._perturbation.points(plain.reshape(-1, 2), *points.canvas_size)
        return tv_tensors.wrap(moved.view_as(plain), like=points)
