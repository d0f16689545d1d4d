"""How findings are shown: the table, the charts and the section of a report that a lens's `show.py` provides."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from brinell.marks import Mark, draw_marks, enlarge
from brinell.pictures import encode_webp
from brinell.registry import load_reference
from brinell.runs.run import Run

Chart = Any  # an Altair chart: altair is imported by the modules that draw, and not here
Namer = Callable[[int], str]
BOXED_SIDE, BOXED_TEXT = 480, 24  # pixels of a picture with boxes, which the page shows at half that size


@dataclass(frozen=True)
class Picture:
    """An image on the page with its caption. One with boxes (`boxed`) is shown larger."""

    source: str
    heading: str
    lines: tuple[str, ...]
    correct: bool | None = None
    clean_source: str | None = None
    boxed: bool = False


@dataclass(frozen=True)
class Section:
    """One section of the page: its template ("package:file" or a file of report/templates), charts and further content."""

    template: str
    question: str
    topic: str
    findings: Any
    options: Mapping[str, Any]
    charts: dict[str, Chart]
    content: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a section needs besides its findings: the run, the lens's options, and class names by model."""

    run: Run
    options: Mapping[str, Any]
    names: Mapping[str, Namer]


@dataclass(frozen=True)
class NamedChart:
    """A chart that can be requested by name. `choices` are the arguments that select what it shows, with their values."""

    draw: Callable[..., Chart]
    choices: Mapping[str, Callable[[Any], list[str]]] = field(default_factory=dict)


def _no_pictures(context: Context, findings: Any) -> dict[str, bytes]:
    return {}


@dataclass(frozen=True)
class Show:
    """How a lens's findings are shown.

    `table` returns what a terminal prints; `section` the report's section; `charts` all charts that `report --figures`
    writes; `named` those that `Run.figure` offers; `pictures` figures that are not charts, as PNG.
    """

    table: Callable[[Any], list[Any]]
    section: Callable[[Context, Any], Section]
    charts: Callable[[Any], dict[str, Chart]]
    named: Mapping[str, NamedChart] = field(default_factory=dict)
    pictures: Callable[[Context, Any], dict[str, bytes]] = _no_pictures


def models_of(findings: Any) -> list[str]:
    """Return the models that a chart can select."""
    return list(findings.models)


def operators_of(findings: Any) -> list[str]:
    """Return the operators that a chart can select."""
    return list(findings.operators)


def inline(run: Run, file: str, marks: Sequence[Mark] = (), *, text_size: int = BOXED_TEXT) -> str:
    """Return a stored picture, with boxes and their text in pixels, as the source of an image element."""
    content = run.store.read(*file.split("/"))
    if marks:
        picture = enlarge(Image.open(io.BytesIO(content)), BOXED_SIDE)
        content = encode_webp(draw_marks(picture, marks, text_size=text_size), quality=85)
    return "data:image/webp;base64," + base64.b64encode(content).decode()


def format_confidence(confidence: float | None) -> str:
    """Return ", 87 % confident", or nothing where the model returns labels alone."""
    return "" if confidence is None else f", {confidence:.0%} confident"


def lazy_chart(reference: str) -> Callable[..., Chart]:
    """Return a function of a charts module ("module:function") that is imported when it draws: altair is slow to import."""

    def draw(*arguments: Any, **choices: Any) -> Chart:
        return load_reference(reference)(*arguments, **choices)

    return draw
