"""Commands that are killed, interrupted, started twice or run out of disk: in the end, rows are the same."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

import brinell
from chaos.scenario import Result

SLOW = """
import time, torch
class Net(torch.nn.Module):
    def forward(self, images):
        time.sleep(0.02)
        above = (images.mean((1, 2, 3)) - 0.25) * 20
        return torch.stack([above, -above], 1)
"""
LENSES: dict[str, list[str]] = {
    "profile": ["--lens", "profile", "--operator", "noise", "--operator", "fade_black", "--levels", "8"],
    "knob": ["--lens", "knob", "--operator", "brightness", "--operator", "contrast"],
    "fragility": ["--lens", "fragility", "--size", "9"],
    "highlights": ["--lens", "highlights"],
    "geometry": ["--lens", "geometry", "--method", "random"],
}
KILLS = 4  # of each lens
LATEST = 5.0  # seconds until an interrupted process has ended, on a busy machine
SEEDS = 3  # pairs of processes that start together


def prepare(work: Path) -> None:
    """Write images and a slow network into a folder."""
    generator = np.random.default_rng(0)
    (work / "greys" / "light").mkdir(parents=True, exist_ok=True)
    for index in range(8):
        pixels = 80 + 12 * index + generator.integers(-20, 21, (24, 28, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(work / "greys" / "light" / f"{index}.png")
    (work / "slow.py").write_text(SLOW)


def command(lens: str, out: str, *more: str) -> list[str]:
    """Return the command of a run."""
    given = ["--model", "torch:slow.py:Net?size=16", "--data", "greys", "--labels", "index", "--runtime", "torch"]
    return [
        sys.executable,
        "-m",
        "brinell",
        "run",
        *given,
        "--batch",
        "4",
        "--shard",
        "3",
        "--yes",
        *LENSES[lens],
        "--out",
        out,
        *more,
    ]


def start(work: Path, given: list[str], **options: Any) -> subprocess.Popen[str]:
    """Start a command in the folder."""
    return subprocess.Popen(
        given, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ}, **options
    )


def rows_of(folder: Path) -> list[Any]:
    """Return all rows of a run without what depends on the moment: times, and queries that were made ahead."""
    sql = "select columns(lambda name: name not in ('queries', 'seconds')) from rows order by all"
    return brinell.Run(folder).rows(sql).fetchall()


def finish(work: Path, given: list[str], result: Result, what: str) -> str:
    """Run a command to its end, and note if it fails."""
    process = start(work, given)
    error = process.communicate(timeout=300)[1]
    result.expect(process.returncode == 0, f"{what}: exit code {process.returncode}: {error[-200:]}")
    return error


def kills(work: Path, random: Random, scale: float) -> Result:
    """Kill runs of every lens at random moments until they have finished."""
    result = Result("SIGKILL at random moments, all lenses", "the same command finishes the run, and its rows are the same")
    prepare(work)
    for lens in LENSES if scale >= 0.25 else list(LENSES)[:1]:
        began = time.monotonic()
        finish(work, command(lens, f"whole-{lens}"), result, lens)
        whole, seconds = rows_of(work / f"whole-{lens}"), time.monotonic() - began
        for _ in range(max(1, round(KILLS * scale))):
            result.tried += 1
            process = start(work, command(lens, f"killed-{lens}"))
            time.sleep(random.uniform(0.3 * seconds, seconds))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        finish(work, command(lens, f"killed-{lens}"), result, lens)
        result.expect(rows_of(work / f"killed-{lens}") == whole, f"{lens}: other rows after kills")
        checks = brinell.Run(work / f"killed-{lens}").verify(0, quiet=True)
        wrong = [problem for check in checks for problem in check.problems if ".part" not in problem]
        result.expect(not wrong, f"{lens}: {wrong}")
    return result


def signals(work: Path, random: Random, scale: float) -> Result:
    """Interrupt runs."""
    result = Result("Ctrl-C and SIGTERM", "exit code 130 and one line within seconds; the same command resumes")
    prepare(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        for _ in range(max(1, round(2 * scale))):
            result.tried += 1
            out = f"stopped-{result.tried}"
            process = start(work, command("profile", out))
            while not list(work.glob(f"{out}/rows/**/*.parquet")) and process.poll() is None:
                time.sleep(0.02)
            time.sleep(random.uniform(0, 0.3))
            began = time.monotonic()
            process.send_signal(number)
            error = process.communicate(timeout=60)[1]
            if process.returncode == 0:
                continue  # it had finished
            last = (error.splitlines() or [""])[-1]
            result.expect(
                process.returncode == 130 and last == "Interrupted; rerun to resume.", f"{process.returncode}: {last}"
            )
            result.expect(time.monotonic() - began < LATEST, f"it took {time.monotonic() - began:.1f} s")
            finish(work, command("profile", out), result, "after a signal")
    return result


def two_writers(work: Path, random: Random, scale: float) -> Result:
    """Start two configs together in one folder."""
    result = Result(
        "two configs that start together in one folder", "one finishes, the other is refused; no row belongs to the other"
    )
    prepare(work)
    for number in range(max(1, round(SEEDS * scale))):
        result.tried += 1
        out = f"both-{number}"
        processes = []
        for seed in (0, 1):
            processes.append(start(work, command("profile", out, "--seed", str(seed))))
            time.sleep(random.uniform(0, 0.3))
        errors = [process.communicate(timeout=300)[1] for process in processes]
        codes = [process.returncode for process in processes]
        result.expect(sorted(codes) == [0, 2], f"exit codes {codes}: {errors}")
        if 0 in codes:
            whole = f"seed-{codes.index(0)}"
            if not (work / whole).exists():
                finish(work, command("profile", whole, "--seed", str(codes.index(0))), result, whole)
            result.expect(rows_of(work / out) == rows_of(work / whole), "rows are mixed")
    return result


def full_disk(work: Path, random: Random, scale: float) -> Result:
    """Let no file grow beyond a size, as on a full disk, and give the command again without that limit."""
    result = Result("no space left", "one line that says so; the same command finishes the run later")
    prepare(work)
    for size in (2_000, 6_000, 20_000)[: max(1, round(3 * scale))]:
        result.tried += 1
        out = f"full-{size}"

        def limit(size: int = size) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        process = start(work, command("profile", out), preexec_fn=limit)
        error = process.communicate(timeout=300)[1]
        result.expect(
            process.returncode == 2 and "no space left to write" in error, f"{size}: {process.returncode} {error[-200:]}"
        )
        finish(work, command("profile", out), result, f"after {size}")
    return result


def damaged_files(work: Path, random: Random, scale: float) -> Result:
    """Cut or change files of a finished run."""
    result = Result("torn and changed files", "the same command repairs the file and says so; rows are the same")
    prepare(work)
    finish(work, command("profile", "good"), result, "run")
    whole = rows_of(work / "good")
    files = [path for path in (work / "good").rglob("*") if path.suffix in (".parquet", ".webp")]
    for number in range(max(1, round(6 * scale))):
        result.tried += 1
        file = random.choice(files).relative_to(work / "good")
        shutil.copytree(work / "good", work / f"bad-{number}")
        target = work / f"bad-{number}" / file
        data = target.read_bytes()
        place = random.randrange(4, len(data) // 2)
        target.write_bytes(
            data[:place] if random.random() < 0.5 else data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]
        )
        error = finish(work, command("profile", f"bad-{number}"), result, str(file))
        result.expect(" is damaged; " in error, f"{file}: nothing was said")
        result.expect(rows_of(work / f"bad-{number}") == whole, f"{file}: other rows")
    return result
