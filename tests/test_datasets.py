"""Every kind of dataset, valid and invalid."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import brinell
from brinell.config.data import DataOptions
from brinell.datasets.decode import from_array
from brinell.datasets.groups import group_by_name
from brinell.datasets.sources import open_dataset
from brinell.errors import DataError
from brinell.types import Origin, Sample


def picture(seed: int = 0, size: tuple[int, int] = (20, 16)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def save_images(folder: Path, *names: str) -> list[np.ndarray]:
    pictures = []
    for seed, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures.append(picture(seed))
        Image.fromarray(pictures[-1]).save(path)
    return pictures


def same(sample: Sample, array: np.ndarray) -> bool:
    return torch.equal(sample.image, torch.from_numpy(array.transpose(2, 0, 1).copy()))


# ---- kinds ----


def test_class_folders(tmp_path: Path) -> None:
    pictures = save_images(tmp_path, "cat/a.png", "cat/deep/b.png", "dog/c.png")
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "empty").mkdir()
    dataset = open_dataset(tmp_path)
    assert dataset.classes == ("cat", "dog")
    assert [dataset[i].label for i in range(3)] == [0, 0, 1]
    assert all(same(dataset[i], pictures[i]) for i in range(3))


def test_a_folder_of_images_has_no_labels(tmp_path: Path) -> None:
    save_images(tmp_path, "b.png", "a.png")
    dataset = open_dataset(tmp_path)
    assert [(dataset[i].name, dataset[i].label) for i in range(2)] == [("a.png", None), ("b.png", None)]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_metadata_files_and_manifests(tmp_path: Path, form: str) -> None:
    pictures = save_images(tmp_path, "x/one.png", "two.png")
    rows = [{"file_name": "x/one.png", "label": 7}, {"file_name": "two.png", "label": 3}]

    def write(path: Path) -> Path:
        if form == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif form == "csv":
            path.write_text("file_name,label\n" + "".join(f"{row['file_name']},{row['label']}\n" for row in rows))
        else:
            pq.write_table(pa.Table.from_pylist(rows), path)
        return path

    write(tmp_path / f"metadata.{form}")
    for dataset in (open_dataset(tmp_path), open_dataset(write(tmp_path / f"list.{form}"))):
        assert [dataset[i].label for i in range(2)] == [7, 3]
        assert all(same(dataset[i], pictures[i]) for i in range(2))


def test_a_label_column_can_be_named(tmp_path: Path) -> None:
    save_images(tmp_path, "a.png")
    (tmp_path / "list.csv").write_text("path,label,kind\na.png,1,tabby\n")
    assert open_dataset(DataOptions(source=str(tmp_path / "list.csv"), label_column="kind"))[0].label == "tabby"
    with pytest.raises(DataError, match="expected breed; it has path, label, kind"):
        open_dataset(DataOptions(source=str(tmp_path / "list.csv"), label_column="breed"))


def test_coco(tmp_path: Path) -> None:
    save_images(tmp_path, "images/a.png", "images/b.png")
    content = {
        "images": [{"id": 5, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}],
        "annotations": [
            {"image_id": 5, "category_id": 17, "bbox": [1, 2, 3, 4]},
            {"image_id": 9, "category_id": 17, "bbox": [0, 0, 2, 2]},
            {"image_id": 9, "category_id": 18, "bbox": [1, 1, 5, 5]},
            {"image_id": 5, "category_id": 18, "bbox": [0, 0, 9, 9], "iscrowd": 1},
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    dataset = open_dataset(tmp_path / "instances.json")
    assert dataset.classes == ("dog", "cat")
    first, second = dataset[0], dataset[1]
    assert first.boxes is not None
    assert first.boxes.tolist() == [[1, 2, 4, 6]]
    assert (first.label, second.label) == (1, None), "only images with a single category have a label"
    assert second.box_labels == (1, 0)


def test_real_coco(assets: Path) -> None:
    dataset = open_dataset(assets / "images" / "coco_val_128" / "instances.json")
    assert len(dataset) == 128
    total = 0
    for index in range(0, 128, 16):
        sample = dataset[index]
        assert sample.boxes is not None
        height, width = sample.image.shape[1:]
        assert bool((sample.boxes[:, 2] <= width + 1).all()) and bool((sample.boxes[:, 3] <= height + 1).all())
        total += len(sample.boxes)
    assert total > 20


@pytest.mark.parametrize("packed", [False, True])
def test_npz_is_read_from_disk(tmp_path: Path, packed: bool) -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 9, 8, 3), dtype=np.uint8)
    save = np.savez_compressed if packed else np.savez
    save(tmp_path / "data.npz", images=images, labels=np.arange(5))
    dataset = open_dataset(tmp_path / "data.npz")
    assert [dataset[i].label for i in range(5)] == [0, 1, 2, 3, 4]
    assert same(dataset[3], images[3])
    assert isinstance(dataset.images, np.memmap)  # type: ignore[attr-defined]


def test_real_npz_with_other_compression(assets: Path) -> None:
    dataset = open_dataset(assets / "images" / "cifar10_train_5000.npz")
    assert len(dataset) == 5000
    assert tuple(dataset[4999].image.shape) == (3, 32, 32)


def test_sequences_of_pairs() -> None:
    array = picture()
    items: list[Any] = [
        (array, 3),
        (Image.fromarray(array), "cat"),
        (torch.from_numpy(array).permute(2, 0, 1), np.int64(5)),
        (array.astype(np.float32) / 255, np.array([0.0, 0.0, 1.0])),
        array,
    ]
    dataset = open_dataset(items)
    assert [dataset[i].label for i in range(5)] == [3, "cat", 5, 2, None]
    assert all(same(dataset[i], array) for i in range(5))


@dataclass
class Targets:
    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


class Maite:
    """A dataset in the form of MAITE, without its base class."""

    metadata = {"id": "maite-like", "index2label": {0: "dog", 1: "cat"}}

    def __init__(self, target: Any) -> None:
        self.target = target

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[Any, Any, dict[str, Any]]:
        return picture().transpose(2, 0, 1), self.target, {"id": f"item-{index}"}


def test_maite_classification_and_detection() -> None:
    dataset = open_dataset(Maite(np.array([0.1, 0.9])))
    assert (dataset.name, dataset.classes) == ("maite-like", ("dog", "cat"))
    assert (dataset[0].label, dataset[0].name) == (1, "item-0")
    found = open_dataset(Maite(Targets(np.array([[1, 2, 3, 4]]), np.array([1]), np.array([1.0]))))[0]
    assert found.boxes is not None
    assert (found.boxes.tolist(), found.box_labels) == ([[1, 2, 3, 4]], (1,))


def test_photos_of_the_demo() -> None:
    pytest.importorskip("foolbox", reason="needs the demo extra")
    dataset = open_dataset("demo-photos")
    assert len(dataset) == 24
    assert all(isinstance(dataset[i].label, int) for i in range(24))
    assert dataset[20].image.shape[0] == 1, "one of them is grey"


# ---- errors ----


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p: p / "nowhere", "no dataset at"),
        (lambda p: p, "no images in"),
        (lambda p: _write(p / "x.json", "{}"), "not a COCO annotation file"),
        (lambda p: _write(p / "x.csv", "a,b\n1,2\n"), "no column for the image path"),
        (lambda p: _write(p / "x.csv", ""), "no rows"),
        (lambda p: _write(p / "x.jsonl", "{not json"), "can't be read"),
        (lambda p: _write(p / "x.npz", "not a zip"), "can't be read"),
        (lambda p: _write(p / "x.txt", ""), "not a dataset that brinell can read"),
        (lambda p: (i for i in range(3)), "turn an iterator into a list"),
    ],
)
def test_invalid_datasets_raise(tmp_path: Path, make: Any, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        open_dataset(make(tmp_path))


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"file_name": "a.png", "label": 1}\n{"label": 2}\n', "row 2 of .* has no file_name"),
        ('["a.png", 1]\n', "should have one object per line"),
    ],
)
def test_invalid_rows_raise(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "list.jsonl").write_text(text)
    with pytest.raises(DataError, match=reason):
        open_dataset(tmp_path / "list.jsonl")


def test_classes_of_maite_are_ordered_by_their_index() -> None:
    class Maite(list):  # type: ignore[type-arg]
        metadata = {"id": "set", "index2label": {1: "cat", 3: "dog"}}

    assert open_dataset(Maite([(np.zeros((8, 8, 3), np.uint8), 3)])).classes == ("", "cat", "", "dog")


class Own:
    """A user's dataset: the documented protocol and nothing else."""

    name = "my photographs"
    classes = ("cat", "dog")

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int, /) -> Sample:
        return Sample(from_array(picture(index), "x"), index, f"photograph {index}")

    def origin(self, index: int) -> Origin | None:
        return Origin("0" * 16, "blur") if index else None

    def credits(self, index: int) -> dict[str, str]:
        return {"author": f"author {index}"}


def test_a_dataset_keeps_its_name_classes_origins_and_credits() -> None:
    dataset: Any = open_dataset(Own())
    assert (dataset.name, dataset.classes, len(dataset)) == ("my photographs", ("cat", "dog"), 2)
    assert dataset[1].name == "photograph 1" and same(dataset[1], picture(1))
    assert [dataset.origin(index) for index in range(2)] == [None, Origin("0" * 16, "blur")]
    assert dataset.credits(1) == {"author": "author 1"}
    assert open_dataset(dataset) is dataset


def test_groups_keep_origins_and_credits() -> None:
    dataset = group_by_name(open_dataset(Own()), r"(?P<original>photograph) (?P<variant>\d)")
    assert (dataset.name, dataset[1].original, dataset[1].variant) == ("my photographs", "photograph", "1")
    assert dataset.origin(1) == Origin("0" * 16, "blur") and dataset.credits(0) == {"author": "author 0"}


def test_a_sequence_has_no_origins_and_no_credits() -> None:
    dataset: Any = open_dataset([(picture(), 1)])
    assert (dataset.name, dataset.classes, dataset.origin(0), dict(dataset.credits(0))) == ("images", None, None, {})


def test_names_that_are_not_unicode(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    save_images(folder, "a.png", os.fsdecode(b"b\xff.png"))
    dataset = open_dataset(tmp_path)
    assert dataset.classes == ("caf\\xe9",)
    assert [dataset[index].name for index in range(2)] == ["caf\\xe9/a.png", "caf\\xe9/b\\xff.png"]
    lens = {"name": "profile", "operators": ["noise"], "levels": 1}
    data = {"source": str(tmp_path), "labels": "prediction"}
    run = brinell.run("fake:grey", data, lens=lens, out=tmp_path / "run", quiet=True)
    assert run.finished and set(run.image_names.values()) == {"caf\\xe9/a.png", "caf\\xe9/b\\xff.png"}


@pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl"])
def test_manifests_with_a_byte_order_mark(tmp_path: Path, name: str) -> None:
    save_images(tmp_path, "a.png")
    text = "file_name,label\na.png,cat\n" if name.endswith("csv") else '{"file_name": "a.png", "label": "cat"}\n'
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert open_dataset(tmp_path / name)[0].label == "cat"


def test_coco_images_are_found_though_the_first_is_missing(tmp_path: Path) -> None:
    save_images(tmp_path / "images", "b.png", "c.png")
    entries = [{"id": index, "file_name": name} for index, name in enumerate(["a.png", "b.png", "c.png"])]
    (tmp_path / "instances.json").write_text(json.dumps({"images": entries, "annotations": [], "categories": []}))
    assert open_dataset(tmp_path)[1].image.shape == (3, 20, 16)
