"""The highlights lens (Vats and Jerripothula 2023): a spot of light at every position of a photograph, in several sizes.

`highlight:exact` and `highlight:authors` query all spots of a grid; `highlight:least` searches the faintest spot that
breaks the model (see `faintest`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.entry import Entry
from brinell.lenses.highlights.faintest import search_faintest
from brinell.lenses.highlights.options import VARIANTS, HighlightOptions
from brinell.lenses.highlights.sizes import SHORT_SIDE, SMALL
from brinell.lenses.method import Columns, Measuring, Method, Nullable, Shard, Size, Trials
from brinell.lenses.outcomes import ANSWERS, join_causes, join_overlaps
from brinell.models.model import Model
from brinell.perturb.change import Change
from brinell.perturb.highlight import SPOT, highlight_grid, highlight_view
from brinell.perturb.view import View
from brinell.registry import VariantId, nearest
from brinell.runs.schema import DISTANCES

DESCRIPTIONS = {
    "highlight": "Add a spot of light in the centre of every cell of a grid, in several sizes.",
    "  :authors": "The same at the positions that the paper's authors used, a little right of and below the centre.",
    "  :least": "Search for the faintest spot, anywhere in the image, that breaks the model.",
}
UNIT = 64  # images per unit of work, each of which gets a hundred queries


def measure(shard: Shard, change: View, options: HighlightOptions) -> Measuring:
    """Query every spot of the grid on every sample, one row each and one for the clean image; or search the faintest."""
    assert shard.sizes is not None
    sizes = shard.sizes.tolist()
    if change.variant == "least":
        starts = torch.stack([_grid(options, "exact", *size)[-(options.cells**2) :] for size in sizes])
        queries, vary = options.search_queries, options.vary_strength
        return (yield from search_faintest(shard, change, starts, queries, vary_strength=vary))
    chosen = shard.choose(change, options.variants)
    samples, variant = chosen.cells.nonzero(as_tuple=True)
    spots = torch.stack([_grid(options, change.variant, *size) for size in sizes])[samples, variant]
    outcomes = [] if shard.resumed else [shard.clean]
    clean = shard.count * len(outcomes)  # rows of clean images, which come first
    if len(samples):
        outcomes.append((yield Trials(samples, change, spots)))
    if not outcomes:
        return {"sample": samples}
    columns: Columns = {
        "sample": torch.cat([torch.arange(clean), samples]),
        "level": torch.cat([torch.zeros(clean, dtype=torch.int64), variant + 1]),
        "correct": ~torch.cat([each.broken for each in outcomes]).cpu(),
    }
    if shard.sampling is not None:
        columns["inclusion"] = torch.cat([torch.ones(clean, dtype=torch.float64), chosen.inclusion[samples]])
    for name in ANSWERS:
        columns[name] = torch.cat([getattr(each.verdict, name) for each in outcomes]).cpu()
    for name in DISTANCES:
        columns[name] = torch.cat([getattr(each.difference, name) for each in outcomes]).cpu()
    columns |= join_causes(outcomes) | join_overlaps(outcomes)
    columns["cell"] = _after_clean(variant % options.cells**2, clean)
    for name, values in zip(SPOT, spots.unbind(1), strict=True):
        columns[name] = _after_clean(values, clean)
    return columns


def sigmas_of(options: HighlightOptions, height: int, width: int) -> Tensor:
    """Return the sizes of spots in pixels of an original of that size."""
    return torch.tensor(options.sigmas_on(min(height, width)), dtype=torch.float64)


def _grid(options: HighlightOptions, centres: str, height: int, width: int) -> Tensor:
    return highlight_grid(height, width, options.cells, sigmas_of(options, height, width), options.strength, centres)


def _after_clean(values: Tensor, clean: int) -> Nullable:
    """Return a column that is null for the rows of clean images, which come first."""
    known = torch.ones(clean + len(values), dtype=torch.bool)
    known[:clean] = False
    return Nullable(torch.cat([values.new_zeros(clean), values]), known)


def select_views(options: HighlightOptions) -> list[View]:
    """Return the views that the options name, each once: by default the grid and the search for the faintest spot."""
    own = f"highlight:{options.variant}"
    known = [f"highlight:{variant}" for variant in VARIANTS]
    found = []
    for given in options.operators:
        names = [own, "highlight:least"] if given == "all" else [own if given == "highlight" else given]
        for name in names:
            if name not in known:
                raise ConfigError(f"the highlights lens has no operator {name!r}; {nearest(name, known)}")
            found.append(highlight_view(VariantId.parse(name).variant, options.colour))
    return list({view.id: view for view in found}.values())


def count_trials(options: HighlightOptions, change: Change, image: Size, model_input: Size) -> int:
    """Return the number of spots in the grid, or the most queries of the search."""
    return options.search_queries if change.variant == "least" else options.variants


def sketch(options: HighlightOptions, times: float) -> HighlightOptions:
    """Return options with a shorter search, but one that goes on after the grid."""
    fewer = max(options.cells**2 + 16, round(options.search_queries / times))
    return options.model_copy(update={"search_queries": min(options.search_queries, fewer)})


def replay(options: HighlightOptions, name: str, size: Size) -> View:
    """Return a view by its id, in the options' colour."""
    return highlight_view(VariantId.parse(name).variant, options.colour)


def check(options: HighlightOptions, model: Model, sizes: Tensor) -> list[str]:
    """Return a warning if spots are scaled because images (heights and widths, int64 (N, 2)) are small."""
    sides = sizes.amin(1).tolist()
    small = sum(map(options.scales_with, sides))
    if not small:
        return []
    which = f"all {small} images are" if small == len(sides) else f"{small} of {len(sides)} images are"
    shares = ", ".join(f"{100 * sigma / SHORT_SIDE:.2g}" for sigma in options.sigmas)
    return [
        f"{which} smaller than {SMALL:.0f} pixels, which spots of {max(options.sigmas):g} pixels would cover; their spots "
        f"have a sigma of {shares} % of the shorter side, as on a photograph of 500×{SHORT_SIDE} (--no-relative: pixels)"
    ]


METHOD = Method(
    changes=select_views,
    measure=measure,
    trials=count_trials,
    replay=replay,
    sketch=sketch,
    with_originals=True,
    images_per_unit=UNIT,
    check=check,
    catalogue=lambda: [Entry(name, ("deterministic",), description) for name, description in DESCRIPTIONS.items()],
)
