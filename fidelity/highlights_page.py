"""The page about the highlights lens, from stored results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from fidelity import glare, glare_results
from fidelity.glare_results import REFERENCE, SIDE, Seen
from fidelity.measure import ROOT
from fidelity.words import grid, listed

PAGE = ROOT / "docs" / "fidelity-highlights.md"
PAIRS = 200  # variants per network whose saliency is compared: this many that fail, and as many that don't
SHORT_SIDE = 375  # of a typical photograph of ImageNet, 500 by 375


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page."""
    reference = json.loads(REFERENCE.read_text(encoding="utf-8"))
    found, images = glare_results.found_in(results["grid"]), glare_results.images_of(results["grid"])
    others = {name: glare_results.images_of(results.get(name, {})) for name in glare.SETTINGS}
    shifts, labelled = (
        glare_results.shifts_in(results[name]) if name in results else [] for name in ("saliency", "saliency-label")
    )
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "highlights.md.j2").read_text(encoding="utf-8")
    )
    page = template.render(
        networks=len(results["grid"]),
        images=len({one.image for one in images}),
        fewer=min((len({one.image for one in seen}) for seen in others.values() if seen), default=0),
        pairs=PAIRS,
        short=SHORT_SIDE,
        side=SIDE,
        reference=reference,
        accuracies=glare.accuracies(found),
        drops=glare.drops(found, reference),
        lost=_range(images),
        lost_5=_range(images, 5),
        anyone=glare.anyone(images, found, reference),
        sizes=glare.sizes(found, reference),
        each=glare.each(found),
        cells=glare.cells(found),
        parts=glare.parts(images, reference),
        sure=glare.sure(images),
        changes=glare.changes(images, others, SHORT_SIDE),
        experiments=glare.experiments(images, others, SHORT_SIDE) if any(others.values()) else None,
        larger=_larger(results, images),
        native=_native(results, reference),
        shifts=glare.shifts(shifts) if shifts else None,
        targets=glare.targets(shifts, labelled) if labelled else None,
        location=glare.location(glare_results.found_in(results["detectors"]), reference)
        if "detectors" in results
        else None,
        light=glare.light(glare_results.found_in(results["least"])) if "least" in results else None,
    )
    return page.rstrip() + "\n"


def _range(images: Sequence[Seen], count: int = 1) -> str:
    """Return the least and the most points that a network loses at S ≥ count."""
    lost = glare.points_lost(images, count).values()
    return f"{min(lost):.0f} to {max(lost):.0f}"


def _larger(results: Mapping[str, Any], images: Sequence[Seen]) -> dict[str, Any] | None:
    """Return the losses of larger networks on the same photographs, next to those of the smallest of their family."""
    larger = glare_results.images_of(results.get("larger", {}))
    if not larger:
        return None
    family = [*(one for one in images if one.model.startswith("efficientnet")), *larger]
    lost = {model: f"{points:.0f}" for model, points in glare.points_lost(family).items()}
    return {
        "table": glare.settings({"of the assets": family}),
        "points": listed(f"{points} ({model})" for model, points in lost.items()),
    }


def _native(results: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the losses on photographs at their native sizes, and on the same photographs at the size of the assets."""
    native, square = (glare_results.images_of(results.get(name, {})) for name in ("native", "square"))
    if not native or not square:
        return None
    classes = set(reference["classes"])
    paper = [one for one in native if one.label in classes]
    larger = [one for one in native if one.model in results["larger"]]
    small, photographs = set(results["grid"]), f"{len({one.image for one in native})} other photographs"
    of_assets = glare_results.images_of(results["grid"])
    steps = {
        f"{len(small)} small networks, photographs of the assets": of_assets,
        f"the same networks, {photographs}, {SIDE} × {SIDE}": [one for one in square if one.model in small],
        "the same networks and photographs at native sizes": [one for one in native if one.model in small],
        f"{listed(results['larger'])}, native sizes": larger,
        "the same, in the paper's 200 classes": [one for one in larger if one.label in classes],
    }
    drops = [f"about {drop}" for drop in reference["drop_at_least"].values()]
    return {
        "count": len({one.image for one in native}),
        "paper_count": len({one.image for one in paper}),
        "table": glare.settings({"native": native, f"{SIDE} × {SIDE}": square}),
        "change": glare.change(square, native),
        "range": _range(native),
        "range_5": _range(native, 5),
        "larger": listed(results["larger"]),
        "mean_larger": glare.mean_lost(larger),
        "mobilenet": f"{glare.points_lost(native)['mobilenet_v2']:.0f}",
        "steps": grid(
            ["points lost, mean of networks (95 % over photographs)", "S ≥ 1", "S ≥ 5"],
            [
                *([name, glare.mean_lost(seen), glare.mean_lost(seen, 5)] for name, seen in steps.items()),
                ["paper, mean of eight networks", *drops],
            ],
        ),
    }
