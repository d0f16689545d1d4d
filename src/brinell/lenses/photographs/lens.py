"""Photographed variants (seed 5's ImageNet-PT): real highlights, or anything else real, on scenes that have an original.

Nothing is changed: every photograph is asked about as it is, and rows say what the model answered. Which of them are
variants of which original is told by the dataset (see `datasets.groups`).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.knob.search import measured
from brinell.lenses.lens import LENSES, Again, Asking, Columns, Lens, LensOptions, Shard
from brinell.perturb.view import View


def as_it_is(original: Tensor, parameters: Tensor, to_inputs: object) -> Tensor:
    """The photograph itself, as often as it is asked for."""
    assert callable(to_inputs)
    model_input: Tensor = to_inputs(original[None])
    return model_input.expand(len(parameters), -1, -1, -1)


PHOTOGRAPH = View("photograph", "given", as_it_is)


class PhotographOptions(LensOptions):
    """There is nothing to choose but what counts as broken."""

    name: Literal["photographs"] = "photographs"
    variant: str = "given"


def photographs(shard: Shard, operator: View, options: LensOptions) -> Asking:
    """A row a photograph, from the answers that are known already."""
    columns: Columns = {"sample": torch.arange(shard.count), "correct": ~shard.clean.broken.cpu()}
    yield from ()
    return columns | measured(shard.clean)


def chosen(options: LensOptions) -> list[View]:
    """The only thing there is."""
    for name in options.operators:
        if name not in ("all", "photograph", PHOTOGRAPH.id):
            raise ConfigError(f"the photographs lens changes nothing, so it has no operator {name!r}; leave it out")
    return [PHOTOGRAPH]


LENSES.add(
    "photographs",
    Lens(
        name="photographs",
        what="real variants of photographs: which of them break a model (ImageNet-PT's kind)",
        options=PhotographOptions,
        ask=photographs,
        operators=chosen,
        trials=lambda *_: 0,
        originals=True,
        again=Again(lambda options, name, size: PHOTOGRAPH, ()),
    ),
)
