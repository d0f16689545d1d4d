"""An image under several operators and properties, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brinell.boxes import Detections
from brinell.config.execution import Execution
from brinell.datasets.decode import read_image
from brinell.engine.renderer import Renderer
from brinell.errors import ConfigError
from brinell.lenses.scenes import Move
from brinell.marks import Mark, draw_marks
from brinell.models.marking import marker_of
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from brinell.perturb.change import Change
from brinell.perturb.families import expand_names
from brinell.perturb.find import find_change
from brinell.perturb.highlight import highlight_view
from brinell.perturb.operator import OPERATORS, operator_names
from brinell.pictures import to_picture
from brinell.types import id_number, image_id

_GAP, _LABEL, _HEAD, _MARK_TEXT = 6, 18, 20, 13


@dataclass(frozen=True)
class Cell:
    """An image with its caption, and what a detector finds in it."""

    caption: str
    image: Tensor
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row, such as an operator: its title, and its images."""

    title: str
    cells: list[Cell]


def contact_sheet(
    path: Path, names: list[str], levels: list[int], spots: list[str], *, size: int, seed: int, model: str | None
) -> Image.Image:
    """Draw one row per operator or property and one column per level or severity; and a row of spots of light."""
    opened = open_model(model, Execution(runtime="torch")) if model is not None else None
    wanted = expand_names(OPERATORS, names, operator_names()) if names or spots else operator_names()
    changes = [find_change(name) for name in wanted]
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
    artist = _Artist(renderer, opened)
    rows = [Row("a spot of light", artist.draw_spots(spots))] if spots else []
    for change in changes:
        for title, examples in change.examples(preprocess.height, preprocess.width, sorted(set(levels))):
            rows.append(Row(title, [artist.draw(caption, change, values) for caption, values in examples]))
    return draw_rows(rows)


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


@dataclass(frozen=True)
class _Artist:
    """Draws one image under changes; with a detector, what it finds in them."""

    renderer: Renderer
    model: Model | None

    def draw(self, caption: str, change: Change, values: Sequence[float]) -> Cell:
        """Draw the image under a change."""
        parameters, sample = torch.tensor([values], dtype=torch.float64), torch.tensor([0])
        image = self.renderer.images(change, sample, parameters)
        if self.clean is None or self.model is None:
            return Cell(caption, image[0].cpu())
        move = Move(change, parameters, self.renderer.layout(sample))
        before = replace(self.clean, boxes=move.boxes(self.clean.boxes))
        _, detections = self.model.answer(image)
        assert detections is not None
        return Cell(caption, image[0].cpu(), marker_of(self.model).mark_changed(detections, before))

    def draw_spots(self, spots: Sequence[str]) -> list[Cell]:
        """Draw spots of light on the original, each given as X,Y,SIGMA or X,Y,SIGMA,STRENGTH."""
        marks = () if self.clean is None or self.model is None else marker_of(self.model).mark_clean(self.clean)
        cells = [Cell("clean", self.renderer.inputs[0].cpu(), marks)]
        for text in spots:
            x, y, sigma, strength = _read_spot(text)
            caption = f"{x:g}, {y:g}, sigma {sigma:g}"
            cells.append(self.draw(caption, highlight_view("exact"), (x, y, sigma, strength)))
        return cells

    @cached_property
    def clean(self) -> Detections | None:
        """What a detector finds in the clean image."""
        return None if self.model is None or self.model.detector is None else self.model.answer(self.renderer.inputs)[1]


def _read_spot(text: str) -> tuple[float, float, float, float]:
    try:
        x, y, sigma, strength = (*map(float, text.split(",")), 1.0)[:4]
    except ValueError:
        raise ConfigError(
            f"expected a spot as X,Y,SIGMA or X,Y,SIGMA,STRENGTH in pixels of the image, got {text!r}"
        ) from None
    if sigma <= 0 or strength <= 0:
        raise ConfigError(f"expected a spot with sigma and strength above 0, got {text!r}")
    return x, y, sigma, strength


def draw_rows(rows: list[Row]) -> Image.Image:
    """Draw rows of images of one size, with their captions."""
    height, width = rows[0].cells[0].image.shape[-2:]
    tall = _HEAD + _LABEL + height + _GAP
    columns = max(len(row.cells) for row in rows)
    sheet = Image.new("RGB", (_GAP + columns * (width + _GAP), len(rows) * tall + _GAP), "white")
    pen, font, bold = ImageDraw.Draw(sheet), ImageFont.load_default(12), ImageFont.load_default(15)
    for number, row in enumerate(rows):
        pen.text((_GAP, _GAP + number * tall), row.title, fill="black", font=bold)
        top = _GAP + number * tall + _HEAD
        for column, cell in enumerate(row.cells):
            left = _GAP + column * (width + _GAP)
            pen.text((left, top), cell.caption.replace("×", "x"), fill="black", font=font)  # the font has no ×
            picture = draw_marks(to_picture(cell.image), cell.marks, text_size=_MARK_TEXT)
            sheet.paste(picture, (left, top + _LABEL))
    return sheet
