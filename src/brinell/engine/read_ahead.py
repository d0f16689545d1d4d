"""The images of a run on an accelerator are read while its models are opened, which takes about as long."""

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
from brinell.engine.readers import FEWEST, Closed, Readers, process_count
from brinell.engine.ready import ROOM, Ready
from brinell.engine.survey import Record, Survey
from brinell.models.device import select_device
from brinell.models.preprocess import Preprocess
from brinell.types import Dataset

LOG = logging.getLogger(__name__)
DEVICES = frozenset({"cuda"})  # on a CPU, the model needs all cores


class ReadAhead:
    """Images that processes read, as soon as `begin` says what inputs are to be made."""

    def __init__(self, dataset: Files, indices: list[int], readers: Readers) -> None:
        self._dataset, self.indices, self._readers = dataset, indices, readers
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
        pre = self._ready.preprocess if self._ready.has_room else None
        found = self._readers.read(self._dataset, indices, pre)
        if found is None:
            return here.read_some(indices)
        if pre is not None and found.places:
            shape = (len(found.places), pre.channels, pre.height, pre.width)
            for place, each in zip(found.places, np.frombuffer(found.inputs, np.uint8).reshape(shape), strict=True):
                # in memory of its own, as inputs are given up one by one
                self._ready.keep(indices[place], torch.from_numpy(each.copy()))
        return [{**record, "index": index} for record, index in zip(found.records, indices, strict=True)]


def start_reading(
    dataset: Dataset, indices: list[int], execution: Execution, readers: Readers | None = None
) -> ReadAhead | None:
    """Return the images of a run, which are read by other processes; None where its threads read them.

    `readers` are processes that have been started already.
    """
    count = process_count(execution)
    if count and type(dataset) is Files and len(indices) >= FEWEST and select_device(execution).type in DEVICES:
        return ReadAhead(dataset, indices, readers or Readers(count))
    if readers is not None:
        readers.close()
    return None
