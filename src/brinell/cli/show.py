"""An image at several levels of operators, or severities of properties, as one picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brinell.config.execution import Execution
from brinell.datasets.decode import read_image
from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from brinell.perturb.highlight import add_highlights
from brinell.perturb.operator import OPERATORS, Operator, find_operator, operator_names
from brinell.perturb.property import PROPERTIES, Property, find_property
from brinell.types import id_number, image_id

LEVELS = (0, 1, 2, 5, 10, 20, 30)
SEVERITIES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
_GAP, _LABEL, _HEAD = 6, 18, 20


@dataclass(frozen=True)
class _Row:
    """One operator or property: its name, and its images with what stands above them."""

    title: str
    images: list[tuple[str, Tensor]]


def contact_sheet(
    path: Path, names: list[str], levels: list[int], spots: list[str], *, size: int, seed: int, model: str | None
) -> Image.Image:
    """One row an operator or property, one column a level or severity; and a row of spots of light."""
    judge = open_model(model, Execution(runtime="torch")) if model is not None else None
    asked = [_find(name) for name in (names if names or spots else operator_names())]
    if judge is None:
        for one in asked:
            if one.white_box and names:
                raise ConfigError(f"{one.name} follows a model's gradient: say which with --model SOURCE")
        asked = [one for one in asked if not one.white_box]
    if any(not 0 <= level <= 30 for level in levels):
        raise ConfigError(f"levels are 0 to 30, got {', '.join(map(str, levels))}")
    if levels and any(isinstance(one, Property) for one in asked):
        raise ConfigError("levels belong to operators; a property is drawn from weak to strong without them")
    image = read_image(path)
    preprocess = judge.preprocess if judge is not None else Preprocess(size, size, channels=len(image))
    model_input, ids = preprocess.model_input(image)[None], torch.tensor([id_number(image_id(image))])
    shown = sorted(set(levels)) or list(LEVELS)
    rows = [_lit(image, preprocess, spots)] if spots else []
    for one in asked:
        if isinstance(one, Property):
            rows += _severities(one, model_input, ids, seed)
        else:
            rows.append(_levels(one, model_input, ids, shown, seed, judge))
    return _drawn(rows)


def _lit(image: Tensor, preprocess: Preprocess, spots: list[str]) -> _Row:
    """Spots of light on the original, each as X,Y,SIGMA or X,Y,SIGMA,STRENGTH, and then the model input."""
    images = [("clean", preprocess.model_input(image))]
    for text in spots:
        try:
            x, y, sigma, strength = (*map(float, text.split(",")), 1.0)[:4]
        except ValueError:
            raise ConfigError(
                f"a spot should be X,Y,SIGMA or X,Y,SIGMA,STRENGTH in pixels of the image, got {text!r}"
            ) from None
        if sigma <= 0 or strength <= 0:
            raise ConfigError(f"a spot's sigma and strength should be more than 0, got {text!r}")
        spot = torch.tensor([[x, y, sigma, strength]], dtype=torch.float64)
        images.append((f"{x:g}, {y:g}, sigma {sigma:g}", preprocess.inputs(add_highlights(image[None], spot))[0]))
    return _Row("a spot of light", images)


def _find(name: str) -> Operator | Property:
    """A property where one has that name; else an operator, or the error that suggests one."""
    plain = name.partition(":")[0]
    properties = {one.name for one in PROPERTIES.values()}
    return find_property(name) if plain in properties and name not in OPERATORS else find_operator(name)


def _severities(found: Property, model_input: Tensor, ids: Tensor, seed: int) -> list[_Row]:
    """A row for each direction, from weak to strong along the grid that is searched."""
    height, width = model_input.shape[2:]
    rows = []
    for direction, track in zip(found.facts.directions, found.tracks(height, width), strict=True):
        images = [("clean", model_input[0])]
        for severity in SEVERITIES:
            at = track[max(1, round(severity * len(track))) - 1][None]
            told = found.facts.tell(float(found.amounts(at, height, width)))
            images.append((told, found.apply(model_input, at, seed=seed, ids=ids)[0]))
        rows.append(
            _Row(f"{found.facts.title}, {direction}" if len(found.facts.directions) > 1 else found.facts.title, images)
        )
    return rows


def _levels(
    operator: Operator, model_input: Tensor, ids: Tensor, levels: list[int], seed: int, model: Model | None
) -> _Row:
    height, width = model_input.shape[2:]
    images = []
    for level in levels:
        told = (
            "clean" if level == 0 else f"level {level}: {operator.facts.tell(operator.facts.amount(level, height, width))}"
        )
        images.append((told, _at(operator, model_input, ids, level, seed, model)))
    return _Row(operator.facts.title, images)


def _at(operator: Operator, model_input: Tensor, ids: Tensor, level: int, seed: int, model: Model | None) -> Tensor:
    if model is None:
        return operator.at(model_input, level, seed=seed, ids=ids)[0]
    judge, here = model, model_input.to(model.device)
    labels = judge.predict(here).argmax(1)
    changed = operator.at(
        here, level, seed=seed, ids=ids.to(judge.device), gradient=lambda images, _: judge.gradient(images, labels)
    )
    return changed[0].cpu()


def _drawn(rows: list[_Row]) -> Image.Image:
    height, width = rows[0].images[0][1].shape[-2:]
    tall = _HEAD + _LABEL + height + _GAP
    columns = max(len(row.images) for row in rows)
    sheet = Image.new("RGB", (_GAP + columns * (width + _GAP), len(rows) * tall + _GAP), "white")
    pen, font, bold = ImageDraw.Draw(sheet), ImageFont.load_default(12), ImageFont.load_default(15)
    for place, row in enumerate(rows):
        pen.text((_GAP, _GAP + place * tall), row.title, fill="black", font=bold)
        top = _GAP + place * tall + _HEAD
        for column, (told, image) in enumerate(row.images):
            left = _GAP + column * (width + _GAP)
            pen.text((left, top), told.replace("×", "x"), fill="black", font=font)  # the font has no ×
            array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
            sheet.paste(Image.fromarray(array), (left, top + _LABEL))
    return sheet
