"""Reports progress: bars with rate and time left on a terminal and in a notebook, occasional lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from brinell.engine.notebook import NotebookProgress, in_notebook
from brinell.units import format_clock, format_rate

Advance = Callable[[int], None]
TimeLeft = Callable[[], float | None]  # in seconds; None: not known yet


class Reporter(Protocol):
    """Reports the stages of a run."""

    def stage(self, what: str, total: int, unit: str, left: TimeLeft | None = None) -> Advance:
        """Start a stage of `total` steps, and return a function to call with the number of steps that were done.

        Where steps take unequal times, `left` estimates the time that the others will take.
        """
        ...

    def say(self, text: str) -> None:
        """Print a line."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Step aside while something else is printed."""
        ...


class Silent:
    """Reports nothing."""

    def stage(self, what: str, total: int, unit: str, left: TimeLeft | None = None) -> Advance:
        """Ignore a stage."""
        return lambda done: None

    def say(self, text: str) -> None:
        """Ignore a line."""

    def pause(self) -> AbstractContextManager[None]:
        """Step aside."""
        return nullcontext()


class _Rate(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(format_rate(speed, task.fields["unit"]) if speed else "", style="cyan")


class _TimeLeft(ProgressColumn):
    """The time left; before it can be estimated, the time that has passed."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        estimate: TimeLeft | None = task.fields["left"]
        left = task.time_remaining if estimate is None else estimate()
        if task.finished or left is None:
            return Text(format_clock(task.elapsed or 0), style="progress.elapsed")
        return Text(f"{format_clock(left)} left", style="progress.remaining")


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def stage(self, what: str, total: int, unit: str, left: TimeLeft | None = None) -> Advance:
        task = self.progress.add_task(what, total=total, unit=unit, left=left)
        return lambda done: self.progress.advance(task, done)

    def say(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    @contextmanager
    def pause(self) -> Iterator[None]:
        self.progress.stop()
        try:
            yield
        finally:
            self.progress.start()


class _Lines:
    """A line every few seconds, for logs."""

    every = 10.0

    def stage(self, what: str, total: int, unit: str, left: TimeLeft | None = None) -> Advance:
        start = last = time.monotonic()
        done = 0

        def advance(count: int) -> None:
            nonlocal last, done
            if not count:
                return  # the last line is printed once
            done += count
            now = time.monotonic()
            if now - last >= self.every or (done >= total and now - start > 1):
                last = now
                rate = done / max(now - start, 1e-9)
                seconds = (total - done) / rate if left is None else left()
                rest = "" if done >= total or seconds is None else f", {format_clock(seconds)} left"
                self.say(f"{what}: {done:,} of {total:,} ({done / max(total, 1):.0%}), {format_rate(rate, unit)}{rest}")

        return advance

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def pause(self) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def reporter(quiet: bool = False) -> Iterator[Reporter]:
    """Yield a reporter that writes to standard error, or below a notebook's cell, where that would be red."""
    console = Console(stderr=True)
    if quiet:
        yield Silent()
    elif in_notebook():
        yield NotebookProgress()
    elif not console.is_terminal:
        yield _Lines()
    else:
        what = TextColumn("{task.description}", markup=False)
        columns = (what, BarColumn(), MofNCompleteColumn(), _Rate(), _TimeLeft())
        with Progress(*columns, console=console) as progress:
            yield _Bars(progress)
