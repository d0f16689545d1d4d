"""Chains of trials: every link of a chain after the one before, whatever the order of the chains."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brinell.engine.chains import in_order_of_trials, make_chains, run_chains


@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(1, 6))
def test_chains_hold_every_trial_once_and_no_sample_twice_in_a_link(given_samples: list[int], most: int) -> None:
    samples = torch.tensor(given_samples)
    chains = make_chains(samples, most)
    everything = torch.cat([link for links in chains for link in links])
    assert sorted(everything.tolist()) == list(range(len(samples)))
    assert everything[in_order_of_trials(chains)].tolist() == list(range(len(samples)))
    seen: set[int] = set()
    for links in chains:
        own = {int(sample) for link in links for sample in samples[link]}
        assert len(own) <= most
        assert not own & seen, "a sample is in two chains"
        seen |= own
        assert all(len(set(samples[link].tolist())) == len(link) for link in links)
        order = torch.cat(links)
        assert (order.diff() > 0).all(), "the trials of a chain keep their order"


def test_levels_of_all_samples_are_links_of_equal_chains() -> None:
    levels, samples = 30, 24
    chains = make_chains(torch.arange(samples).repeat(levels), 16)
    assert [len(links) for links in chains] == [levels] * 4
    assert {len(link) for links in chains for link in links} == {6}


def test_links_of_a_chain_follow_each_other() -> None:
    chains = [[(chain, link) for link in range(20)] for chain in range(5)]
    last, lock = [-1] * 5, threading.Lock()

    def work(item: tuple[int, int]) -> tuple[int, int]:
        chain, link = item
        with lock:
            assert last[chain] == link - 1
        time.sleep(0.001 * ((chain + link) % 3))
        with lock:
            last[chain] = link
        return item

    assert run_chains(work, chains) == chains


def test_chains_of_different_lengths() -> None:
    chains = [[1], [], [2, 3, 4], [5]]
    assert run_chains(lambda number: -number, chains) == [[-1], [], [-2, -3, -4], [-5]]
    assert run_chains(lambda number: number, []) == []


def test_an_error_stops_all_chains() -> None:
    worked: list[int] = []

    def work(number: int) -> None:
        worked.append(number)
        if number == 3:
            raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        run_chains(work, [list(range(1000)), list(range(2000, 3000))])
    assert len(worked) < 100
