"""Mean IoU of segmenters at every level, from rows: pixels are summed over all images first, then classes are averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brinell.runs.run import Run

Key = tuple[str, str, int]  # model, operator and level

# of each image; classes that occur neither in its true mask nor in the predicted one have no row
MASK_PIXELS = """
    select model, operator, level, image, unnest(mask_classes) as class, unnest(mask_common) as common,
           unnest(mask_union) as either
    from rows where lens = 'profile' and mask_classes is not null
"""
_CLASSES = f"""
    select model, operator, level, class, sum(common) / sum(either) as iou from ({MASK_PIXELS}) group by all
"""
_MIOU = f"select model, operator, level, avg(iou) from ({_CLASSES}) group by all"
_AVERAGE_MIOU = f"""
    select model, level, avg(miou) from (
        select model, operator, level, avg(iou) as miou from ({_CLASSES}) where list_contains($operators, operator)
        group by all)
    group by all order by all
"""
_BY_CLASS = f"""
    select model, class, avg(iou) filter (level = 0), avg(iou) from ({_CLASSES})
    where list_contains($operators, operator) group by all order by all
"""


@dataclass(frozen=True)
class ClassOverlap:
    """The IoU of a class on clean images, and its mean over all levels of all averaged operators."""

    label: int
    name: str
    clean: float | None
    average: float | None


def compute_miou(run: Run) -> dict[Key, float]:
    """Return the mean IoU of every segmenter at every level; a sample of the levels has none."""
    if not has_masks(run):
        return {}
    return {(model, operator, level): value for model, operator, level, value in run.query(_MIOU)}


def compute_average_miou(run: Run, operators: Sequence[str]) -> dict[tuple[str, int], float]:
    """Return the mean IoU of every segmenter by level, averaged over operators."""
    if not has_masks(run):
        return {}
    return {(model, level): value for model, level, value in run.query(_AVERAGE_MIOU, {"operators": operators})}


def compute_class_iou(run: Run, operators: Sequence[str]) -> Mapping[str, list[ClassOverlap]]:
    """Return the IoU of each class by model, those that lose most first."""
    found: dict[str, list[ClassOverlap]] = {}
    for model, label, clean, average in run.query(_BY_CLASS, {"operators": operators}) if has_masks(run) else ():
        name = run.models[model].class_name(label) or f"class {label}"
        found.setdefault(model, []).append(ClassOverlap(label, name, clean, average))
    for classes in found.values():
        classes.sort(key=lambda one: ((one.average or 0) - (one.clean or 0), one.label))
    return found


def has_masks(run: Run) -> bool:
    """Whether a run's rows have the pixels of masks at every level."""
    return not run.sampled and any(model.task == "segmentation" for model in run.models.values())
