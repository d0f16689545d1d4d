"""How copies are written: folders of files with metadata or COCO annotations, shards of WebDataset, ImageNet-C's folders.

Every layout writes one dataset per setting, and `brinell run --data` reads each of them.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from brinell.corruption.options import CorruptOptions
from brinell.corruption.records import Record
from brinell.corruption.settings import Setting
from brinell.runs.store import Store
from brinell.types import Dataset

ENDINGS = {"png": "png", "jpeg": "jpg", "webp": "webp"}
UNIT = 64  # originals whose files are written again after an interruption

Write = Callable[[int, Record, bytes], None]  # the number of a setting, an original, and its file there
Records = Callable[[], Iterator[Record]]


@dataclass(frozen=True)
class Copy:
    """A copy that is written: where, of what, at which settings."""

    out: Store
    dataset: Dataset
    settings: Sequence[Setting]
    options: CorruptOptions

    @property
    def ending(self) -> str:
        """The ending of image files."""
        kind = self.options.file_format
        return "JPEG" if self.options.like and kind == "jpeg" else ENDINGS[kind]


class Layout(Protocol):
    """A way of writing a copy."""

    @property
    def unit(self) -> int:
        """Number of originals per unit."""
        ...

    @property
    def by_class(self) -> bool:
        """Whether files are in folders of classes."""
        ...

    def open_unit(self, number: int) -> AbstractContextManager[Write]:
        """Return what writes the images of a unit; they are complete when the context ends without an error."""
        ...

    def finish(self, records: Records) -> None:
        """Write what describes all images."""
        ...


@dataclass(frozen=True)
class Folders:
    """One file per image in the folders of its setting and class, and no metadata, as ImageNet-C."""

    copy: Copy
    by_class: bool = True

    @property
    def unit(self) -> int:
        """Few originals, so that an interruption costs little."""
        return UNIT

    def open_unit(self, number: int) -> AbstractContextManager[Write]:
        """Write files one by one; those of an interrupted unit are written again."""
        return nullcontext(self._write)

    def _write(self, setting: int, record: Record, data: bytes) -> None:
        self.copy.out.write(data, *self.copy.settings[setting].folder, *self.file(record).split("/"))

    def file(self, record: Record) -> str:
        """Return the path of an original's file below the folder of a setting."""
        return f"{record.name}.{self.copy.ending}"

    def finish(self, records: Records) -> None:
        """Write nothing more."""


@dataclass(frozen=True)
class ImageFolder(Folders):
    """One file per image, in folders of classes, with a metadata.jsonl, as Hugging Face's imagefolder reads them."""

    def finish(self, records: Records) -> None:
        """Write metadata.jsonl: a line per image."""
        for number, setting in enumerate(self.copy.settings):
            with self.copy.out.writing(*setting.folder, "metadata.jsonl") as file:
                for record in records():
                    line = {"file_name": self.file(record), **describe(record, number, setting, self.copy.dataset.classes)}
                    file.write(to_json(line) + b"\n")


@dataclass(frozen=True)
class WebDataset:
    """Tar files of images with their metadata, in the order of the dataset."""

    copy: Copy
    by_class: bool = True

    @property
    def unit(self) -> int:
        """A unit is one tar file per setting."""
        return self.copy.options.shard

    @contextmanager
    def open_unit(self, number: int) -> Iterator[Write]:
        """Write one tar file per setting; they appear whole."""
        copy = self.copy
        with ExitStack() as stack:
            tars = [
                stack.enter_context(_open_tar(stack.enter_context(copy.out.writing(*one.folder, f"{number:06}.tar"))))
                for one in copy.settings
            ]

            def write(setting: int, record: Record, data: bytes) -> None:
                key = record.name.replace(".", "_")  # what follows the first dot is the kind of a file
                facts = describe(record, setting, copy.settings[setting], copy.dataset.classes)
                _add(tars[setting], f"{key}.{copy.ending}", data)
                if isinstance(record.label, int):
                    _add(tars[setting], f"{key}.cls", str(record.label).encode())
                _add(tars[setting], f"{key}.json", to_json(facts))

            yield write

    def finish(self, records: Records) -> None:
        """Write nothing more."""


def describe(record: Record, number: int, setting: Setting, classes: tuple[str, ...] | None) -> dict[str, Any]:
    """Return what metadata says about an image at a setting; boxes are x, y, width and height, as in COCO."""
    facts: dict[str, Any] = {**record.facts(), **setting.facts}
    if record.box_labels is not None:
        found = record.objects(number)
        names = [classes[label] if isinstance(label, int) and classes else label for _, label, _ in found]
        facts["objects"] = {"bbox": [to_xywh(box) for _, _, box in found], "categories": names}
    return facts


def to_xywh(box: Sequence[float]) -> list[float]:
    """Return a box x1, y1, x2, y2 as x, y, width, height."""
    left, top, right, bottom = box
    return [left, top, round(right - left, 3), round(bottom - top, 3)]


def to_json(content: Any) -> bytes:
    """Return plain data as JSON."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _open_tar(file: Any) -> tarfile.TarFile:
    return tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a file whose header depends on its name and size alone."""
    header = tarfile.TarInfo(name)
    header.size, header.mtime, header.mode = len(data), 0, 0o644
    tar.addfile(header, io.BytesIO(data))
