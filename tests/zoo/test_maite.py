"""MAITE both ways, and nrtk's perturbers as operators, with the real libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.adapters import maite as adapter
from brinell.adapters.nrtk import register_perturbers
from brinell.datasets.sources import open_dataset
from brinell.errors import ConfigError, LabelError
from brinell.perturb import apply
from brinell.types import Sample
from conftest import PLAIN

maite = pytest.importorskip("maite", reason="needs maite: make test-zoo", exc_type=ImportError)
from maite._internals.protocols.object_detection import _ObjectDetectionTarget as Target  # noqa: E402
from maite.protocols import image_classification as ic  # noqa: E402
from maite.protocols import object_detection as od  # noqa: E402
from maite.tasks import evaluate, predict  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

LENS = {"name": "profile", "operators": ["fade_black"], "levels": 20}


class Greys:
    """A dataset of grey images, light or dark, as brinell knows it; with boxes if asked for."""

    name, classes = "greys", ("light", "dark")

    def __init__(self, boxed: bool = False) -> None:
        self.boxed = boxed

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int, /) -> Sample:
        image = torch.full((3, 24, 32), 12 * index + 20, dtype=torch.uint8)
        image[:, 4:10, 6:12] = 255
        label = int(12 * index + 20 < 64)
        box = torch.tensor([[6.0, 4.0, 12.0, 10.0]])
        return Sample(image, label, f"{index}", box, (label,)) if self.boxed else Sample(image, label, f"{index}")


def grey_model() -> brinell.Model:
    return brinell.open_model("fake:grey:0.25")


def test_datasets_models_metrics_and_augmentations_are_those_of_the_protocols() -> None:
    data, model = adapter.Dataset(Greys()), adapter.Classifier(grey_model())
    fog = adapter.Augmentation("fade_black", 10)
    assert isinstance(data, ic.Dataset) and isinstance(model, ic.Model) and isinstance(fog, ic.Augmentation)
    assert isinstance(adapter.Accuracy(), ic.Metric) and isinstance(adapter.Dataset(Greys(True)), od.Dataset)
    assert isinstance(adapter.Dataset(Greys(True))[0][1], Target)


def test_evaluate() -> None:
    data, model, metric = adapter.Dataset(Greys()), adapter.Classifier(grey_model()), adapter.Accuracy()
    clean, _, _ = evaluate(model=model, metric=metric, dataset=data, batch_size=3)
    assert clean["images"] == 10 and clean["accuracy"] > 0.7 and clean["low"] < clean["accuracy"] < clean["high"] <= 1
    dark, _, augmented = evaluate(
        model=model,
        metric=metric,
        dataset=data,
        batch_size=3,
        augmentation=adapter.Augmentation("fade_black", 30),
        return_augmented_data=True,
    )
    assert dark["accuracy"] < clean["accuracy"]
    images, _, metadata = augmented[0]
    assert np.array_equal(images[1], apply(data[1][0], "fade_black", 30, layout="CHW"))
    assert metadata[1] == {"id": "1", "brinell": {"operator": "fade_black:published", "severity": 30, "seed": 0}}


def test_an_augmentation_moves_boxes() -> None:
    data = adapter.Dataset(Greys(True))
    images, targets, _ = adapter.Augmentation("horizontal_translation", 0.25)(([data[0][0]], [data[0][1]], [data[0][2]]))
    assert targets[0].boxes.tolist() == [[14, 4, 20, 10]] and targets[0].labels.tolist() == [1]
    assert images[0][0, 4:10, 14:20].min() == 255
    _, gone, _ = adapter.Augmentation("horizontal_translation", 1)(([data[0][0]], [data[0][1]], [data[0][2]]))
    assert len(gone[0].boxes) == len(gone[0].labels) == len(gone[0].scores) == 0


def test_a_dataset_of_maite_is_data() -> None:
    ours = open_dataset(adapter.Dataset(Greys()))
    assert ours.classes == ("light", "dark") and ours[3].label == Greys()[3].label and ours[3].name == "3"
    boxed = open_dataset(adapter.Dataset(Greys(True)))
    assert boxed[0].boxes.tolist() == [[6, 4, 12, 10]] and boxed[0].box_labels == (1,)
    with pytest.raises(LabelError, match="is not a known class"):
        adapter.Dataset(Named("bird"))[0]


class Named(Greys):
    """A dataset whose label is a name."""

    def __init__(self, label: str) -> None:
        self.label = label

    def __getitem__(self, index: int, /) -> Sample:
        return Sample(torch.zeros(3, 9, 9, dtype=torch.uint8), self.label, "x")


class MaiteClassifier:
    """A model as somebody who knows MAITE alone would write it."""

    metadata = {"id": "theirs", "index2label": {0: "light", 1: "dark"}}

    def __call__(self, batch_input: Any, /) -> list[np.ndarray]:
        assert all(image.dtype == np.uint8 and image.shape == (3, 32, 32) for image in batch_input)
        above = [(float(np.mean(image)) / 255 - 0.25) * 20 for image in batch_input]
        return [np.array([value, -value], np.float32) for value in above]


def test_a_classifier_of_maite_gives_the_rows_of_the_same_model(tmp_path: Path) -> None:
    theirs = adapter.from_classifier(MaiteClassifier(), size=32)
    assert theirs.name == "theirs" and theirs.classes is not None and not theirs.probabilities
    sql = "select image, level, prediction, round(confidence, 3) from rows order by all"
    found = [
        brinell.run(model, Greys(), lens=LENS, out=tmp_path / name, execution=PLAIN, quiet=True)
        for model, name in ((theirs, "theirs"), (grey_model(), "ours"))
    ]
    assert found[0].rows(sql).fetchall() == found[1].rows(sql).fetchall()


class MaiteDetector:
    """Finds the bright rectangle."""

    metadata = {"id": "bright", "index2label": {0: "light", 1: "dark"}}

    def __call__(self, batch_input: Any, /) -> list[adapter.Target]:
        targets = []
        for image in batch_input:
            rows, columns = np.nonzero(image[0] > 200)
            box = [[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]] if len(rows) else np.zeros((0, 4))
            found = len(box)
            targets.append(adapter.Target(np.array(box, np.float32), np.full(found, 1), np.full(found, 0.9, np.float32)))
        return targets


def test_a_detector_of_maite_both_ways() -> None:
    ours = adapter.from_detector(MaiteDetector(), size=(24, 32))
    assert ours.detector is not None
    back = adapter.Detector(ours)
    [(one, two)], _ = predict(model=back, dataset=adapter.Dataset(Pair()), batch_size=2)[:2]
    assert np.allclose(one.boxes, [[6, 4, 12, 10]]) and one.labels.tolist() == [1] and np.allclose(one.scores, 0.9)
    assert np.allclose(two.boxes, [[6, 4, 12, 10]])


class Pair(Greys):
    """The first two images, with boxes."""

    def __init__(self) -> None:
        super().__init__(True)

    def __len__(self) -> int:
        return 2


def test_a_metric_of_maite_on_rows(tmp_path: Path) -> None:
    run = brinell.run(grey_model(), Greys(), lens=LENS, out=tmp_path / "run", execution=PLAIN, quiet=True)
    found = adapter.evaluate_rows(run, adapter.Accuracy())
    expected = run.rows("select operator, level, avg(correct::int) from rows group by all order by all").fetchall()
    assert [(one["operator"], one["level"], one["accuracy"]) for one in found] == expected
    theirs = pytest.importorskip("torchmetrics", reason="needs torchmetrics")
    wrapped = TorchMetric(theirs.Accuracy(task="multiclass", num_classes=2, average="micro"))
    assert [one["accuracy"] for one in adapter.evaluate_rows(run, wrapped)] == pytest.approx([one[2] for one in expected])


class TorchMetric:
    """A metric of torchmetrics as MAITE's."""

    def __init__(self, metric: nn.Module) -> None:
        self.metric, self.metadata = metric, {"id": "accuracy"}

    def reset(self) -> None:
        self.metric.reset()

    def update(self, predictions: Any, targets: Any, metadata: Any, /) -> None:
        scores, labels = (torch.from_numpy(np.stack(each)) for each in (predictions, targets))
        self.metric.update(scores, labels.argmax(1))

    def compute(self) -> dict[str, float]:
        return {"accuracy": float(self.metric.compute())}


# ---- nrtk ----


def test_perturbers_of_nrtk_are_operators(tmp_path: Path) -> None:
    pytest.importorskip("nrtk", reason="needs nrtk: make test-zoo", exc_type=ImportError)
    from nrtk.impls.perturb_image.photometric.enhance import BrightnessPerturber
    from nrtk.impls.perturb_image_factory import PerturberStepFactory

    factory = PerturberStepFactory(perturber=BrightnessPerturber, theta_key="factor", start=0.9, stop=0.05, step=-0.1)
    operator = register_perturbers("nrtk_dimming", factory, title="dimming (nrtk)")
    assert operator.facts.amount(2, 8, 8) == pytest.approx(0.8) and operator.unit == "factor"
    image = Greys()[9].image
    expected, _ = list(factory)[4](image=image.permute(1, 2, 0).contiguous().numpy())
    assert np.array_equal(apply(image, "nrtk_dimming", 5).permute(1, 2, 0).numpy(), expected)
    assert torch.equal(apply(image, "nrtk_dimming", 0), image)
    lens = {"name": "profile", "operators": ["nrtk_dimming"], "levels": 9}
    run = brinell.run(grey_model(), Greys(), lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    accuracy = run.rows("select avg(correct::int) from rows group by level order by level").fetchall()
    assert accuracy[0][0] > accuracy[-1][0] and "dimming (nrtk)" in str(run.summary())


def test_random_perturbers_must_be_repeatable() -> None:
    pytest.importorskip("nrtk", reason="needs nrtk: make test-zoo", exc_type=ImportError)
    noise = pytest.importorskip(
        "nrtk.impls.perturb_image.photometric.noise", reason="needs scikit-image", exc_type=ImportError
    )
    try:
        random = noise.GaussianNoisePerturber(var=0.05)
    except ImportError:
        pytest.skip("needs scikit-image")
    with pytest.raises(ConfigError, match="is random, so that its rows could not be repeated"):
        register_perturbers("nrtk_noise", [random])
    fixed = register_perturbers("nrtk_noise", [noise.GaussianNoisePerturber(var=0.05, seed=1, is_static=True)])
    assert fixed.id == "nrtk_noise:nrtk"
