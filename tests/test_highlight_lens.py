"""The highlights lens: its rows and figures against plain loops, the least light, saliency in a run, and the commands."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.cli.main import main
from brinell.errors import ConfigError
from brinell.lenses.fragility.opposite import opposite_windows
from brinell.lenses.highlights.findings import HighlightFindings
from brinell.lenses.highlights.glare import sigma_names
from brinell.perturb.highlight import add_highlights, highlight_grid
from brinell.report.exhibits import read_exhibits
from brinell.runs.statistics import ratio
from brinell.saliency.findings import SaliencyFindings
from brinell.types import Sample
from conftest import PLAIN

SIGMAS = [4.0, 8.0, 16.0]
CELL = (1, 3)  # row and column, of 5 by 5, that the model must not see lit


class Watchman(nn.Module):
    """Class 0 while the middle of one cell is darker than a threshold. It looks at how dark and how light places are."""

    def __init__(self, threshold: float = 0.6) -> None:
        super().__init__()
        self.threshold = threshold
        self.look = nn.Conv2d(3, 2, 1)
        with torch.no_grad():
            self.look.weight.copy_(torch.tensor([-1 / 3, 1 / 3])[:, None, None, None].expand(2, 3, 1, 1))
            self.look.bias.copy_(torch.tensor([1.0, 0.0]))  # type: ignore[union-attr]

    def forward(self, images: Tensor) -> Tensor:
        maps = self.look(images)
        size = images.shape[2] // 5
        row, column = CELL
        dark, light = maps[:, :, row * size + size // 2, column * size + size // 2].unbind(1)
        return torch.stack([dark - (1 - self.threshold), light - self.threshold], 1) * 10


def watchman(name: str = "watchman", threshold: float = 0.6) -> brinell.Model:
    return brinell.wrap(Watchman(threshold), size=50, classes=("dark", "lit"), name=name, execution=PLAIN)


def pictures() -> list[Sample]:
    """Three dark images of several sizes, one that is wrong when clean, and boxes around the cell or beside it."""
    made = []
    for place, (height, width) in enumerate([(100, 150), (150, 100), (200, 200), (60, 60)]):
        values = np.random.default_rng(place).integers(0, 60, (3, height, width)).astype(np.uint8)
        if place == 3:
            values[:] = 220
        top, left = CELL[0] * height / 5, CELL[1] * width / 5
        box = [left, top, left + width / 5, top + height / 5] if place != 1 else [0, 0, width / 10, height / 10]
        made.append(Sample(torch.from_numpy(values), 0, f"{place}", torch.tensor([box]), (0,)))
    return made


def spotted(out: Path, model: Any = None, data: Any = None, **options: Any) -> brinell.Run:
    lens = {"name": "highlights", "operators": ["highlight"], "sigmas": SIGMAS, **options.pop("lens", {})}
    return brinell.run(model or watchman(), data or pictures(), lens=lens, out=out, execution=PLAIN, quiet=True, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """A run that no test writes to."""
    return spotted(tmp_path_factory.mktemp("highlights") / "run")


def found_in(run: brinell.Run) -> HighlightFindings:
    found = run.summary()
    assert isinstance(found, HighlightFindings)
    return found


@cache
def plain_answers(place: int, centres: str = "exact") -> list[bool]:
    """Whether the model is right on every variant of a picture, each resized whole by Pillow."""
    sample, inputs = pictures()[place], []
    height, width = sample.image.shape[1:]
    for spot in highlight_grid(height, width, 5, torch.tensor(SIGMAS), centres=centres):
        lit = add_highlights(sample.image[None], spot[None])[0]
        picture = Image.fromarray(lit.permute(1, 2, 0).numpy())
        picture = picture.resize((50, height), Image.Resampling.BICUBIC).resize((50, 50), Image.Resampling.BICUBIC)
        inputs.append(torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1))
    return (watchman().predict(torch.stack(inputs)).argmax(1) == sample.label).tolist()


@pytest.mark.parametrize("centres", ["exact", "authors"])
def test_rows_are_what_a_plain_loop_finds(tmp_path: Path, centres: str) -> None:
    run = spotted(tmp_path / "run", lens={"variant": centres})
    rows = run.rows("select name, level, correct from rows join samples using (image) order by name, level").fetchall()
    assert len(rows) == 4 * (1 + 75)
    for sample in pictures():
        own = [correct for name, _, correct in rows if name == sample.name]
        assert own[0] == (sample.name != "3")
        assert own[1:] == plain_answers(int(sample.name), centres)


def test_figures_are_those_of_the_paper_s_rules(finished: brinell.Run) -> None:
    answers = {sample.name: plain_answers(int(sample.name)) for sample in pictures()}
    right = ["0", "1", "2"]
    failing = {name: answers[name].count(False) for name in answers}
    one = finished.findings(at_least=(1, 2, 7))["highlights"].glare["watchman", "highlight:exact"]  # type: ignore[union-attr]
    assert one.top1.value == 3 / 4
    assert one.average.value == pytest.approx(sum(sum(own) for own in answers.values()) / 300, abs=1e-9)
    assert one.average.low < one.average.value < one.average.high
    for k in (1, 2, 7):
        kept = sum(failing[name] < k for name in right)
        assert one.at_least[k].value == kept / 4  # the one that is wrong when clean counts as failed
        assert one.over_right[k].value == kept / 3
    assert one.failing == sum(failing[name] for name in right)
    assert one.failing_per_image.value == pytest.approx(np.mean([failing[name] for name in right if failing[name]]))
    by_size = [sum(answers[name][25 * size : 25 * size + 25].count(False) for name in right) for size in range(3)]
    assert [size.failures for size in one.sizes] == by_size
    assert [size.share.value for size in one.sizes] == pytest.approx([count / sum(by_size) for count in by_size])
    assert sum(size.rate.value for size in one.sizes) / 3 == pytest.approx(one.failing / (3 * 75))
    assert one.cells.index(max(one.cells)) == CELL[0] * 5 + CELL[1] and one.worst_cell is None, "of three images"
    cells = [sum(not answers[name][25 * size + cell] for name in right for size in range(3)) / 9 for cell in range(25)]
    assert one.cells == pytest.approx(cells)


def test_inside_and_outside_are_by_the_spot_s_centre(finished: brinell.Run) -> None:
    place = found_in(finished).glare["watchman", "highlight:exact"].location
    assert place is not None
    inside = failing = broken_inside = 0
    for sample in pictures()[:3]:
        right = plain_answers(int(sample.name))
        (left, top, stop, bottom), (height, width) = sample.boxes[0].tolist(), sample.image.shape[1:]  # type: ignore[index]
        for spot, kept in zip(highlight_grid(height, width, 5, torch.tensor(SIGMAS)), right, strict=True):
            within = left <= spot[0] + 0.5 <= stop and top <= spot[1] + 0.5 <= bottom
            inside, failing = inside + within, failing + (not kept)
            broken_inside += within and not kept
    assert place.images == 3
    assert place.all.value == pytest.approx(inside / 225)
    assert place.failing.value == pytest.approx(broken_inside / failing)
    assert place.inside.value == pytest.approx(broken_inside / inside)
    assert place.outside.value == pytest.approx((failing - broken_inside) / (225 - inside))


def test_the_least_light_is_far_below_the_grid_s_and_breaks(tmp_path: Path) -> None:
    run = spotted(tmp_path / "run", lens={"operators": ["all"], "search_queries": 120})
    least = found_in(run).least["watchman"]
    assert (least.broken, least.survived, least.skipped, least.failed) == (3, 0, 1, 0)
    assert least.queries <= 120
    faint = run.rows(
        """select least.mae, grid.mae from (select * from rows where status = 'broken') least join (
               select image, min(mae) as mae from rows where operator = 'highlight:exact' and level > 0 and not correct
               group by all) grid using (image)"""
    ).fetchall()
    assert all(found < of_grid for found, of_grid in faint)
    # the very pixels again: the rows' spots break the model with the light that they tell
    rows = run.rows(
        """select name, spot_x, spot_y, sigma, strength, mae from rows join samples using (image)
           where operator = 'highlight:least' and status = 'broken'"""
    ).fetchall()
    samples = {sample.name: sample.image for sample in pictures()}
    model = watchman()
    for name, x, y, sigma, strength, light in rows:
        spot = torch.tensor([[x, y, sigma, strength]], dtype=torch.float64)
        model_input = model.preprocess.inputs(add_highlights(samples[name][None], spot))
        clean = model.preprocess.inputs(samples[name][None])
        assert int(model.predict(model_input).argmax(1)) == 1
        assert float((model_input.to(torch.float64) - clean).abs().mean() / 255) == pytest.approx(light, rel=1e-5)


def test_the_search_may_vary_the_strength_too(tmp_path: Path) -> None:
    run = spotted(tmp_path / "run", lens={"operators": ["highlight:least"], "vary_strength": True})
    [(strength,)] = run.rows("select min(strength) from rows where status = 'broken'").fetchall()
    assert strength < 1
    assert found_in(run).operators == ["highlight:least"]


def test_who_is_never_broken_survives(tmp_path: Path) -> None:
    found = found_in(
        spotted(tmp_path / "run", model=watchman(threshold=3.0), lens={"operators": ["all"], "search_queries": 40})
    )
    assert found.glare["watchman", "highlight:exact"].failing == 0
    assert found.least["watchman"].survived == 4
    assert "can break 0% [0–55%] of those" in found.verdict("watchman")


def test_sigmas_may_be_relative_and_spots_coloured(tmp_path: Path) -> None:
    lens = {"sigmas": [0.1], "relative": True, "colour": [255, 0, 0], "strength": 0.5}
    run = spotted(tmp_path / "run", lens=lens)
    sigmas = run.rows("select distinct name, sigma from rows join samples using (image) where level = 1 order by 1")
    assert sigmas.fetchall() == [("0", 10.0), ("1", 10.0), ("2", 20.0), ("3", 6.0)]
    assert found_in(run).glare["watchman", "highlight:exact"].sizes[0].sigma == "10 %"


@pytest.mark.parametrize(
    ("lens", "told"),
    [
        ({"sigmas": [0]}, "above 0"),
        ({"relative": True}, "shares of the shorter side"),
        ({"colour": [0, 0, 300]}, "from 0 to 255"),
        ({"variant": "exakt"}, "did you mean exact"),
        ({"operators": ["highlight:lest"]}, "did you mean highlight:least"),
        ({"operators": ["white_fog"]}, "has no operator"),
        ({"cells": 50, "sigmas": list(range(1, 20))}, "use fewer"),
    ],
)
def test_wrong_options_are_told_in_one_line(lens: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        spotted(tmp_path / "run", lens=lens)
    assert "\n" not in str(error.value)


# ---- saliency ----


@pytest.mark.parametrize(
    "lens",
    [
        {"name": "highlights", "sigmas": [8, 16], "search_queries": 60},
        {"name": "profile", "operators": ["fade_white"], "levels": 30},
        {"name": "knob", "operators": ["brightness"], "points": 200},
    ],
)
def test_saliency_of_every_lens(lens: dict[str, Any], tmp_path: Path) -> None:
    run = brinell.run(
        watchman(), pictures(), lens=lens, out=tmp_path / "run", execution=PLAIN, saliency={"pairs": 6}, quiet=True
    )
    found = run.findings()["saliency"]
    assert isinstance(found, SaliencyFindings)
    assert found.layers == {"watchman": "look"}
    pairs = {one.failed: one for one in found.shifts if one.lens == lens["name"] and not one.operator.endswith("least")}
    assert set(pairs) == {True, False}
    for one in pairs.values():
        assert 0 < one.pairs <= 12
        assert 0 <= one.shifted.value <= 1
        assert 0 <= one.overlap.value <= 1
    rows = run.rows("select failed, label, prediction, clean_prediction from saliency").fetchall()
    assert all((label != prediction) == failed for failed, label, prediction, _ in rows)
    assert all(label == clean for _, label, _, clean in rows)  # images that are wrong when clean are not looked at
    assert "saliency" in Path(run.report()).read_text()


@pytest.mark.parametrize(
    "lens",
    [
        {"name": "geometry", "operators": ["rotation"], "targets": 2, "radii": [0.2, 1], "draws": 2, "step_lengths": 6},
        {"name": "fragility", "sizes": [0.6], "stride": 4},
    ],
    ids=lambda lens: lens["name"],
)
def test_saliency_under_motions_and_between_windows(
    lens: dict[str, Any], assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(assets / "models"))
    import nets  # type: ignore[import-not-found]

    module, (_, size, _), names = nets.load("cifar10_resnet20")
    model = brinell.wrap(module, size=size, classes=names, name="resnet20", execution=PLAIN)
    data = {"source": assets / "images" / "cifar10_test_2000.npz", "limit": 6}
    out, options = tmp_path / "run", {"pairs": 6}
    run = brinell.run(model, data, lens=lens, out=out, execution=PLAIN, saliency=options, quiet=True)
    found = run.findings()["saliency"]
    assert isinstance(found, SaliencyFindings)
    assert {(one.operator, one.failed) for one in found.shifts} == {
        (operator, failed) for operator in {one.operator for one in found.shifts} for failed in (True, False)
    }
    for failed, label, prediction, before in run.rows(
        "select failed, label, prediction, clean_prediction from saliency"
    ).fetchall():
        assert (label != prediction) == failed
        assert label == before  # what it is compared with is right: the clean image, or the window beside it


def test_the_opposite_of_a_window() -> None:
    right = torch.tensor([[10.0, 20, 9], [10, 20, 9], [10, 20, 9], [0, 20, 9], [10, 20, 9]])
    # shifted; shrunk to a corner; shrunk to the middle; shifted from the left border; shifted from the lower one
    failing = torch.tensor([[11.0, 19, 9], [10, 22, 7], [11, 21, 7], [1, 20, 9], [10, 19, 9]])
    sizes = torch.tensor([[40, 40], [40, 40], [40, 40], [40, 40], [29, 40]])
    windows, exist = opposite_windows(failing, right, sizes)
    assert windows.tolist() == [[9, 21, 9], [12, 20, 7], [11, 21, 7], [-1, 20, 9], [10, 21, 9]]
    assert exist.tolist() == [True, True, True, False, False]


def test_saliency_can_be_compared_afterwards_and_is_not_computed_twice(tmp_path: Path, monkeypatch: Any) -> None:
    run = spotted(tmp_path / "run")
    with pytest.raises(ConfigError, match="pass it again"):
        run.saliency()
    first = run.saliency({"pairs": 5}, models=[watchman()], data=pictures(), quiet=True)
    table = run.rows("select * from saliency order by all").fetchall()
    assert len(table) == sum(one.pairs for one in first.shifts) == 10
    monkeypatch.setattr("brinell.saliency.compare._compare_rows", None)  # nothing is computed again
    run.saliency({"pairs": 5}, models=[watchman()], data=pictures(), quiet=True)
    assert run.rows("select * from saliency order by all").fetchall() == table
    monkeypatch.undo()
    other = run.saliency({"pairs": 2, "target": "label"}, models=[watchman()], data=pictures(), quiet=True)
    assert sum(one.pairs for one in other.shifts) == 4


def test_a_model_without_saliency_maps_is_measured_and_reported(tmp_path: Path, capsys: Any) -> None:
    lens = {"name": "highlights", "operators": ["highlight"], "sigmas": [8]}
    plain = watchman()
    shut = brinell.Model(
        "shut", plain.forward, plain.preprocess, plain.device, "x", 2, False, classes=plain.classes, facts={"source": "x"}
    )
    run = brinell.run(shut, pictures(), lens=lens, out=tmp_path / "run", execution=PLAIN, saliency=True)
    assert "shut has no saliency maps: it is not a torch model" in capsys.readouterr().err
    found = run.findings()
    assert isinstance(found["saliency"], SaliencyFindings)
    assert "not a torch model" in found["saliency"].verdict("shut")
    assert found["highlights"].glare["shut", "highlight:exact"].failing > 0  # type: ignore[union-attr]
    run.report()


# ---- the commands ----


def test_the_commands_of_a_run(greys: Path, tmp_path: Path, capsys: Any) -> None:
    folder = str(tmp_path / "run")
    given = ["--model", "fake:grey:0.6", "--data", str(greys), "--lens", "highlights", "--sigma", "5", "--sigma", "20"]
    given += ["--batch", "8", "--set", "execution.runtime=torch"]
    main(["plan", *given])
    assert "forward passes" in capsys.readouterr().out
    main(["run", *given, "--saliency", "--out", folder])
    out = capsys.readouterr()
    assert "S-average" in out.out
    assert "has no saliency maps: it has no convolution" in " ".join(out.err.split())
    main(["summary", folder, "--json", "--at-least", "3"])
    told = json.loads(capsys.readouterr().out)
    assert list(told["lenses"]["highlights"]["grids"][0]["at_least"]) == ["3"]
    main(["report", folder, "--figures"])
    assert "highlight-cells-highlight-exact.png" in {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    main(["saliency", folder, "--method", "gradcam"])
    assert "has no saliency maps" in " ".join(capsys.readouterr().out.split())


def test_a_spot_can_be_shown(greys: Path, tmp_path: Path, capsys: Any) -> None:
    picture, sheet = str(greys / "light" / "00.png"), tmp_path / "sheet.png"
    main(["show", picture, "--spot", "20,10,5", "--spot", "8.5,30,3,0.5", "--size", "32", "--out", str(sheet)])
    with Image.open(sheet) as opened:
        assert opened.size[0] == 6 + 3 * (32 + 6)
    for wrong in ("20,10", "a,b,c", "1,2,0"):
        with pytest.raises(SystemExit):
            main(["show", picture, "--spot", wrong])
        assert "a spot" in capsys.readouterr().err
    main(["ls", "operators"])
    assert "Search for the faintest" in capsys.readouterr().out


# ---- the interval of a ratio ----


def test_the_interval_of_a_ratio_is_over_groups() -> None:
    a, b = np.array([3.0, 0, 5, 2, 8]), np.array([10.0, 2, 9, 7, 12])
    found = ratio(a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum())
    share = a.sum() / b.sum()
    spread = math.sqrt(((a - share * b) ** 2).sum() * 4 / 3) / b.sum()
    assert found.value == share
    assert (
        0.9 < (found.high - found.low) / (2 * 3.182446 * spread) < 1.2
    )  # about Student's, for groups worth four of a size
    assert math.isnan(ratio(0, 10, 0, 0, 100).low)  # one group tells no interval
    assert ratio(0, 10, 0, 0, 50).high > 0


# ---- real photographs ----


def photographed(folder: Path) -> Path:
    """Three scenes: one that no variant breaks, one that two of three break, and one that is wrong itself."""
    values = {"a": [20, 30, 40, 25], "b": [20, 220, 210, 30], "c": [230, 20, 20, 230]}
    for scene, levels in values.items():
        for number, level in enumerate(levels):
            noise = np.random.default_rng(number).integers(0, 8, (40, 40, 3))
            (folder / "dark").mkdir(parents=True, exist_ok=True)
            name = f"{scene}.png" if number == 0 else f"{scene}_torch{number}.png"
            Image.fromarray((level + noise).astype(np.uint8)).save(folder / "dark" / name)
    return folder


PATTERN = r"(?P<original>[^/]+?)(_torch(?P<variant>\d+))?\.png$"


def check_scenes(run: brinell.Run) -> None:
    one = run.findings()["photographs"].scenes["watchman"]  # type: ignore[union-attr]
    assert (one.scenes, one.right, one.variants, one.failing, one.failing_scenes) == (3, 2, 9, 2, 1)
    assert one.top1.value == 2 / 3
    assert one.average.value == pytest.approx((3 + 1 + 2) / 9)
    assert {k: value.value for k, value in one.at_least.items()} == {1: 1 / 3, 2: 1 / 3}
    assert {k: value.value for k, value in one.over_right.items()} == {1: 1 / 2, 2: 1 / 2}
    assert run.findings(at_least=(3,))["photographs"].scenes["watchman"].at_least[3].value == 2 / 3  # type: ignore[union-attr]


def test_variants_are_compared_with_the_original_s_answer(tmp_path: Path) -> None:
    """Without labels the answer to the original counts as right, also where that comes after its variants."""
    folder = photographed(tmp_path / "photos") / "dark"
    for file in list(folder.iterdir()):  # a flat folder, in which variants come first
        file.rename(tmp_path / "photos" / f"z{file.name}" if "_torch" not in file.name else tmp_path / "photos" / file.name)
    pattern = r"z?(?P<original>[abc])(_torch(?P<variant>\d+))?\.png$"
    Image.new("RGB", (40, 40)).save(tmp_path / "photos" / "c_torch9.png")  # black: the original is bright
    data = {"source": str(tmp_path / "photos"), "pattern": pattern, "labels": "prediction"}
    run = brinell.run(watchman(), data, lens="photographs", out=tmp_path / "run", execution=PLAIN, quiet=True)
    one = run.findings()["photographs"].scenes["watchman"]  # type: ignore[union-attr]
    assert (one.scenes, one.right, one.top1.value) == (3, 3, 1.0)
    assert (one.variants, one.failing, one.failing_scenes) == (10, 2 + 3, 2)
    black = run.rows("select correct from rows join samples using (image) where name like '%c_torch9.png'").fetchall()
    assert black == [(False,)]
    labels = run.rows("select original, count(distinct clean.label) from samples join clean using (index) group by all")
    assert sorted(labels.fetchall()) == [("a", 1), ("b", 1), ("c", 1)]
    assert "of a photographed variant: on its original" in " ".join(Path(run.report()).read_text().split())


def test_default_spots_are_scaled_on_small_images(tmp_path: Path, capsys: Any) -> None:
    """28 by 28 pixels: spots of 10 to 40 pixels would cover everything."""
    small = [(np.full((28, 28, 3), 20, np.uint8), "dark"), (np.full((30, 28, 3), 30, np.uint8), "dark")]
    large = (np.full((300, 200, 3), 25, np.uint8), "dark")
    lens = {"name": "highlights", "operators": ["highlight"], "cells": 2}
    runs = {}
    for name, data, extra in (
        ("small", small, {}),
        ("mixed", [*small, large], {}),
        ("large", [large], {}),
        ("pixels", small, {"relative": False}),
        ("given", small, {"sigmas": [10, 20]}),
    ):
        runs[name] = brinell.run(
            [watchman(), watchman("other")], data, lens=lens | extra, out=tmp_path / name, execution=PLAIN
        )
        said = [line for line in capsys.readouterr().err.splitlines() if "smaller than" in line]
        assert len(said) == (name in ("small", "mixed")), "once, for all models"
        if said:
            which = "all 2 images are" if name == "small" else "2 of 3 images are"
            assert said[0].startswith(f"{which} smaller than 160 pixels, which spots of 40 pixels would cover")
            assert "2.7, 5.3, 8, 11 % of the shorter side" in said[0] and "--no-relative" in said[0]
    sql = "select distinct height, sigma from rows join samples using (image) where level > 0 order by all"
    scaled = [28 * sigma / 375 for sigma in (10, 20, 30, 40)]
    found = {name: run.rows(sql).fetchall() for name, run in runs.items()}
    assert [sigma for height, sigma in found["small"] if height == 28] == pytest.approx(scaled)
    assert [sigma for height, sigma in found["mixed"] if height == 300] == [10, 20, 30, 40]
    assert [sigma for height, sigma in found["pixels"] if height == 28] == [10, 20, 30, 40]
    assert [sigma for height, sigma in found["given"] if height == 28] == [10, 20]
    names = {name: sigma_names(run, run.lens("highlights")) for name, run in runs.items()}
    assert names["small"] == ["2.7 %", "5.3 %", "8 %", "11 %"] and names["large"][0] == "10 px"
    assert names["mixed"][0] == "10 px or 2.7 %" and names["pixels"][0] == names["given"][0] == "10 px"
    assert "σ of 2.7 %, 5.3 %, 8 %, 11 % of the shorter side" in Path(runs["small"].report()).read_text()


def test_photographed_variants_by_a_pattern(tmp_path: Path) -> None:
    data = {"source": str(photographed(tmp_path / "photos")), "pattern": PATTERN}
    given: dict[str, Any] = {"lens": "photographs", "out": tmp_path / "run", "execution": PLAIN, "quiet": True}
    run = brinell.run(watchman(), data, saliency=True, **given)
    check_scenes(run)
    pairs = run.rows("select failed, count(*) from saliency group by all order by all").fetchall()
    assert pairs == [(False, 4), (True, 2)]  # against the originals that are right
    assert "photographed variants" in Path(run.report()).read_text().lower()
    (exhibit,) = read_exhibits(run, "photographs")  # of the scene b, whose original is right
    clean, changed = (np.asarray(Image.open(Path(run.folder) / file)) for file in (exhibit.clean_file, exhibit.file))
    assert exhibit.caption == "b, variant 1" and clean.mean() < 40 < 200 < changed.mean()
    assert "Variants that the model gets wrong" in Path(run.report()).read_text()


def test_photographed_variants_by_a_manifest(tmp_path: Path) -> None:
    folder = photographed(tmp_path / "photos")
    lines = ["file_name,label,original,variant"]
    for path in sorted((folder / "dark").iterdir()):
        scene, _, variant = path.stem.partition("_torch")
        lines.append(f"dark/{path.name},dark,{scene},{variant}")
    (folder / "list.csv").write_text("\n".join(lines))
    check_scenes(
        brinell.run(watchman(), folder / "list.csv", lens="photographs", out=tmp_path / "run", execution=PLAIN, quiet=True)
    )


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("(?P<original>.+", "not a valid regular expression"), ("(.+)", "needs the groups"), (PATTERN + "x", "doesn't match")],
)
def test_a_wrong_pattern_is_told(pattern: str, told: str, tmp_path: Path) -> None:
    data = {"source": str(photographed(tmp_path / "photos")), "pattern": pattern}
    with pytest.raises(brinell.BrinellError, match=told):
        brinell.run(watchman(), data, lens="photographs", out=tmp_path / "run", execution=PLAIN, quiet=True)


def test_without_groups_there_is_nothing_to_tell(tmp_path: Path) -> None:
    with pytest.raises(brinell.BrinellError, match=r"data\.pattern"):
        brinell.run(
            watchman(),
            photographed(tmp_path / "photos"),
            lens="photographs",
            out=tmp_path / "run",
            execution=PLAIN,
            quiet=True,
        ).findings()
