"""The options that every lens has."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from brinell.config.criterion import DEFAULT_CRITERION
from brinell.registry import VariantId


class LensOptions(BaseModel):
    """Base of a lens's options. `name` is the lens's own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    without_gradients: ClassVar[str] = "leave out one of the two"  # what to do if a model has no gradients

    name: str = Field(description="Name of the lens.")
    operators: tuple[str, ...] = Field(("all",), description="Operators to apply, as NAME or NAME:VARIANT (default: all).")
    variant: str = Field("published", description="Variant of operators that are given by name alone.")
    criterion: str = Field(
        DEFAULT_CRITERION,
        description="What counts as broken: NAME, NAME(argument) or several joined by & (default: misclassification; for "
        "detectors, a missing target).",
    )

    def requests(self, name: str) -> bool:
        """Whether a change was requested by its own name, rather than as one of all."""
        return any(VariantId.parse(operator).name == name for operator in self.operators)

    def identity(self) -> dict[str, Any]:
        """Return what rows depend on, as plain data: files by their content rather than their path."""
        return self.model_dump(mode="json")
