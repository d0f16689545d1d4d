"""Asks before something long starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from brinell.engine.progress import Reporter

NOT_STARTED = 1  # exit code of what was declined


def ask_to_start(progress: Reporter, *, yes: bool) -> None:
    """Ask on a terminal before something long starts, unless `yes` was said. Without a terminal nobody can answer."""
    if yes or not someone_answers():
        return
    with progress.pause():
        if not typer.confirm("Start?", err=True):
            typer.echo("Nothing was run.", err=True)
            raise typer.Exit(NOT_STARTED)


def someone_answers() -> bool:
    """Whether the command runs on a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()
