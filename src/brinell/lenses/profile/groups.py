"""Which classes, slices and images suffer most under change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from brinell.lenses.reader import AVERAGE, Figures
from brinell.runs.run import Run
from brinell.runs.slices import CLASS, MOST, read_columns, select_columns, slice_values
from brinell.runs.statistics import Estimate, mean

SHOWN = 5  # classes or images at each end
FEWEST = 2  # images of a group

_BY_IMAGE = """
    select model, image, avg(correct::int) filter (level > 0) as kept, avg(correct::int) filter (level = 0) as clean
    from rows where lens = 'profile' and list_contains($operators, operator) group by model, image order by model, image
"""


@dataclass(frozen=True)
class Group:
    """The images of a class or slice: accuracy on clean images and its mean over all levels and operators.

    `worst` is the name of the image, among those that are right when clean, that is wrong most often.
    """

    name: str
    images: int
    clean: float
    accuracy: Estimate
    worst: str | None = None

    @property
    def lost(self) -> float:
        """What change costs, as a share of all answers."""
        return self.clean - self.accuracy.value


@dataclass(frozen=True)
class Affected:
    """The classes that lose most and least, and the images that are right when clean and wrong most often under change.

    `slices` are the groups of each column of metadata that has a few values, and of the classes if they are few; those
    that lose most come first.
    """

    most: tuple[Group, ...]
    least: tuple[Group, ...]
    images: tuple[tuple[str, float], ...]
    slices: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Image:
    """An image under a model: its name, the share of right answers under change, and whether it is right when clean."""

    name: str
    kept: float
    clean: float


def find_affected(run: Run, operators: list[str]) -> dict[str, Affected]:
    """Return what each model's losses fall on: classes, slices and images."""
    answers: dict[str, dict[str, _Image]] = {}
    names = run.image_names
    for model, image, kept, clean in run.query(_BY_IMAGE, {"operators": operators}):
        if kept is not None and clean is not None:
            answers.setdefault(model, {})[image] = _Image(names.get(image, image), kept, clean)
    columns = read_columns(run)
    shown = select_columns(columns)
    found = {}
    for model, own in answers.items():
        classes = _group(own, slice_values(run, CLASS, model))
        slices = {column: _group(own, columns[column]) for column in shown}
        if 1 < len(classes) <= MOST:
            slices[CLASS] = classes
        most, least = classes[:SHOWN], classes[max(SHOWN, len(classes) - SHOWN) :][::-1]
        worst = tuple((one.name, one.kept) for one in _worst(own.values())[:SHOWN])
        found[model] = Affected(most, least, worst, {column: groups for column, groups in slices.items() if groups})
    return found


def list_slices(affected: Mapping[str, Affected]) -> Iterator[Figures]:
    """Yield the accuracy under change of each slice, for a tracking server."""
    for model, found in affected.items():
        groups: dict[str, Any] = {
            column: {group.name: group.accuracy for group in own} for column, own in found.slices.items()
        }
        if groups:
            yield model, AVERAGE, 0, {"slice": groups}


def _group(answers: Mapping[str, _Image], values: Mapping[str, str]) -> tuple[Group, ...]:
    """Return the groups of images that share a value, those that lose most first."""
    members: dict[str, list[_Image]] = {}
    for image, one in answers.items():
        if image in values:
            members.setdefault(values[image], []).append(one)
    groups = (_summarise(name, own) for name, own in members.items() if len(own) >= FEWEST)
    return tuple(sorted(groups, key=lambda group: (-round(group.lost, 9), group.name)))


def _summarise(name: str, own: list[_Image]) -> Group:
    count = len(own)
    value = math.fsum(one.kept for one in own) / count
    deviation = math.sqrt(math.fsum((one.kept - value) ** 2 for one in own) / (count - 1))
    clean = math.fsum(one.clean for one in own) / count
    worst = next((one.name for one in _worst(own)), None)
    return Group(name, count, clean, mean(value, deviation, count, most=1), worst)


def _worst(images: Iterable[_Image]) -> list[_Image]:
    """Return the images that are right when clean, those that are wrong most often first."""
    return sorted((one for one in images if one.clean == 1), key=lambda one: (one.kept, one.name))
