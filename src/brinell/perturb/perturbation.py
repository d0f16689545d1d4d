"""An operator or a property at one severity, for use outside of runs: images of any kind, boxes and masks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from brinell.boxes import clip_boxes, move_boxes
from brinell.errors import ConfigError
from brinell.perturb.arrays import Batch, Layout, to_batch
from brinell.perturb.change import Change, Renderer, ToInput
from brinell.perturb.change import Layout as Place
from brinell.perturb.find import find_property_first
from brinell.perturb.steps import StepCache
from brinell.perturb.warp import warp_nearest
from brinell.types import id_number, image_id

Severity = float | Sequence[float]


def apply(images: Any, operator: str, severity: Severity, *, seed: int = 0, layout: Layout = "auto") -> Any:
    """Return images under an operator, as what was given: a NumPy array, a torch tensor, a Pillow image, or a list of them.

    Images are uint8 or floats in [0, 1], grey or RGB, alone or in a batch, channels first or last (`layout` names the axes
    where a shape has two meanings). `severity` is a severity of a property, -1 to 1, or a level of an operator, 0 to 30;
    one for all images, or one for each. Random operators draw by the seed and the image's content: the same image always
    gets the same result, in any batch. Input is not modified.
    """
    if not isinstance(images, (list, tuple)):
        batch = to_batch(images, layout)
        return batch.restore(Perturbation(operator, severity, seed).images(batch.images))
    batches = [to_batch(image, layout) for image in images]
    severities = _one_each(severity, len(batches))
    sizes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, batch in enumerate(batches):
        if len(batch.images) != 1:
            raise ConfigError("expected a list of single images, got a batch in it; pass batches one by one")
        sizes[(*batch.images.shape, batch.images.device)].append(number)
    changed: dict[int, Any] = {}
    for numbers in sizes.values():
        perturbation = Perturbation(operator, [severities[number] for number in numbers], seed)
        together = perturbation.images(torch.cat([batches[number].images for number in numbers]))
        changed |= {number: _restore(batches[number], image) for number, image in zip(numbers, together, strict=True)}
    return type(images)(changed[number] for number in range(len(batches)))


def _restore(batch: Batch, image: Tensor) -> Any:
    return batch.restore(image[None])


@dataclass(frozen=True)
class Perturbation:
    """An operator by its name, at one severity for all images or one for each. It can be pickled."""

    operator: str
    severity: Severity
    seed: int = 0

    @cached_property
    def change(self) -> Change:
        """The registered operator or property."""
        change = find_property_first(self.operator)
        if change.white_box:
            raise ConfigError(f"{change.name} follows a model's gradient and can't be applied alone; use brinell run")
        return change

    def __getstate__(self) -> dict[str, Any]:
        return {"operator": self.operator, "severity": self.severity, "seed": self.seed}

    def parameters(self, count: int, height: int, width: int) -> Tensor:
        """Return the change's parameters for some images of a size, float64 (count, P)."""
        severities = _one_each(self.severity, count)
        points = {severity: self.change.parameters_at(severity, height, width) for severity in set(severities)}
        return torch.tensor([points[severity] for severity in severities], dtype=torch.float64)

    def images(self, images: Tensor, ids: Tensor | None = None) -> Tensor:
        """Return uint8 images (N, C, H, W) under the operator, on their device.

        `ids`, int64 (N,), name the random draws (default: the images' own ids, which come from their content).
        """
        if not len(images):
            return images
        parameters = self.parameters(len(images), *images.shape[2:])
        if ids is None and self.change.stochastic:
            ids = torch.tensor([id_number(image_id(image)) for image in images.cpu()], dtype=torch.int64)
        ids = torch.zeros(len(images), dtype=torch.int64) if ids is None else ids
        renderer = cast(Renderer, _Alone(self.seed, ids.to(images.device), images, StepCache(images)))
        samples = torch.arange(len(images))
        self.change.prepare(renderer, samples)
        made = self.change.images(renderer, samples, parameters)
        shared = made.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()
        return made.clone() if shared else made  # whoever changes what was made must not change the original

    def matrices(self, count: int, height: int, width: int) -> Tensor | None:
        """Return where pixel centres of images of a size move, float64 (count, 3, 3); None if they stay."""
        place = Place(cast(ToInput, _Size(height, width)), [(height, width)] * count)
        return self.change.matrices(self.parameters(count, height, width), place)

    def boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """Return boxes (K, 4) of one image, xyxy in pixels, where the operator moves them; outside they have no area."""
        matrices = self.matrices(1, height, width)
        if matrices is None:
            return boxes
        moved = move_boxes(boxes.to(torch.float64)[None], matrices)[0]
        return clip_boxes(moved, height, width).to(boxes.dtype)

    def points(self, points: Tensor, height: int, width: int) -> Tensor:
        """Return points (K, 2) of one image, x and y counted from the centres of pixels, where the operator moves them."""
        matrices = self.matrices(1, height, width)
        if matrices is None:
            return points
        ahead = torch.nn.functional.pad(points.to(torch.float64), (0, 1), value=1.0) @ matrices[0].to(points.device).T
        return (ahead[:, :2] / ahead[:, 2:]).to(points.dtype)

    def masks(self, masks: Tensor) -> Tensor:
        """Return masks (…, H, W) of one image where the operator moves them; what comes from outside is 0."""
        height, width = masks.shape[-2:]
        matrices = self.matrices(1, height, width)
        if matrices is None:
            return masks
        return warp_nearest(masks.reshape(1, -1, height, width), matrices).view_as(masks)


@dataclass(frozen=True)
class _Alone:
    """What a change of the model input needs of a renderer: the images are the inputs."""

    seed: int
    ids: Tensor
    inputs: Tensor
    steps: StepCache


@dataclass(frozen=True)
class _Size:
    """What a motion of the model input needs of it."""

    height: int
    width: int


def _one_each(severity: Severity, count: int) -> list[float]:
    if isinstance(severity, (int, float)):
        return [float(severity)] * count
    severities = [float(each) for each in severity]
    if len(severities) != count:
        raise ConfigError(f"expected one severity for {count} images or one for each, got {len(severities)}")
    return severities
