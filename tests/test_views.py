"""Views and lenses that change original images, before they are resized to model inputs."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.config.lens import LensOptions
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.runner import execute
from brinell.engine.setup import assemble
from brinell.lenses.lens import LENSES, Lens
from brinell.lenses.method import Files, Measuring, Method, Shard, Trials
from brinell.lenses.reader import Reader
from brinell.models.preprocess import Preprocess
from brinell.perturb.view import View
from brinell.run_config import load_config
from conftest import PLAIN


def add_band(original: Tensor, parameters: Tensor, to_inputs: object) -> Tensor:
    """Return the original with a white row, once per parameter."""
    images = original.expand(len(parameters), -1, -1, -1).clone()
    for image, (row,) in zip(images, parameters.to(torch.int64).tolist(), strict=True):
        image[:, row] = 255
    return to_inputs(images)  # type: ignore[operator]


BAND = View("band", "test", add_band, title="a white row", parameters=("row",))


class BandOptions(LensOptions):
    name: str = "bands"


def measure_bands(shard: Shard, change: View, options: BandOptions) -> Measuring:
    assert shard.sizes is not None
    samples = torch.arange(shard.count).repeat_interleave(5)
    rows = torch.arange(5).repeat(shard.count).to(torch.float64)[:, None] * 3
    outcome = yield Trials(samples, change, rows)
    sizes = {f"sizes/{len(shard.sizes)}.txt": repr(shard.sizes.tolist()).encode()}
    return {
        "sample": samples,
        "correct": ~outcome.broken,
        "level": rows[:, 0].to(torch.int64),
        "mse": outcome.difference.mse,
        "files": Files(sizes),
    }


BANDS = Method(
    changes=lambda options: [BAND],
    measure=measure_bands,
    trials=lambda *_: 5,
    replay=lambda *_: BAND,
    with_originals=True,
    images_per_unit=2,
)


@pytest.fixture
def bands_lens(monkeypatch: pytest.MonkeyPatch) -> Lens:
    """A registered lens whose modules exist in memory only."""
    reader = Reader({}, lambda *_: pytest.fail("no findings are needed"), "true", "[level]")
    parts = {"options": {"OPTIONS": BandOptions}, "lens": {"METHOD": BANDS}, "findings": {"READER": reader}}
    for name, attributes in parts.items():
        module = types.ModuleType(f"bands_lens.{name}")
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    lens = Lens("bands", "Does a white row break the model?", "a test", "bands_lens")
    list(LENSES)  # loads the other lenses first
    monkeypatch.setitem(LENSES._parts, "bands", lens)
    return lens


@pytest.fixture
def bands(tmp_path: Path) -> Path:
    for name, height, width in (("a", 40, 30), ("b", 25, 61), ("c", 33, 33)):
        picture = np.random.default_rng(height).integers(0, 200, (height, width, 3), np.uint8)
        Image.fromarray(picture).save(tmp_path / f"{name}.png")
    (tmp_path / "metadata.csv").write_text("file_name,label\na.png,0\nb.png,1\nc.png,0\n")
    return tmp_path


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_model_inputs_are_made_from_changed_originals(bands: Path, batch: int) -> None:
    model = brinell.open_model("fake:grey", PLAIN)
    originals = [brinell.open_dataset(str(bands))[index].image for index in range(3)]
    inputs = torch.stack([model.preprocess.model_input(image) for image in originals])
    labels, ids = torch.zeros(3, dtype=torch.int64), torch.arange(3)
    criterion = find_criterion("misclassification", None, 2)
    evaluator = Evaluator.of(model, inputs, ids, labels, criterion=criterion, seed=0, batch=batch, originals=originals)
    sizes = evaluator.shard().sizes
    assert sizes is not None and sizes.tolist() == [[40, 30], [25, 61], [33, 33]]
    samples, rows = torch.tensor([0, 0, 2, 1, 0]), torch.tensor([[3.0], [20.0], [4.0], [24.0], [0.0]], dtype=torch.float64)
    made = evaluator.renderer.images(BAND, samples, rows)
    outcome = evaluator.query(Trials(samples, BAND, rows))
    for index, (sample, row) in enumerate(zip(samples.tolist(), rows[:, 0].to(torch.int64).tolist(), strict=True)):
        changed = originals[sample].clone()
        changed[:, row] = 255
        assert torch.equal(made[index], model.preprocess.model_input(changed))
        gap = (made[index].double() - inputs[sample].double()) / 255
        assert float(outcome.difference.mse[index]) == pytest.approx(float((gap**2).mean()), rel=1e-5)


def test_a_view_without_comparison_has_no_distances(bands: Path) -> None:
    model = brinell.open_model("fake:grey", PLAIN)
    original = brinell.open_dataset(str(bands))[0].image
    model_input, label = model.preprocess.model_input(original)[None], torch.zeros(1, dtype=torch.int64)
    criterion = find_criterion("misclassification", None, 2)
    evaluator = Evaluator.of(model, model_input, label, label, criterion=criterion, seed=0, batch=4, originals=[original])
    view = View("window", "test", add_band, title="a window", parameters=("row",), same_scene=False)
    outcome = evaluator.query(Trials(torch.zeros(2, dtype=torch.int64), view, torch.zeros(2, 1, dtype=torch.float64)))
    assert bool(outcome.difference.mse.isnan().all()) and bool(outcome.difference.changed.isnan().all())


def test_a_lens_on_originals_writes_files_and_small_units(bands: Path, bands_lens: Lens, tmp_path: Path) -> None:
    config = load_config({"models": ["fake:grey"], "data": str(bands), "lenses": [{"name": "profile"}]}).model_copy(
        update={"lenses": (BandOptions(),), "out": str(tmp_path / "run"), "execution": PLAIN}
    )
    run = execute(assemble(config))
    assert run.query("select count(*), count(distinct image) from rows") == [(15, 3)]
    assert len(run.store.unit_files()) == 2
    assert run.store.read("bands", "sizes", "2.txt") == b"[[40, 30], [25, 61]]"
    assert run.store.read("bands", "sizes", "1.txt") == b"[[33, 33]]"


@pytest.mark.parametrize("size", [(31, 47), (90, 60), (7, 200)])
@pytest.mark.parametrize("short_side", [None, 20, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_model_inputs_of_a_batch_equal_those_of_pillow(
    size: tuple[int, int], short_side: int | None, channels: int
) -> None:
    """Where the centre crop is larger than the resized image, the rest is black."""
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 3, *size), np.uint8))
    pre = Preprocess(32, 40, channels, short_side, "bilinear")
    made = pre.inputs(images)
    for image, model_input in zip(images, made, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L" if channels == 1 else "RGB")
        wide, tall = (40, 32) if short_side is None else (short_side * side // min(size) for side in size[::-1])
        picture = picture.resize((wide, size[0]), Image.Resampling.BILINEAR).resize((wide, tall), Image.Resampling.BILINEAR)
        left, top = (0, 0) if short_side is None else (round((wide - 40) / 2), round((tall - 32) / 2))
        expected = np.asarray(picture.crop((left, top, left + 40, top + 32))).reshape(32, 40, channels)
        assert np.array_equal(model_input.permute(1, 2, 0), expected)
