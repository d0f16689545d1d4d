"""Brinell's highlights beside the published ones: writes docs/fidelity-highlights.md.

    python -m fidelity.highlights

Runs lie under runs/fidelity-highlights-*, so a second call measures nothing again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import jinja2

import brinell
from brinell.models import Model
from brinell.results import Attention, Estimate, Highlights
from fidelity.measure import ASSETS, IMAGES, LITE0, ROOT, require_assets
from fidelity.words import grid, listed

NETS = ("mobilenet_v2", "squeezenet1_1", "mobilenet_v1_075_192")  # as torch modules, which can be looked into
OPERATOR = "highlight:exact"
PAIRS = 120  # of each network that are looked at, of those that fail and of those that don't
FEWER, SMALL = 20, ("squeezenet1_1",)  # images and networks of the experiments
SHORT_SIDE = 375  # of the usual photograph of ImageNet, 500 by 375
DETECTORS = ("ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco")
SCENES = 16


@cache
def networks() -> list[Model]:
    """The four classifiers."""
    require_assets()
    spec = spec_from_file_location("nets", ASSETS / "models" / "nets.py")
    assert spec is not None and spec.loader is not None
    nets = module_from_spec(spec)
    sys.modules["nets"] = nets
    spec.loader.exec_module(nets)
    classes = (ASSETS / "models" / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
    found = [brinell.open_model(LITE0)]
    for name in NETS:
        module, (_, height, width), _ = nets.load(name)
        found.append(brinell.wrap(module, size=(height, width), classes=classes, name=name))
    return found


def chosen(names: Sequence[str]) -> list[Model]:
    """Some of them."""
    return [model for model in networks() if model.name in names]


def run(
    name: str, operators: Sequence[str], *, limit: int | None = None, among: Sequence[str] = (), **options: Any
) -> brinell.Run:
    """Carry out a run of the four networks, or of some, or what is missing of it."""
    lens = {"name": "highlights", "operators": list(operators), **options}
    data = {"source": IMAGES, "limit": limit}
    models = chosen(among) if among else networks()
    return brinell.run(models, data, lens=lens, out=ROOT / "runs" / f"fidelity-highlights-{name}")


def detected() -> Highlights:
    """Two detectors on photographs of COCO with a large object, whose boxes are known."""
    options = f"task=detection&classes={ASSETS}/models/coco80.txt&interpolation=bilinear"
    models = [f"onnx:{ASSETS}/models/{name}.onnx?{options}" for name in DETECTORS]
    data = {"source": ASSETS / "images" / "coco_val_128" / "instances.json", "min_area": 0.05, "limit": SCENES}
    lens = {"name": "highlights", "operators": ["highlight"]}
    return found_in(brinell.run(models, data, lens=lens, out=ROOT / "runs" / "fidelity-highlights-detectors"))


def found_in(run: brinell.Run) -> Highlights:
    """What the highlight lens found."""
    found = run.findings()["highlights"]
    assert isinstance(found, Highlights)
    return found


def main() -> None:
    """Measure, compare, and write the page."""
    measured = run("grid", ["highlight:exact"])
    found = found_in(measured)
    attention = measured.attention({"pairs": PAIRS}, models=networks())
    by_label = run("label", ["highlight"], limit=FEWER, among=SMALL)
    labelled = by_label.attention({"pairs": PAIRS, "target": "label"}, models=chosen(SMALL))
    named = Attention(
        by_label.attention({"pairs": PAIRS}, models=chosen(SMALL)).moves, labelled.options, labelled.layers, {}
    )
    authors = found_in(run("authors", ["highlight:authors"], limit=FEWER, among=SMALL))
    relative = [sigma / SHORT_SIDE for sigma in (10, 20, 30, 40)]
    smaller = found_in(run("relative", ["highlight"], limit=FEWER, among=SMALL, sigmas=relative, relative=True))
    least = found_in(run("least", ["highlight:least"], limit=FEWER, among=SMALL))
    reference = json.loads((Path(__file__).parent / "published_highlights.json").read_text(encoding="utf-8"))
    page = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True).from_string(
        (Path(__file__).parent / "highlights.md.j2").read_text(encoding="utf-8")
    )
    few = found_in(by_label)
    text = page.render(
        images=found.glare[found.models[0], OPERATOR].images,
        fewer=FEWER,
        small=listed(SMALL),
        pairs=PAIRS,
        short=SHORT_SIDE,
        accuracies=_accuracies(found),
        drops=_drops(found, reference),
        sizes=_sizes(found, reference),
        each=_each(found, reference),
        cells=_cells(found),
        drift=_drift(attention),
        targets=_targets(named, labelled),
        grids=_beside(few, authors, "highlight:authors", "the authors' grid"),
        relative=_beside(few, smaller, OPERATOR, "as large a share as in the paper"),
        place=_place(detected(), reference),
        light=_light(least),
    )
    target = ROOT / "docs" / "fidelity-highlights.md"
    target.write_text(text, encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


def _shown(value: Estimate) -> str:
    return f"{100 * value.value:.1f} ({100 * value.low:.0f}–{100 * value.high:.0f})"


def _accuracies(found: Highlights) -> str:
    lines = []
    for model in found.models:
        one = found.glare[model, OPERATOR]
        lines.append([model, *map(_shown, (one.top1, one.average, *one.at_least.values(), *one.over_right.values()))])
    return grid(["network", "top-1", "S-average", "S ≥ 1", "S ≥ 5", "S ≥ 1, right", "S ≥ 5, right"], lines)


def _drops(found: Highlights, reference: dict[str, Any]) -> str:
    lines = [["paper, mean of eight", "–", *(f"about {drop}" for drop in reference["drop_at_least"].values())]]
    for model in found.models:
        one = found.glare[model, OPERATOR]
        drops = [one.top1.value - value.value for value in (one.average, *one.at_least.values())]
        lines.append([model, *(f"{100 * drop:.1f}" for drop in drops)])
    return grid(["points of top-1 lost", "S-average", "S ≥ 1", "S ≥ 5"], lines)


def _sizes(found: Highlights, reference: dict[str, Any]) -> str:
    lines = [["paper, all networks together", *(f"{100 * share:.1f}" for share in reference["share_by_sigma"])]]
    count, shares = found.together[OPERATOR]
    lines.append(
        [f"ours, all networks together ({count:,} variants)", *(f"{100 * share:.1f}" for share in shares.values())]
    )
    for model in found.models:
        lines.append([model, *(_shown(size.share) for size in found.glare[model, OPERATOR].sizes)])
    return grid(["share of failures with σ of", "10 px", "20 px", "30 px", "40 px"], lines)


def _each(found: Highlights, reference: dict[str, Any]) -> str:
    told = (f"{found.glare[model, OPERATOR].each.value:.1f} ({model})" for model in found.models)
    return f"{listed(told)}; the paper has {reference['failing_variants']} on average"


def _cells(found: Highlights) -> str:
    """Where spots break most, over all networks."""
    glare = [found.glare[model, OPERATOR] for model in found.models]
    rates = [sum(one.cells[cell] for one in glare) / len(glare) for cell in range(25)]
    lines = [[f"row {row + 1}", *(f"{100 * rates[5 * row + column]:.1f}" for column in range(5))] for row in range(5)]
    return grid(["spots that break, %", *(f"column {column + 1}" for column in range(5))], lines)


def _drift(found: Attention) -> str:
    lines = []
    for one in found.moves:
        kind = "fails" if one.failed else "does not fail"
        values = (_shown(one.moved), _shown(one.equal_moved), f"{100 * one.tied:.0f}")
        lines.append([one.model, kind, str(one.pairs), *values, f"{one.overlap.value:.2f}", f"{one.distance.value:.3f}"])
    header = [
        "network",
        "the variant",
        "pairs",
        "moved, paper's rule",
        "moved, equal cells",
        "tied, %",
        "overlap",
        "distance",
    ]
    return grid(header, lines)


def _targets(named: Attention, labelled: Attention) -> str:
    lines = []
    for one, other in zip(named.moves, labelled.moves, strict=True):
        kind = "fails" if one.failed else "does not fail"
        lines.append([one.model, kind, _shown(one.moved), _shown(other.moved)])
    return grid(["network", "the variant", "map of the named class", "map of the right class"], lines)


def _beside(first: Highlights, second: Highlights, operator: str, name: str) -> str:
    lines = []
    for model in first.models:
        one, other = first.glare[model, OPERATOR], second.glare[model, operator]
        for label, own in ((f"{model}", one), (f"{model}, {name}", other)):
            figures = (own.top1, own.average, *own.at_least.values())
            shares = " / ".join(f"{100 * size.share.value:.0f}" for size in own.sizes)
            lines.append([label, *(f"{100 * value.value:.1f}" for value in figures), shares, f"{own.each.value:.1f}"])
    return grid(["network", "top-1", "S-average", "S ≥ 1", "S ≥ 5", "share by σ", "failing variants"], lines)


def _place(found: Highlights, reference: dict[str, Any]) -> str:
    lines = [["paper, all classifiers", "–", f"{100 * reference['inside']:.0f}", "–", "–", "–"]]
    for model in found.models:
        place = found.glare[model, OPERATOR].place
        assert place is not None
        values = map(_shown, (place.failing, place.all, place.inside, place.outside))
        lines.append([model, str(place.images), *values])
    header = ["detector", "images", "failing spots inside", "all spots inside", "inside that break", "outside that break"]
    return grid(header, lines)


def _light(found: Highlights) -> str:
    lines = []
    for one in found.least.values():
        mean = f"{one.light.value:.1f} ({one.light.low:.1f}–{one.light.high:.1f})"
        counts = f"{one.broken} / {one.survived} / {one.skipped}"
        lines.append([one.model, mean, f"{one.middle or 0:.1f}", f"{one.sigma or 0:.0f} px", counts, f"{one.queries:.0f}"])
    return grid(["network", "mean light", "median", "median σ", "broken / survived / skipped", "queries"], lines)


if __name__ == "__main__":
    sys.exit(main())
