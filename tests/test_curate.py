"""Data sets of failures: the right ones, pixel by pixel what the model saw, and readable again."""

from __future__ import annotations

import dataclasses
import filecmp
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from brinell.engine.failures import FAILURES, Failures
from brinell.lenses.tasks import Motion
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.cli.main import main
from brinell.criteria.criterion import find_criterion
from brinell.curation.likeness import Seen, hashes
from brinell.datasets.decode import read_image
from brinell.engine.evaluator import Bench
from brinell.engine.replay import Version, boxes_of, remade
from brinell.engine.runner import assemble, execute
from brinell.lenses.lens import LENSES, Again, Asking, Lens, LensOptions, Shard, Trials
from brinell.motion.groups import GROUPS
from brinell.perturb.highlight import add_highlights
from brinell.perturb.operator import find_operator
from brinell.perturb.property import Property, find_property
from brinell.perturb.view import View
from brinell.perturb.windows import window_view
from brinell.run_config import load_config
from brinell.runs.store import Store
from brinell.types import id_number, image_id
from conftest import PLAIN

CLASSES = ("light", "dark", "red", "blue")


class Moody(nn.Module):
    """Scores that any change of the image moves about."""

    def __init__(self, seed: int = 3) -> None:
        super().__init__()
        weights = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
        self.weights = nn.Parameter(weights - weights.mean((1, 2, 3), keepdim=True))

    def forward(self, images: Tensor) -> Tensor:
        small = nn.functional.adaptive_avg_pool2d(images, 32)
        scores: Tensor = torch.einsum("nchw,kchw->nk", small, self.weights) / 2
        return scores


class Band(nn.Module):
    """ "light", except while the mean grey lies between two values."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.weight = nn.Parameter(torch.tensor([low, high]))  # what tells two of them apart

    def forward(self, images: Tensor) -> Tensor:
        grey = images.mean((1, 2, 3))
        inside = ((grey > self.low) & (grey < self.high)).float()
        return torch.stack([1 - inside, inside], 1) * 4


def moody(name: str = "moody", seed: int = 3, size: int = 32) -> brinell.Model:
    return brinell.wrap(Moody(seed), size=size, classes=CLASSES, name=name, execution=PLAIN)


def band(name: str, low: float, high: float) -> brinell.Model:
    return brinell.wrap(Band(low, high), size=32, classes=("light", "dark"), name=name, execution=PLAIN)


def measured(model: Any, data: Any, out: Path, **options: Any) -> brinell.Run:
    seed = options.pop("seed", 0)
    lens = {"name": "profile", **options}
    return brinell.run(model, data, lens=lens, out=out, execution=PLAIN, seed=seed, quiet=True)


def curated(runs: Any, out: Path, **options: Any) -> list[dict[str, Any]]:
    given = {key: options.pop(key) for key in ("data", "models") if key in options}
    brinell.curate(runs, out, options, execution=PLAIN, quiet=True, **given)
    return [json.loads(line) for line in (out / "metadata.jsonl").read_text().splitlines()]


def same_files(one: Path, two: Path) -> bool:
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(two)) for path in two.rglob("*") if path.is_file())
    return filecmp.cmpfiles(one, two, names, shallow=False)[0] == names


# ---- finished runs and data sets that tests share and do not write to ----


@pytest.fixture(scope="module")
def unlabelled(shared_greys: Path) -> dict[str, Any]:
    return {"source": shared_greys, "labels": "prediction"}


@pytest.fixture(scope="module")
def foggy(unlabelled: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    out = tmp_path_factory.mktemp("foggy") / "run"
    return measured(moody(), unlabelled, out, operators=["white_fog", "local_blur"], levels=10)


@pytest.fixture(scope="module")
def all_foggy(foggy: brinell.Run, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The records of all failures in the run above."""
    return curated(foggy, tmp_path_factory.mktemp("all") / "out", every=True)


@pytest.fixture(scope="module")
def three_models(unlabelled: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    models = [moody("one", 3), moody("two", 4), moody("three", 5)]
    return measured(models, unlabelled, tmp_path_factory.mktemp("three") / "run", operators=["local_blur"], levels=10)


@pytest.fixture(scope="module")
def two_runs(shared_greys: Path, tmp_path_factory: pytest.TempPathFactory) -> list[brinell.Run]:
    folder = tmp_path_factory.mktemp("two")
    return [
        measured(f"fake:grey:{at}?name={name}", shared_greys, folder / name, operators=["fade_black", "jpeg"], levels=16)
        for name, at in (("a", 0.25), ("b", 0.3))
    ]


# ---- what the model saw ----

LENS = {
    "profile": {"operators": ["local_blur", "white_fog", "jpeg", "boxes", "posterise"], "levels": 5},
    "knob": {"name": "knob", "operators": ["gaussian_noise", "rotation", "snow", "spatial"], "points": 12},
    "fresh": {"name": "knob", "operators": ["gaussian_noise", "fog"], "points": 12, "resample": True},
}


@pytest.mark.parametrize(("lens", "kind"), [("profile", "png"), ("knob", "webp"), ("fresh", "png")])
def test_pictures_are_what_the_model_saw(lens: str, kind: str, unlabelled: dict[str, Any], tmp_path: Path) -> None:
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
        assert torch.equal(picture, _made_alone(record, clean)), record["operator"]
        assert record["parameters"]["seed"] == 5 and 0 < record["intensity"] <= 100
        gap = (picture.double() - clean[0].double()) / 255
        assert record["distances"]["mse"] == pytest.approx(float((gap**2).mean()), rel=1e-4)


def _made_alone(record: dict[str, Any], clean: Tensor) -> Tensor:
    """One picture from one line of metadata, straight from the operator."""
    ids, told = torch.tensor([id_number(record["original_id"])]), record["parameters"]
    if "level" in told:
        return find_operator(record["operator"]).at(clean, told["level"], seed=told["seed"], ids=ids)[0]
    severities = torch.tensor([told["severities"]], dtype=torch.float64)
    change: Property = find_property(record["operator"])
    return change.apply(clean, severities, seed=told["seed"], ids=ids, fields=torch.tensor([told["field"]]))[0]


def test_the_same_command_gives_the_same_bytes(foggy: brinell.Run, tmp_path: Path) -> None:
    for place in ("one", "two"):
        curated(foggy, tmp_path / place / "set", near_duplicates=3, per_class=4)
    assert same_files(tmp_path / "one", tmp_path / "two")


def test_an_attack_is_made_again_with_its_model(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = moody()
    run = measured(model, unlabelled, tmp_path / "run", operators=["gradient_descent"], levels=6)
    records = curated(run, tmp_path / "out", models=[model])
    for record in records:
        said = model.predict(read_image(tmp_path / "out" / record["file_name"])[None])[0]
        assert float(said.max()) == pytest.approx(record["failures"][0]["after"]["confidence"], abs=1e-5)
    with pytest.raises(brinell.ConfigError, match=r"follows a model's gradient, and model moody can't be opened"):
        curated(run, tmp_path / "other")


# ---- which are taken ----


def test_the_least_of_each_image_is_taken(foggy: brinell.Run, all_foggy: list[dict[str, Any]], tmp_path: Path) -> None:
    """Against a plain loop over the rows."""
    right: set[tuple[str, str]] = set()
    failing: dict[tuple[str, str], list[tuple[float, int]]] = {}
    rows = foggy.rows("select operator, image, level, correct, mse from rows order by level").fetchall()
    for operator, image, level, correct, mse in rows:
        if level == 0 and correct:
            right.add((operator, image))
        elif not correct and (operator, image) in right:
            failing.setdefault((operator, image), []).append((mse, level))
    records = curated(foggy, tmp_path / "least")
    found = {(one["operator"], one["original_id"]): one["parameters"]["level"] for one in records}
    assert len(found) == len(records) and found == {key: min(levels)[1] for key, levels in failing.items()}
    told = Counter((one["operator"], one["original_id"]) for one in all_foggy)
    assert told == {key: len(levels) for key, levels in failing.items()}


def test_images_that_were_wrong_before_are_no_failures(greys: Path, tmp_path: Path) -> None:
    """Half of the images are called dark when clean; they are labelled light."""
    run = measured("fake:grey:0.5", greys, tmp_path / "run", operators=["fade_black"], levels=20)
    wrong = {name for (name,) in run.rows("select name from clean join samples using (index) where not correct").fetchall()}
    records = curated(run, tmp_path / "out")
    assert wrong and records and not wrong & {record["original"] for record in records}


@pytest.mark.parametrize("fail", ["any", 2, "all"])
def test_models_that_fail_are_counted_by_rows_of_a_level(fail: Any, three_models: brinell.Run, tmp_path: Path) -> None:
    failing: dict[str, dict[int, set[str]]] = {}
    rows = three_models.rows("select image, level, model, mse from rows where not correct and level > 0").fetchall()
    for image, level, model, _ in rows:  # with their own answers as the truth, all images are right when clean
        failing.setdefault(image, {}).setdefault(level, set()).add(model)
    distance = {(image, level): mse for image, level, _, mse in rows}
    count = {"any": 1, "all": 3}.get(fail, fail)
    expected = {}
    for image, levels in failing.items():
        enough = [(distance[image, level], level) for level, who in levels.items() if len(who) >= count]
        if enough:
            expected[image] = (min(enough)[1], sorted(levels[min(enough)[1]]))
    records = curated(three_models, tmp_path / "out", fail=fail)  # and no model has to be opened
    assert {one["original_id"]: (one["parameters"]["level"], sorted(one["models"])) for one in records} == expected


def test_models_are_asked_about_each_other_s_breaks(greys: Path, tmp_path: Path) -> None:
    """As images darken, the first model fails in a band and recovers before the second one fails; the third never does."""
    models = [band("high", 0.2, 0.26), band("low", 0.05, 0.15), band("wide", 0.1, 0.25), band("never", -1, -0.5)]
    run = measured(models, greys, tmp_path / "run", name="knob", operators=["brightness"], points=100)
    breaks = {(image, model): severity for image, model, severity in run.rows(
        "select image, model, severity from rows where status = 'broken' and direction = 'darker'").fetchall()}  # fmt: skip
    dataset = brinell.open_dataset(greys)
    originals = {image_id(dataset[index].image): dataset[index].image for index in range(len(dataset))}
    change, expected = find_property("brightness"), {}
    for image, original in originals.items():
        clean = models[0].preprocess.model_input(original)[None]
        for severity in sorted({at for (one, _), at in breaks.items() if one == image}, key=abs):
            picture = change.apply(
                clean, torch.tensor([[severity]]).double(), seed=0, ids=torch.zeros(1, dtype=torch.int64)
            )
            failing = [one.name for one in models if int(one.predict(picture).argmax()) == 1]
            if len(failing) >= 2:
                expected[image] = (severity, sorted(failing))
                break
    records = curated(run, tmp_path / "two", fail=2, models=models)
    assert {one["original_id"]: (one["parameters"]["severities"][0], sorted(one["models"])) for one in records} == expected
    assert {told["from"] for record in records for told in record["failures"]} == {"rows", "asked"}
    with pytest.raises(brinell.RunError, match="none is of a version on which at least 3 models fail"):
        curated(run, tmp_path / "three", fail=3, models=models)
    with pytest.raises(brinell.ConfigError, match=r"asked about each other's failures .* can't be opened"):
        curated(run, tmp_path / "none", fail=2)
    with pytest.raises(brinell.ConfigError, match=r"not the one of .* any more"):
        curated(run, tmp_path / "none", fail=2, models=[band("high", 0.1, 0.2), *models[1:]])


def test_models_with_other_canvases_have_pictures_of_their_own(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    models = [moody("small", 3, 32), moody("large", 3, 48)]
    run = measured(models, unlabelled, tmp_path / "run", operators=["white_fog"], levels=10)
    records = curated(run, tmp_path / "out", fail="all")
    assert records
    for record in records:
        (name,) = record["models"]
        side = {"small": 32, "large": 48}[name]
        assert read_image(tmp_path / "out" / record["file_name"]).shape == (3, side, side)
        assert record["models_failing_elsewhere"] == 1
    assert Counter(one["models"][0] for one in records) == {"small": len(records) // 2, "large": len(records) // 2}


def test_runs_are_taken_together(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    """A model that two runs asked the same counts once; another seed is another version; two of one name are told apart."""
    one = measured(moody(), unlabelled, tmp_path / "one", operators=["fade_white", "local_blur"], levels=8)
    again = measured(moody(), unlabelled, tmp_path / "again", operators=["fade_white", "local_blur"], levels=8, seed=1)
    both = curated([one, again], tmp_path / "both", every=True)
    alone = curated(one, tmp_path / "alone", every=True)
    counts = Counter(record["operator"] for record in both)
    assert counts["fade_white:published"] == sum(record["operator"] == "fade_white:published" for record in alone)
    assert {record["parameters"]["seed"] for record in both if record["operator"].startswith("local")} == {0, 1}
    other = measured(moody(seed=9), unlabelled, tmp_path / "other", operators=["fade_white"], levels=8)
    named = curated([one, other], tmp_path / "named", fail="all")
    assert named and {name for record in named for name in record["models"]} == {"moody of one", "moody of other"}


def test_filters_and_what_they_leave(foggy: brinell.Run, all_foggy: list[dict[str, Any]], tmp_path: Path) -> None:
    run, every = foggy, all_foggy
    distances = sorted(record["distances"]["l2"] for record in every)
    low, high = distances[len(distances) // 4], distances[len(distances) // 2]
    near = curated(run, tmp_path / "near", every=True, distance="l2", min_distance=low, max_distance=high)
    assert len(near) == sum(low <= distance <= high for distance in distances)
    margins = [one["failures"][0]["after"] for one in every]
    sure = curated(run, tmp_path / "sure", every=True, margin=0.3)
    assert 0 < len(sure) == sum(one["confidence"] - one["truth_confidence"] >= 0.3 for one in margins) < len(every)
    fog = curated(run, tmp_path / "fog", operators=["white_fog"])
    assert {record["operator"] for record in fog} == {"white_fog:published"}
    few = curated(run, tmp_path / "few", every=True, per_class=3)
    assert max(Counter(record["label"] for record in few).values()) == 3
    assert curated(run, tmp_path / "limited", limit=2)[0] in [json.loads(json.dumps(one)) for one in _least(run, tmp_path)]
    for problem, options in {
        "none has a distance .mse. from 0 to 1e-09": {"max_distance": 1e-9},
        "none has a margin of 1; the largest is": {"margin": 1},
        "no operator 'white_fug' is in these runs; did you mean white_fog": {"operators": ["white_fug"]},
        "no lens 'knob' is in these runs": {"lens": "knob"},
        "2 models should fail, but the runs have 1: moody": {"fail": 2},
        "have no boxes to write as COCO": {"layout": "coco"},
        "fail": {"fail": "some"},
    }.items():
        with pytest.raises(brinell.BrinellError, match=problem) as told:
            curated(run, tmp_path / "none", **options)
        assert "\n" not in str(told.value)


def _least(run: brinell.Run, tmp_path: Path) -> list[dict[str, Any]]:
    return curated(run, tmp_path / "least")


def test_the_least_perturbed_of_each_class_and_operator_come_first(foggy: brinell.Run, tmp_path: Path) -> None:
    all_of_them = curated(foggy, tmp_path / "all")
    groups = {(one["label"], one["operator"]) for one in all_of_them}
    first = curated(foggy, tmp_path / "first", limit=len(groups))
    for label, operator in groups:
        mine = [one["distances"]["mse"] for one in all_of_them if (one["label"], one["operator"]) == (label, operator)]
        (taken,) = [one for one in first if (one["label"], one["operator"]) == (label, operator)]
        assert taken["distances"]["mse"] == min(mine)


# ---- pictures that look alike ----


def test_hashes_are_near_for_what_looks_alike(photographs: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(-12, 13, photographs.shape, generator=generator)
    alike = (photographs.int() + noise).clamp(0, 255).to(torch.uint8)
    brighter = (photographs.float() * 1.15).clamp(0, 255).to(torch.uint8)
    own = hashes(photographs)
    assert own.shape == (3, 64) and int((own != hashes(alike)).sum(1).max()) <= 6
    assert int((own != hashes(brighter)).sum(1).max()) <= 10
    assert min(int((own[a] != own[b]).sum()) for a in range(3) for b in range(a)) > 16
    assert torch.equal(own, torch.cat([hashes(one[None]) for one in photographs])), "in any batch"


def test_hashes_are_those_of_a_plain_dct(photographs: Tensor) -> None:
    fft = pytest.importorskip("scipy.fft")
    for image, bits in zip(photographs, hashes(photographs), strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L").resize((32, 32), Image.Resampling.BILINEAR)
        # undo the scale that SciPy's DCT gives to all frequencies alike
        low = fft.dctn(np.asarray(picture, float), type=2)[:8, :8].flatten() / 4
        middle = np.sort(low[1:])[31]
        assert np.array_equal(bits.numpy(), low > middle)


def test_near_duplicates_are_left_out_as_by_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(1)
    centres = torch.rand(40, 64, generator=generator) > 0.5
    bits = centres[torch.randint(0, 40, (700,), generator=generator)] ^ (torch.rand(700, 64, generator=generator) < 0.07)
    kept: list[Tensor] = []
    seen = Seen(6)
    for own in bits:
        expected = all(int((own != other).sum()) > 6 for other in kept)
        if expected:
            kept.append(own)
        assert seen.takes(own) == expected
    assert 256 < len(kept) < 700, "more than there is room for at first"


def test_near_duplicates_of_a_run(foggy: brinell.Run, all_foggy: list[dict[str, Any]], tmp_path: Path) -> None:
    fewer = curated(foggy, tmp_path / "fewer", every=True, near_duplicates=8)
    own = hashes(torch.stack([read_image(tmp_path / "fewer" / record["file_name"]) for record in fewer]))
    apart = [int((own[a] != own[b]).sum()) for a in range(len(own)) for b in range(a)]
    assert 0 < len(fewer) < len(all_foggy) and min(apart, default=9) > 8


# ---- layouts, read back ----


def test_an_imagefolder_is_a_dataset_on_which_the_model_is_always_wrong(greys: Path, tmp_path: Path) -> None:
    """Labels of class folders are the folders' own numbers; they come back by name."""
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
    told = measured(detector, tmp_path / "out", tmp_path / "again", operators=["white_fog"], levels=1)
    assert told.rows("select count(*) filter (correct) from clean").fetchall() == [(0,)]


# ---- the card ----


def test_the_card_tells_counts_settings_and_licences(greys: Path, tmp_path: Path) -> None:
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
    assert "12 pictures of 12 originals" in card and "| light | 12 |" in card and "| grey:0.25 | 12 |" in card
    assert "- CC BY 2.0: 6 pictures" in card and "- unknown: 6 pictures" in card and "margin: 0.01" in card
    sheet = read_image(tmp_path / "out" / ".card" / "examples.png")
    assert sheet.shape[2] > 300 and int(sheet.min()) < 100
    twice = measured("fake:grey:0.1", tmp_path / "out", tmp_path / "again", operators=["fade_black"], levels=30)
    assert all(record["author"] for record in curated(twice, tmp_path / "third")), "credits stay with what is made of it"


# ---- what can't be done ----


def test_refusals_are_one_line_with_the_fix(greys: Path, tmp_path: Path) -> None:
    run = measured("fake:grey:0.25", greys, tmp_path / "run", operators=["fade_black"], levels=30)
    solid = measured("fake:grey:-1", greys, tmp_path / "solid", operators=["fade_black"], levels=3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("mine")

    def refused(*given: Any, **options: Any) -> str:
        with pytest.raises(brinell.BrinellError) as told:
            curated(*given, **options)
        assert "\n" not in str(told.value)
        return str(told.value)

    assert "there are no failures in" in refused(solid, tmp_path / "out")
    assert "is not empty; give another folder" in refused(run, tmp_path / "full")
    assert (tmp_path / "full" / "a.txt").read_text() == "mine"
    manifest = run.manifest
    run.store.write_manifest({**manifest, "finished": False})
    assert "is not finished; finish it with the command" in refused(run, tmp_path / "out")
    run.store.write_manifest(manifest)
    moved = greys.rename(tmp_path / "elsewhere")
    assert "say where they lie now with --data" in refused(run, tmp_path / "out")
    assert len(curated(run, tmp_path / "found", data=moved)) == 12
    Image.new("RGB", (40, 48)).save(moved / "light" / "05.png")
    assert "light/05.png has changed or moved" in refused(run, tmp_path / "out", data=moved)
    (moved / "light" / "05.png").unlink()
    assert "restore them, or say where they lie now" in refused(run, tmp_path / "out", data=moved)
    pairs = [(np.full((32, 32, 3), 200, np.uint8), 0)]
    listed = measured("fake:grey:0.25", pairs, tmp_path / "listed", operators=["fade_black"], levels=30)
    assert "was a Python object; give it again" in refused(listed, tmp_path / "out")
    assert len(curated(listed, tmp_path / "pairs", data=pairs)) == 1


def test_the_command(greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = measured("fake:grey:0.25", greys, tmp_path / "run", operators=["fade_black", "white_fog"], levels=30)
    capsys.readouterr()
    main(["curate", run.folder, "-o", str(tmp_path / "out"), "--operator", "fade_black", "--limit", "5", "--fail", "1"])
    told = capsys.readouterr().out
    assert told.startswith("5 pictures of 5 originals, 1 operators and 1 classes") and str(tmp_path / "out") in told
    with pytest.raises(SystemExit):
        main(["curate", run.folder, "-o", str(tmp_path / "out")])
    assert capsys.readouterr().err.startswith("error: ")


# ---- another lens takes part ----


def test_a_lens_of_views_takes_part_by_one_entry(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shade(original: Tensor, parameters: Tensor, to_inputs: Callable[[Tensor], Tensor]) -> Tensor:
        images = original.expand(len(parameters), -1, -1, -1).clone()
        for image, (rows,) in zip(images, parameters.to(torch.int64).tolist(), strict=True):
            image[:, :rows] = 0
        return to_inputs(images)

    view = View("shade", "test", shade)

    def ask(shard: Shard, operator: View, options: LensOptions) -> Asking:
        samples = torch.arange(shard.count).repeat_interleave(8)
        rows = torch.arange(8).repeat(shard.count).to(torch.float64)[:, None] * 5
        outcome = yield Trials(samples, operator, rows)
        read = outcome.verdict
        return {
            "sample": samples, "correct": ~outcome.broken, "severity": rows[:, 0], "mse": outcome.difference.mse,
            "prediction": read.prediction, "confidence": read.confidence, "probability": read.probability,
        }  # fmt: skip

    class Options(LensOptions):
        name: str = "shade"

    entry = Failures(
        lambda options: (
            "select model, operator, image, label, [severity], 0, null, 2.5 * severity, severity, prediction, "
            "confidence, probability, mse, mae, l1, l2, linf, l0, changed from rows where lens = 'shade' and not correct"
        ),
        told="parameters",
        complete=lambda operator: True,
    )
    lens = Lens("shade", "", Options, ask, lambda _: [view], lambda *_: 8, originals=True, again=Again(lambda *_: view))
    monkeypatch.setitem(LENSES._parts, "shade", lens)
    monkeypatch.setitem(FAILURES._parts, "shade", entry)
    config = load_config({"models": ["fake:grey:0.25"], "data": str(greys), "lenses": [{"name": "profile"}]}).model_copy(
        update={"lenses": (Options(),), "out": str(tmp_path / "run"), "execution": PLAIN}
    )
    records = curated(execute(assemble(config)).url, tmp_path / "out")
    model, dataset = brinell.open_model("fake:grey:0.25", PLAIN), brinell.open_dataset(greys)
    assert records
    for record in records:
        original = next(dataset[n].image for n in range(12) if dataset[n].name == record["original"]).clone()
        original[:, : int(record["parameters"]["parameters"][0])] = 0
        assert torch.equal(read_image(tmp_path / "out" / record["file_name"]), model.preprocess.model_input(original))


def test_spots_of_light_are_made_again_on_the_original(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    models = [brinell.open_model(f"fake:grey:{at}?name={name}", PLAIN) for name, at in (("a", 0.55), ("b", 0.6))]
    run = measured(
        models, unlabelled, tmp_path / "run", name="highlights", sigmas=[8, 16], colour=(255, 200, 100), budget=60
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


# ---- moved images, and pairs of windows ----

SEEN: list[Tensor] = []  # what a model was given, in its own scale


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


def bench_of(model: brinell.Model, originals: list[Tensor]) -> Bench:
    inputs, nothing = (
        torch.stack([model.preprocess.model_input(one) for one in originals]),
        torch.zeros(len(originals)).long(),
    )
    usual = find_criterion("misclassification")
    return Bench(model, inputs, nothing, nothing, criterion=usual, seed=0, batch=4, originals=originals)


def was_given(model: brinell.Model, given: Tensor, picture: Tensor, *, rounded: bool) -> bool:
    """Whether a picture is among what a model was given, to the bit; `rounded`: to whole grey levels."""
    if rounded:
        return bool((model.preprocess.denormalise(given) == picture).flatten(1).all(1).any())
    return bool((given == model.preprocess.normalise(picture[None])).flatten(1).all(1).any())


def check_answers(model: brinell.Model, picture: Tensor, record: dict[str, Any]) -> None:
    (failure,) = record["failures"]
    said = model.predict(picture[None])[0]
    assert int(said.argmax()) == failure["after"]["label"] != failure["truth"] and failure["from"] == "asked"
    assert float(said.max()) == pytest.approx(failure["after"]["confidence"], abs=1e-6)


@pytest.mark.parametrize("short_side", [None, 36])
def test_moved_images_are_what_the_model_saw(short_side: int | None, unlabelled: dict[str, Any], tmp_path: Path) -> None:
    model = watched(short_side)
    options = {"operators": ["translation"], "methods": ["manifool", "manitest", "random", "grid"], "grid_pixels": 1.0}
    data = {**unlabelled, "limit": 4}
    run = measured(model, data, tmp_path / "run", name="geometry", radii=[0.3, 0.6], draws=2, **options)
    given = torch.stack(SEEN)  # in the run, before the model is asked again
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
    # what is left out fooled the model by less than rounding takes
    dataset = brinell.open_dataset(unlabelled["source"])
    originals = [dataset[index].image for index in range(4)]
    names = {image_id(image): place for place, image in enumerate(originals)}
    written = {(one["original_id"], one["operator"], *one["parameters"]["motion"]) for one in records}
    barely = [
        Version(image, Motion(GROUPS["translation"], "grid"), tuple(motion))
        for image, operator, *motion in motions
        if (image, operator, *motion) not in written
    ]
    clean = {
        image: model.predict(model.preprocess.model_input(originals[place])[None]).argmax()
        for image, place in names.items()
    }
    for number, picture in remade(bench_of(model, originals), barely, names):
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
    # the other of a pair is no picture of the data set
    assert len(brinell.open_dataset(tmp_path / "out")) == len(records)
    paper = curated(run, tmp_path / "paper", layout="paper", models=[model])
    assert all(
        (tmp_path / "paper" / one["before"]).parent == (tmp_path / "paper" / one["file_name"]).parent for one in paper
    )


def test_a_second_model_is_asked_about_moved_images(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    models = [watched(None), watched(None, other=0.1)]
    options = {"operators": ["translation"], "methods": ["random"], "radii": [0.6], "draws": 3}
    run = measured(models, {**unlabelled, "labels": "auto"}, tmp_path / "run", name="geometry", **options)
    for record in curated(run, tmp_path / "out", fail="all", models=models):
        picture = read_image(tmp_path / "out" / record["file_name"])[None]
        assert len(record["failures"]) == 2
        for model, failure in zip(models, record["failures"], strict=True):
            assert int(model.predict(picture)[0].argmax()) == failure["after"]["label"] != failure["truth"]


def test_models_that_are_gone_are_told(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    options = {"operators": ["translation"], "methods": ["random"], "radii": [0.6], "draws": 2}
    run = measured(watched(None), unlabelled, tmp_path / "run", name="geometry", **options)
    with pytest.raises(brinell.ConfigError, match="rows don't say what models say to moved images"):
        curated(run, tmp_path / "out")
    with pytest.raises(brinell.ConfigError, match="is not the one of"):
        curated(run, tmp_path / "out", models=[dataclasses.replace(watched(None, other=1.0), name="watched0")])


@pytest.mark.parametrize("short_side", [None, 40])
def test_boxes_follow_motions_and_windows(short_side: int | None) -> None:
    image = torch.zeros(3, 60, 80, dtype=torch.uint8)
    image[:, 20:32, 30:50] = 255
    model = watched(short_side)
    pre = model.preprocess
    bench = bench_of(model, [image])
    affine, similar = Motion(GROUPS["affine"], "random"), Motion(GROUPS["similarity"], "random")
    for change, parameters in (
        (similar, (0.2, 3.0, -2.0, 0.1)),
        (affine, (0.1, 2.0, 1.0, 0.05, 0.1, 0.15)),
        (window_view("40px", "bilinear", 32, 32), (22.0, 10.0, 40.0)),
        (window_view("30px", "pad", 32, 32), (25.0, 12.0, 30.0)),
    ):
        version = Version("one", change, parameters)
        ((_, picture),) = remade(bench, [version], {"one": 0})
        (box,) = boxes_of(version, torch.tensor([[30.0, 20.0, 50.0, 32.0]]), pre, (60, 80)).tolist()
        bright = (picture[0] > 127).nonzero()
        found = [*bright.amin(0).flip(0).tolist(), *(bright.amax(0).flip(0) + 1).tolist()]
        assert box == pytest.approx(found, abs=1.5), change.id


# ---- a stopped curation ----


@pytest.mark.parametrize("layout", ["imagefolder", "paper"])
def test_a_stopped_curation_goes_on(
    layout: str, two_runs: list[brinell.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = two_runs
    curated(runs, tmp_path / "whole" / "set", every=True, layout=layout)
    write, written = Store.write, []

    def stop(self: Store, data: bytes, *parts: str) -> None:
        written.append(parts)
        if len(written) == 40:
            Path(self.path(*parts)).parent.mkdir(parents=True, exist_ok=True)
            Path(self.path(*parts) + ".half.part").write_bytes(data[:10])
            raise KeyboardInterrupt
        write(self, data, *parts)

    out = tmp_path / "again" / "set"
    monkeypatch.setattr(Store, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        curated(runs, out, every=True, layout=layout)
    monkeypatch.setattr(Store, "write", write)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.png")}
    assert len(before) > 10 and not (out / "metadata.jsonl").exists()
    with pytest.raises(brinell.RunError, match="a part of another data set"):
        curated(runs, out, every=True, layout=layout, limit=3)
    curated(runs, out, every=True, layout=layout)
    assert same_files(tmp_path / "whole", tmp_path / "again")
    assert all(path.stat().st_mtime_ns == time for path, time in before.items()), "what was there is not made again"
    with pytest.raises(brinell.RunError, match="is not empty"):
        curated(runs, out, every=True, layout=layout)


# ---- real networks ----


def test_real_networks_say_the_same_of_what_is_written(assets: Path, tmp_path: Path) -> None:
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
def test_an_accelerator_makes_the_same_files(greys: Path, tmp_path: Path) -> None:
    run = measured("fake:grey:0.25", greys, tmp_path / "run", operators=["fade_black", "white_fog", "local_blur"])
    knob = measured("fake:grey:0.25", greys, tmp_path / "knob", name="knob", operators=["brightness", "fog"], points=50)
    for device in ("cpu", "cuda"):
        execution = brinell.Execution(device=device)
        brinell.curate([run, knob], tmp_path / device / "set", {"every": True}, execution=execution, quiet=True)
    assert same_files(tmp_path / "cpu", tmp_path / "cuda")
