"""The dataset card: README.md with counts, examples, settings and licences."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

import jinja2
import yaml
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brinell.curation.examples import Example
from brinell.curation.failures import Failure
from brinell.curation.options import CurateOptions
from brinell.curation.records import class_of
from brinell.curation.runs import RunModel, SourceRun
from brinell.documents import printable
from brinell.marks import draw_marks, shorten
from brinell.pictures import to_picture
from brinell.versions import package_version

EXAMPLES = 12
CLASSES = 50
_SIDE, _BOXED_SIDE, _GAP, _LINE, _MARK_TEXT = 128, 256, 8, 15, 12  # pixels
_LAYOUTS = {
    "imagefolder": "metadata.jsonl has a line per image (Hugging Face imagefolder).",
    "coco": "instances.json has the boxes where the changes moved them; metadata.jsonl has everything else.",
    "paper": "Images are at operator/image/model, next to the clean image, which is not in metadata.jsonl.",
}


@dataclass(frozen=True)
class CardContent:
    """What a card describes. `licences` counts images per licence of their originals; `steps` is how they were chosen."""

    name: str
    failures: Sequence[Failure]
    licences: Counter[str | None]
    sources: Sequence[SourceRun]
    models: Sequence[RunModel]
    options: CurateOptions
    steps: Sequence[str]


def render_card(card: CardContent) -> str:
    """Return the text of README.md."""
    failures, options = card.failures, card.options
    classes = Counter(map(class_of, failures)).most_common()
    facts = {
        "name": card.name,
        "version": package_version("brinell") or "",
        "images": len(failures),
        "originals": len({failure.replay.image for failure in failures}),
        "what": _describe_choice(options),
        "runs": _run_rows(card),
        "models": _model_rows(card),
        "distance": options.distance,
        "operators": _operator_rows(card),
        "classes": classes[:CLASSES],
        "more_classes": max(0, len(classes) - CLASSES),
        "steps": card.steps,
        "settings": yaml.safe_dump(options.model_dump(mode="json", exclude_defaults=True) or {"fail": "any"}),
        "licences": sorted((name, count) for name, count in card.licences.items() if name is not None),
        "unknown": card.licences[None],
        "data": card.name,
        "layout": _LAYOUTS[options.layout],
    }
    return _template().render(facts)


def _run_rows(card: CardContent) -> list[dict[str, Any]]:
    counts = Counter(failure.source.number for failure in card.failures)
    return [
        {"url": source.url, "data": source.run.data["name"], "seed": source.seed, "images": counts[source.number]}
        for source in card.sources
    ]


def _model_rows(card: CardContent) -> list[dict[str, Any]]:
    counts = Counter(answer.model.name for failure in card.failures for answer in failure.answers)
    known = {model.name: model for model in card.models}
    return [
        {
            "name": model,
            "images": count,
            "input": "×".join(map(str, (known[model].preprocess.height, known[model].preprocess.width))),
            "fingerprint": known[model].fingerprint,
        }
        for model, count in sorted(counts.items())
    ]


def _operator_rows(card: CardContent) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Failure]] = defaultdict(list)
    for failure in card.failures:
        groups[failure.replay.change.id, failure.lens].append(failure)
    return [
        {
            "name": _title(operator, card.sources),
            "lens": lens,
            "images": len(own),
            "intensity": f"{fmean(one.intensity for one in own):.3g}",
            "distance": _mean([one.distances[card.options.distance] for one in own]),
        }
        for (operator, lens), own in sorted(groups.items())
    ]


def _title(operator: str, sources: Sequence[SourceRun]) -> str:
    return next((source.run.title(operator) for source in sources if source.run.facts(operator)), operator)


def _describe_choice(options: CurateOptions) -> str:
    whose = ", for each model" if options.layout == "paper" else ""
    each = "all failures" if options.every else "the least changed failure"
    return f"{each} per image and operator{whose}"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.2e}" if known else "–"


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("brinell.curation")
    environment = jinja2.Environment(
        loader=loader, autoescape=False, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {"md": _escape, "code": _as_code, "quote": shlex.quote, "yaml": _as_yaml}
    return environment.get_template("card.md.j2")


def _escape(text: object) -> str:
    """Return a name as Markdown that shows it as it is, also in a table."""
    return re.sub(r"([\\`*_\[\]<>|#~!&])", r"\\\1", printable(str(text)))


def _as_code(text: object) -> str:
    """Return a name as code in a table, without the characters that would end either."""
    return f"`{printable(str(text)).replace('`', chr(39)).replace('|', '/')}`"


def _as_yaml(text: object) -> str:
    """Return a name as a quoted YAML string."""
    return json.dumps(printable(str(text)), ensure_ascii=False)


def select_examples(failures: Sequence[Failure]) -> list[int]:
    """Return the numbers of the failures that the card shows, from all operators in turn."""
    turn: dict[str, int] = defaultdict(int)
    keys = []
    for number, failure in enumerate(failures):
        operator = failure.replay.change.id
        keys.append((turn[operator], operator, number))
        turn[operator] += 1
    return [number for *_, number in sorted(keys)[:EXAMPLES]]


def contact_sheet(examples: Sequence[Example]) -> bytes:
    """Return a PNG file of examples: the clean image, the failure, and the labels; of detectors boxes and the reason."""
    boxed = any(example.marks or example.clean_marks for example in examples)
    side, lines = (_BOXED_SIDE, 3) if boxed else (_SIDE, 2)
    columns = min(2 if boxed else 3, len(examples))
    wide, tall = 2 * side + _GAP + 2, side + lines * _LINE + _GAP
    rows = -(-len(examples) // columns)
    sheet = Image.new("RGB", (_GAP + columns * (wide + _GAP), _GAP + rows * (tall + _GAP)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for index, example in enumerate(examples):
        left, top = _GAP + index % columns * (wide + _GAP), _GAP + index // columns * (tall + _GAP)
        for number, line in enumerate((*_caption(example.failure), example.reason)):
            pen.text((left, top + number * _LINE), shorten(line, wide, font), fill="black", font=font)
        for number, (one, marks) in enumerate(((example.clean, example.clean_marks), (example.image, example.marks))):
            picture = draw_marks(_thumbnail(one, side), marks, text_size=_MARK_TEXT)
            sheet.paste(picture, (left + number * (side + 2), top + lines * _LINE))
    sink = io.BytesIO()
    sheet.save(sink, "png")
    return sink.getvalue()


def _caption(failure: Failure) -> tuple[str, str]:
    answer = failure.answers[0]
    found = answer.model.class_name(answer.prediction) or ("nothing" if answer.prediction < 0 else answer.prediction)
    confidence = "" if answer.confidence is None else f" {answer.confidence:.0%}"
    title = f"{failure.replay.change.title}, {answer.model.name}"
    return title, f"{_first_synonym(class_of(failure))} > {_first_synonym(str(found))}{confidence}"


def _thumbnail(image: Tensor, side: int) -> Image.Image:
    picture = to_picture(image).convert("RGB")
    how = Image.Resampling.NEAREST if max(picture.size) < _SIDE else Image.Resampling.BICUBIC
    return picture.resize((side, side), how)


def _first_synonym(name: str) -> str:
    """Return the first synonym of a class name."""
    return name.partition(",")[0]
