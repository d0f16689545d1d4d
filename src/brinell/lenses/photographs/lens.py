"""The photographs lens: photographed variants of scenes, such as ImageNet-PT's real highlights (Vats and Jerripothula
2023).

Nothing is changed: every photograph is queried as it is, and rows store what the model answered. The dataset says which
photographs are variants of which original (see `datasets.groups`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.entry import Entry
from brinell.lenses.method import Columns, Measuring, Method, Shard, Size
from brinell.lenses.outcomes import flatten
from brinell.lenses.photographs.options import PhotographOptions
from brinell.perturb.change import Change
from brinell.perturb.view import ToInputs, View


def unchanged(original: Tensor, parameters: Tensor, to_inputs: ToInputs) -> Tensor:
    """Return the photograph itself, once per row of parameters."""
    return to_inputs(original[None]).expand(len(parameters), -1, -1, -1)


PHOTOGRAPH = View("photograph", "given", unchanged, title="photographed variants", parameters=())


def measure(shard: Shard, change: View, options: PhotographOptions) -> Measuring:
    """Return one row per photograph, from the clean answers."""
    columns: Columns = {"sample": torch.arange(shard.count), "correct": ~shard.clean.broken.cpu()}
    yield from ()
    return columns | flatten(shard.clean)


def select_views(options: PhotographOptions) -> list[View]:
    """Return the only view there is."""
    for name in options.operators:
        if name not in ("all", "photograph", PHOTOGRAPH.id):
            raise ConfigError(f"the photographs lens changes nothing and has no operator {name!r}; remove --operator")
    return [PHOTOGRAPH]


def count_trials(options: PhotographOptions, change: Change, image: Size, model_input: Size) -> int:
    """Return 0: the clean answers are enough."""
    return 0


def replay(options: PhotographOptions, name: str, size: Size) -> View:
    """Return the only view there is."""
    return PHOTOGRAPH


METHOD = Method(
    changes=select_views,
    measure=measure,
    trials=count_trials,
    replay=replay,
    with_originals=True,
    catalogue=lambda: [Entry("photograph", (), "Query every photograph as it is.")],
)
