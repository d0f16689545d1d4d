"""Figures of fragility runs as plain data for fidelity/results/fragility.json: shares, and recounts from the maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

import brinell
from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.fragile import find_fragile, find_largest_drop
from brinell.lenses.fragility.maps import Maps, read_maps
from brinell.lenses.fragility.names import KINDS
from brinell.lenses.fragility.windows import Neighbourhood
from brinell.runs.plain import to_plain
from fidelity.fragility_tables import FAST, NETWORKS, SIZES, TOP, UNRESIZED

RULES: tuple[dict[str, int], ...] = ({"top": 5}, {"top": 1}, {"top": 5, "neighbours": 4})
STRIDES = (1, 4, 8)  # of the estimates from all windows
Runs = Mapping[str, Mapping[float, brinell.Run]]


def collect(runs: Runs, *, images: int, strides: Mapping[float, int], whole_images: int) -> dict[str, Any]:
    """Return everything that the page shows of the runs, by name and size."""
    sampled, nearest = runs["sampled"], runs["nearest"][0.2]
    stride = _maps(nearest, FAST)[0][0].stride
    whole = runs["whole"]
    content: dict[str, Any] = to_plain(
        {
            "images": images,
            "strides": {f"{size:g}": stride for size, stride in strides.items()},
            "whole_images": whole_images,
            "sampled": {f"{size:g}": _shares(sampled[size]) for size in SIZES},
            "unresized": _shares(runs["unresized"][UNRESIZED]),
            "halves": {network: _halves(sampled, network) for network in NETWORKS},
            "drops": {network: _drops(sampled, network) for network in NETWORKS},
            "rules": {
                network: {
                    f"{size:g}": [recount(sampled[size], network, "loose shift", **rule) for rule in RULES]
                    for size in SIZES
                }
                for network in NETWORKS
            },
            "nearest": {
                kind: [recount(one, FAST, kind, stride=stride) for one in (sampled[0.2], nearest)] for kind in KINDS
            },
            "whole": {f"{size:g}": _whole(run) for size, run in whole.items()},
            "whole_drops": [max(largest_drops(whole[0.8], FAST, "shrink", top)) for top in (TOP, 1)],
        }
    )
    return content


def _shares(run: brinell.Run) -> list[dict[str, Any]]:
    shares: list[dict[str, Any]] = to_plain(list(found_in(run).shares.values()))
    return shares


def _halves(runs: Mapping[float, brinell.Run], network: str) -> dict[str, list[float]]:
    """Return by photograph the share of correct small windows, and the shares of fragile ones at the two smallest sizes."""
    found = {"correct": [float(maps.large.correct.mean()) for maps, _ in _maps(runs[0.2], network)]}
    for size in (0.2, 0.4):
        own = _maps(runs[size], network)
        found[f"{size:g}"] = [_share(maps, shape, "loose shrink", None, 8, maps.stride) for maps, shape in own]
    return found


def _drops(runs: Mapping[float, brinell.Run], network: str) -> dict[str, list[float]]:
    """Return the largest drops of confidence in each image and size, by change and rule."""
    return {
        f"{change}, top {top}": [drop for run in runs.values() for drop in largest_drops(run, network, change, top)]
        for change in ("shift", "shrink")
        for top in (TOP, 1)
    }


def _whole(run: brinell.Run) -> dict[str, dict[str, list[float]]]:
    """Return the shares of all windows, and their estimates with strides, by network and kind."""
    networks: Sequence[str] = [network for network in NETWORKS if network in found_in(run).models]
    return {
        network: {kind: [recount(run, network, kind, stride=stride) for stride in STRIDES] for kind in KINDS}
        for network in networks
    }


def found_in(run: brinell.Run) -> FragilityFindings:
    """Return the findings of the fragility lens."""
    found = run.summary()
    assert isinstance(found, FragilityFindings)
    return found


def recount(
    run: brinell.Run, model: str, kind: str, *, top: int | None = None, neighbours: int = 8, stride: int | None = None
) -> float:
    """Return the mean share of fragile windows from a run's maps, by a rule other than the run's."""
    return float(
        np.mean([_share(maps, size, kind, top, neighbours, stride or maps.stride) for maps, size in _maps(run, model)])
    )


@cache
def _maps(run: brinell.Run, model: str) -> list[tuple[Maps, tuple[int, int]]]:
    """Return the maps of every image, and its height and width."""
    rows = run.rows("select image, height, width from samples where problem is null order by image").fetchall()
    operator = found_in(run).operators[0]
    return [(read_maps(run, model, operator, image), (height, width)) for image, height, width in rows]


def _share(maps: Maps, size: tuple[int, int], kind: str, top: int | None, neighbours: int, stride: int) -> float:
    degree, move = kind.split()
    hood = Neighbourhood.of(maps.large.grid.side, *size, stride)
    assert maps.small is not None
    large, small = (each if top is None else each.top(top) for each in (maps.large, maps.small))
    after = large if move == "shift" else small
    found = find_fragile(hood, large, after, move, neighbours=neighbours)  # type: ignore[arg-type]
    return float(getattr(found, degree).sum() / found.judged.sum())


def largest_drops(run: brinell.Run, network: str, change: Any, top: int) -> list[float]:
    """Return the largest drop of confidence in each image, from its maps."""
    found = []
    for maps, (height, width) in _maps(run, network):
        assert maps.small is not None
        large, small = maps.large.top(top), maps.small.top(top)
        hood = Neighbourhood.of(large.grid.side, height, width, maps.stride)
        pair = find_largest_drop(hood, large, large if change == "shift" else small, change)
        found += [] if pair is None else [pair.drop]
    return found
