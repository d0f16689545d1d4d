"""Shards of WebDataset as data."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import brinell
from brinell.datasets.sources import open_dataset
from brinell.errors import DataError
from conftest import PLAIN


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))


def png(grey: int) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(np.full((16, 20, 3), grey, np.uint8)).save(sink, "png")
    return sink.getvalue()


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """Two shards with five images: labels as numbers, as names, and one without any."""
    folder = tmp_path / "shards"
    folder.mkdir()
    write_tar(
        folder / "part-000.tar",
        {"a/one.png": png(10), "a/one.cls": b"3", "a/two.x.png": png(20), "a/two.cls": b"cat", "notes.txt": b"none"},
    )
    facts = {"label": "dog", "author": "Ada", "original_id": "00ff", "operator": "fog:standard"}
    objects = {"bbox": [[1, 2, 3, 4]], "categories": ["dog"]}
    write_tar(
        folder / "part-001.tar",
        {
            "three.PNG": png(30),
            "three.json": json.dumps(facts).encode(),
            "four.png": png(40),
            "four.json": json.dumps({"objects": objects}).encode(),
            "five.png": b"damaged",
        },
    )
    return folder


def test_a_folder_of_shards(shards: Path) -> None:
    data = open_dataset(shards)
    assert (data.name, len(data)) == ("shards", 5)
    found = [(data[index].name, data[index].label, int(data[index].image[0, 0, 0])) for index in range(4)]
    assert found == [("a/one", 3, 10), ("a/two", "cat", 20), ("three", "dog", 30), ("four", None, 40)]
    assert data.credits(2) == {"author": "Ada"} and data.credits(0) == {}
    assert data.origin(2).original == "00ff" and data.origin(0) is None
    sample = data[3]
    assert sample.boxes is not None and sample.boxes.tolist() == [[1, 2, 4, 6]] and sample.box_labels == ("dog",)
    with pytest.raises(DataError, match=r"part-001\.tar/five: not an image of a known kind"):
        data[4]


def test_one_shard_and_patterns(shards: Path) -> None:
    assert len(open_dataset(shards / "part-000.tar")) == 2
    assert len(open_dataset(f"webdataset:{shards}/part-{{000..001}}.tar")) == 5
    assert len(open_dataset(f"webdataset:{shards}/*1.tar")) == 3
    with pytest.raises(DataError, match="can't be read as a tar file"):
        open_dataset(f"webdataset:{shards}/part-{{000..002}}.tar")
    with pytest.raises(DataError, match="there are no tar files"):
        open_dataset(f"webdataset:{shards}/none-*.tar")


def test_a_run_on_a_copy_in_shards(greys: Path, tmp_path: Path) -> None:
    options = {"operators": ["fade_black"], "levels": [3], "layout": "webdataset", "shard": 5}
    brinell.corrupt(greys, tmp_path / "shards", options, quiet=True)
    original, copy = open_dataset(greys), open_dataset(tmp_path / "shards")
    assert [copy[index].label for index in range(12)] == ["light"] * 12
    assert torch.equal(copy[7].image, brinell.perturb.apply(original[7].image, "fade_black", 3))
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 5}
    data = {"source": tmp_path / "shards", "labels": "prediction"}
    run = brinell.run("fake:grey:0.25", data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert run.rows("select count(distinct image) from rows").fetchall() == [(12,)]
