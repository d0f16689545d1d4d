"""A story: commands as a new user types them, each of which the documentation must show, and what came out.

`BRINELL_RECORD=1 pytest tests/stories` writes the table in README.md; without it, a test fails if the table is out of date.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl

import brinell

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]}
TABLE = Path(__file__).parent / "README.md"
MODEL_PAGES = [PAGES[f"docs/{name}.md"] for name in ("models", "detectors", "remote")]


class Story:
    """Types commands in a folder, and counts them until the first correct result.

    Attempts are commands that were meant to give that result, refused ones included.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.commands = self.attempts = 0
        self.found: tuple[int, int] | None = None
        self.environment = {**os.environ, "COLUMNS": "100", "XDG_CACHE_HOME": str(folder / "cache")}
        self.environment["PYTHONPATH"] = str(Path(brinell.__file__).parents[1])

    def type(self, line: str, *, attempt: bool = False, code: int = 0) -> str:
        """Run a command, which must be documented and end with an exit code, and return what it printed."""
        require_documented(line)
        self.commands += 1
        self.attempts += attempt
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(line)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == code, f"{line}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        if code == 2:
            assert done.stderr.count("error: ") == 1 and done.stderr.splitlines()[-1].startswith("error: "), done.stderr
        return done.stdout + done.stderr

    def refuse(self, line: str, *, advice: str) -> None:
        """Run a command that must be refused in one line, which gives the option that is typed next."""
        told = self.type(line, attempt=True, code=2)
        assert advice in told, told

    def correct(self) -> None:
        """Note that the first correct result is there: what follows doesn't count."""
        self.found = self.found or (self.commands, self.attempts)

    def record(self) -> None:
        """Compare the counts with the table, or write them into it."""
        assert self.found is not None, "the story has no correct result"
        row = f"| {self.name} | {self.found[0]} | {self.found[1]} |"
        text = TABLE.read_text(encoding="utf-8")
        (known,) = re.findall(rf"^\| {re.escape(self.name)} \|.*$", text, re.MULTILINE)
        if os.environ.get("BRINELL_RECORD"):
            TABLE.write_text(text.replace(known, row), encoding="utf-8")
        else:
            assert known == row, "BRINELL_RECORD=1 pytest tests/stories writes the table"


def require_documented(line: str) -> None:
    """Raise unless README or docs show the command, and explain each of its flags and of its model's options."""
    command, name, *words = shlex.split(line)
    assert command == "brinell"
    everything = "\n".join(PAGES.values())
    assert re.search(rf"\bbrinell {re.escape(name)}\b", everything), f"brinell {name} is not documented"
    for word in words:
        flag = word.partition("=")[0]
        if flag.startswith("-"):
            assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", everything), f"{flag} is not documented"
    for before, word in zip(["", *words], words, strict=False):
        if before == "--model":
            _require_model(word)
    if name == "ls":
        assert words[0] in PAGES["docs/cli.md"], f"brinell ls {words[0]} is not documented"


def _require_model(model: str) -> None:
    separator = "#" if model.startswith("http") else "?"
    source, _, query = model.partition(separator)
    kind = source.partition(":")[0]
    assert any(f"{kind}:" in page or f"`{kind}`" in page for page in MODEL_PAGES), f"{kind}: is not documented"
    for key, _ in parse_qsl(query):
        assert any(f"`{key}`" in page for page in MODEL_PAGES), f"{key} is not documented"
