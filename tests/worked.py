"""Worked commands of the documentation, and the outputs that it shows for them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import brinell

ROOT = Path(__file__).parents[1]
WIDTH = 100  # columns of the terminal


def shown(page: str, start: str) -> tuple[list[str], str]:
    """Return the commands of the block that starts with some words, and the output that follows it."""
    text = (ROOT / page).read_text()
    place = text.index(f"```sh\n{start}")
    found = re.match(r"```sh\n(.*?)```\n\n```text\n(.*?)```", text[place:], re.DOTALL)
    assert found is not None, f"{page} shows no output of {start}"
    return found[1].replace("\\\n", " ").splitlines(), found[2]


def execute(folder: Path, words: list[str]) -> str:
    """Run a command as a user would, and return what it prints."""
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONPATH": str(Path(brinell.__file__).parents[1])}
    command = [sys.executable, "-m", "brinell", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def labels(text: str) -> list[str]:
    """Return the heads and the first cells of the tables in a text."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        if line.startswith("──") and number:
            found.append(" ".join(lines[number - 1].split()))
            for row in lines[number + 1 :]:
                if row.startswith("  ") and row.strip():
                    continue  # the rest of a cell
                if not re.match(r"\S.*?  ", row):
                    break
                found.append(re.split(r" {2,}", row)[0])
    return found
