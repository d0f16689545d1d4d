"""Images that are read before a run asks for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pyarrow as pa
import torch

from brinell.config.execution import Execution
from brinell.datasets.files import Files
from brinell.engine.reading_ahead.processes import FEWEST, Closed, ImageProcesses, process_count, start_processes
from brinell.engine.ready import ROOM, Ready
from brinell.engine.survey import Record, Survey
from brinell.models.device import select_device
from brinell.models.preprocess import Preprocess
from brinell.types import Dataset

LOG = logging.getLogger(__name__)
DEVICES = frozenset({"cuda"})  # on a CPU, the model needs all cores


class ReadAhead:
    """Images that processes read, as soon as `begin` says what inputs are to be made."""

    def __init__(self, dataset: Files, indices: list[int], processes: ImageProcesses) -> None:
        self._dataset, self.indices, self._processes = dataset, indices, processes
        self._counts: SimpleQueue[int | None] = SimpleQueue()  # of images that were read; None at the end
        self._table: pa.Table | None = None
        self._thread: Thread | None = None
        self._ready = Ready()

    def begin(self, preprocess: Preprocess) -> None:
        """Start to read, and to make inputs for a preprocessing; later calls do nothing."""
        if self._thread is not None:
            return
        self._ready = Ready(preprocess, ROOM["cuda"])
        thread = Thread(target=self._read_all, name="reading", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads can be started: images are read later
            return
        self._thread = thread

    def finish(self, survey: Survey, advance: Callable[[int], None]) -> tuple[pa.Table, Ready] | None:
        """Return the samples and their inputs when all are read, and end the processes.

        None if they have to be read otherwise: because nothing was begun, or they were returned before; because the survey
        wants more; or because reading failed.
        """
        try:
            if self._thread is None or survey.objects is not None or survey.masks or survey.indices != self.indices:
                return None
            while (count := self._counts.get()) is not None:
                advance(count)
            return None if self._table is None else (self._table, self._ready)
        finally:
            self.close()

    def close(self) -> None:
        """End the processes and what reads from them, and let go of what was read: it is the run's now, or useless."""
        self._processes.close()
        if self._thread is not None:
            self._thread.join()
        self._thread, self._table, self._ready = None, None, Ready()

    def _read_all(self) -> None:
        try:
            with ThreadPoolExecutor(self._processes.count, "ahead") as pool:
                here = Survey(self._dataset, self.indices, pool, strict=False, keep=self._ready.add)
                survey = replace(here, elsewhere=lambda indices: self._read(indices, here))
                self._table = survey.read(self.indices, self._counts.put)
        except Closed:
            pass
        except Exception as error:
            LOG.warning("Reading images ahead failed, so they are read again: %s", error)
        finally:
            self._counts.put(None)

    def _read(self, indices: Sequence[int], here: Survey) -> list[Record]:
        """Read some images in a process, or here if that has died."""
        pre = self._ready.preprocess if self._ready.has_room else None
        found = self._processes.read(self._dataset, indices, pre)
        if found is None:
            return here.read_some(indices)
        if pre is not None and found.places:
            shape = (len(found.places), pre.channels, pre.height, pre.width)
            for place, each in zip(found.places, np.frombuffer(found.inputs, np.uint8).reshape(shape), strict=True):
                # a copy, as torch warns of memory that can't be written to
                self._ready.keep(indices[place], torch.from_numpy(each.copy()))
        return [
            # a process may have lacked what the run has, such as memory: what can't be read is for the run to say
            {**record, "index": index} if record["problem"] is None else here.read_some([index])[0]
            for record, index in zip(found.records, indices, strict=True)
        ]


def start_reading(
    dataset: Dataset, indices: list[int], execution: Execution, processes: ImageProcesses | None = None
) -> ReadAhead | None:
    """Return the images of a run, which are read by other processes; None where its threads read them.

    `processes` may have been started already.
    """
    count = process_count(execution) if len(indices) >= FEWEST else 0
    # processes read no masks
    if count and type(dataset) is Files and not dataset.masks and select_device(execution).type in DEVICES:
        processes = processes or start_processes(count)
        return None if processes is None else ReadAhead(dataset, indices, processes)
    if processes is not None:
        processes.close()
    return None
