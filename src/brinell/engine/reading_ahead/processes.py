"""Processes that read images for a run: `process` says what they do.

Threads of one process read no more than about 700 photographs (500x375) a second, however many cores there are, because
Pillow needs Python's lock in between. An accelerator would wait for them.

A process is a command of its own: `multiprocessing` would import the user's script again. It ends when its connection is
closed, so none outlives the run. This module needs no torch: processes import it while the run itself does.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image, ImageFile

from brinell.config.execution import Execution
from brinell.run_config import RunConfig

if TYPE_CHECKING:
    from brinell.datasets.files import Files
    from brinell.models.preprocess import Preprocess

LOG = logging.getLogger(__name__)
FEWEST = 2000  # images; fewer are read by threads before processes have started
MOST = 14  # processes
SPARE = 2  # cores, for the run itself
QUOTA = Path("/sys/fs/cgroup/cpu.max")  # a container's limit: microseconds of CPU time in a period, and its length
_START = "import sys; sys.path[:] = {path!r}; from brinell.engine.reading_ahead.process import serve; serve({handle})"


class Closed(Exception):
    """The processes have been ended."""


class Process(NamedTuple):
    """A process, and the connection to it."""

    process: subprocess.Popen[bytes]
    connection: Connection


class Answer(NamedTuple):
    """What the survey says of some images; which of them have inputs, and those, as bytes one after the other."""

    records: list[dict[str, Any]]
    places: list[int]
    inputs: bytes


class ImageProcesses:
    """A number of processes that read images."""

    def __init__(self, count: int) -> None:
        self.count, self._closed = count, False
        self.started: list[Process] = []
        self._free: SimpleQueue[Process | None] = SimpleQueue()  # None: they have been ended
        try:
            for _ in range(count):
                self.started.append(start_process())
                self._free.put(self.started[-1])
        except BaseException:
            self.close()
            raise

    def read(self, dataset: Files, indices: Sequence[int], preprocess: Preprocess | None) -> Answer | None:
        """Return what a process says of images of a dataset, with the inputs of those that can be read.

        It waits for a free process. None if that one has died; raises `Closed` once all were ended.
        """
        one = self._free.get()
        if one is None:
            self._free.put(None)
            raise Closed
        try:
            pillow = ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS  # a script may have changed them
            one.connection.send((dataset.at(indices), preprocess, pillow))
            records, places = one.connection.recv()
            return Answer(records, places, one.connection.recv_bytes() if places else b"")
        except (OSError, EOFError):
            if self._closed:
                raise Closed from None
            return None
        finally:
            if self._closed:
                one.connection.close()
                self._free.put(None)
            else:
                self._free.put(one)

    def close(self) -> None:
        """End all processes."""
        if self._closed:
            return
        self._closed = True
        for process, _ in self.started:
            process.kill()
        for process, _ in self.started:
            process.wait()
        while True:  # connections in use are closed by whoever reads from them
            try:
                one = self._free.get_nowait()
            except Empty:
                break
            if one is not None:
                one.connection.close()
        self._free.put(None)


def start_processes(count: int) -> ImageProcesses | None:
    """Start processes; None if the system allows no more of them: a run can do without."""
    try:
        return ImageProcesses(count)
    except OSError as error:
        LOG.info("Images are read by threads, as no processes can be started: %s", error)
        return None


def start_process() -> Process:
    """Start a process, which waits for images to read."""
    own, other = Pipe()
    path = [each for each in sys.path if isinstance(each, str)]  # Python ignores others, such as Path objects
    command = _START.format(path=path, handle=other.fileno())
    process = subprocess.Popen(
        [sys.executable, "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[other.fileno()],
        start_new_session=True,  # Ctrl-C is for the run alone
    )
    other.close()
    return Process(process, own)


def process_count(execution: Execution) -> int:
    """Return how many processes may read the images of a run; 0 where its own threads have to."""
    alone = not execution.spread and execution.part_of_run() is None and execution.workers is None
    # a program that Python is packed into (frozen) would only start itself again
    able = os.name == "posix" and bool(sys.executable) and not getattr(sys, "frozen", False)
    count = min(MOST, _core_count() - SPARE)
    return count if alone and able and not execution.strict and count >= 2 else 0


def _core_count() -> int:
    """Return how many cores this process may use; a container's share may be fewer than it sees."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # there is no limit
        quota, period = QUOTA.read_text(encoding="ascii").split()
        cores = min(cores, int(quota) // int(period))
    return cores


def start_early(config: RunConfig) -> ImageProcesses | None:
    """Start processes before torch is imported, if the run will probably want them: for a large folder, beside a GPU."""
    device, limit, count = config.execution.device, config.data.limit, process_count(config.execution)
    beside_a_gpu = device.startswith("cuda") or (device == "auto" and any(Path("/dev").glob("nvidia[0-9]*")))
    if not (count and beside_a_gpu and (limit is None or limit >= FEWEST)):
        return None
    folder = Path(config.data.source).expanduser()
    files = (name for _, _, names in os.walk(folder) for name in names)  # none if it is no folder
    return start_processes(count) if len(list(islice(files, FEWEST))) == FEWEST else None
