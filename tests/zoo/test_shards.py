"""Shards of WebDataset, written for and by the real library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import brinell
from brinell.datasets.sources import open_dataset
from brinell.perturb import apply

webdataset = pytest.importorskip("webdataset", reason="needs webdataset: make test-zoo", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def arrays() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, 16, 20, 3), np.uint8)


def test_the_library_reads_our_shards(arrays: np.ndarray, tmp_path: Path) -> None:
    for index, array in enumerate(arrays):
        path = tmp_path / "photos" / ("cat", "dog")[index % 2] / f"v1.{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)
    options = {"operators": ["fog"], "severities": [0.4], "layout": "webdataset", "shard": 3}
    brinell.corrupt(tmp_path / "photos", tmp_path / "shards", options, quiet=True)
    pattern = f"{tmp_path}/shards/{{000000..000001}}.tar"
    read = list(webdataset.WebDataset(pattern, shardshuffle=False).decode("rgb8").to_tuple("png", "cls", "json", "__key__"))
    assert [(label, facts["label"], key) for _, label, facts, key in read] == [
        *((0, "cat", f"cat/v1_{number}") for number in (0, 2, 4)),
        *((1, "dog", f"dog/v1_{number}") for number in (1, 3)),
    ]
    assert np.array_equal(read[1][0], apply(arrays[2], "fog", 0.4))


def test_we_read_shards_of_the_library(arrays: np.ndarray, tmp_path: Path) -> None:
    with webdataset.ShardWriter(f"{tmp_path}/%03d.tar", maxcount=2, verbose=0) as writer:
        for index, array in enumerate(arrays):
            writer.write({"__key__": f"sample{index}", "png": array, "cls": index % 2, "json": {"author": "Ada"}})
    data = open_dataset(tmp_path)
    assert [data[index].label for index in range(5)] == [0, 1, 0, 1, 0] and data.credits(0) == {"author": "Ada"}
    assert all(np.array_equal(data[index].image.permute(1, 2, 0).numpy(), arrays[index]) for index in range(5))
