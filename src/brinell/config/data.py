"""Options that say which images are used, and what their labels mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator


class DataOptions(BaseModel):
    """Which images are used, how many of them, and what their labels mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str = Field(
        description="Dataset: a folder, a file or the name of a built-in dataset (see `brinell ls datasets`)."
    )
    limit: int | None = Field(None, ge=1, description="Maximum number of images (default: all).")
    shuffle: bool = Field(
        False, description="Choose the images of a limit at random, by the seed, instead of the first ones."
    )
    labels: Literal["auto", "index", "prediction"] = Field(
        "auto",
        description="Where labels come from: auto (matched to the model's classes by name, WordNet id or index), index "
        "(the dataset's class numbers are the model's outputs) or prediction (the model's prediction for the clean image).",
    )
    label_column: str | None = Field(
        None, description="Column of a manifest that contains the labels (default: found by its name)."
    )
    images: str | None = Field(
        None, description="Folder with the images of a COCO file (default: next to the file, or in the folder images)."
    )
    preferred: str | None = Field(
        None,
        description="For images with boxes: label each image by its largest object of this class (default: of any class, "
        "for detectors or if min_area is set).",
    )
    min_area: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Minimum share of the image that the labelled object must cover; other images are left out.",
    )
    ignore_zero: bool | None = Field(
        None,
        description="Masks number their classes from 1, and 0 means no class (default: only for ADE20K, whose folder has "
        "an objectInfo150.txt).",
    )
    pattern: str | None = Field(
        None,
        description="Regular expression on file names, with the groups original and variant, that assigns variants to "
        "their originals.",
    )
    metadata: str | None = Field(
        None,
        description="Table of image metadata (.csv, .jsonl or .parquet, with file names) for results by slice; it doesn't "
        "change the rows.",
    )

    @model_serializer(mode="wrap")
    def _serialise(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = plain(self)
        if self.ignore_zero is None:  # so that runs from before this option resume
            content.pop("ignore_zero", None)
        return content

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"source": str(value)} if isinstance(value, (str, Path)) else value


def name_sequence(items: Any) -> str:
    """Return a name for a Python sequence: its own, that of its class, or "images" for a plain list or array."""
    name = getattr(items, "name", None)
    if isinstance(name, str):
        return name
    kind = type(items).__name__
    if kind in ("list", "tuple", "ndarray", "Tensor"):
        return "images"
    parent = getattr(items, "dataset", None)  # of torch's Subset
    return kind if parent is None else f"{kind} of {name_sequence(parent)}"
