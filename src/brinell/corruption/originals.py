"""The originals of a copy: read in threads, a few at a time, resized if asked for, with a name for their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from brinell.engine.shards import in_order
from brinell.errors import UnreadableImage
from brinell.models.preprocess import Preprocess
from brinell.types import Dataset, Label, Sample, image_id

AHEAD = 16  # images decoded ahead of their use


@dataclass(frozen=True)
class Original:
    """An image of a dataset as it is perturbed: its index, its id (of the content before resizing) and the sample."""

    index: int
    id: str
    sample: Sample


@dataclass(frozen=True)
class Skipped:
    """An image that can't be read."""

    index: int
    name: str
    problem: str


def read_originals(
    dataset: Dataset, indices: Sequence[int], pool: ThreadPoolExecutor, *, size: int | None, strict: bool
) -> Iterator[Original | Skipped]:
    """Yield the images of some indices, in order; those that can't be read as `Skipped`, unless `strict` raises."""

    def read(index: int) -> Original | Skipped:
        try:
            sample = dataset[index]
        except UnreadableImage as error:
            if strict:
                raise
            return Skipped(index, error.name, error.problem)
        return Original(index, image_id(sample.image), sample if size is None else _resize(sample, size))

    yield from in_order(pool, read, indices, AHEAD)


def _resize(sample: Sample, size: int) -> Sample:
    """Return a sample whose shorter side is resized to 8/7 of the size, and whose centre is cropped."""
    preprocess = Preprocess(size, size, len(sample.image), short_side=round(size * 8 / 7), interpolation="bilinear")
    boxes = sample.boxes
    if boxes is not None:
        boxes = preprocess.map_boxes(boxes, *sample.image.shape[1:])
    return replace(sample, image=preprocess.model_input(sample.image), boxes=boxes)


def class_of(label: Label | None, classes: tuple[str, ...] | None) -> str | None:
    """Return the name of a label's class."""
    if label is None:
        return None
    return classes[label] if isinstance(label, int) and classes is not None else str(label)


class FileNames:
    """Names of files without their ending, each given once: CLASS/NAME, or the path in the dataset without classes."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self._taken = set(taken)

    def name(self, original: Original, class_name: str | None) -> str:
        """Return the name of an image's files, below its class."""
        path = PurePosixPath(original.sample.name)
        stem = _safe(path.stem) or "image"
        folders = [_safe(part) for part in path.parent.parts if part not in ("/", "..", ".")] if class_name is None else []
        parent = "/".join(folders) if class_name is None else _safe(class_name)
        name = f"{parent}/{stem}" if parent else stem
        if name in self._taken:
            name = f"{name}-{original.index}"
        self._taken.add(name)
        return name


def _safe(text: str) -> str:
    """Return a text as the name of a file or folder: no separators, and no dot at its start, which would hide it."""
    return text.replace("/", "_").replace("\\", "_").replace("\0", "").lstrip(".")
