"""Figures of (Swingler 2022) and its code for the operators, reproduced on photographs and on an image of 224×224."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from brinell.perturb.difference import _by_bytes, _by_norms, _count_in_tensors, count_colours, difference, mean_grey
from brinell.perturb.operator import find_operator

SIDE = 224
MANY = 40


def changed_share(name: str, level: int, images: torch.Tensor) -> float:
    """Return the mean share of changed pixels over many draws."""
    many = images.repeat(math.ceil(MANY / len(images)), 1, 1, 1)
    made = find_operator(name).at(many, level, seed=1, ids=torch.arange(len(many)))
    return float(difference(many, made).changed.mean())


def all_different() -> torch.Tensor:
    """Return an image whose pixels all have different colours."""
    number = torch.arange(SIDE * SIDE)
    return torch.stack([number % 256, number // 256 % 256, (number * 7) % 256]).to(torch.uint8).view(1, 3, SIDE, SIDE)


@pytest.mark.parametrize(("level", "share"), [(2, 0.0346), (4, 0.0683), (5, 0.0847)])
def test_boxes_cover_what_the_paper_says(level: int, share: float, photographs: torch.Tensor) -> None:
    """Tables 1-3: 3, 7 and 8 %; computed: 3.46, 6.83 and 8.47 % (s.d. 0.2 per image)."""
    assert changed_share("boxes:published", level, 255 - photographs.clamp(max=200)) == pytest.approx(share, abs=0.0015)


@pytest.mark.parametrize(("level", "share"), [(2, 0.095), (3, 0.138), (5, 0.219)])
def test_published_random_exchange_covers_what_the_tables_say(level: int, share: float) -> None:
    """Tables 1-3: 9, 13 and 22 %."""
    assert changed_share("pixel_exchange:published", level, all_different()) == pytest.approx(share, abs=0.004)


@pytest.mark.parametrize(("level", "share"), [(2, 0.179), (3, 0.256), (5, 0.390)])
def test_random_exchange_as_written_covers_more(level: int, share: float) -> None:
    """w·h/20 swaps, 2,508 per level at 224 × 224."""
    assert find_operator("pixel_exchange:paper").facts.amount(1, SIDE, SIDE) == 2508
    assert changed_share("pixel_exchange:paper", level, all_different()) == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(("level", "share"), [(2, 0.561), (4, 0.778)])
def test_published_adjacent_exchange_covers_what_the_tables_say(level: int, share: float) -> None:
    """Tables 1-3: 56 and 78 %, with w·h/2 copies per level."""
    assert changed_share("adjacent_exchange:published", level, all_different()) == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(("level", "share"), [(2, 0.177), (4, 0.319), (10, 0.605)])
def test_adjacent_exchange_as_written_covers_less(level: int, share: float) -> None:
    """w·h/20 swaps with one of eight neighbours: 60.5 % of all pixels in ten levels, in a plain simulation."""
    assert changed_share("adjacent_exchange:paper", level, all_different()) == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize("level", [1, 10, 11, 25])
def test_fog_draws_pixels_with_replacement(level: int) -> None:
    """1 - exp(-0.2 n): 86.5 % at level 10, 88.9 % at 11; the tables have 86, 89 and 100 %."""
    black = torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8)
    assert changed_share("white_fog", level, black) == pytest.approx(1 - math.exp(-0.2 * level), abs=0.003)


def test_fog_adds_twenty_per_hit_up_to_white() -> None:
    made = find_operator("white_fog").at(
        torch.full((2, 3, 32, 32), 200, dtype=torch.uint8), 30, seed=0, ids=torch.arange(2)
    )
    assert set(made.unique().tolist()) <= {200, 220, 240, 255}
    assert 255 in made


@pytest.mark.parametrize(("level", "share"), [(4, 0.077), (8, 0.148), (12, 0.213)])
def test_noise_covers_less_than_its_nominal_count(level: int, share: float) -> None:
    """Drawn with replacement: 7.7, 14.8 and 21.3 %; the tables' 8, 16 and 24 % count draws."""
    assert changed_share("noise", level, all_different()) == pytest.approx(share, abs=0.003)


@pytest.mark.parametrize(("level", "grey"), [(15, 31), (20, 18), (28, 8)])
def test_fading_to_black_reaches_the_greys_of_the_tables(level: int, grey: int) -> None:
    """151 · 0.9ⁿ = 31, 18 and 8 (rounding leaves the last one slightly lighter)."""
    flat = torch.arange(52, 251, dtype=torch.uint8).repeat(1, 3, 4, 1)
    assert float(mean_grey(flat)) == pytest.approx(151)
    made = find_operator("fade_black").at(flat, level, seed=0, ids=torch.zeros(1, dtype=torch.int64))
    assert float(mean_grey(made)) == pytest.approx(grey, abs=1.2)


def test_fading_rounds_half_to_even_and_has_fixed_points() -> None:
    values = torch.arange(256, dtype=torch.uint8).repeat(8, 1)[None, None]
    ids = torch.zeros(1, dtype=torch.int64)
    black = find_operator("fade_black").at(values, 1, seed=0, ids=ids)[0, 0, 0]
    white = find_operator("fade_white").at(values, 1, seed=0, ids=ids)[0, 0, 0]
    assert black[[1, 2, 3, 4, 5, 15, 25]].tolist() == [1, 2, 3, 4, 4, 14, 22]
    assert white[[0, 1, 2, 3, 4, 5]].tolist() == [0, 1, 2, 3, 4, 6]
    assert white[[55, 95, 115, 175, 195, 215]].tolist() == [60, 104, 126, 192, 214, 236]  # where float64 rounds wrongly
    assert white[240:].unique().tolist() == [255]


@pytest.mark.parametrize(("level", "count"), [(1, 31), (22, 10), (30, 2)])
def test_posterised_channels_have_at_most_that_many_values(level: int, count: int, photographs: torch.Tensor) -> None:
    made = find_operator("posterise").at(photographs, level, seed=0, ids=torch.arange(len(photographs)))
    assert all(len(image[channel].unique()) <= count for image in made for channel in range(3))
    assert int(count_colours(made).max()) <= count**3


def test_posterising_to_two_values_keeps_black_and_white() -> None:
    values = torch.arange(256, dtype=torch.uint8).repeat(8, 1)[None, None]
    ids = torch.zeros(1, dtype=torch.int64)
    assert find_operator("posterise").at(values, 30, seed=0, ids=ids).unique().tolist() == [0, 255]
    assert find_operator("posterise:paper").at(values, 30, seed=0, ids=ids).unique().tolist() == [127, 255]


def test_colour_counts_are_exact(photographs: torch.Tensor) -> None:
    for images in (photographs, find_operator("posterise").at(photographs, 20, seed=0, ids=torch.arange(len(photographs)))):
        plain = [len({tuple(pixel) for pixel in image.flatten(1).T.tolist()}) for image in images]
        assert count_colours(images).tolist() == _count_in_tensors(images).tolist() == plain


def test_distances_follow_their_formulas() -> None:
    clean = torch.tensor([[[[0, 100], [255, 7]], [[0, 0], [0, 0]], [[9, 9], [9, 9]]]], dtype=torch.uint8)
    other = torch.tensor([[[[0, 151], [0, 7]], [[0, 0], [0, 1]], [[9, 9], [9, 9]]]], dtype=torch.uint8)
    gap = (other.double() - clean.double()).flatten() / 255
    found = difference(clean, other)
    assert float(found.changed) == pytest.approx(3 / 4)
    assert float(found.l0) == 3
    assert float(found.l1) == pytest.approx(float(gap.abs().sum()), rel=1e-6)
    assert float(found.l2) == pytest.approx(float(gap.norm()), rel=1e-6)
    assert float(found.linf) == pytest.approx(1.0)
    assert float(found.mae) == pytest.approx(float(gap.abs().mean()), rel=1e-6)
    assert float(found.mse) == pytest.approx(float((gap**2).mean()), rel=1e-6)


@pytest.mark.parametrize("side", [28, 224, 448])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_distances_are_those_of_float64(side: int, kind: str) -> None:
    """Large and small gaps, and sides that are no multiple of anything; a sum in float32 is off by up to 6e-4."""
    generator = np.random.default_rng(side)
    clean = generator.integers(0, 256, (3, 3, side, side - 1)).astype(np.uint8)
    changed = np.stack([255 - clean[0], np.clip(clean[1] + 1, 1, 255), generator.permuted(clean[2])]).astype(kind)
    if kind == "float32":
        changed += generator.random(changed.shape, np.float32) - 0.5
    gap = (changed.astype(np.float64) - clean).reshape(3, -1) / 255
    exact = {
        "l1": np.abs(gap).sum(1),
        "l2": np.sqrt((gap**2).sum(1)),
        "mae": np.abs(gap).mean(1),
        "mse": (gap**2).mean(1),
        "linf": np.abs(gap).max(1),
        "l0": (gap != 0).sum(1),
    }
    found = difference(torch.from_numpy(clean), torch.from_numpy(changed))
    for name, values in exact.items():
        assert getattr(found, name).dtype == torch.float32
        np.testing.assert_allclose(getattr(found, name).numpy(), values, rtol=1e-6, err_msg=name)


def test_both_ways_of_measuring_give_the_same_bits(photographs: torch.Tensor) -> None:
    """Bytes on a CPU, norms on an accelerator."""
    changed = find_operator("noise").at(photographs, 5, seed=0, ids=torch.arange(len(photographs)))
    here, there = _by_bytes(photographs, changed), _by_norms(photographs, changed)
    for name in ("l0", "l1", "l2", "linf", "mae", "mse"):
        assert torch.equal(getattr(here, name), getattr(there, name)), name


@pytest.mark.parametrize("name", ["black_lines", "white_lines"])
@pytest.mark.parametrize(("level", "share"), [(6, 0.06), (10, 0.10), (13, 0.14)])
def test_lines_cover_what_the_paper_says(name: str, level: int, share: float, photographs: torch.Tensor) -> None:
    """Tables 1-3: 6, 10 and 14 % of pixels at levels 6, 10 and 13."""
    assert changed_share(name, level, photographs.clamp(20, 230)) == pytest.approx(share, abs=0.012)
