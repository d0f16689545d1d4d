"""Options of `brinell curate`: which failures to take, and how to write them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Layout = Literal["imagefolder", "coco", "paper"]


def _parse_number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


class CurateOptions(BaseModel):
    """Which failures to take, and how to write them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lens: str | None = Field(None, description="Take failures of this lens only.")
    operators: tuple[str, ...] = Field((), description="Take failures of these operators only.")
    every: bool = Field(False, description="Take all failures, not only the least changed one per image and operator.")
    distance: Literal["mse", "mae", "l1", "l2", "linf", "l0", "changed"] = Field(
        "mse",
        description="Distance to the clean image that defines the least changed failure: mse, mae, l1, l2, linf, l0 or "
        "changed.",
    )
    min_distance: float | None = Field(None, ge=0, description="Minimum distance to the clean image.")
    max_distance: float | None = Field(None, ge=0, description="Maximum distance to the clean image.")
    margin: float | None = Field(
        None, ge=-1, le=1, description="Minimum margin by which the wrong class's confidence exceeds the right one's."
    )
    fail: Annotated[Literal["any", "all"] | Annotated[int, Field(ge=1)], BeforeValidator(_parse_number)] = Field(
        "any", description="How many models must fail on the same changed image: any, all, or at least N."
    )
    per_class: int | None = Field(None, ge=1, description="Maximum number of images per class, least changed first.")
    near_duplicates: int | None = Field(
        None, ge=0, le=64, description="Drop images whose 64-bit perceptual hash is within N bits of one already taken."
    )
    limit: int | None = Field(None, ge=1, description="Maximum number of images, least changed first.")
    layout: Layout = Field("imagefolder", description="Layout of the dataset: imagefolder, coco or paper.")
    format: Literal["png", "webp"] = Field("png", description="File format; both are lossless.")
