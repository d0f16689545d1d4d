"""The card of a model: its verdict, its hardness lens by lens, what breaks it most easily, and what was not tested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brinell.report.section import Cell, Picture, PictureGroup, Section, Table
from brinell.runs.hardness import Hardness, Scale, describe_weakest
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, proportion
from brinell.runs.words import format_share, join_names, note_few

PICTURES, BOXED = 4, 2  # pairs on a card; those with boxes are larger


@dataclass(frozen=True)
class Rated:
    """A lens that defines hardness: its scale, and the hardness of each model."""

    lens: str
    scale: Scale
    models: Mapping[str, Hardness]


@dataclass(frozen=True)
class CardHardness:
    """One line of a card: a lens, and the hardness under it."""

    lens: str
    hardness: Hardness

    @property
    def id(self) -> str:
        """The anchor of the lens's section."""
        return section_id(self.lens)


@dataclass(frozen=True)
class Card:
    """A model's card."""

    model: str
    verdict: str
    accuracy: Estimate
    images: int
    hardness: Sequence[CardHardness]
    pictures: Sequence[Picture] = ()
    untested: Sequence[str] = ()


def make_cards(
    run: Run, rated: Sequence[Rated], sections: Mapping[str, Section], untested: Sequence[str] = ()
) -> list[Card]:
    """Return a card for each model of the run, in the run's order."""
    accuracy = {model: proportion(right, images) for model, images, right in _count_clean(run)}
    images = {model: images for model, images, _ in _count_clean(run)}
    cards = []
    for model in run.models:
        if model not in accuracy:
            continue
        own = [CardHardness(one.lens, one.models[model]) for one in rated if model in one.models]
        cards.append(
            Card(
                model=model,
                verdict=describe_model(run, model, rated, (accuracy[model], images[model])),
                accuracy=accuracy[model],
                images=images[model],
                hardness=own,
                pictures=_choose_pictures(model, rated, sections),
                untested=[*untested, *_describe_unsupported(run, model)],
            )
        )
    return cards


def section_id(lens: str) -> str:
    """Return the anchor of a lens's section."""
    return f"lens-{lens}"


def describe_model(run: Run, model: str, rated: Sequence[Rated], clean: tuple[Estimate, int]) -> str:
    """Return the verdict about a model in a sentence or two."""
    accuracy, images = clean
    counted = f"{images} clean image{'s' * (images != 1)}"
    start = f"Right on {format_share(accuracy)} of {counted}."
    weak = [
        f"{weakest} among {one.scale.among}"
        for one in rated
        if model in one.models and (weakest := describe_weakest(run, one.models[model]))
    ]
    if not any(model in one.models for one in rated):
        end = "It has no hardness: no image counts that it gets right."
    elif weak:
        end = f"It gives way most easily to {join_names(weak, 4)}."
    else:
        end = "No kind of change breaks it clearly more easily than another."
    return f"{start} {end}{note_few(images)}"


def _count_clean(run: Run) -> list[tuple[str, int, int]]:
    """Return each model's number of measured images, and of those that are right when clean."""
    return run.query("select model, count(*), count(*) filter (correct) from clean where kept group by all")


def _choose_pictures(model: str, rated: Sequence[Rated], sections: Mapping[str, Section]) -> list[Picture]:
    """Return what breaks a model most easily: one picture of each lens, then more of the operators that it is weakest
    against.
    """
    ranks = {one.lens: one.models[model] for one in rated if model in one.models}
    first, more = [], []
    for lens, section in sections.items():
        groups = [group for gallery in section.galleries[:1] for group in gallery.groups if group.model == model]
        shown = [group for group in groups if lens in ranks and group.pictures]
        shown.sort(key=lambda group: _strength(ranks[lens], group))
        first += shown[:1]
        more += [(_strength(ranks[lens], group), number, group) for number, group in enumerate(shown[1:])]
    further = [group for _, _, group in sorted(more, key=lambda entry: entry[:2])]
    chosen = [group.pictures[0] for group in [*first, *further]]
    return chosen[: BOXED if any(picture.boxed for picture in chosen) else PICTURES]


def _strength(hardness: Hardness, group: PictureGroup) -> float:
    """Return the hardness under a group's operator; groups without one come last."""
    value = hardness.by_operator.get(group.operator)
    return math.inf if value is None else value.value


def _describe_unsupported(run: Run, model: str) -> list[str]:
    own = [entry for entry in run.manifest.get("unsupported", ()) if entry["model"] == model]
    titles = [run.title(entry["operator"]) for entry in own]
    return [f"{join_names(titles)}: {own[0]['reason']}"] if own else []


def hardness_table(rated: Sequence[Rated], models: Sequence[str]) -> Table:
    """Return the hardness of all models under all lenses, side by side."""
    rows = []
    for one in rated:
        known = [one.models[model] for model in models if model in one.models]
        cells = [_hardness_cell(one.models.get(model)) for model in models]
        rows.append([Cell(one.scale.what), *cells, Cell(str(max((each.images for each in known), default=0)))])
    return Table(["change", *models, "images"], rows)


def _hardness_cell(hardness: Hardness | None) -> Cell:
    if hardness is None:
        return Cell("–")
    value = hardness.value
    interval = f"{value.low:.0f}–{value.high:.0f}" if value.low < value.high else ""
    bar = Estimate(value.value / 100, value.low / 100, value.high / 100)
    return Cell(f"{value.value:.0f}", value.value, interval, bar)
