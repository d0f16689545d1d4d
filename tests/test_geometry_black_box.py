"""The geometry lens without gradients: a detector, and a classifier behind HTTP, under random motions and on a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.errors import ConfigError
from brinell.motion.groups import GROUPS
from brinell.serve.server import Server
from conftest import PLAIN

LENS: dict[str, Any] = {
    "name": "geometry",
    "operators": ["rotation_scale"],
    "methods": ["random", "grid"],
    "draws": 2,
    "radii": [0.0, 0.4],
    "grid_motions": 9,
}


def moved(model_input: Tensor, motion: list[float], preprocess: Any) -> Tensor:
    """A model input moved by torch's own affine grid, whose coordinates are halves of the sides; in the model's scale."""
    height, width = model_input.shape[1:]
    matrix = GROUPS["rotation_scale"].exp(torch.tensor(motion, dtype=torch.float64))[:2]
    sides = torch.tensor([width - 1, height - 1], dtype=torch.float64)
    theta = torch.cat([matrix[:, :2] * sides / sides[:, None], 2 * matrix[:, 2:] / sides[:, None]], 1)
    image = preprocess.normalise(model_input[None])
    grid = nn.functional.affine_grid(theta[None].float(), list(image.shape), align_corners=True)
    return nn.functional.grid_sample(image, grid, align_corners=True)


def told(run: brinell.Run) -> list[tuple[int, str, str, int | None, list[float]]]:
    """Each row with a motion: the sample's place, operator, status, prediction and motion."""
    return run.rows(
        """select samples.index, operator, status, prediction, motion from rows join samples using (image)
           where motion is not null order by samples.index, operator, draw, amount"""
    ).fetchall()


@pytest.fixture(scope="module")
def detected(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[brinell.Run, brinell.Model, Any, Any]:
    """A detector's ONNX file on three photographs; what its default methods are, too."""
    classes = assets / "models" / "coco80.txt"
    source = f"onnx:{assets}/models/yolo_fastest_1.1_coco.onnx?task=detection&classes={classes}&interpolation=bilinear"
    model = brinell.open_model(source, PLAIN)
    dataset = brinell.open_dataset(assets / "images" / "coco_val_128" / "instances.json")
    data = {"source": str(assets / "images" / "coco_val_128" / "instances.json"), "limit": 3}
    run = brinell.run(model, data, lens=LENS, out=tmp_path_factory.mktemp("runs") / "detector", execution=PLAIN, quiet=True)
    return run, model, dataset, data


def test_a_detectors_label_changes_under_motions(detected: tuple[brinell.Run, brinell.Model, Any, Any]) -> None:
    """What a row says is what the detector says to an image that was moved by other means."""
    run, model, dataset, _ = detected
    rows = told(run)
    kinds = {(operator, status) for _, operator, status, *_ in rows}
    assert ("rotation_scale:random", "broken") in kinds or ("rotation_scale:grid", "broken") in kinds
    agree = []
    for index, _, status, prediction, motion in rows:
        image = moved(model.preprocess.model_input(dataset[index].image), motion, model.preprocess)
        scores = model.forward(image)[0]
        label = int(scores.argmax()) if float(scores.max()) > 0 else None
        agree.append(label == prediction)
        assert status in ("broken", "survived")
    assert sum(agree) >= len(agree) - 1  # a label at the edge between two classes may fall either way
    still = run.rows("select distinct status from rows where amount = 0").fetchall()
    assert still == [("survived",)]


def test_manifool_asks_for_a_model_with_gradients(
    detected: tuple[brinell.Run, brinell.Model, Any, Any], tmp_path: Path
) -> None:
    """By name it is refused in a line; among the usual methods it is left out, and the run says so."""
    _, model, _, data = detected
    data = {**data, "limit": 1}
    problem = (
        r"^rotation_scale:manifool needs gradients, and model .* has none \(it is a detector\); use the methods random"
    )
    with pytest.raises(ConfigError, match=problem):
        brinell.run(model, data, lens={**LENS, "methods": ["manifool"]}, out=tmp_path / "no", quiet=True)
    usual = {name: value for name, value in LENS.items() if name != "methods"}
    run = brinell.run(model, data, lens=usual, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert [entry["reason"] for entry in run.manifest["unsupported"]] == ["the model has no gradients"]
    assert run.rows("select distinct operator from rows").fetchall() == [("rotation_scale:random",)]


class Slanted(nn.Module):
    """Four classes by which half of an image is the brightest."""

    def forward(self, images: Tensor) -> Tensor:
        halves = [images[..., :16, :], images[..., 16:, :], images[..., :, :16], images[..., :, 16:]]
        return 20 * torch.stack([half.mean((1, 2, 3)) for half in halves], 1)


def test_a_classifier_behind_http_is_searched_like_one_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over loopback: the same motions, the same labels, every answer paid for once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = brinell.wrap(Slanted(), size=32, name="slanted", classes=["top", "bottom", "left", "right"], execution=PLAIN)
    at = torch.arange(32) - 15.5
    ways = torch.deg2rad(torch.tensor([30.0, 120.0, 215.0]))[:, None, None]
    ramps = 128 + 5 * (ways.cos() * at + ways.sin() * at[:, None])
    data = [(image.to(torch.uint8).expand(3, -1, -1).contiguous(), 0) for image in ramps]

    def run(asked: brinell.Model, name: str) -> brinell.Run:
        return brinell.run(asked, data, lens=LENS, out=tmp_path / name, execution=PLAIN, quiet=True)

    with Server(model, port=0) as server:
        remote = brinell.open_model(server.start().url, PLAIN)
        there = run(remote, "there")
        assert remote.service is not None
        asked = remote.service.counts.sent
        with pytest.raises(
            ConfigError,
            match=r"^rotation_scale:manifool needs gradients, .*\(it is not a torch model\); use the methods random",
        ):
            brinell.run(remote, data, lens={**LENS, "methods": ["manifool"]}, out=tmp_path / "no", quiet=True)
    here = run(model, "here")
    ours, theirs = told(here), told(there)
    assert [row[:2] for row in ours] == [row[:2] for row in theirs]
    assert {row[2] for row in ours} == {"broken", "survived"}
    assert [row[2:4] for row in ours] == [row[2:4] for row in theirs]  # whole grey levels change nothing here
    assert torch.allclose(torch.tensor([row[4] for row in ours]), torch.tensor([row[4] for row in theirs]), atol=1e-6)
    trials = 3 * (2 * 2 + 8)
    assert 3 * (2 + 8) <= asked < trials  # motions of score 0 are the clean images, which were answered before
