"""Compare brinell's shares of fragile windows with the published ones (ICLR 2019); writes docs/fidelity-fragility.md.

    python -m fidelity.fragility [--device cuda]

Runs are stored under runs/fidelity-fragility-*; finished ones, also from another machine, are not repeated. On two cores
all maps of one image take a quarter of an hour, so most figures there are of windows many pixels apart, each compared with
all its one-pixel neighbours; an accelerator evaluates more photographs and windows, and the page uses its runs if they are
finished. The page includes the study on CIFAR-10 (`fidelity.fragility_cifar`).
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

import brinell
from brinell.config.execution import Execution, Precision
from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.fragile import KINDS
from brinell.models.model import Model
from fidelity import cifar_page
from fidelity.figures import save
from fidelity.fragility_tables import (
    FAST,
    NETWORKS,
    PAPER,
    SIZES,
    TOP,
    UNRESIZED,
    correct_table,
    drops_table,
    found_in,
    halves_table,
    largest_drops,
    nearest_table,
    paper_table,
    percent,
    rules_table,
    share_of,
    shares_table,
    signs_table,
    unresized_table,
    whole_table,
)
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of, require_assets

PAPER_DROP = 0.56  # of confidence in the 40 pairs that people were shown


@dataclass(frozen=True)
class Effort:
    """How much to measure: the photographs and a stride for each size, and the photographs with every window."""

    name: str
    images: int
    strides: Mapping[float, int]
    whole_images: int
    whole_sizes: Sequence[float]
    whole_networks: Sequence[str]
    precision: Precision = "fp32"
    batch: int | None = None

    def stride(self, size: float) -> int:
        """Return the stride of a size."""
        return self.strides.get(size, 16)


# about as many windows of each size
SMALL = Effort("some", 8, {0.2: 32, 0.4: 32, 0.6: 16, 0.8: 8}, 1, [0.8], [FAST])
LARGE = Effort("many", 20, {0.2: 8, 0.4: 6, 0.6: 4, 0.8: 4, UNRESIZED: 4}, 3, SIZES, NETWORKS, "fp16", 1024)


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
    """Execute a run over windows of one size, or resume it."""
    out = ROOT / "runs" / f"fidelity-fragility-{effort.name}-{name}-{size:g}"
    if finished(out):
        return brinell.Run(out)
    require_assets()
    data = {"source": IMAGES, "limit": images or effort.images, "shuffle": True}
    criterion = f"top_k_misclassification({TOP})"
    lens = {"name": "fragility", "sizes": [size], "stride": effort.stride(size), "criterion": criterion, **options}
    execution = Execution(device=device, precision=effort.precision, compile=device != "cpu", batch=effort.batch)
    return brinell.run([_model(network, execution) for network in networks], data, lens=lens, out=out, execution=execution)


@cache  # compiled once
def _model(network: str, execution: Execution) -> str | Model:
    """Return a network in onnxruntime on a CPU, and as a torch module elsewhere."""
    if execution.device == "cpu":
        return f"onnx:{ASSETS}/models/{network}.onnx?classes={ASSETS}/models/imagenet_classes.txt"
    if network == "efficientnet_lite0":
        return brinell.open_model("efficientnet_lite0?resize=stretch", execution)
    return network_of(network, execution, "bilinear")


def run_all(effort: Effort, device: str) -> dict[str, dict[float, brinell.Run]]:
    """Return all runs, by name and size."""
    many = {"networks": effort.whole_networks, "images": effort.whole_images, "stride": 1}
    return {
        "sampled": {size: run("sampled", size, effort, device) for size in reversed(SIZES)},
        "unresized": {UNRESIZED: run("unresized", UNRESIZED, effort, device)},
        "nearest": {
            0.2: run("nearest", 0.2, effort, device, networks=[FAST], stride=max(8, effort.stride(0.2)), fit="nearest")
        },
        "whole": {size: run("whole", size, effort, device, **many) for size in effort.whole_sizes},
    }


def main() -> None:
    """Measure, compare, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["measure", "page"])
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    device = given.device
    if given.what == "measure":
        run_all(LARGE if device != "cpu" else SMALL, device)
        return
    last = ROOT / "runs" / f"fidelity-fragility-{LARGE.name}-whole-{SIZES[-1]:g}"
    effort = LARGE if device != "cpu" or finished(last) else SMALL
    runs = run_all(effort, device)
    sampled = {size: found_in(runs["sampled"][size]) for size in SIZES}
    cifar = cifar_page.page()
    save(_curves(sampled), ROOT / "docs" / "figures" / "fidelity-fragility.svg")
    save(cifar.pop("figure"), ROOT / "docs" / "figures" / "fidelity-fragility-cifar.svg")
    page = {
        "images": effort.images,
        "strides": _strides(effort),
        "windows": sum(
            found.shares[NETWORKS[0], f"windows:{size:g}", KINDS[0], "correct"].windows for size, found in sampled.items()
        ),
        "shares": shares_table(sampled),
        "paper": paper_table(sampled),
        "signs": signs_table(sampled),
        "correct": correct_table(sampled),
        "halves": halves_table(runs["sampled"]),
        "drops": drops_table(runs["sampled"]),
        "whole_drops": [max(largest_drops(runs["whole"][0.8], FAST, "shrink", top)) for top in (TOP, 1)],
        "whole": whole_table(runs["whole"], effort.whole_networks),
        "whole_images": effort.whole_images,
        "unresized": unresized_table(sampled, found_in(runs["unresized"][UNRESIZED])),
        "nearest": nearest_table(runs["sampled"][0.2], runs["nearest"][0.2]),
        "rules": rules_table(runs["sampled"]),
        "paper_drop": PAPER_DROP,
        "cifar": cifar,
        "pct": lambda value: percent(value, 0),
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


def _curves(sampled: dict[float, FragilityFindings]) -> Any:
    """Return the paper's Figs. 5 and A.1 for our networks, with the figures in its text."""
    records = []
    for network in NETWORKS:
        for kind in KINDS:
            for size in SIZES:
                share = share_of(sampled, network, size, kind).share
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
