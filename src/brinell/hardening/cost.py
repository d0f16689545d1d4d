"""What hardening costs: a few steps of training are timed on a copy of the network, and the measurements are planned."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace

import torch

from brinell.engine.estimates.plan import plan
from brinell.engine.estimates.text import HOUR, format_time
from brinell.engine.setup import RunSetup
from brinell.hardening.training import (
    Training,
    deterministic,
    find_right,
    make_optimiser,
    seeded,
    set_training_mode,
    take_step,
)

TIMED = 5.0  # seconds of training that an estimate is made from


@dataclass(frozen=True)
class HardeningCost:
    """Estimated seconds of training for some epochs over some images, and of measuring before and after."""

    epochs: int
    images: int
    training: float
    measuring: float

    @property
    def seconds(self) -> float:
        """The whole time."""
        return self.training + self.measuring

    @property
    def long(self) -> bool:
        """Whether it takes more than an hour."""
        return self.seconds > HOUR

    def lines(self) -> list[str]:
        """Return the estimate in a line; above an hour, also a cheaper way."""
        epochs = f"{self.epochs} epoch{'s' * (self.epochs != 1)} of {self.images:,} image{'s' * (self.images != 1)}"
        parts = f"training {format_time(self.training)}: {epochs}; measuring {format_time(self.measuring)}"
        first = f"Estimate: about {format_time(self.seconds)} ({parts})."
        return [first, self._cheaper()] if self.long else [first]

    def _cheaper(self) -> str:
        fewer = int((HOUR - self.measuring) / self.training * self.epochs)
        if fewer < 1:
            return (
                "That is more than an hour. Cheaper: fewer images (data.limit), or a preset quick of the lenses to measure."
            )
        shorter = self.training * fewer / self.epochs + self.measuring
        return f"That is more than an hour. Cheaper: --epochs {fewer} (about {format_time(shorter)})."


def estimate_cost(training: Training, measured: RunSetup) -> HardeningCost:
    """Estimate what hardening takes on this machine; `measured` is the run before training."""
    epochs = training.options.epochs
    return HardeningCost(epochs, len(training.images), epochs * time_epoch(training), 2 * plan(measured).seconds)


def time_epoch(training: Training) -> float:
    """Return about how many seconds an epoch takes, from a few steps with a copy of the network."""
    module = copy.deepcopy(training.network.module)
    training = replace(training, network=replace(training.network, module=module))
    optimiser, scaler = make_optimiser(training)
    set_training_mode(module, training.options)
    steps: list[tuple[int, float]] = []  # images and seconds
    with deterministic(), seeded(0, training.images.device):
        began = time.monotonic()
        for batch in training.batches(1):
            loss, _ = take_step(training, batch, optimiser, scaler, 1)
            float(loss)  # waits for an accelerator
            now = time.monotonic()
            steps.append((len(batch[0]), now - began))
            began = now
            if len(steps) > 1 and sum(seconds for _, seconds in steps) > TIMED:
                break
        few = torch.arange(min(len(training.validation), training.options.batch))
        began = time.monotonic()
        find_right(training, few, None)
        forward = (time.monotonic() - began) / max(len(few), 1)
    timed = steps[1:] or steps  # the first step includes what is done once
    each = sum(seconds for _, seconds in timed) / sum(images for images, _ in timed)
    validation = training.validation
    passes = len(validation) + (int(validation.clean.sum()) if training.augmentation.changes else 0)
    return len(training.images) * each + passes * forward
