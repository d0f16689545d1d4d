"""Which failures are taken, from which runs, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.cli.main import main
from brinell.curation.duplicates import DuplicateFilter, perceptual_hashes
from brinell.datasets.decode import read_image
from brinell.perturb.property import find_property
from brinell.runs.store import Store
from brinell.types import image_id
from curating import band, curated, measured, moody, same_files

# ---- finished runs and datasets that tests share, read-only ----


@pytest.fixture(scope="module")
def foggy(unlabelled: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    out = tmp_path_factory.mktemp("foggy") / "run"
    return measured(moody(), unlabelled, out, operators=["white_fog", "local_blur"], levels=10)


@pytest.fixture(scope="module")
def all_foggy(foggy: brinell.Run, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The records of all failures of the run above."""
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


# ---- which failures are taken ----


def test_the_least_changed_failure_per_image_is_taken(
    foggy: brinell.Run, all_foggy: list[dict[str, Any]], tmp_path: Path
) -> None:
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
    counts = Counter((one["operator"], one["original_id"]) for one in all_foggy)
    assert counts == {key: len(levels) for key, levels in failing.items()}


def test_images_that_are_wrong_when_clean_are_not_failures(greys: Path, tmp_path: Path) -> None:
    """Half of the clean images are predicted dark, but labelled light."""
    run = measured("fake:grey:0.5", greys, tmp_path / "run", operators=["fade_black"], levels=20)
    wrong = {name for (name,) in run.rows("select name from clean join samples using (index) where not correct").fetchall()}
    records = curated(run, tmp_path / "out")
    assert wrong and records and not wrong & {record["original"] for record in records}


@pytest.mark.parametrize("fail", ["any", 2, "all"])
def test_failing_models_are_counted_per_level_from_rows(fail: Any, three_models: brinell.Run, tmp_path: Path) -> None:
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
    records = curated(three_models, tmp_path / "out", fail=fail)  # no model is opened
    assert {one["original_id"]: (one["parameters"]["level"], sorted(one["models"])) for one in records} == expected


def test_models_are_queried_about_breaks_of_other_models(greys: Path, tmp_path: Path) -> None:
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
    assert {answer["from"] for record in records for answer in record["failures"]} == {"rows", "query"}
    with pytest.raises(brinell.RunError, match="at least 3 models never fail on the same changed image"):
        curated(run, tmp_path / "three", fail=3, models=models)
    with pytest.raises(brinell.ConfigError, match=r"queried about each other's failures .* can't be opened"):
        curated(run, tmp_path / "none", fail=2)
    with pytest.raises(brinell.ConfigError, match=r"differs from the one of"):
        curated(run, tmp_path / "none", fail=2, models=[band("high", 0.1, 0.2), *models[1:]])


def test_each_input_size_has_its_own_images(unlabelled: dict[str, Any], tmp_path: Path) -> None:
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


def test_runs_are_combined(unlabelled: dict[str, Any], tmp_path: Path) -> None:
    """A replay that two runs share counts once; seeds make replays differ; models of one name are distinguished."""
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


def test_filters(foggy: brinell.Run, all_foggy: list[dict[str, Any]], tmp_path: Path) -> None:
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
        "has a distance \\(mse\\) between 0 and 1e-09": {"max_distance": 1e-9},
        "has a margin of 1; the largest is": {"margin": 1},
        "no operator 'white_fug' is in these runs; did you mean white_fog": {"operators": ["white_fug"]},
        "no lens 'knob' is in these runs": {"lens": "knob"},
        "2 models should fail, but the runs have 1: moody": {"fail": 2},
        "have no boxes to write as COCO": {"layout": "coco"},
        "fail": {"fail": "some"},
    }.items():
        with pytest.raises(brinell.BrinellError, match=problem) as refused:
            curated(run, tmp_path / "none", **options)
        assert "\n" not in str(refused.value)


def _least(run: brinell.Run, tmp_path: Path) -> list[dict[str, Any]]:
    return curated(run, tmp_path / "least")


def test_the_least_changed_of_each_class_and_operator_come_first(foggy: brinell.Run, tmp_path: Path) -> None:
    all_of_them = curated(foggy, tmp_path / "all")
    groups = {(one["label"], one["operator"]) for one in all_of_them}
    first = curated(foggy, tmp_path / "first", limit=len(groups))
    for label, operator in groups:
        mine = [one["distances"]["mse"] for one in all_of_them if (one["label"], one["operator"]) == (label, operator)]
        (taken,) = [one for one in first if (one["label"], one["operator"]) == (label, operator)]
        assert taken["distances"]["mse"] == min(mine)


def test_the_same_command_gives_the_same_bytes(foggy: brinell.Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        curated(foggy, tmp_path / name / "set", near_duplicates=3, per_class=4)
    assert same_files(tmp_path / "one", tmp_path / "two")


# ---- near-duplicates ----


def test_hashes_of_similar_images_are_close(photographs: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(-12, 13, photographs.shape, generator=generator)
    alike = (photographs.int() + noise).clamp(0, 255).to(torch.uint8)
    brighter = (photographs.float() * 1.15).clamp(0, 255).to(torch.uint8)
    own = perceptual_hashes(photographs)
    assert own.shape == (3, 64) and int((own != perceptual_hashes(alike)).sum(1).max()) <= 6
    assert int((own != perceptual_hashes(brighter)).sum(1).max()) <= 10
    assert min(int((own[a] != own[b]).sum()) for a in range(3) for b in range(a)) > 16
    assert torch.equal(own, torch.cat([perceptual_hashes(one[None]) for one in photographs])), "in any batch"


def test_hashes_are_those_of_a_plain_dct(photographs: Tensor) -> None:
    fft = pytest.importorskip("scipy.fft")
    for image, bits in zip(photographs, perceptual_hashes(photographs), strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L").resize((32, 32), Image.Resampling.BILINEAR)
        # undo the scale that SciPy's DCT gives to all frequencies alike
        low = fft.dctn(np.asarray(picture, float), type=2)[:8, :8].flatten() / 4
        middle = np.sort(low[1:])[31]
        assert np.array_equal(bits.numpy(), low > middle)


def test_near_duplicates_are_dropped_as_in_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(1)
    centres = torch.rand(40, 64, generator=generator) > 0.5
    bits = centres[torch.randint(0, 40, (700,), generator=generator)] ^ (torch.rand(700, 64, generator=generator) < 0.07)
    kept: list[Tensor] = []
    seen = DuplicateFilter(6)
    for own in bits:
        expected = all(int((own != other).sum()) > 6 for other in kept)
        if expected:
            kept.append(own)
        assert seen.admit(own) == expected
    assert 256 < len(kept) < 700, "more than the filter initially holds"


def test_near_duplicates_of_a_run(foggy: brinell.Run, all_foggy: list[dict[str, Any]], tmp_path: Path) -> None:
    fewer = curated(foggy, tmp_path / "fewer", every=True, near_duplicates=8)
    own = perceptual_hashes(torch.stack([read_image(tmp_path / "fewer" / record["file_name"]) for record in fewer]))
    apart = [int((own[a] != own[b]).sum()) for a in range(len(own)) for b in range(a)]
    assert 0 < len(fewer) < len(all_foggy) and min(apart, default=9) > 8


# ---- refusals ----


def test_refusals_are_one_line_with_the_fix(greys: Path, tmp_path: Path) -> None:
    run = measured("fake:grey:0.25", greys, tmp_path / "run", operators=["fade_black"], levels=30)
    solid = measured("fake:grey:-1", greys, tmp_path / "solid", operators=["fade_black"], levels=3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("mine")

    def refused(*given: Any, **options: Any) -> str:
        with pytest.raises(brinell.BrinellError) as caught:
            curated(*given, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "there are no failures in" in refused(solid, tmp_path / "out")
    assert "is not empty; choose another folder" in refused(run, tmp_path / "full")
    assert (tmp_path / "full" / "a.txt").read_text() == "mine"
    manifest = run.manifest
    run.store.write_manifest({**manifest, "finished": False})
    assert "is not finished; rerun its command" in refused(run.folder, tmp_path / "out")
    run.store.write_manifest(manifest)
    moved = greys.rename(tmp_path / "elsewhere")
    assert "give their new location with --data" in refused(run, tmp_path / "out")
    assert len(curated(run, tmp_path / "found", data=moved)) == 12
    Image.new("RGB", (40, 48)).save(moved / "light" / "05.png")
    assert "light/05.png has changed or moved" in refused(run, tmp_path / "out", data=moved)
    (moved / "light" / "05.png").unlink()
    assert "restore them, or give their new location" in refused(run, tmp_path / "out", data=moved)
    pairs = [(np.full((32, 32, 3), 200, np.uint8), 0)]
    listed = measured("fake:grey:0.25", pairs, tmp_path / "listed", operators=["fade_black"], levels=30)
    assert "was a Python object; pass it again from Python (data=…)" in refused(listed, tmp_path / "out")
    assert len(curated(listed, tmp_path / "pairs", data=pairs)) == 1


def test_the_command(greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = measured("fake:grey:0.25", greys, tmp_path / "run", operators=["fade_black", "white_fog"], levels=30)
    capsys.readouterr()
    main(["curate", run.folder, "-o", str(tmp_path / "out"), "--operator", "fade_black", "--limit", "5", "--fail", "1"])
    printed = capsys.readouterr().out
    assert printed.startswith("5 images of 5 originals, 1 operator and 1 class") and str(tmp_path / "out") in printed
    with pytest.raises(SystemExit):
        main(["curate", run.folder, "-o", str(tmp_path / "out")])
    assert capsys.readouterr().err.startswith("error: ")


# ---- interruptions ----


@pytest.mark.parametrize("layout", ["imagefolder", "paper"])
def test_an_interrupted_curation_resumes(
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
    with pytest.raises(brinell.RunError, match="a part of another dataset"):
        curated(runs, out, every=True, layout=layout, limit=3)
    curated(runs, out, every=True, layout=layout)
    assert same_files(tmp_path / "whole", tmp_path / "again")
    assert all(path.stat().st_mtime_ns == time for path, time in before.items()), "existing images are not rendered again"
    curated(runs, out, every=True, layout=layout)  # as after a kill at the very end
    assert same_files(tmp_path / "whole", tmp_path / "again")
    with pytest.raises(brinell.RunError, match="holds another dataset"):
        curated(runs, out, every=True, layout=layout, limit=3)
