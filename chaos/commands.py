"""Commands in processes of their own, which are forks of one that has imported everything: faults then hit the work and not
the imports, and many can be tried.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import pkgutil
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import brinell
from brinell.errors import BrinellError

FORKS = multiprocessing.get_context("forkserver")
LIBRARIES = (
    "torch",
    "cv2",
    "scipy.stats",
    "duckdb",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "altair",
    "vl_convert",
    "jinja2",
)


class Process:
    """A command that runs in a folder; its file `size` may be limited, as on a full disk."""

    def __init__(self, work: Path, given: list[str], *, size: int | None = None) -> None:
        FORKS.set_forkserver_preload(["chaos.preloaded"])
        descriptor, name = tempfile.mkstemp(suffix=".stderr", dir=work)
        os.close(descriptor)
        self._errors = Path(name)
        self._process = FORKS.Process(target=_run, args=(str(work), name, given, size))
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit code, or None while the command runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        assert self._process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def wait(self, timeout: float = 300) -> str:
        """Wait for the end, and return what was written to stderr."""
        self._process.join(timeout)
        if self.returncode is None:
            self._process.kill()
            self._process.join()
            raise subprocess.TimeoutExpired("brinell", timeout)
        text = self._errors.read_text(encoding="utf-8", errors="replace")
        self._errors.unlink()
        return text


def _run(work: str, errors: str, given: list[str], size: int | None) -> None:
    """Run a command in this process."""
    os.chdir(work)
    sys.path.insert(0, work)
    for number, file in ((1, os.devnull), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the process that forks ignores
    if size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    if given[0] == "call":
        importlib.import_module("chaos.killing").run_lens(*given[1:])
        return
    from brinell.cli.main import main

    sys.argv = ["brinell", *given]
    main()


def load_everything() -> None:
    """Import what commands import as they go."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(brinell.__path__, "brinell."):
        if "__main__" not in module.name:
            with contextlib.suppress(ImportError, BrinellError):  # of libraries that are not installed
                importlib.import_module(module.name)
