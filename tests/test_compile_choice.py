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
from brinell.models import compile_choice, compiling
from brinell.models.compile_choice import (
    COMPILED,
    EAGER,
    FUSED,
    Expected,
    Way,
    assumed_ways,
    expected,
    expecting,
    order_of_ways,
)
from brinell.models.compiling import Ways, accelerated, best_speed, compile_module, measure_way
from brinell.models.model import Forward
from brinell.run_config import RunConfig
from small_nets import SIDE, small

MANY = 100_000_000


@pytest.mark.parametrize(
    ("rate", "passes", "expected"),
    [
        (16_200, 0, [EAGER]),
        (16_200, 10_000, [EAGER]),  # 0.6 s in eager torch
        (16_200, 450_000, [FUSED, EAGER]),  # 28 s: the gain is not worth 14 s of compiling
        (16_200, 4_000_000, [FUSED, COMPILED, EAGER]),
        (100, 15_000, [FUSED, COMPILED, EAGER]),  # a slow model compiles as long, and needs fewer passes to be worth it
    ],
)
def test_compiling_pays_for_runs_that_are_long_enough(rate: float, passes: int, expected: list[str]) -> None:
    assert order_of_ways(assumed_ways(rate), passes) == expected


def test_the_choice_is_that_of_the_smallest_total() -> None:
    for first, second, passes in itertools.product((1.0, 30.0), (50.0, 400.0), (10, 1_000, 100_000)):
        ways = {EAGER: Way(0.0, 100.0), COMPILED: Way(first, 150.0), FUSED: Way(first, second)}
        best = min(ways, key=lambda name: ways[name].start + passes / ways[name].rate)
        assert order_of_ways(ways, passes)[0] == best
    assert order_of_ways({EAGER: Way(0, 9), COMPILED: Way(0, 9), FUSED: Way(0, 9)}, 1) == [EAGER]  # the simplest


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


class Stood(Ways):
    """The ways of a module, of which each is the module itself times a factor, or fails."""

    def __init__(self, module: nn.Module, factor: float, fails: tuple[str, ...]) -> None:
        super().__init__(module, lambda each: each, lambda each: each)
        self.plain, self.factor, self.fails = module, factor, fails

    def make(self, way: str, eager: Forward, batch: int) -> Forward:
        tried.append(way)
        if way in self.fails:
            raise RuntimeError("no compiler\nfor this")
        return Scaled(self.plain, self.factor)


@pytest.fixture
def choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Choose a way among stand-ins, whose speed and mistakes are given."""
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    images = torch.rand(8, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def run(wanted: Expected, rates: dict[str, float], *, factor: float = 1.0, fails: tuple[str, ...] = ()) -> str:
        module = small()
        tried.append(EAGER)
        monkeypatch.setattr(compiling, "measure_way", lambda forward, batch: Way(1.0, rates[tried[-1]]))
        found = accelerated(Stood(module, factor, fails), module, images, "one", "bf16", wanted, None)
        with torch.inference_mode():
            assert torch.allclose(found.forward(images[:5]), small()(images[:5]), rtol=0.1)
        assert found.speed is None or found.speed.rate == rates[found.way]
        return found.way

    return run


tried: list[str] = []
FAST = {EAGER: 100.0, FUSED: 150.0, COMPILED: 200.0}


def test_short_runs_compile_nothing(choose: Callable[..., str]) -> None:
    tried.clear()
    assert choose(Expected(0), FAST) == EAGER and choose(Expected(50), FAST) == EAGER
    assert tried == [EAGER, EAGER]


def test_long_runs_use_the_fastest_and_remember_it(choose: Callable[..., str], tmp_path: Path) -> None:
    slow_fused = {**FAST, FUSED: 110.0}
    assert choose(Expected(MANY), slow_fused) == COMPILED
    [record] = tmp_path.glob("runtimes/*.json")
    ways = json.loads(record.read_text())["ways"]
    assert {name: way["rate"] for name, way in ways.items()} == {EAGER: 100, FUSED: 110, COMPILED: 200}
    assert ways[COMPILED]["start"] == pytest.approx(
        compile_choice.WARM, abs=0.1
    )  # the next time, Inductor finds what it made
    assert choose(Expected(400), slow_fused) == COMPILED
    record.write_text('{"ways": {"torch": {"rate": "?", "odd": 1}}, "batch": 8}')
    assert choose(Expected(MANY), slow_fused) == COMPILED


def test_what_is_fast_enough_without_a_compiler_is_not_compiled(choose: Callable[..., str]) -> None:
    tried.clear()
    assert choose(Expected(MANY), FAST) == FUSED and COMPILED not in tried


def test_ways_that_fail_score_differently_or_gain_nothing_are_left_out(choose: Callable[..., str]) -> None:
    tried.clear()
    assert choose(Expected(MANY), FAST, fails=(FUSED,)) == COMPILED
    assert choose(Expected(MANY), FAST) == COMPILED and tried.count(FUSED) == 1  # it is not tried again


def test_wrong_scores_are_left_out(choose: Callable[..., str]) -> None:
    assert choose(Expected(MANY), FAST, factor=1.2) == EAGER
    assert choose(Expected(MANY), FAST) == EAGER


def test_a_network_that_gains_nothing_stays_eager(choose: Callable[..., str]) -> None:
    tried.clear()
    assert choose(Expected(MANY), {EAGER: 100.0, FUSED: 99.0, COMPILED: 98.0}) == EAGER
    assert choose(Expected(MANY), FAST) == EAGER and tried.count(FUSED) == 1  # known from the first time


def test_a_resumed_run_keeps_its_runtime(choose: Callable[..., str]) -> None:
    assert choose(Expected(MANY, EAGER), FAST) == EAGER
    assert choose(Expected(1, COMPILED), FAST) == COMPILED


def test_the_batch_grows_while_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {64: 100.0, 128: 150.0, 256: 160.0, 512: 161.0}
    monkeypatch.setattr(compiling, "measure_way", lambda forward, batch: Way(3.0, rates[len(batch)]))
    assert best_speed(nn.Identity(), torch.rand(1, 3, 4, 4), compiling.BATCHES) == (256, Way(0.0, 160.0))


def test_the_batch_shrinks_until_it_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(forward: Forward, batch: Tensor) -> Way:
        if len(batch) > 20:
            raise torch.OutOfMemoryError
        return Way(3.0, 7.0)

    monkeypatch.setattr(compiling, "measure_way", measure)
    assert best_speed(nn.Identity(), torch.rand(1, 3, 4, 4), compiling.BATCHES) == (16, Way(0.0, 7.0))


def test_a_given_batch_is_not_kept_for_runs_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "measure_way", lambda forward, batch: Way(0.0, float(len(batch))))
    images, module = torch.rand(3, 3, SIDE, SIDE), small()

    def batch_of(given: int | None) -> int | None:
        found = accelerated(Stood(module, 1.0, ()), module, images, "one", "bf16", Expected(5), given)
        return found.speed and found.speed.batch

    assert [batch_of(8), batch_of(None), batch_of(8)] == [8, 1024, 8]


def test_scores_are_checked_at_the_size_that_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "measure_way", lambda forward, batch: Way(0.0, 100.0))
    module = small()
    ways = Ways(module, lambda each: each, lambda each: each, lambda each: Scaled(each, -7.0))
    images = torch.rand(3, 3, SIDE, SIDE)
    assert accelerated(ways, module, images, "one", "bf16", Expected(MANY, COMPILED), 64).way == EAGER


def test_a_run_that_cannot_keep_its_runtime_says_so_and_one_that_lacks_memory_may_try_again(
    choose: Callable[..., str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(Expected(MANY, COMPILED), FAST, fails=(COMPILED,)) == EAGER
    assert "The run began with the runtime torch compiled, which fails now" in caplog.text
    assert choose(Expected(MANY), {**FAST, FUSED: 110.0}) == FUSED  # compiling has failed
    assert choose(Expected(MANY, COMPILED), FAST) == COMPILED  # but it did work when this run began


def test_a_lack_of_memory_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.setattr(compiling, "measure_way", lambda forward, batch: Way(0.0, 100.0 if forward is module else 900.0))
    module, full = small(), [True]

    class Lacking(Stood):
        def make(self, way: str, eager: Forward, batch: int) -> Forward:
            if full[0]:
                raise torch.OutOfMemoryError
            return super().make(way, eager, batch)

    def way() -> str:
        images = torch.rand(3, 3, SIDE, SIDE)
        return accelerated(Lacking(module, 1.0, ()), module, images, "one", "bf16", Expected(MANY), None).way

    assert way() == EAGER
    full[0] = False
    assert way() == FUSED


def test_what_is_compiled_sees_one_batch_size() -> None:
    module, sizes = small(), list[int]()
    images = torch.rand(20, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

    def compiler(module: nn.Module) -> nn.Module:
        module.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
        return module

    run = Ways(module, lambda each: each, lambda each: each, compiler).make(COMPILED, module, 16)
    with torch.inference_mode():
        for count in (1, 8, 9, 15, 16, 20):
            assert torch.allclose(run(images[:count]), module(images[:count]), atol=1e-5)
    assert sizes == [16, 16, 16]  # of 9, 15 and 16; for others, eager torch is there


@pytest.mark.slow
def test_the_real_compiler_gives_the_scores_of_eager_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    images, module = torch.rand(4, 3, SIDE, SIDE), small().requires_grad_(False)
    with torch.inference_mode():
        assert torch.allclose(compile_module(module)(images), module(images), atol=1e-5)


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
