"""A short version of `make chaos`: the faults, fewer of them. The long version is run by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from chaos import images, killing, mutants, processes, servers, stores, texts
from chaos.__main__ import PAGE, STORED, render
from chaos.scenario import Result, Scenario
from chaos.survivors import REASONS

QUICK: dict[str, tuple[Scenario, float]] = {
    "images": (images.bad_images, 0.05),
    "texts": (texts.malformed_texts, 0.1),
}
SLOW: dict[str, tuple[Scenario, float]] = {
    "servers": (servers.hostile_servers, 1.0),
    "kills": (killing.kills, 0.1),
    "kills of other commands": (killing.killed_commands, 0.2),
    "two writers": (processes.two_writers, 0.25),
    "full disk": (processes.full_disk, 0.3),
    "an object store": (stores.object_store, 1.0),
}


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_faults(name: str, tmp_path: Path) -> None:
    scenario, scale = (QUICK | SLOW)[name]
    result = scenario(tmp_path, Random(1), scale)
    if result.skipped:
        pytest.skip(result.skipped)
    assert result.tried > 0 and result.broken == []


def test_what_breaks_is_reported() -> None:
    result = Result("a fault", "nothing happens")
    with result.attempt("allowed", ValueError):
        raise ValueError
    with result.attempt("other", ValueError):
        raise KeyError("x")
    with result.attempt("slow", seconds=-1):
        pass
    result.expect(True, "no")
    result.expect(False, "yes")
    assert result.tried == 3 and [line.partition(" took")[0] for line in result.broken] == [
        "other: KeyError: 'x'",
        "slow:",
        "yes",
    ]


def test_mutants_differ_from_the_source_and_from_each_other() -> None:
    source = "def f(x, y):\n    if x < 1 and not y:\n        return x + 2\n    return -x\n"
    found = {name: make() for name, make in mutants.mutants(source)}
    assert set(found) == {
        "line 2: condition negated", "line 2: And → Or", "line 2: Lt → LtE", "line 2: without Not", "line 2: 1 → 2",
        "line 3: Add → Sub", "line 3: 2 → 3", "line 4: without USub",
    }  # fmt: skip
    assert len(set(found.values()) | {source}) == len(found) + 1
    space: dict[str, object] = {}
    exec(found["line 4: without USub"], space)
    assert space["f"](5, True) == 5  # type: ignore[operator]


def test_mutants_are_killed_or_their_survival_is_explained() -> None:
    tried = json.loads(mutants.RESULTS.read_text(encoding="utf-8"))
    assert set(tried) == set(mutants.TARGETS)
    lives = {(name, label): alive for name, one in tried.items() for label, alive in one["tried"].items()}
    assert list(lives.values()).count(False) >= 0.85 * len(lives)
    assert {mutant for mutant, alive in lives.items() if alive} == set(REASONS)


def test_the_page_is_the_one_that_the_stored_results_give() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    tried = json.loads(mutants.RESULTS.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == render(stored, tried)
    assert all(one["broken"] == [] for one in stored.values())
