"""The tables of the page about the highlights lens: brinell's findings next to the paper's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median, pvariance
from typing import Any

from brinell.lenses.highlights.findings import HighlightFindings
from brinell.runs.statistics import Estimate, proportion
from brinell.saliency.findings import ShiftRate
from fidelity.glare_results import EXACT, SIZES, Seen
from fidelity.words import grid, signed

SETTINGS = {
    "relative": "spots scaled as on {short} pixels",
    "nearest": "nearest-neighbour resize",
    "crop": "centre crop of 224 from 256 pixels",
    "authors": "the authors' grid",
}


def accuracies(found: HighlightFindings) -> str:
    """Return top-1 accuracy on originals, on all variants, and with k failing variants as a failure."""
    lines = []
    for model in found.models:
        one = found.glare[model, EXACT]
        lines.append([model, *map(_shown, (one.top1, one.average, *one.at_least.values()))])
    return grid(["network", "top-1", "S-average", "S ≥ 1", "S ≥ 5"], lines)


def drops(found: HighlightFindings, reference: Mapping[str, Any]) -> str:
    """Return the loss in points of top-1, and as a share of correct images."""
    lines = [
        ["paper, mean of eight", "slight", *(f"about {drop}" for drop in reference["drop_at_least"].values()), "–", "–"]
    ]
    for model in found.models:
        one = found.glare[model, EXACT]
        lost = [one.top1.value - value.value for value in (one.average, *one.at_least.values())]
        share = (_shown(_lost(one.right, kept)) for kept in one.over_right.values())
        lines.append([model, *(f"{100 * drop:.1f}" for drop in lost), *share])
    head = [
        "",
        "S-average, points lost",
        "S ≥ 1, points",
        "S ≥ 5, points",
        "S ≥ 1, % of correct",
        "S ≥ 5, % of correct",
    ]
    return grid(head, lines)


def anyone(images: Sequence[Seen], found: HighlightFindings, reference: Mapping[str, Any]) -> str:
    """Return how many originals any network loses, and how many of their variants."""
    every = {one.image for one in images}
    lost = {one.image for one in images if one.right and one.failing}
    each, total = reference["failing_variants"], reference["images"]
    theirs = reference["failing"] / each
    return (
        f"{100 * len(lost) / len(every):.0f} % of our {len(every)} images are lost by at least one network, in "
        f"{found.any_model[EXACT].variants / max(len(lost), 1):.1f} variants on average; the paper's "
        f"{reference['failing']:,} failing variants, {each} per image, correspond to about {theirs:,.0f} of {total:,} "
        f"images, or {100 * theirs / total:.0f} %, for eight networks"
    )


def _lost(right: int, kept: Estimate) -> Estimate:
    return proportion(right - round(kept.value * right), right)


def parts(images: Sequence[Seen], reference: Mapping[str, Any]) -> str:
    """Return the losses on parts of the images: by confidence on the original, and by class."""
    classes = set(reference["classes"])
    lines = []
    for model, own in _by_model(images).items():
        middle = median(one.sure for one in own if one.right)
        chosen: dict[str, Callable[[Seen], bool]] = {
            "all": lambda one: True,
            f"lower confidence (below {middle:.2f})": lambda one, middle=middle: one.sure < middle,  # type: ignore[misc]
            "higher confidence": lambda one, middle=middle: one.sure >= middle,  # type: ignore[misc]
            "in the paper's 200 classes": lambda one: one.label in classes,
        }
        lines += [[model, name, *_losses([one for one in own if keep(one)])] for name, keep in chosen.items()]
    return grid(["network", "images", *HEAD], lines)


HEAD = ("count", "top-1", "S ≥ 1, points lost", "S ≥ 5, points", "S ≥ 1, % of correct", "S ≥ 5, %", "failing variants")


def experiments(images: Sequence[Seen], others: Mapping[str, Sequence[Seen]], short: int) -> str:
    """Return the losses in other settings, compared with the default on the same images."""
    lines = []
    for model, default in _by_model(images).items():
        ways = {name: own for name, seen in others.items() if (own := _by_model(seen).get(model))}
        if not ways:
            continue
        common = set.intersection(*({one.image for one in own} for own in (default, *ways.values())))
        for name, own in {"": default, **ways}.items():
            losses = _losses([one for one in own if one.image in common])
            lines.append([model, SETTINGS[name].format(short=short) if name else "as above", *losses])
    return grid(["network", "setting", *HEAD], lines)


def changes(images: Sequence[Seen], others: Mapping[str, Sequence[Seen]], short: int) -> str:
    """Return how many more images each setting loses at S ≥ 1, as a mean of networks with intervals over images."""
    shown = [f"{SETTINGS[name].format(short=short)} {change(images, seen)}" for name, seen in others.items() if seen]
    head = "Change of points lost at S ≥ 1 compared with the default, mean of the networks, with 95 % intervals over images"
    return f"{head}: {'; '.join(shown)}."


def change(images: Sequence[Seen], others: Sequence[Seen]) -> str:
    """Return how many more of the same images another setting loses at S ≥ 1, in points with its interval."""
    default = {(one.model, one.image): one for one in images}
    by_image: dict[str, list[int]] = {}
    for one in others:
        if (own := default.get((one.model, one.image))) is not None:
            by_image.setdefault(one.image, []).append(_loses(one) - _loses(own))
    gaps = [mean(own_gaps) for own_gaps in by_image.values()]
    middle = mean(gaps)
    wide = 1.96 * (pvariance(gaps) / len(gaps)) ** 0.5
    numbers = [signed(100 * value, 1) for value in (middle, middle - wide, middle + wide)]
    return f"{numbers[0]} ({numbers[1]} to {numbers[2]})"


def points_lost(images: Sequence[Seen], count: int = 1) -> dict[str, float]:
    """Return the points that each network loses at S ≥ count."""
    return {
        model: 100 * mean(one.right and one.failing >= count for one in own) for model, own in _by_model(images).items()
    }


def mean_lost(images: Sequence[Seen], count: int = 1) -> str:
    """Return the points lost at S ≥ count, as a mean of networks with its interval over images."""
    by_image: dict[str, list[bool]] = {}
    for one in images:
        by_image.setdefault(one.image, []).append(one.right and one.failing >= count)
    lost = [mean(own) for own in by_image.values()]
    wide = 1.96 * (pvariance(lost) / len(lost)) ** 0.5
    return f"{100 * mean(lost):.1f} ({100 * (mean(lost) - wide):.0f}–{100 * (mean(lost) + wide):.0f})"


def settings(ways: Mapping[str, Sequence[Seen]]) -> str:
    """Return the losses of every network in each setting."""
    models = list(dict.fromkeys(one.model for seen in ways.values() for one in seen))
    lines = [
        [model, name, *_losses(own)]
        for model in models
        for name, seen in ways.items()
        if (own := [one for one in seen if one.model == model])
    ]
    return grid(["network", "photographs", *HEAD], lines)


def _loses(one: Seen) -> int:
    return int(one.right and one.failing > 0)


def sure(images: Sequence[Seen]) -> str:
    """Return the share of the images lost at S ≥ 1 that are in the half of lower confidence."""
    lost, unsure = 0, 0
    for own in _by_model(images).values():
        middle = median(one.sure for one in own if one.right)
        lost += sum(_loses(one) for one in own)
        unsure += sum(_loses(one) for one in own if one.sure < middle)
    return f"{100 * unsure / lost:.0f} % of the images lost at S ≥ 1 are in the halves of lower confidence." if lost else ""


def _by_model(images: Sequence[Seen]) -> dict[str, list[Seen]]:
    found: dict[str, list[Seen]] = {}
    for one in images:
        found.setdefault(one.model, []).append(one)
    return found


def _losses(images: Sequence[Seen]) -> list[str]:
    """Return count, top-1, points lost at S ≥ 1 and 5, the same as shares of correct images, and failing variants."""
    right = [one for one in images if one.right]
    lost = [[one for one in right if one.failing >= count] for count in (1, 5)]
    points = (f"{100 * len(some) / len(images):.1f}" for some in lost)
    shares = (_shown(proportion(len(some), len(right))) for some in lost)
    each = f"{mean(one.failing for one in lost[0]):.1f}" if lost[0] else "–"
    return [str(len(images)), f"{100 * len(right) / len(images):.1f}", *points, *shares, each]


def sizes(found: HighlightFindings, reference: Mapping[str, Any]) -> str:
    """Return the shares of failures by sigma."""
    lines = [["paper, all networks combined", *(f"{100 * share:.1f}" for share in reference["share_by_sigma"])]]
    ours = found.any_model[EXACT]
    lines.append(
        [
            f"ours, all networks combined ({ours.variants:,} variants)",
            *(f"{100 * share:.1f}" for share in ours.share_by_sigma.values()),
        ]
    )
    for model in found.models:
        lines.append([model, *(_shown(size.share) for size in found.glare[model, EXACT].sizes)])
    return grid(["share of failures with σ of", *SIZES], lines)


def each(found: HighlightFindings) -> str:
    """Return how many variants of an image fail, if any does."""
    return ", ".join(f"{found.glare[model, EXACT].failing_per_image.value:.1f} ({model})" for model in found.models)


def cells(found: HighlightFindings) -> str:
    """Return the share of breaking spots by cell, over all networks."""
    own = [found.glare[model, EXACT] for model in found.models]
    rates = [mean(one.cells[cell] for one in own) for cell in range(25)]
    lines = [[f"row {row + 1}", *(f"{100 * rates[5 * row + column]:.1f}" for column in range(5))] for row in range(5)]
    return grid(["spots that break, %", *(f"column {column + 1}" for column in range(5))], lines)


def shifts(found: Sequence[ShiftRate]) -> str:
    """Return how often and how far saliency shifts."""
    lines = []
    for one in found:
        values = (_shown(one.shifted), _shown(one.equal_shifted), f"{100 * one.tied:.0f}")
        lines.append(
            [one.model, _kind(one.failed), str(one.pairs), *values, f"{one.overlap.value:.2f}", f"{one.distance.value:.3f}"]
        )
    rules = ("shifted, paper's rule", "shifted, equal cells")
    return grid(["network", "variant", "pairs", *rules, "tied, %", "overlap", "distance"], lines)


def targets(predicted: Sequence[ShiftRate], labelled: Sequence[ShiftRate]) -> str:
    """Return the same for the predicted class and for the correct one."""
    others = {(one.model, one.failed): one for one in labelled}
    lines = []
    for one in predicted:
        if (other := others.get((one.model, one.failed))) is not None:
            lines.append([one.model, _kind(one.failed), _shown(one.shifted), _shown(other.shifted)])
    return grid(["network", "variant", "map of the predicted class", "map of the correct class"], lines)


def _kind(failed: bool) -> str:
    return "fails" if failed else "does not fail"


def location(found: HighlightFindings, reference: Mapping[str, Any]) -> str:
    """Return the shares of spots inside and outside of boxes."""
    lines = [["paper, all classifiers", "–", "–", f"{100 * reference['inside']:.0f}", "–", "–", "–"]]
    for model in found.models:
        one = found.glare[model, EXACT]
        assert one.location is not None
        values = map(_shown, (one.location.failing, one.location.all, one.location.inside, one.location.outside))
        lines.append([model, str(one.location.images), str(one.failing), *values])
    spots = ("failing spots inside", "all spots inside", "inside that break", "outside that break")
    return grid(["detector", "images", "failing spots", *spots], lines)


def light(found: HighlightFindings) -> str:
    """Return the faintest spots that break an image."""
    lines = []
    for one in found.least.values():
        values = f"{one.light.value:.1f} ({one.light.low:.1f}–{one.light.high:.1f})"
        counts = f"{one.broken} / {one.survived} / {one.skipped}"
        lines.append(
            [one.model, values, f"{one.median or 0:.1f}", f"{one.sigma or 0:.0f} px", counts, f"{one.queries:.0f}"]
        )
    return grid(["network", "mean light", "median", "median σ", "broken / survived / skipped", "queries"], lines)


def _shown(value: Estimate) -> str:
    return f"{100 * value.value:.1f} ({100 * value.low:.0f}–{100 * value.high:.0f})"
