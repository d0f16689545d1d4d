"""Figures over all operators that are no means over images, with and without each fold of the images.

So they have intervals, and so have their differences between two models: average precision under change (mPC, rPC), mean
IoU, calibration, accuracy under the worst operator, and the share of images that are always right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from brinell.lenses.profile.calibration import ANSWERS, UNCALIBRATED
from brinell.lenses.profile.overlap import MASK_PIXELS, has_masks
from brinell.runs.folds import FOLD, FOLDS, Replicated, mean_replicated
from brinell.runs.run import Run

Sums = dict[int, list[float]]  # by fold that has images: their number, and sums over them
Cell = dict[int, Sums]  # the sums of a level by a bin of confidence or a class
# names of figures, in the order in which they are shown, for people, and whether more of it is better
TITLES = {
    "worst_accuracy": ("accuracy under the worst operator", True),
    "always_right": ("right at every level of every operator", True),
    "ece_clean": ("calibration error (ECE), clean", False),
    "ece": ("calibration error (ECE), under change", False),
    "brier": ("Brier score, under change", False),
    "nll": ("log loss (NLL), under change", False),
    "map_clean": ("mAP, clean", True),
    "mpc": ("mPC (mAP under change)", True),
    "rpc": ("rPC (mPC / clean mAP)", True),
    "miou_clean": ("mIoU, clean", True),
    "miou": ("mIoU, under change", True),
}
UNBOUNDED = ("nll",)  # all others are shares

_KEPT = f"""
    select model, operator, {FOLD}, count(*), sum(kept)
    from (select model, operator, image, avg(correct::int) filter (level > 0) as kept from rows
          where lens = 'profile' and list_contains($operators, operator) group by all)
    where kept is not null group by all
"""
_ALWAYS = f"""
    select model, {FOLD}, count(*), sum(always)
    from (select model, image, min(correct::int) as always from rows
          where lens = 'profile' and list_contains($operators, operator) group by all)
    where always is not null group by all
"""
_CALIBRATION = f"""
    select model, operator, level, bin, {FOLD}, count(*), sum(gap), sum(gap ** 2), sum(loss) from ({ANSWERS})
    where list_contains($operators, operator) group by all
"""
_PRECISION = """
    select model, level, operator, map, {without} from precision where list_contains($operators, operator) order by all
"""
_PIXELS = f"""
    select model, operator, level, class, {FOLD}, sum(common), sum(either) from ({MASK_PIXELS})
    where list_contains($operators, operator) group by all
"""


def replicate(run: Run, operators: list[str]) -> dict[str, dict[str, Replicated]]:
    """Return the figures of each model by name; those of detectors and segmenters where they were computed."""
    given = {"operators": operators}
    found: dict[str, dict[str, Replicated]] = {model: {} for model in run.models}
    for part in (_accuracies(run, given), _calibration(run, given), _precisions(run, given), _overlaps(run, given)):
        for model, name, figure in part:
            found[model][name] = figure
    return {model: {name: own[name] for name in TITLES if name in own} for model, own in found.items()}


Found = Iterator[tuple[str, str, Replicated]]  # model, name and figure


def _accuracies(run: Run, given: dict[str, Any]) -> Found:
    kept: dict[str, dict[str, Sums]] = {}
    for model, operator, fold, *sums in run.query(_KEPT, given):
        kept.setdefault(model, {}).setdefault(operator, {})[fold] = _numbers(sums)
    for model, own in kept.items():
        means = [_mean(sums) for sums in own.values()]
        lowest = tuple(
            None if None in column else min(each for each in column if each is not None) for column in _columns(means)
        )
        yield model, "worst_accuracy", Replicated(min(one.value for one in means), lowest)
    always: dict[str, Sums] = {}
    for model, fold, *sums in run.query(_ALWAYS, given):
        always.setdefault(model, {})[fold] = _numbers(sums)
    for model, folds in always.items():
        yield model, "always_right", _mean(folds)


def _calibration(run: Run, given: dict[str, Any]) -> Found:
    cells: dict[str, dict[tuple[str, int], Cell]] = {}
    for model, operator, level, bin_, fold, *sums in run.query(_CALIBRATION, given):
        if run.models[model].task in UNCALIBRATED:
            continue
        cell = cells.setdefault(model, {}).setdefault((operator, level), {})
        cell.setdefault(bin_, {})[fold] = _numbers(sums)
    for model, own in cells.items():
        clean = [_calibration_error(bins) for (_, level), bins in own.items() if level == 0]
        changed = [bins for (_, level), bins in own.items() if level > 0]
        if clean and changed:
            yield model, "ece_clean", mean_replicated(clean)
            yield model, "ece", mean_replicated([_calibration_error(bins) for bins in changed])
            for name, place in (("brier", 2), ("nll", 3)):
                yield model, name, mean_replicated([_mean_over_bins(bins, place) for bins in changed])


def _mean_over_bins(bins: Cell, place: int) -> Replicated:
    """Return the mean over images of one of their sums, over all bins."""
    parts: dict[int, list[list[float]]] = {}
    for sums in bins.values():
        for fold, own in sums.items():
            parts.setdefault(fold, []).append(own)
    return _mean({fold: [math.fsum(own[at] for own in parts[fold]) for at in (0, place)] for fold in parts})


def _calibration_error(bins: Cell) -> Replicated:
    """Return ECE: the mean over images of the gap between confidence and accuracy in their bin."""
    gaps = {bin_: math.fsum(own[1] for own in sums.values()) for bin_, sums in bins.items()}
    count = math.fsum(own[0] for sums in bins.values() for own in sums.values())
    without: list[float | None] = [None] * FOLDS
    for fold in {fold for sums in bins.values() for fold in sums}:
        left_out = {bin_: sums[fold] for bin_, sums in bins.items() if fold in sums}
        rest = count - math.fsum(own[0] for own in left_out.values())
        if rest >= 1:
            kept = {**gaps, **{bin_: gaps[bin_] - own[1] for bin_, own in left_out.items()}}
            without[fold] = math.fsum(map(abs, kept.values())) / rest
    return Replicated(math.fsum(map(abs, gaps.values())) / count, tuple(without))


def _precisions(run: Run, given: dict[str, Any]) -> Found:
    if not run.store.exists("precision.parquet"):
        return
    columns = {name for (name, *_) in run.query("describe precision")}
    sql = _PRECISION.format(without="without" if "without" in columns else "null")
    levels: dict[str, dict[int, list[Replicated]]] = {}
    for model, level, _, value, without in run.query(sql, given):
        figure = Replicated(value, tuple(without) if without else (None,) * FOLDS)
        levels.setdefault(model, {}).setdefault(level, []).append(figure)
    for model, own in levels.items():
        changed = [mean_replicated(each) for level, each in own.items() if level > 0]
        if 0 in own and changed:
            clean, mpc = mean_replicated(own[0]), mean_replicated(changed)
            yield model, "map_clean", clean
            yield model, "mpc", mpc
            if clean.value:
                yield model, "rpc", mpc.over(clean)


def _overlaps(run: Run, given: dict[str, Any]) -> Found:
    if not has_masks(run):
        return
    cells: dict[str, dict[tuple[str, int], Cell]] = {}
    for model, operator, level, class_, fold, *sums in run.query(_PIXELS, given):
        cell = cells.setdefault(model, {}).setdefault((operator, level), {})
        cell.setdefault(class_, {})[fold] = _numbers(sums)
    for model, own in cells.items():
        clean = [_mean_iou(classes) for (_, level), classes in own.items() if level == 0]
        changed = [_mean_iou(classes) for (_, level), classes in own.items() if level > 0]
        if clean and changed:
            yield model, "miou_clean", mean_replicated(clean)
            yield model, "miou", mean_replicated(changed)


def _mean_iou(classes: Cell) -> Replicated:
    """Return the mean over classes of their IoU, each over the pixels of all images."""
    known = {fold for sums in classes.values() for fold in sums}
    folds = {fold: [value for sums in classes.values() for value in sums.get(fold, (0.0, 0.0))] for fold in known}

    def figure(sums: Sequence[float]) -> float:
        ious = [common / either for common, either in zip(sums[::2], sums[1::2], strict=True) if either]
        return math.fsum(ious) / len(ious)

    return _replicated(folds, figure, counts=slice(1, None, 2))


def _mean(folds: Sums) -> Replicated:
    """Return a mean over images, from their number in each fold and the sum over them."""
    return _replicated(folds, lambda sums: sums[1] / sums[0], counts=slice(1))


def _replicated(folds: Sums, figure: Callable[[Sequence[float]], float], counts: slice) -> Replicated:
    """Return a figure of sums over images, and the same without each fold; `counts` are the places of numbers of images."""
    total = [math.fsum(column) for column in zip(*folds.values(), strict=True)]
    without: list[float | None] = [None] * FOLDS
    for fold, sums in folds.items():
        rest = [whole - part for whole, part in zip(total, sums, strict=True)]
        if math.fsum(sums[counts]) and math.fsum(rest[counts]) >= 1:
            without[fold] = figure(rest)
    return Replicated(figure(total), tuple(without))


def _columns(figures: Sequence[Replicated]) -> Iterator[tuple[float | None, ...]]:
    return zip(*(figure.without for figure in figures), strict=True)


def _numbers(sums: Sequence[float | None]) -> list[float]:
    return [float(value or 0) for value in sums]
