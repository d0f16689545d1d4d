"""The ground truth of images: labels, and the objects that a dataset marks, on a detector's input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import torch
from torch import Tensor

from brinell.boxes import areas, clip_boxes
from brinell.classes import align
from brinell.config.data import DataOptions
from brinell.engine.shards import Entry
from brinell.engine.survey import box_labels_of
from brinell.errors import LabelError
from brinell.models.model import Model
from brinell.types import Dataset, Label


@dataclass(frozen=True)
class Objects:
    """An image's objects on the model input: boxes (K, 4), their labels as model outputs, and the preferred object's box
    (4,), if there is one. Classes that the model doesn't know are -1.
    """

    boxes: Tensor
    labels: list[int]
    region: Tensor | None


def objects_of(
    samples: pa.Table, dataset: Dataset, options: DataOptions, model: Model
) -> tuple[dict[int, Objects], list[str]]:
    """Return the objects of each image, by dataset index, and the classes that the model doesn't know."""
    labels = box_labels_of(samples)
    outputs, unknown = _outputs({label for each in labels for label in each}, dataset, options, model)
    columns = (samples[name].to_pylist() for name in ("index", "boxes", "object", "height", "width"))
    found = {}
    for own, index, boxes, chosen, height, width in zip(labels, *columns, strict=True):
        if boxes is None:
            continue
        pre = model.preprocess
        on_input = clip_boxes(pre.map_boxes(torch.tensor(boxes).reshape(-1, 4), height, width), pre.height, pre.width)
        seen = areas(on_input) > 0  # a crop may have cut it off
        kept = [outputs[label] for label, there in zip(own, seen.tolist(), strict=True) if there]
        found[index] = Objects(on_input[seen], kept, None if chosen is None else on_input[chosen])
    return found, unknown


def _outputs(
    labels: set[Label], dataset: Dataset, options: DataOptions, model: Model
) -> tuple[dict[Label, int], list[str]]:
    """Return the model output of each label (-1: unknown), and the names of the unknown ones."""
    known: dict[Label, int] = {}
    unknown = []
    for label in sorted(labels, key=str):
        try:
            known |= align(
                [label],
                own=dataset.classes,
                model=model.classes,
                outputs=model.outputs,
                by_index=options.labels == "index",
            )
        except LabelError:
            known[label] = -1
            named = isinstance(label, int) and dataset.classes is not None and 0 <= label < len(dataset.classes)
            unknown.append(dataset.classes[int(label)] if named and dataset.classes else str(label))
    return known, unknown


@dataclass(frozen=True)
class Truth:
    """Labels, and the regions of preferred objects, by model and dataset index."""

    labels: dict[tuple[str, int], int]
    regions: dict[tuple[str, int], list[float]]

    @staticmethod
    def of(clean: pa.Table) -> Truth:
        """Return the truth that the clean answers store."""
        models, indices, labels, regions = (clean[name].to_pylist() for name in ("model", "index", "label", "region"))
        keys = list(zip(models, indices, strict=True))
        known = {key: region for key, region in zip(keys, regions, strict=True) if region is not None}
        return Truth(dict(zip(keys, labels, strict=True)), known)

    def labels_of(self, model: Model, entries: Sequence[Entry]) -> Tensor:
        """Return a shard's labels."""
        return torch.tensor([self.labels[model.name, entry.index] for entry in entries])

    def regions_of(self, model: Model, entries: Sequence[Entry]) -> Tensor:
        """Return a shard's regions (N, 4), NaN where there is none."""
        return torch.tensor([self.regions.get((model.name, entry.index), [torch.nan] * 4) for entry in entries])
