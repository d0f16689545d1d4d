"""Brinell's shares of fragile windows beside the published ones: writes docs/fidelity-fragility.md.

    python -m fidelity.fragility [--device cuda --stride 4 --images 50]

Runs lie under runs/fidelity-fragility-*, so a second call measures nothing again. On two cores all maps of one image take a
quarter of an hour, so most figures are of windows some pixels apart, each judged by all its neighbours at one pixel. The
study on CIFAR-10 is `fidelity.fragility_cifar`, whose results this page tells, too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import numpy as np

import brinell
from brinell.execution import Execution
from brinell.lenses import KINDS, Maps, Neighbourhood, fragile
from brinell.lenses.fragile import best_pair
from brinell.models import Model
from brinell.results import Fragility, read_maps
from fidelity import fragility_cifar
from fidelity.figures import save
from fidelity.measure import ASSETS, IMAGES, ROOT, require_assets
from fidelity.words import grid

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_lite0")
FAST = "squeezenet1_1"
SIZES = (0.2, 0.4, 0.6, 0.8)
STRIDES = {0.2: 32, 0.4: 32, 0.6: 16, 0.8: 8}  # about as many windows of each size
UNRESIZED = 224  # pixels: the networks' own input, so that nothing is resized
TOP = 5
WHOLE = "02dbe78a73db2808.png"  # the most fragile photograph of the sample at P = 0.8
# what the paper's text says of ResNet; its figures have no numbers
PAPER = {("loose shrink", 0.2): 0.08, ("loose shrink", 0.8): 0.02, ("strict shrink", 0.2): 0.004}
PAPER_FALL = 0.56  # of confidence in the 40 pairs that people were shown


@dataclass(frozen=True)
class Effort:
    """How much is measured, and where."""

    images: int = 8
    stride: int | None = None
    device: str = "cpu"

    def strided(self, size: float) -> int:
        """The stride of a size."""
        return self.stride or STRIDES.get(size, 16)

    @property
    def mapped(self) -> tuple[str, ...]:
        """Networks that are asked about all windows of a photograph."""
        return (FAST,) if self.device == "cpu" else NETWORKS

    @property
    def name(self) -> str:
        """Told apart from others in the names of runs."""
        return "" if self == Effort() else f"-{self.images}-{self.stride or 'some'}-{self.device}"


def run(
    name: str,
    size: float,
    effort: Effort,
    *,
    networks: Sequence[str] = NETWORKS,
    only: str | None = None,
    **options: Any,
) -> brinell.Run:
    """Carry out a run over windows of one size, or what is missing of it; of one photograph, where it is named."""
    require_assets()
    data: dict[str, Any] = {"source": IMAGES, "limit": effort.images, "shuffle": True}
    if only is not None:
        every = brinell.open_dataset(str(IMAGES))
        (sample,) = (every[index] for index in range(len(every)) if every[index].name == only)
        data = {"source": [(sample.image.permute(1, 2, 0).numpy(), sample.label)]}
    lens = {
        "name": "fragility",
        "sizes": [size],
        "stride": effort.strided(size),
        "criterion": f"top_k_misclassification({TOP})",
        **options,
    }
    out = ROOT / "runs" / f"fidelity-fragility-{name}-{size:g}{effort.name}"
    models = [_model(network, effort.device) for network in networks]
    return brinell.run(models, data, lens=lens, out=out, execution=Execution(device=effort.device))


def _model(network: str, device: str) -> str | Model:
    """A network in onnxruntime on a CPU, and as a torch module elsewhere."""
    classes = ASSETS / "models" / "imagenet_classes.txt"
    if device == "cpu":
        return f"onnx:{ASSETS}/models/{network}.onnx?classes={classes}"
    if network == "efficientnet_lite0":
        return "efficientnet_lite0?resize=stretch"
    sys.path.insert(0, str(ASSETS / "models"))
    import nets  # type: ignore[import-not-found]

    module, _, names = nets.load(network)
    return brinell.wrap(module, size=224, classes=names, name=network, execution=Execution(device=device))


def measured(effort: Effort) -> dict[str, dict[float, brinell.Run]]:
    """All runs, by their names and sizes."""
    found = {"sampled": {size: run("sampled", size, effort) for size in reversed(SIZES)}}
    found["unresized"] = {UNRESIZED: run("unresized", UNRESIZED, effort)}
    found["nearest"] = {0.2: run("nearest", 0.2, effort, networks=[FAST], fit="nearest")}
    found["whole"] = {0.8: run("whole", 0.8, effort, networks=effort.mapped, only=WHOLE, stride=1)}
    return found


def found_in(run: brinell.Run) -> Fragility:
    """What the lens found."""
    found = run.summary()
    assert isinstance(found, Fragility)
    return found


def recounted(
    run: brinell.Run, model: str, kind: str, *, top: int | None = None, neighbours: int = 8, stride: int | None = None
) -> float:
    """The mean share of fragile windows from a run's maps, judged otherwise than the run did."""
    shares = []
    for image, height, width in run.rows("select image, height, width from samples where problem is null").fetchall():
        maps = read_maps(run.store, model, found_in(run).operators[0], image)
        shares.append(_share(maps, (height, width), kind, top, neighbours, stride or maps.stride))
    return float(np.mean(shares))


def _share(maps: Maps, size: tuple[int, int], kind: str, top: int | None, neighbours: int, stride: int) -> float:
    degree, change = kind.split()
    hood = Neighbourhood.of(maps.large.grid.side, *size, stride)
    assert maps.small is not None
    large, small = (each if top is None else each.top(top) for each in (maps.large, maps.small))
    after = large if change == "shift" else small
    found = fragile(hood, large, after, change, "correct", neighbours)  # type: ignore[arg-type]
    return float(getattr(found, degree).sum() / found.judged.sum())


def main() -> None:
    """Measure, compare, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=Effort.images)
    parser.add_argument("--stride", type=int)
    parser.add_argument("--device", default=Effort.device)
    effort = Effort(**vars(parser.parse_args()))
    runs = measured(effort)
    sampled = {size: found_in(runs["sampled"][size]) for size in SIZES}
    cifar = fragility_cifar.page(fragility_cifar.Effort())
    save(_curves(sampled), ROOT / "docs" / "figures" / "fidelity-fragility.svg")
    save(cifar.pop("figure"), ROOT / "docs" / "figures" / "fidelity-fragility-cifar.svg")
    page = {
        "images": effort.images,
        "strides": ", ".join(f"{effort.strided(size)} at P = {size:g}" for size in SIZES),
        "windows": sum(
            found.shares[NETWORKS[0], f"windows:{size:g}", KINDS[0], "correct"].windows for size, found in sampled.items()
        ),
        "shares": _table(sampled),
        "beside": _beside(sampled),
        "signs": _signs(sampled),
        "right": _right(sampled),
        "falls": _falls(runs["sampled"]),
        "whole_falls": [_pairs(runs["whole"][0.8], FAST, "shrink", top)[0] for top in (TOP, 1)],
        "whole": _whole(runs["whole"][0.8], effort.mapped),
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


def _of(sampled: dict[float, Fragility], network: str, size: float, kind: str, by: str = "correct") -> Any:
    return sampled[size].shares[network, f"windows:{size:g}", kind, by]


def _percent(value: float, digits: int = 1) -> str:
    return "–" if value != value else f"{100 * value:.{digits}f} %"


def _told(estimate: Any) -> str:
    return f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def _table(sampled: dict[float, Fragility]) -> str:
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


def _beside(sampled: dict[float, Fragility]) -> str:
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
    lines.append(["loose shrink, P = 0.2 over P = 0.8", "4 (8 in words)", *(f"{ratio:.1f}" for ratio in ratios)])
    return grid(["", "paper, ResNet-v2-152", *NETWORKS], lines)


def _signs(sampled: dict[float, Fragility]) -> str:
    lines = []
    for network in NETWORKS:
        cells = []
        for size in SIZES:
            one = _of(sampled, network, size, "loose shrink")
            cells.append(f"{_percent(one.lost.value)} / {_percent(one.gained.value)}")
        lines.append([network, *cells])
    return grid(["network", *(f"P = {size:g}" for size in SIZES)], lines)


def _right(sampled: dict[float, Fragility]) -> str:
    """Of the windows that are right, those that a shrink loses; and fragility by label."""
    lines = []
    for network in NETWORKS:
        lost = [_of(sampled, network, size, "loose shrink") for size in SIZES]
        label = [_of(sampled, network, size, "loose shrink", "label") for size in SIZES]
        lines.append([network, "of right windows", *(_percent(one.lost.value / one.recognised.value) for one in lost)])
        lines.append([network, "label changes", *(_percent(one.share.value) for one in label)])
    return grid(["network", "", *(f"P = {size:g}" for size in SIZES)], lines)


def _falls(runs: dict[float, brinell.Run]) -> str:
    """How far confidence falls in the best pair of each image: leaving the top 5, and leaving the first place."""
    lines = []
    for change in ("shift", "shrink"):
        for top in (TOP, 1):
            cells = []
            for network in NETWORKS:
                falls = [fall for run in runs.values() for fall in _pairs(run, network, change, top)]
                cells.append(f"{np.mean(falls):.2f}, at most {max(falls):.2f} ({len(falls)} pairs)")
            lines.append([f"{change}, right is top {top}", *cells])
    return grid(["the best pair of an image and size", *NETWORKS], lines)


def _pairs(run: brinell.Run, network: str, change: Any, top: int) -> list[float]:
    """The falls of the images' best pairs, from their maps."""
    found = []
    for image, height, width in run.rows("select image, height, width from samples where problem is null").fetchall():
        maps = read_maps(run.store, network, found_in(run).operators[0], image)
        assert maps.small is not None
        large, small = maps.large.top(top), maps.small.top(top)
        hood = Neighbourhood.of(large.grid.side, height, width, maps.stride)
        pair = best_pair(hood, large, large if change == "shift" else small, change)
        found += [] if pair is None else [pair.drop]
    return found


def _whole(run: brinell.Run, networks: Sequence[str]) -> str:
    """All windows of one photograph beside the sample that a stride takes of them."""
    lines = []
    for network in networks:
        for kind in KINDS:
            every = recounted(run, network, kind)
            some = [recounted(run, network, kind, stride=stride) for stride in (4, STRIDES[0.8])]
            lines.append([network, kind, _percent(every, 2), *(_percent(share, 2) for share in some)])
    return grid(["network", "kind", "all windows", "stride 4", f"stride {STRIDES[0.8]}"], lines)


def _unresized(sampled: dict[float, Fragility], control: Fragility) -> str:
    """Windows that are not resized beside the sizes around them."""
    lines = []
    for network in NETWORKS:
        for kind in ("loose shift", "loose shrink"):
            own = control.shares[network, f"windows:{UNRESIZED}px", kind, "correct"].share
            around = [_of(sampled, network, size, kind).share for size in (0.6, 0.8)]
            lines.append([network, kind, _told(around[0]), _told(own), _told(around[1])])
    return grid(["network", "kind", "179 px (P = 0.6)", "224 px, not resized", "239 px (P = 0.8)"], lines)


def _nearest(bilinear: brinell.Run, nearest: brinell.Run) -> str:
    found = [found_in(each) for each in (bilinear, nearest)]
    lines = [[kind, *(_told(each.shares[FAST, "windows:0.2", kind, "correct"].share) for each in found)] for kind in KINDS]
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


def _curves(sampled: dict[float, Fragility]) -> Any:
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
    layers = alt.layer(bars, line, data=alt.InlineData(values=records)).properties(width=230, height=150)
    return layers.facet(alt.Facet("kind:N", title=None, sort=list(KINDS)), columns=2).resolve_scale(y="independent")


if __name__ == "__main__":
    main()
