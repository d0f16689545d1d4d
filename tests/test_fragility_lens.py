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
from brinell.engine.evaluator import Bench
from brinell.errors import BrinellError, ConfigError
from brinell.lenses.fragility.findings import Fragility
from brinell.lenses.fragility.fragile import fragile
from brinell.lenses.fragility.human import Human, covered, overlap, read_human
from brinell.lenses.fragility.lens import FragilityOptions, chosen_views, fragility
from brinell.lenses.fragility.maps import Maps, unpacked
from brinell.lenses.fragility.minimal import Descent, descend, first_windows
from brinell.lenses.fragility.windows import Neighbourhood
from brinell.lenses.lens import LENSES
from brinell.models.activations import activations
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
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


def asked(data: Any, out: Path, model: Model | None = None, **options: Any) -> brinell.Run:
    lens = {"name": "fragility", "sizes": SIZES, **options}
    return brinell.run(
        model or lighter(), {"source": data, "labels": "index"}, lens=lens, out=out, execution=PLAIN, quiet=True
    )


def found_in(run: brinell.Run) -> Fragility:
    found = run.summary()
    assert isinstance(found, Fragility)
    return found


def one_at_a_time(model: Model, image: Tensor, side: int, fit: Any = Image.Resampling.BILINEAR) -> tuple[Tensor, Tensor]:
    """The labels and the probabilities of all windows, by Pillow and the model, one after the other."""
    pre, picture = model.preprocess, Image.fromarray(image.permute(1, 2, 0).numpy())
    rows = []
    for top in range(image.shape[1] - side + 1):
        for left in range(image.shape[2] - side + 1):
            cut = picture.crop((left, top, left + side, top + side)).resize((pre.width, pre.height), fit)
            rows.append(model.predict(torch.from_numpy(np.array(cut)).permute(2, 0, 1)[None])[0])
    scores = torch.stack(rows).view(image.shape[1] - side + 1, image.shape[2] - side + 1, -1)
    return scores.argmax(-1), scores


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_maps_are_those_of_windows_cut_one_at_a_time(pictures: Path, batch: int) -> None:
    model = lighter()
    images = [brinell.open_dataset(str(pictures))[index].image for index in range(2)]
    bench = bench_of(model, images, [0, 1], batch=batch)
    options = FragilityOptions(sizes=(0.6,))
    (view,) = chosen_views(options)
    columns = bench.drive(fragility(bench.shard(), view, options))
    files = columns["files"].content  # type: ignore[union-attr]
    for image, label in zip(images, (0, 1), strict=True):
        maps = unpacked_of(files, image)
        assert maps.small is not None
        for answers in (maps.large, maps.small):
            labels, scores = one_at_a_time(model, image, answers.grid.side)
            assert torch.equal(answers.label, labels)
            assert torch.equal(answers.correct, labels == label)
            assert float((answers.confidence - scores[..., label]).abs().max()) < 0.5 / 255 + 1e-5


def unpacked_of(files: Any, image: Tensor) -> Maps:
    (content,) = [content for name, content in files.items() if name.endswith(f"{image_id(image)}.npz")]
    return unpacked(content)


def bench_of(model: Model, images: list[Tensor], labels: list[int], *, batch: int = 8, criterion: str = "default") -> Bench:
    inputs = torch.stack([model.preprocess.model_input(image) for image in images])
    ids = torch.tensor([id_number(image_id(image)) for image in images])
    rule = find_criterion(criterion, model.classes, model.outputs, detector=model.detector is not None)
    originals = [model.preprocess.convert_channels(image) for image in images]
    return Bench(model, inputs, ids, torch.tensor(labels), criterion=rule, seed=0, batch=batch, originals=originals)


def test_rows_count_what_the_maps_show(pictures: Path, tmp_path: Path) -> None:
    run = asked(pictures, tmp_path / "run")
    rows = run.rows(
        """select operator, image, kind, side, windows, recognised, fragile, lost, gained, x, y, to_x, to_y, fall from rows
           where status = 'measured' and judged_by = 'correct'"""
    ).fetchall()
    assert len(rows) == 3 * 2 * 4  # images, sizes, kinds
    for operator, image, kind, side, windows, recognised, flips, lost, gained, x, y, to_x, to_y, fall in rows:
        maps = run.maps("lighter", operator, image)
        large, small = maps.large, maps.small
        assert small is not None and large.grid.side == side and windows == large.correct.numel()
        assert recognised == int(large.correct.sum()) and flips == lost + gained
        if kind == "loose shrink":
            patches = small.correct.unfold(0, 3, 1).unfold(1, 3, 1).flatten(2)
            assert lost == int((large.correct & ~patches.all(2)).sum())
            assert gained == int((~large.correct & patches.any(2)).sum())
            if fall is not None:
                assert bool(large.correct[y, x]) and not bool(small.correct[to_y, to_x])
                drop = float(large.confidence[y, x] - small.confidence[to_y, to_x])
                assert fall == pytest.approx(drop, abs=0.01)
        if kind == "strict shift" and flips == windows:
            pytest.fail("grainy images have some windows that are not fragile")
    shares = found_in(run).share("lighter", "windows:0.6", "loose shift")
    assert shares is not None and shares.images == 3
    by_hand = [row[6] / row[4] for row in rows if row[0] == "windows:0.6" and row[2] == "loose shift"]
    assert shares.share.value == pytest.approx(np.mean(by_hand)) and shares.share.low < shares.share.value


def test_a_stride_samples_the_same_windows(pictures: Path, tmp_path: Path) -> None:
    """What is judged with a stride is judged as without."""
    whole, sparse = asked(pictures, tmp_path / "all"), asked(pictures, tmp_path / "some", stride=4)
    for image in ("select image from samples where height > 20",):
        for (name,) in whole.rows(image).fetchall():
            all_maps, some = (run.maps("lighter", "windows:0.6", name) for run in (whole, sparse))
            tops, lefts = some.large.grid.tops, some.large.grid.lefts
            assert torch.equal(some.large.label, all_maps.large.at(tops, lefts, "label")[0])
    asked_of = [
        sum(len(maps.large.label.flatten()) for maps in [run.maps("lighter", "windows:0.6", name)])
        for run in (whole, sparse)
    ]
    assert asked_of[1] < asked_of[0]
    assert found_in(sparse).stride == 4


def test_images_that_are_too_small_are_counted(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = asked(pictures, tmp_path / "run", sizes=[12])
    assert run.rows("select image, status from rows where status != 'measured'").fetchall() == [
        (run.rows("select image from samples where height = 8").fetchall()[0][0], "too small")
    ]
    assert found_in(run).too_small == {"windows:12px": 1}
    with pytest.raises(ConfigError, match="size 64px fits no image: windows of 64 pixels in images of at most"):
        asked(pictures, tmp_path / "none", sizes=[64])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sizes": [0.0]}, "share of the shorter side in (0, 1]"),
        ({"sizes": [-0.2]}, "share of the shorter side in (0, 1]"),
        ({"sizes": [1.5]}, "whole number of pixels; not 1.5"),
        ({"sizes": [2]}, "windows of 2 pixels can't be shrunk by two; take 3 or more"),
        ({"operators": ["window"]}, "no 'window' to look at; did you mean windows"),
        ({"stride": 0}, "stride"),
        ({"neighbours": 6}, "neighbours"),
        ({"layers": ["nose"]}, "has no layer 'nose'; "),
        ({"fit": "pad", "sizes": [20]}, "padded to 16×16"),
        ({"fit": "pad", "operators": ["minimal"]}, "which can't be padded; use another fit"),
        ({"step": 1.5}, "or a whole number of pixels; not 1.5"),
    ],
)
def test_wrong_options_are_told_in_a_line(pictures: Path, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(BrinellError) as raised:
        asked(pictures, tmp_path / "run", **options)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_a_layer_that_gives_no_map_is_told_before_anything_is_measured(pictures: Path, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 16), nn.Flatten(), nn.Linear(2, 2))
    model = brinell.wrap(module, size=16, execution=PLAIN, name="flat", classes=("right", "left"))
    with pytest.raises(ConfigError, match=r"the output of layer 2 of flat is not a map \(N, C, H, W\); name another"):
        asked(pictures, tmp_path / "run", model, layers=["2"])
    assert not (tmp_path / "run" / "rows").exists()


def test_a_run_goes_on_inside_an_image(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are sizes: what was stopped after the first of them asks only for the second."""
    asked_for: list[str] = []
    own = Bench.drive

    def stopped(self: Bench, asking: Any, journal: Any) -> Any:
        asked_for.append(asking.gi_frame.f_locals["operator"].id)
        if len(asked_for) == 2:
            raise KeyboardInterrupt
        return own(self, asking, journal)

    monkeypatch.setattr(Bench, "drive", stopped)
    with pytest.raises(KeyboardInterrupt):
        asked(pictures, tmp_path / "run")
    assert len(Store(tmp_path / "run").unit_files()) == 1
    run = asked(pictures, tmp_path / "run")
    assert asked_for == ["windows:0.3", "windows:0.6", "windows:0.6"]
    again = asked(pictures, tmp_path / "other")
    sql = "select * from rows order by operator, image, kind, judged_by"
    assert run.rows(sql).fetchall() == again.rows(sql).fetchall()


def test_a_run_goes_on_inside_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large map what was answered is kept, and asked for no more."""
    monkeypatch.setattr("brinell.lenses.fragility.lens.PIECE", 300)
    monkeypatch.setitem(LENSES._parts, "fragility", replace(LENSES["fragility"], trials_a_unit=500))
    images = [(np.random.default_rng(7).integers(0, 256, (40, 44, 3), np.uint8), 1)]
    counts: list[int] = []
    own = Bench.ask

    def stopped(self: Bench, trials: Any) -> Any:
        counts.append(len(trials.samples))
        if len(counts) == 3:
            raise KeyboardInterrupt
        return own(self, trials)

    monkeypatch.setattr(Bench, "ask", stopped)
    with pytest.raises(KeyboardInterrupt):
        asked(images, tmp_path / "run", sizes=[0.5])
    run = asked(images, tmp_path / "run", sizes=[0.5])
    hood = Neighbourhood.of(21, 40, 44)
    assert sum(counts) == len(hood) + 300  # the piece that it was stopped in was asked twice
    assert not run.store.exists("unfinished", "fragility", "lighter", "windows%3A0.5", "00000")
    again = asked(images, tmp_path / "other", sizes=[0.5])
    sql = "select * from rows order by kind, judged_by"
    assert run.rows(sql).fetchall() == again.rows(sql).fetchall()


def test_units_hold_about_as_many_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LENSES._parts, "fragility", replace(LENSES["fragility"], trials_a_unit=500))
    images = [(np.random.default_rng(index).integers(0, 256, (20, 20, 3), np.uint8), 0) for index in range(6)]
    run = asked(images, tmp_path / "run", sizes=[0.6])  # 13 and 11 pixels: 64 + 100 windows an image
    assert [Path(file).name for file in run.store.unit_files()] == ["00000.parquet", "00001.parquet"]


# ---- location ----


def test_an_image_at_every_place_of_a_black_canvas(pictures: Path, tmp_path: Path) -> None:
    run = asked(pictures, tmp_path / "run", operators=["location"], sizes=[8])
    model, image = lighter(), brinell.open_dataset(str(pictures))[0].image
    small = np.asarray(
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((8, image.shape[1]), Image.Resampling.BILINEAR)
    )
    small = np.asarray(Image.fromarray(small).resize((8, 8), Image.Resampling.BILINEAR))
    maps = run.maps("lighter", "location:8px", image_id(image))
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
    assert "of the places of the image on black (8 px)" in found_in(run).verdict("lighter")


# ---- minimal images ----


@pytest.mark.parametrize("step", [0.7, 2.0])
def test_the_tree_search_finds_what_recursion_finds(step: float) -> None:
    model = brinell.wrap(MuchLighter(), size=16, execution=PLAIN, name="much", classes=("right", "left"))
    generator = np.random.default_rng(3)
    images = [torch.from_numpy(generator.integers(0, 256, (3, 12 + index, 17), np.uint8)) for index in range(6)]
    labels = [1] * len(images)
    bench = bench_of(model, images, labels)
    descent = Descent(step, 10_000)
    view = window_view("", "bilinear", 16, 16)
    found = bench.drive(descend(view, first_windows(bench.shard().sizes), descent))  # type: ignore[arg-type]
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
    run = asked(tmp_path / "pictures", tmp_path / "run", operators=["minimal"])  # one colour: right at every size
    assert run.rows("select distinct status from rows").fetchall() == [("recognised to the end",)]
    assert found_in(run).minimal[0].windows == ()


def test_objects_too_large_for_the_canvas_are_told(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(BrinellError, match=r"objects of 20 pixels on a model_input of 16×16, the model's input"):
        asked(pictures, tmp_path / "run", operators=["location"], sizes=[20])


def test_minimal_images_as_rows(pictures: Path, tmp_path: Path) -> None:
    run = asked(pictures, tmp_path / "run", operators=["minimal"], beam=3)
    found = found_in(run)
    assert {one.image for one in found.minimal} == {name for (name,) in run.rows("select image from samples").fetchall()}
    assert not all(one.complete for one in found.minimal)  # so few branches are not all
    assert "minimal images in a photograph or more: not all branches were followed" in found.verdict("lighter")
    for side, left, top, confidence in (window for one in found.minimal for window in one.windows):
        assert side >= 1 and left >= 0 and top >= 0 and confidence >= 0.5
    page = Path(run.report()).read_text(encoding="utf-8")
    assert page.count('class="viewer"') == 1 and "Every square window" not in page  # they are drawn on the photographs


# ---- people ----


def test_people_s_minimal_images_beside_a_model_s() -> None:
    """Places and areas, by plain sets."""
    hood = Neighbourhood.of(9, 30, 40)
    large, small = some_maps(5, hood, 0.97)
    boxes = torch.tensor([[2, 3, 11, 12], [2.2, 3, 11.2, 12], [20, 14, 29, 23], [0, 0, 30, 30]], dtype=torch.float32)
    found = overlap("x", Human(boxes), large, small, (30, 40))
    patches = small.correct.unfold(0, 3, 1).unfold(1, 3, 1).flatten(2)
    strict = (patches != large.correct[..., None]).all(2)
    models = {tuple(place) for place in strict.nonzero().tolist()}
    people = {(3, 2), (14, 20)}  # two of one place, and one of another size
    assert (found.people, found.model) == (2, len(models))
    assert found.places == pytest.approx(len(models & people) / len(models | people))
    area = [
        {(y, x) for top, left in own for y in range(top, top + 9) for x in range(left, left + 9)}
        for own in (models, people)
    ]
    assert found.area == pytest.approx(len(area[0] & area[1]) / len(area[0] | area[1]))
    assert int(covered(strict, hood.judged, (30, 40)).sum()) == len(area[0])


def test_people_s_minimal_images_from_files(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "people.csv").write_text("image,left,top,right,bottom\n0.png,1,2,16,17\n0.png,3,4,18,19\n")
    (tmp_path / "people.json").write_text(json.dumps({"photos/0.png": [[1, 2, 16, 17], [3, 4, 18, 19]]}))
    picture = np.zeros((26, 31), np.uint8)
    picture[9, 8] = picture[11, 10] = 255  # the middles
    (tmp_path / "maps").mkdir()
    Image.fromarray(picture).save(tmp_path / "maps" / "0.png")
    run = asked(pictures, tmp_path / "run", sizes=[15])
    compared = [run.beside_people(tmp_path / name, "windows:15px") for name in ("people.csv", "people.json", "maps")]
    assert compared[0] == compared[1] == compared[2]
    assert compared[0]["lighter"][0].people == 2
    main(["human", run.folder, str(tmp_path / "people.csv"), "--operator", "windows:15px"])
    assert "2.0 minimal images an image for people" in " ".join(capsys.readouterr().out.split())
    for name, words in (("gone.csv", "is not there"), ("metadata.csv", "should be a table")):
        with pytest.raises(BrinellError, match=words):
            read_human(pictures / name)
    with pytest.raises(BrinellError, match="did you mean windows:15px"):
        run.beside_people(tmp_path / "people.csv", "windows:0.15")


# ---- what comes after ----


def test_summary_figures_and_report(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = asked(pictures, tmp_path / "run", operators=["windows", "location", "minimal"], layers=["look"])
    found = found_in(run)
    assert found.operators == ["windows:0.3", "windows:0.6", "location:0.3", "location:0.6"]
    record = found.to_dict()
    assert len(record["shares"]) == 2 * 8 + 2 * 4 and json.dumps(record, allow_nan=False)
    main(["summary", run.folder])
    shown = capsys.readouterr().out
    assert "P = 0.6" in shown and "on black (P = 0.3)" in shown
    main(["summary", run.folder, "--json"])
    assert json.loads(capsys.readouterr().out)["stride"] == 1
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
    assert "P = 0.3" in run._repr_html_()
    with pytest.raises(ConfigError, match="loose shrink"):
        run.figure("fragile", kind="loose shrunk")


def test_a_plan_counts_windows(pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--model", "fake:grey", "--data", str(pictures), "--labels", "index", "--runtime", "torch"]
    main(["plan", *given, "--lens", "fragility", "--size", "15"])
    shown = " ".join(capsys.readouterr().out.split())
    windows = (12 * 17 + 14 * 19) + (19 * 12 + 21 * 14)  # of the two that are large enough
    assert f"{3 * round(windows / 3):,} trials" in shown and "Nothing was done" in shown


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
    maps = run.maps("lighter", "windows:9px", run.rows("select image from samples").fetchall()[0][0])
    hood = Neighbourhood.of(9, 30, 40)
    flips = fragile(hood, maps.large, maps.large, "shift", "correct").loose.flatten().tolist()
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
    run = asked(pairs, tmp_path / "small", model, sizes=[25])
    flips = 0
    for pixels, _ in pairs:
        image = torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
        maps = run.maps("cifar10_resnet20", "windows:25px", image_id(image))
        for answers in (maps.large, maps.small):
            assert answers is not None
            labels, _ = one_at_a_time(model, image, answers.grid.side)
            assert torch.equal(answers.label, labels)
            flips += int((labels != labels[0, 0]).sum())
    assert flips > 0  # there was something to tell apart


def test_a_photograph_and_an_imagenet_network(assets: Path, tmp_path: Path) -> None:
    classes = f"classes={assets}/models/imagenet_classes.txt"
    model = brinell.open_model(f"onnx:{assets}/models/squeezenet1_1.onnx?{classes}", Execution(batch=8))
    image = brinell.open_dataset(str(assets / "images" / "imagenet_dev_300"))[0].image
    corners = torch.tensor([[left, top] for left in (0, 1, 30) for top in (0, 1, 59)])
    inputs = window_view("", "bilinear", 224, 224).inputs(
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
    model, image = lighter(20), torch.zeros(3, 40, 60, dtype=torch.uint8)
    bench = bench_of(model, [image], [0])
    frames = window_view("", "bilinear", 20, 20).frame
    assert frames is not None
    matrices = bench._framed(frames(torch.tensor([[10, 5, 20]], dtype=torch.float64)), slice(0, 1))
    own = Preprocess(20, 20).boxes(torch.tensor([[15.0, 10.0, 25.0, 20.0]]), 40, 60)  # in the original's pixels
    torch.testing.assert_close(move_boxes(own[None], matrices)[0, 0], torch.tensor([5.0, 5.0, 15.0, 15.0]))
