"""Which classes and images suffer most under change."""

from __future__ import annotations

from dataclasses import dataclass

from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean

SHOWN = 5  # groups or images at each end
FEWEST = 2  # images of a group

_BY_IMAGE = """
    select model, image, any_value(label) as label, avg(correct::int) filter (level > 0) as kept,
           avg(correct::int) filter (level = 0) as clean
    from rows where lens = 'profile' and list_contains($operators, operator) group by model, image
"""
_GROUPS = f"""
    select model, {{group}} as name, avg(kept), stddev_samp(kept), avg(clean), count(*)
    from ({_BY_IMAGE}) {{join}} group by all having count(*) >= {FEWEST} and name is not null order by all
"""
_WORST = f"""
    select model, any_value(samples.name), any_value(kept)
    from ({_BY_IMAGE}) as found join samples using (image) where clean = 1
    group by model, image order by model, 3, 2
"""


@dataclass(frozen=True)
class Group:
    """The images of a class or slice: accuracy on clean images and its mean over all levels and operators."""

    name: str
    images: int
    clean: float
    accuracy: Estimate

    @property
    def lost(self) -> float:
        """What change costs, as a share of all answers."""
        return self.clean - self.accuracy.value


@dataclass(frozen=True)
class Affected:
    """The classes that lose most and least, and the images that are right when clean and wrong most often under change."""

    most: tuple[Group, ...]
    least: tuple[Group, ...]
    images: tuple[tuple[str, float], ...]


def find_affected(run: Run, operators: list[str]) -> dict[str, Affected]:
    """Return what each model's losses fall on, by class."""
    groups: dict[str, list[Group]] = {}
    sql = _GROUPS.format(group="label::varchar", join="")
    for model, label, kept, deviation, clean, count in run.query(sql, {"operators": operators}):
        if kept is not None and clean is not None:
            classes = run.models[model].classes
            name = classes[int(label)] if classes is not None and int(label) < len(classes) else label
            groups.setdefault(model, []).append(Group(name, count, clean, mean(kept, deviation, count, most=1)))
    images: dict[str, list[tuple[str, float]]] = {}
    for model, name, kept in run.query(_WORST, {"operators": operators}):
        if kept is not None and len(images.setdefault(model, [])) < SHOWN:
            images[model].append((name, kept))
    found = {}
    for model in images.keys() | groups.keys():
        ordered = sorted(groups.get(model, []), key=lambda group: (-group.lost, group.name))
        most, least = ordered[:SHOWN], ordered[max(SHOWN, len(ordered) - SHOWN) :][::-1]
        found[model] = Affected(tuple(most), tuple(least), tuple(images.get(model, [])))
    return found
