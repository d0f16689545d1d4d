"""Tables of the page about the fragility lens: shares of fragile windows compared with the paper's (ICLR 2019).

They are made from stored results (see `fidelity.fragility_results`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from brinell.lenses.fragility.names import KINDS
from fidelity.words import grid

Results = Mapping[str, Any]

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_lite0")

FAST = "squeezenet1_1"

SIZES = (0.2, 0.4, 0.6, 0.8)

UNRESIZED = 224  # pixels: the networks' own input, so that nothing is resized

TOP = 5

# figures in the paper's text for ResNet; its plots have no numbers
PAPER = {("loose shrink", 0.2): 0.08, ("loose shrink", 0.8): 0.02, ("strict shrink", 0.2): 0.004}


def share_of(found: Results, network: str, size: float, kind: str, by: str = "correct") -> dict[str, Any]:
    """Return the share of fragile windows of a network, size and kind."""
    return _find(found["sampled"][f"{size:g}"], network, kind, by)


def _find(shares: list[dict[str, Any]], network: str, kind: str, by: str = "correct") -> dict[str, Any]:
    return next(one for one in shares if (one["model"], one["kind"], one["judged_by"]) == (network, kind, by))


def percent(value: float, digits: int = 1) -> str:
    """Return a share in per cent."""
    return f"{100 * value:.{digits}f} %"


def _with_interval(estimate: Mapping[str, float]) -> str:
    return f"{percent(estimate['value'])} [{100 * estimate['low']:.1f}, {100 * estimate['high']:.1f}]"


def shares_table(found: Results) -> str:
    """Return the shares of fragile and of recognised windows."""
    rows = [(network, kind, kind, "share") for network in NETWORKS for kind in KINDS]
    rows += [(network, "recognised", KINDS[0], "recognised") for network in NETWORKS]
    lines = [
        [network, title, *(_with_interval(share_of(found, network, size, kind)[what]) for size in SIZES)]
        for network, title, kind, what in rows
    ]
    return grid(["network", "kind", *(f"P = {size:g}" for size in SIZES)], lines)


def paper_table(found: Results) -> str:
    """Return the shares next to those in the paper's text."""
    lines = [
        [
            f"{kind}, P = {size:g}",
            percent(paper),
            *(_with_interval(share_of(found, network, size, kind)["share"]) for network in NETWORKS),
        ]
        for (kind, size), paper in PAPER.items()
    ]
    lines.append(["loose shrink, P = 0.2 / P = 0.8", "4 (8 in words)", *(f"{ratio:.1f}" for ratio in _ratios(found))])
    return grid(["", "paper, ResNet-v2-152", *NETWORKS], lines)


def _ratios(found: Results) -> list[float]:
    """Return how many times more windows are fragile at the smallest size than at the largest, by network."""
    ends = [
        [share_of(found, network, size, "loose shrink")["share"]["value"] for size in (0.2, 0.8)] for network in NETWORKS
    ]
    return [small / large for small, large in ends]


def strict_ratios(found: Results) -> tuple[float, float]:
    """Return how many times rarer strict fragility is than loose: the least and the most over networks, sizes and moves."""
    ratios = []
    for network in NETWORKS:
        for size in SIZES:
            for move in ("shift", "shrink"):
                pair = (share_of(found, network, size, f"{how} {move}")["share"]["value"] for how in ("loose", "strict"))
                loose, strict = pair
                ratios += [loose / strict] if strict else []
    return min(ratios), max(ratios)


def largest_windows(found: Results) -> tuple[float, float]:
    """Return the least and the largest share of fragile windows at the largest size (loose shrink)."""
    shares = [share_of(found, network, SIZES[-1], "loose shrink")["share"]["value"] for network in NETWORKS]
    return min(shares), max(shares)


def signs_table(found: Results) -> str:
    """Return the shares of windows that a shrink loses and gains."""
    lines = []
    for network in NETWORKS:
        shares = [share_of(found, network, size, "loose shrink") for size in SIZES]
        lines.append([network, *(f"{percent(one['lost']['value'])} / {percent(one['gained']['value'])}" for one in shares)])
    return grid(["network", *(f"P = {size:g}" for size in SIZES)], lines)


def correct_table(found: Results) -> str:
    """Return the share of correct windows that a shrink loses, and fragility by label."""
    lines = []
    for network in NETWORKS:
        lost = [share_of(found, network, size, "loose shrink") for size in SIZES]
        label = [share_of(found, network, size, "loose shrink", "label") for size in SIZES]
        of_correct = (percent(one["lost"]["value"] / one["recognised"]["value"]) for one in lost)
        lines.append([network, "of correct windows", *of_correct])
        lines.append([network, "label changes", *(percent(one["share"]["value"]) for one in label)])
    return grid(["network", "", *(f"P = {size:g}" for size in SIZES)], lines)


def halves_table(found: Results) -> str:
    """Return fragile windows at the two smallest sizes, for photographs with fewer and more correct small windows."""
    lines = []
    for network, own in found["halves"].items():
        correct, small, large = (np.array(own[name]) for name in ("correct", "0.2", "0.4"))
        for half, rows in zip(("fewer", "more"), np.array_split(np.argsort(correct), 2), strict=True):
            falls = f"{(large[rows] < small[rows]).sum()} of {len(rows)}"
            shares = (percent(float(part[rows].mean())) for part in (correct, small, large))
            lines.append([network, half, *shares, falls])
    return grid(["network", "half", "correct at P = 0.2", "fragile at P = 0.2", "at P = 0.4", "falls in"], lines)


def drops_table(found: Results) -> str:
    """Return the largest drop of confidence in each image, when leaving the top 5 and when leaving first place."""
    lines = []
    for change in ("shift", "shrink"):
        for top in (TOP, 1):
            drops = [found["drops"][network][f"{change}, top {top}"] for network in NETWORKS]
            cells = (f"{np.mean(own):.2f}, at most {max(own):.2f} ({len(own)} pairs)" for own in drops)
            lines.append([f"{change}, correct is top {top}", *cells])
    return grid(["largest drop per image and size", *NETWORKS], lines)


def whole_table(found: Results) -> str:
    """Return the shares of all windows of photographs, and their estimates with strides."""
    sizes = found["whole"]
    networks = next(iter(sizes.values()))
    lines = []
    for network in networks:
        for kind in KINDS:
            cells = []
            for own in sizes.values():
                every, *some = own[network][kind]
                cells.append(f"{percent(every, 2)} ({', '.join(percent(share, 2) for share in some)})")
            lines.append([network, kind, *cells])
    return grid(["network", "all windows (stride 4, stride 8)", *(f"P = {size}" for size in sizes)], lines)


def unresized_table(found: Results) -> str:
    """Return the shares of windows that are not resized, between those of neighbouring sizes."""
    lines = []
    for network in NETWORKS:
        for kind in ("loose shift", "loose shrink"):
            below, above = (share_of(found, network, size, kind)["share"] for size in (0.6, 0.8))
            own = _find(found["unresized"], network, kind)["share"]
            lines.append([network, kind, *map(_with_interval, (below, own, above))])
    return grid(["network", "kind", "179 px (P = 0.6)", "224 px, not resized", "239 px (P = 0.8)"], lines)


def nearest_table(found: Results) -> str:
    """Return the shares of the same windows under two kinds of resizing."""
    lines = [[kind, *map(percent, shares)] for kind, shares in found["nearest"].items()]
    return grid([f"{FAST}, P = 0.2", "bilinear", "nearest neighbour"], lines)


def rules_table(found: Results) -> str:
    """Return shares from the same maps by top 5 and top 1, and with eight and four neighbours."""
    lines = [
        [network, size, *map(percent, shares)]
        for network, sizes in found["rules"].items()
        for size, shares in sizes.items()
    ]
    return grid(["loose shift", "P", "top 5, 8 neighbours", "top 1", "4 neighbours"], lines)
