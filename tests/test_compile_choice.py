"""Whether compiling pays: arithmetic on costs, and what happens if a compiler fails, is wrong or is not worth it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.config.execution import Execution
from brinell.engine.setup import rough_passes
from brinell.models import compiling
from brinell.models.compile_choice import (
    COMPILED,
    EAGER,
    FROZEN,
    Expected,
    Way,
    assumed_ways,
    expected,
    expecting,
    order_of_ways,
)
from brinell.models.compiling import accelerated, compile_module, measure_way
from brinell.run_config import RunConfig
from small_nets import SIDE, small

MANY = 100_000_000


@pytest.mark.parametrize(
    ("rate", "passes", "expected"),
    [
        (16_200, 0, [EAGER]),
        (16_200, 450_000, [EAGER]),  # 28 s in eager torch: the gain is not worth 22 s of compiling
        (16_200, 2_000_000, [FROZEN, COMPILED, EAGER]),
        (100, 5_000, [EAGER]),  # a slow model compiles as long, and needs fewer passes to be worth it
        (100, 15_000, [FROZEN, COMPILED, EAGER]),
    ],
)
def test_compiling_pays_for_runs_that_are_long_enough(rate: float, passes: int, expected: list[str]) -> None:
    assert order_of_ways(assumed_ways(rate), passes) == expected


def test_the_choice_is_that_of_the_smallest_total() -> None:
    for first, second, passes in itertools.product((1.0, 30.0), (50.0, 400.0), (10, 1_000, 100_000)):
        ways = {EAGER: Way(0.0, 100.0), COMPILED: Way(first, 150.0), FROZEN: Way(first, second)}
        best = min(ways, key=lambda name: ways[name].start + passes / ways[name].rate)
        assert order_of_ways(ways, passes)[0] == best
    assert order_of_ways({EAGER: Way(0, 9), COMPILED: Way(0, 9), FROZEN: Way(0, 9)}, 1) == [EAGER]  # the simplest


def test_a_longer_run_never_goes_back_to_a_slower_way() -> None:
    ways = assumed_ways(1_000.0)
    rates = [ways[order_of_ways(ways, passes)[0]].rate for passes in range(0, 1_000_000, 5_000)]
    assert rates == sorted(rates) and rates[0] < rates[-1]


def test_expectations_hold_while_a_model_is_opened() -> None:
    with expecting(5, "openvino"):
        assert expected() == Expected(5, "openvino")
    assert expected() == Expected(0, None)


def test_passes_are_images_times_changes_times_levels() -> None:
    config = {
        "models": ["fake:grey"],
        "data": "x",
        "lenses": [{"name": "profile", "operators": ["noise", "boxes"], "levels": 6}],
    }
    whole = rough_passes(RunConfig.model_validate(config), 100)
    assert whole == 100 * (1 + 2 * 6)
    assert rough_passes(RunConfig.model_validate({**config, "budget": 0.5}), 100) == 100 * (1 + 6)


def test_the_first_call_is_apart_from_the_rate() -> None:
    times = iter([0.0, 7.0, 7.0 + compiling.ROUNDS * 2.0])
    way = measure_way(lambda images: images, torch.zeros(64, 1), clock=lambda: next(times))
    assert way == Way(5.0, 32.0)


class Scaled(nn.Module):
    """A stand-in for what a compiler returns: scores of a module times a factor."""

    def __init__(self, module: nn.Module, factor: float) -> None:
        super().__init__()
        self.module, self.factor = module, factor

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.factor * self.module(images)
        return scores


@pytest.fixture
def choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Choose a way with a stand-in for the compiler, whose speed and mistakes are given."""
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    images = torch.rand(8, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def run(wanted: Expected, rates: dict[str, float], *, factor: float = 1.0, fails: tuple[str, ...] = ()) -> str:
        tried.append(EAGER)

        def compiler(module: nn.Module, way: str) -> nn.Module:
            tried.append(way)
            if way in fails:
                raise RuntimeError("no compiler\nfor this")
            return Scaled(module, factor)

        monkeypatch.setattr(compiling, "measure_way", lambda forward, batch: Way(1.0, rates[tried[-1]]))
        forward, name = accelerated(small(), lambda module: module, images, "bf16", wanted, compiler)
        with torch.inference_mode():
            assert torch.allclose(forward(images[:5]), small()(images[:5]), rtol=0.1)
        return name

    return run


tried: list[str] = []
FAST = {EAGER: 100.0, COMPILED: 150.0, FROZEN: 200.0}


def test_short_runs_compile_nothing(choose: Callable[..., str]) -> None:
    tried.clear()
    assert choose(Expected(0), FAST) == EAGER and choose(Expected(50), FAST) == EAGER
    assert tried == [EAGER, EAGER]


def test_long_runs_use_the_fastest_and_remember_it(choose: Callable[..., str], tmp_path: Path) -> None:
    assert choose(Expected(MANY), FAST) == FROZEN
    [record] = tmp_path.glob("runtimes/*.json")
    assert {name: way["rate"] for name, way in json.loads(record.read_text()).items()} == {EAGER: 100, FROZEN: 200}
    assert choose(Expected(400), FAST) == FROZEN  # measured: it takes a second to start the next time, not 22
    record.write_text('{"torch": {"rate": "?", "odd": 1}}')
    assert choose(Expected(MANY), FAST) == FROZEN


def test_ways_that_fail_score_differently_or_gain_nothing_are_left_out(choose: Callable[..., str]) -> None:
    tried.clear()
    assert choose(Expected(MANY), FAST, fails=(FROZEN,)) == COMPILED
    assert choose(Expected(MANY), FAST) == COMPILED and tried.count(FROZEN) == 1  # it is not tried again


def test_wrong_scores_are_left_out(choose: Callable[..., str]) -> None:
    assert choose(Expected(MANY), FAST, factor=1.2) == EAGER
    assert choose(Expected(MANY), FAST) == EAGER


def test_a_network_that_gains_nothing_stays_eager(choose: Callable[..., str]) -> None:
    tried.clear()
    assert choose(Expected(MANY), {EAGER: 100.0, COMPILED: 99.0, FROZEN: 98.0}) == EAGER
    assert choose(Expected(MANY), FAST) == EAGER and tried.count(FROZEN) == 1  # known from the first time


def test_a_resumed_run_keeps_its_runtime(choose: Callable[..., str]) -> None:
    assert choose(Expected(MANY, EAGER), FAST) == EAGER
    assert choose(Expected(1, COMPILED), FAST) == COMPILED


@pytest.mark.slow
def test_the_real_compiler_gives_the_scores_of_eager_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    images, module = torch.rand(4, 3, SIDE, SIDE), small().requires_grad_(False)
    with torch.inference_mode():
        found = compile_module(module, FROZEN)(images)
        assert torch.allclose(found, module(images), atol=1e-5)


@pytest.mark.slow
def test_a_resumed_run_asks_for_the_runtime_of_its_manifest(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "lens": {"name": "profile", "operators": ["fade_black"], "levels": 2},
        "out": tmp_path / "run",
        "quiet": True,
    }
    run = brinell.run("fake:grey", greys, execution=Execution(runtime="torch"), **options)
    seen: list[Expected] = []
    monkeypatch.setattr("brinell.models.runtimes.expected", lambda: seen.append(expected()) or expected())
    brinell.run("fake:grey", greys, execution=Execution(), **options)
    assert run.manifest["models"]["grey"]["runtime"] == "torch"
    assert seen and seen[0].runtime == "torch" and seen[0].passes == 12 * 3
