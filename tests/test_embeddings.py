"""Embedders: with a gallery they are classifiers, and without one their vectors are compared with those of clean images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.criteria.criterion import find_criterion
from brinell.errors import BrinellError, ConfigError, ModelError
from brinell.hardening.recipes import require_trainable
from brinell.models.embedding import Nearest, fit_linear
from brinell.models.export import export
from brinell.models.sources import open_model
from conftest import PLAIN
from services import listening, v2

COLOURS = {"blue": (40, 60, 200), "green": (50, 190, 60), "red": (210, 50, 40)}


class Means(nn.Module):
    """The mean colour of the four quarters of an image, from which black is taken away."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.adaptive_avg_pool2d(images, 2).flatten(1) - 0.1


def flat() -> nn.Module:
    return nn.Flatten(2)


def pictures(root: Path, count: int, seed: int) -> Path:
    """Write noisy pictures of three colours, in a folder for each."""
    draw = np.random.default_rng(seed)
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.clip(np.array(colour) + draw.normal(0, 25, (16, 16, 3)) + draw.normal(0, 15), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{number}.png")
    return root


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("gallery") / "known", 4, 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("data") / "new", 4, 1)


def open_means(**more: Any) -> brinell.Model:
    return open_model({"source": "torch:test_embeddings:Means", "task": "embedding", "size": 16, **more}, PLAIN)


def inputs(folder: Path) -> tuple[Tensor, Tensor]:
    dataset = brinell.open_dataset(str(folder))
    images = torch.stack([dataset[index].image for index in range(len(dataset))])
    return images, torch.tensor([dataset[index].label for index in range(len(dataset))])


def test_the_nearest_neighbour_is_that_of_a_plain_loop() -> None:
    draw = torch.Generator().manual_seed(0)
    known, new = (nn.functional.normalize(torch.randn(count, 5, generator=draw), dim=1) for count in (9, 6))
    owners = torch.tensor([0, 0, 1, 2, 2, 2, 1, 0, 1])
    logits = Nearest(known, owners, 3)(new)
    for row, vector in zip(logits, new, strict=True):
        best = max(range(9), key=lambda place, vector=vector: float(known[place] @ vector))
        assert int(row.argmax()) == int(owners[best])
        assert float(row.max()) == pytest.approx(20 * float(known[best] @ vector), abs=1e-5)


def test_the_linear_probe_is_logistic_regression() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    draw = torch.Generator().manual_seed(0)
    vectors = nn.functional.normalize(torch.randn(60, 4, generator=draw), dim=1)
    owners = (vectors[:, 0] > 0).long() + (vectors[:, 1] > 0.3).long()
    head = fit_linear(vectors, owners, 3)
    # scikit-learn's penalty is weights² / 2C for the sum of losses; ours is 1e-3 for their mean
    reference = linear_model.LogisticRegression(C=1 / (2 * 1e-3 * 60), max_iter=2000, tol=1e-8).fit(vectors.numpy(), owners)
    expected = torch.from_numpy(reference.predict_proba(vectors.numpy())).float()
    torch.testing.assert_close(head(vectors).softmax(1), expected, atol=2e-2, rtol=0)


@pytest.mark.parametrize("match", ["nearest", "linear"])
def test_a_gallery_makes_a_classifier(match: str, gallery: Path, data: Path, tmp_path: Path) -> None:
    model = open_means(gallery=str(gallery), match=match)
    assert model.classes is not None and model.classes.names == tuple(sorted(COLOURS))
    images, labels = inputs(data)
    assert torch.equal(model.predict(images).argmax(1), labels)
    assert model.differentiable is not None
    lens = [{"name": "profile", "operators": ["fade_white"], "levels": 4}, {"name": "knob", "operators": ["brightness"]}]
    run = brinell.run(model, data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    rows = run.query("select correct, embedding_distance from rows where lens = 'profile' and level = 0")
    assert all(correct and distance < 1e-5 for correct, distance in rows)
    assert run.query("select count(*) from rows where level = 4 and embedding_distance > 0.001")[0][0] > 0
    assert run.query("select count(*) from rows where lens = 'knob' and status = 'broken'")[0][0] > 0


def test_without_classes_vectors_are_compared(data: Path, tmp_path: Path) -> None:
    """Distances in rows are those that are computed here, and the default criterion is on them."""
    model = open_means()
    assert (model.task, model.outputs) == ("embedding", 1)
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 14}
    run = brinell.run(model, data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    rows = run.query("select level, correct, embedding_distance, confidence from rows")
    assert all(correct == (distance <= 0.3) for _, correct, distance, _ in rows)
    assert all(confidence == pytest.approx(1 - distance, abs=1e-6) for *_, distance, confidence in rows)
    assert {correct for level, correct, *_ in rows if level == 0} == {True}
    assert any(not correct for level, correct, *_ in rows if level == 14)
    strict = brinell.run(
        model, data, lens={**lens, "criterion": "embedding_moved(0.01)"}, out=tmp_path / "b", execution=PLAIN, quiet=True
    )
    assert strict.query("select count(*) from rows where not correct") > run.query(
        "select count(*) from rows where not correct"
    )
    exhibits = run.store.read_json("exhibits.json")
    assert any("cosine distance" in exhibit["reason"] for exhibit in exhibits)


def test_every_lens_runs_or_says_why_not(data: Path, tmp_path: Path) -> None:
    flat = {"source": str(data), "limit": 3}
    with pytest.raises(
        BrinellError, match=r"the geometry lens can't measure model Means: .* an embedder without a gallery"
    ):
        brinell.run(open_means(), flat, lens="geometry", out=tmp_path / "a", execution=PLAIN, quiet=True)
    lenses = [{"name": "highlights"}, {"name": "fragility", "operators": ["windows"], "sizes": [0.75], "stride": 2}]
    run = brinell.run(open_means(), flat, lens=lenses, out=tmp_path / "b", execution=PLAIN, quiet=True)
    assert {lens for (lens,) in run.query("select distinct lens from rows")} == {"highlights", "fragility"}


def test_onnx_files_and_services_give_the_same_vectors(data: Path, gallery: Path, tmp_path: Path) -> None:
    images, _ = inputs(data)
    expected = open_means(gallery=str(gallery))
    export(Means(), torch.zeros(2, 3, 16, 16), tmp_path / "net.onnx", "net")
    options = {"task": "embedding", "gallery": str(gallery)}
    file = open_model({"source": f"onnx:{tmp_path / 'net.onnx'}", **options}, PLAIN)
    torch.testing.assert_close(file.embed(images), expected.embed(images), atol=1e-5, rtol=0)
    torch.testing.assert_close(file.predict(images), expected.predict(images), atol=1e-5, rtol=0)

    def infer(request: Any) -> Any:
        vectors = Means()(torch.tensor(request["inputs"][0]["data"]).view(-1, 3, 16, 16))
        return {
            "outputs": [{"name": "v", "datatype": "FP32", "shape": list(vectors.shape), "data": vectors.flatten().tolist()}]
        }

    with listening(v2({"name": "x", "datatype": "FP32", "shape": [-1, 3, 16, 16]}, infer)) as server:
        service = open_model({"source": f"{server.url}/v2/models/m", **options}, PLAIN)
        torch.testing.assert_close(service.predict(images), expected.predict(images), atol=1e-5, rtol=0)


def test_refusals(gallery: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="Means is an embedder, but harden trains classifiers"):
        require_trainable(open_means())
    with pytest.raises(ConfigError, match="gallery and match are options of embedders; set task=embedding"):
        open_model({"source": "fake:grey", "gallery": str(gallery)}, PLAIN)
    with pytest.raises(ConfigError, match="match is an option of galleries"):
        open_means(match="linear")
    with pytest.raises(ConfigError, match="should be a folder with a folder of images for each of at least two classes"):
        open_means(gallery=str(tmp_path))
    with pytest.raises(ConfigError, match="classes is no option of embedders"):
        open_means(classes="imagenet")
    with pytest.raises(ModelError, match=r"should return one vector per image \(N, D\), but returned \(3, 3, 256\)"):
        open_model({"source": "torch:test_embeddings:flat", "task": "embedding", "size": 16}, PLAIN)
    with pytest.raises(ConfigError, match="embedding_moved expects a cosine distance from 0 to 2"):
        find_criterion("embedding_moved(3)")
    with pytest.raises(ConfigError, match=r"criterion embedding_moved\(0.3\) needs an embedder, but model grey is none"):
        lens = {"name": "profile", "operators": ["fade_black"], "criterion": "embedding_moved"}
        brinell.run(
            "fake:grey", {"source": str(gallery), "labels": "prediction"}, lens=lens, out=tmp_path / "r", quiet=True
        )
