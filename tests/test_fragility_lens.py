"""The fragility lens end to end: maps, rows, minimal images, people's, detectors, the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.boxes import move_boxes
from brinell.cli.main import main
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.renderer import Renderer
from brinell.errors import BrinellError, ConfigError
from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.fragile import find_fragile
from brinell.lenses.fragility.human import HumanWindows, compare, compare_image, mark_covered, read_human
from brinell.lenses.fragility.lens import METHOD, measure, select_views
from brinell.lenses.fragility.maps import Maps, read_maps, unpack
from brinell.lenses.fragility.minimal import Descent, descend, largest_windows
from brinell.lenses.fragility.options import FragilityOptions
from brinell.lenses.fragility.pictures import describe_shift
from brinell.lenses.fragility.windows import Array, Neighbourhood
from brinell.models.activations import activations
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.perturb.change import Layout
from brinell.perturb.windows import window_view
from brinell.runs.store import Store
from brinell.types import id_number, image_id
from conftest import PLAIN
from test_fragile_maps import some_maps

SIZES = (0.3, 0.6)


class Lighter(nn.Module):
    """Says 1 where the left half of an image is lighter than its right half."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Conv2d(3, 4, 3, padding=1)
        nn.init.constant_(self.look.weight, 0.1)
        nn.init.zeros_(self.look.bias)

    def forward(self, images: Tensor) -> Tensor:
        left, right = images.tensor_split(2, 3)
        difference = left.mean((1, 2, 3)) - right.mean((1, 2, 3))
        return torch.stack([-difference, difference], 1) * 20 + 0 * self.look(images).mean()


class MuchLighter(Lighter):
    """Says 1 where it is lighter by some: a single pixel never is."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) + torch.tensor([0.5, 0.0])


def lighter(size: int = 16) -> Model:
    return brinell.wrap(Lighter(), size=size, execution=PLAIN, name="lighter", classes=("right", "left"))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three grainy images of several sizes."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for index, (height, width) in enumerate([(26, 31), (33, 26), (8, 9)]):
        pixels = np.random.default_rng(index).integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    (folder / "metadata.csv").write_text("file_name,label\n0.png,0\n1.png,1\n2.png,1\n")
    return folder


def measured(data: Any, out: Path, model: Model | None = None, **options: Any) -> brinell.Run:
    lens = {"name": "fragility", "sizes": SIZES, **options}
    return brinell.run(
        model or lighter(), {"source": data, "labels": "index"}, lens=lens, out=out, execution=PLAIN, quiet=True
    )


def found_in(run: brinell.Run) -> FragilityFindings:
    found = run.summary()
    assert isinstance(found, FragilityFindings)
    return found


def one_at_a_time(model: Model, image: Tensor, side: int, fit: Any = Image.Resampling.BILINEAR) -> tuple[Array, Array]:
    """Return the labels and the probabilities of all windows, by Pillow and the model, one after the other."""
    pre, picture = model.preprocess, Image.fromarray(image.permute(1, 2, 0).numpy())
    rows = []
    for top in range(image.shape[1] - side + 1):
        for left in range(image.shape[2] - side + 1):
            cut = picture.crop((left, top, left + side, top + side)).resize((pre.width, pre.height), fit)
            rows.append(model.predict(torch.from_numpy(np.array(cut)).permute(2, 0, 1)[None])[0])
    scores = torch.stack(rows).view(image.shape[1] - side + 1, image.shape[2] - side + 1, -1)
    return scores.argmax(-1).numpy(), scores.numpy()


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_maps_are_those_of_windows_cut_one_at_a_time(pictures: Path, batch: int) -> None:
    model = lighter()
    images = [brinell.open_dataset(str(pictures))[index].image for index in range(2)]
    evaluator = evaluator_of(model, images, [0, 1], batch=batch)
    options = FragilityOptions(sizes=(0.6,))
    (view,) = select_views(options)
    columns = evaluator.drive(measure(evaluator.shard(), view, options))
    files = columns["files"].content  # type: ignore[union-attr]
    for image, label in zip(images, (0, 1), strict=True):
        maps = unpack_of(files, image)
        assert maps.small is not None
        for answers in (maps.large, maps.small):
            labels, scores = one_at_a_time(model, image, answers.grid.side)
            assert np.array_equal(answers.label, labels)
            assert np.array_equal(answers.correct, labels == label)
            assert float(np.abs(answers.confidence - scores[..., label]).max()) < 0.5 / 255 + 1e-5


def unpack_of(files: Any, image: Tensor) -> Maps:
    (content,) = [content for name, content in files.items() if name.endswith(f"{image_id(image)}.npz")]
    return unpack(content)


def evaluator_of(model: Model, images: list[Tensor], labels: list[int], *, batch: int = 8) -> Evaluator:
    inputs = torch.stack([model.preprocess.model_input(image) for image in images])
    ids = torch.tensor([id_number(image_id(image)) for image in images])
    originals = [model.preprocess.convert_channels(image) for image in images]
    renderer = Renderer(model.preprocess, inputs, ids, seed=0, originals=originals)
    criterion = find_criterion(
        "default", model.classes, model.outputs, task="classification" if model.detector is None else "detection"
    )
    return Evaluator(model, renderer, torch.tensor(labels), criterion=criterion, batch=batch)


def test_rows_count_what_the_maps_show(pictures: Path, tmp_path: Path) -> None:
    run = measured(pictures, tmp_path / "run")
    rows = run.rows(
        """select operator, image, kind, side, windows, recognised, fragile, lost, gained, x, y, to_x, to_y, drop from rows
           where status = 'measured' and judged_by = 'correct'"""
    ).fetchall()
    assert len(rows) == 3 * 2 * 4  # images, sizes, kinds
    for operator, image, kind, side, windows, recognised, flips, lost, gained, x, y, to_x, to_y, drop in rows:
        maps = read_maps(run, "lighter", operator, image)
        large, small = maps.large, maps.small
        assert small is not None and large.grid.side == side and windows == large.correct.size
        assert recognised == int(large.correct.sum()) and flips == lost + gained
        if kind == "loose shrink":
            patches = nine(small.correct)
            assert lost == int((large.correct & ~patches.all(2)).sum())
            assert gained == int((~large.correct & patches.any(2)).sum())
            if drop is not None:
                assert bool(large.correct[y, x]) and not bool(small.correct[to_y, to_x])
                assert drop == pytest.approx(float(large.confidence[y, x] - small.confidence[to_y, to_x]), abs=0.01)
        if kind == "strict shift" and flips == windows:
            pytest.fail("grainy images have some windows that are not fragile")
    shares = found_in(run).share("lighter", "windows:0.6", "loose shift")
    assert shares is not None and shares.images == 3
    by_hand = [row[6] / row[4] for row in rows if row[0] == "windows:0.6" and row[2] == "loose shift"]
    assert shares.share.value == pytest.approx(np.mean(by_hand)) and shares.share.low < shares.share.value


def nine(shrunk: Array) -> Array:
    """Return the nine values inside each window of a map of shrunken windows, (tops, lefts, 9)."""
    patches = np.lib.stride_tricks.sliding_window_view(shrunk, (3, 3))
    return patches.reshape(*patches.shape[:2], 9)


def test_a_stride_samples_the_same_windows(pictures: Path, tmp_path: Path) -> None:
    """What is judged with a stride is judged as without."""
    whole, sparse = measured(pictures, tmp_path / "all"), measured(pictures, tmp_path / "some", stride=4)
    for image in ("select image from samples where height > 20",):
        for (name,) in whole.rows(image).fetchall():
            all_maps, some = (read_maps(run, "lighter", "windows:0.6", name) for run in (whole, sparse))
            tops, lefts = some.large.grid.tops, some.large.grid.lefts
            assert np.array_equal(some.large.label, all_maps.large.at(tops, lefts, "label")[0])
            assert some.large.label.size < all_maps.large.label.size
    assert found_in(sparse).stride == 4


def test_images_that_are_too_small_are_counted(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = measured(pictures, tmp_path / "run", sizes=[12])
    assert run.rows("select image, status from rows where status != 'measured'").fetchall() == [
        (run.rows("select image from samples where height = 8").fetchall()[0][0], "too small")
    ]
    assert found_in(run).too_small == {"windows:12px": 1}
    with pytest.raises(ConfigError, match="size 64px fits no image: windows of 64 pixels in images of at most"):
        measured(pictures, tmp_path / "none", sizes=[64])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": [0.0]}, "share of the shorter side in (0, 1]"),
        ({"sizes": [-0.2]}, "share of the shorter side in (0, 1]"),
        ({"sizes": [1.5]}, "whole number of pixels; got 1.5"),
        ({"sizes": [2]}, "windows of 2 pixels can't be shrunk by two; use 3 or more"),
        ({"operators": ["window"]}, "has no operator 'window'; did you mean windows"),
        ({"stride": 0}, "stride"),
        ({"neighbours": 6}, "neighbours"),
        ({"layers": ["nose"]}, "has no layer 'nose'; "),
        ({"fit": "pad", "sizes": [20]}, "padded to 16×16"),
        ({"fit": "pad", "operators": ["minimal"]}, "which can't be padded; use another fit"),
        ({"step": 1.5}, "or a whole number of pixels; got 1.5"),
    ],
)
def test_wrong_options_are_reported_in_a_line(pictures: Path, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BrinellError) as raised:
        measured(pictures, tmp_path / "run", **options)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_a_layer_that_gives_no_map_is_refused_before_anything_is_measured(pictures: Path, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 16), nn.Flatten(), nn.Linear(2, 2))
    model = brinell.wrap(module, size=16, execution=PLAIN, name="flat", classes=("right", "left"))
    with pytest.raises(ConfigError, match=r"the output of layer 2 of flat is not a map \(N, C, H, W\); name another layer"):
        measured(pictures, tmp_path / "run", model, layers=["2"])
    assert not (tmp_path / "run" / "rows").exists()


def test_a_run_resumes_inside_an_image(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are sizes: a run that was interrupted after the first one measures only the second."""
    started: list[str] = []
    own = Evaluator.drive

    def stopped(self: Evaluator, measuring: Any, journal: Any) -> Any:
        started.append(measuring.gi_frame.f_locals["operator"].id)
        if len(started) == 2:
            raise KeyboardInterrupt
        return own(self, measuring, journal)

    monkeypatch.setattr(Evaluator, "drive", stopped)
    with pytest.raises(KeyboardInterrupt):
        measured(pictures, tmp_path / "run")
    assert len(Store(tmp_path / "run").unit_files()) == 1
    run = measured(pictures, tmp_path / "run")
    assert started == ["windows:0.3", "windows:0.6", "windows:0.6"]
    again = measured(pictures, tmp_path / "other")
    sql = "select * from rows order by operator, image, kind, judged_by"
    assert run.rows(sql).fetchall() == again.rows(sql).fetchall()


def test_a_run_resumes_inside_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers on a part of a large map are kept and not queried again."""
    monkeypatch.setattr("brinell.lenses.fragility.lens.PIECE", 300)
    monkeypatch.setattr("brinell.lenses.fragility.lens.METHOD", replace(METHOD, trials_per_unit=500))
    images = [(np.random.default_rng(7).integers(0, 256, (40, 44, 3), np.uint8), 1)]
    counts: list[int] = []
    own = Evaluator.query

    def stopped(self: Evaluator, trials: Any) -> Any:
        counts.append(len(trials.samples))
        if len(counts) == 3:
            raise KeyboardInterrupt
        return own(self, trials)

    monkeypatch.setattr(Evaluator, "query", stopped)
    with pytest.raises(KeyboardInterrupt):
        measured(images, tmp_path / "run", sizes=[0.5])
    run = measured(images, tmp_path / "run", sizes=[0.5])
    hood = Neighbourhood.of(21, 40, 44)
    assert sum(counts) == len(hood) + 300  # the piece that was interrupted was queried twice
    assert not run.store.exists("unfinished")
    again = measured(images, tmp_path / "other", sizes=[0.5])
    sql = "select * from rows order by kind, judged_by"
    assert run.rows(sql).fetchall() == again.rows(sql).fetchall()


def test_units_hold_about_as_many_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brinell.lenses.fragility.lens.METHOD", replace(METHOD, trials_per_unit=500))
    images = [(np.random.default_rng(index).integers(0, 256, (20, 20, 3), np.uint8), 0) for index in range(6)]
    run = measured(images, tmp_path / "run", sizes=[0.6])  # 13 and 11 pixels: 64 + 100 windows an image
    assert [Path(file).name for file in run.store.unit_files()] == ["00000.parquet", "00001.parquet"]


# ---- location ----


def test_an_image_at_every_position_on_black(pictures: Path, tmp_path: Path) -> None:
    run = measured(pictures, tmp_path / "run", operators=["location"], sizes=[8])
    model, image = lighter(), brinell.open_dataset(str(pictures))[0].image
    small = np.asarray(
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((8, image.shape[1]), Image.Resampling.BILINEAR)
    )
    small = np.asarray(Image.fromarray(small).resize((8, 8), Image.Resampling.BILINEAR))
    maps = read_maps(run, "lighter", "location:8px", image_id(image))
    assert maps.small is None and maps.large.label.shape == (9, 9)
    for top in range(9):
        for left in range(9):
            model_input = np.zeros((16, 16, 3), np.uint8)
            model_input[top : top + 8, left : left + 8] = small
            assert int(maps.large.label[top, left]) == int(
                model.predict(torch.from_numpy(model_input).permute(2, 0, 1)[None]).argmax()
            )
    kinds = {kind for (kind,) in run.rows("select distinct kind from rows").fetchall()}
    assert kinds == {"loose shift", "strict shift"}
    assert (
        found_in(run)
        .verdict("lighter")
        .startswith("With the whole image at 8 px on black, a one-pixel shift changes lighter's")
    )


# ---- minimal images ----


@pytest.mark.parametrize("step", [0.7, 2.0])
def test_the_tree_search_finds_what_recursion_finds(step: float) -> None:
    model = brinell.wrap(MuchLighter(), size=16, execution=PLAIN, name="much", classes=("right", "left"))
    generator = np.random.default_rng(3)
    images = [torch.from_numpy(generator.integers(0, 256, (3, 12 + index, 17), np.uint8)) for index in range(6)]
    labels = [1] * len(images)
    evaluator = evaluator_of(model, images, labels)
    descent = Descent(step, 10_000)
    view = window_view("", "bilinear", 16, 16)
    found = evaluator.drive(descend(view, largest_windows(evaluator.shard().sizes), descent))  # type: ignore[arg-type]
    ours = {
        (int(sample), int(side), *corner)
        for windows, _, _ in found.parts  # type: ignore[attr-defined]
        for sample, side, corner in zip(windows.sample, windows.side, windows.corner.tolist(), strict=True)
    }
    expected: set[tuple[int, ...]] = set()
    for sample, (image, label) in enumerate(zip(images, labels, strict=True)):
        known: dict[tuple[int, int, int], bool] = {}

        def right(left: int, top: int, side: int, image: Tensor = image, label: int = label, known: Any = known) -> bool:
            if (left, top, side) not in known:
                picture = Image.fromarray(image[:, top : top + side, left : left + side].permute(1, 2, 0).numpy().copy())
                model_input = torch.from_numpy(np.array(picture.resize((16, 16), Image.Resampling.BILINEAR))).permute(
                    2, 0, 1
                )
                known[left, top, side] = int(model.predict(model_input[None]).argmax()) == label
            return known[left, top, side]

        def walk(
            left: int, top: int, side: int, seen: set[tuple[int, int, int]], sample: int = sample, right: Any = right
        ) -> None:
            if (left, top, side) in seen or not right(left, top, side):
                return
            seen.add((left, top, side))
            less = descent.side(side)
            children = [(left + x, top + y, less) for x, y in descent.offsets(side - less).tolist()] if less >= 1 else []
            if children and not any(right(*child) for child in children):
                expected.add((sample, side, left, top))
            for child in children:
                walk(*child, seen)

        height, width = image.shape[1:]
        side, seen = min(height, width), set()
        for share in (0, 1, 2):
            walk((width - side) * share // 2, (height - side) * share // 2, side, seen)
    assert ours == expected and len(ours) > 5
    assert bool(found.bottom) is (step == 2)  # from 2 pixels nothing is left  # type: ignore[attr-defined]


def test_a_window_that_can_t_be_shrunk_is_no_minimal_image(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    Image.fromarray(np.full((8, 8, 3), 99, np.uint8)).save(tmp_path / "pictures" / "0.png")
    (tmp_path / "pictures" / "metadata.csv").write_text("file_name,label\n0.png,0\n")
    run = measured(tmp_path / "pictures", tmp_path / "run", operators=["minimal"])  # one colour: right at every size
    assert run.rows("select distinct status from rows").fetchall() == [("recognised to the end",)]
    assert found_in(run).minimal[0].windows == ()


def test_images_too_large_for_the_model_input_are_refused(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(BrinellError, match=r"images of 20 pixels on a model input of 16×16"):
        measured(pictures, tmp_path / "run", operators=["location"], sizes=[20])


def test_minimal_images_as_rows(pictures: Path, tmp_path: Path) -> None:
    run = measured(pictures, tmp_path / "run", operators=["minimal"], beam=3)
    found = found_in(run)
    assert {one.image for one in found.minimal} == {name for (name,) in run.rows("select image from samples").fetchall()}
    assert not all(one.complete for one in found.minimal)  # so few branches are not all
    assert "minimal images per photograph or more (not all branches were searched)" in found.verdict("lighter")
    for side, left, top, confidence in (window for one in found.minimal for window in one.windows):
        assert side >= 1 and left >= 0 and top >= 0 and confidence >= 0.5
    page = Path(run.report()).read_text(encoding="utf-8")
    assert page.count('class="viewer"') == 1 and "Every square window" not in page  # they are drawn on the photographs


# ---- people ----


def test_people_s_minimal_images_and_a_model_s() -> None:
    """Places and areas, by plain sets."""
    hood = Neighbourhood.of(9, 30, 40)
    large, small = some_maps(5, hood, 0.97)
    boxes = np.array([[2, 3, 11, 12], [2.2, 3, 11.2, 12], [20, 14, 29, 23], [0, 0, 30, 30]], np.float32)
    found = compare_image("x", HumanWindows(boxes), large, small, size=(30, 40))
    strict = (nine(small.correct) != large.correct[..., None]).all(2)
    models = {tuple(position) for position in np.argwhere(strict).tolist()}
    people = {(3, 2), (14, 20)}  # two of one place, and one of another size
    assert (found.people, found.model) == (2, len(models))
    assert found.position_iou == pytest.approx(len(models & people) / len(models | people))
    area = [
        {(y, x) for top, left in own for y in range(top, top + 9) for x in range(left, left + 9)}
        for own in (models, people)
    ]
    assert found.area_iou == pytest.approx(len(area[0] & area[1]) / len(area[0] | area[1]))
    assert int(mark_covered(strict, hood.judged, (30, 40)).sum()) == len(area[0])


def test_people_s_minimal_images_from_files(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "people.csv").write_text("image,left,top,right,bottom\n0.png,1,2,16,17\n0.png,3,4,18,19\n")
    (tmp_path / "people.json").write_text(json.dumps({"photos/0.png": [[1, 2, 16, 17], [3, 4, 18, 19]]}))
    picture = np.zeros((26, 31), np.uint8)
    picture[9, 8] = picture[11, 10] = 255  # the middles
    (tmp_path / "maps").mkdir()
    Image.fromarray(picture).save(tmp_path / "maps" / "0.png")
    run = measured(pictures, tmp_path / "run", sizes=[15])
    compared = [compare(run, tmp_path / name, "windows:15px") for name in ("people.csv", "people.json", "maps")]
    assert compared[0] == compared[1] == compared[2]
    assert compared[0]["lighter"][0].people == 2
    main(["human", run.folder, str(tmp_path / "people.csv"), "--operator", "windows:15px"])
    assert "Minimal images per image: 2.0 for people" in " ".join(capsys.readouterr().out.split())
    for name, words in (("gone.csv", "does not exist"), ("metadata.csv", "expected a table with the columns image, left")):
        with pytest.raises(BrinellError, match=words):
            read_human(pictures / name)
    with pytest.raises(BrinellError, match="did you mean windows:15px"):
        compare(run, tmp_path / "people.csv", "windows:0.15")


# ---- what comes after ----


def test_summary_figures_and_report(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = measured(pictures, tmp_path / "run", operators=["windows", "location", "minimal"], layers=["look"])
    found = found_in(run)
    assert found.operators == ["windows:0.3", "windows:0.6", "location:0.3", "location:0.6"]
    record = found.to_json()
    assert len(record["shares"]) == 2 * 8 + 2 * 4 and json.dumps(record, allow_nan=False)
    main(["summary", run.folder])
    shown = capsys.readouterr().out
    assert "60 % windows" in shown and "30 % on black" in shown
    main(["summary", run.folder, "--json"])
    assert json.loads(capsys.readouterr().out)["lenses"]["fragility"]["stride"] == 1
    page = Path(run.report()).read_text()
    for words in (
        "Where does one pixel flip the answer?",
        "Maps over the photographs",
        'class="viewer"',
        "activations of look",
    ):
        assert words in page
    written = run.figures()
    assert "fragile-strict-shrink.svg" in written
    for begin, width in (("maps-lighter-", 2 * 226), ("pair-lighter-", 446)):
        files = [name for name in written if name.startswith(begin)]
        with Image.open(Path(run.folder) / "figures" / files[0]) as sheet:
            assert 200 < sheet.width <= width
    assert run.figure("fragile", kind="loose shrink").to_dict()
    assert "30 % windows" in run._repr_html_()
    with pytest.raises(ConfigError, match="loose shrink"):
        run.figure("fragile", kind="loose shrunk")


def test_a_plan_counts_windows(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model", "fake:grey", "--data", str(pictures), "--labels", "index", "--runtime", "torch"]
    main(["plan", *given, "--lens", "fragility", "--size", "15"])
    shown = " ".join(capsys.readouterr().out.split())
    windows = (12 * 17 + 14 * 19) + (19 * 12 + 21 * 14)  # of the two that are large enough
    assert f"{windows + 2 * 3:,} forward passes" in shown and "Nothing was run" in shown


def test_windows_inside_and_outside_of_an_object(tmp_path: Path) -> None:
    picture = np.random.default_rng(3).integers(0, 256, (30, 40, 3), np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.png")
    boxes = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [8, 6, 12, 15], "area": 180, "iscrowd": 0}]
    content = {"images": [{"id": 1, "file_name": "a.png", "height": 30, "width": 40}], "annotations": boxes}
    (tmp_path / "instances.json").write_text(json.dumps(content | {"categories": [{"id": 1, "name": "left"}]}))
    lens = {"name": "fragility", "sizes": [9]}
    data = {"source": tmp_path / "instances.json", "images": str(tmp_path), "min_area": 0}
    run = brinell.run(lighter(), data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    kind = "kind = 'loose shift' and judged_by = 'correct'"
    (row,) = run.rows(f"select windows, inside, fragile, inside_fragile from rows where {kind}").fetchall()
    middles = [(top + 4.5, left + 4.5) for top in range(22) for left in range(32)]
    assert row[:2] == (22 * 32, sum(6 <= y <= 21 and 8 <= x <= 20 for y, x in middles))
    maps = read_maps(run, "lighter", "windows:9px", run.rows("select image from samples").fetchall()[0][0])
    hood = Neighbourhood.of(9, 30, 40)
    flips = find_fragile(hood, maps.large, maps.large, "shift").loose.ravel().tolist()
    pairs = zip(middles, flips, strict=True)
    assert row[3] == sum(flip and 6 <= y <= 21 and 8 <= x <= 20 for (y, x), flip in pairs) < row[1]
    share = found_in(run).share("lighter", "windows:9px", "loose shift")
    assert share is not None and share.inside.value == pytest.approx(row[3] / row[1])
    assert share.outside.value == pytest.approx((row[2] - row[3]) / (row[0] - row[1]))


def test_activations_of_layers() -> None:
    model = lighter()
    inputs = torch.zeros(2, 3, 16, 16, dtype=torch.uint8)
    assert {name: tuple(output.shape) for name, output in activations(model, inputs).items()} == {"look": (2, 4, 16, 16)}
    assert activations(brinell.open_model("fake:grey", PLAIN), inputs) == {}  # a module without any
    with pytest.raises(ConfigError, match="not a torch module"):
        activations(replace(model, internals=None), inputs)


# ---- real networks ----


def test_a_real_network_sees_the_same_maps_as_with_pillow(assets: Path, tmp_path: Path) -> None:
    """All windows of two CIFAR-10 images at stride 1, label for label; and of a photograph for an ImageNet network."""
    with np.load(assets / "images" / "cifar10_test_2000.npz") as content:
        pairs = [(content["images"][index], int(content["labels"][index])) for index in (0, 5)]
    model = brinell.open_model(
        f"onnx:{assets}/models/cifar10_resnet20.onnx?classes={assets}/models/cifar10.txt", Execution(batch=32)
    )
    run = measured(pairs, tmp_path / "small", model, sizes=[25])
    flips = 0
    for pixels, _ in pairs:
        image = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        maps = read_maps(run, "cifar10_resnet20", "windows:25px", image_id(image))
        for answers in (maps.large, maps.small):
            assert answers is not None
            labels, _ = one_at_a_time(model, image, answers.grid.side)
            assert np.array_equal(answers.label, labels)
            flips += int((labels != labels[0, 0]).sum())
    assert flips > 0  # there was something to tell apart


def test_a_photograph_and_an_imagenet_network(assets: Path, tmp_path: Path) -> None:
    classes = f"classes={assets}/models/imagenet_classes.txt"
    model = brinell.open_model(f"onnx:{assets}/models/squeezenet1_1.onnx?{classes}", Execution(batch=8))
    image = brinell.open_dataset(str(assets / "images" / "imagenet_dev_300"))[0].image
    corners = torch.tensor([[left, top] for left in (0, 1, 30) for top in (0, 1, 59)])
    inputs = window_view("", "bilinear", 224, 224).look(
        image, torch.cat([corners, torch.full((len(corners), 1), 239)], 1).to(torch.float64), lambda made: made
    )
    scores = model.predict(inputs)
    for (left, top), score in zip(corners.tolist(), scores, strict=True):
        cut = Image.fromarray(image[:, top : top + 239, left : left + 239].permute(1, 2, 0).numpy().copy())
        pixels = np.array(cut.resize((224, 224), Image.Resampling.BILINEAR))
        alone = model.predict(torch.from_numpy(pixels).permute(2, 0, 1)[None])[0]
        assert int(alone.argmax()) == int(score.argmax())
        torch.testing.assert_close(alone, score, atol=1e-5, rtol=1e-3)


def test_a_detector_s_fragility(assets: Path, tmp_path: Path) -> None:
    """By a criterion on what it finds where the object is, with boxes that follow the window."""
    options = f"task=detection&classes={assets}/models/coco80.txt&interpolation=bilinear"
    model = f"onnx:{assets}/models/yolo_fastest_1.1_coco.onnx?{options}"
    data = {"source": assets / "images" / "coco_val_128" / "instances.json", "min_area": 0.1, "limit": 3}
    lens = {"name": "fragility", "sizes": [0.6], "stride": 80, "criterion": "regional_target_class_missing(0.3)"}
    run = brinell.run(model, data, lens=lens, out=tmp_path / "run", execution=Execution(batch=8), quiet=True)
    rows = run.rows("select image, windows, recognised, inside from rows where kind = 'loose shift'").fetchall()
    assert rows and all(inside is not None for *_, inside in rows)
    assert any(0 < recognised < windows for _, windows, recognised, _ in rows)
    assert Path(run.report()).is_file()


def test_regions_follow_a_window() -> None:
    """A detector's region on the clean model input lies on the window's model input where the window shows it."""
    preprocess = Preprocess(20, 20)
    layout = Layout(preprocess, [(40, 60)])
    matrices = window_view("", "bilinear", 20, 20).matrices(torch.tensor([[10, 5, 20]], dtype=torch.float64), layout)
    assert matrices is not None
    own = preprocess.map_boxes(torch.tensor([[15.0, 10.0, 25.0, 20.0]]), 40, 60)  # in the original's pixels
    torch.testing.assert_close(move_boxes(own[None], matrices)[0, 0], torch.tensor([5.0, 5.0, 15.0, 15.0]))


def test_a_stride_is_pixels_or_a_share_of_the_shorter_side(greys: Path, tmp_path: Path) -> None:
    """The images are 40 pixels high: a quarter is ten."""
    sql = "select * from rows order by all"
    share, pixels = (
        brinell.run(
            "fake:grey",
            greys,
            lens={"name": "fragility", "sizes": [0.4], "stride": stride},
            out=tmp_path / str(stride),
            execution=PLAIN,
            quiet=True,
        )
        for stride in (0.25, 10)
    )
    assert share.rows(sql).fetchall() == pixels.rows(sql).fetchall()
    found: Any = share.summary()
    assert found.sampled == "One window every 25% of the shorter side"
    assert FragilityOptions(stride="64").stride == 64 and isinstance(FragilityOptions(stride=64.0).stride, int)
    for wrong in (0, -1, 1.5):
        with pytest.raises(ConfigError, match="expected a stride as a share of the shorter side"):
            FragilityOptions(stride=wrong)


@pytest.mark.parametrize(
    ("right", "down", "words"),
    [(1, 0, "1 px right"), (-1, 0, "1 px left"), (0, -1, "1 px up"), (2, 1, "2 px right and 1 px down")],
)
def test_shifts_are_described_in_words(right: int, down: int, words: str) -> None:
    assert describe_shift(right, down) == words
