"""Operators as a library: images of any kind in, the same kind out."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.errors import ConfigError, DataError
from brinell.perturb import Perturbation, apply
from brinell.perturb.operator import OPERATORS
from brinell.perturb.property import PROPERTIES
from brinell.types import id_number, image_id

CHANGES = [
    *(pytest.param(one.id, 7, id=one.id) for one in OPERATORS.values() if not (one.white_box or one.facts.family)),
    *(pytest.param(one.id, 0.3, id=one.id) for one in PROPERTIES.values()),
]


@pytest.fixture(scope="module")
def photos() -> Tensor:
    """Two smooth random images, uint8 (2, 3, 24, 32)."""
    coarse = np.random.default_rng(0).random((2, 3, 6, 8), np.float32)
    smooth = torch.nn.functional.interpolate(torch.from_numpy(coarse), (24, 32), mode="bilinear")
    return (smooth * 255).to(torch.uint8)


@pytest.mark.parametrize(("operator", "severity"), CHANGES)
def test_every_operator_gives_the_same_pixels_for_every_kind_of_image(
    operator: str, severity: float, photos: Tensor
) -> None:
    expected = apply(photos, operator, severity, seed=3)
    assert expected.dtype == torch.uint8 and expected.shape == photos.shape
    last = photos.permute(0, 2, 3, 1).contiguous().numpy()
    assert np.array_equal(apply(last, operator, severity, seed=3), expected.permute(0, 2, 3, 1).numpy())
    pictures = [Image.fromarray(image) for image in last]
    changed = apply(pictures, operator, severity, seed=3)
    assert all(isinstance(picture, Image.Image) and picture.mode == "RGB" for picture in changed)
    assert np.array_equal(np.stack([np.asarray(picture) for picture in changed]), expected.permute(0, 2, 3, 1).numpy())
    floats = apply(photos / 255, operator, severity, seed=3)
    assert floats.dtype == torch.float32 and torch.equal((floats * 255).round().to(torch.uint8), expected)


@pytest.mark.parametrize(("operator", "severity"), CHANGES)
def test_severity_0_changes_nothing(operator: str, severity: float, photos: Tensor) -> None:
    floats = photos.numpy().astype(np.float64) / 256  # between grey levels
    assert np.array_equal(apply(floats, operator, 0), floats)


def test_results_are_those_of_runs(photos: Tensor) -> None:
    ids = torch.tensor([id_number(image_id(image)) for image in photos])
    noisy = PROPERTIES["gaussian_noise:dsn2020"].apply(
        photos, torch.full((2, 1), 0.5, dtype=torch.float64), seed=7, ids=ids
    )
    assert torch.equal(apply(photos, "gaussian_noise:dsn2020", 0.5, seed=7), noisy)
    exchanged = OPERATORS["pixel_exchange:paper"].at(photos, 5, seed=7, ids=ids)
    assert torch.equal(apply(photos, "pixel_exchange:paper", 5, seed=7), exchanged)


def test_random_operators_depend_on_the_image_and_the_seed_alone(photos: Tensor) -> None:
    both = apply(photos, "fog", 0.4)
    assert torch.equal(apply(photos[1], "fog", 0.4), both[1])
    assert torch.equal(apply(photos.flip(0), "fog", 0.4).flip(0), both)
    assert not torch.equal(apply(photos, "fog", 0.4, seed=1), both)


def test_one_severity_for_each_image(photos: Tensor) -> None:
    changed = apply(photos, "jpeg", [0, 20])
    assert torch.equal(changed[0], photos[0]) and torch.equal(changed[1], apply(photos[1], "jpeg", 20))
    mixed = apply([photos[0], photos[1][:, :16], photos[1]], "fog", [0.1, 0.2, 0.3])
    assert [tuple(image.shape) for image in mixed] == [(3, 24, 32), (3, 16, 32), (3, 24, 32)]
    assert torch.equal(mixed[2], apply(photos[1], "fog", 0.3))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((24, 32), "HW"), ((24, 32, 1), "HWC"), ((1, 24, 32), "CHW"), ((5, 24, 32), "NHW"), ((5, 24, 32, 3), "NHWC")],
)
def test_layouts(shape: tuple[int, ...], layout: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    named = apply(images, "fade_black", 10, layout=layout)
    assert named.shape == shape and named.dtype == np.uint8 and (named <= images).all() and (named < images).any()
    if layout != "NHW":
        assert np.array_equal(apply(images, "fade_black", 10), named)
        assert np.array_equal(apply(torch.from_numpy(images), "fade_black", 10).numpy(), named)


def test_shapes_with_two_meanings_follow_their_library() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 3), np.uint8)
    assert np.array_equal(
        apply(images, "horizontal_translation", 0.34, layout="HWC"), apply(images, "horizontal_translation", 0.34)
    )
    tensor = torch.from_numpy(images)
    assert torch.equal(
        apply(tensor, "horizontal_translation", 0.34, layout="CHW"), apply(tensor, "horizontal_translation", 0.34)
    )


@pytest.mark.parametrize(("operator", "severity"), CHANGES)
def test_the_unchanged_image_is_a_copy(operator: str, severity: float, photos: Tensor) -> None:
    before = photos.clone()
    apply(photos, operator, 0).zero_()
    assert torch.equal(photos, before)


def test_input_is_not_modified(photos: Tensor) -> None:
    before, view = photos.clone(), photos.numpy()[:, :, ::-1]
    for operator, severity in (("fog", 1.0), ("jpeg", 30), ("boxes", 30), ("fade_black", 0)):
        changed = apply(photos, operator, severity)
        changed.zero_()
        apply(view, operator, severity)[:] = 0
        assert torch.equal(photos, before)


def test_boxes_and_masks_follow_the_image(photos: Tensor) -> None:
    image = torch.zeros(1, 1, 24, 32, dtype=torch.uint8)
    image[0, 0, 4:10, 6:12] = 255
    box = torch.tensor([[6.0, 4.0, 12.0, 10.0]])
    for operator, severity in (("horizontal_translation", 0.25), ("vertical_translation", -0.125), ("rotation", 0.5)):
        perturbation = Perturbation(operator, severity)
        moved = perturbation.images(image)[0, 0]
        rows, columns = (moved > 127).nonzero().unbind(1)
        found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert torch.allclose(perturbation.boxes(box, 24, 32), torch.tensor(found, dtype=torch.float32)[None], atol=1e-4)
        assert torch.equal(perturbation.masks(image[0] > 127)[0], moved > 127)
        labels = perturbation.masks(torch.where(image[0] > 127, 5, 2))
        assert set(labels.unique().tolist()) == {0, 2, 5}
    still = Perturbation("fog", 0.5)
    assert torch.equal(still.boxes(box, 24, 32), box) and still.matrices(1, 24, 32) is None
    gone = Perturbation("horizontal_translation", 1).boxes(box, 24, 32)
    assert float((gone[0, 2] - gone[0, 0]) * (gone[0, 3] - gone[0, 1])) == 0


def test_a_perturbation_can_be_pickled(photos: Tensor) -> None:
    perturbation = Perturbation("fog", 0.4, seed=2)
    expected = perturbation.images(photos)
    assert torch.equal(pickle.loads(pickle.dumps(perturbation)).images(photos), expected)


def test_brinell_offers_it() -> None:
    assert brinell.perturb.apply is apply


@pytest.mark.parametrize(
    ("images", "operator", "severity", "message"),
    [
        (np.zeros((16, 16), np.uint8), "fogg", 0.4, "did you mean fog"),
        (np.zeros((16, 16), np.uint8), "fog", 1.5, "expected a severity of fog from 0 to 1, got 1.5"),
        (np.zeros((16, 16), np.uint8), "fog", 3, "from 0 to 1, got 3; fog:imagenet_c goes to 5"),
        (np.zeros((16, 16), np.uint8), "rotation", -1.5, "expected a severity of rotation from -1 to 1, got -1.5"),
        (np.zeros((16, 16), np.uint8), "jpeg", 0.4, "expected a level of jpeg, a whole number from 0 to 30, got 0.4"),
        (np.zeros((16, 16), np.uint8), "jpeg", 31, "from 0 to 30, got 31"),
        (np.zeros((16, 16), np.uint8), "gradient_descent", 3, "follows a model's gradient"),
        (np.zeros((2, 16, 16, 3), np.uint8), "fog", [0.1], "expected one severity for 2 images or one for each, got 1"),
    ],
)
def test_wrong_operators_and_severities(images: np.ndarray, operator: str, severity: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply(images, operator, severity)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((5, 16, 16), np.uint8), "grey images without an axis for channels need layout='NHW'"),
        (np.zeros((16, 16, 4), np.uint8), "with 1 or 3 channels, got shape"),
        (np.zeros((16, 16), np.uint16), "expected images of uint8 or floats, got uint16"),
        (torch.zeros(3, 16, 16, dtype=torch.int64), "expected images of uint8 or floats, got torch.int64"),
        (np.full((16, 16), 255.0), "expected floats in .0, 1., got 255 to 255; apply operators before normalising"),
        (np.full((16, 16), np.nan), "expected floats"),
        (Image.new("RGBA", (16, 16)), "expected a picture in mode L or RGB, got RGBA"),
        ("cat.jpg", "expected a NumPy array, a torch tensor, a Pillow image or a list of them, got str"),
        (np.zeros((0, 16, 3), np.uint8), "expected images with pixels"),
    ],
)
def test_wrong_images(images: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        apply(images, "fog", 0.4)
