"""The knob lens (Zhong, Hu and Chen, DSN 2020): increase each property until the model breaks, and report the smallest
change that does.

`search` goes over a property's grid of severities, once for each of its directions.
"""

from __future__ import annotations

import dataclasses
import inspect

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.lenses.entry import Entry
from brinell.lenses.knob.options import KnobOptions
from brinell.lenses.knob.search import SEARCHES, Search, most_bracket_queries
from brinell.lenses.method import Categorical, Columns, Measuring, Method, Nullable, Shard, Size, halve
from brinell.lenses.outcomes import BROKEN, FAILED, STATUSES, SURVIVED
from brinell.models.model import Model
from brinell.perturb.change import Change
from brinell.perturb.families import expand_names
from brinell.perturb.frost import use_frost_template
from brinell.perturb.operator import operator_names
from brinell.perturb.property import PROPERTIES, Property, find_property, property_names
from brinell.registry import VariantId, list_variants, select_variants

SKETCH_POINTS = 16  # of the grid that a run's cost is estimated on


def measure(shard: Shard, change: Property, options: KnobOptions) -> Measuring:
    """Search the smallest breaking change of every sample; one row per sample and direction, or per breaking interval."""
    points, lengths = _grid(change, shard.height, shard.width, options)
    search = Search.of(shard, change, points, lengths, resample=options.resample)
    if len(search.active):
        search = yield from SEARCHES[options.search](search, search.active)
    return _columns(search, options)


def _grid(change: Property, height: int, width: int, options: KnobOptions) -> tuple[Tensor, Tensor]:
    """Return each direction's severities, padded to (directions, K, P), and their number.

    Points that have the same effect, such as shifts by the same number of whole pixels, are queried once, unless each is
    drawn afresh.
    """
    tracks = change.tracks(height, width, options.points)
    if not (options.resample and change.stochastic):
        tracks = [_drop_repeats(track, change.amounts(track, height, width)) for track in tracks]
    lengths = torch.tensor([len(track) for track in tracks])
    return torch.nn.utils.rnn.pad_sequence(tracks, batch_first=True), lengths


def _drop_repeats(track: Tensor, amounts: Tensor) -> Tensor:
    """Return a track of one parameter without points that repeat the one before."""
    if track.shape[1] > 1:
        return track
    distinct = torch.ones(len(track), dtype=torch.bool)
    distinct[1:] = amounts[1:] != amounts[:-1]
    return track[distinct]


def _columns(search: Search, options: KnobOptions) -> Columns:
    broke = search.status == BROKEN
    severities = torch.zeros(len(search.samples), 3, dtype=torch.float64)
    own = search.points[search.directions, search.start.clamp(min=0)]
    severities[:, : own.shape[1]] = own
    until = search.points[search.directions, search.stop.clamp(min=0), 0]
    amounts = search.change.amounts(own, search.shard.height, search.shard.width)
    several = broke & (own.shape[1] > 1)
    columns: Columns = {
        "sample": search.samples,
        "correct": Nullable(search.status == SURVIVED, search.status != FAILED),
        "status": Categorical(search.status, STATUSES),
        "direction": Categorical(search.directions, search.change.facts.directions),
        "smallest": _smallest(search, options.distance),
        "queries": search.queries,
        "level": Nullable(search.start + 1, broke),
        "severity": Nullable(severities[:, 0], broke),
        "severity_x": Nullable(severities[:, 1], several),
        "severity_y": Nullable(severities[:, 2], several),
        "until": Nullable(until, broke if options.search == "bands" else torch.zeros_like(broke)),
        "amount": Nullable(amounts, broke),
    }
    if search.non_monotone is not None:
        columns["non_monotone"] = Nullable(search.non_monotone, broke)
    return columns | {name: Nullable(values, broke) for name, values in search.found.items()}


def _smallest(search: Search, distance: str) -> Tensor:
    """Return which row stands for its sample: the smaller of the first breaks of its directions.

    If none broke, it is a direction without an answer: such a sample can't be said to survive.
    """
    priority = torch.tensor([0, 2, 3, 1])[search.status]  # broken, failed, survived, skipped
    priority[_later_intervals(search)] = 4
    distances = search.found.get(distance, torch.zeros(len(priority)))
    order = _sort_by(search.samples, priority, distances)
    chosen = torch.zeros_like(priority, dtype=torch.bool)
    chosen[order] = ~_repeats(search.samples[order])
    return chosen


def _later_intervals(search: Search) -> Tensor:
    """Return which rows are breaking intervals after the first one of their sample and direction."""
    pair = search.samples * len(search.lengths) + search.directions
    order = _sort_by(pair, search.start)
    later = torch.zeros_like(pair, dtype=torch.bool)
    later[order] = _repeats(pair[order])
    return later


def _sort_by(*keys: Tensor) -> Tensor:
    """Return the order by the first key, then by the next, and so on."""
    order = torch.arange(len(keys[0]))
    for key in reversed(keys):
        order = order[torch.argsort(key[order], stable=True)]
    return order


def _repeats(values: Tensor) -> Tensor:
    """Return which values equal the one before."""
    same = torch.zeros_like(values, dtype=torch.bool)
    same[1:] = values[1:] == values[:-1]
    return same


def select_properties(options: KnobOptions) -> list[Property]:
    """Return the properties that the options name, each once."""
    names = expand_names(PROPERTIES, options.operators, property_names())
    for name in names:
        if VariantId.parse(name).name in operator_names():
            raise ConfigError(f"{name} is an operator with levels; use it with --lens profile")
    if options.frost is not None:
        if "frost" not in names:
            raise ConfigError(
                "a photograph of frost is given, but the property frost is not selected; add --operator frost"
            )
        own = use_frost_template(options.frost, options.variant).id
        names = [own if name == "frost" else name for name in names]
    return [_rounded_as(options, found) for found in select_variants(PROPERTIES, names, options.variant)]


def _rounded_as(options: KnobOptions, found: Property) -> Property:
    """Return a property in whole grey levels or in floats."""
    return dataclasses.replace(found, whole=options.rounding == "whole")


def check_rounding(options: KnobOptions, model: Model, sizes: Tensor) -> list[str]:
    """Raise if the images are floats and the model takes whole grey levels only."""
    if options.rounding == "none" and model.whole_only:
        raise ConfigError(
            f"rounding none queries float images, but model {model.name} takes whole grey levels only; use --rounding whole"
        )
    return []


def count_trials(options: KnobOptions, change: Change, image: Size, model_input: Size) -> int:
    """Return the number of grid points of all directions, or of queries that bracketing needs at most."""
    assert isinstance(change, Property)
    _, lengths = _grid(change, *model_input, options)
    if options.search == "bracket":
        return sum(map(most_bracket_queries, lengths.tolist()))
    return int(lengths.sum())


def sketch(options: KnobOptions, times: float) -> KnobOptions:
    """Return options with a coarse grid: a search covers the same share of it."""
    if options.search == "bracket":
        return options
    return options.model_copy(update={"points": min(options.points or SKETCH_POINTS, SKETCH_POINTS)})


def replay(options: KnobOptions, name: str, size: Size) -> Property:
    """Return a property by its id, with the options' own photograph of frost."""
    if options.frost is not None and VariantId.parse(name).name == "frost":
        use_frost_template(options.frost, options.variant)
    return _rounded_as(options, find_property(name))


def catalogue() -> list[Entry]:
    """Return all properties, each with its variants."""
    return [
        Entry(
            found.name if find_property(found.name) is found else f"  :{found.variant}",
            (found.facts.category, "stochastic" if found.stochastic else "deterministic"),
            (inspect.getdoc(found.function) or "").partition("\n")[0],
        )
        for found in list_variants(PROPERTIES)
        if found.function.__module__.startswith("brinell.")  # others are listed by their entry points
    ]


METHOD = Method(
    changes=select_properties,
    measure=measure,
    trials=count_trials,
    replay=replay,
    search=True,
    sketch=sketch,
    check=check_rounding,
    weaker=halve,
    catalogue=catalogue,
)
