"""Confidence sequences: against a plain implementation, and by simulation at the worst moment to stop."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.runs.sequences import CANDIDATES, ConfidenceSequence


def ruled_out(values: list[float], candidate: float, size: int | None, resolution: float, alpha: float) -> bool:
    """Whether a candidate is ruled out at any time; value by value, from the paper's definitions."""
    distances, step = [], resolution
    while step <= 0.5:
        distances.append(step)
        step *= 2
    weights = [0.5] + [0.5 / (len(distances) - 1)] * (len(distances) - 1) if len(distances) > 1 else [1.0]
    more, less = [1.0] * len(distances), [1.0] * len(distances)
    seen: list[float] = []
    spread = 0.25
    for value in values:
        t = len(seen) + 1
        mean = candidate if size is None else (size * candidate - sum(seen)) / (size - t + 1)
        if not -1e-12 < mean < 1 + 1e-12:
            return True
        mean = min(max(mean, 1e-12), 1 - 1e-12)
        for k, distance in enumerate(distances):
            stake = distance / (spread / t)
            more[k] *= 1 + min(stake, 0.75 / mean) * (value - mean)
            less[k] *= 1 - min(stake, 0.75 / (1 - mean)) * (value - mean)
        seen.append(value)
        spread += (value - (0.5 + sum(seen)) / (t + 1)) ** 2
        for capital in (more, less):
            if sum(w * c for w, c in zip(weights, capital, strict=True)) / 2 >= 1 / alpha:
                return True
    return False


@pytest.mark.parametrize("size", [None, 60])
@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
def test_bounds_agree_with_a_plain_implementation(size: int | None, share: float) -> None:
    values = (np.random.default_rng(3).random(45) < share).astype(float)
    sequence = ConfidenceSequence(0.05, size=size)
    sequence.add(values)
    candidates = np.linspace(0, 1, CANDIDATES)[::10]
    left = [one for one in candidates if not ruled_out(list(values), one, size, 0.05, 0.05)]
    found, step = sequence.estimate, 11 / (CANDIDATES - 1)
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(min(left), abs=step)
    assert found.high == pytest.approx(max(left), abs=step)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=600), st.integers(1, 50))
@settings(max_examples=20, deadline=None)
def test_blocks_do_not_matter_and_the_mean_is_inside(values: list[float], block: int) -> None:
    whole, parts = (ConfidenceSequence(0.02, size=len(values)) for _ in range(2))
    whole.add(np.array(values))
    for start in range(0, len(values), block):
        before = parts.estimate
        parts.add(np.array(values[start : start + block]))
        assert before.high - before.low >= parts.estimate.high - parts.estimate.low - 1e-9 or start == 0
    for one, other in zip(vars(whole.estimate).values(), vars(parts.estimate).values(), strict=True):
        assert one == pytest.approx(other, abs=1e-9)
    assert whole.estimate.low <= whole.estimate.value <= whole.estimate.high
    # all of them are known
    assert whole.estimate.high - whole.estimate.low == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("share", "size"), [(0.02, None), (0.5, None), (0.5, 400), (0.95, 400)])
def test_the_mean_is_rarely_ruled_out_at_any_time(share: float, size: int | None) -> None:
    random, missed, trials = np.random.default_rng(0), 0, 1000
    for _ in range(trials):
        if size is None:
            mean, values = share, (random.random(300) < share).astype(float)
        else:
            values = random.permutation((np.arange(size) < share * size).astype(float))[:300]
            mean = round(share * size) / size
        sequence = ConfidenceSequence(0.05, size=size, candidates=np.array([mean]))
        sequence.add(values)
        missed += not len(sequence.candidates)  # once ruled out, it stays so
    assert missed <= 0.05 * trials + 3 * math.sqrt(0.05 * 0.95 * trials)


def test_differences_between_minus_one_and_one() -> None:
    values = np.random.default_rng(1).choice([-1.0, 0.0, 0.0, 0.0, 1.0], 2000)
    sequence = ConfidenceSequence(0.05, least=-1, most=1)
    assert (sequence.estimate.low, sequence.estimate.high) == (-1, 1)
    sequence.add(values)
    found = sequence.estimate
    assert found.value == pytest.approx(values.mean())
    assert -0.1 < found.low < found.value < found.high < 0.1


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="expected values from 0 to 1"):
        ConfidenceSequence(0.1).add(np.array([1.5]))
    with pytest.raises(ValueError, match="2 values of a population of 1"):
        ConfidenceSequence(0.1, size=1).add(np.array([0.0, 1.0]))
