"""Progress in a notebook: one output below the cell, updated in place, without widgets."""

from __future__ import annotations

import html
import importlib
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from brinell.units import format_clock, format_rate

_EVERY = 0.2  # seconds between updates


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this code."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")


@dataclass
class _Stage:
    what: str
    total: int
    unit: str
    left: Callable[[], float | None] | None = None
    done: int = 0
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    def advance(self, count: int) -> None:
        self.done += count
        if self.done >= self.total:
            self.ended = self.ended or time.monotonic()

    @property
    def state(self) -> str:
        """How far it is, in words."""
        seconds = max((self.ended or time.monotonic()) - self.began, 1e-9)
        rate = self.done / seconds
        state = f"{self.done:,} of {self.total:,}, {format_rate(rate, self.unit)}"
        if not 0 < self.done < self.total:
            return state
        left = (self.total - self.done) / rate if self.left is None else self.left()
        return state if left is None else f"{state}, {format_clock(left)} left"


class NotebookProgress:
    """Reports stages as bars, and lines above them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._stages: list[_Stage] = []
        self._handle: Any = None
        self._shown_at = 0.0
        self._lock = threading.Lock()

    def stage(
        self, what: str, total: int, unit: str, left: Callable[[], float | None] | None = None
    ) -> Callable[[int], None]:
        """Start a bar of `total` steps, and return a function to call with the number of steps that were done."""
        stage = _Stage(what, total, unit, left)
        self._stages.append(stage)
        self._show()

        def advance(done: int) -> None:
            stage.advance(done)
            if stage.ended is not None or time.monotonic() - self._shown_at >= _EVERY:
                self._show()

        return advance

    def say(self, text: str) -> None:
        """Add a line."""
        self._lines.append(text)
        self._show()

    def pause(self) -> AbstractContextManager[None]:
        """Nothing to step aside from: other output goes below."""
        return nullcontext()

    def _show(self) -> None:
        with self._lock:
            self._shown_at = time.monotonic()
            content = {"text/html": self._html(), "text/plain": self._text()}
            if self._handle is None:
                display = importlib.import_module("IPython.display").display
                self._handle = display(content, raw=True, display_id=True)
            else:
                self._handle.update(content, raw=True)

    def _html(self) -> str:
        lines = "".join(f"<div>{html.escape(line)}</div>" for line in self._lines)
        bars = "".join(
            f"<tr><td>{html.escape(stage.what)}</td><td><progress max='{stage.total}' value='{stage.done}'></progress></td>"
            f"<td>{html.escape(stage.state)}</td></tr>"
            for stage in self._stages
        )
        return f"{lines}<table>{bars}</table>"

    def _text(self) -> str:
        return "\n".join([*self._lines, *(f"{stage.what}: {stage.state}" for stage in self._stages)])
