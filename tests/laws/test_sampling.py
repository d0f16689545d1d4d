"""Laws of sampling under a budget: unbiased, nested, independent of answers, models and batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.lenses.sampling import Sampling, count_images, shuffled_ranks, spread_order

IDS = torch.arange(4000) * 7919 + 13
SHARES = st.floats(0, 1)
CELLS = st.integers(1, 200)


@given(CELLS, SHARES, SHARES)
def test_a_larger_budget_adds_to_a_smaller_one(cells: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    ids = IDS[:50]
    first = Sampling(3, small).choose("fog:standard", ids, cells).cells
    more = Sampling(3, large, done=small).choose("fog:standard", ids, cells).cells
    at_once = Sampling(3, large).choose("fog:standard", ids, cells).cells
    assert not bool((first & more).any())
    assert torch.equal(first | more, at_once)


@given(CELLS)
def test_the_whole_budget_is_the_full_run(cells: int) -> None:
    found = Sampling(0, 1.0).choose("fog:standard", IDS[:20], cells)
    assert bool(found.cells.all()) and bool((found.inclusion == 1).all())


@given(CELLS, SHARES)
def test_inclusion_is_the_share_of_cells(cells: int, share: float) -> None:
    found = Sampling(1, share).choose("blur:standard", IDS[:50], cells)
    assert found.cells.to(torch.float64).mean(1).tolist() == pytest.approx(found.inclusion.tolist())
    assert bool(((found.inclusion * cells - share * cells).abs() < 1).all())


@pytest.mark.parametrize("cells", [1, 7, 30, 100])
@pytest.mark.parametrize("share", [0.02, 0.1, 1 / 3, 0.77])
def test_every_cell_is_equally_likely(cells: int, share: float) -> None:
    found = Sampling(5, share).choose("noise:standard", IDS, cells)
    error = 4.5 * np.sqrt(share * (1 - share) / len(IDS))
    assert float((found.cells.to(torch.float64).mean(0) - share).abs().max()) < error


def test_images_and_changes_are_independent() -> None:
    ids = IDS[:1000]
    one, other = (Sampling(5, 0.1).choose(change, ids, 30).cells.flatten() for change in ("a", "b"))
    both = float((one & other).to(torch.float64).mean())
    assert both == pytest.approx(0.01, abs=0.003)
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))
    shuffled = Sampling(5, 0.1).choose("a", ids[order], 30).cells
    assert torch.equal(shuffled, Sampling(5, 0.1).choose("a", ids, 30).cells[order])


@given(CELLS)
def test_beginnings_are_evenly_spread(cells: int) -> None:
    order, position = spread_order(cells)
    assert sorted(order.tolist()) == list(range(cells))
    assert torch.equal(order[position], torch.arange(cells))
    for count in range(2, cells + 1):
        first = order[:count].sort().values
        gaps = torch.cat([first.diff(), first[:1] + cells - first[-1:]])
        assert int(gaps.max()) <= 3 * cells / count + 1


def test_the_mean_of_sampled_cells_is_unbiased() -> None:
    """A mean over three of thirty levels has the full mean, and nearly its spread over images."""
    breaks = torch.as_tensor(np.random.default_rng(0).logistic(15, 4, len(IDS)))
    right = (breaks[:, None] > torch.arange(1, 31)).to(torch.float64)
    found = Sampling(9, 0.1).choose("fog:standard", IDS, 30)
    sampled = (right * found.cells).sum(1) / found.cells.sum(1)
    full = right.mean(1)
    assert float(sampled.mean()) == pytest.approx(
        float(full.mean()), abs=3 * float((sampled - full).std()) / len(IDS) ** 0.5
    )
    assert float(sampled.var()) < 1.4 * float(full.var())


@given(st.integers(1, 400), SHARES, SHARES)
def test_a_larger_budget_adds_images_to_a_smaller_one(images: int, one: float, other: float) -> None:
    small, large = (count_images(share, images) for share in sorted((one, other)))
    assert 0 <= small <= large <= images and count_images(1.0, images) == images


def test_images_are_chosen_at_random_and_independent_of_their_order() -> None:
    ranks = shuffled_ranks(2, IDS)
    assert sorted(ranks.tolist()) == list(range(len(IDS)))
    assert abs(np.corrcoef(ranks.numpy(), np.arange(len(IDS)))[0, 1]) < 0.06
    order = torch.randperm(len(IDS), generator=torch.Generator().manual_seed(0))
    assert torch.equal(shuffled_ranks(2, IDS[order]), ranks[order])
    assert not torch.equal(shuffled_ranks(3, IDS), ranks)
