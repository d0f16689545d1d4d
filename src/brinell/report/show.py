"""How findings are shown: the table, the charts and the section of a report that a lens's `show.py` provides."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from brinell.marks import Mark
from brinell.registry import load_reference
from brinell.report.section import Cell, Chart, Picture, Section, Table
from brinell.runs.hardness import Hardness
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate

__all__ = ["Chart", "Picture", "Section"]

Namer = Callable[[int], str]
BOXED_SIDE, BOXED_TEXT = 480, 24  # pixels of a picture with boxes, which the page shows at half that size
QUALITY = 75  # of pictures on the page


@dataclass(frozen=True)
class Context:
    """What a section needs besides its findings: the run, the lens's options, class names by model, hardness by model."""

    run: Run
    options: Mapping[str, Any]
    names: Mapping[str, Namer]
    hardness: Mapping[str, Hardness] = field(default_factory=dict)

    def image_name(self, image: str) -> str:
        """Return the name of an image, without its folders."""
        return self.run.image_names.get(image, image).rpartition("/")[2]


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
    writes; `named` those that `Run.figure` offers; `pictures` figures that are not charts, as PNG. `late` are modules that
    `section` imports only when it is made, such as those that need altair: a run imports them while it measures.
    """

    table: Callable[[Any], list[Any]]
    section: Callable[[Context, Any], Section]
    charts: Callable[[Any], dict[str, Chart]]
    named: Mapping[str, NamedChart] = field(default_factory=dict)
    pictures: Callable[[Context, Any], dict[str, bytes]] = _no_pictures
    late: tuple[str, ...] = ()


def models_of(findings: Any) -> list[str]:
    """Return the models that a chart can select."""
    return list(findings.models)


def operators_of(findings: Any) -> list[str]:
    """Return the operators that a chart can select."""
    return list(findings.operators)


def hardness_by_operator(
    context: Context,
    findings: Any,
    describe: Callable[[str, str], str],
    *,
    what: str,
    best: Callable[[str], str | None] = lambda operator: None,
) -> Table:
    """Return the models side by side: hardness under each operator, and a text for each model and operator.

    Operators that no model has a hardness for have the text alone. `best` returns the model that is clearly the hardest
    under an operator, if there is one.
    """
    rows = []
    for operator in findings.operators:
        cells = []
        for model in findings.models:
            hardness = context.hardness.get(model)
            value = None if hardness is None else hardness.by_operator.get(operator)
            cells.append(_hardness_cell(value, describe(model, operator), best=best(operator) == model))
        rows.append([Cell(context.run.title(operator)), *cells])
    note = "Numbers are hardness, 0 to 100, with 95 % intervals." if context.hardness else ""
    if any(cell.best for row in rows for cell in row):
        note += " Bold: clearly the hardest model."
    return Table([what, *findings.models], rows, note=note)


def _hardness_cell(value: Estimate | None, text: str, *, best: bool) -> Cell:
    if value is None:
        return Cell(text or "–")
    interval = f" ({value.low:.0f}–{value.high:.0f})" if value.low < value.high else ""
    bar = Estimate(value.value / 100, value.low / 100, value.high / 100)
    return Cell(f"{value.value:.0f}{interval}", value.value, text, bar, best)


def inline(run: Run, file: str, marks: Sequence[Mark] = (), *, text_size: int = BOXED_TEXT) -> str:
    """Return a stored picture, with boxes and their text in pixels, as the source of an image element.

    It is a JPEG: browsers that print to PDF keep those as they are, and make five times as much of a WebP.
    """
    return _draw_inline(run.store.read(*file.split("/")), tuple(marks), text_size)


@lru_cache(64)  # clean images are shown several times
def _draw_inline(data: bytes, marks: tuple[Mark, ...], text_size: int) -> str:
    from PIL import Image

    from brinell.marks import draw_marks, enlarge
    from brinell.pictures import encode_jpeg

    picture: Image.Image = Image.open(io.BytesIO(data))
    if marks:
        picture = draw_marks(enlarge(picture, BOXED_SIDE), marks, text_size=text_size)
    return to_source(encode_jpeg(picture, QUALITY))


def to_source(data: bytes) -> str:
    """Return a JPEG or WebP file as the source of an image element."""
    kind = "jpeg" if data.startswith(b"\xff\xd8") else "webp"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def format_confidence(confidence: float | None) -> str:
    """Return ", 87% confident", or nothing where the model returns labels alone."""
    return "" if confidence is None else f", {confidence:.0%} confident"


def lazy_chart(reference: str) -> Callable[..., Chart]:
    """Return a function of a charts module ("module:function") that is imported when it draws: altair is slow to import."""

    def draw(*arguments: Any, **choices: Any) -> Chart:
        return load_reference(reference)(*arguments, **choices)

    return draw
