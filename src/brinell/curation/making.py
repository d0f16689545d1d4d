"""Pictures made again, original by original and shard by shard, so that memory stays flat."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.config.execution import Execution
from brinell.curation.failing import Picture
from brinell.curation.sources import opened
from brinell.engine.renderer import Renderer
from brinell.engine.replay import render
from brinell.engine.shards import give_back_freed_memory, id_numbers, load_images
from brinell.models.device import select_device
from brinell.models.model import Model

SHARD = 64  # originals that are in memory at a time
BATCH = 32


@dataclass(frozen=True)
class Made:
    """A picture's number, its model input and what is right beside it, the clean one unless it is of a pair; uint8 (C,
    H, W).
    """

    number: int
    image: Tensor
    clean: Tensor


class Maker:
    """Makes pictures. Models are only opened for changes that follow their gradients."""

    def __init__(self, given: Sequence[Model], execution: Execution, pool: ThreadPoolExecutor) -> None:
        self.given, self.execution, self.pool = given, execution, pool
        self.device = select_device(execution)
        self._opened: dict[tuple[int, str], Model] = {}

    def make(self, pictures: Sequence[Picture]) -> Iterator[Made]:
        """All of them, in whichever order spares work: always the same."""
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for number, picture in enumerate(pictures):
            owner = picture.failures[0].model.name if picture.replay.change.white_box else ""
            originals = picture.replay.change.acts_on == "original"
            groups[picture.source.number, picture.seed, picture.model_input, owner, originals].append(number)
        for numbers in groups.values():
            numbers.sort(key=lambda number: _index(pictures[number]))
            yield from self._group(pictures, numbers)

    def _group(self, pictures: Sequence[Picture], numbers: list[int]) -> Iterator[Made]:
        first = pictures[numbers[0]]
        model, source = self._model(first), first.source
        preprocess = first.failures[0].model.preprocess
        labels = {pictures[number].replay.image: pictures[number].failures[0].label for number in numbers}
        images = list(labels)
        by_image: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            by_image[pictures[number].replay.image].append(number)
        for start in range(0, len(images), SHARD):
            shard = images[start : start + SHARD]
            entries = [source.originals[image].entry for image in shard]
            with source.found():
                loaded = load_images(
                    source.dataset,
                    entries,
                    preprocess,
                    self.pool,
                    with_originals=first.replay.change.acts_on == "original",
                )
            renderer = Renderer(
                preprocess,
                loaded.inputs,
                id_numbers(entries),
                seed=first.seed,
                originals=loaded.originals,
                device=self.device,
            )
            if model is not None:
                renderer.follow(torch.tensor([labels[image] for image in shard]), model.gradient)
            places = {image: place for place, image in enumerate(shard)}
            mine = [number for image in shard for number in by_image[image]]
            versions = [pictures[number].replay for number in mine]
            pairs = {place: before for place, number in enumerate(mine) if (before := pictures[number].before) is not None}
            known = list(pairs)
            right = {known[turn]: image for turn, image in render(renderer, list(pairs.values()), places, batch=BATCH)}
            for place, image in render(renderer, versions, places, batch=BATCH):
                yield Made(mine[place], image, right.get(place, loaded.inputs[places[versions[place].image]]))
            give_back_freed_memory()

    def _model(self, picture: Picture) -> Model | None:
        """Return the model whose gradients a change follows; None: it needs none."""
        asked = picture.failures[0].model
        if not picture.replay.change.white_box:
            return None
        place = asked.source, asked.own
        if place not in self._opened:
            why = f"{picture.replay.change.name} follows a model's gradient"
            self._opened[place] = opened(asked, picture.source, self.given, self.execution, why)
        return self._opened[place]


def _index(picture: Picture) -> int:
    return picture.source.originals[picture.replay.image].entry.index
