"""What is taken of the failures, and how it is written."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Layout = Literal["imagefolder", "coco", "paper"]


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


class CurateOptions(BaseModel):
    """Which failures, and in which form.

    Of each image and operator the least perturbed failing version by `distance` is taken, or with `every` all of them.
    `fail`: how many models must fail on a version: "any", "all", or at least so many. `margin`: by how much their wrong
    answer is at least surer than the right one. `near_duplicates`: pictures whose perceptual hashes (64 bits) differ from
    that of a picture taken before in no more bits are left out. `per_class` and `limit` take the least perturbed first,
    from all classes and operators in turn.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    lens: str | None = None
    operators: tuple[str, ...] = ()
    every: bool = False
    distance: Literal["mse", "mae", "l1", "l2", "linf", "l0", "changed"] = "mse"
    min_distance: float | None = Field(None, ge=0)
    max_distance: float | None = Field(None, ge=0)
    margin: float | None = Field(None, ge=-1, le=1)
    fail: Annotated[Literal["any", "all"] | Annotated[int, Field(ge=1)], BeforeValidator(_number)] = "any"
    per_class: int | None = Field(None, ge=1)
    near_duplicates: int | None = Field(None, ge=0, le=64)
    limit: int | None = Field(None, ge=1)
    layout: Layout = "imagefolder"
    format: Literal["png", "webp"] = "png"
