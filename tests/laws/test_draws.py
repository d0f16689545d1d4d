"""Laws for random draws: they depend on their name only, and they look random."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from brinell.draws import Draws, key, permutation

MASK32, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def mix64(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK64
    return x ^ (x >> 31)


def triple32(x: int, second: int) -> int:
    x ^= x >> 17
    x = (x * 0xED5AD4BB + second) & MASK32
    x ^= x >> 11
    x = x * 0xAC4C1B51 & MASK32
    x ^= x >> 15
    x = x * 0x31848BAB & MASK32
    return x ^ (x >> 14)


def bits_by_hand(key: int, image: int, step: int, purpose: int, element: int) -> int:
    """Compute a draw in Python's unbounded integers, by its definition."""
    name = mix64((image + 0x9E3779B97F4A7C15 * (step + 1)) & MASK64)
    stream = mix64(name ^ (key & MASK64))
    counter = (element * 0x9E3779B1 + purpose * 0x632BE5AB + (stream & MASK32)) & MASK32
    return triple32(counter, stream >> 32)


@given(
    key=st.integers(-(2**63), 2**63 - 1),
    image=st.integers(-(2**63), 2**63 - 1),
    step=st.integers(0, 40),
    purpose=st.integers(0, 5),
)
@settings(deadline=None, max_examples=100)
def test_bits_follow_their_definition(key: int, image: int, step: int, purpose: int) -> None:
    drawn = Draws.of(key, torch.tensor([image]), step).bits(purpose, 5)[0].tolist()
    assert [bits & MASK32 for bits in drawn] == [bits_by_hand(key, image, step, purpose, element) for element in range(5)]


def test_bits_never_change() -> None:
    """A change here would change every stochastic result."""
    drawn = Draws.of(key(0, "noise"), torch.tensor([1, 2]), 3).bits(1, 3)
    assert drawn.tolist() == [[-349106535, 766531596, -1852005650], [136212683, 53397022, -1972321779]]


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_draws_do_not_depend_on_the_batch_size(batch: int) -> None:
    images = torch.arange(64) * 977
    whole = Draws.of(5, images, 2).below(0, 33, 224)
    parts = [Draws.of(5, part, 2).below(0, 33, 224) for part in images.split(batch)]
    assert torch.equal(torch.cat(parts), whole)


def test_draws_do_not_depend_on_the_order_of_images() -> None:
    images = torch.arange(16) * 31 + 5
    order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(Draws.of(1, images[order]).bits(0, 9), Draws.of(1, images).bits(0, 9)[order])


def test_a_shorter_draw_is_a_prefix_of_a_longer_one() -> None:
    draws = Draws.of(1, torch.tensor([3]))
    assert torch.equal(draws.bits(0, 100)[:, :10], draws.bits(0, 10))


@pytest.mark.parametrize("bound", [2, 3, 10, 224, 50176])
def test_numbers_below_a_bound_are_uniform(bound: int) -> None:
    values = Draws.of(key(1, "uniform"), torch.arange(200)).below(0, 1000, bound).flatten().numpy()
    assert values.min() >= 0
    assert values.max() < bound
    counts = np.bincount(values % 100 if bound > 100 else values, minlength=min(bound, 100))
    expected = np.bincount(np.arange(bound) % 100, minlength=len(counts)) / bound * values.size if bound > 100 else None
    assert stats.chisquare(counts, expected).pvalue > 1e-4


def test_numbers_between_bounds_include_both() -> None:
    values = Draws.of(2, torch.arange(10)).between(0, 200, 2, 5)
    assert sorted(set(values.flatten().tolist())) == [2, 3, 4, 5]


@pytest.mark.parametrize("vary", ["key", "image", "step", "purpose", "element"])
def test_draws_with_neighbouring_names_are_independent(vary: str) -> None:
    """Draws whose names differ in one part are uncorrelated, bit by bit."""
    count = 40_000
    base = {"key": 1, "image": torch.tensor([7]), "step": 0, "purpose": 0}

    def column(number: int) -> np.ndarray:
        name = {**base, vary: torch.tensor([7 + number]) if vary == "image" else number} if vary != "element" else base
        start = number if vary == "element" else 0
        drawn = Draws.of(name["key"], name["image"], name["step"]).bits(name["purpose"], count + 1)[0]
        return drawn[start : start + count].numpy().view(np.uint32)

    first, second = column(0), column(1)
    for bit in range(32):
        pairs = ((first >> bit) & 1) * 2 + ((second >> bit) & 1)
        assert stats.chisquare(np.bincount(pairs, minlength=4)).pvalue > 1e-6


def test_a_permutation_is_determined_by_the_seed() -> None:
    assert sorted(permutation(1000, 3)) == list(range(1000))
    assert permutation(1000, 3) == permutation(1000, 3)
    assert permutation(1000, 3) != permutation(1000, 4)
    assert permutation(0, 1) == []
