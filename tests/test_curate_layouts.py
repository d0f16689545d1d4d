"""Curated datasets in every layout, opened as datasets, and their cards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.datasets.decode import read_image
from conftest import PLAIN
from curating import Band, curated, measured, moody

# ---- layouts, read back ----


def test_an_imagefolder_is_a_dataset_on_which_the_model_is_always_wrong(greys: Path, tmp_path: Path) -> None:
    """Class folders have numbers of their own; labels are written by name."""
    model = brinell.wrap(Band(0.05, 0.4), size=32, classes=("dark", "light"), name="band", execution=PLAIN)
    (greys / "dark").mkdir()
    for path in list((greys / "light").iterdir())[:3]:
        Image.fromarray(255 - np.asarray(Image.open(path))).save(greys / "dark" / path.name)
    run = measured(model, greys, tmp_path / "run", operators=["fade_black"], levels=25)
    records = curated(run, tmp_path / "out")
    assert {record["label"] for record in records} <= {"light", "dark"}
    for lens in ({"operators": ["white_fog"], "levels": 2}, {"name": "knob", "operators": ["rotation"], "points": 3}):
        again = measured(model, tmp_path / "out", tmp_path / f"again-{len(lens)}", **lens)
        assert again.rows("select count(*), count(*) filter (correct) from clean").fetchall() == [(len(records), 0)]


def test_the_paper_s_layout_is_by_property_image_and_model(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    models = [moody("one", 3), moody("two", 4)]
    run = measured(models, unlabelled, tmp_path / "run", name="knob", operators=["fog", "rotation"], points=20)
    records = curated(run, tmp_path / "out", layout="paper")
    smallest = run.rows("select operator, image, model from rows where smallest and status = 'broken'").fetchall()
    assert len(records) == len(smallest)
    for record in records:
        folder, image, file = record["file_name"].split("/")
        assert folder == record["operator"].partition(":")[0] and image == "light-" + Path(record["original"]).stem
        assert [file] == [f"{name}.png" for name in record["models"]]
        clean = read_image(tmp_path / "out" / folder / image / "original.png")
        assert int(models[record["models"] == ["two"]].predict(clean[None]).argmax()) == record["failures"][0]["truth"]
    again = brinell.open_dataset(tmp_path / "out")
    assert len(again) == len(records)


class Spots(nn.Module):
    """Finds white squares: boxes and class scores of each of 8x8 squares, relative to the image."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        squares = nn.functional.avg_pool2d(images.mean(1, keepdim=True), 8)
        count = squares.shape[2]
        place = torch.arange(count) / count
        y, x = torch.meshgrid(place, place, indexing="ij")
        low = torch.stack([x, y], -1).reshape(1, -1, 2).expand(len(images), -1, -1)
        spot = squares.flatten(1)
        return torch.cat([low, low + 1 / count], -1), torch.stack([torch.zeros_like(spot), spot], -1)


@pytest.fixture
def spots(tmp_path: Path) -> Path:
    """Four dark images 64x48 with a white square each."""
    folder = tmp_path / "spots"
    folder.mkdir()
    images, annotations = [], []
    for index in range(4):
        array = np.full((48, 64, 3), 20 + index, np.uint8)
        array[12:36, 8 * index : 8 * index + 32] = 250
        Image.fromarray(array).save(folder / f"{index}.png")
        images.append({"id": index, "file_name": f"{index}.png", "license": 4, "flickr_url": f"http://host/{index}"})
        annotations.append({"image_id": index, "category_id": 7, "bbox": [8 * index, 12, 32, 24]})
    content = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 9, "name": "fly"}, {"id": 7, "name": "spot"}],
        "licenses": [{"id": 4, "name": "CC BY 2.0", "url": "https://creativecommons.org/licenses/by/2.0/"}],
    }
    (folder / "spots.json").write_text(json.dumps(content))
    return folder / "spots.json"


def test_coco_has_boxes_that_moved_with_the_image(spots: Path, tmp_path: Path) -> None:
    detector = brinell.wrap(
        Spots(), size=32, classes=("sky", "spot"), name="spots", detection={"score_threshold": 0.9}, execution=PLAIN
    )
    options = {"name": "knob", "operators": ["horizontal_translation", "brightness"], "points": 16}
    run = measured(detector, spots, tmp_path / "run", **options)
    records = curated(run, tmp_path / "out", layout="coco")
    assert {record["licence"] for record in records} == {"https://creativecommons.org/licenses/by/2.0/"}
    assert {record["original"]: record["flickr_url"][-1] for record in records} == {f"{n}.png": str(n) for n in range(4)}
    again = brinell.open_dataset(tmp_path / "out")
    assert len(again) == len(records) and again.classes == ("fly", "spot")
    moved = 0
    for index in range(len(again)):
        sample, record = again[index], records[index]
        if record["operator"].startswith("brightness"):
            continue
        white = sample.image[0] > 200
        assert sample.boxes is not None and record["file_name"] == sample.name
        if not bool(white.any()):
            continue
        (left, top), (right, bottom) = white.nonzero().amin(0).flip(0), white.nonzero().amax(0).flip(0) + 1
        assert torch.allclose(sample.boxes[0], torch.tensor([left, top, right, bottom]).float(), atol=1.0)
        moved += abs(float(sample.boxes[0, 0]) - 4 * int(record["original"][0])) > 1
    assert moved, "some were seen to move"
    again_measured = measured(detector, tmp_path / "out", tmp_path / "again", operators=["white_fog"], levels=1)
    assert again_measured.rows("select count(*) filter (correct) from clean").fetchall() == [(0,)]


# ---- the card ----


def test_the_card_has_counts_settings_and_licences(greys: Path, tmp_path: Path) -> None:
    lines = [
        {"file_name": f"light/{index:02d}.png", "label": 0, "author": f"A{index}"}
        | ({"licence": "CC BY 2.0", "source_url": f"http://host/{index}"} if index % 2 else {})
        for index in range(12)
    ]
    (greys / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    run = measured("fake:grey:0.25", greys, tmp_path / "run", operators=["fade_black"], levels=30)
    records = curated(run, tmp_path / "out", fail="any", margin=0.01)
    assert {(one["original"], one["author"]) for one in records} == {(f"light/{n:02d}.png", f"A{n}") for n in range(12)}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "12 images of 12 originals" in card and "| light | 12 |" in card and "| grey:0.25 | 12 |" in card
    assert "- CC BY 2.0: 6 images" in card and "- unknown: 6 images" in card and "margin: 0.01" in card
    sheet = read_image(tmp_path / "out" / ".card" / "examples.png")
    assert sheet.shape[2] > 300 and int(sheet.min()) < 100
    twice = measured("fake:grey:0.1", tmp_path / "out", tmp_path / "again", operators=["fade_black"], levels=30)
    assert all(record["author"] for record in curated(twice, tmp_path / "third")), "credits are copied"
