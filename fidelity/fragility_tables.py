"""Tables of the page about the fragility lens: shares of fragile windows compared with the paper's (ICLR 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

import brinell
from brinell.lenses.fragility.findings import FragilityFindings, read_maps
from brinell.lenses.fragility.fragile import KINDS, find_fragile, find_largest_drop
from brinell.lenses.fragility.maps import Maps
from brinell.lenses.fragility.windows import Neighbourhood
from fidelity.words import grid

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_lite0")

FAST = "squeezenet1_1"

SIZES = (0.2, 0.4, 0.6, 0.8)

UNRESIZED = 224  # pixels: the networks' own input, so that nothing is resized

TOP = 5

# figures in the paper's text for ResNet; its plots have no numbers
PAPER = {("loose shrink", 0.2): 0.08, ("loose shrink", 0.8): 0.02, ("strict shrink", 0.2): 0.004}


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


def share_of(sampled: dict[float, FragilityFindings], network: str, size: float, kind: str, by: str = "correct") -> Any:
    """Return the share of fragile windows of a network, size and kind."""
    return sampled[size].shares[network, f"windows:{size:g}", kind, by]


def percent(value: float, digits: int = 1) -> str:
    """Return a share in per cent."""
    return "–" if value != value else f"{100 * value:.{digits}f} %"


def _with_interval(estimate: Any) -> str:
    return f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def shares_table(sampled: dict[float, FragilityFindings]) -> str:
    """Return the shares of fragile and of recognised windows."""
    lines = [
        [network, kind, *(_with_interval(share_of(sampled, network, size, kind).share) for size in SIZES)]
        for network in NETWORKS
        for kind in KINDS
    ]
    lines += [
        [network, "recognised", *(_with_interval(share_of(sampled, network, size, KINDS[0]).recognised) for size in SIZES)]
        for network in NETWORKS
    ]
    return grid(["network", "kind", *(f"P = {size:g}" for size in SIZES)], lines)


def paper_table(sampled: dict[float, FragilityFindings]) -> str:
    """Return the shares next to those in the paper's text."""
    lines = [
        [
            f"{kind}, P = {size:g}",
            percent(paper),
            *(_with_interval(share_of(sampled, network, size, kind).share) for network in NETWORKS),
        ]
        for (kind, size), paper in PAPER.items()
    ]
    ratios = [
        share_of(sampled, network, 0.2, "loose shrink").share.value
        / share_of(sampled, network, 0.8, "loose shrink").share.value
        for network in NETWORKS
    ]
    lines.append(["loose shrink, P = 0.2 / P = 0.8", "4 (8 in words)", *(f"{ratio:.1f}" for ratio in ratios)])
    return grid(["", "paper, ResNet-v2-152", *NETWORKS], lines)


def signs_table(sampled: dict[float, FragilityFindings]) -> str:
    """Return the shares of windows that a shrink loses and gains."""
    lines = []
    for network in NETWORKS:
        cells = []
        for size in SIZES:
            one = share_of(sampled, network, size, "loose shrink")
            cells.append(f"{percent(one.lost.value)} / {percent(one.gained.value)}")
        lines.append([network, *cells])
    return grid(["network", *(f"P = {size:g}" for size in SIZES)], lines)


def correct_table(sampled: dict[float, FragilityFindings]) -> str:
    """Return the share of correct windows that a shrink loses, and fragility by label."""
    lines = []
    for network in NETWORKS:
        lost = [share_of(sampled, network, size, "loose shrink") for size in SIZES]
        label = [share_of(sampled, network, size, "loose shrink", "label") for size in SIZES]
        lines.append([network, "of correct windows", *(percent(one.lost.value / one.recognised.value) for one in lost)])
        lines.append([network, "label changes", *(percent(one.share.value) for one in label)])
    return grid(["network", "", *(f"P = {size:g}" for size in SIZES)], lines)


def halves_table(runs: dict[float, brinell.Run]) -> str:
    """Return fragile windows at the two smallest sizes, for photographs with fewer and more correct small windows."""
    lines = []
    for network in NETWORKS:
        seen = [float(maps.large.correct.mean()) for maps, _ in _maps(runs[0.2], network)]
        shares = [
            [_share(maps, size, "loose shrink", None, 8, maps.stride) for maps, size in _maps(runs[p], network)]
            for p in (0.2, 0.4)
        ]
        order = np.argsort(seen)
        for half, rows in zip(("fewer", "more"), np.array_split(order, 2), strict=True):
            small, large = (np.array(share)[rows] for share in shares)
            falls = f"{(large < small).sum()} of {len(rows)}"
            right = percent(float(np.array(seen)[rows].mean()))
            lines.append([network, half, right, percent(float(small.mean())), percent(float(large.mean())), falls])
    return grid(["network", "half", "correct at P = 0.2", "fragile at P = 0.2", "at P = 0.4", "falls in"], lines)


def drops_table(runs: dict[float, brinell.Run]) -> str:
    """Return the largest drop of confidence in each image, when leaving the top 5 and when leaving first place."""
    lines = []
    for change in ("shift", "shrink"):
        for top in (TOP, 1):
            cells = []
            for network in NETWORKS:
                drops = [drop for run in runs.values() for drop in largest_drops(run, network, change, top)]
                cells.append(f"{np.mean(drops):.2f}, at most {max(drops):.2f} ({len(drops)} pairs)")
            lines.append([f"{change}, correct is top {top}", *cells])
    return grid(["largest drop per image and size", *NETWORKS], lines)


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


def whole_table(runs: dict[float, brinell.Run], networks: Sequence[str]) -> str:
    """Return the shares of all windows of photographs, and their estimates with strides."""
    lines = []
    for network in networks:
        for kind in KINDS:
            cells = []
            for run in runs.values():
                every, *some = (recount(run, network, kind, stride=stride) for stride in (1, 4, 8))
                cells.append(f"{percent(every, 2)} ({', '.join(percent(share, 2) for share in some)})")
            lines.append([network, kind, *cells])
    return grid(["network", "all windows (stride 4, stride 8)", *(f"P = {size:g}" for size in runs)], lines)


def unresized_table(sampled: dict[float, FragilityFindings], control: FragilityFindings) -> str:
    """Return the shares of windows that are not resized, between those of neighbouring sizes."""
    lines = []
    for network in NETWORKS:
        for kind in ("loose shift", "loose shrink"):
            own = control.shares[network, f"windows:{UNRESIZED}px", kind, "correct"].share
            around = [share_of(sampled, network, size, kind).share for size in (0.6, 0.8)]
            lines.append([network, kind, _with_interval(around[0]), _with_interval(own), _with_interval(around[1])])
    return grid(["network", "kind", "179 px (P = 0.6)", "224 px, not resized", "239 px (P = 0.8)"], lines)


def nearest_table(bilinear: brinell.Run, nearest: brinell.Run) -> str:
    """Return the shares of the same windows under two kinds of resizing."""
    stride = _maps(nearest, FAST)[0][0].stride
    ways = [recount(each, FAST, kind, stride=stride) for kind in KINDS for each in (bilinear, nearest)]
    lines = [[kind, *map(percent, ways[2 * index : 2 * index + 2])] for index, kind in enumerate(KINDS)]
    return grid([f"{FAST}, P = 0.2", "bilinear", "nearest neighbour"], lines)


def rules_table(runs: dict[float, brinell.Run]) -> str:
    """Return shares from the same maps by top 5 and top 1, and with eight and four neighbours."""
    lines = []
    for network in NETWORKS:
        for size in SIZES:
            ways = [{"top": 5}, {"top": 1}, {"top": 5, "neighbours": 4}]
            shares = [recount(runs[size], network, "loose shift", **way) for way in ways]  # type: ignore[arg-type]
            lines.append([network, f"{size:g}", *(percent(share) for share in shares)])
    return grid(["loose shift", "P", "top 5, 8 neighbours", "top 1", "4 neighbours"], lines)
