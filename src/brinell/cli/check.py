"""The command `brinell check`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brinell.cli.console import out, say
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.report.grid import Grid
from brinell.validation import validate

if TYPE_CHECKING:
    from torch import Tensor

    from brinell.checking.check import CheckResult
    from brinell.checking.trial import Tried
    from brinell.cli.sheet import Cell, Row
    from brinell.marks import Mark

SHOWN = 8  # settings, and images per row


def check(
    model: Annotated[str, typer.Argument(help="Model: KIND:NAME, a file, or a URL (see `brinell ls models`).")],
    data: Annotated[str, typer.Argument(help="Dataset with a few images that the model should get right.")],
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Number of images to try settings on.")] = 32,
    file: Annotated[Path, typer.Option("--out", help="PNG file to write.")] = Path("check.png"),
    trust: Annotated[bool, typer.Option("--trust", help="Allow model files to run code when they are loaded.")] = False,
) -> None:
    """Check a model's preprocessing on a few images.

    Tries the usual normalisations, channel orders, resizes, layouts and box formats, draws predictions as a contact sheet,
    and prints the model string to use. For a service, it only draws predictions.

    Example: [bold]brinell check onnx:model.onnx?classes=imagenet photos/[/]
    """
    from brinell.checking.check import check as check_model
    from brinell.cli.sheet import draw_rows, save
    from brinell.datasets.sources import open_dataset

    options = validate(ModelOptions, model)
    found = check_model(options, open_dataset(data), Execution(runtime="torch", trust=trust), limit)
    out.print(_table(found))
    shown = [found.given] if found.best is found.given else [found.given, found.best]
    save(draw_rows([_row(found, tried) for tried in shown]), file)
    say(f"wrote {file}", _verdict(found))


def _table(found: CheckResult) -> Grid:
    ranked = sorted(found.tried[1:], key=lambda tried: tried.rank, reverse=True)[: SHOWN - 1]
    rows = [(tried.setting.title, _share(tried.right), _confidence(tried)) for tried in (found.given, *ranked)]
    return Grid(("setting", _measure(found), "confidence"), tuple(rows))


def _measure(found: CheckResult) -> str:
    """Return the name of what settings are ranked by."""
    return {"detection": "F1 of boxes", "segmentation": "mean IoU"}.get(found.model.task, "accuracy")


def _confidence(tried: Tried) -> str:
    return "" if math.isnan(tried.confidence) else f"{tried.confidence:.0%}"


def _share(value: float | None) -> str:
    return "no labels" if value is None else f"{value:.0%}"


def _verdict(found: CheckResult) -> str:
    if found.best is not found.given or found.replaced:
        return f"use {found.source}"
    if found.given.right is not None and found.given.right < 0.5:
        return "no other setting is clearly better; check the class list and the labels as well"
    return f"no other setting is clearly better: use {found.source}"


def _row(found: CheckResult, tried: Tried) -> Row:
    """Return a row of the sheet: images as a setting shows them, with the model's predictions."""
    from brinell.cli.sheet import Row

    shown = _share(tried.right) if tried.right is None else f"{_measure(found)} {_share(tried.right)}"
    return Row(f"{tried.setting.title}: {shown}", list(_cells(found, tried)))


def _cells(found: CheckResult, tried: Tried) -> Iterator[Cell]:
    from brinell.cli.sheet import Cell
    from brinell.models.marking import marker_of

    marker, preprocess = marker_of(found.model), tried.setting.preprocess
    true = found.trial.true_masks(preprocess)
    for place, (sample, label) in enumerate(zip(found.trial.samples[:SHOWN], found.trial.labels, strict=False)):
        score, best = tried.scores[place].max(0)
        caption = f"{marker.name(int(best))} {float(score):.2f}"
        caption += "" if label is None or label == int(best) else f" (is {marker.name(label)})"
        image = preprocess.model_input(sample.image)
        marks: tuple[Mark, ...] = ()
        if tried.detections is not None:
            marks = marker.mark_clean(tried.detections.at(slice(place, place + 1)))
        if tried.masks is not None:
            image = _paint(found, image, tried.masks[place], None if true is None else true[place])
        yield Cell(caption, image, marks)


def _paint(found: CheckResult, image: Tensor, mask: Tensor, true: Tensor | None) -> Tensor:
    """Return an image with a segmenter's mask over it, enlarged if it is small."""
    import numpy as np
    import torch

    from brinell.mask_pictures import MaskStyle, draw_mask
    from brinell.models.marking import marker_of
    from brinell.pictures import to_picture

    assert found.model.segmenter is not None
    style = MaskStyle(marker_of(found.model).name, found.model.segmenter.background)
    drawn = draw_mask(to_picture(image), mask.numpy(), style, None if true is None else true.numpy())
    return torch.from_numpy(np.array(drawn)).permute(2, 0, 1)
