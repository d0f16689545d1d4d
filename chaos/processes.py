"""Commands that are killed, interrupted, started twice or run out of disk: in the end, rows are the same."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from PIL import Image

import brinell
from chaos.commands import Process
from chaos.scenario import Result

SLOW = """
import time, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 1, bias=False)
        torch.nn.init.dirac_(self.conv.weight)
    def forward(self, images):
        time.sleep(0.02)
        above = (self.conv(images).mean((1, 2, 3)) - 0.25) * 20
        return torch.stack([above, -above], 1)
"""
PROFILE = ["--lens", "profile", "--operator", "noise", "--operator", "fade_black", "--levels", "8"]
MOTIONS = ["--lens", "geometry", "--method", "random"]
LATEST = 5.0  # seconds until an interrupted process has ended, on a busy machine
SEEDS = 3  # pairs of processes that start together


def prepare(work: Path) -> None:
    """Write images and a slow network into a folder."""
    generator = np.random.default_rng(0)
    (work / "greys" / "light").mkdir(parents=True, exist_ok=True)
    for index in range(8):
        pixels = 80 + 12 * index + generator.integers(-20, 21, (24, 28, 3))
        name = f"{index // 2}_1.png" if index % 2 else f"{index // 2}.png"  # a scene and its variant
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(work / "greys" / "light" / name)
    (work / "slow.py").write_text(SLOW)


def command(out: str, *more: str, lens: list[str] = PROFILE) -> list[str]:
    """Return the command of a run."""
    given = ["--model", "torch:slow.py:Net?size=16", "--data", "greys", "--labels", "index", "--runtime", "torch"]
    return ["run", *given, "--batch", "4", "--shard", "3", "--yes", *lens, "--out", out, *more]


def rows_of(folder: Path) -> list[Any]:
    """Return all rows of a run without what depends on the moment: times, and queries that were made ahead."""
    sql = "select columns(lambda name: name not in ('queries', 'seconds')) from rows order by all"
    return brinell.Run(folder).rows(sql).fetchall()


def finish(work: Path, given: list[str], result: Result, what: str) -> str:
    """Run a command to its end, and note if it fails."""
    process = Process(work, given)
    error = process.wait()
    result.expect(process.returncode == 0, f"{what}: exit code {process.returncode}: {error[-200:]}")
    return error


def signals(work: Path, random: Random, scale: float) -> Result:
    """Interrupt runs."""
    result = Result("Ctrl-C and SIGTERM", "exit code 130 and one line within seconds; the same command resumes")
    prepare(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        for _ in range(max(1, round(2 * scale))):
            result.tried += 1
            out = f"stopped-{result.tried}"
            process = Process(work, command(out))
            while not list(work.glob(f"{out}/rows/**/*.parquet")) and process.returncode is None:
                time.sleep(0.02)
            time.sleep(random.uniform(0, 0.3))
            began = time.monotonic()
            process.send_signal(number)
            error = process.wait(60)
            if process.returncode == 0:
                continue  # it had finished
            last = (error.splitlines() or [""])[-1]
            result.expect(
                process.returncode == 130 and last == "Interrupted; rerun to resume.", f"{process.returncode}: {last}"
            )
            result.expect(time.monotonic() - began < LATEST, f"it took {time.monotonic() - began:.1f} s")
            finish(work, command(out), result, "after a signal")
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
            processes.append(Process(work, command(out, "--seed", str(seed))))
            time.sleep(random.uniform(0, 0.3))
        errors = [process.wait() for process in processes]
        codes = [process.returncode for process in processes]
        result.expect(sorted(codes) == [0, 2], f"exit codes {codes}: {errors}")
        if 0 in codes:
            whole = f"seed-{codes.index(0)}"
            if not (work / whole).exists():
                finish(work, command(whole, "--seed", str(codes.index(0))), result, whole)
            result.expect(rows_of(work / out) == rows_of(work / whole), "rows are mixed")
    return result


def full_disk(work: Path, random: Random, scale: float) -> Result:
    """Let no file grow beyond a size, as on a full disk, and give the command again without that limit."""
    result = Result("no space left", "one line that says so; the same command finishes the run later")
    prepare(work)
    for size in (2_000, 6_000, 20_000)[: max(1, round(3 * scale))]:
        result.tried += 1
        out = f"full-{size}"
        process = Process(work, command(out), size=size)
        error = process.wait()
        result.expect(
            process.returncode == 2 and "no space left to write" in error, f"{size}: {process.returncode} {error[-200:]}"
        )
        finish(work, command(out), result, f"after {size}")
    return result


def damaged_files(work: Path, random: Random, scale: float) -> Result:
    """Cut or change files of a finished run."""
    result = Result("torn and changed files", "the same command repairs the file and says so; rows are the same")
    prepare(work)
    finish(work, command("good"), result, "run")
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
        error = finish(work, command(f"bad-{number}"), result, str(file))
        result.expect(" is damaged; " in error, f"{file}: nothing was said")
        result.expect(rows_of(work / f"bad-{number}") == whole, f"{file}: other rows")
    return result
