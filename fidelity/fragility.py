"""Brinell's shares of fragile windows beside the published ones: writes docs/fidelity-fragility.md.

    python -m fidelity.fragility [--device cuda]

Runs lie under runs/fidelity-fragility-*, wherever they were made: those that are finished are read and not made again. On
two cores all maps of one image take a quarter of an hour, so there most figures are of windows many pixels apart, each
judged by all its neighbours at one pixel; an accelerator looks at more photographs and windows, and where that was done,
the page tells it. The study on CIFAR-10 is `fidelity.fragility_cifar`, whose results this page tells, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import numpy as np

import brinell
from brinell.config.execution import Execution, Precision
from brinell.lenses.fragility.findings import FragilityFindings, read_maps
from brinell.lenses.fragility.fragile import KINDS, find_fragile, find_largest_drop
from brinell.lenses.fragility.maps import Maps
from brinell.lenses.fragility.windows import Neighbourhood
from brinell.models.model import Model
from fidelity import fragility_cifar
from fidelity.figures import save
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of, require_assets
from fidelity.words import grid

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_lite0")
FAST = "squeezenet1_1"
SIZES = (0.2, 0.4, 0.6, 0.8)
UNRESIZED = 224  # pixels: the networks' own input, so that nothing is resized
TOP = 5
# what the paper's text says of ResNet; its figures have no numbers
PAPER = {("loose shrink", 0.2): 0.08, ("loose shrink", 0.8): 0.02, ("strict shrink", 0.2): 0.004}
PAPER_FALL = 0.56  # of confidence in the 40 pairs that people were shown


@dataclass(frozen=True)
class Effort:
    """How much is measured: a stride for each size, on how many photographs; and every window of some of them."""

    name: str
    images: int
    strides: Mapping[float, int]
    whole_images: int
    whole_sizes: Sequence[float]
    whole_networks: Sequence[str]
    precision: Precision = "fp32"

    def stride(self, size: float) -> int:
        """The stride of a size."""
        return self.strides.get(size, 16)


# about as many windows of each size
SMALL = Effort("some", 8, {0.2: 32, 0.4: 32, 0.6: 16, 0.8: 8}, 1, [0.8], [FAST])
LARGE = Effort("many", 20, dict.fromkeys((*SIZES, UNRESIZED), 4), 3, SIZES, NETWORKS, "fp16")


def run(
    name: str,
    size: float,
    effort: Effort,
    device: str,
    *,
    networks: Sequence[str] = NETWORKS,
    images: int = 0,
    **options: Any,
) -> brinell.Run:
    """Carry out a run over windows of one size, or what is missing of it."""
    out = ROOT / "runs" / f"fidelity-fragility-{effort.name}-{name}-{size:g}"
    if finished(out):
        return brinell.Run(out)
    require_assets()
    data = {"source": IMAGES, "limit": images or effort.images, "shuffle": True}
    criterion = f"top_k_misclassification({TOP})"
    lens = {"name": "fragility", "sizes": [size], "stride": effort.stride(size), "criterion": criterion, **options}
    execution = Execution(device=device, precision=effort.precision, compile=device != "cpu")
    return brinell.run([_model(network, execution) for network in networks], data, lens=lens, out=out, execution=execution)


@cache  # compiled once
def _model(network: str, execution: Execution) -> str | Model:
    """A network in onnxruntime on a CPU, and as a torch module elsewhere."""
    if execution.device == "cpu":
        return f"onnx:{ASSETS}/models/{network}.onnx?classes={ASSETS}/models/imagenet_classes.txt"
    if network == "efficientnet_lite0":
        return brinell.open_model("efficientnet_lite0?resize=stretch", execution)
    return network_of(network, execution, "bilinear")


def measured(effort: Effort, device: str) -> dict[str, dict[float, brinell.Run]]:
    """All runs, by their names and sizes."""
    many = {"networks": effort.whole_networks, "images": effort.whole_images, "stride": 1}
    return {
        "sampled": {size: run("sampled", size, effort, device) for size in reversed(SIZES)},
        "unresized": {UNRESIZED: run("unresized", UNRESIZED, effort, device)},
        "nearest": {
            0.2: run("nearest", 0.2, effort, device, networks=[FAST], stride=max(8, effort.stride(0.2)), fit="nearest")
        },
        "whole": {size: run("whole", size, effort, device, **many) for size in effort.whole_sizes},
    }


def found_in(run: brinell.Run) -> FragilityFindings:
    """What the lens found."""
    found = run.summary()
    assert isinstance(found, FragilityFindings)
    return found


def recounted(
    run: brinell.Run, model: str, kind: str, *, top: int | None = None, neighbours: int = 8, stride: int | None = None
) -> float:
    """The mean share of fragile windows from a run's maps, judged otherwise than the run did."""
    return float(
        np.mean([_share(maps, size, kind, top, neighbours, stride or maps.stride) for maps, size in _maps(run, model)])
    )


@cache
def _maps(run: brinell.Run, model: str) -> list[tuple[Maps, tuple[int, int]]]:
    """Every image's maps, and its height and width."""
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


def main() -> None:
    """Measure, compare, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    last = ROOT / "runs" / f"fidelity-fragility-{LARGE.name}-whole-{SIZES[-1]:g}"
    effort = LARGE if device != "cpu" or finished(last) else SMALL
    runs = measured(effort, device)
    sampled = {size: found_in(runs["sampled"][size]) for size in SIZES}
    cifar = fragility_cifar.page()
    save(_curves(sampled), ROOT / "docs" / "figures" / "fidelity-fragility.svg")
    save(cifar.pop("figure"), ROOT / "docs" / "figures" / "fidelity-fragility-cifar.svg")
    page = {
        "images": effort.images,
        "strides": _strides(effort),
        "windows": sum(
            found.shares[NETWORKS[0], f"windows:{size:g}", KINDS[0], "correct"].windows for size, found in sampled.items()
        ),
        "shares": _table(sampled),
        "beside": _beside(sampled),
        "signs": _signs(sampled),
        "right": _right(sampled),
        "halves": _halves(runs["sampled"]),
        "falls": _falls(runs["sampled"]),
        "whole_falls": [max(_pairs(runs["whole"][0.8], FAST, "shrink", top)) for top in (TOP, 1)],
        "whole": _whole(runs["whole"], effort.whole_networks),
        "whole_images": effort.whole_images,
        "unresized": _unresized(sampled, found_in(runs["unresized"][UNRESIZED])),
        "nearest": _nearest(runs["sampled"][0.2], runs["nearest"][0.2]),
        "judged": _judged_otherwise(runs["sampled"]),
        "paper_fall": PAPER_FALL,
        "cifar": cifar,
        "pct": lambda value: _percent(value, 0),
    }
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((Path(__file__).parent / "fragility.md.j2").read_text(encoding="utf-8"))
    target = ROOT / "docs" / "fidelity-fragility.md"
    target.write_text(template.render(page) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


def _strides(effort: Effort) -> str:
    strides = {size: effort.stride(size) for size in SIZES}
    if len(set(strides.values())) == 1:
        return f"a stride of {strides[SIZES[0]]}"
    return "strides of " + ", ".join(f"{stride} at P = {size:g}" for size, stride in strides.items())


def _of(sampled: dict[float, FragilityFindings], network: str, size: float, kind: str, by: str = "correct") -> Any:
    return sampled[size].shares[network, f"windows:{size:g}", kind, by]


def _percent(value: float, digits: int = 1) -> str:
    return "–" if value != value else f"{100 * value:.{digits}f} %"


def _told(estimate: Any) -> str:
    return f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _table(sampled: dict[float, FragilityFindings]) -> str:
    lines = [
        [network, kind, *(_told(_of(sampled, network, size, kind).share) for size in SIZES)]
        for network in NETWORKS
        for kind in KINDS
    ]
    lines += [
        [network, "recognised", *(_told(_of(sampled, network, size, KINDS[0]).recognised) for size in SIZES)]
        for network in NETWORKS
    ]
    return grid(["network", "kind", *(f"P = {size:g}" for size in SIZES)], lines)


def _beside(sampled: dict[float, FragilityFindings]) -> str:
    lines = [
        [
            f"{kind}, P = {size:g}",
            _percent(paper),
            *(_told(_of(sampled, network, size, kind).share) for network in NETWORKS),
        ]
        for (kind, size), paper in PAPER.items()
    ]
    ratios = [
        _of(sampled, network, 0.2, "loose shrink").share.value / _of(sampled, network, 0.8, "loose shrink").share.value
        for network in NETWORKS
    ]
    lines.append(["loose shrink, P = 0.2 / P = 0.8", "4 (8 in words)", *(f"{ratio:.1f}" for ratio in ratios)])
    return grid(["", "paper, ResNet-v2-152", *NETWORKS], lines)


def _signs(sampled: dict[float, FragilityFindings]) -> str:
    lines = []
    for network in NETWORKS:
        cells = []
        for size in SIZES:
            one = _of(sampled, network, size, "loose shrink")
            cells.append(f"{_percent(one.lost.value)} / {_percent(one.gained.value)}")
        lines.append([network, *cells])
    return grid(["network", *(f"P = {size:g}" for size in SIZES)], lines)


def _right(sampled: dict[float, FragilityFindings]) -> str:
    """Of the windows that are right, those that a shrink loses; and fragility by label."""
    lines = []
    for network in NETWORKS:
        lost = [_of(sampled, network, size, "loose shrink") for size in SIZES]
        label = [_of(sampled, network, size, "loose shrink", "label") for size in SIZES]
        lines.append([network, "of correct windows", *(_percent(one.lost.value / one.recognised.value) for one in lost)])
        lines.append([network, "label changes", *(_percent(one.share.value) for one in label)])
    return grid(["network", "", *(f"P = {size:g}" for size in SIZES)], lines)


def _halves(runs: dict[float, brinell.Run]) -> str:
    """Photographs by how many of their smallest windows are right: fragile windows at the two smallest sizes."""
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
            right = _percent(float(np.array(seen)[rows].mean()))
            lines.append([network, half, right, _percent(float(small.mean())), _percent(float(large.mean())), falls])
    return grid(["network", "half", "correct at P = 0.2", "fragile at P = 0.2", "at P = 0.4", "falls in"], lines)


def _falls(runs: dict[float, brinell.Run]) -> str:
    """How far confidence falls in the best pair of each image: leaving the top 5, and leaving the first place."""
    lines = []
    for change in ("shift", "shrink"):
        for top in (TOP, 1):
            cells = []
            for network in NETWORKS:
                falls = [fall for run in runs.values() for fall in _pairs(run, network, change, top)]
                cells.append(f"{np.mean(falls):.2f}, at most {max(falls):.2f} ({len(falls)} pairs)")
            lines.append([f"{change}, correct is top {top}", *cells])
    return grid(["largest drop per image and size", *NETWORKS], lines)


def _pairs(run: brinell.Run, network: str, change: Any, top: int) -> list[float]:
    """The falls of the images' best pairs, from their maps."""
    found = []
    for maps, (height, width) in _maps(run, network):
        assert maps.small is not None
        large, small = maps.large.top(top), maps.small.top(top)
        hood = Neighbourhood.of(large.grid.side, height, width, maps.stride)
        pair = find_largest_drop(hood, large, large if change == "shift" else small, change)
        found += [] if pair is None else [pair.drop]
    return found


def _whole(runs: dict[float, brinell.Run], networks: Sequence[str]) -> str:
    """All windows of photographs beside the samples that strides take of them."""
    lines = []
    for network in networks:
        for kind in KINDS:
            cells = []
            for run in runs.values():
                every, *some = (recounted(run, network, kind, stride=stride) for stride in (1, 4, 8))
                cells.append(f"{_percent(every, 2)} ({', '.join(_percent(share, 2) for share in some)})")
            lines.append([network, kind, *cells])
    return grid(["network", "all windows (stride 4, stride 8)", *(f"P = {size:g}" for size in runs)], lines)


def _unresized(sampled: dict[float, FragilityFindings], control: FragilityFindings) -> str:
    """Windows that are not resized beside the sizes around them."""
    lines = []
    for network in NETWORKS:
        for kind in ("loose shift", "loose shrink"):
            own = control.shares[network, f"windows:{UNRESIZED}px", kind, "correct"].share
            around = [_of(sampled, network, size, kind).share for size in (0.6, 0.8)]
            lines.append([network, kind, _told(around[0]), _told(own), _told(around[1])])
    return grid(["network", "kind", "179 px (P = 0.6)", "224 px, not resized", "239 px (P = 0.8)"], lines)


def _nearest(bilinear: brinell.Run, nearest: brinell.Run) -> str:
    """The same windows, resized in two ways."""
    stride = _maps(nearest, FAST)[0][0].stride
    ways = [recounted(each, FAST, kind, stride=stride) for kind in KINDS for each in (bilinear, nearest)]
    lines = [[kind, *map(_percent, ways[2 * place : 2 * place + 2])] for place, kind in enumerate(KINDS)]
    return grid([f"{FAST}, P = 0.2", "bilinear", "nearest neighbour"], lines)


def _judged_otherwise(runs: dict[float, brinell.Run]) -> str:
    """From the same maps: top 5 and top 1, eight neighbours and four."""
    lines = []
    for network in NETWORKS:
        for size in SIZES:
            ways = [{"top": 5}, {"top": 1}, {"top": 5, "neighbours": 4}]
            shares = [recounted(runs[size], network, "loose shift", **way) for way in ways]  # type: ignore[arg-type]
            lines.append([network, f"{size:g}", *(_percent(share) for share in shares)])
    return grid(["loose shift", "P", "top 5, 8 neighbours", "top 1", "4 neighbours"], lines)


def _curves(sampled: dict[float, FragilityFindings]) -> Any:
    """The paper's Figs. 5 and A.1 for our networks, with what its text says of its own."""
    records = []
    for network in NETWORKS:
        for kind in KINDS:
            for size in SIZES:
                share = _of(sampled, network, size, kind).share
                value, low, high = (round(100 * each, 3) for each in (share.value, share.low, share.high))
                records.append({"network": network, "kind": kind, "P": size, "share": value, "low": low, "high": high})
    for (kind, size), paper in PAPER.items():
        records.append({"network": "paper, ResNet-v2-152", "kind": kind, "P": size, "share": 100 * paper})
    base = alt.Chart().encode(x=alt.X("P:Q", scale=alt.Scale(domain=[0.1, 0.9])), color=alt.Color("network:N", title=None))
    line = base.mark_line(point=True).encode(y=alt.Y("share:Q", title="fragile windows, %"))
    bars = base.transform_filter("datum.share > 0").mark_rule(opacity=0.4).encode(y="low:Q", y2="high:Q")
    layers = alt.layer(line, bars, data=alt.InlineData(values=records)).properties(width=230, height=150)
    return layers.facet(alt.Facet("kind:N", title=None, sort=list(KINDS)), columns=2).resolve_scale(y="independent")


if __name__ == "__main__":
    main()
