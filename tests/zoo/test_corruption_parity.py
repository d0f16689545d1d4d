"""Parity with the published corruptions: the package imagecorruptions, and ImageNet-C's own script if there is a copy.

The random numbers of the published code are replaced by ours, so that results can be compared pixel by pixel.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from brinell.draws import Draws, key
from brinell.perturb.corruptions.elastic import elastic_transform
from brinell.perturb.corruptions.fields import halves, normal
from brinell.perturb.property import PROPERTIES, find_property

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from fidelity.published_corruptions import published_corruptions, script_corruptions  # noqa: E402

PACKAGE = importlib.util.find_spec("imagecorruptions")
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="needs imagecorruptions: make test-zoo installs it")
SCRIPT = os.environ.get("BRINELL_IMAGENET_C")  # a copy of make_imagenet_c.py
needs_script = pytest.mark.skipif(SCRIPT is None, reason="BRINELL_IMAGENET_C names no copy of ImageNet-C's script")

SIDE = 224
EXACT = ["brightness", "contrast", "saturate", "gaussian_blur", "defocus_blur", "pixelate", "jpeg_compression", "zoom_blur"]


@pytest.fixture(scope="module")
def published() -> Iterator[Any]:
    """Return the module of the published functions, on current packages."""
    with published_corruptions() as corruptions:
        yield corruptions


def photograph() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(1, 3, 9, 9, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bicubic")
    smooth[:, :, 60:100, 80:150] = 250
    return (smooth + torch.randint(-8, 9, smooth.shape, generator=generator)).clamp(0, 255).to(torch.uint8)


def ours(name: str, clean: torch.Tensor, severity: int) -> np.ndarray:
    severities = torch.full((1, 1), severity / 5, dtype=torch.float64)
    found = find_property(f"{name}:imagenet_c").apply(clean, severities, seed=3, ids=torch.tensor([11]))
    return found[0].permute(1, 2, 0).numpy()


def theirs(published: Any, name: str, clean: torch.Tensor, severity: int) -> np.ndarray:
    picture = Image.fromarray(clean[0].permute(1, 2, 0).contiguous().numpy())
    return np.asarray(getattr(published, name)(picture, severity), np.float64)


@pytest.mark.parametrize("name", EXACT)
def test_deterministic_corruptions_are_within_a_grey_level(published: Any, name: str) -> None:
    clean = photograph()
    for severity in range(1, 6):
        gap = np.abs(ours(name, clean, severity) - theirs(published, name, clean, severity))
        if (
            name == "zoom_blur"
        ):  # which the package cuts off at the lower right and not in the middle: a pixel apart at most
            assert np.quantile(gap, 0.97) <= 1.0, severity
        else:
            assert gap.max() <= 1.0, f"severity {severity}: {gap.max()}"


@pytest.mark.parametrize("name", ["gaussian_noise", "speckle_noise", "motion_blur"])
def test_random_corruptions_are_within_a_grey_level_for_the_same_numbers(
    published: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean, draws = photograph(), Draws.of(key(3, name), torch.tensor([11]))
    field = normal(draws, 0, clean.shape)[0].permute(1, 2, 0).double().numpy()
    monkeypatch.setattr(np.random, "normal", lambda size, scale, loc=0: loc + scale * field)
    monkeypatch.setattr(np.random, "uniform", lambda low, high: low + (high - low) * float(draws.uniform(0, 1)))
    for severity in range(1, 6):
        gap = np.abs(ours(name, clean, severity) - theirs(published, name, clean, severity))
        assert gap.max() <= 1.0, f"severity {severity}: {gap.max()}"


@pytest.mark.parametrize("severity", range(1, 6))
def test_glass_blur_is_the_published_one_for_the_same_numbers(
    published: Any, severity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The published code goes through the pixels backwards and draws a step across and a step down for each."""
    clean, draws = photograph()[:, :, :96, :112].contiguous(), Draws.of(key(3, "glass_blur"), torch.tensor([11]))
    height, width = clean.shape[2:]
    _, distance, times = [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)][severity - 1]
    steps = []
    for time in range(times):
        bits = draws.bits(time, height * width)[0].view(height, width)
        along, down = (((bits >> shift & 0xFFFF) * 2 * distance >> 16) - distance for shift in (0, 16))
        rows, columns = range(height - distance, distance, -1), range(width - distance, distance, -1)
        steps += [(int(along[row, column]), int(down[row, column])) for row in rows for column in columns]
    drawn = iter(steps)
    monkeypatch.setattr(np.random, "randint", lambda low, high, size: next(drawn))
    gap = np.abs(ours("glass_blur", clean, severity) - theirs(published, "glass_blur", clean, severity))
    assert next(drawn, None) is None and gap.max() <= 0.55, gap.max()  # half a level by rounding


def test_elastic_displacements_are_within_a_grey_level_for_the_same_numbers(
    published: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's elastic transform is ours without the affine part, with other constants."""
    clean, draws = photograph(), Draws.of(key(3, "elastic_transform"), torch.tensor([11]))
    uniform = halves(draws, 1, torch.Size([1, 2, SIDE, SIDE])).double().add(0.5).mul(2.0**-15)[0].numpy()
    for severity, strength in enumerate([250 * 0.05, 250 * 0.065, 250 * 0.085, 250 * 0.1, 250 * 0.12], 1):
        fields = iter(uniform)
        monkeypatch.setattr(np.random, "uniform", lambda low, high, size: high * next(fields))  # noqa: B023
        there = theirs(published, "elastic_transform", clean, severity)
        row = (strength * SIDE * 0.005, SIDE * 0.01, 0)
        here = elastic_transform(clean.float(), row, draws).round()[0].permute(1, 2, 0).numpy()
        gap = np.abs(here - there)
        assert gap.max() <= 2.0 and np.quantile(gap, 0.99) <= 1.0, f"severity {severity}: {gap.max()}"


@needs_script
@pytest.mark.parametrize("severity", range(1, 6))
def test_elastic_transform_is_that_of_the_script(severity: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixel by pixel for the same numbers; positions are rounded to 1/32 and 1/128 of a pixel here."""
    clean, draws = photograph(), Draws.of(key(3, "elastic_transform"), torch.tensor([11]))
    uniform = halves(draws, 1, torch.Size([1, 2, SIDE, SIDE])).double().add(0.5).mul(2.0**-15)[0].numpy()
    drawn = iter([2 * draws.uniform(0, 6).view(3, 2).numpy() - 1, *uniform])
    monkeypatch.setattr(np.random, "uniform", lambda low, high, size: high * next(drawn))
    picture = Image.fromarray(clean[0].permute(1, 2, 0).contiguous().numpy())
    there = script_corruptions(Path(str(SCRIPT)))["elastic_transform"](picture, severity)
    gap = np.abs(ours("elastic_transform", clean, severity) - there)
    assert np.quantile(gap, 0.99) <= 2.0, f"{np.quantile(gap, 0.99)}, {gap.max()}"


@needs_script
def test_zoom_blur_is_that_of_the_script() -> None:
    clean = photograph()
    picture = Image.fromarray(clean[0].permute(1, 2, 0).contiguous().numpy())
    for severity in range(1, 6):
        there = script_corruptions(Path(str(SCRIPT)))["zoom_blur"](picture, severity)
        assert np.abs(ours("zoom_blur", clean, severity) - there).max() <= 1.0, severity


def moments(values: np.ndarray, clean: np.ndarray) -> tuple[float, float]:
    change = values.astype(np.float64) - clean
    return float(change.mean()), float(change.std())


@pytest.mark.parametrize("name", ["shot_noise", "impulse_noise", "glass_blur", "snow", "fog", "spatter"])
def test_random_corruptions_have_the_published_distribution(published: Any, name: str) -> None:
    """Means and standard deviations of the change, over 6 draws of each."""
    clean = photograph()
    whole = clean[0].permute(1, 2, 0).numpy()
    many = clean.expand(6, -1, -1, -1).contiguous()
    np.random.seed(0)
    for severity in (1, 3, 5):
        severities = torch.full((6, 1), severity / 5, dtype=torch.float64)
        found = find_property(f"{name}:imagenet_c").apply(many, severities, seed=1, ids=torch.arange(6))
        here = np.array([moments(image.permute(1, 2, 0).numpy(), whole) for image in found])
        there = np.array([moments(theirs(published, name, clean, severity), whole) for _ in range(6)])
        spread = np.sqrt(here.var(0) + there.var(0)) / np.sqrt(6)
        allowed = 4 * spread + 0.03 * np.abs(there.mean(0)) + 0.5
        assert (np.abs(here.mean(0) - there.mean(0)) <= allowed).all(), f"{severity}: {here.mean(0)} and {there.mean(0)}"


@pytest.mark.parametrize("severity", range(1, 6))
def test_impulse_noise_hits_as_many_values_as_the_published_one(published: Any, severity: int) -> None:
    """As many become white as black, in each channel by itself."""
    clean = photograph().clamp(1, 254)
    np.random.seed(severity)  # of the published code
    shares = []
    for changed in (ours("impulse_noise", clean, severity), theirs(published, "impulse_noise", clean, severity)):
        changed = np.uint8(changed)
        black, white = changed == 0, changed == 255
        assert ((changed == clean[0].permute(1, 2, 0).numpy()) | black | white).all()
        shares.append([black.mean(), white.mean(), (black | white).any(-1).mean(), (black | white).all(-1).mean()])
    here, there = np.array(shares)
    share = (here + there) / 2  # of both, since a single one may be 0: few pixels are hit in all channels
    noise = np.sqrt(2 * share * (1 - share) / SIDE**2)
    assert (np.abs(here - there) <= 4.5 * noise).all(), shares


def test_the_published_photographs_of_frost_can_be_used(published: Any) -> None:
    assert "frost:photos" in PROPERTIES
    clean = photograph()
    one, other = (
        find_property(f"frost:{variant}").apply(
            clean.expand(40, -1, -1, -1).contiguous(), torch.ones(40, 1, dtype=torch.float64), seed=1, ids=torch.arange(40)
        )
        for variant in ("photos", "imagenet_c")
    )
    assert float(one.double().mean()) == pytest.approx(float(other.double().mean()), abs=8)
    assert float(one.double().std()) == pytest.approx(float(other.double().std()), rel=0.15)
