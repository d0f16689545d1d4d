"""An image under several operators and properties, as one picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brinell.config.execution import Execution
from brinell.datasets.decode import read_image
from brinell.engine.renderer import Renderer
from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from brinell.perturb.change import Change
from brinell.perturb.find import find_change
from brinell.perturb.highlight import highlight_view
from brinell.perturb.operator import operator_names
from brinell.pictures import to_picture
from brinell.types import id_number, image_id

_GAP, _LABEL, _HEAD = 6, 18, 20


@dataclass(frozen=True)
class _Row:
    """One operator or property: its title, and its images with their captions."""

    title: str
    images: list[tuple[str, Tensor]]


def contact_sheet(
    path: Path, names: list[str], levels: list[int], spots: list[str], *, size: int, seed: int, model: str | None
) -> Image.Image:
    """Draw one row per operator or property and one column per level or severity; and a row of spots of light."""
    opened = open_model(model, Execution(runtime="torch")) if model is not None else None
    changes = [find_change(name) for name in (names if names or spots else operator_names())]
    if opened is None:
        for change in changes:
            if change.white_box and names:
                raise ConfigError(f"{change.name} needs gradients; give a torch model with --model SOURCE")
        changes = [change for change in changes if not change.white_box]
    if any(not 0 <= level <= 30 for level in levels):
        raise ConfigError(f"expected levels from 0 to 30, got {', '.join(map(str, levels))}")
    image = read_image(path)
    preprocess = opened.preprocess if opened is not None else Preprocess(size, size, channels=len(image))
    renderer = _renderer(image, preprocess, seed, opened)
    rows = [_Row("a spot of light", _lit(renderer, spots))] if spots else []
    for change in changes:
        for title, examples in change.examples(preprocess.height, preprocess.width, sorted(set(levels))):
            parameters = [torch.tensor([values], dtype=torch.float64) for _, values in examples]
            images = [_draw(renderer, change, values) for values in parameters]
            captions = [caption for caption, _ in examples]
            rows.append(_Row(title, list(zip(captions, images, strict=True))))
    return _drawn(rows)


def save(sheet: Image.Image, file: Path) -> None:
    """Write a sheet as PNG."""
    try:
        sheet.save(file, "png")
    except OSError as error:
        raise ConfigError(f"can't write {file}: {error.strerror or error}") from None


def _renderer(image: Tensor, preprocess: Preprocess, seed: int, model: Model | None) -> Renderer:
    ids = torch.tensor([id_number(image_id(image))])
    inputs = preprocess.model_input(image)[None]
    device = model.device if model is not None else None
    renderer = Renderer(preprocess, inputs, ids, seed=seed, originals=[preprocess.convert_channels(image)], device=device)
    if model is not None and model.differentiable is not None:
        renderer.follow(model.predict(renderer.inputs).argmax(1), model.gradient)
    return renderer


def _draw(renderer: Renderer, change: Change, parameters: Tensor) -> Tensor:
    return renderer.images(change, torch.tensor([0]), parameters)[0].cpu()


def _lit(renderer: Renderer, spots: list[str]) -> list[tuple[str, Tensor]]:
    """Draw spots of light on the original, each given as X,Y,SIGMA or X,Y,SIGMA,STRENGTH."""
    images = [("clean", renderer.inputs[0].cpu())]
    for text in spots:
        try:
            x, y, sigma, strength = (*map(float, text.split(",")), 1.0)[:4]
        except ValueError:
            raise ConfigError(
                f"expected a spot as X,Y,SIGMA or X,Y,SIGMA,STRENGTH in pixels of the image, got {text!r}"
            ) from None
        if sigma <= 0 or strength <= 0:
            raise ConfigError(f"expected a spot with sigma and strength above 0, got {text!r}")
        spot = torch.tensor([[x, y, sigma, strength]], dtype=torch.float64)
        images.append((f"{x:g}, {y:g}, sigma {sigma:g}", _draw(renderer, highlight_view("exact"), spot)))
    return images


def _drawn(rows: list[_Row]) -> Image.Image:
    height, width = rows[0].images[0][1].shape[-2:]
    tall = _HEAD + _LABEL + height + _GAP
    columns = max(len(row.images) for row in rows)
    sheet = Image.new("RGB", (_GAP + columns * (width + _GAP), len(rows) * tall + _GAP), "white")
    pen, font, bold = ImageDraw.Draw(sheet), ImageFont.load_default(12), ImageFont.load_default(15)
    for number, row in enumerate(rows):
        pen.text((_GAP, _GAP + number * tall), row.title, fill="black", font=bold)
        top = _GAP + number * tall + _HEAD
        for column, (caption, image) in enumerate(row.images):
            left = _GAP + column * (width + _GAP)
            pen.text((left, top), caption.replace("×", "x"), fill="black", font=font)  # the font has no ×
            sheet.paste(to_picture(image), (left, top + _LABEL))
    return sheet
