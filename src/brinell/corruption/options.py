"""Options of `brinell corrupt`: what is applied to a dataset, and how the copies are written."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Layout = Literal["imagefolder", "coco", "webdataset"]
Format = Literal["png", "jpeg", "webp"]
JPEG_QUALITY = 85  # of ImageNet-C


class CorruptOptions(BaseModel):
    """What is applied to a dataset, and how the copies are written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operators: tuple[str, ...] = Field(description="Operator or property to apply.", min_length=1)
    severities: tuple[float, ...] = Field(
        (),
        description="Severity of a property: 0 to 1 (-1 to 1 with two directions), or 1 to 5 for ImageNet-C corruptions.",
    )
    levels: tuple[int, ...] = Field((), description="Level of an operator: 1 to 30.")
    layout: Layout | None = Field(
        None,
        description="Layout of the copies: imagefolder, coco or webdataset (default: coco for data with boxes, else "
        "imagefolder).",
    )
    like: Literal["imagenet-c"] | None = Field(
        None,
        description="Use the folder structure of a published dataset: imagenet-c (operator/severity/class/file, as JPEG).",
    )
    format: Format | None = Field(
        None, description="File format: png, webp (both lossless) or jpeg (default: png; with --like, that of the dataset)."
    )
    quality: int = Field(JPEG_QUALITY, ge=1, le=100, description="Quality of JPEG files (default: 85, as in ImageNet-C).")
    size: int | None = Field(
        None,
        ge=8,
        description="Resize the shorter side to 8/7 of this and crop a square of this side from the centre: 224 gives "
        "ImageNet-C's 256 and 224 (default: images keep their size).",
    )
    limit: int | None = Field(None, ge=1, description="Maximum number of images (default: all).")
    shuffle: bool = Field(
        False, description="Choose the images of a limit at random, by the seed, instead of the first ones."
    )
    seed: int = Field(0, description="Seed of the random draws.")
    shard: int = Field(1000, ge=1, description="Images per file of the layout webdataset.")

    @property
    def file_format(self) -> Format:
        """The format of the files."""
        return self.format or ("jpeg" if self.like else "png")
