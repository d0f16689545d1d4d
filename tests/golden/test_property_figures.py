"""Figures of (DSN 2020, Zhong, Hu and Chen), its code and its formulas for the properties."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from brinell.perturb.difference import difference
from brinell.perturb.property import find_property
from brinell.perturb.weather import flake_counts

SIDE = 224


def at(name: str, images: Tensor, severity: float) -> Tensor:
    severities = torch.full((len(images), 1), severity, dtype=torch.float64)
    return find_property(name).apply(images, severities, seed=1, ids=torch.arange(len(images)))


def grey(value: int, count: int = 4) -> Tensor:
    return torch.full((count, 3, SIDE, SIDE), value, dtype=torch.uint8)


@pytest.mark.parametrize("name", ["uniform_noise", "gaussian_noise"])
@pytest.mark.parametrize("severity", [0.2, 0.4, 0.5])
def test_noise_has_a_mean_squared_error_of_a_third_of_e_to_the_fourth(name: str, severity: float) -> None:
    """Measured on mid-grey, where noise is not clipped. Rounding adds 1/12 of a squared grey level."""
    clean = grey(128)
    error = (at(name, clean, severity).double() - 128) / 255
    assert float(error.square().mean()) == pytest.approx(severity**4 / 3 + 1 / 12 / 255**2, rel=0.01)
    assert float(error.mean()) == pytest.approx(0, abs=5e-4)


def test_gaussian_noise_as_written_has_three_times_that_error() -> None:
    error = (at("gaussian_noise:equations", grey(128), 0.3).double() - 128) / 255
    assert float(error.square().mean()) == pytest.approx(0.3**4 + 1 / 12 / 255**2, rel=0.01)


def test_gaussian_noise_is_normal() -> None:
    noise = (at("gaussian_noise", grey(128), 0.5).double() - 128).flatten()
    noise = noise / noise.std()
    for bound, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        assert float((noise.abs() < bound).double().mean()) == pytest.approx(share, abs=0.006)
    assert float((noise**3).mean()) == pytest.approx(0, abs=0.02)
    assert float((noise**4).mean()) == pytest.approx(3, abs=0.05)


def test_zero_contrast_is_mid_grey(photographs: Tensor) -> None:
    assert at("contrast", photographs, 1.0).unique().tolist() == [128]  # 127.5, half to even
    half = at("contrast", photographs, 0.5)
    assert torch.equal(half, (photographs.float() / 2 + 63.75).round().to(torch.uint8))


def test_brightness_starts_with_the_steps_of_the_authors() -> None:
    """The first step is 0.508 up or 0.002 down; 500 steps end at 255 and 1/255."""
    found = find_property("brightness:dsn2020")
    up, down = found.tracks(SIDE, SIDE)
    assert float(found.amounts(up[:1], SIDE, SIDE)) == pytest.approx(1.508)
    assert float(found.amounts(up[-1:], SIDE, SIDE)) == 255
    assert float(found.amounts(down[:1], SIDE, SIDE)) == pytest.approx(1 - 254 / 255 / 500)
    assert float(found.amounts(down[-1:], SIDE, SIDE)) == pytest.approx(1 / 255)
    assert at("brightness:dsn2020", grey(100), 1 / 500).unique().tolist() == [151]
    assert at("brightness:dsn2020", grey(1), 1.0).unique().tolist() == [255]
    assert at("brightness:dsn2020", grey(255), -1.0).unique().tolist() == [1]


def test_brightness_as_written_adds() -> None:
    assert at("brightness:equations", grey(100), 20 / 255).unique().tolist() == [120]
    assert at("brightness:equations", grey(100), -20 / 255).unique().tolist() == [80]


def test_a_step_of_rotation_is_0_36_degrees_and_of_translation_4_pixels() -> None:
    rotation, along = find_property("rotation"), find_property("horizontal_translation:dsn2020")
    assert float(rotation.amounts(rotation.tracks(SIDE, SIDE)[0][:1], SIDE, SIDE)) == pytest.approx(0.36)
    assert along.amounts(along.tracks(SIDE, SIDE)[1], SIDE, SIDE)[:5].tolist() == [-4, -8, -13, -17, -22]


@pytest.mark.parametrize("name", ["rotation", "horizontal_translation", "vertical_translation"])
def test_a_zero_motion_changes_nothing(name: str, photographs: Tensor) -> None:
    """The same holds for severities that are too small to move a pixel, which go through the warp."""
    assert torch.equal(at(name, photographs, 0.0), photographs)
    assert torch.equal(at(name, photographs, 1e-9), photographs)


def test_salt_and_pepper_change_their_share_of_pixels() -> None:
    changed = at("salt_and_pepper", grey(100, 16), 0.2)
    assert bool((changed == changed[:, :1]).all()), "all channels of a pixel change together"
    assert float((changed[:, 0] == 255).double().mean()) == pytest.approx(0.1, abs=0.002)
    assert float((changed[:, 0] == 0).double().mean()) == pytest.approx(0.1, abs=0.002)
    assert 100 not in at("salt_and_pepper", grey(100), 1.0)


def test_the_weakest_frost_on_black_is_three_tenths_of_the_template() -> None:
    least, most = at("frost:dsn2020", grey(0, 1), 1e-6).double(), at("frost:dsn2020", grey(0, 1), 1.0).double()
    template = most / 0.8
    assert float((least - 0.3 * template).abs().max()) <= 1
    # the authors' template gives 2.3e-2
    assert float((least / 255).square().mean()) == pytest.approx(2.25e-2, rel=0.02)


@pytest.mark.parametrize("name", ["brightness", "fog", "frost", "horizontal_translation", "vertical_translation"])
def test_standard_variants_start_at_the_clean_image(name: str, photographs: Tensor) -> None:
    """The first point of a search changes an image by little, unlike that of the authors."""
    first = {
        variant: find_property(name, variant).tracks(SIDE, SIDE)[0][:1].expand(len(photographs), -1)
        for variant in ("standard", "dsn2020")
    }
    changes = {
        variant: difference(
            photographs, find_property(name, variant).apply(photographs, given, seed=1, ids=torch.arange(len(photographs)))
        ).mse.mean()
        for variant, given in first.items()
    }
    assert changes["standard"] < changes["dsn2020"] / 1.9
    assert find_property(name).variant == "standard"


def test_standard_fog_is_the_authors_in_shares(photographs: Tensor) -> None:
    """(x + p·F)·m/(m + p) is a blend with a share of p/(m + p); for white images it starts at a half."""
    assert torch.equal(at("fog:standard", photographs, 1e-6), photographs)
    assert at("fog:standard", grey(255), 0.5).min() >= 127 and at("fog:standard", grey(0), 0.5).max() <= 128


def test_frost_as_written_starts_at_the_clean_image(photographs: Tensor) -> None:
    assert torch.equal(at("frost:equations", photographs, 1e-6), photographs)
    assert torch.equal(at("frost:equations", photographs, 1.0), at("frost:dsn2020", photographs, 1.0))


def test_the_weakest_fog_is_strong(assets: Path) -> None:
    """2.5e-2 to 3.2e-2 on photographs, so every figure for fog in the paper is above that."""
    files = sorted((assets / "images" / "imagenet_dev_300").glob("*.png"))[:150]
    pictures = [np.array(Image.open(file).convert("RGB").resize((SIDE, SIDE))) for file in files]
    many = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
    assert 2.5e-2 < float(difference(many, at("fog:dsn2020", many, 0.001)).mse.mean()) < 3.2e-2


def test_fog_as_written_starts_at_the_clean_image(photographs: Tensor) -> None:
    assert torch.equal(at("fog:equations", photographs, 1e-6), photographs)


def test_fog_keeps_the_brightest_value_and_black_images() -> None:
    assert int(at("fog:dsn2020", grey(0), 0.5).max()) == 0
    assert int(at("fog:dsn2020", grey(90), 0.5).max()) == 90


def test_fog_gets_rougher_with_severity() -> None:
    """Octaves decay less and less; at severity 1 they all have one amplitude."""

    def roughness(severity: float) -> float:
        made = at("fog:dsn2020", grey(128), severity)[:, 0].double()
        return float(made.diff(dim=2).std() / made.std())

    assert roughness(0.001) < 0.1
    assert roughness(0.5) < 0.1
    assert 0.25 < roughness(0.9) < 0.45
    assert roughness(1.0) > 0.6


def test_the_size_and_brightness_of_a_flake() -> None:
    """22×22 pixels, a radius of 4.7 (√22.4), smeared over 9 pixels: 7/9 of full scale at the brightest."""
    flake, length = flake_counts(SIDE, SIDE)
    assert flake.shape == (22, 22)
    assert length == 9
    assert float(flake.max()) == 7
    assert float(flake.sum()) == 9 * 69  # whole points within √22.4
    one = at("snow", grey(0, 40), 1 / 999)
    assert one.amax((1, 2, 3)).tolist() == [round(255 * 7 / 9)] * 40
    assert len({tuple(position) for position in (one[:, 0] == one.max()).nonzero()[:, 1:].tolist()}) > 40


def test_snow_has_1_to_100_flakes() -> None:
    found = find_property("snow")
    flakes = found.amounts(found.tracks(SIDE, SIDE)[0], SIDE, SIDE)
    assert flakes.unique().tolist() == list(range(1, 101))
    light = at("snow", grey(0, 8), 1.0).double().sum((1, 2, 3)) / 3
    assert float(light.max()) <= 100 * 69 * 255
    assert float(light.mean()) == pytest.approx(100 * 69 * 255, rel=0.15)  # overlaps are clipped


def test_blended_noise_ends_in_pure_noise(photographs: Tensor) -> None:
    end = at("blended_noise", photographs, 1.0).double()
    assert float(end.mean()) == pytest.approx(127.5, abs=1)
    assert float(end.std()) == pytest.approx(255 / math.sqrt(12), rel=0.01)
    assert torch.equal(at("blended_noise", 255 - photographs, 1.0), end.to(torch.uint8))
