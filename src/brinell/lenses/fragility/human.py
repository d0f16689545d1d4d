"""People's minimal images next to those of models: how many there are, and whether they overlap.

People's are read from a table (CSV: image, left, top, right, bottom), from JSON ({image: [[left, top, right, bottom], …]}),
or from a folder of black-and-white PNG maps, named like the images, with a white pixel at the centre of each window.
"""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from brinell.errors import ConfigError, DataError, RunError
from brinell.lenses.fragility.findings import find
from brinell.lenses.fragility.fragile import WindowAnswers, find_fragile
from brinell.lenses.fragility.maps import read_maps
from brinell.lenses.fragility.windows import Mask, Neighbourhood, WindowGrid
from brinell.pictures import open_picture
from brinell.registry import nearest
from brinell.runs.run import Run

COLUMNS = ("image", "left", "top", "right", "bottom")
TOLERANCE = 0.05  # of the shorter side: the paper compares windows of P = 0.4 with people's of 0.35 to 0.45


@dataclass(frozen=True)
class HumanWindows:
    """People's minimal images in one image: boxes, float32 (K, 4), xyxy. Those of a map are not `sized`: only their centres
    are known.
    """

    boxes: NDArray[np.float32]
    sized: bool = True


@dataclass(frozen=True)
class Comparison:
    """One image: the number of people's and the model's minimal images, and the IoU of their positions and areas."""

    image: str
    people: int
    model: int
    position_iou: float
    area_iou: float


def compare(run: Run, people: str | os.PathLike[str], operator: str) -> dict[str, list[Comparison]]:
    """Compare people's minimal images (see `read_human`) with each model's, at a size of windows ("windows:0.4")."""
    findings = find(run, run.require_lens("fragility"), {})
    if run.sampled:
        raise RunError(
            f"the minimal images of a photograph are unknown in {run.folder}, a sample of each image's windows; rerun it "
            "without --budget"
        )
    if operator not in findings.windows:
        raise ConfigError(f"the run in {run.folder} has no {operator!r}; {nearest(operator, findings.windows)}")
    human = read_human(people)
    return {model: compare_model(run, human, model, operator) for model in findings.models}


def read_human(path: str | os.PathLike[str]) -> dict[str, HumanWindows]:
    """Return people's minimal images by the image's name without folder and suffix."""
    path = Path(path)
    if path.is_dir():
        return {file.stem: HumanWindows(_read_centres(file), sized=False) for file in sorted(path.glob("*.png"))}
    if not path.is_file():
        raise DataError(f"{path} does not exist; give a CSV or JSON file of boxes, or a folder of PNG maps")
    boxes: dict[str, list[list[float]]] = defaultdict(list)
    try:
        if path.suffix == ".json":
            for name, listed in json.loads(path.read_text(encoding="utf-8")).items():
                boxes[Path(name).stem] += [[float(number) for number in box] for box in listed]
        else:
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    boxes[Path(row["image"]).stem].append([float(row[name]) for name in COLUMNS[1:]])
        return {name: HumanWindows(np.array(own, np.float32).reshape(-1, 4)) for name, own in boxes.items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        raise DataError(
            f"{path}: expected a table with the columns {', '.join(COLUMNS)}, or JSON with such boxes by image"
        ) from None


def compare_model(run: Run, human: dict[str, HumanWindows], model: str, operator: str) -> list[Comparison]:
    """Return a comparison for each of the run's images that people saw, at one size of windows."""
    samples = run.query("select name, image, height, width from samples where problem is null")
    comparisons = []
    for name, image, height, width in samples:
        people = human.get(Path(name).stem)
        if people is not None:
            maps = read_maps(run, model, operator, image)
            assert maps.small is not None
            size = height, width
            comparisons.append(
                compare_image(Path(name).stem, people, maps.large, maps.small, size=size, stride=maps.stride)
            )
    if not comparisons:
        raise RunError(
            f"none of the run's {len(samples)} images is among the {len(human)} images that people saw; images are matched "
            "by file name"
        )
    return comparisons


def compare_image(
    name: str,
    people: HumanWindows,
    large: WindowAnswers,
    small: WindowAnswers,
    *,
    size: tuple[int, int],
    stride: int = 1,
) -> Comparison:
    """Compare people's minimal images of the windows' size with the strict-shrink map, whichever way the answer flips.

    `size` is the image's height and width.
    """
    hood = Neighbourhood.of(large.grid.side, *size, stride)
    models = find_fragile(hood, large, small, "shrink").strict
    boxes = people.boxes
    if people.sized:
        sides = (boxes[:, 2:] - boxes[:, :2]).mean(1)
        boxes = boxes[np.abs(sides - large.grid.side) <= TOLERANCE * min(size)]
    theirs = mark_nearest(boxes, hood.judged)
    positions = _iou(models, theirs)
    areas = _iou(mark_covered(models, hood.judged, size), mark_covered(theirs, hood.judged, size))
    return Comparison(name, int(theirs.sum()), int(models.sum()), positions, areas)


def mark_nearest(boxes: NDArray[np.float32], grid: WindowGrid) -> Mask:
    """Return a map that is True at the window whose centre is nearest to each box's."""
    marked = np.zeros(grid.shape, bool)
    if len(boxes):
        corners = (boxes[:, :2] + boxes[:, 2:]) / 2 - grid.side / 2
        tops, lefts = grid.tops.astype(np.float32), grid.lefts.astype(np.float32)
        rows = np.abs(corners[:, 1:] - tops).argmin(1)
        columns = np.abs(corners[:, :1] - lefts).argmin(1)
        marked[rows, columns] = True
    return marked


def mark_covered(windows: Mask, grid: WindowGrid, size: tuple[int, int]) -> Mask:
    """Return the pixels of an image that lie in any of the windows, bool (H, W), by cumulative sums over their corners."""
    marks = np.zeros((size[0] + 1, size[1] + 1), np.int64)
    rows, columns = windows.nonzero()
    tops, lefts = grid.tops[rows], grid.lefts[columns]
    for down, across, sign in ((0, 0, 1), (0, grid.side, -1), (grid.side, 0, -1), (grid.side, grid.side, 1)):
        np.add.at(marks, (tops + down, lefts + across), sign)
    covered: Mask = marks.cumsum(0).cumsum(1)[: size[0], : size[1]] > 0
    return covered


def _iou(first: Mask, second: Mask) -> float:
    union = int((first | second).sum())
    return int((first & second).sum()) / union if union else float("nan")


def _read_centres(file: Path) -> NDArray[np.float32]:
    with open_picture(file.read_bytes()) as picture:
        rows, columns = np.nonzero(np.asarray(picture.convert("L")) > 127)
    centres = np.stack([columns, rows], 1).astype(np.float32) + np.float32(0.5)
    return np.concatenate([centres, centres], 1)
