"""Which worker measures what: every task once, also if workers are slow or die."""

from __future__ import annotations

import heapq

import pytest
from benchmarks.scale import PAGE, Fleet, render, simulate_parts, simulate_schedule
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.engine.workers.schedule import ATTEMPTS, SOON, Exhausted, Schedule


def test_the_task_of_a_lost_worker_is_next() -> None:
    schedule = Schedule("abc")
    assert [schedule.next(worker, 0.0) for worker in (1, 2)] == ["a", "b"]
    assert schedule.lose(1) == "a" and schedule.lose(1) is None
    assert schedule.next(3, 0.0) == "a" and schedule.finish(3, 1.0) == "a" and schedule.left == 2


def test_a_task_that_kills_every_worker_ends_the_run() -> None:
    schedule = Schedule("a")
    for worker in range(ATTEMPTS - 1):
        schedule.next(worker, 0.0)
        schedule.lose(worker)
    schedule.next(9, 0.0)
    with pytest.raises(Exhausted):
        schedule.lose(9)


def test_a_late_task_gets_a_second_worker_and_counts_once() -> None:
    schedule = Schedule("abc")
    assert [schedule.next(worker, 0.0) for worker in (1, 2)] == ["a", "b"]
    assert schedule.finish(1, 10.0) == "a"
    assert schedule.next(1, 10.0) == "c" and schedule.finish(1, 20.0) == "c"
    assert schedule.next(1, 20.0) is None  # not more than twice the median of ten
    assert schedule.next(1, 20.5) == "b" and schedule.next(3, 21.0) is None  # two are enough
    assert schedule.finish(1, 30.0) == "b" and schedule.left == 0
    assert schedule.finish(2, 31.0) is None and schedule.left == 0


def test_short_tasks_are_waited_for() -> None:
    """A worker's first task may take many times as long as the next ones, and still ends soon."""
    schedule = Schedule("ab")
    assert [schedule.next(worker, 0.0) for worker in (1, 2)] == ["a", "b"]
    assert schedule.finish(1, 0.3) == "a"
    assert schedule.next(1, SOON) is None
    assert schedule.next(1, SOON + 0.1) == "b"


def test_one_of_two_workers_of_a_task_may_die() -> None:
    for first, second in ((1, 2), (2, 1)):
        schedule = Schedule("ab")
        schedule.next(1, 0.0), schedule.next(2, 0.0)
        schedule.finish(1, 1.0)
        assert schedule.next(1, 19.0) == "b"
        assert schedule.lose(first) is None and schedule.finish(second, 20.0) == "b" and schedule.left == 0


@settings(max_examples=60, deadline=None)
@given(
    tasks=st.integers(1, 40),
    workers=st.integers(1, 7),
    seconds=st.lists(st.integers(1, 50), min_size=7, max_size=7),
    deaths=st.sets(st.integers(0, 60), max_size=6),
)
def test_every_task_is_done_once_whatever_happens(tasks: int, workers: int, seconds: list[int], deaths: set[int]) -> None:
    schedule, done, handed = Schedule(range(tasks)), list[int](), 0
    events: list[tuple[float, int, bool]] = []  # time, worker, whether it dies
    idle, now, fresh = list(range(workers)), 0.0, workers
    lost: dict[int, int] = {}
    while schedule.left:
        for worker in list(idle):
            task = schedule.next(worker, now)
            if task is None:
                continue
            idle.remove(worker)
            dies = handed in deaths and lost.get(task, 0) < ATTEMPTS - 1
            lost[task] = lost.get(task, 0) + dies
            heapq.heappush(events, (now + seconds[worker % 7], worker, dies))
            handed += 1
        assert events, "tasks are left and nobody works"
        now, worker, dies = heapq.heappop(events)
        if dies:
            schedule.lose(worker)
            idle.append(fresh)  # its replacement
            fresh += 1
        else:
            if (task := schedule.finish(worker, now)) is not None:
                done.append(task)
            idle.append(worker)
    assert sorted(done) == list(range(tasks))


def test_a_simulated_fleet_does_all_tasks_and_hands_out_evens_out_slow_workers() -> None:
    fleet = Fleet(20, 0.1, 4.0, 0.5)
    parts, handed = simulate_parts(fleet, 400, 24.0, seed=1), simulate_schedule(fleet, 400, 24.0, seed=1)
    assert parts.deaths > 0 and handed.deaths > 0
    assert handed.ideal <= handed.seconds < parts.seconds


def test_the_page_about_scale_is_up_to_date() -> None:
    """If this fails, run `python -m benchmarks.scale`."""
    assert PAGE.read_text() == render()
