"""Parity with the published corruptions, as the package imagecorruptions has them.

Version 1.1.2 is of 2020: it calls scikit-image and SciPy by names that are gone, which `published` puts back. The random
numbers of the published code are replaced by ours, so that results can be compared pixel by pixel.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from brinell.draws import Draws, key
from brinell.perturb.corruptions.fields import normal
from brinell.perturb.property import PROPERTIES, find_property

PACKAGE = importlib.util.find_spec("imagecorruptions")
pytestmark = pytest.mark.skipif(PACKAGE is None, reason="needs imagecorruptions: make test-zoo installs it")
skimage_filters = pytest.importorskip("skimage.filters")

SIDE = 224
EXACT = ["brightness", "contrast", "saturate", "gaussian_blur", "defocus_blur", "pixelate", "jpeg_compression", "zoom_blur"]


@pytest.fixture(scope="module")
def published() -> Iterator[Any]:
    """Return the module of the published functions, on current packages."""
    patch = pytest.MonkeyPatch()
    assert PACKAGE is not None and PACKAGE.origin is not None
    folder, resources = Path(PACKAGE.origin).parent, types.ModuleType("pkg_resources")
    resources.resource_filename = lambda package, name: str(folder / name)  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "pkg_resources", resources)
    interpolation = types.ModuleType("scipy.ndimage.interpolation")
    interpolation.map_coordinates = ndimage.map_coordinates  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "scipy.ndimage.interpolation", interpolation)
    patch.setattr(np, "float_", np.float64, raising=False)
    from imagecorruptions import corruptions

    def gaussian(image: np.ndarray, sigma: Any, multichannel: bool = False, **options: Any) -> np.ndarray:
        return skimage_filters.gaussian(image, sigma=sigma, channel_axis=-1 if multichannel else None, **options)

    patch.setattr(corruptions, "gaussian", gaussian)
    yield corruptions
    patch.undo()


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


def moments(values: np.ndarray, clean: np.ndarray) -> tuple[float, float]:
    change = values.astype(np.float64) - clean
    return float(change.mean()), float(change.std())


@pytest.mark.parametrize("name", ["shot_noise", "impulse_noise", "snow", "fog", "spatter"])
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
