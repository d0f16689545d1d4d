"""Changed images made again from what the rows say: the very pixels that a model was asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from brinell.boxes import clip_boxes, move_boxes
from brinell.engine.evaluator import Bench, on_input
from brinell.errors import ConfigError
from brinell.lenses.lens import Asked, Trials
from brinell.lenses.tasks import Motion
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.perturb.operator import Operator
from brinell.perturb.property import Property, PropertyKind
from brinell.perturb.view import View


@dataclass(frozen=True)
class Version:
    """An original, by its id, what is done to it and how far: an operator's level, a property's severities, a view's
    parameters or a motion's coordinates, and which of the image's random fields is drawn.
    """

    image: str
    change: Asked
    parameters: tuple[float, ...]
    field: int = 0


def remade(bench: Bench, versions: Sequence[Version], places: Mapping[str, int]) -> Iterator[tuple[int, Tensor]]:
    """Each version's number and its model input, in whichever order spares work; `places` are the originals' on the bench."""

    def together(number: int) -> tuple[str, float]:
        version = versions[number]
        # rising levels, so that a step operator goes on instead of starting again
        return version.change.id, version.parameters[0] if isinstance(version.change, Operator) else 0

    order = sorted(range(len(versions)), key=lambda number: (together(number), places[versions[number].image]))
    for _, numbers in groupby(order, together):
        same = list(numbers)
        for start in range(0, len(same), bench.batch):
            part = same[start : start + bench.batch]
            samples = torch.tensor([places[versions[number].image] for number in part])
            yield from zip(part, _made(bench, samples, [versions[number] for number in part]).cpu(), strict=True)


def _made(bench: Bench, samples: Tensor, versions: Sequence[Version]) -> Tensor:
    change = versions[0].change
    parameters = torch.tensor([version.parameters for version in versions], dtype=torch.float64)
    levels = parameters[:, 0].to(torch.int64) if isinstance(change, Operator) else parameters
    fields = torch.tensor([version.field for version in versions])
    return bench.images(Trials(samples, change, levels, fields), slice(0, len(samples)))


def boxes_of(version: Version, boxes: Tensor, preprocess: Preprocess, size: tuple[int, int]) -> Tensor:
    """Where boxes (K, 4) of an image of a height and width lie on the model input of a version of it; those that left it have no
    area.
    """
    height, width, change = preprocess.height, preprocess.width, version.change
    parameters = torch.tensor([version.parameters], dtype=torch.float64)
    boxes = preprocess.map_boxes(boxes, *size)
    if isinstance(change, View) and change.frame is not None:
        boxes = move_boxes(boxes[None], on_input(change.frame(parameters), preprocess.matrix(*size)))[0]
    elif isinstance(change, View) and not change.compares:
        raise ConfigError(f"nobody knows where boxes are in {change.name}; leave it out with --operator")
    elif isinstance(change, Property) and change.kind is PropertyKind.MOTION:
        seen = clip_boxes(boxes, height, width)  # what a crop cut off doesn't come back
        boxes = move_boxes(seen[None], change.matrices(parameters, height, width))[0]
    elif isinstance(change, Motion):
        boxes = move_boxes(boxes[None], preprocess.centre_on_input(change.group.exp(parameters).inverse(), *size))[0]
    return clip_boxes(boxes, height, width)


def unasked(name: str, preprocess: Preprocess, device: torch.device) -> Model:
    """What stands on a bench for a model that makes images and is not asked about them."""

    def refuse(images: Tensor) -> Tensor:
        raise AssertionError(f"{name} is only here to make images")

    return Model(name, refuse, preprocess, device, fingerprint="", outputs=0, probabilities=True)
