"""Our datasets as those of Hugging Face `datasets`: with random access, or as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brinell.datasets.sources import open_dataset
from brinell.errors import DataError, MissingExtra, UnreadableImage
from brinell.pictures import encode_image
from brinell.types import Dataset, Label, Sample

try:
    import datasets as library
except ImportError as error:
    raise MissingExtra("datasets", "datasets") from error

_BOX = "bbox"


def to_datasets(data: Any, *, streaming: bool = False) -> Any:
    """Return data, a path or anything that `brinell.run` takes, as a `datasets.Dataset`, or as an `IterableDataset`.

    Columns: `image`, `name`, `label` (a `ClassLabel` where classes are known) and, for images with boxes, `objects` with
    `bbox` (x, y, width, height) and `category`. Images that can't be read are left out.
    """
    dataset = open_dataset(data)
    first = _first_sample(dataset)
    kind = library.IterableDataset if streaming else library.Dataset
    return kind.from_generator(_rows, features=_features(dataset, first), gen_kwargs={"dataset": dataset})


def _first_sample(dataset: Dataset) -> Sample:
    for index in range(len(dataset)):
        try:
            return dataset[index]
        except UnreadableImage:
            continue
    raise DataError(f"{dataset.name} has no images that can be read")


def _features(dataset: Dataset, sample: Sample) -> Any:
    columns = {"image": library.Image(), "name": library.Value("string")}
    if sample.boxes is None or sample.label is not None:
        columns["label"] = _label_feature(sample.label, dataset.classes)
    if sample.boxes is not None:
        label = next(iter(sample.box_labels), 0)
        box = library.List(library.Value("float32"), length=4)
        columns["objects"] = {_BOX: library.List(box), "category": library.List(_label_feature(label, dataset.classes))}
    return library.Features(columns)


def _label_feature(label: Label | None, classes: tuple[str, ...] | None) -> Any:
    if isinstance(label, int):
        return library.ClassLabel(names=list(classes)) if classes is not None else library.Value("int64")
    return library.Value("string")


def _rows(dataset: Dataset) -> Iterator[dict[str, Any]]:
    boxed = _first_sample(dataset)
    for index in range(len(dataset)):
        try:
            sample = dataset[index]
        except UnreadableImage:
            continue
        row: dict[str, Any] = {"image": {"bytes": encode_image(sample.image, "png"), "path": None}, "name": sample.name}
        if boxed.boxes is None or boxed.label is not None:
            row["label"] = sample.label
        if sample.boxes is not None:
            sides = sample.boxes.clone()
            sides[:, 2:] -= sides[:, :2]
            row["objects"] = {_BOX: sides.tolist(), "category": list(sample.box_labels)}
        yield row
