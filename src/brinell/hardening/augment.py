"""Augmentation: random changes of clean images during training, in batches on the device.

The operator, its strength and its random field are draws named by the seed, the epoch and the image's id, so that they
don't depend on batches, workers, the device or interruptions. They are drawn on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.draws import Draws, key
from brinell.errors import ConfigError
from brinell.hardening.options import AugmentOptions, OperatorOptions
from brinell.perturb.highlight import add_highlights
from brinell.perturb.operator import OPERATORS, find_operator, operator_names
from brinell.perturb.property import PROPERTIES, find_property, property_names
from brinell.registry import DEFAULT_VARIANT, VariantId, nearest
from brinell.resizing.resample import resize
from brinell.types import Interpolation

# from images (B, C, H, W), strengths in [0, 1] (B,) and further draws (B, 3) in (0, 1), both float64 on the host, a seed,
# and ids on the device of the images
Apply = Callable[[Tensor, Tensor, Tensor, int, Tensor], Tensor]
SPARE = 3
CROP, HIGHLIGHT = "crop", "highlight"
#: operator names in rows, where they differ from the name of the augmentation
MEASURED_AS = {CROP: ("windows", "minimal"), HIGHLIGHT: (HIGHLIGHT,)}


@dataclass(frozen=True)
class Augmenter:
    """A change by its name, with its range of strengths."""

    name: str
    strength: tuple[float, float]
    apply: Apply


def find_augmenter(options: OperatorOptions, interpolation: Interpolation) -> Augmenter:
    """Return a change by its name."""
    name = VariantId.parse(options.name).name
    if name == CROP:
        return Augmenter(name, options.strength, _crop(options, interpolation))
    if name == HIGHLIGHT:
        return Augmenter(name, options.strength, _highlight(options))
    if name in operator_names() or options.name in OPERATORS:
        return Augmenter(name, options.strength, _operator(options))
    if any(one.name == name for one in PROPERTIES.values()):
        return Augmenter(name, options.strength, _property(options))
    known = [*operator_names(), *property_names(), CROP, HIGHLIGHT]
    raise ConfigError(f"no operator {options.name!r} to train with; {nearest(name, known)}")


def _operator(options: OperatorOptions) -> Apply:
    operator = find_operator(options.name, options.variant or DEFAULT_VARIANT)
    if operator.white_box:
        raise ConfigError(
            f"{operator.name} follows a model's gradient and can't be used in training; choose another operator"
        )

    def apply(images: Tensor, strengths: Tensor, spare: Tensor, seed: int, ids: Tensor) -> Tensor:
        last = operator.facts.levels
        levels = (strengths * last).ceil().clamp(1, last).to(torch.int64)
        return operator.advance(images, torch.zeros_like(levels), levels, seed=seed, ids=ids)

    return apply


def _property(options: OperatorOptions) -> Apply:
    found = find_property(options.name, options.variant or DEFAULT_VARIANT)

    def apply(images: Tensor, strengths: Tensor, spare: Tensor, seed: int, ids: Tensor) -> Tensor:
        tracks = found.tracks(*images.shape[2:])
        side = (spare[:, 0] * len(tracks)).to(torch.int64)
        severities = torch.zeros(len(images), tracks[0].shape[1], dtype=torch.float64)
        for number, track in enumerate(tracks):
            mine = side == number
            steps = (strengths[mine] * len(track)).ceil().clamp(1, len(track)).to(torch.int64) - 1
            severities[mine] = track[steps]
        return found.apply(images, severities, seed=seed, ids=ids)

    return apply


def _highlight(options: OperatorOptions) -> Apply:
    def apply(images: Tensor, strengths: Tensor, spare: Tensor, seed: int, ids: Tensor) -> Tensor:
        height, width = images.shape[2:]
        sigmas = torch.tensor(options.sigmas, dtype=torch.float64) * min(height, width)
        sigma = sigmas[(spare[:, 2] * len(sigmas)).to(torch.int64)]
        spots = torch.stack([spare[:, 0] * (width - 1), spare[:, 1] * (height - 1), sigma, strengths], 1)
        return add_highlights(images, spots)

    return apply


def _crop(options: OperatorOptions, interpolation: Interpolation) -> Apply:
    """Return a change to a random square window, resized to the size of the image."""

    def apply(images: Tensor, strengths: Tensor, spare: Tensor, seed: int, ids: Tensor) -> Tensor:
        height, width = images.shape[2:]
        sides = torch.tensor([_side(size, height, width) for size in options.sizes])
        side = sides[(spare[:, 2] * len(sides)).to(torch.int64)]
        tops = (spare[:, 0] * (height - side + 1)).to(torch.int64)
        lefts = (spare[:, 1] * (width - side + 1)).to(torch.int64)
        made = torch.empty_like(images)
        for one in sorted(set(side.tolist())):
            mine = (side == one).nonzero()[:, 0]
            rows, within = mine.to(images.device), torch.arange(one)
            down = (tops[mine, None] + within).to(images.device)[:, None, :, None]
            across = (lefts[mine, None] + within).to(images.device)[:, None, None, :]
            channels = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
            made[rows] = resize(images[rows[:, None, None, None], channels, down, across], height, width, interpolation)
        return made

    return apply


def _side(size: float, height: int, width: int) -> int:
    shorter = min(height, width)
    side = round(size * shorter) if size <= 1 else round(size)
    return max(1, min(side, shorter))


@dataclass(frozen=True)
class Augmentation:
    """Random changes of clean images."""

    changes: tuple[Augmenter, ...]
    options: AugmentOptions
    seed: int

    @staticmethod
    def of(options: AugmentOptions, seed: int, interpolation: Interpolation) -> Augmentation:
        """Return the augmentation that a config describes."""
        return Augmentation(tuple(find_augmenter(one, interpolation) for one in options.operators), options, seed)

    def __call__(self, images: Tensor, ids: Tensor, when: str, *, always: bool = False) -> Tensor:
        """Return uint8 images (B, C, H, W), a share of them changed, or with `always` all of them.

        `when` names the draws, such as an epoch; `ids` (int64 (B,)) are on the host.
        """
        if not self.changes or not len(images):
            return images
        host = Draws.of(key(self.seed, "augment", when), ids)
        chosen = torch.ones(len(ids), dtype=torch.bool) if always else host.uniform(0, 1)[:, 0] < self.options.share
        rows = chosen.nonzero()[:, 0]
        if not len(rows):
            return images
        there = rows.to(images.device)
        made = self._mix(images[there], ids[rows], when)
        return images.index_copy(0, there, made)

    def _mix(self, images: Tensor, ids: Tensor, when: str) -> Tensor:
        """Return a chain of changes, or a mix of several chains and the image, with the weights of AugMix (α = 1)."""
        chains = [self._chain(images, ids, when, number) for number in range(self.options.width)]
        if len(chains) == 1:
            return chains[0]
        numbers = Draws.of(key(self.seed, "mix", when), ids).uniform(0, len(chains) + 1)
        shares = -numbers[:, 1:].log()
        shares = shares / shares.sum(1, keepdim=True) * (1 - numbers[:, :1])
        weights = torch.cat([numbers[:, :1], shares], 1).to(torch.float32).to(images.device)
        total = torch.zeros(images.shape, device=images.device)
        for number, chain in enumerate([images, *chains]):
            total += weights[:, number, None, None, None] * chain
        return total.round_().clamp_(0, 255).to(torch.uint8)

    def _chain(self, images: Tensor, ids: Tensor, when: str, number: int) -> Tensor:
        draws = Draws.of(key(self.seed, "chain", when, number), ids)
        length = draws.between(0, 1, 1, self.options.depth)[:, 0]
        on_device = ids.to(images.device)
        for step in range(self.options.depth):
            which = draws.below(3 * step + 1, 1, len(self.changes))[:, 0]
            share = draws.uniform(3 * step + 2, 1)[:, 0]
            spare = draws.uniform(3 * step + 3, SPARE)
            seed = key(self.seed, "change", when, number, step)
            for index, change in enumerate(self.changes):
                rows = ((which == index) & (step < length)).nonzero()[:, 0]
                if len(rows):
                    low, high = change.strength
                    there = rows.to(images.device)
                    strengths = low + (high - low) * share[rows]
                    made = change.apply(images[there], strengths, spare[rows], seed, on_device[there])
                    images = images.index_copy(0, there, made)
        return images
