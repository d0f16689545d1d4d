"""What a process does that reads images for a run: decode them, hash them, and make their model inputs.

It gets a few images at a time through a connection, as a dataset of their files, with the run's settings of Pillow, and
returns what the survey says of them, and their inputs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

import numpy as np
import torch
from PIL import Image, ImageFile
from torch import Tensor

from brinell.datasets.files import Files
from brinell.engine.ready import Ready
from brinell.engine.survey import Record, Survey
from brinell.models.preprocess import Preprocess


def serve(handle: int) -> None:
    """Read the images that come through a connection, until it is closed."""
    torch.set_num_threads(1)
    connection, pool = Connection(handle), ThreadPoolExecutor(1)
    try:
        while True:
            dataset, preprocess, pillow = connection.recv()
            ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = pillow
            records, inputs = _read(dataset, preprocess, pool)
            connection.send((records, list(inputs)))
            if inputs:
                connection.send_bytes(np.stack([each.numpy() for each in inputs.values()]).data.cast("B"))
    except (EOFError, OSError):  # the run has ended
        return


def _read(
    dataset: Files, preprocess: Preprocess | None, pool: ThreadPoolExecutor
) -> tuple[list[Record], dict[int, Tensor]]:
    """Return what the survey says of a dataset's images and, for a preprocessing, the inputs of those that can be read."""
    ready, inputs = Ready(preprocess or Preprocess()), dict[int, Tensor]()

    def keep(index: int, image: Tensor) -> None:
        if preprocess is not None:
            inputs[index] = ready.make(image)

    indices = list(range(len(dataset)))
    return Survey(dataset, indices, pool, strict=False, keep=keep).read_some(indices), inputs
