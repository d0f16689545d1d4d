"""Commands that are killed at random moments and given again: in the end, what they write is the same."""

from __future__ import annotations

import hashlib
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import brinell
from brinell.errors import BrinellError
from chaos.commands import Process
from chaos.processes import MOTIONS, command, finish, prepare, rows_of
from chaos.scenario import Result, time_is_up

KILLS = 8  # of each lens
COMMAND_KILLS = 5  # of each other command
CHAIN = 3  # kills of one folder, at most, before the command may finish
LENSES: dict[str, dict[str, Any]] = {
    "profile": {"operators": ["noise", "fade_black"], "levels": 8},
    "knob": {"operators": ["brightness"], "search": "bracket"},
    "bands": {"name": "knob", "operators": ["contrast"], "search": "bands", "points": 40},
    "fragility": {"sizes": [9]},
    "highlights": {"cells": 4},
    "random": {"name": "geometry", "methods": ["random"]},
    "manifool": {"name": "geometry", "methods": ["manifool"], "operators": ["rotation"]},
    "photographs": {},
    "budget": {"name": "profile", "operators": ["noise"], "levels": 8},
}
NAMES_THE_MOMENT = ("manifest.json", ".lock", "watch.json")  # files that hold times


@dataclass(frozen=True)
class Job:
    """A command that writes to a place, and what has to be the same there in the end."""

    name: str
    given: Callable[[str], list[str]]
    outcome: Callable[[Path], dict[str, Any]]
    copied: str = ""  # the folder that it writes into, if it adds to one that exists


@dataclass(frozen=True)
class Whole:
    """What a job gave without faults, and after how many seconds it wrote first and ended."""

    outcome: dict[str, Any]
    first: float
    seconds: float


def kills(work: Path, random: Random, scale: float) -> Result:
    """Kill runs of every lens, started from Python: other commands write reports."""
    result = Result(
        "SIGKILL at random moments, all lenses",
        "the same run finishes, its rows are the same, and `verify` finds nothing",
    )
    prepare(work)
    chosen = LENSES if scale >= 0.25 else {"profile": LENSES["profile"]}
    jobs = [Job(name, lambda out, name=name: ["call", name, out], _checked_rows) for name in chosen]  # type: ignore[misc]
    _kill_all(work, jobs, random, max(1, round(KILLS * scale)), result)
    return result


def run_lens(name: str, out: str) -> None:
    """Make the run of a lens in this process; `Process` calls it."""
    pattern = r"(?P<original>\d)(?P<variant>_\d)?\.png" if name == "photographs" else None
    brinell.run(
        "torch:slow.py:Net?size=16",
        {"source": "greys", "labels": "index", "pattern": pattern},
        lens={"name": name, **LENSES[name]},
        budget=0.4 if name == "budget" else None,
        out=out,
        execution=brinell.Execution(runtime="torch", batch=4, shard=3),
        quiet=True,
    )


def _checked_rows(folder: Path) -> dict[str, Any]:
    """Return a run's rows, and what `verify` finds wrong with its files."""
    checks = brinell.Run(folder).verify(0, quiet=True)
    problems = [problem.replace(str(folder), "") for check in checks for problem in check.problems]
    return {"rows": rows_of(folder), "problems": problems}


def killed_commands(work: Path, random: Random, scale: float) -> Result:
    """Kill the other commands that write."""
    result = Result(
        "SIGKILL at random moments, other commands", "the same command finishes, and all files are the same, byte by byte"
    )
    prepare(work)
    (work / "rules.yaml").write_text("rules:\n  - {measure: clean, min: 10}\n")
    finish(work, command("base"), result, "run")
    finish(work, command("moved", lens=MOTIONS), result, "run")
    _kill_all(work, JOBS if scale >= 0.25 else JOBS[:1], random, max(1, round(COMMAND_KILLS * scale)), result)
    return result


def _kill_all(work: Path, jobs: Sequence[Job], random: Random, times: int, result: Result) -> None:
    """Kill jobs several times each, in several places, one job after another until all of them had enough."""
    wholes: dict[str, Whole] = {}
    killed = dict.fromkeys((job.name for job in jobs), 0)
    for number in range(10 * times):
        for job in jobs:
            if killed[job.name] >= times or time_is_up():
                continue
            if job.name not in wholes:
                wholes[job.name] = _run_whole(work, job, result)
            place = f"killed-{job.name}-{number}"
            _copy(work, job, place)
            hits = sum(_kill_once(work, job, place, random, wholes[job.name]) for _ in range(random.randint(1, CHAIN)))
            finish(work, job.given(place), result, f"{job.name} after kills")
            result.expect(*_compare(job, place, wholes[job.name].outcome, _outcome(work, job, place)))
            killed[job.name] += hits
            result.tried += hits
    print(f"  kills: {killed}", flush=True)


def _outcome(work: Path, job: Job, place: str) -> dict[str, Any]:
    """Return what a job has written so far; nothing if it was killed before it wrote."""
    try:
        return job.outcome(work / place)
    except (BrinellError, FileNotFoundError):
        return {}


def _compare(job: Job, place: str, whole: dict[str, Any], found: dict[str, Any]) -> tuple[bool, str]:
    """Return whether two outcomes are the same, and the first difference, for people."""
    other = [name for name in sorted({*whole, *found}) if whole.get(name) != found.get(name)]
    if not other:
        return True, ""
    before, after = (outcome.get(other[0], "nothing") for outcome in (whole, found))
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        before, after = next(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])
    return False, f"{job.name} ({place}): {other[0]}: {str(before)[:300]} without kills, {str(after)[:300]} after them"


def _run_whole(work: Path, job: Job, result: Result) -> Whole:
    """Run a job without faults."""
    place = f"whole-{job.name}"
    _copy(work, job, place)
    before, began, first = _files(work / place), time.monotonic(), None
    process = Process(work, job.given(place))
    while process.returncode is None:
        if first is None and _files(work / place) != before:
            first = time.monotonic() - began
        time.sleep(0.01)
    error, seconds = process.wait(), time.monotonic() - began
    result.expect(process.returncode == 0, f"{job.name}: exit code {process.returncode}: {error[-200:]}")
    return Whole(job.outcome(work / place), seconds if first is None else first, seconds)


def _kill_once(work: Path, job: Job, place: str, random: Random, whole: Whole) -> bool:
    """Kill a job, in two of three cases after it began to write; return whether it was still running."""
    before = _files(work / place)
    process = Process(work, job.given(place))
    if random.random() < 2 / 3:
        while process.returncode is None and _files(work / place) == before:
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.9 * (whole.seconds - whole.first)))
    else:
        time.sleep(random.uniform(0.2 * whole.first, whole.seconds))
    alive = process.returncode is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return alive


def _copy(work: Path, job: Job, place: str) -> None:
    if job.copied:
        shutil.copytree(work / job.copied, work / place)


def _files(place: Path) -> list[tuple[str, int]]:
    """Return the files at a place, and when they were written; the place may be a file with an ending."""
    found = []
    for path in [place, *place.parent.glob(f"{place.name}.*"), *place.rglob("*")]:
        try:
            found.append((str(path), path.stat().st_mtime_ns))
        except OSError:
            continue  # it is being renamed
    return sorted(found)


def contents(place: Path) -> dict[str, str]:
    """Return a digest of every file at a place, except those that hold times; a part that was left over is none."""
    files = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
    kept = (path for path in files if path.name not in NAMES_THE_MOMENT and path.suffix != ".part")
    return {str(path.relative_to(place)): hashlib.blake2b(path.read_bytes()).hexdigest() for path in kept}


_OPERATORS = ("--operator", "noise", "--operator", "jpeg", "--level", "3", "--level", "9")
JOBS = (  # curate's card has the name of its folder, so that is always the same
    Job("corrupt", lambda out: ["corrupt", "greys", out, "--yes", *_OPERATORS], contents),
    Job(
        "corrupt-shards",
        lambda out: ["corrupt", "greys", out, "--yes", *_OPERATORS, "--layout", "webdataset"],
        contents,
    ),
    Job("curate", lambda out: ["curate", "base", "--trust", "--all", "--out", f"{out}/set"], contents),
    Job("view", lambda out: ["view", "base", "--bundle", out, "--images", "2"], contents),
    Job("report", lambda out: ["report", out, "--figures"], contents, copied="base"),
    Job("card", lambda out: ["card", out], contents, copied="base"),
    Job("saliency", lambda out: ["saliency", out, "--trust"], contents, copied="moved"),
    Job("gate", lambda out: ["gate", out, "--rules", "rules.yaml"], contents, copied="base"),
    Job(
        "show",
        lambda out: ["show", "greys/light/0.png", "--operator", "jpeg", "--size", "64", "--out", f"{out}.png"],
        lambda place: contents(place.with_suffix(".png")),
    ),
    Job(
        "export-moved",
        lambda out: ["export-moved", "moved", f"{out}.npz", "--operator", "affine:random", "--score", "1"],
        lambda place: contents(place.with_suffix(".npz")),
    ),
)  # fmt: skip
