"""Datasets of Hugging Face in and out, with the real library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import brinell
from brinell.config.data import DataOptions
from brinell.datasets.sources import open_dataset
from brinell.errors import DataError
from brinell.perturb import apply

hub = pytest.importorskip("datasets", reason="needs the extra datasets")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def pictures() -> list[Image.Image]:
    generator = np.random.default_rng(0)
    return [Image.fromarray(generator.integers(0, 256, (16, 20, 3), np.uint8)) for _ in range(6)]


@pytest.fixture
def rows(pictures: list[Image.Image]) -> Any:
    """Six images with class labels and boxes."""
    features = hub.Features(
        {
            "id": hub.Value("int64"),
            "image": hub.Image(),
            "label": hub.ClassLabel(names=["cat", "dog"]),
            "objects": {
                "bbox": hub.List(hub.List(hub.Value("float32"), length=4)),
                "category": hub.List(hub.ClassLabel(names=["paw"])),
            },
        }
    )
    columns = {
        "id": list(range(6)),
        "image": pictures,
        "label": [0, 1, 0, 1, 0, 1],
        "objects": [{"bbox": [[1, 2, 3, 4]], "category": [0]}] * 6,
    }
    return hub.Dataset.from_dict(columns, features=features)


def check(data: Any, pictures: list[Image.Image], count: int = 6) -> None:
    assert len(data) == count and data.classes == ("cat", "dog")
    for index in (3, 0, count - 1):
        sample = data[index]
        assert np.array_equal(sample.image.permute(1, 2, 0).numpy(), np.asarray(pictures[index]))
        assert sample.label == index % 2 and sample.boxes.tolist() == [[1, 2, 4, 6]] and sample.box_labels == (0,)


def test_an_object(rows: Any, pictures: list[Image.Image]) -> None:
    check(open_dataset(rows), pictures)


def test_a_stream_is_read_once(rows: Any, pictures: list[Image.Image]) -> None:
    check(open_dataset(rows.to_iterable_dataset()), pictures)


def test_a_saved_folder(rows: Any, pictures: list[Image.Image], tmp_path: Path) -> None:
    rows.save_to_disk(str(tmp_path / "saved"))
    check(open_dataset(tmp_path / "saved"), pictures)
    hub.DatasetDict({"train": rows, "test": rows}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(DataError, match="has the splits train, test; name one"):
        open_dataset(tmp_path / "both")


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_a_local_repository_by_name(rows: Any, pictures: list[Image.Image], tmp_path: Path, streaming: str) -> None:
    (tmp_path / "repo" / "data").mkdir(parents=True)
    rows.to_parquet(str(tmp_path / "repo" / "data" / "test-00000-of-00001.parquet"))
    source = f"hf:{tmp_path / 'repo'}?split=test&streaming={streaming}"
    check(open_dataset(source), pictures)
    if streaming == "true":
        check(open_dataset(DataOptions(source=source, limit=4)), pictures, 4)
    with pytest.raises(DataError, match="has no option 'spilt'; did you mean split"):
        open_dataset(f"hf:{tmp_path / 'repo'}?spilt=test")


def test_a_run_on_a_stream(rows: Any, tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 3}
    data = {"source": f"hf:{save(rows, tmp_path)}?split=test&streaming=true", "limit": 4, "labels": "prediction"}
    run = brinell.run("fake:grey:0.25", data, lens=lens, out=tmp_path / "run", quiet=True)
    assert run.rows("select count(distinct image) from rows").fetchall() == [(4,)]


def save(rows: Any, folder: Path) -> Path:
    (folder / "repo").mkdir()
    rows.to_parquet(str(folder / "repo" / "test.parquet"))
    return folder / "repo"


def test_a_perturbed_copy_is_an_imagefolder(rows: Any, tmp_path: Path) -> None:
    options = {"operators": ["fog"], "severities": [0.4], "layout": "imagefolder"}
    brinell.corrupt(rows, tmp_path / "foggy", options, quiet=True)
    loaded = hub.load_dataset("imagefolder", data_dir=str(tmp_path / "foggy"), split="train")
    first = sorted(loaded, key=lambda row: row["original"])[0]
    assert first["label"] == "cat" and first["operator"] == "fog:standard"
    expected = apply(open_dataset(rows)[0].image, "fog", 0.4).permute(1, 2, 0)
    assert torch.equal(torch.from_numpy(np.array(first["image"])), expected)


@pytest.mark.parametrize("streaming", [False, True])
def test_our_data_as_theirs(rows: Any, pictures: list[Image.Image], tmp_path: Path, streaming: bool) -> None:
    from brinell.adapters.huggingface import to_datasets

    for index, picture in enumerate(pictures):
        path = tmp_path / "photos" / ("cat", "dog")[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    (tmp_path / "photos" / "cat" / "broken.png").write_bytes(b"nothing")
    found = to_datasets(tmp_path / "photos", streaming=streaming)
    assert found.features["label"].names == ["cat", "dog"]
    each = list(found)
    assert [row["label"] for row in each] == [0, 0, 0, 1, 1, 1] and each[1]["name"] == "cat/2.png"
    assert np.array_equal(np.asarray(each[1]["image"]), np.asarray(pictures[2]))
    boxed = list(to_datasets(rows, streaming=streaming))
    assert boxed[0]["objects"] == {"bbox": [[1, 2, 3, 4]], "category": [0]} and boxed[1]["label"] == 1
