"""The true masks of images, on a segmenter's input and as its classes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.classes import align
from brinell.config.data import DataOptions
from brinell.engine.shards import Entry, in_order
from brinell.errors import DataError, LabelError
from brinell.masks import IGNORED
from brinell.models.model import Model
from brinell.types import Dataset

MOST = 1 << 15  # values that a mask may have


@dataclass(frozen=True)
class TrueMasks:
    """Reads a dataset's masks for a segmenter. `outputs` (int16) are the model's classes by the dataset's; `unknown` are
    classes of the dataset that the model doesn't know, whose pixels are ignored.
    """

    dataset: Dataset
    model: Model
    outputs: Tensor
    unknown: tuple[str, ...] = ()

    def load(self, entries: Sequence[Entry], pool: ThreadPoolExecutor) -> Tensor:
        """Return the masks of entries on the model input, int16 (N, H, W)."""
        return torch.stack(list(in_order(pool, self._read, entries, 64)))

    def _read(self, entry: Entry) -> Tensor:
        mask = read_mask(self.dataset, entry.index)
        if mask is None or tuple(mask.shape) != entry.size:
            size = "is gone" if mask is None else f"is {mask.shape[1]}×{mask.shape[0]}"
            raise DataError(f"the mask of {entry.name} {size}, and its image {entry.size[1]}×{entry.size[0]}; restore it")
        return self.model.preprocess.masks(self.outputs[mask.long()][None])[0]


def true_masks(dataset: Dataset, options: DataOptions, model: Model) -> TrueMasks | None:
    """Return a reader of the masks of a dataset; None for other models, or if the model's own answers count as true."""
    if model.segmenter is None or options.labels == "prediction":
        return None
    outputs = torch.full((MOST + 1,), IGNORED, dtype=torch.int16)  # index -1 is the last
    names = dataset.classes
    if names is None or options.labels == "index":
        outputs[: model.outputs] = torch.arange(model.outputs, dtype=torch.int16)
        return TrueMasks(dataset, model, outputs)
    unknown = []
    for label, name in enumerate(names):
        try:
            outputs[label] = align([label], own=names, model=model.classes, outputs=model.outputs)[label]
        except LabelError:
            unknown.append(name)
    if len(unknown) == len(names):
        raise LabelError(
            f"{model.name} knows none of the classes of the masks of {dataset.name} ({', '.join(names[:5])}, …); give it "
            "its class list (?classes=FILE, one name per line), or use --labels index if both count alike"
        )
    return TrueMasks(dataset, model, outputs, tuple(unknown))


def has_masks(dataset: Dataset) -> bool:
    """Whether a dataset may have masks."""
    return hasattr(getattr(dataset, "samples", dataset), "mask")  # of a dataset that is grouped by its names


def read_mask(dataset: Dataset, index: int) -> Tensor | None:
    """Return the mask of an image, int16 (H, W), in the classes of its dataset; None if it has none."""
    read = getattr(dataset, "mask", None)
    found: Tensor | None = None if read is None else read(index)
    return found
