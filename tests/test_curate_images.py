"""The images of a curated dataset are pixel by pixel what the models saw."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.datasets.decode import read_image
from brinell.engine.renderer import Renderer
from brinell.engine.replay import Replay, render
from brinell.motion.groups import GROUPS
from brinell.perturb.highlight import add_highlights
from brinell.perturb.motion import Motion
from brinell.perturb.operator import find_operator
from brinell.perturb.property import Property, find_property
from brinell.perturb.windows import window_view
from brinell.types import id_number, image_id
from conftest import PLAIN
from curating import CLASSES, Moody, curated, measured, moody, same_files

# ---- what the model saw ----

LENS = {
    "profile": {"operators": ["local_blur", "white_fog", "jpeg", "boxes", "posterise"], "levels": 5},
    "knob": {"name": "knob", "operators": ["gaussian_noise", "rotation", "snow", "spatial"], "points": 12},
    "fresh": {"name": "knob", "operators": ["gaussian_noise", "fog"], "points": 12, "resample": True},
}


@pytest.mark.parametrize(("lens", "kind"), [("profile", "png"), ("knob", "webp"), ("fresh", "png")])
def test_images_are_what_the_model_saw(lens: str, kind: str, unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model, options = moody(), LENS[lens]
    run = measured(model, unlabelled, tmp_path / "run", seed=5, **options)
    records = curated(run, tmp_path / "out", every=True, format=kind)
    assert {record["operator"].partition(":")[0] for record in records} == set(options["operators"])
    dataset = brinell.open_dataset(unlabelled["source"])
    originals = {image_id(dataset[index].image): dataset[index].image for index in range(len(dataset))}
    for record in records:
        picture = read_image(tmp_path / "out" / record["file_name"])
        said = model.predict(picture[None])[0]
        after = record["failures"][0]["after"]
        assert int(said.argmax()) == after["label"] != record["label"]
        assert float(said.max()) == pytest.approx(after["confidence"], abs=1e-6)
        assert float(said[record["label"]]) == pytest.approx(after["truth_confidence"], abs=1e-6)
        clean = model.preprocess.model_input(originals[record["original_id"]])[None]
        assert int(model.predict(clean).argmax()) == record["failures"][0]["before"]["label"] == record["label"]
        assert torch.equal(picture, _render_alone(record, clean)), record["operator"]
        assert record["parameters"]["seed"] == 5 and 0 < record["intensity"] <= 100
        gap = (picture.double() - clean[0].double()) / 255
        assert record["distances"]["mse"] == pytest.approx(float((gap**2).mean()), rel=1e-4)


def _render_alone(record: dict[str, Any], clean: Tensor) -> Tensor:
    """Return an image from a line of metadata, by calling the operator."""
    ids, told = torch.tensor([id_number(record["original_id"])]), record["parameters"]
    if "level" in told:
        return find_operator(record["operator"]).at(clean, told["level"], seed=told["seed"], ids=ids)[0]
    severities = torch.tensor([told["severities"]], dtype=torch.float64)
    change: Property = find_property(record["operator"])
    return change.apply(clean, severities, seed=told["seed"], ids=ids, fields=torch.tensor([told["field"]]))[0]


def test_an_attack_is_rendered_with_its_model(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = moody()
    run = measured(model, unlabelled, tmp_path / "run", operators=["gradient_descent"], levels=6)
    records = curated(run, tmp_path / "out", models=[model])
    for record in records:
        said = model.predict(read_image(tmp_path / "out" / record["file_name"])[None])[0]
        assert float(said.max()) == pytest.approx(record["failures"][0]["after"]["confidence"], abs=1e-5)
    with pytest.raises(brinell.ConfigError, match=r"follows a model's gradient, and model moody can't be opened"):
        curated(run, tmp_path / "other")


# ---- other lenses ----


def test_failures_of_a_lens_from_another_package_are_rendered(tmp_path: Path) -> None:
    pytest.importorskip("brinell_mirror", reason="needs the package tests/plugin")
    run = brinell.run("left_or_right:", "bars:6", lens="mirror", out=tmp_path / "run", execution=PLAIN, quiet=True)
    records = curated(run, tmp_path / "out")
    model, dataset = brinell.open_model("left_or_right:", PLAIN), brinell.open_dataset("bars:6")
    originals = {dataset[index].name: dataset[index].image for index in range(6)}
    assert {record["original"] for record in records} == set(originals) and len(records) == 6
    for record in records:
        assert record["operator"] == "mirror:horizontal" and record["parameters"]["mirrored"] == [1.0]
        mirrored = model.preprocess.model_input(originals[record["original"]]).flip(2)
        assert torch.equal(read_image(tmp_path / "out" / record["file_name"]), mirrored)


def test_spots_of_light_are_rendered_on_the_original(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    models = [brinell.open_model(f"fake:grey:{at}?name={name}", PLAIN) for name, at in (("a", 0.55), ("b", 0.6))]
    run = measured(
        models, unlabelled, tmp_path / "run", name="highlights", sigmas=[8, 16], colour=(255, 200, 100), search_queries=60
    )
    for fail, count in (("any", 1), ("all", 2)):
        records = curated(run, tmp_path / fail, fail=fail, models=models)
        assert {record["operator"] for record in records} == {"highlight:exact", "highlight:least"}
        dataset = brinell.open_dataset(unlabelled["source"])
        originals = {dataset[index].name: dataset[index].image for index in range(len(dataset))}
        for record in records:
            spot = torch.tensor([record["parameters"]["spot"]], dtype=torch.float64)
            lit = add_highlights(originals[record["original"]][None], spot, (255, 200, 100))
            picture = read_image(tmp_path / fail / record["file_name"])
            assert torch.equal(picture, models[0].preprocess.inputs(lit)[0]) and len(record["models"]) >= count
            for failure in record["failures"]:
                (model,) = [one for one in models if one.name == failure["model"]]
                said = model.predict(picture[None])[0]
                assert int(said.argmax()) == failure["after"]["label"] != failure["truth"]
                assert float(said.max()) == pytest.approx(failure["after"]["confidence"], abs=1e-6)


@pytest.mark.parametrize("relative", [False, True])
def test_the_intensity_of_a_spot_is_its_share_of_the_largest_spot_s_light(
    relative: bool, unlabelled: dict[str, Any], tmp_path: Path
) -> None:
    model = brinell.open_model("fake:grey:0.55?name=a", PLAIN)
    sigmas = [0.1, 0.3] if relative else [8, 24]
    options = {"sigmas": sigmas, "relative": relative, "strength": 0.5, "search_queries": 60, "vary_strength": True}
    run = measured(model, unlabelled, tmp_path / "run", name="highlights", **options)
    records = curated(run, tmp_path / "out", every=True, models=[model])
    sizes = dict(run.rows("select image, least(height, width) from samples").fetchall())
    for record in records:
        *_, sigma, strength = record["parameters"]["spot"]
        largest = 0.3 * sizes[record["original_id"]] if relative else 24
        assert record["intensity"] == pytest.approx(100 * strength / 0.5 * (sigma / largest) ** 2, abs=1e-4)
    of_grid = {record["intensity"] for record in records if record["operator"] == "highlight:exact"}
    assert sorted(of_grid) == pytest.approx([100 / 9, 100], abs=1e-4)
    assert min(record["intensity"] for record in records if record["operator"] == "highlight:least") < 100 / 9


# ---- moved images, and pairs of windows ----

SEEN: list[Tensor] = []  # normalised inputs of a model


class Watched(Moody):
    def __init__(self, other: float) -> None:
        super().__init__()
        self.weights.data += other * Moody(4).weights.data

    def forward(self, images: Tensor) -> Tensor:
        if not images.requires_grad:
            SEEN.extend(images.clone())
        return super().forward(images) * 4


def watched(short_side: int | None, other: float = 0.0) -> brinell.Model:
    how: dict[str, Any] = {"size": 32, "mean": (0.4, 0.5, 0.6), "std": (0.2,), "short_side": short_side}
    SEEN.clear()
    return brinell.wrap(Watched(other), classes=CLASSES, name=f"watched{other:g}", execution=PLAIN, **how)


def renderer_of(model: brinell.Model, originals: list[Tensor]) -> Renderer:
    inputs = torch.stack([model.preprocess.model_input(one) for one in originals])
    ids = torch.zeros(len(originals), dtype=torch.int64)
    return Renderer(model.preprocess, inputs, ids, seed=0, originals=originals, device=model.device)


def was_given(model: brinell.Model, given: Tensor, picture: Tensor, *, rounded: bool) -> bool:
    """Whether a model was given an image, bit by bit, or with `rounded` up to whole grey levels."""
    if rounded:
        return bool((model.preprocess.denormalise(given) == picture).flatten(1).all(1).any())
    return bool((given == model.preprocess.normalise(picture[None])).flatten(1).all(1).any())


def check_answers(model: brinell.Model, picture: Tensor, record: dict[str, Any]) -> None:
    (failure,) = record["failures"]
    said = model.predict(picture[None])[0]
    assert int(said.argmax()) == failure["after"]["label"] != failure["truth"] and failure["from"] == "query"
    assert float(said.max()) == pytest.approx(failure["after"]["confidence"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("short_side", [None, 36])
def test_moved_images_are_what_the_model_saw(short_side: int | None, unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = watched(short_side)
    options = {"operators": ["translation"], "methods": ["manifool", "manitest", "random", "grid"], "grid_pixels": 1.0}
    data = {**unlabelled, "limit": 4}
    run = measured(model, data, tmp_path / "run", name="geometry", radii=[0.3, 0.6], draws=2, **options)
    given = torch.stack(SEEN)  # in the run, before the model is queried again
    records = curated(run, tmp_path / "out", every=True, models=[model])
    assert {record["operator"].partition(":")[2] for record in records} == set(options["methods"])
    fooled = run.rows("select image, operator, motion, score from rows where status = 'broken'").fetchall()
    motions = {(image, operator, *motion): score for image, operator, motion, score in fooled}
    for record in records:
        picture = read_image(tmp_path / "out" / record["file_name"])
        assert picture.shape[1:] == (32, 32) and was_given(model, given, picture, rounded=True)
        check_answers(model, picture, record)
        key = (record["original_id"], record["operator"], *record["parameters"]["motion"])
        assert record["amount"] == motions[key] and record["unit"] == "geodesic score"
        assert record["intensity"] == pytest.approx(100 * motions[key] / (1 + motions[key]), abs=1e-4)
        assert record["distances"]["mse"] > 0
    # motions that are left out do not survive rounding
    dataset = brinell.open_dataset(unlabelled["source"])
    originals = [dataset[index].image for index in range(4)]
    names = {image_id(image): place for place, image in enumerate(originals)}
    written = {(one["original_id"], one["operator"], *one["parameters"]["motion"]) for one in records}
    barely = [
        Replay(image, Motion(GROUPS["translation"], "grid"), tuple(motion))
        for image, operator, *motion in motions
        if (image, operator, *motion) not in written
    ]
    clean = {
        image: model.predict(model.preprocess.model_input(originals[place])[None]).argmax()
        for image, place in names.items()
    }
    for number, picture in render(renderer_of(model, originals), barely, names, batch=4):
        assert int(model.predict(picture[None]).argmax()) == int(clean[barely[number].image])
    assert len(barely) < len(motions) / 2
    least = curated(run, tmp_path / "least", models=[model])
    assert len(least) == len({(one["original"], one["operator"]) for one in records})


def test_windows_are_cut_as_pillow_does_and_come_in_pairs(greys: Path, unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = watched(None)
    run = measured(model, unlabelled, tmp_path / "run", name="fragility", sizes=[0.8], stride=2, operators=["windows"])
    given = torch.stack(SEEN)
    records = curated(run, tmp_path / "out", every=True, models=[model])
    assert {record["parameters"]["direction"] for record in records} == {"shift", "shrink"}
    for record in records:
        numbers = list(map(int, record["parameters"]["windows"]))
        lost, kept = (read_image(tmp_path / "out" / file) for file in (record["file_name"], record["before"]))
        with Image.open(greys / record["original"]) as original:
            for picture, (left, top, side) in ((lost, numbers[:3]), (kept, numbers[3:])):
                cut = original.crop((left, top, left + side, top + side)).resize((32, 32), Image.Resampling.BILINEAR)
                assert np.array_equal(picture.permute(1, 2, 0), np.asarray(cut))
                assert was_given(model, given, picture, rounded=False)
        check_answers(model, lost, record)
        assert int(model.predict(kept[None])[0].argmax()) == record["failures"][0]["truth"]
        apart = numbers[5] - numbers[2]
        assert (apart, record["amount"]) == ((0, 1) if record["parameters"]["direction"] == "shift" else (2, 2))
        assert record["unit"] == "pixels" and record["distances"]["mse"] is None
    # the other image of a pair is not part of the dataset
    assert len(brinell.open_dataset(tmp_path / "out")) == len(records)
    paper = curated(run, tmp_path / "paper", layout="paper", models=[model])
    assert all(
        (tmp_path / "paper" / one["before"]).parent == (tmp_path / "paper" / one["file_name"]).parent for one in paper
    )


def test_a_second_model_is_queried_about_moved_images(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    models = [watched(None), watched(None, other=0.1)]
    options = {"operators": ["translation"], "methods": ["random"], "radii": [0.6], "draws": 3}
    run = measured(models, {**unlabelled, "labels": "auto"}, tmp_path / "run", name="geometry", **options)
    for record in curated(run, tmp_path / "out", fail="all", models=models):
        picture = read_image(tmp_path / "out" / record["file_name"])[None]
        assert len(record["failures"]) == 2
        for model, failure in zip(models, record["failures"], strict=True):
            assert int(model.predict(picture)[0].argmax()) == failure["after"]["label"] != failure["truth"]


def test_missing_or_changed_models_are_reported(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    options = {"operators": ["translation"], "methods": ["random"], "radii": [0.6], "draws": 2}
    run = measured(watched(None), unlabelled, tmp_path / "run", name="geometry", **options)
    with pytest.raises(brinell.ConfigError, match="rows of some lenses have no answers to the changed images"):
        curated(run, tmp_path / "out")
    with pytest.raises(brinell.ConfigError, match="differs from the one of"):
        curated(run, tmp_path / "out", models=[dataclasses.replace(watched(None, other=1.0), name="watched0")])


@pytest.mark.parametrize("short_side", [None, 40])
def test_boxes_follow_motions_and_windows(short_side: int | None) -> None:
    image = torch.zeros(3, 60, 80, dtype=torch.uint8)
    image[:, 20:32, 30:50] = 255
    model = watched(short_side)
    pre = model.preprocess
    renderer = renderer_of(model, [image])
    affine, similar = Motion(GROUPS["affine"], "random"), Motion(GROUPS["similarity"], "random")
    for change, parameters in (
        (similar, (0.2, 3.0, -2.0, 0.1)),
        (affine, (0.1, 2.0, 1.0, 0.05, 0.1, 0.15)),
        (window_view("40px", "bilinear", 32, 32), (22.0, 10.0, 40.0)),
        (window_view("30px", "pad", 32, 32), (25.0, 12.0, 30.0)),
    ):
        replay = Replay("one", change, parameters)
        ((_, picture),) = render(renderer, [replay], {"one": 0}, batch=4)
        (box,) = replay.boxes(torch.tensor([[30.0, 20.0, 50.0, 32.0]]), pre, (60, 80)).tolist()
        bright = (picture[0] > 127).nonzero()
        found = [*bright.amin(0).flip(0).tolist(), *(bright.amax(0).flip(0) + 1).tolist()]
        assert box == pytest.approx(found, abs=1.5), change.id


# ---- real networks ----


@pytest.mark.slow
def test_real_networks_fail_on_the_written_images(assets: Path, tmp_path: Path) -> None:
    names = ("cifar10_resnet20", "cifar10_resnet56")
    models = [f"onnx:{assets}/models/{name}.onnx?classes={assets}/models/cifar10.txt" for name in names]
    data = {"source": assets / "images" / "cifar10_test_2000.npz", "limit": 8}
    execution = brinell.Execution(batch=8)
    runs = [
        brinell.run(models, data, lens=lens, out=tmp_path / lens["name"], execution=execution, quiet=True)
        for lens in (
            {"name": "profile", "operators": ["local_blur", "jpeg"], "levels": 8},
            {"name": "knob", "operators": ["fog", "rotation"], "points": 20},
        )
    ]
    records = curated(runs, tmp_path / "out", fail="all")
    opened = {name: brinell.open_model(model) for name, model in zip(names, models, strict=True)}
    assert {record["lens"] for record in records} == {"profile", "knob"}
    for record in records:
        picture = read_image(tmp_path / "out" / record["file_name"])[None]
        assert len(record["failures"]) == 2
        for failure in record["failures"]:
            said = opened[failure["model"]].predict(picture)[0]
            assert int(said.argmax()) == failure["after"]["label"] != record["label"]
            assert float(said.max()) == pytest.approx(failure["after"]["confidence"], abs=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_accelerator_writes_the_same_files(greys: Path, tmp_path: Path) -> None:
    run = measured("fake:grey:0.25", greys, tmp_path / "run", operators=["fade_black", "white_fog", "local_blur"])
    knob = measured("fake:grey:0.25", greys, tmp_path / "knob", name="knob", operators=["brightness", "fog"], points=50)
    for device in ("cpu", "cuda"):
        execution = brinell.Execution(device=device)
        brinell.curate([run, knob], tmp_path / device / "set", {"every": True}, execution=execution, quiet=True)
    assert same_files(tmp_path / "cpu", tmp_path / "cuda")
