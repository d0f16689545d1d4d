"""The masks of failures of segmenters: those of the originals, as the changes moved them, in PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from brinell.curation.failures import Failure
from brinell.curation.runs import SourceRun
from brinell.datasets.mask_files import CLASS_FILE
from brinell.engine.shards import in_order
from brinell.engine.truth.masks import read_mask
from brinell.errors import DataError
from brinell.mask_pictures import to_mask_picture
from brinell.masks import IGNORED
from brinell.pictures import encode_png
from brinell.runs.store import Store

FOLDER = "masks"


def mask_files(failures: Sequence[Failure], files: Sequence[str]) -> list[str | None]:
    """Return the file of each failure's mask; None if it has none."""
    return [_file(file) if _has_mask(failure) else None for failure, file in zip(failures, files, strict=True)]


def _file(file: str) -> str:
    """Return the name of a mask: that of its image, in the folder of masks."""
    stem = file.removeprefix("images/").rpartition(".")[0]
    return f"{FOLDER}/{stem}.png"


def _has_mask(failure: Failure) -> bool:
    source = failure.source
    own = source.config["data"]["labels"] == "prediction"
    return not own and source.run.models[failure.model.own].task == "segmentation"


def write_masks(out: Store, failures: Sequence[Failure], files: Sequence[str | None], pool: ThreadPoolExecutor) -> None:
    """Write the masks that do not exist yet, and the names of their classes."""
    wanted = [(failure, file) for failure, file in zip(failures, files, strict=True) if file is not None]
    if not wanted:
        return
    sources = {failure.source.number: failure.source for failure, _ in wanted}
    names = list(dict.fromkeys(name for source in sources.values() for name in source.dataset.classes or ()))
    tables = {number: _table(source, names) for number, source in sources.items()}

    def write(one: tuple[Failure, str]) -> None:
        failure, file = one
        if not out.exists(*file.split("/")):
            mask = _moved(failure, tables[failure.source.number])
            out.write(encode_png(to_mask_picture(mask.numpy())), *file.split("/"))

    for _ in in_order(pool, write, wanted, 32):
        pass
    if names:
        out.write("\n".join(names).encode(), CLASS_FILE)


def _table(source: SourceRun, names: list[str]) -> Tensor | None:
    """Return the common classes by a dataset's own ones; None: the same, as they have no names."""
    own = source.dataset.classes
    if own is None:
        if names:
            raise DataError(
                f"the masks of {source.url} have no class names, and those of another run have; curate them apart"
            )
        return None
    return torch.tensor([*(names.index(name) for name in own), IGNORED], dtype=torch.int16)  # index -1 is the last


def _moved(failure: Failure, table: Tensor | None) -> Tensor:
    """Return the mask of a failure on its model input, int16 (H, W)."""
    source, entry = failure.source, failure.source.originals[failure.replay.image].entry
    mask = read_mask(source.dataset, entry.index)
    if mask is None or tuple(mask.shape) != entry.size:
        raise DataError(f"the mask of {entry.name} is gone, or has another size than its image; restore it")
    return failure.replay.mask(mask if table is None else table[mask.long()], failure.model.preprocess)
