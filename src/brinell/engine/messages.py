"""What brinell logs while it loads models, as lines of a reporter."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from brinell.engine.progress import Reporter

LOG = logging.getLogger("brinell")


class _ToReporter(logging.Handler):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.INFO)
        self.reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self.reporter.say(record.getMessage())


@contextmanager
def log_to(reporter: Reporter) -> Iterator[None]:
    """Report what brinell logs within this context."""
    handler, level = _ToReporter(reporter), LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(level)
