"""The highlight lens (seed 5): a spot of light on every place of a photograph, in several sizes; which of them break the
model?

`highlight:exact` and `highlight:authors` ask about all spots of a grid; `highlight:least` searches the faintest light that
breaks (see `least_light`).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.highlights.faintest import searched
from brinell.lenses.knob.search import ANSWERS, DISTANCES
from brinell.lenses.lens import LENSES, Again, Asking, Change, Columns, Lens, LensOptions, Nullable, Shard, Trials
from brinell.perturb.highlight import WHITE, highlight_grid, highlight_view
from brinell.perturb.view import View
from brinell.registry import nearest

GRIDS = ("exact", "authors")
HIGHLIGHT_VARIANTS = {
    "highlight": "A spot of light in the middle of every cell of a grid, in several sizes.",
    "  :authors": "The same where the paper's authors put it: a little right of and below the middle.",
    "  :least": "The faintest spot that breaks, wherever it is.",
}
VARIANTS = (*GRIDS, "least")
MOST = 30_000  # variants of an image: a level is a small number
SPOT = ("spot_x", "spot_y", "sigma", "strength")
UNIT = 64  # images a unit of work, each of which is asked about a hundred times


class HighlightOptions(LensOptions):
    """Where spots of light fall, and what they are like.

    A grid of `cells` × `cells` has one of each sigma in each cell: in its exact middle, or where the authors put them
    (`variant`: exact or authors). `sigmas` are in pixels of the original, or shares of its shorter side where they are
    `relative`. The peak is `strength` times `colour`. The search for the least light asks at most `budget` times an
    image; its spots are no larger than the largest sigma, and may be `fainter`, too.
    """

    name: Literal["highlights"] = "highlights"
    variant: str = "exact"
    cells: int = Field(5, ge=1, le=50)
    sigmas: tuple[float, ...] = Field((10.0, 20.0, 30.0, 40.0), min_length=1)
    relative: bool = False
    strength: float = Field(1.0, gt=0, le=10)
    colour: tuple[float, float, float] = WHITE
    budget: int = Field(150, ge=1)
    fainter: bool = False

    @model_validator(mode="after")
    def _sensible(self) -> HighlightOptions:
        if min(self.sigmas) <= 0:
            raise ConfigError(f"a sigma should be more than 0, got {min(self.sigmas):g}")
        if self.relative and max(self.sigmas) > 1:
            raise ConfigError(f"relative sigmas are shares of the shorter side, as in 0.05; got {max(self.sigmas):g}")
        if self.variants > MOST:
            raise ConfigError(f"{self.variants:,} spots an image are more than {MOST:,}; use fewer cells or sigmas")
        if not all(0 <= part <= 255 for part in self.colour) or max(self.colour) == 0:
            raise ConfigError(f"a colour should be three numbers from 0 to 255, not all of them 0; got {self.colour}")
        if self.variant not in GRIDS:
            raise ConfigError(f"there is no grid {self.variant!r}; {nearest(self.variant, list(GRIDS))}")
        return self

    @property
    def variants(self) -> int:
        """How many spots the grid has."""
        return self.cells**2 * len(self.sigmas)

    def sigmas_of(self, height: int, width: int) -> Tensor:
        """In pixels of an original of that size."""
        return torch.tensor(self.sigmas, dtype=torch.float64) * (min(height, width) if self.relative else 1)


def highlights(shard: Shard, operator: View, options: LensOptions) -> Asking:
    """Every spot of the grid on every sample, a row each and one for the clean image; or the least light of each."""
    assert isinstance(options, HighlightOptions) and shard.sizes is not None
    sizes = shard.sizes.tolist()
    if operator.variant == "least":
        starts = torch.stack([_grid(options, "exact", *size)[-(options.cells**2) :] for size in sizes])
        return (yield from searched(shard, operator, starts, options.budget, fainter=options.fainter))
    spots = torch.stack([_grid(options, operator.variant, *size) for size in sizes])
    samples = torch.arange(shard.count).repeat_interleave(options.variants)
    outcome = yield Trials(samples, operator, spots.flatten(0, 1))
    variant = torch.arange(options.variants).repeat(shard.count)
    columns: Columns = {
        "sample": torch.cat([torch.arange(shard.count), samples]),
        "level": torch.cat([torch.zeros(shard.count, dtype=torch.int64), variant + 1]),
        "correct": ~torch.cat([shard.clean.broken, outcome.broken]).cpu(),
    }
    for name in ANSWERS:
        columns[name] = torch.cat([getattr(each.verdict, name) for each in (shard.clean, outcome)]).cpu()
    for name in DISTANCES:
        columns[name] = torch.cat([getattr(each.difference, name) for each in (shard.clean, outcome)]).cpu()
    told = {"cell": variant % options.cells**2, **dict(zip(SPOT, spots.flatten(0, 1).unbind(1), strict=True))}
    for name, values in told.items():
        columns[name] = _behind(values, shard.count)
    return columns


def _grid(options: HighlightOptions, centres: str, height: int, width: int) -> Tensor:
    return highlight_grid(height, width, options.cells, options.sigmas_of(height, width), options.strength, centres)


def _behind(values: Tensor, clean: int) -> Nullable:
    """A column that the rows of clean images, which come first, don't have."""
    known = torch.ones(clean + len(values), dtype=torch.bool)
    known[:clean] = False
    return Nullable(torch.cat([values.new_zeros(clean), values]), known)


def chosen_views(options: LensOptions) -> list[View]:
    """What was asked for, each once: the grid and the search for the least light, unless named."""
    assert isinstance(options, HighlightOptions)
    own = f"highlight:{options.variant}"
    every = [f"highlight:{reading}" for reading in VARIANTS]
    found = []
    for asked in options.operators:
        names = [own, "highlight:least"] if asked == "all" else [own if asked == "highlight" else asked]
        for name in names:
            if name not in every:
                raise ConfigError(f"the highlight lens has no operator {name!r}; {nearest(name, every)}")
            found.append(highlight_view(name.partition(":")[2], options.colour))
    return list({view.id: view for view in found}.values())


def most_trials(options: LensOptions, operator: Change, height: int, width: int) -> int:
    """The spots of the grid, or as many as the search may ask about."""
    assert isinstance(options, HighlightOptions) and isinstance(operator, View)
    return options.budget if operator.variant == "least" else options.variants


LENSES.add(
    "highlights",
    Lens(
        name="highlights",
        what="where a spot of light breaks a model (Vats and Jerripothula 2023)",
        options=HighlightOptions,
        ask=highlights,
        operators=chosen_views,
        trials=most_trials,
        originals=True,
        unit=UNIT,
        again=Again(lambda options, name, size: highlight_view(name.partition(":")[2], options.colour), SPOT),
    ),
)
