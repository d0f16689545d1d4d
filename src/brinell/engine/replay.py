"""From a row back to its image: the very pixels that a model saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from brinell.boxes import clip_boxes, move_boxes
from brinell.engine.renderer import Renderer
from brinell.errors import ConfigError
from brinell.lenses.method import Trials
from brinell.masks import move_masks
from brinell.models.preprocess import Preprocess
from brinell.perturb.change import Change, Layout


@dataclass(frozen=True)
class Replay:
    """An original by its id, the change that a row describes, its parameters, and which random field was drawn."""

    image: str
    change: Change
    parameters: tuple[float, ...]
    field: int = 0

    def boxes(self, boxes: Tensor, preprocess: Preprocess, size: tuple[int, int]) -> Tensor:
        """Return where boxes (K, 4) of an original of a height and width lie on the changed model input.

        Boxes that left it have no area.
        """
        height, width = preprocess.height, preprocess.width
        parameters = torch.tensor([self.parameters], dtype=torch.float64)
        boxes = preprocess.map_boxes(boxes, *size)
        matrices = self.change.matrices(parameters, Layout(preprocess, [size]))
        if matrices is None and not self.change.compares:
            raise ConfigError(f"the position of boxes under {self.change.name} is unknown; leave it out with --operator")
        if matrices is not None:
            # what the crop cut off does not come back where the model input itself is changed
            seen = clip_boxes(boxes, height, width) if self.change.acts_on == "input" else boxes
            boxes = move_boxes(seen[None], matrices)[0]
        return clip_boxes(boxes, height, width)

    def mask(self, mask: Tensor, preprocess: Preprocess) -> Tensor:
        """Return the mask (H, W) of an original on the changed model input; what comes from outside is ignored."""
        parameters = torch.tensor([self.parameters], dtype=torch.float64)
        matrices = self.change.matrices(parameters, Layout(preprocess, [(mask.shape[0], mask.shape[1])]))
        masks = preprocess.masks(mask[None])
        return (masks if matrices is None else move_masks(masks, matrices))[0]


def render(
    renderer: Renderer, replays: Sequence[Replay], indices: Mapping[str, int], *, batch: int
) -> Iterator[tuple[int, Tensor]]:
    """Yield each replay's number and its model input, in the order that saves work; `indices` are the originals' in the
    renderer.
    """

    def group(number: int) -> tuple[str, float]:
        replay = replays[number]
        # increasing levels, so that a step operator continues instead of starting again
        return replay.change.id, replay.parameters[0] if replay.change.sequential else 0

    order = sorted(range(len(replays)), key=lambda number: (group(number), indices[replays[number].image]))
    for _, numbers in groupby(order, group):
        same = list(numbers)
        for start in range(0, len(same), batch):
            part = same[start : start + batch]
            trials = trials_of([replays[number] for number in part], indices)
            images = renderer.images(trials.change, trials.samples, trials.parameters, trials.fields)
            yield from zip(part, images.cpu(), strict=True)


def trials_of(replays: Sequence[Replay], indices: Mapping[str, int]) -> Trials:
    """Return replays of one change as trials."""
    samples = torch.tensor([indices[replay.image] for replay in replays])
    parameters = torch.tensor([replay.parameters for replay in replays], dtype=torch.float64)
    fields = torch.tensor([replay.field for replay in replays])
    return Trials(samples, replays[0].change, parameters, fields, may_fail=True)
