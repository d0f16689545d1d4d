"""Metadata of images from a table next to a dataset: what is known besides labels, such as the weather or the camera."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from brinell.datasets.columns import PATH_COLUMNS, find_metadata
from brinell.datasets.files import read_rows
from brinell.errors import DataError
from brinell.types import Dataset, Sample


@dataclass(frozen=True)
class Described:
    """A dataset with metadata from a table, by the images' names; other members are those of the dataset."""

    samples: Dataset
    facts: Mapping[str, Mapping[str, str]]

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "samples"), name)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int, /) -> Sample:
        sample = self.samples[index]
        known = self.facts.get(sample.name) or self.facts.get(PurePosixPath(sample.name).name) or {}
        return replace(sample, metadata={**sample.metadata, **known})


def add_metadata(dataset: Dataset, file: str) -> Described:
    """Add the columns of a CSV, JSONL or Parquet file to a dataset: a row for each image, by its name or path."""
    path = Path(file).expanduser()
    if path.suffix not in (".csv", ".jsonl", ".parquet"):
        raise DataError(f"expected metadata in a .csv, .jsonl or .parquet file, got {file}")
    rows = read_rows(path)
    column = next((name for name in PATH_COLUMNS if rows and name in rows[0]), None)
    if column is None:
        raise DataError(f"{path} has no column that names images; expected {' or '.join(PATH_COLUMNS)}")
    facts = {str(row[column]): find_metadata(row) for row in rows}
    # class folders and tables may name an image with or without its folder
    short = Counter(PurePosixPath(name).name for name in facts)
    facts |= {PurePosixPath(name).name: own for name, own in [*facts.items()] if short[PurePosixPath(name).name] == 1}
    described = Described(dataset, facts)
    name = dataset[0].name if len(dataset) else ""
    if name and name not in facts and PurePosixPath(name).name not in facts:
        raise DataError(f"{path} has no row for the first image, {name!r}; its column {column} should hold such names")
    return described
