"""Hardening as a whole: it improves the model, leaks nothing, resumes, and writes a model that opens."""

from __future__ import annotations

import importlib
import io
import json
import math
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file, save_file

import brinell
import brinell.hardening.training as loop
from brinell.cli.main import main
from brinell.config.execution import Execution
from brinell.errors import BrinellError
from brinell.hardening.cost import HardeningCost
from brinell.hardening.options import HardenConfig, load_harden_config
from brinell.types import image_id
from small_nets import CLASSES, SIDE, blots, small, wrapped, write_npz

walk = importlib.import_module("brinell.hardening.harden")  # the function has the same name
NETS = f"torch:{Path(__file__).parent}/small_nets.py"
PLAIN = Execution(device="cpu", runtime="torch", batch=32, shard=64)
TRUSTED = PLAIN.model_copy(update={"trust": True})  # the hardened network is made by code that its folder names
EXECUTION = PLAIN.model_dump(mode="json")
MEASURE = {"name": "profile", "operators": ["noise", "fade_black"], "levels": 3}


def settings(tmp_path: Path, factory: str = "small", **options: Any) -> dict[str, Any]:
    """Return the config of a hardening of the small network, on images in a file."""
    data = tmp_path / "data.npz"
    if not data.exists():
        write_npz(data, blots())
        (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    model = {
        "source": f"{NETS}:{factory}",
        "size": SIDE,
        "mean": 0.5,
        "std": 0.25,
        "classes": str(tmp_path / "classes.txt"),
        "name": "net",
    }
    return {
        "model": model,
        "data": str(data),
        "augment": {"operators": [{"name": "noise", "strength": [0, 0.3]}]},
        "training": {"epochs": 2, "batch": 8, "rate": 0.01},
        "measure": MEASURE,
        "out": str(tmp_path / "out"),
        "execution": EXECUTION,
        **options,
    }


def hardened(tmp_path: Path, factory: str = "small", **options: Any) -> brinell.Hardened:
    return brinell.harden(settings(tmp_path, factory, **options), quiet=True)


def parts_of(folder: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(folder) / "parts.jsonl").read_text().splitlines()]


def same_weights(one: Path, two: Path) -> bool:
    left, right = load_file(one), load_file(two)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


# ---- it works ----


@pytest.mark.slow
def test_a_real_network_gets_better_at_what_it_is_trained_on(assets: Path, tmp_path: Path) -> None:
    factory = tmp_path / "factory.py"
    factory.write_text(
        f"import sys\nsys.path.insert(0, {str(assets / 'models')!r})\nimport nets\n"
        "def resnet20():\n    return nets.load('cifar10_resnet20')[0]\n"
    )
    found = brinell.harden(
        {
            "model": {"source": f"torch:{factory}:resnet20", "size": 32},
            "data": {"source": str(assets / "images" / "cifar10_train_5000.npz"), "limit": 200},
            "test": {"source": str(assets / "images" / "cifar10_test_2000.npz"), "limit": 60},
            "parts": {"shares": [0.8, 0.2, 0]},
            "augment": {"operators": [{"name": "white_fog", "strength": [0.1, 0.4]}]},
            "training": {"epochs": 2, "batch": 32, "rate": 5e-4, "floor": 20},
            "measure": {"name": "profile", "operators": ["white_fog", "jpeg"], "levels": 5},
            "out": str(tmp_path / "out"),
            "execution": {"device": "cpu", "batch": 30, "runtime": "torch"},
        },
        quiet=True,
    )
    (fog,), (clean,), (jpeg,) = (found.effect.of(group) for group in ("trained", "clean", "held out"))
    assert fog.operators == ("white_fog:published",) and fog.change.low > 5 and fog.images == 60
    assert jpeg.operators == ("jpeg:standard",) and abs(clean.change.value) < 12
    assert found.effect.sentence.startswith("robustness to white fog +")
    rows = brinell.Run(tmp_path / "out" / "after").rows(
        "select avg(correct::int) from rows where operator like 'white_fog%'"
    )
    assert rows.fetchall() == [(pytest.approx(fog.after),)]
    again = brinell.open_model(f"hardened:{tmp_path / 'out'}", TRUSTED)
    inputs = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    assert torch.allclose(again.predict(inputs), found.model.predict(inputs), atol=1e-5)


# ---- no leak ----


def curated(tmp_path: Path) -> Path:
    """Write all failures of all images: several per image, in every part."""
    content = settings(tmp_path, "learned")
    lens = {"name": "profile", "operators": ["noise", "fade_white", "fade_black"], "levels": 12}
    run = brinell.run(content["model"], content["data"], lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    brinell.curate(run, tmp_path / "failures", {"every": True}, execution=PLAIN, quiet=True)
    return tmp_path / "failures"


def test_no_original_is_in_two_parts_and_none_is_measured_that_was_trained_on(tmp_path: Path) -> None:
    failures = curated(tmp_path)
    found = hardened(tmp_path, "learned", failures=str(failures), seed=3)
    items = parts_of(found.folder)
    parts = defaultdict(set)
    versions = defaultdict(int)
    for item in items:
        parts[item["original"]].add(item["part"])
        versions[item["original"]] += 1
    assert all(len(own) == 1 for own in parts.values()) and max(versions.values()) > 2
    pictures = [item for item in items if not item["clean"]]
    assert {item["part"] for item in pictures} == {"train", "validation", "test"}
    told = [json.loads(line) for line in (failures / "metadata.jsonl").read_text().splitlines()]
    assert sorted(item["original"] for item in pictures) == sorted(one["original_id"] for one in told)
    trained = {item["image"] for item in items if item["part"] != "test"} | {
        item["original"] for item in items if item["part"] != "test"
    }
    for name in ("before", "after"):
        measured = {
            image for (image,) in brinell.Run(Path(found.folder) / name).rows("select image from samples").fetchall()
        }
        assert measured and not measured & trained
        assert measured == {item["image"] for item in items if item["part"] == "test" and item["clean"]}
    held_out = {item["original"] for item in pictures if item["part"] == "test"}
    (effect,) = found.effect.of("failures")
    assert effect.images == len(held_out) and effect.before == 0  # they were failures
    assert {one.partition(":")[0] for one in found.record["operators"]} == {"noise", "fade_white", "fade_black"}


class Watched:
    """Images that record which are read."""

    def __init__(self) -> None:
        self.items, self.touched = blots(), set[int]()

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        self.touched.add(index)
        return self.items[index]


def test_training_reads_no_test_image_and_measuring_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, seen = Watched(), {}

    def spied(name: str) -> Any:
        real = getattr(walk, name)

        def call(*given: Any, **options: Any) -> Any:
            data.touched.clear()
            answer = real(*given, **options)
            seen.setdefault(name, set()).update(data.touched)
            return answer

        return call

    for name in ("_train", "execute"):
        monkeypatch.setattr(walk, name, spied(name))
    content = settings(tmp_path)
    del content["model"], content["data"]
    found = brinell.harden(content, model=wrapped(), data=data, quiet=True)
    places = {image_id(torch.from_numpy(image).permute(2, 0, 1)): number for number, (image, _) in enumerate(data.items)}
    part = {places[item["image"]]: item["part"] for item in parts_of(found.folder)}
    assert {part[index] for index in seen["_train"]} == {"train", "validation"}
    assert {part[index] for index in seen["execute"]} == {"test"}


def test_a_test_set_that_was_trained_on_is_refused(tmp_path: Path) -> None:
    write_npz(tmp_path / "other.npz", [*blots(20, seed=1), blots()[0]])
    with pytest.raises(
        BrinellError, match=r"other\[20\] would be measured, but data\[0\], of the same original, is trained"
    ):
        hardened(tmp_path, test=str(tmp_path / "other.npz"))


def test_photographs_of_one_scene_are_in_one_part(tmp_path: Path) -> None:
    folder = tmp_path / "scenes"
    folder.mkdir()
    lines = []
    for number, (image, label) in enumerate(blots(60)):
        scene, variant = divmod(number // 3, 2)  # two photographs of each scene, of one class
        name = f"{number}.png"
        Image.fromarray(image).save(folder / name)
        told = {"file_name": name, "label": CLASSES[label], "original": f"{label}-{scene}", "variant": variant or None}
        lines.append(json.dumps(told))
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    items = parts_of(hardened(tmp_path, data=str(folder), training={"epochs": 1, "batch": 16}).folder)
    parts = defaultdict(set)
    for item, line in zip(items, lines, strict=True):
        parts[json.loads(line)["original"]].add(item["part"])
    assert len(parts) == 30 and all(len(own) == 1 for own in parts.values())


# ---- interruptions ----


class Stop(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "training",
    [
        {"optimiser": "adam", "schedule": "cosine", "keep": "best"},
        {"optimiser": "sgd", "weight_decay": 5e-4, "schedule": "halve", "rate": 0.05, "floor": 60},
    ],
)
def test_interrupted_training_ends_with_the_same_bits(
    training: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = {"epochs": 4, "batch": 8, "rate": 0.01, **training}
    whole = hardened(tmp_path, training=training, out=str(tmp_path / "whole"))
    real, begun = loop._loss, []

    def stopping(*given: Any) -> Any:
        begun.append(given[-1])
        if begun.count(3) == 2:  # in the middle of the third epoch
            raise Stop
        return real(*given)

    monkeypatch.setattr(loop, "_loss", stopping)
    with pytest.raises(Stop):
        hardened(tmp_path, training=training, out=str(tmp_path / "parts"))
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    again: list[int] = []
    monkeypatch.setattr(loop, "_loss", lambda *given: (again.append(given[-1]), real(*given))[1])
    torch.rand(5)  # dropout must not depend on earlier draws
    parts = hardened(tmp_path, training=training, out=str(tmp_path / "parts"))
    assert set(again) == {3, 4}  # the first two epochs are not trained again
    assert same_weights(tmp_path / "whole" / "model.safetensors", tmp_path / "parts" / "model.safetensors")
    without = [{key: value for key, value in one.items() if key != "seconds"} for one in whole.record["epochs"]]
    assert [{key: one[key] for key in without[0]} for one in parts.record["epochs"]] == without
    monkeypatch.setattr(loop, "_loss", lambda *given: pytest.fail("nothing is trained twice"))
    assert hardened(tmp_path, training=training, out=str(tmp_path / "parts")).effect == parts.effect
    more = hardened(tmp_path, training=training, out=str(tmp_path / "parts"), measure={**MEASURE, "levels": 1})
    assert len(more.effect.effects) == 3 and brinell.Run(tmp_path / "parts" / "before").manifest["finished"]


def test_images_that_don_t_fit_into_memory_train_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hardened(tmp_path, out=str(tmp_path / "kept"))
    monkeypatch.setattr("brinell.hardening.images.MOST_BYTES", 0)
    hardened(tmp_path, out=str(tmp_path / "read"))
    assert same_weights(tmp_path / "kept" / "model.safetensors", tmp_path / "read" / "model.safetensors")


def test_a_folder_of_another_hardening_and_a_checkpoint_that_doesn_t_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hardened(tmp_path)
    with pytest.raises(BrinellError, match=r"holds another hardening \(config.training.rate was 0.01 and is now 0.02\)"):
        hardened(tmp_path, training={"epochs": 2, "batch": 8, "rate": 0.02})
    write_npz(tmp_path / "data.npz", blots(57))
    with pytest.raises(BrinellError, match=r"the images have changed since the hardening in .* began; restore them"):
        hardened(tmp_path)
    write_npz(tmp_path / "data.npz", blots())
    last = tmp_path / "out" / "checkpoints" / "last.safetensors"
    (tmp_path / "out" / "model.safetensors").unlink()
    last.write_bytes(last.read_bytes()[:100])
    with pytest.raises(BrinellError, match=r"is not a checkpoint of brinell .*; remove the folder's checkpoints"):
        hardened(tmp_path)
    last.unlink()
    monkeypatch.setattr(loop, "_decide", lambda *given: (_ for _ in ()).throw(Stop))
    with pytest.raises(Stop):
        hardened(tmp_path, out=str(tmp_path / "other"))
    tensors = {f"weights/{name}": value for name, value in small(4).state_dict().items()}
    (tmp_path / "other" / "checkpoints").mkdir()
    save_file(tensors, tmp_path / "other" / "checkpoints" / "last.safetensors", {"brinell": "{}"})
    with pytest.raises(BrinellError, match=r"doesn't fit the model: head.weight is 4×8 there and 3×8 here; remove"):
        hardened(tmp_path, out=str(tmp_path / "other"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"augment": {"operators": ["nois"]}}, "noise"),
        ({"training": {"epochs": 1, "layers": ["had"]}}, "no layer is named"),
    ],
)
def test_unknown_names_leave_no_folder_behind(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BrinellError, match=message):
        hardened(tmp_path, **wrong)
    assert not (tmp_path / "out").exists()


def test_batch_norms_need_several_images(tmp_path: Path) -> None:
    with pytest.raises(
        BrinellError, match=r"batch norms need at least 2 images per batch, got a batch size of 1 and \d+ images"
    ):
        hardened(tmp_path, training={"epochs": 1, "batch": 1})
    hardened(tmp_path, out=str(tmp_path / "frozen"), training={"epochs": 1, "batch": 1, "batch_norm": "frozen"})


def test_a_test_set_given_with_a_config_is_measured(tmp_path: Path) -> None:
    config = load_harden_config(settings(tmp_path, training={"epochs": 1, "batch": 8}))
    write_npz(tmp_path / "test.npz", blots(9, seed=1))
    found = brinell.harden(config, test=brinell.open_dataset(str(tmp_path / "test.npz")), quiet=True)
    assert len(brinell.Run(Path(found.folder) / "after").rows("select image from samples").fetchall()) == 9


def test_the_record_lists_what_was_trained_on(tmp_path: Path) -> None:
    found = hardened(tmp_path, training={"epochs": 1, "batch": 8})
    assert all(picture["trained"] is (picture["part"] == "train") for picture in parts_of(found.folder))


def test_a_floor_stops_training_and_restores_weights(tmp_path: Path) -> None:
    hardened(tmp_path, training={"epochs": 6, "batch": 8, "rate": 0.02}, out=str(tmp_path / "good"))
    model = brinell.open_model(f"hardened:{tmp_path / 'good'}", TRUSTED)  # accurate, so that it can get worse
    content = settings(tmp_path, out=str(tmp_path / "floor"), training={"epochs": 3, "batch": 8, "rate": 50, "floor": 5})
    found = brinell.harden(content | {"training": content["training"] | {"optimiser": "sgd"}}, model=model, quiet=True)
    assert found.record["kept"] == 0 and len(found.record["epochs"]) == 2
    assert "clean accuracy dropped below the floor in epoch 1" in found.record["stopped"]
    assert same_weights(tmp_path / "floor" / "model.safetensors", tmp_path / "good" / "model.safetensors")
    assert all(effect.change.value == 0 for effect in found.effect.effects)
    with pytest.raises(BrinellError, match=r"the loss is not finite in epoch 1; lower training.rate"):
        hardened(tmp_path, training={"epochs": 1, "batch": 8, "rate": 1e30, "optimiser": "sgd"})


# ---- recipes, and models that open again ----


@pytest.mark.parametrize("recipe", ["plain", "set_normalisation", "squeeze_excitation"])
def test_every_recipe_trains_and_opens_again_for_any_lens(recipe: str, tmp_path: Path) -> None:
    layers = {"layers": ["features.1", "head"]} if recipe == "plain" else {}
    found = hardened(tmp_path, recipe=recipe, training={"epochs": 3, "batch": 8, "rate": 0.02, **layers})
    assert found.record["epochs"][-1]["clean"] > found.record["epochs"][0]["clean"] + 0.2
    weights, first = load_file(Path(found.folder) / "model.safetensors"), small().state_dict()
    if recipe == "plain":
        same = {name for name, value in first.items() if torch.equal(value, weights[name])}
        assert same == {name for name in first if name.startswith("features.0")}
    if recipe == "squeeze_excitation":
        assert bool(weights["features.1.excitation.excite.weight"].any())
    again = brinell.open_model(f"hardened:{found.folder}?name=again", TRUSTED)
    assert (again.preprocess.mean == (0.5,)) == (recipe != "set_normalisation")
    inputs = torch.randint(0, 256, (4, 3, SIDE, SIDE), dtype=torch.uint8)
    assert torch.equal(again.predict(inputs), found.model.predict(inputs))
    run = brinell.run(
        f"hardened:{found.folder}",
        settings(tmp_path)["data"],
        lens={"name": "knob", "operators": ["brightness"], "points": 5},
        out=tmp_path / "knob",
        execution=TRUSTED,
        quiet=True,
    )
    assert len(run.rows("select * from rows").fetchall()) > 0


def test_a_folder_may_not_name_code_to_run(tmp_path: Path) -> None:
    found = hardened(tmp_path, training={"epochs": 1, "batch": 8})
    with pytest.raises(
        BrinellError, match=r"hardened.json names Python code to run \(torch:.*; use --trust if you trust it"
    ):
        brinell.open_model(f"hardened:{found.folder}", PLAIN)
    content = settings(tmp_path)
    lens = {"name": "profile", "operators": ["white_fog"], "levels": 20}
    run = brinell.run(content["model"], content["data"], lens=lens, out=tmp_path / "run", execution=TRUSTED, quiet=True)
    manifest = run.store.manifest()
    assert "trust" not in manifest["source"]["execution"], "consent is not part of a run"
    manifest["source"]["execution"]["trust"] = True  # a stranger's folder may say anything
    run.store.write_manifest(manifest)
    with pytest.raises(BrinellError, match=r"manifest.json names Python code to run"):
        brinell.Run(run.folder).saliency(quiet=True)
    assert brinell.Run(run.folder).saliency({"pairs": 2}, trust=True, quiet=True).models


@pytest.mark.slow
def test_half_precision_chains_and_consistency_train(tmp_path: Path) -> None:
    augment = {"operators": ["noise", "crop", "highlight", "rotation"], "depth": 2, "width": 2, "consistency": 3}
    measure = [
        MEASURE,
        {"name": "knob", "operators": ["rotation", "brightness", "contrast"], "points": 4},
        {"name": "fragility", "sizes": [0.5], "stride": 4},
    ]
    training = {"epochs": 2, "batch": 8, "rate": 0.02, "precision": "bf16"}
    found = hardened(tmp_path, "learned", augment=augment, training=training, measure=measure)
    assert [effect.what for effect in found.effect.effects] == [
        "robustness to random noise",
        "robustness to rotation",
        "robustness to a shift of 50 % windows",
        "held-out fade to black",
        "held-out operators",
        "clean accuracy",
    ]
    assert found.effect.effects[4].operators == ("brightness:standard", "contrast:dsn2020")
    assert found.effect.rows()[2][0].endswith("(1 − share of windows that a small shift flips between right and wrong)")
    # far from guessing
    assert all(0 < epoch["loss"] < 0.5 * math.log(len(CLASSES)) for epoch in found.record["epochs"][1:])
    assert load_file(Path(found.folder) / "model.safetensors")["head.weight"].dtype == torch.float32
    assert found.record["operators"] == ["highlight", "minimal", "noise", "rotation", "windows"]


# ---- failures of runs ----


def test_runs_can_be_named_as_failures(tmp_path: Path) -> None:
    curated(tmp_path)
    found = hardened(
        tmp_path,
        "learned",
        failures=[{"source": str(tmp_path / "run"), "curate": {"operators": ["fade_white"]}}],
        augment={},
        training={"epochs": 1, "clean": False},
    )
    pictures = [item for item in parts_of(found.folder) if not item["clean"]]
    assert pictures and {item["operator"] for item in pictures} == {"fade_white:published"}
    assert found.record["operators"] == ["fade_white"]
    assert "held-out failures" in found.effect.sentence and "held-out operators" in found.effect.sentence


def test_moved_images_know_their_originals(tmp_path: Path) -> None:
    content = settings(tmp_path)
    lens = {"name": "geometry", "operators": ["translation"], "radii": [0.3], "draws": 1, "methods": "random"}
    data = {"source": content["data"], "limit": 24}
    run = brinell.run(content["model"], data, lens=lens, out=tmp_path / "motions", execution=PLAIN, quiet=True)
    run.export_moved(tmp_path / "moved.npz", "translation:random", score=0.3)
    run.export_moved(tmp_path / "moved", "translation:random", score=0.3)
    sets = [brinell.open_dataset(tmp_path / name) for name in ("moved.npz", "moved")]
    images = {image_id(torch.from_numpy(image).permute(2, 0, 1)) for image, _ in blots()}
    origins = [[one.origin(index) for index in range(len(one))] for one in sets]  # type: ignore[attr-defined]
    assert origins[0] == origins[1] and {one.original for one in origins[0]} <= images
    assert {one.operator for one in origins[0]} == {"translation:random"}
    failures = {"source": str(tmp_path / "motions"), "moved": "translation:random", "score": 0.3}
    found = hardened(tmp_path, failures=failures, augment={}, training={"epochs": 1, "batch": 8, "clean": False})
    trained = [picture for picture in parts_of(found.folder) if picture["trained"]]
    assert trained and not any(picture["clean"] or picture["part"] != "train" for picture in trained)
    assert sum(not item["clean"] for item in parts_of(found.folder)) == len(sets[0])
    assert found.record["operators"] == ["translation"]


# ---- bad input ----


def test_bad_input_is_one_line_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = settings(tmp_path)
    lens = {"name": "profile", "operators": ["fade_grey"], "levels": 1}
    right = [
        (image, int(small()((torch.from_numpy(image).permute(2, 0, 1)[None] / 255 - 0.5) / 0.25).argmax()))
        for image, _ in blots(9)
    ]
    write_npz(tmp_path / "right.npz", right)
    brinell.run(content["model"], tmp_path / "right.npz", lens=lens, out=tmp_path / "calm", execution=PLAIN, quiet=True)
    write_npz(tmp_path / "few.npz", blots(4))
    write_npz(tmp_path / "loose.npz", blots(6, seed=9))
    (tmp_path / "plain").mkdir()
    Image.fromarray(blots(1)[0][0]).save(tmp_path / "plain" / "a.png")
    cases = [
        ({"failures": str(tmp_path / "calm")}, "there are no failures in .*; run more operators or levels"),
        (
            {"data": str(tmp_path / "few.npz")},
            "3 of 3 classes have too few originals for 3 parts.*parts.small_classes=pool",
        ),
        ({"failures": str(tmp_path / "loose.npz")}, "doesn't name its original.*unrelated: true"),
        ({"data": str(tmp_path / "plain")}, "the images of plain have no labels, which training needs"),
        ({"training": {"layers": ["tail"]}}, "no layer is named 'tail'"),
        (
            {"failures": {"source": content["data"], "moved": "affine:random"}},
            "failures.0.moved needs a run, but .* is none",
        ),
        ({"model": "http://127.0.0.1:9/v2/models/x"}, "."),
        ({"execution": {**EXECUTION, "precision": "bf16"}}, "too coarse to train; leave execution.precision at fp32"),
        ({"out": "memory://somewhere"}, "expected a local folder as out"),
    ]
    for number, (options, told) in enumerate(cases):
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(content | {"out": str(tmp_path / f"bad{number}")} | options))
        with pytest.raises(SystemExit) as stopped:
            main(["harden", str(file)])
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert stopped.value.code == 2 and re.search(f"^error: .*{told}", said), said


def test_unrelated_images_are_their_own_originals(tmp_path: Path) -> None:
    write_npz(tmp_path / "loose.npz", blots(30, seed=9))
    failures = {"source": str(tmp_path / "loose.npz"), "unrelated": True}
    items = parts_of(hardened(tmp_path, failures=failures, training={"epochs": 1, "batch": 16}).folder)
    assert sum(not item["clean"] for item in items) == 30 and len({item["original"] for item in items}) == 90


# ---- the command ----


def test_the_command_reports_the_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "harden.yaml"
    file.write_text(yaml.safe_dump(settings(tmp_path)))
    main(["harden", str(file), "--set", "training.epochs=1", "--out", str(tmp_path / "told")])
    said = capsys.readouterr()
    assert "epoch 1 of 1: loss " in said.err and "clean validation" in said.err and "accuracy " in said.err
    assert "Robustness to random noise " in said.out and f"model: hardened:{tmp_path / 'told'}" in said.out
    summary = json.loads((tmp_path / "told" / "summary.json").read_text())
    assert summary["sentence"].startswith("robustness to random noise ") and len(summary["epochs"]) == 2
    assert {"trained", "held out", "clean"} == {effect["group"] for effect in summary["effects"]}
    page = (tmp_path / "told" / "summary.html").read_text()
    assert "Before and after" in page and "No image measured here was used for training" in page
    main(["harden", str(file), "--epochs", "1", "--out", str(tmp_path / "told"), "--json"])
    assert json.loads(capsys.readouterr().out)["sentence"] == summary["sentence"]


def test_the_folder_depends_on_what_the_weights_depend_on(tmp_path: Path) -> None:
    def made(**options: Any) -> HardenConfig:
        content = settings(tmp_path, **options)
        del content["out"]
        return load_harden_config(content)

    assert made().folder() == made(measure="profile").folder() == made(execution={}).folder()
    assert made().folder() != made(seed=1).folder() and made().folder().startswith("runs/harden-net-")


# ---- estimates ----


def test_hardening_is_estimated_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "harden.yaml"
    file.write_text(yaml.safe_dump(settings(tmp_path)))
    monkeypatch.setattr("brinell.hardening.cost.HOUR", 1e-9)  # everything is long
    monkeypatch.setattr("brinell.cli.ask.someone_answers", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    with pytest.raises(SystemExit) as left:
        main(["harden", str(file)])
    printed = " ".join(capsys.readouterr().err.split())
    assert left.value.code == 1 and not (tmp_path / "out").exists(), "nothing is written before the answer"
    assert re.search(r"Estimate: about \S+ s \(training \S+ s: 2 epochs of 36 images; measuring \S+ s\)\.", printed)
    assert "That is more than an hour. Cheaper:" in printed and "Nothing was run." in printed
    main(["harden", str(file), "--yes"])
    printed = capsys.readouterr().err
    assert "Estimate:" in printed and "Start?" not in printed and (tmp_path / "out" / "summary.html").exists()
    main(["harden", str(file), "--yes"])
    assert "Estimate:" not in capsys.readouterr().err, "what is left of a hardening is not asked for again"


def test_an_estimate_leaves_the_training_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hardened(tmp_path, out=str(tmp_path / "quiet"))
    brinell.harden(settings(tmp_path, out=str(tmp_path / "announced")))
    assert "Estimate: about" in capsys.readouterr().err
    assert same_weights(*(tmp_path / name / "model.safetensors" for name in ("quiet", "announced")))


def test_the_cheaper_hardening_has_fewer_epochs() -> None:
    cost = HardeningCost(epochs=10, images=1000, training=9000.0, measuring=600.0)
    assert cost.long and cost.lines()[1] == "That is more than an hour. Cheaper: --epochs 3 (about 55 min)."
    assert "fewer images (data.limit)" in replace(cost, training=1e6).lines()[1]
    assert len(replace(cost, training=60.0).lines()) == 1
