"""Options of the geometry lens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from brinell.config.lens import LensOptions, Preset
from brinell.lenses.geometry.presets import PRESETS

SearchMethod = Literal["manifool", "manitest", "random", "grid"]


class GeometryOptions(LensOptions):
    """Options of the geometry lens. What is not given is as published for images of the model's size."""

    without_gradients: ClassVar[str] = "use the methods random, grid or manitest"
    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    name: Literal["geometry"] = "geometry"
    variant: str = Field("published", description="Always published: motions have no variants.")
    operators: tuple[str, ...] = Field(("similarity", "affine"), description="Groups of motions, or all.")
    methods: tuple[SearchMethod, ...] = Field(
        ("manifool", "random"),
        min_length=1,
        description="Search methods: manifool (follows gradients), manitest (fast marching on a grid), random (random "
        "motions of given scores), grid (a fixed grid of motions).",
    )
    against: Literal["answer", "truth"] = Field(
        "answer", description="Label that has to change: answer (the model's clean prediction) or truth (the true label)."
    )
    max_steps: int = Field(50, ge=1, le=10_000, description="ManiFool: maximum number of steps per target.")
    targets: int = Field(10, ge=1, description="ManiFool: number of most probable other classes to target.")
    momentum: float | None = Field(None, ge=0, lt=1, description="ManiFool: momentum.")
    momentum_inside: bool = Field(True, description="ManiFool: include the momentum when trying step lengths.")
    step_lengths: int | None = Field(None, ge=1, le=1000, description="ManiFool: number of step lengths to try.")
    max_step: float | None = Field(None, gt=0.01, description="ManiFool: maximum step length in pixels.")
    retry: float | None = Field(
        None,
        ge=0,
        description="ManiFool: maximum step length in pixels of a second try for images that the first doesn't fool; 0: no "
        "second try, as published (default: a 32nd of the shorter side for photographs).",
    )
    grid_pixels: float | None = Field(None, gt=0, description="Manitest: grid step in pixels.")
    eta: float = Field(0.05, gt=0, le=1, description="Step size of geodesic scores.")
    min_change: float = Field(
        0.02, ge=0, le=1, description="Use larger score steps where an image changes less than this; 0: never."
    )
    backtrack: bool = Field(True, description="Move back to the decision boundary at the end.")
    drop: bool = Field(True, description="ManiFool: drop targets that can't improve on the best motion so far.")
    jacobian: Literal["analytic", "numerical"] = Field("analytic", description="ManiFool: how to compute the Jacobian.")
    composed: Literal["right", "left"] = Field("right", description="ManiFool: side on which to compose a step.")
    radii: tuple[float, ...] = Field(
        tuple(0.5 * step for step in range(1, 11)), description="Geodesic scores of random motions, in increasing order."
    )
    draws: int = Field(10, ge=1, le=1000, description="Random motions per image and score.")
    directions: Literal["raw", "metric"] = Field(
        "raw",
        description="How to draw random directions: raw (in raw units, as published) or metric (by the image's metric).",
    )
    grid_motions: int = Field(1000, ge=3, le=100_000, description="Maximum number of motions of the grid search.")
    threshold: float = Field(
        0.5, gt=0, lt=1, description="Misclassification rate that defines the reported score of random motions."
    )

    @field_validator("methods", mode="before")
    @classmethod
    def _one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("radii")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or min(value) < 0 or not all(map(math.isfinite, value)) or list(value) != sorted(set(value)):
            raise ValueError("expected scores of 0 or more, in increasing order")
        return value

    def requests(self, name: str) -> bool:
        """Whether methods were given, rather than the default ones."""
        return "methods" in self.model_fields_set


OPTIONS = GeometryOptions
