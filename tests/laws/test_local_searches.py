"""Searches inside one image, against plain loops: minimal windows, and the faintest spot of light."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from brinell.lenses.fragility.minimal import Descent, MinimalSearch, Windows, _most_confident, descend, largest_windows
from brinell.lenses.fragility.names import SMALLEST
from brinell.lenses.highlights.faintest import search_faintest
from brinell.lenses.method import Categorical, Nullable, Shard, Trials
from brinell.lenses.outcomes import ANSWERS, BROKEN, FAILED, SKIPPED, SURVIVED
from brinell.perturb.highlight import SPOT
from brinell.runs.schema import DISTANCES

VIEW: Any = object()


def drive(search: Any, answer: Any) -> Any:
    try:
        trials = next(search)
        while True:
            trials = search.send(answer(trials))
    except StopIteration as end:
        return end.value


# ---- minimal windows ----

Window = tuple[int, int, int, int]  # sample, x, y, side


def score(window: Window) -> float:
    """A score that depends on the window in an irregular way; recognised from 0.4 on."""
    sample, x, y, side = window
    return (math.sin(12.9898 * x + 78.233 * y + 37.719 * side + 3 * sample) * 43758.5453) % 1 * 0.7 + 0.3 * side / 40


def odd_share(share: float, side: int) -> int:
    """Return a share of a side as an odd number of pixels that fits."""
    odd = 2 * math.floor(share * side / 2 + 1e-9) + 1
    return odd - 2 if odd > side else odd


def plain_minimal(first: list[Window], step: float, beam: int) -> tuple[set[Window], set[int], set[int], list[set[Window]]]:
    """Return minimal windows, samples that were cut, those at the bottom, and what was queried by generation."""
    minimal, cut, bottom = set[Window](), set[int](), set[int]()
    asked = [set(first)]
    windows = [window for window in first if score(window) >= 0.4]
    while windows:
        kept = []
        for sample in sorted({window[0] for window in windows}):
            own = sorted((window for window in windows if window[0] == sample), key=score, reverse=True)
            kept += own[:beam]
            cut |= {sample} if len(own) > beam else set()
        below = dict[Window, list[Window]]()
        for sample, x, y, side in kept:
            smaller = side - int(step) if step > 1 else min(side - 2, odd_share(step, side))
            gap = side - smaller
            if smaller < 1:
                below[sample, x, y, side] = []
                bottom.add(sample)
                continue
            corners = [(0, 0), (0, gap), (gap // 2, gap // 2), (gap, 0), (gap, gap)]
            if step > 1:
                corners = [(right, down) for right in {0, gap // 2, gap} for down in {0, gap // 2, gap}]
            below[sample, x, y, side] = [(sample, x + right, y + down, smaller) for right, down in corners]
        children = {child for own in below.values() for child in own}
        asked += [children] if children else []
        minimal |= {window for window, own in below.items() if own and all(score(child) < 0.4 for child in own)}
        windows = [child for child in children if score(child) >= 0.4]
    return minimal, cut, bottom, asked


@pytest.mark.parametrize(("step", "beam"), [(0.8, 500), (0.8, 3), (0.5, 500), (2, 500), (2, 2), (5, 4)])
def test_minimal_windows_are_those_of_a_plain_search(step: float, beam: int) -> None:
    sizes = torch.tensor([[20, 31], [17, 17], [30, 12]])
    asked: list[set[Window]] = []

    def answer(trials: Trials) -> Any:
        windows = [(int(sample), *map(int, place)) for sample, place in zip(trials.samples, trials.parameters, strict=True)]
        assert len(set(windows)) == len(windows), "no window is queried twice in a generation"
        asked.append(set(windows))  # type: ignore[arg-type]
        scores = torch.tensor([score(window) for window in windows], dtype=torch.float64)  # type: ignore[arg-type]
        prediction = (scores * 1e6).long()
        return SimpleNamespace(broken=scores < 0.4, verdict=SimpleNamespace(probability=scores, prediction=prediction))

    first = largest_windows(sizes)
    table = list(zip(first.sample.tolist(), *first.corner.T.tolist(), first.side.tolist(), strict=True))
    assert sorted(table) == [
        (0, 0, 0, 20), (0, 5, 0, 20), (0, 11, 0, 20), (1, 0, 0, 17), (2, 0, 0, 12), (2, 0, 9, 12), (2, 0, 18, 12),
    ]  # fmt: skip
    found: MinimalSearch = drive(descend(VIEW, first, Descent(step, beam)), answer)
    minimal, cut, bottom, expected = plain_minimal(table, step, beam)
    windows = found.windows()
    own = list(zip(windows.sample.tolist(), *windows.corner.T.tolist(), windows.side.tolist(), strict=True))
    assert len(own) == len(minimal) and set(own) == minimal
    assert (found.cut, found.bottom, asked) == (cut, bottom, expected)
    assert [len(samples) for samples in found.queries] == [len(one) for one in expected]
    assert found.probabilities().tolist() == pytest.approx([score(window) for window in own])
    assert found.predictions().tolist() == [int(score(window) * 1e6) for window in own]


def test_only_samples_that_lose_branches_are_cut() -> None:
    """Every window of the first sample is recognised, and of the second only the largest and one below it."""

    def answer(trials: Trials) -> Any:
        x, y, side = trials.parameters.unbind(1)
        broken = (trials.samples == 1) & (side < 9) & ~((side == 7) & (x + y == 0))
        scores = torch.ones(len(broken), dtype=torch.float64)
        return SimpleNamespace(broken=broken, verdict=SimpleNamespace(probability=scores, prediction=scores.long()))

    found: MinimalSearch = drive(descend(VIEW, largest_windows(torch.tensor([[9, 9], [9, 9]])), Descent(2, 4)), answer)
    assert found.cut == {0} and found.windows().sample.tolist() == [1] and found.windows().side.tolist() == [7]


def test_the_first_of_equally_confident_windows_are_kept() -> None:
    samples = torch.arange(3).repeat_interleave(400)
    kept = _most_confident(samples, torch.full((1200,), 0.5), 2)
    assert kept.tolist() == [0, 1, 400, 401, 800, 801]


def test_windows_shrink_to_a_share_or_by_two_pixels() -> None:
    assert [Descent(0.8).side(side) for side in (100, 21, 8, 3, 2)] == [81, 17, 6, 1, 0]
    assert [Descent(2).side(side) for side in (100, 3)] == [98, 1]
    assert Descent(0.8).offsets(5).tolist() == [[0, 0], [0, 5], [2, 2], [5, 0], [5, 5]]
    assert Descent(2).offsets(2).tolist() == [[x, y] for x in (0, 1, 2) for y in (0, 1, 2)]
    assert Descent(3).offsets(1).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert Descent().beam == 500 and Descent().step == 0.8
    assert len(Descent(1.0).offsets(4)) == 5 and Descent(1.0).side(9) == 7, "the whole side is a share, no number of pixels"
    assert [Descent(2).generations(SMALLEST + more) for more in (5, 4, 0, -1)] == [3, 3, 1, 0]
    assert len(Windows(torch.zeros(3), torch.zeros(3, 2), torch.zeros(3))) == 3


# ---- the faintest spot ----

Spot = tuple[float, float, float, float]  # x, y, sigma, strength


def light_of(spot: Spot) -> float:
    return spot[2] ** 2 * spot[3] / 100


def probability_of(sample: int, spot: Spot) -> float:
    """The label's probability is lowest at a place of each sample's own."""
    away = math.hypot(spot[0] - 10 - 3 * sample, spot[1] - 12)
    return 1 - spot[2] * spot[3] / 12 * math.exp(-((away / 9) ** 2))


def breaks(sample: int, spot: Spot) -> bool:
    return probability_of(sample, spot) < (0.5, 0.8, 0.05, 0.5, 0.5)[sample]


def is_silent(sample: int, spot: Spot) -> bool:
    """Sample 3 never answers; sample 1 doesn't where spots are small."""
    return sample == 3 or (sample == 1 and spot[2] < 3.0)


def plain_faintest(sample: int, starts: list[Spot], most: int, size: tuple[int, int], vary: bool) -> dict[str, Any]:
    """Search one image's faintest spot."""
    best, light, lowest, step, status, queries, proposed, number = (
        starts[0], math.inf, math.inf, 0.5, SURVIVED, 0, starts[:most], 0,
    )  # fmt: skip
    while True:
        queries += len(proposed)
        answered = [spot for spot in proposed if not is_silent(sample, spot)]
        if not answered and status != BROKEN:
            status = FAILED
        hits = [spot for spot in answered if breaks(sample, spot)]
        faintest = min(hits, key=light_of, default=None)
        nearest = min(answered, key=lambda spot: probability_of(sample, spot), default=None)
        if faintest is not None and light_of(faintest) < light:
            best, light, status = faintest, light_of(faintest), BROKEN
        elif nearest is not None and light == math.inf and probability_of(sample, nearest) < lowest:
            best, lowest = nearest, probability_of(sample, nearest)
        else:
            step *= 0.6
        if step <= 0.01 or queries >= most or status == FAILED:
            return {"status": status, "queries": queries, "spot": best, "light": light}
        count, proposed_from = min(8, most - queries), best
        proposed = []
        for index in range(count):
            angle = math.pi * (3 - math.sqrt(5)) * (index + count * number)
            reach = 2 * proposed_from[2] * math.sqrt((index + 0.5) / count) * step
            kept = 1 - step * (1 - index / count) if light < math.inf else 1.0
            x = min(max(proposed_from[0] + reach * math.cos(angle), 0), size[1] - 1)
            y = min(max(proposed_from[1] + reach * math.sin(angle), 0), size[0] - 1)
            sigma = max(0.5, proposed_from[2] * kept ** (0.25 if vary else 0.5))
            proposed.append((x, y, sigma, proposed_from[3] * (kept**0.5 if vary else 1.0)))
        number += 1


@pytest.mark.parametrize(("most", "vary"), [(200, False), (200, True), (60, False), (21, True), (3, False)])
def test_the_faintest_spot_is_that_of_a_plain_search(most: int, vary: bool) -> None:
    sizes = torch.tensor([[24, 30], [24, 30], [24, 30], [24, 30], [12, 14]])
    starts = torch.tensor([(x, y, 6.0, 1.0) for x in (4.0, 12.0, 20.0) for y in (5.0, 15.0)], dtype=torch.float64)
    verdict = SimpleNamespace(rank=torch.tensor([0, 0, 0, 0, 0]), confidence=torch.ones(5))
    clean: Any = SimpleNamespace(broken=torch.tensor([False] * 5), verdict=verdict, detections=None, overlap=None)
    shard = Shard(5, 8, 8, clean, sizes=sizes)
    rounds: list[list[Any]] = []

    def answer(trials: Trials) -> Any:
        assert trials.may_fail
        given = [
            (int(sample), tuple(spot)) for sample, spot in zip(trials.samples, trials.parameters.tolist(), strict=True)
        ]
        rounds.append(given)
        silent = torch.tensor([is_silent(*one) for one in given])
        chance = torch.tensor([probability_of(*one) for one in given], dtype=torch.float64)
        marks = {**dict.fromkeys(ANSWERS, chance), "probability": chance}
        marks["confidence"] = torch.where(silent, torch.nan, chance)
        light = torch.tensor([light_of(spot) for _, spot in given], dtype=torch.float64)
        return SimpleNamespace(
            verdict=SimpleNamespace(**marks),
            broken=torch.tensor([breaks(*one) for one in given]),
            difference=SimpleNamespace(**dict.fromkeys(DISTANCES, light)),
            cause=None,
            overlap=None,
            distance=None,
        )

    found = drive(search_faintest(shard, VIEW, starts.repeat(5, 1, 1), most, vary_strength=vary), answer)
    inside = [(x < sizes[sample, 1], y < sizes[sample, 0]) for given in rounds[1:] for sample, (x, y, *_) in given]
    assert all(map(all, inside)), "spots are proposed inside the image"
    status, correct = found["status"], found["correct"]
    assert isinstance(status, Categorical) and isinstance(correct, Nullable)
    assert found["sample"].tolist() == list(range(5))
    for sample in range(5):
        size = (int(sizes[sample, 0]), int(sizes[sample, 1]))
        expected = plain_faintest(sample, [tuple(spot) for spot in starts.tolist()], most, size, vary)
        assert (int(status.codes[sample]), int(found["queries"][sample])) == (expected["status"], expected["queries"])
        assert bool(correct.valid[sample]) == (expected["status"] != FAILED)
        assert bool(correct.values[sample]) == (expected["status"] == SURVIVED)
        spot: list[Tensor] = [found[name].values[sample] for name in SPOT]
        assert [float(value) for value in spot] == pytest.approx(expected["spot"], rel=1e-9)
        assert bool(found["mae"].valid[sample]) == (expected["status"] == BROKEN)
        if expected["status"] == BROKEN:
            assert float(found["mae"].values[sample]) == pytest.approx(expected["light"], rel=1e-9)
    assert {int(code) for code in status.codes} == {SURVIVED, BROKEN, FAILED} or most == 3


def test_images_that_are_wrong_when_clean_get_no_spot() -> None:
    verdict = SimpleNamespace(rank=torch.tensor([1]), confidence=torch.ones(1))
    clean: Any = SimpleNamespace(broken=torch.tensor([True]), verdict=verdict, detections=None, overlap=None)
    shard = Shard(1, 8, 8, clean, sizes=torch.tensor([[24, 30]]))
    found = drive(search_faintest(shard, VIEW, torch.ones(1, 2, 4), 9, vary_strength=False), None)
    assert found["status"].codes.tolist() == [SKIPPED] and found["queries"].tolist() == [0]
    assert found["correct"].values.tolist() == [False] and found["correct"].valid.tolist() == [True]
