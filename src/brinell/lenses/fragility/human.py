"""Minimal images of people beside those of models: how many, and whether they are in the same places.

People's are read from a table (CSV: image, left, top, right, bottom), from JSON ({image: [[left, top, right, bottom], …]}),
or from a folder of black-and-white pictures of maps, named like the images, with a white pixel in the middle of each
window.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.errors import DataError, RunError
from brinell.lenses.fragility.findings import read_maps
from brinell.lenses.fragility.fragile import Answers, fragile
from brinell.lenses.fragility.windows import Grid, Neighbourhood
from brinell.runs.store import Store

COLUMNS = ("image", "left", "top", "right", "bottom")
TOLERANCE = 0.05  # of the shorter side: the paper compares windows of P = 0.4 with people's of 0.35 to 0.45


@dataclass(frozen=True)
class Human:
    """People's minimal images of one image: boxes (K, 4), xyxy; of a map only their middles are known."""

    boxes: Tensor
    sized: bool = True


@dataclass(frozen=True)
class Comparison:
    """One image: how many minimal images people and the model have, and the overlap of their places and of their areas."""

    image: str
    people: int
    model: int
    places: float
    area: float


def read_human(path: str | Path) -> dict[str, Human]:
    """People's minimal images by the image's name, without its folder and ending."""
    path = Path(path)
    if path.is_dir():
        return {file.stem: Human(_middles(file), sized=False) for file in sorted(path.glob("*.png"))}
    if not path.is_file():
        raise DataError(f"{path} is not there; give a CSV or JSON file of boxes, or a folder of PNG maps")
    boxes: dict[str, list[list[float]]] = defaultdict(list)
    try:
        if path.suffix == ".json":
            for name, listed in json.loads(path.read_text(encoding="utf-8")).items():
                boxes[Path(name).stem] += [[float(number) for number in box] for box in listed]
        else:
            with path.open(newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    boxes[Path(row["image"]).stem].append([float(row[name]) for name in COLUMNS[1:]])
        return {name: Human(torch.tensor(own).reshape(-1, 4)) for name, own in boxes.items()}
    except (ValueError, KeyError, AttributeError, TypeError, RuntimeError):
        raise DataError(f"{path} should be a table with the columns {', '.join(COLUMNS)}, or JSON of such boxes") from None


def compared(store: Store, human: dict[str, Human], model: str, operator: str) -> list[Comparison]:
    """The images of a run that people saw, too, at one size of windows."""
    names = store.connect().execute("select name, image, height, width from samples where problem is null").fetchall()
    found = []
    for name, image, height, width in names:
        people = human.get(Path(name).stem)
        if people is not None:
            maps = read_maps(store, model, operator, image)
            assert maps.small is not None
            found.append(overlap(Path(name).stem, people, maps.large, maps.small, (height, width), maps.stride))
    if not found:
        raise RunError(f"none of the {len(names)} images of this run is among people's {len(human)}; names are compared")
    return found


def overlap(name: str, people: Human, large: Answers, small: Answers, size: tuple[int, int], stride: int = 1) -> Comparison:
    """People's minimal images of the windows' size beside the strict-shrink map, whichever way the answer flips."""
    hood = Neighbourhood.of(large.grid.side, *size, stride)
    models = fragile(hood, large, small, "shrink", "correct").strict
    boxes = people.boxes
    if people.sized:
        sides = (boxes[:, 2:] - boxes[:, :2]).mean(1)
        boxes = boxes[(sides - large.grid.side).abs() <= TOLERANCE * min(size)]
    theirs = placed(boxes, hood.judged)
    places = _over_union(models, theirs)
    area = _over_union(covered(models, hood.judged, size), covered(theirs, hood.judged, size))
    return Comparison(name, int(theirs.sum()), int(models.sum()), places, area)


def placed(boxes: Tensor, grid: Grid) -> Tensor:
    """A map with True at the window whose middle is the nearest to each box's."""
    found = torch.zeros(grid.shape, dtype=torch.bool)
    if len(boxes):
        corners = (boxes[:, :2] + boxes[:, 2:]) / 2 - grid.side / 2
        rows = (corners[:, 1:] - grid.tops).abs().argmin(1)
        columns = (corners[:, :1] - grid.lefts).abs().argmin(1)
        found[rows, columns] = True
    return found


def covered(windows: Tensor, grid: Grid, size: tuple[int, int]) -> Tensor:
    """The pixels of an image that lie in any of the windows, bool (H, W): sums of corners, whatever their number."""
    marks = torch.zeros(size[0] + 1, size[1] + 1, dtype=torch.int64)
    rows, columns = windows.nonzero(as_tuple=True)
    tops, lefts = grid.tops[rows], grid.lefts[columns]
    for down, across, sign in ((0, 0, 1), (0, grid.side, -1), (grid.side, 0, -1), (grid.side, grid.side, 1)):
        marks.index_put_((tops + down, lefts + across), torch.tensor(sign), accumulate=True)
    return marks.cumsum(0).cumsum(1)[: size[0], : size[1]] > 0


def _over_union(first: Tensor, second: Tensor) -> float:
    union = int((first | second).sum())
    return int((first & second).sum()) / union if union else float("nan")


def _middles(file: Path) -> Tensor:
    with Image.open(file) as picture:
        rows, columns = np.nonzero(np.asarray(picture.convert("L")) > 127)
    middles = torch.from_numpy(np.stack([columns, rows], 1)).to(torch.float32) + 0.5
    return torch.cat([middles, middles], 1)
