"""A model's card as files: SVG, PNG, and Markdown with a block for the model index of Hugging Face."""

from __future__ import annotations

import base64
import importlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import yaml
from PIL import Image, ImageFont

from brinell.report.cards import Card
from brinell.report.figures import FONT, INK, LINE, SOFT
from brinell.report.section import Picture
from brinell.runs.hardness import Hardness
from brinell.runs.run import Run
from brinell.runs.words import format_share

WIDTH, MARGIN, SIDE, GAP = 760, 30, 108, 4  # pixels; SIDE is that of a picture
SHOWN = 3  # pairs of pictures
TRACK = (230, 580)  # where 0 and 100 of a strip are
RANGE, DOT, RIGHT, WRONG = "#a9c4de", "#1b5f9e", "#0f5f36", "#a3201a"
_WIDER = 1.12  # common fonts are wider than the one that texts are measured with
_BOLDER = 1.14  # and bold letters wider than those


@dataclass(frozen=True)
class CardFacts:
    """What a card says about where its figures come from."""

    data: str
    images: int
    created: str
    version: str
    detector: bool

    @classmethod
    def of(cls, run: Run, card: Card) -> CardFacts:
        """Return the facts of a model of a run."""
        created, version = run.manifest.get("created", ""), run.manifest["versions"].get("brinell") or ""
        return cls(run.data["name"], card.images, str(created)[:10], version, run.models[card.model].detector)

    def __str__(self) -> str:
        images = f"{self.images} image{'s' * (self.images != 1)}"
        return f"{images} of “{self.data}”, measured {self.created} with brinell {self.version}".rstrip()


# ---- SVG and PNG ----


@dataclass
class _Drawing:
    """The elements of an SVG, from top to bottom."""

    parts: list[str] = field(default_factory=list)
    y: float = MARGIN

    def text(self, x: float, y: float, text: str, *, size: float = 14, colour: str = INK, weight: int = 400) -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
        )

    def lines(self, text: str, *, size: float = 14, colour: str = INK, width: float = WIDTH - 2 * MARGIN) -> None:
        """Add a text in as many lines as it needs."""
        for line in _wrap(text, size, width):
            self.y += 1.4 * size
            self.text(MARGIN, self.y, line, size=size, colour=colour)

    def box(self, x: float, y: float, width: float, height: float, colour: str, radius: float = 0) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{colour}"/>'
        )

    def picture(self, x: float, y: float, source: str, *, right: bool | None) -> None:
        self.parts.append(
            f'<image x="{x:g}" y="{y:g}" width="{SIDE}" height="{SIDE}" preserveAspectRatio="xMidYMid slice" '
            f"href={quoteattr(_to_jpeg(source))}/>"
        )
        if right is not None:
            self.box(x + 4, y + SIDE - 20, 54 if right else 58, 16, RIGHT if right else WRONG, 3)
            self.text(x + 9, y + SIDE - 8, "✓ right" if right else "✗ wrong", size=10.5, colour="#ffffff")


def draw_card(card: Card, facts: CardFacts) -> str:
    """Return a card as an SVG file."""
    drawing = _Drawing()
    drawing.y += 16
    drawing.text(MARGIN, drawing.y, _fit(card.model, 22, WIDTH - 2 * MARGIN), size=22, weight=700)
    drawing.y += 4
    drawing.lines(card.verdict, size=14.5)
    drawing.y += 30
    drawing.text(MARGIN, drawing.y, "Hardness, 0 to 100", size=12, colour=SOFT, weight=600)
    for one in card.hardness:
        _draw_strip(drawing, one.hardness)
    _draw_pairs(drawing, [picture for picture in card.pictures if picture.clean_source][:SHOWN])
    drawing.y += 12
    drawing.lines(f"Not tested: {' '.join(card.untested) or 'nothing was left out.'}", size=11.5, colour=SOFT)
    drawing.lines(f"{facts}. Bars are 95 % intervals over images.", size=11.5, colour=SOFT)
    height = drawing.y + MARGIN
    label = quoteattr(f"{card.model}: {card.verdict}")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}" '
            f'role="img" aria-label={label} font-family="{FONT}">',
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="12" fill="#ffffff" stroke="{LINE}"/>',
            *drawing.parts,
            "</svg>\n",
        ]
    )


def card_png(svg: str) -> bytes:
    """Return a card as a PNG file."""
    data: bytes = importlib.import_module("vl_convert").svg_to_png(svg, scale=2)
    return data


def _draw_strip(drawing: _Drawing, hardness: Hardness) -> None:
    drawing.y += 27
    y, value = drawing.y, hardness.value
    start, length = TRACK[0], (TRACK[1] - TRACK[0]) / 100
    drawing.text(MARGIN, y, _fit(hardness.what, 14, start - MARGIN - 12))
    drawing.box(start, y - 6, TRACK[1] - start, 2, LINE)
    if value.low < value.high:
        drawing.box(start + length * value.low, y - 9, length * (value.high - value.low), 8, RANGE, 4)
    drawing.box(start + length * value.value - 2.5, y - 12, 5, 14, DOT, 2)
    drawing.text(TRACK[1] + 26, y, f"{value.value:.0f}", size=15, weight=700)
    if value.low < value.high:
        drawing.text(TRACK[1] + 66, y, f"{value.low:.0f}–{value.high:.0f}", size=12, colour=SOFT)


def _draw_pairs(drawing: _Drawing, pictures: Sequence[Picture]) -> None:
    if not pictures:
        return
    drawing.y += 40
    drawing.text(MARGIN, drawing.y, "What breaks it most easily", size=12, colour=SOFT, weight=600)
    top, across = drawing.y + 12, (WIDTH - 2 * MARGIN) / SHOWN
    lowest = top + SIDE
    for index, picture in enumerate(pictures):
        left = MARGIN + index * across
        drawing.picture(left, top, picture.clean_source or "", right=picture.clean_correct)
        drawing.picture(left + SIDE + GAP, top, picture.source, right=picture.correct)
        y = top + SIDE
        answers = f"{picture.before} → {picture.after}"
        for text, weight in ((picture.heading, 600), (answers, 400)):
            for line in _wrap(text, 11.5, (across - 16) / (_BOLDER if weight > 400 else 1), most=3):
                y += 16
                drawing.text(left, y, line, size=11.5, weight=weight)
        lowest = max(lowest, y)
    drawing.y = lowest


def _width(text: str, size: float) -> float:
    known = text.encode("latin-1", "replace").decode("latin-1")
    return _WIDER * float(ImageFont.load_default(size).getlength(known))


def _wrap(text: str, size: float, width: float, most: int | None = None) -> list[str]:
    """Break a text into lines of at most this width, and cut wider words and the last line to fit."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(_fit(word, size, width))
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], _fit(f"{lines[most - 1]} …", size, width)]


def _fit(text: str, size: float, width: float) -> str:
    if _width(text, size) <= width:
        return text
    while len(text) > 1 and _width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text}…"


def _to_jpeg(source: str) -> str:
    """Return a picture's source as JPEG, which all programs that draw SVG can read."""
    sink = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).convert("RGB")
    picture.thumbnail((2 * SIDE, 2 * SIDE))
    picture.save(sink, "jpeg", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(sink.getvalue()).decode()


# ---- Markdown ----


def write_markdown(card: Card, facts: CardFacts, picture: str) -> str:
    """Return a card as Markdown: the model index as front matter, the picture, the verdict and a table."""
    index = yaml.safe_dump(model_index(card, facts), sort_keys=False, allow_unicode=True)
    rows = [f"| {_cell(one.hardness.what)} | {one.hardness} | {one.hardness.images} |" for one in card.hardness]
    return "\n".join(
        [
            f"---\n{index}---\n",
            f"## Hardness of {_cell(card.model)}\n",
            f"![Hardness of {_cell(card.model)} under each kind of change]({picture})\n",
            f"{_cell(card.verdict)}\n",
            "| hardness against | 0 to 100 [95 %] | images |",
            "|---|--:|--:|",
            *rows,
            "",
            *(f"- Not tested: {_cell(line)}" for line in card.untested),
            "",
            f"Hardness is the share of what the model gets right that it keeps when images change. {_cell(str(facts))}.",
            "",
        ]
    )


def model_index(card: Card, facts: CardFacts) -> dict[str, Any]:
    """Return the `model-index` of a model card on Hugging Face."""
    task = ("object-detection", "Object detection") if facts.detector else ("image-classification", "Image classification")
    result = {
        "task": {"type": task[0], "name": task[1]},
        "dataset": {"type": facts.data, "name": facts.data},
        "metrics": list(_metrics(card)),
    }
    return {"model-index": [{"name": card.model, "results": [result]}]}


def _metrics(card: Card) -> Iterator[dict[str, Any]]:
    accuracy = card.accuracy
    yield {
        "type": "accuracy",
        "name": f"Accuracy on clean images: {format_share(accuracy)}",
        "value": round(100 * accuracy.value, 1),
    }
    for one in card.hardness:
        value = one.hardness.value
        bounds = {"low": round(value.low, 1), "high": round(value.high, 1)} if value.low < value.high else {}
        yield {
            "type": "hardness",
            "name": f"Hardness against {one.hardness.what} (0 to 100)",
            "value": round(value.value, 1),
            "args": {"lens": one.lens, "images": one.hardness.images, **bounds},
        }


def _cell(text: str) -> str:
    """Return a text that can't become an element, a link or another cell."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


def file_name(model: str) -> str:
    """Return a model's name as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", model).strip("-.") or "model"
