"""Operators as transforms of albumentations: `Perturb("fog", 0.4)(image=image, mask=mask)`, alone or in `A.Compose`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from brinell.errors import MissingExtra
from brinell.perturb.perturbation import Perturbation, apply

try:
    from albumentations.core.transforms_interface import BaseTransformInitSchema, DualTransform
    from albumentations.core.type_definitions import ALL_TARGETS
except ImportError as error:
    raise MissingExtra("albumentations", "albumentations") from error


class Perturb(DualTransform):  # type: ignore[misc]
    """An operator at one severity as a transform; geometric operators move masks, boxes and keypoints with the image.

    Random operators draw by the seed and the image's content, so that albumentations' own seeds change nothing.
    """

    _targets = ALL_TARGETS

    class InitSchema(BaseTransformInitSchema):  # type: ignore[misc]
        """The arguments, as albumentations checks them."""

        operator: str
        severity: float
        seed: int

    def __init__(self, operator: str, severity: float, seed: int = 0, p: float = 1.0) -> None:
        super().__init__(p=p)
        self.operator, self.severity = operator, severity
        self._perturbation = Perturbation(operator, severity, seed)
        self._perturbation.parameters(1, 32, 32)  # a wrong name or severity is reported here

    def apply(self, img: np.ndarray, *args: Any, **params: Any) -> np.ndarray:
        """Return the image under the operator."""
        layout: Any = "HW" if img.ndim == 2 else "HWC"
        changed: np.ndarray = apply(img, self.operator, self.severity, seed=self._perturbation.seed, layout=layout)
        return changed

    def apply_to_mask(self, mask: np.ndarray, *args: Any, **params: Any) -> np.ndarray:
        """Return a mask, (H, W) or (H, W, C), where the operator moves it."""
        planes = torch.from_numpy(np.ascontiguousarray(mask))
        if mask.ndim == 2:
            return self._perturbation.masks(planes).numpy()
        return np.ascontiguousarray(self._perturbation.masks(planes.movedim(-1, 0).contiguous()).movedim(0, -1).numpy())

    def apply_to_bboxes(self, bboxes: np.ndarray, *args: Any, **params: Any) -> np.ndarray:
        """Return boxes, relative to the image, where the operator moves them."""
        height, width = params["shape"][:2]
        sides = np.array([width, height, width, height], np.float64)
        boxes = torch.from_numpy(bboxes[:, :4] * sides)
        moved = bboxes.copy()
        moved[:, :4] = self._perturbation.boxes(boxes, height, width).numpy() / sides
        return moved

    def apply_to_keypoints(self, keypoints: np.ndarray, *args: Any, **params: Any) -> np.ndarray:
        """Return keypoints (x, y, …) in pixels where the operator moves them."""
        height, width = params["shape"][:2]
        moved = keypoints.copy()
        moved[:, :2] = self._perturbation.points(torch.from_numpy(keypoints[:, :2]), height, width).numpy()
        return moved

    def get_transform_init_args(self) -> dict[str, Any]:
        """Return the arguments, with which albumentations stores the transform."""
        return {"operator": self.operator, "severity": self.severity, "seed": self._perturbation.seed, "p": self.p}
