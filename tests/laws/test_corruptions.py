"""Laws for the corruptions of ImageNet-C and -C-bar, which agree with the published formulas in NumPy, SciPy and OpenCV."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from brinell.draws import Draws, key
from brinell.errors import ConfigError
from brinell.perturb import apply
from brinell.perturb.corruptions.severity import BAR, CORRUPTIONS, EXTRA, STANDARD, Constants, published_side
from brinell.perturb.operator import OPERATORS, find_operator
from brinell.perturb.property import PROPERTIES, find_property
from reference_bar import PLAIN_BAR
from reference_corruptions import PLAIN

FORMULAS = PLAIN | PLAIN_BAR
SIZES = [(8, 8), (32, 32), (24, 40), (96, 120)]
ROUNDED = 0.5 + 0.1  # of a grey level: results are rounded, and blurs have whole weights
# positions are rounded to parts of a pixel; where a value lies on a threshold or an edge, another neighbour may count
COARSE = {
    "shot_noise": (1.01, 0.0),
    "zoom_blur": (0.75, 0.0),
    "elastic_transform": (3.0, 0.02),
    "spatter": (ROUNDED, 0.005),
    "snow": (1.6, 0.002),
    "caustic_refraction": (2.0, 0.01),
}


def photograph(height: int, width: int, channels: int, count: int = 2) -> torch.Tensor:
    """Return smooth colours with edges and some noise, different in every image."""
    generator = torch.Generator().manual_seed(height * 1000 + width)
    coarse = torch.rand(count, channels, 5, 5, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)
    smooth[:, :, height // 4 : height // 2, width // 3 :] = 255
    smooth[:, :, height // 2 :, : width // 4] = 0
    return (smooth + torch.randint(-5, 6, smooth.shape, generator=generator)).clamp(0, 255).to(torch.uint8)


def at(name: str, clean: torch.Tensor, severity: float, seed: int = 5) -> torch.Tensor:
    severities = torch.full((len(clean), 1), severity / 5, dtype=torch.float64)
    return find_property(f"{name}:{CORRUPTIONS[name].variant}").apply(
        clean, severities, seed=seed, ids=torch.arange(len(clean)) * 7919
    )


def test_the_published_corruptions_are_registered() -> None:
    standard = """gaussian_noise shot_noise impulse_noise defocus_blur glass_blur motion_blur zoom_blur snow frost fog
    brightness
        contrast elastic_transform pixelate jpeg_compression"""
    extra = "speckle_noise gaussian_blur spatter saturate"
    bar = """blue_noise_sample plasma_noise checkerboard_cutout inverse_sparkles sparkles caustic_refraction brownish_noise
        perlin_noise cocentric_sine_waves single_frequency_greyscale"""
    for names, family in ((standard, STANDARD), (extra, EXTRA), (bar, BAR)):
        assert sorted(name for name in CORRUPTIONS if CORRUPTIONS[name].family == family) == sorted(names.split())
        for name in names.split():
            part = f"{name}:{CORRUPTIONS[name].variant}"
            assert OPERATORS[part].facts.family == PROPERTIES[part].facts.family == family


@pytest.mark.parametrize("name", list(CORRUPTIONS))
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_corruptions_follow_the_published_formulas(name: str, channels: int, size: tuple[int, int]) -> None:
    compare_with_formula(name, channels, size)


@pytest.mark.parametrize("size", [(25, 33), (24, 33), (25, 32)], ids=str)
@pytest.mark.parametrize("name", ["blue_noise_sample", "brownish_noise"])
def test_noise_of_a_spectrum_follows_the_formulas_at_odd_sizes(name: str, size: tuple[int, int]) -> None:
    compare_with_formula(name, 3, size)


def compare_with_formula(name: str, channels: int, size: tuple[int, int]) -> None:
    clean = photograph(*size, channels)
    for severity in (1, 2, 3, 4, 5, 0.4, 2.6):
        changed = at(name, clean, severity)
        constants = CORRUPTIONS[name].constants.at(severity, *size)
        for row in range(len(clean)):
            draws = Draws.of(key(5, name), torch.tensor([row * 7919]))
            picture = clean[row].permute(1, 2, 0).double().numpy()
            plain = FORMULAS[name](picture, constants, draws).clip(0, 255)
            gap = np.abs(plain - changed[row].permute(1, 2, 0).numpy())
            most, share = COARSE.get(name, (ROUNDED, 0.0))
            assert (gap > most).mean() <= share, (
                f"severity {severity}: {(gap > most).mean():.2%} of values, {gap.max():.2f}"
            )


@pytest.mark.parametrize("name", list(CORRUPTIONS))
def test_levels_are_the_published_severities(name: str) -> None:
    clean, ids = photograph(40, 32, 3, 5), torch.arange(5) * 7919
    operator = find_operator(f"{name}:{CORRUPTIONS[name].variant}")
    levels = torch.tensor([3, 1, 5, 2, 4])
    mixed = operator.advance(clean, torch.zeros(5, dtype=torch.int64), levels, seed=5, ids=ids)
    for row, level in enumerate(levels.tolist()):
        assert torch.equal(mixed[row], at(name, clean, level)[row])
    assert torch.equal(operator.at(clean, 7, seed=5, ids=ids), operator.at(clean, 5, seed=5, ids=ids))


@pytest.mark.parametrize("name", list(CORRUPTIONS))
def test_a_low_severity_changes_little(name: str) -> None:
    clean = photograph(96, 96, 3)
    weak = (at(name, clean, 0.02).float() - clean.float()).abs().mean()
    strong = (at(name, clean, 5).float() - clean.float()).abs().mean()
    # a JPEG of quality 98 and an image that is one pixel smaller differ from the clean image as well
    assert weak < (0.4 if name in ("jpeg_compression", "pixelate") else 0.1) * strong
    assert torch.equal(at(name, clean, 0), clean)


def test_constants_between_severities_and_sizes() -> None:
    constants = Constants([(1, 10), (2, 20), (3, 30), (4, 40), (5, 50)], [(0.1, 1)] * 5, (0, 0), counts=(1,))
    assert constants.at(3, 224, 224) == (3, 30)
    assert constants.at(2.26, 224, 224) == (pytest.approx(2.26), 23)
    assert constants.at(0.5, 500, 224) == (0.5, 5)
    assert constants.at(5, 32, 32) == (0.1, 1)
    assert [published_side(side, 300) for side in (8, 84, 85, 224, 300)] == [32, 32, 224, 224, 224]


def test_a_severity_outside_of_runs_is_the_published_one() -> None:
    clean = photograph(96, 96, 3)
    third = find_operator("contrast:imagenet_c").at(clean, 3, seed=0, ids=torch.zeros(2, dtype=torch.int64))
    assert torch.equal(apply(clean, "contrast:imagenet_c", 3), third)
    assert not torch.equal(apply(clean, "contrast:imagenet_c", 2.5), third)
    assert apply(clean, "glass_blur", 2).shape == clean.shape
    with pytest.raises(ConfigError, match="from 0 to 5, got 6"):
        apply(clean, "fog:imagenet_c", 6)
