"""The knob lens without rounding: the model is queried with float images, people and files get whole grey levels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.datasets.decode import read_image
from brinell.perturb.difference import difference
from brinell.perturb.property import find_property, property_names
from brinell.report.exhibits import read_exhibits
from brinell.runs.schema import DISTANCES
from brinell.types import id_number, image_id
from conftest import PLAIN
from curating import curated, moody
from services import listening, respond_with_scores, service, v2

UNROUNDED = {"name": "knob", "operators": ["gaussian_noise", "rotation", "gaussian_blur"], "points": 12, "rounding": "none"}


def measure(model: Any, data: Any, out: Path, **options: Any) -> brinell.Run:
    return brinell.run(model, data, lens=UNROUNDED | options, out=out, execution=PLAIN, quiet=True)


def originals(data: Path) -> dict[str, Tensor]:
    dataset = brinell.open_dataset(data)
    return {image_id(dataset[index].image): dataset[index].image for index in range(len(dataset))}


def replayed(row: dict[str, Any], model: brinell.Model, images: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The clean model input of a row and the float image, each alone."""
    clean = model.preprocess.model_input(images[row["image"]])[None]
    severities = [row[name] for name in ("severity", "severity_x", "severity_y") if row[name] is not None]
    change = replace(find_property(row["operator"]), whole=False)
    ids = torch.tensor([id_number(row["image"])])
    return clean, change.apply(clean, torch.tensor([severities], dtype=torch.float64), seed=0, ids=ids)


def test_rows_are_of_float_images(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    """Answers and distances are those of the float image, and any row can be replayed to it."""
    model = moody()
    run = measure(model, unlabelled, tmp_path / "run", operators=["all"])
    table = run.rows("select * from rows where status = 'broken'").to_arrow_table()
    assert {name.partition(":")[0] for name in table["operator"].to_pylist()} == set(property_names())
    images, other = originals(unlabelled["source"]), 0
    for row in table.to_pylist():
        clean, image = replayed(row, model, images)
        scores, rounded = (model.predict(each)[0] for each in (image, image.round()))
        assert int(scores.argmax()) == row["prediction"] != row["label"]
        assert float(scores.max()) == pytest.approx(row["confidence"], abs=1e-6)
        other += int(rounded.argmax()) != row["prediction"] or abs(float(rounded.max()) - row["confidence"]) > 1e-5
        gap = (image.double() - clean.double()).flatten() / 255
        assert row["mse"] == pytest.approx(float((gap**2).mean()), rel=1e-6)
        assert row["mae"] == pytest.approx(float(gap.abs().mean()), rel=1e-6)
        assert row["linf"] == pytest.approx(float(gap.abs().max()), rel=1e-6)
        assert row["l0"] == int((gap != 0).sum())
        for name in DISTANCES:
            assert float(getattr(difference(clean, image), name)) == pytest.approx(row[name], rel=1e-6)
    assert other > table.num_rows / 2, "rounding would have given other answers"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian_blur", "rotation"])
def test_the_search_agrees_with_a_plain_scan_of_floats_on_a_real_network(name: str, assets: Path, tmp_path: Path) -> None:
    spec = f"onnx:{assets}/models/squeezenet1_1.onnx?classes={assets}/models/imagenet_classes.txt"
    data = {"source": assets / "images" / "imagenet_dev_300", "limit": 3}
    run = measure(spec, data, tmp_path / "run", operators=[name], points=20)
    model, change = brinell.open_model(spec), replace(find_property(name), whole=False)
    images, found = originals(data["source"]), run.rows("select * from rows").to_arrow_table().to_pylist()
    assert {row["status"] for row in found} >= {"broken"}
    for row in found:
        track = dict(zip(change.facts.directions, change.tracks(224, 224, 20), strict=True))[row["direction"]]
        clean = model.preprocess.model_input(images[row["image"]])[None]
        if row["status"] == "skipped":
            assert int(model.predict(clean).argmax()) != row["label"]
            continue
        ids = torch.tensor([id_number(row["image"])])
        changed = torch.cat([change.apply(clean, severity[None], seed=0, ids=ids) for severity in track])
        hits = (model.predict(changed).argmax(1) != row["label"]).nonzero()[:, 0].tolist()
        assert row["level"] == (hits[0] + 1 if hits else None)


def test_pictures_are_rounded_and_reports_say_what_was_queried(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = moody()
    run = measure(model, unlabelled, tmp_path / "run")
    images = originals(unlabelled["source"])
    exhibits = read_exhibits(run, "knob")
    assert len(exhibits) == 12  # the smallest, a median and the largest change, and clean pictures
    for exhibit in exhibits:
        severities = dict(zip(("severity", "severity_x", "severity_y"), (*exhibit.parameters, None, None), strict=False))
        _, image = replayed({"image": exhibit.image, "operator": exhibit.operator, **severities}, model, images)
        shown = np.asarray(Image.open(tmp_path / "run" / exhibit.file), np.float32)
        assert np.abs(shown - image[0].permute(1, 2, 0).numpy()).mean() < 25  # a lossy picture of noise
    assert "queried with float images" in Path(run.report()).read_text()
    assert run.to_json()["lenses"]["knob"]["rounding"] == "none"


def test_curated_images_are_rounded_and_confirmed_by_a_query(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = moody()
    run = measure(model, unlabelled, tmp_path / "run", points=400)
    records = curated(run, tmp_path / "out", models=[model])
    (broken,) = run.rows("select count(*) from rows where smallest and status = 'broken'").fetchall()[0]
    assert 0 < len(records) <= broken
    images = originals(unlabelled["source"])
    for record in records:
        picture = read_image(tmp_path / "out" / record["file_name"])
        clean = model.preprocess.model_input(images[record["original_id"]])
        (failure,) = record["failures"]
        assert int(model.predict(picture[None]).argmax()) == failure["after"]["label"] != record["label"]
        assert failure["from"] == "query"
        gap = (picture.double() - clean.double()) / 255
        assert record["distances"]["mse"] == pytest.approx(float((gap**2).mean()), rel=1e-4)


class Fractions(nn.Module):
    """A small network that remembers whether its images had fractions of grey levels."""

    seen: set[bool] = set()

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            head = nn.Linear(8 * 16, 4)
            self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), head)

    def forward(self, images: Tensor) -> Tensor:
        levels = images.detach() * 255
        self.seen |= {bool(gap > 0.01) for gap in (levels - levels.round()).abs().flatten(1).amax(1)}
        scores: Tensor = self.net(images)
        return scores


def test_saliency_is_that_of_the_float_image(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = brinell.wrap(Fractions(), size=32, name="fractions", execution=PLAIN)
    run = measure(model, unlabelled, tmp_path / "run", operators=["rotation", "brightness"])
    Fractions.seen.clear()
    run.saliency({"pairs": 4}, models=[model], quiet=True)
    found = pq.read_table(tmp_path / "run" / "saliency.parquet").to_pylist()
    assert any(row["failed"] for row in found) and Fractions.seen == {False, True}
    stored = run.rows("select image, operator, prediction from rows where status = 'broken'").fetchall()
    assert {(row["image"], row["operator"], row["prediction"]) for row in found if row["failed"]} <= set(stored)


REFUSED = "rounding none queries float images, but model .* takes whole grey levels only; use --rounding whole"


@pytest.mark.usefixtures("answer_cache")
def test_services_are_refused(greys: Path, tmp_path: Path) -> None:
    """They are sent image files or whole numbers; nothing is queried."""
    with listening(respond_with_scores) as server:
        with pytest.raises(brinell.ConfigError, match=REFUSED):
            measure(service(server, tmp_path), greys, tmp_path / "run")
        assert not server.requests
    entry = {"name": "x", "datatype": "FP32", "shape": [-1, 3, 32, 32]}

    def answer(request: Any) -> Any:
        return {"outputs": [{"name": "y", "data": [[1.0, 0.0]] * request["inputs"][0]["shape"][0]}]}

    with listening(v2(entry, answer)) as server:
        model = brinell.open_model(server.url.replace("/predict", "/v2/models/m"), PLAIN)
        with pytest.raises(brinell.ConfigError, match=REFUSED):
            measure(model, {"source": greys, "labels": "prediction"}, tmp_path / "other")


def test_an_onnx_file_that_takes_bytes_is_refused(greys: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx to write a file")
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=kinds.FLOAT),
        helper.make_node("GlobalAveragePool", ["floats"], ["means"]),
        helper.make_node("Flatten", ["means"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("images", kinds.UINT8, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", kinds.FLOAT, ["n", 3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "bytes.onnx")
    with pytest.raises(brinell.ConfigError, match=REFUSED):
        measure(f"onnx:{tmp_path}/bytes.onnx", {"source": greys, "labels": "prediction"}, tmp_path / "run")


def test_runs_from_before_the_option_are_compared_as_rounded(greys: Path, tmp_path: Path) -> None:
    options = {"operators": ["brightness"], "points": 20}
    old, new, floats = (
        measure("fake:grey", greys, tmp_path / name, rounding=rounding, **options)
        for name, rounding in (("old", "whole"), ("new", "whole"), ("floats", "none"))
    )
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    del manifest["identity"]["config"]["lenses"][0]["rounding"]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps(manifest))
    for file in (tmp_path / "old").glob("**/*.parquet"):  # which did not name their run then
        pq.write_table(pq.read_table(file).replace_schema_metadata(None), file)
    assert brinell.Run(tmp_path / "old").summary()
    assert brinell.compare(tmp_path / "old", new).deltas
    with pytest.raises(brinell.RunError, match="the knob lens has rounding whole in one and none in the other"):
        brinell.compare(old, floats)
