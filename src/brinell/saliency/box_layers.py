"""Which layer the saliency maps of a detector's boxes come from.

A detector has heads for objects of several sizes, and the last convolution of one head says nothing about the boxes of
another. So it is the last layer that every box depends on: what the heads share. A layer in which a single position decides
about a box is passed over where there is another, since its map would be that position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from brinell.boxes import areas
from brinell.models.detection import BoxScores
from brinell.saliency.layers import Layer, NoSaliency, Output, keep_maps, named_layer, positions, record_outputs, title_of

PROBES = 8  # parts of the boxes, of which the best one each has to depend on the layer: heads lie one after the other


def find_box_layer(
    module: nn.Module, boxes: Callable[[Tensor], BoxScores], images: Tensor, name: str | None = None
) -> Layer:
    """Return the layer of that name, or the default one. `boxes` returns all boxes of images."""
    outputs, found = record_outputs(module, boxes, images)
    if name is not None:
        return named_layer(outputs, name, *images.shape[2:])
    maps = [one for one in outputs if positions(one.output) > 1 and one.output.requires_grad]
    if not maps:
        raise NoSaliency("it has no convolution; choose a layer with saliency.layer")
    reach = _reach(maps, probe_scores(found))
    shared = [one for one, least in zip(maps, reach, strict=True) if least > 0]
    wide = [one for one, least in zip(maps, reach, strict=True) if least > 1]
    if not shared:
        raise NoSaliency("its boxes have no layer in common; choose a layer with saliency.layer")
    chosen = (wide or shared)[-1]
    return Layer(chosen.name, chosen.module, keep_maps, title_of(outputs, chosen))


def probe_scores(found: BoxScores) -> list[Tensor]:
    """Return the logarithm of the best score in each of some parts of the boxes, as scalars.

    All boxes lie head by head; of those that a network has selected itself, the size says which head they are from.
    """
    if found.labels is None:
        scores = found.scores.amax(2)
    else:
        scores = found.scores.flatten()[areas(found.boxes.detach()).flatten().argsort()][None]
        scores = scores[:, scores[0].detach() > 0]  # lists are padded
    best = [part.flatten().amax().clamp(min=1e-30) for part in scores.chunk(PROBES, 1) if part.numel()]
    probes = [score.log() for score in best if float(score.detach()) > 1e-30]
    if not probes:
        raise NoSaliency("it finds no box in plain images, which would show its layers; choose one with saliency.layer")
    return probes


def _reach(maps: list[Output], probes: list[Tensor]) -> list[int]:
    """Return in how many positions of each map a box has a gradient: of the box that has the fewest."""
    least = torch.full((len(maps),), torch.iinfo(torch.int64).max)
    for probe in probes:
        gradients = torch.autograd.grad(probe, [one.output for one in maps], retain_graph=True, allow_unused=True)
        counts = [0 if each is None else int((each != 0).any(1).sum()) for each in gradients]
        least = torch.minimum(least, torch.tensor(counts))
    return [int(count) for count in least]
