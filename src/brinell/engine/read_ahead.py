"""The images of a run on an accelerator are read while its models are opened, which takes about as long."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread

import pyarrow as pa

from brinell.config.execution import Execution
from brinell.datasets.files import Files
from brinell.engine.readers import Closed, Readers
from brinell.engine.ready import ROOM, Ready
from brinell.engine.survey import Record, Survey
from brinell.models.device import select_device
from brinell.models.preprocess import Preprocess
from brinell.types import Dataset

LOG = logging.getLogger(__name__)
DEVICES = frozenset({"cuda"})  # on a CPU, the model needs all cores
FEWEST = 2000  # images; fewer are read by threads before processes have started
MOST = 12  # processes
SPARE = 2  # cores, for the run itself


class ReadAhead:
    """Images that processes read: they start at once, and read as soon as `begin` says what inputs are to be made."""

    def __init__(self, dataset: Files, indices: list[int], processes: int) -> None:
        self._dataset, self.indices = dataset, indices
        self._readers = Readers(dataset, processes)
        self._counts: SimpleQueue[int | None] = SimpleQueue()  # of images that were read; None at the end
        self._table: pa.Table | None = None
        self._begun = False
        self._ready = Ready()

    def begin(self, preprocess: Preprocess) -> None:
        """Start to read, and to make inputs for a preprocessing; later calls do nothing."""
        if self._begun:
            return
        self._begun = True
        self._ready = Ready(preprocess, ROOM["cuda"])
        Thread(target=self._read_all, name="reading", daemon=True).start()

    def finish(self, survey: Survey, advance: Callable[[int], None]) -> tuple[pa.Table, Ready] | None:
        """Return the samples and their inputs when all are read, and end the processes.

        None if they have to be read otherwise: because no model said what its inputs are, or the survey wants more.
        """
        try:
            if not self._begun or survey.objects is not None or survey.masks or survey.indices != self.indices:
                return None
            while (count := self._counts.get()) is not None:
                advance(count)
            return None if self._table is None else (self._table, self._ready)
        finally:
            self.close()

    def close(self) -> None:
        """End the processes."""
        self._readers.close()

    def _read_all(self) -> None:
        try:
            with ThreadPoolExecutor(self._readers.count, "reader") as pool:
                here = Survey(self._dataset, self.indices, pool, strict=False, keep=self._ready.add)
                survey = replace(here, elsewhere=lambda indices: self._read(indices, here))
                self._table = survey.read(self.indices, self._counts.put)
        except Closed:
            pass
        except Exception as error:  # the run reads them again, and says what is wrong
            LOG.info("Reading ahead failed: %s", error)
        finally:
            self._counts.put(None)

    def _read(self, indices: Sequence[int], here: Survey) -> list[Record]:
        """Read some images in a process, or here if that has died."""
        found = self._readers.read(indices, self._ready.preprocess if self._ready.has_room else None)
        if found is None:
            return here.read_some(indices)
        records, inputs = found
        for index, model_input in inputs.items():
            self._ready.keep(index, model_input)
        return records


def start_reading(dataset: Dataset, indices: list[int], execution: Execution) -> ReadAhead | None:
    """Return the images of a run, which are read from now on in other processes; None where threads do."""
    alone = not execution.spread and execution.part_of_run() is None and execution.workers is None
    if not alone or execution.strict or type(dataset) is not Files or len(indices) < FEWEST:
        return None
    processes = min(MOST, (os.cpu_count() or 1) - SPARE)
    if os.name != "posix" or processes < 2 or select_device(execution).type not in DEVICES:
        return None
    return ReadAhead(dataset, indices, processes)
