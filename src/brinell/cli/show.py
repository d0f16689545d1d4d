"""An image at several levels of operators, as one picture."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from brinell.datasets import read_image
from brinell.errors import ConfigError
from brinell.execution import Execution
from brinell.models import Model, Preprocess, open_model
from brinell.perturb import Operator, find_operator, operator_names
from brinell.types import id_number, image_id

LEVELS = (0, 1, 2, 5, 10, 20, 30)
_GAP, _LABEL, _HEAD = 6, 18, 20


def contact_sheet(
    path: Path, names: list[str], levels: list[int], *, size: int, seed: int, model: str | None
) -> Image.Image:
    """One row an operator, one column a level."""
    judge = open_model(model, Execution(runtime="torch")) if model is not None else None
    operators = [find_operator(name) for name in names or operator_names()]
    if judge is None:
        for operator in operators:
            if operator.white_box and names:
                raise ConfigError(f"{operator.name} follows a model's gradient: say which with --model SOURCE")
        operators = [operator for operator in operators if not operator.white_box]
    if any(not 0 <= level <= 30 for level in levels):
        raise ConfigError(f"levels are 0 to 30, got {', '.join(map(str, levels))}")
    image = read_image(path)
    shown = sorted(set(levels)) or list(LEVELS)
    rows = [(operator, _levels(operator, image, shown, size, seed, judge)) for operator in operators]
    return _drawn(rows, shown)


def _levels(
    operator: Operator, image: Tensor, levels: list[int], size: int, seed: int, model: Model | None
) -> list[Tensor]:
    preprocess = model.preprocess if model is not None else Preprocess(size, size, channels=len(image))
    canvas = preprocess.canvas(image)[None]
    ids = torch.tensor([id_number(image_id(image))])
    if model is None:
        return [operator.at(canvas, level, seed=seed, ids=ids)[0] for level in levels]
    judge, labels = model, model.predict(canvas.to(model.device)).argmax(1)
    return [
        operator.at(
            canvas.to(judge.device),
            level,
            seed=seed,
            ids=ids.to(judge.device),
            gradient=lambda images, _: judge.gradient(images, labels),
        )[0].cpu()
        for level in levels
    ]


def _drawn(rows: list[tuple[Operator, list[Tensor]]], levels: list[int]) -> Image.Image:
    height, width = rows[0][1][0].shape[-2:]
    tall = _HEAD + _LABEL + height + _GAP
    sheet = Image.new("RGB", (_GAP + len(levels) * (width + _GAP), len(rows) * tall + _GAP), "white")
    pen, font, bold = ImageDraw.Draw(sheet), ImageFont.load_default(12), ImageFont.load_default(15)
    for row, (operator, images) in enumerate(rows):
        pen.text((_GAP, _GAP + row * tall), operator.facts.title, fill="black", font=bold)
        top = _GAP + row * tall + _HEAD
        for column, (level, image) in enumerate(zip(levels, images, strict=True)):
            left = _GAP + column * (width + _GAP)
            amount = operator.facts.amount(level, height, width)
            text = "clean" if level == 0 else f"level {level}: {operator.facts.tell(amount)}"
            pen.text((left, top), text, fill="black", font=font)
            array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
            sheet.paste(Image.fromarray(array), (left, top + _LABEL))
    return sheet
