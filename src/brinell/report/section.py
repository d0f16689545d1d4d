"""What the report's parts, one a lens, have in common."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from brinell.engine.exhibits import Exhibit, read_exhibits
from brinell.lenses.analysis import Findings
from brinell.lenses.profile.charts import Figure
from brinell.runs.names import title
from brinell.runs.store import Store

Namer = Callable[[int], str]


@dataclass(frozen=True)
class Picture:
    """An image on the page, with what is written under it."""

    source: str
    heading: str
    lines: tuple[str, ...]
    right: bool | None = None
    clean_source: str | None = None


@dataclass(frozen=True)
class Section:
    """One lens on the page: its template, what it finds out, its charts by their names, and the rest of its content."""

    template: str
    question: str
    what: str
    found: Findings
    options: Mapping[str, Any]
    charts: dict[str, Figure]
    content: dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What a section is told beside its findings: the run's folder, the lens's options, and classes by their numbers."""

    store: Store
    options: Mapping[str, Any]
    names: dict[str, Namer]


Groups = list[tuple[str, list[tuple[str, list[Picture]]]]]


def pairs(told: Told, found: Findings) -> Groups:
    """For each model and operator the images that break first, beside the clean ones."""
    exhibits = read_exhibits(told.store)
    groups = []
    for model in found.models:
        by_operator = []
        for operator in found.operators:
            shown = [e for e in exhibits if e.model == model and e.operator == operator and e.threshold is None]
            pictures = [_pair(told.store, exhibit, told.names[model]) for exhibit in shown]
            if pictures:
                by_operator.append((title(operator), pictures))
        if by_operator:
            groups.append((model, by_operator))
    return groups


def _pair(store: Store, exhibit: Exhibit, name: Namer) -> Picture:
    before = exhibit.label if exhibit.clean_prediction is None else exhibit.clean_prediction
    lines = (
        f"clean: {name(before)}{sure(exhibit.clean_confidence)}",
        f"then: {name(exhibit.prediction)}{sure(exhibit.confidence)}",
    )
    heading = exhibit.told or f"level {exhibit.level}"
    return Picture(inline(store, exhibit.file), heading, lines, False, inline(store, exhibit.clean_file))


def inline(store: Store, file: str) -> str:
    """A stored picture as the source of an image element."""
    return "data:image/webp;base64," + base64.b64encode(store.read(file)).decode()


def sure(confidence: float | None) -> str:
    """How sure a model is, where it says so."""
    return "" if confidence is None else f", {confidence:.0%} sure"
