"""Changed images made again from what the rows say: the very pixels that a model was asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from brinell.boxes import clipped, moved
from brinell.engine.bench import Bench
from brinell.errors import ConfigError
from brinell.models import Model, Preprocess
from brinell.perturb import Operator, Property, PropertyKind, View

Makeable = Operator | Property | View


@dataclass(frozen=True)
class Version:
    """An original, by its id, what is done to it and how far: an operator's level, a property's severities or a view's
    parameters, and which of the image's random fields is drawn.
    """

    image: str
    change: Makeable
    parameters: tuple[float, ...]
    field: int = 0


def remade(bench: Bench, versions: Sequence[Version], places: Mapping[str, int]) -> Iterator[tuple[int, Tensor]]:
    """Each version's number and its canvas, in whichever order spares work; `places` are the originals' on the bench."""

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
    if isinstance(change, View):
        return bench.viewed(change, samples, parameters)
    if isinstance(change, Property):
        return bench.changed(change, samples, parameters, torch.tensor([version.field for version in versions]))
    return bench.perturbed(change, samples, parameters[:, 0].to(torch.int64))


def boxes_of(version: Version, boxes: Tensor, height: int, width: int) -> Tensor:
    """Where boxes (K, 4) of the clean canvas lie in a version of it; those that left it have no area."""
    if isinstance(version.change, View) and not version.change.compares:
        raise ConfigError(f"nobody knows where boxes are in {version.change.name}; leave it out with --operator")
    if isinstance(version.change, Property) and version.change.kind is PropertyKind.MOTION:
        severities = torch.tensor([version.parameters], dtype=torch.float64)
        seen = clipped(boxes, height, width)  # what a crop cut off doesn't come back
        boxes = moved(seen[None], version.change.matrices(severities, height, width))[0]
    return clipped(boxes, height, width)


def unasked(name: str, preprocess: Preprocess, device: torch.device) -> Model:
    """What stands on a bench for a model that makes images and is not asked about them."""

    def refuse(images: Tensor) -> Tensor:
        raise AssertionError(f"{name} is only here to make images")

    return Model(name, refuse, preprocess, device, fingerprint="", outputs=0, probabilities=True)
