"""Render failures from runs, shard by shard, so that memory use stays constant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.curation.failures import Failure
from brinell.curation.runs import ModelOpener
from brinell.engine.renderer import Renderer
from brinell.engine.replay import render
from brinell.engine.shards import Images, give_back_freed_memory, id_numbers, load_images
from brinell.models.device import select_device
from brinell.models.model import Model

SHARD = 64  # originals in memory at a time
BATCH = 32


@dataclass(frozen=True)
class RenderedFailure:
    """A failure by its number: its image, and its counterpart or else the clean model input, uint8 (C, H, W)."""

    number: int
    image: Tensor
    clean: Tensor


class FailureRenderer:
    """Renders failures. Models are opened only for changes that follow their gradients."""

    def __init__(self, opener: ModelOpener, pool: ThreadPoolExecutor) -> None:
        self.opener, self.pool = opener, pool
        self.device = select_device(opener.execution)
        self._opened: dict[tuple[int, str], Model] = {}

    def render(self, failures: Sequence[Failure]) -> Iterator[RenderedFailure]:
        """Yield all failures, always in the same order: the one that saves work."""
        groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for number, failure in enumerate(failures):
            change = failure.replay.change
            owner = failure.model.name if change.white_box else ""
            originals = change.acts_on == "original"
            groups[failure.source.number, failure.seed, failure.model_input, owner, originals].append(number)
        for numbers in groups.values():
            numbers.sort(key=lambda number: _index(failures[number]))
            yield from self._render_group(failures, numbers)

    def _render_group(self, failures: Sequence[Failure], numbers: list[int]) -> Iterator[RenderedFailure]:
        """Yield failures that share a run, a seed and a model input."""
        by_image: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            by_image[failures[number].replay.image].append(number)
        labels = {failures[number].replay.image: failures[number].answers[0].label for number in numbers}
        images, first = list(labels), failures[numbers[0]]
        model = self._gradient_model(first)
        for start in range(0, len(images), SHARD):
            shard = images[start : start + SHARD]
            renderer, loaded = self._shard_renderer(first, shard)
            if model is not None:
                renderer.follow(torch.tensor([labels[image] for image in shard]), model.gradient)
            indices = {image: index for index, image in enumerate(shard)}
            mine = [number for image in shard for number in by_image[image]]
            replays = [failures[number].replay for number in mine]
            pairs = {n: pair for n, number in enumerate(mine) if (pair := failures[number].counterpart) is not None}
            paired = list(pairs)
            right = {paired[n]: image for n, image in render(renderer, list(pairs.values()), indices, batch=BATCH)}
            for n, image in render(renderer, replays, indices, batch=BATCH):
                yield RenderedFailure(mine[n], image, right.get(n, loaded.inputs[indices[replays[n].image]]))
            give_back_freed_memory()

    def _shard_renderer(self, first: Failure, images: list[str]) -> tuple[Renderer, Images]:
        """Return a renderer of some originals, and their images."""
        source, preprocess = first.source, first.model.preprocess
        entries = [source.originals[image].entry for image in images]
        with_originals = first.replay.change.acts_on == "original"
        with source.explain_missing_images():
            loaded = load_images(source.dataset, entries, preprocess, self.pool, with_originals=with_originals)
        renderer = Renderer(
            preprocess,
            loaded.inputs,
            id_numbers(entries),
            seed=first.seed,
            originals=loaded.originals,
            device=self.device,
        )
        return renderer, loaded

    def _gradient_model(self, failure: Failure) -> Model | None:
        """Return the model whose gradients a change follows; None if it needs none."""
        if not failure.replay.change.white_box:
            return None
        known = failure.model.run, failure.model.own
        if known not in self._opened:
            reason = f"{failure.replay.change.name} follows a model's gradient"
            self._opened[known] = self.opener.open(failure.model, failure.source, reason)
        return self._opened[known]


def _index(failure: Failure) -> int:
    return failure.source.originals[failure.replay.image].entry.index
