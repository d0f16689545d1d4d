"""The data card: README.md, with counts, examples, settings and licences."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import Any

import jinja2
import yaml
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brinell.curation.failing import Picture
from brinell.curation.options import CurateOptions
from brinell.curation.records import class_of
from brinell.curation.sources import Asked, Source

EXAMPLES = 12
CLASSES = 50
_SIDE, _GAP, _LINE = 128, 8, 15
_LAYOUTS = {
    "imagefolder": "metadata.jsonl has a line for each picture (Hugging Face's imagefolder).",
    "coco": "instances.json has the objects' boxes where the changes moved them; metadata.jsonl says the rest.",
    "paper": "Pictures lie at operator/image/model, the clean image beside them (it is not in metadata.jsonl).",
}


def card(
    name: str,
    version: str,
    pictures: Sequence[Picture],
    licences: Counter[str | None],
    sources: Sequence[Source],
    models: Sequence[Asked],
    options: CurateOptions,
    filters: Sequence[str],
) -> str:
    """README.md."""
    by_operator: dict[tuple[str, str], list[Picture]] = defaultdict(list)
    for picture in pictures:
        by_operator[picture.replay.change.id, picture.lens].append(picture)
    failing = Counter(failure.model.name for picture in pictures for failure in picture.failures)
    known = {model.name: model for model in models}
    classes = Counter(map(class_of, pictures)).most_common()
    taken = Counter(picture.source.number for picture in pictures)
    facts = {
        "name": name,
        "version": version,
        "images": len(pictures),
        "originals": len({picture.replay.image for picture in pictures}),
        "what": _what(options),
        "runs": [
            {
                "url": source.url,
                "data": source.run.data["name"],
                "seed": source.seed,
                "images": taken[source.number],
            }
            for source in sources
        ],
        "models": [
            {
                "name": model,
                "images": count,
                "input": "×".join(map(str, (known[model].preprocess.height, known[model].preprocess.width))),
                "fingerprint": known[model].fingerprint,
            }
            for model, count in sorted(failing.items())
        ],
        "distance": options.distance,
        "operators": [
            {
                "name": _title(operator, sources),
                "lens": lens,
                "images": len(mine),
                "intensity": f"{fmean(one.intensity for one in mine):.3g}",
                "distance": _mean([one.distances[options.distance] for one in mine]),
            }
            for (operator, lens), mine in sorted(by_operator.items())
        ],
        "classes": classes[:CLASSES],
        "more_classes": max(0, len(classes) - CLASSES),
        "filters": filters,
        "settings": yaml.safe_dump(options.model_dump(mode="json", exclude_defaults=True) or {"fail": "any"}),
        "licences": sorted((name, count) for name, count in licences.items() if name is not None),
        "unknown": licences[None],
        "data": name,
        "layout": _LAYOUTS[options.layout],
    }
    return _template().render(facts)


def _title(operator: str, sources: Sequence[Source]) -> str:
    return next((source.run.title(operator) for source in sources if source.run.facts(operator)), operator)


def _what(options: CurateOptions) -> str:
    whose = ", model by model" if options.layout == "paper" else ""
    each = "all failing versions" if options.every else "the least perturbed failing version"
    return f"of each image and operator {each}{whose}"


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):.2e}" if known else "–"


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("brinell.curation")
    environment = jinja2.Environment(
        loader=loader, autoescape=False, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template("card.md.j2")


def examples_of(pictures: Sequence[Picture]) -> list[int]:
    """Which pictures are shown: from all operators in turn."""
    turn: dict[str, int] = defaultdict(int)
    keys = []
    for number, picture in enumerate(pictures):
        operator = picture.replay.change.id
        keys.append((turn[operator], operator, number))
        turn[operator] += 1
    return [number for *_, number in sorted(keys)[:EXAMPLES]]


def contact_sheet(shown: Sequence[tuple[Picture, Tensor, Tensor]]) -> bytes:
    """Examples as one PNG file: the clean image, the failure, and what was said of them."""
    columns = min(3, len(shown))
    wide, tall = 2 * _SIDE + _GAP + 2, _SIDE + 2 * _LINE + _GAP
    rows = -(-len(shown) // columns)
    sheet = Image.new("RGB", (_GAP + columns * (wide + _GAP), _GAP + rows * (tall + _GAP)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for place, (picture, clean, image) in enumerate(shown):
        left, top = _GAP + place % columns * (wide + _GAP), _GAP + place // columns * (tall + _GAP)
        failure = picture.failures[0]
        said = failure.model.class_name(failure.prediction) or ("nothing" if failure.prediction < 0 else failure.prediction)
        sure = "" if failure.confidence is None else f" {failure.confidence:.0%}"
        first = f"{picture.replay.change.title}, {failure.model.name}"
        lines = (first, f"{_short(class_of(picture))} > {_short(str(said))}{sure}")
        for number, line in enumerate(lines):
            pen.text((left, top + number * _LINE), _cut(line, wide, font), fill="black", font=font)
        for number, one in enumerate((clean, image)):
            sheet.paste(_thumbnail(one), (left + number * (_SIDE + 2), top + 2 * _LINE))
    sink = io.BytesIO()
    sheet.save(sink, "png")
    return sink.getvalue()


def _thumbnail(image: Tensor) -> Image.Image:
    array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(array).convert("RGB")
    how = Image.Resampling.NEAREST if max(picture.size) < _SIDE else Image.Resampling.BICUBIC
    return picture.resize((_SIDE, _SIDE), how)


def _short(name: str) -> str:
    """The first synonym of a class."""
    return name.partition(",")[0]


def _cut(line: str, width: int, font: Any) -> str:
    line = line.encode("latin-1", "replace").decode("latin-1")
    while font.getlength(line) > width:
        line = line[:-2]
    return line
