"""Processes that read images: decode them, hash them, and make their model inputs.

Threads of one process read no more than about 700 photographs (500x375) a second, however many cores there are, because
Pillow needs Python's lock in between. An accelerator would wait for them.

A process gets a few images at a time through a connection, as a dataset of their files, and returns what the survey says of
them, and their inputs. It ends when the connection is closed, so none outlives the run. It is started as a command of its
own: `multiprocessing` would import the user's script again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brinell.datasets.files import Files
from brinell.engine.ready import Ready
from brinell.engine.survey import Record, Survey
from brinell.models.preprocess import Preprocess

_START = "import sys; sys.path[:] = {path!r}; from brinell.engine.readers import serve; serve({handle})"

Read = tuple[list[Record], dict[int, Tensor]]  # what the survey says of some images, and inputs by their indices


class Closed(Exception):
    """The processes have been ended."""


class _Process(NamedTuple):
    process: subprocess.Popen[bytes]
    connection: Connection


class Readers:
    """A number of processes that read images of a dataset."""

    def __init__(self, dataset: Files, count: int) -> None:
        self.count, self._dataset, self._closed = count, dataset, False
        self._processes = [_start() for _ in range(count)]
        self._free: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._free.put(process)

    def read(self, indices: Sequence[int], preprocess: Preprocess | None) -> Read | None:
        """Return what the survey says of images and, for a preprocessing, the inputs of those that can be read.

        It waits for a free process. None if that one has died; raises `Closed` once all were ended.
        """
        one = self._free.get()
        try:
            one.connection.send((self._dataset.at(indices), preprocess))
            records, places = one.connection.recv()
            pixels = bytearray(one.connection.recv_bytes()) if places else bytearray()
        except (OSError, EOFError):
            if self._closed:
                raise Closed from None
            return None
        finally:
            self._free.put(one)
        records = [{**record, "index": index} for record, index in zip(records, indices, strict=True)]
        if preprocess is None or not places:
            return records, {}
        shape = (len(places), preprocess.channels, preprocess.height, preprocess.width)
        inputs = np.frombuffer(pixels, np.uint8).reshape(shape)
        # each in memory of its own, as they are given up one by one
        kept = {indices[place]: torch.from_numpy(each.copy()) for place, each in zip(places, inputs, strict=True)}
        return records, kept

    def close(self) -> None:
        """End all processes."""
        self._closed = True
        for process, _ in self._processes:
            process.kill()
        for process, _ in self._processes:
            process.wait()


def _start() -> _Process:
    own, other = Pipe()
    command = _START.format(path=sys.path, handle=other.fileno())
    process = subprocess.Popen(
        [sys.executable, "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[other.fileno()],
        start_new_session=True,  # Ctrl-C is for the run alone
    )
    other.close()
    return _Process(process, own)


def serve(handle: int) -> None:
    """Read the images that come through a connection, until it is closed."""
    torch.set_num_threads(1)
    connection, pool = Connection(handle), ThreadPoolExecutor(1)
    try:
        while True:
            dataset, preprocess = connection.recv()
            records, inputs = _read(dataset, preprocess, pool)
            connection.send((records, list(inputs)))
            if inputs:
                connection.send_bytes(np.stack([each.numpy() for each in inputs.values()]).data.cast("B"))
    except (EOFError, OSError):  # the run has ended
        return


def _read(dataset: Files, preprocess: Preprocess | None, pool: ThreadPoolExecutor) -> Read:
    ready, inputs = Ready(preprocess or Preprocess()), dict[int, Tensor]()

    def keep(index: int, image: Tensor) -> None:
        if preprocess is not None:
            inputs[index] = ready.make(image)

    indices = list(range(len(dataset)))
    return Survey(dataset, indices, pool, strict=False, keep=keep).read_some(indices), inputs
