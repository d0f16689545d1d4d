"""What a scenario returns: how often a fault was tried, and what did not hold."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

_DEADLINE = [math.inf]
Scenario = Callable[[Path, Random, float], "Result"]


@dataclass
class Result:
    """One row of the page: a fault, what has to hold, how often it was tried, and each time that it didn't hold."""

    fault: str
    holds: str
    tried: int = 0
    broken: list[str] = field(default_factory=list)
    skipped: str = ""

    @contextlib.contextmanager
    def attempt(self, name: str, *allowed: type[BaseException], seconds: float = 30.0) -> Iterator[None]:
        """Count an attempt; an error that is not allowed, or one that takes too long, breaks the promise."""
        self.tried += 1
        began = time.monotonic()
        try:
            yield
        except allowed:
            pass
        except Exception as error:  # whatever it is, it is one that a user would meet
            self.broken.append(f"{name}: {type(error).__name__}: {error}")
        if time.monotonic() - began > seconds:
            self.broken.append(f"{name}: took {time.monotonic() - began:.1f} s")

    def expect(self, holds: bool, problem: str) -> None:
        """Note a problem unless something holds."""
        if not holds:
            self.broken.append(problem)


def stop_after(minutes: float) -> None:
    """Let scenarios that repeat themselves end after some minutes."""
    _DEADLINE[0] = time.monotonic() + 60 * minutes


def time_is_up() -> bool:
    """Whether a scenario that repeats itself should end."""
    return time.monotonic() > _DEADLINE[0]
