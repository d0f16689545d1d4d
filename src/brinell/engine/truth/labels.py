"""Where an image's label comes from: the dataset, or the model's own answer to the clean image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import torch
from torch import Tensor

from brinell.classes import align
from brinell.config.data import DataOptions
from brinell.engine.setup import NO_LABELS
from brinell.engine.shards import Entry
from brinell.engine.survey import labels_of
from brinell.errors import LabelError
from brinell.models.model import Model
from brinell.types import Dataset

NO_LABEL = -1


class Labels(Protocol):
    """The labels of images, as a model's outputs."""

    def order(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the images that can have a label, in the order in which to ask for it."""
        ...

    def of(self, entries: Sequence[Entry], scores: Tensor) -> Tensor:
        """Return the labels of images, given the model's scores on the host, (N,); `NO_LABEL` where there is none."""
        ...


@dataclass(frozen=True)
class GivenLabels:
    """Labels of the dataset: the model's output of each labelled image, by dataset index."""

    outputs: dict[int, int]

    def order(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the labelled images."""
        return [entry for entry in entries if entry.index in self.outputs]

    def of(self, entries: Sequence[Entry], scores: Tensor) -> Tensor:
        """Return the dataset's labels."""
        return torch.tensor([self.outputs[entry.index] for entry in entries])


@dataclass(frozen=True)
class PredictedLabels:
    """A model's own predictions. A variant of a scene has the label of its original, given by dataset index."""

    model: Model
    originals: dict[int, int]
    known: dict[int, int] = field(default_factory=dict)

    def order(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return all images, those that are variants last."""
        return sorted(entries, key=lambda entry: entry.index in self.originals)

    def of(self, entries: Sequence[Entry], scores: Tensor) -> Tensor:
        """Return the predictions; a detector that finds nothing, or a service that doesn't answer, gives no label."""
        confidence, prediction = scores.max(1)
        least = 0.0 if self.model.detector is None else self.model.detector.score_threshold
        prediction = prediction.masked_fill(~(confidence >= least), NO_LABEL)  # NaN: no answer
        self.known.update(zip((entry.index for entry in entries), prediction.tolist(), strict=True))
        return torch.tensor([self.known[self.originals.get(entry.index, entry.index)] for entry in entries])


def find_labels(samples: pa.Table, dataset: Dataset, options: DataOptions, model: Model) -> Labels:
    """Return where a model's labels come from, or raise if there are none."""
    usable = samples.filter(samples["problem"].is_null())
    if options.labels == "prediction" or model.task == "embedding":  # whose only class is that of all images
        return PredictedLabels(model, _originals(usable))
    indices = usable["index"].to_pylist()
    labelled = [(index, label) for index, label in zip(indices, labels_of(usable), strict=True) if label is not None]
    if not labelled:
        raise LabelError(NO_LABELS.format(dataset.name))
    found = align(
        (label for _, label in labelled),
        own=dataset.classes,
        model=model.classes,
        outputs=model.outputs,
        by_index=options.labels == "index",
    )
    return GivenLabels({index: found[label] for index, label in labelled})


def _originals(samples: pa.Table) -> dict[int, int]:
    """Return the dataset index of each variant's original, where there is one."""
    columns = [samples[name].to_pylist() for name in ("index", "original", "variant")]
    scenes = {scene: index for index, scene, variant in zip(*columns, strict=True) if scene is not None and variant is None}
    return {
        index: scenes[scene]
        for index, scene, variant in zip(*columns, strict=True)
        if variant is not None and scene in scenes
    }
