"""A page for every operator and property: its images, definition, source, units and speed, from the registry."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import brinell.perturb  # noqa: F401  (registers them)
from brinell.datasets.sources import open_dataset
from brinell.engine.renderer import Renderer
from brinell.models.preprocess import Preprocess
from brinell.perturb.operator import OPERATORS, Operator, find_operator
from brinell.perturb.property import PROPERTIES, Property, find_property
from brinell.pictures import to_picture
from brinell.types import id_number, image_id

PHOTO, SIZE = 21, 224  # of demo-photos, and the side of its model input
LEVELS = (1, 5, 10, 20, 30)
FAMILIES = {"imagenet_c": "ImageNet-C", "imagenet_c_extra": "ImageNet-C", "imagenet_c_bar": "ImageNet-C-bar"}
KINDS = {"operator": "Degradations, by the profile lens", "property": "Properties, by the knob lens"}
BATCH = 8  # images that speeds are measured on
SECONDS = 0.2  # that a speed is measured for
Variants = Sequence[Operator] | Sequence[Property]


def write_changes(folder: Path) -> None:
    """Write the pages, their images and their index."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    sections: dict[str, list[str]] = {}
    renderer = _renderer()
    for kind, variants in _by_name():
        change = variants[0]
        if change.facts.family and kind == "property":
            continue  # the same images as the operator of that name
        section = FAMILIES.get(change.facts.family, KINDS[kind])
        name = f"{change.facts.family or kind}-{change.name}".replace("_", "-")
        pictures = [] if change.white_box else list(_pictures(change, renderer, folder, name))
        (folder / f"{name}.md").write_text(_page(kind, variants, pictures, renderer))
        sections.setdefault(section, []).append(name)
    (folder / "index.md").write_text(_index(sections))


def _renderer() -> Renderer:
    photo = open_dataset("demo-photos")[PHOTO].image
    preprocess = Preprocess(SIZE, SIZE)
    ids = torch.tensor([id_number(image_id(photo))])
    return Renderer(preprocess, preprocess.model_input(photo)[None], ids, seed=0, originals=[photo])


def _by_name() -> Iterator[tuple[str, Variants]]:
    """Yield operators and properties by name, the default variant first; benchmarks' variants are pages of their own."""
    for kind, registry, find in (("operator", OPERATORS, find_operator), ("property", PROPERTIES, find_property)):
        ours = [part for part in registry.values() if part.function.__module__.startswith("brinell.")]  # no plugins
        names = dict.fromkeys((part.name, part.facts.family) for part in ours)
        for name, family in names:
            parts = [part for part in ours if (part.name, part.facts.family) == (name, family)]
            default = parts[0] if family else find(name)
            yield kind, [default, *(part for part in parts if part.id != default.id)]  # type: ignore[misc]


def _pictures(
    change: Operator | Property, renderer: Renderer, folder: Path, name: str
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Draw the photograph under a change; yield titles with captions and files."""
    levels = LEVELS if isinstance(change, Operator) and change.facts.levels == LEVELS[-1] else ()
    for row, (title, examples) in enumerate(change.examples(SIZE, SIZE, levels)):
        files = []
        for column, (caption, values) in enumerate(example for example in examples if example[0] != "clean"):
            file = f"{name}-{row}-{column}.webp"
            image = renderer.images(change, torch.tensor([0]), torch.tensor([values], dtype=torch.float64))
            to_picture(image[0]).save(folder / file, quality=80)
            files.append((caption, file))
        yield title, files[-5:]


def _page(kind: str, variants: Variants, pictures: list[tuple[str, list[tuple[str, str]]]], renderer: Renderer) -> str:
    change = variants[0]
    lines = [f"# {change.facts.title[0].upper()}{change.facts.title[1:]}", "", _sentence(change), ""]
    for title, files in pictures:
        captions, cells = zip(*((caption, f"![{title}: {caption}]({file})") for caption, file in files), strict=True)
        lines += [_row(captions), _row(["---"] * len(files)), _row(cells), ""]
    if change.white_box:
        lines += ["It follows the gradient of the model under test, so that there is no picture without one.", ""]
    lines += [
        "```sh",
        f"brinell run --lens {'profile' if kind == 'operator' else 'knob'} --operator {_given(change)} "
        "--model efficientnet_lite0 --data demo-photos",
        "```",
        "",
    ]
    lines += [_row(["", ""]), _row(["---", "---"])]
    lines += [_row([f"**{name}**", text]) for name, text in _facts(change, renderer)] + [""]
    if len(variants) == 1:
        return "\n".join([*lines, "## Code", "", *_code(change)])
    lines += ["## Variants", ""]
    for variant in variants:
        lines += [f"### `{variant.id}`", "", f"{_sentence(variant)} Source: {variant.facts.source}.", "", *_code(variant)]
    return "\n".join(lines)


def _facts(change: Operator | Property, renderer: Renderer) -> Iterator[tuple[str, str]]:
    yield "id", f"`{change.id}`"
    yield "unit", change.unit
    if isinstance(change, Operator):
        yield "range", f"levels 1 to {change.facts.levels}"
        yield "kind", ", ".join(change.tags)
    else:
        directions = change.facts.directions
        yield "range", "severity 0 to 1" if len(directions) == 1 else f"severity -1 to 1: {', '.join(directions)}"
        yield "kind", f"{change.facts.category}, {'stochastic' if change.stochastic else 'deterministic'}"
    _, constants = _definition(change)
    if constants is not None:
        rows = [constants.at(severity, SIZE, SIZE) for severity in range(1, change.facts.levels + 1)]  # type: ignore[union-attr]
        yield f"constants, by severity, at {SIZE}×{SIZE}", "; ".join(", ".join(f"{one:.4g}" for one in row) for row in rows)
    yield "source", change.facts.source
    if not change.white_box:
        rate = f"about {_speed(change, renderer):,.0f} images/s at {SIZE}×{SIZE}"
        yield "speed", f"{rate}, on one core of the machine that built this page"


def _speed(change: Operator | Property, renderer: Renderer) -> float:
    """Return how many images a second a change makes, at a medium strength, to two digits."""
    images, ids = renderer.inputs.expand(BATCH, -1, -1, -1).contiguous(), torch.arange(BATCH)
    _, examples = next(iter(change.examples(SIZE, SIZE)))
    values = examples[len(examples) // 2][1]

    def make() -> Tensor:
        if isinstance(change, Operator):
            return change.at(images, int(values[0]), seed=0, ids=ids)
        return change.apply(images, torch.tensor([values] * BATCH, dtype=torch.float64), seed=0, ids=ids)

    make()
    began, turns = time.perf_counter(), 0
    while time.perf_counter() < began + SECONDS:
        make()
        turns += 1
    rate = turns * BATCH / (time.perf_counter() - began)
    return float(f"{rate:.2g}")


def _given(change: Operator | Property) -> str:
    return change.id if change.facts.family else change.name


def _code(change: Operator | Property) -> list[str]:
    """Return the function, without the facts that are declared next to it."""
    source = inspect.getsource(_definition(change)[0])
    return ["```python", source[source.index("def ") :].strip(), "```", ""]


def _definition(change: Operator | Property) -> tuple[Callable[..., Any], Any]:
    """Return the function that defines a change, and a corruption's constants: its operator is a function around it."""
    function, constants = change.function, None
    while held := inspect.getclosurevars(function).nonlocals:
        inner = held.get("function", held.get("change"))
        if not callable(inner):
            break
        function, constants = inner, held["facts"].constants if "facts" in held else constants
    return function, constants


def _sentence(change: Operator | Property) -> str:
    return " ".join((inspect.getdoc(change.function) or "").split())


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _index(sections: dict[str, list[str]]) -> str:
    lines = [
        "# Operators and properties",
        "",
        "Every change that brinell can make to an image, generated from the registry. "
        "`brinell ls operators` lists them in a terminal; `brinell show PHOTO --operator NAME` draws your own photograph.",
        "",
    ]
    for title, names in sections.items():
        lines += [f"## {title}", "", "```{toctree}", ":maxdepth: 1", "", *names, "```", ""]
    return "\n".join(lines)
