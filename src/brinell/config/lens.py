"""The options that every lens has, and presets: options with a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from brinell.config.criterion import DEFAULT_CRITERION
from brinell.errors import UnknownName
from brinell.registry import DEFAULT_VARIANT, VariantId, nearest

DEFAULT_PRESET = "standard"


@dataclass(frozen=True)
class Preset:
    """Options with a name: for a purpose, or those of a paper. Options that are given explicitly win."""

    description: str
    options: Mapping[str, Any] = field(default_factory=dict)


STANDARD = Preset("The defaults.")


class LensOptions(BaseModel):
    """Base of a lens's options. `name` is the lens's own; a lens with presets lists them in `presets`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    without_gradients: ClassVar[str] = "leave out one of the two"  # what to do if a model has no gradients
    presets: ClassVar[Mapping[str, Preset]] = {}
    costly: ClassVar[Mapping[str, Any]] = {}  # defaults for models whose queries cost money or seconds

    name: str = Field(description="Name of the lens.")
    preset: str = Field(DEFAULT_PRESET, description="Preset for all options that are not set.")
    operators: tuple[str, ...] = Field(("all",), description="Operators to apply, as NAME or NAME:VARIANT (default: all).")
    variant: str = Field(
        DEFAULT_VARIANT, description="Variant of operators given without one; operators that don't have it use their first."
    )
    criterion: str = Field(
        DEFAULT_CRITERION,
        description="What counts as broken: NAME, NAME(argument) or several joined by & (default: misclassification; for "
        "detectors, a missing target; for segmenters, a mean IoU below 0.5).",
    )

    @model_validator(mode="before")
    @classmethod
    def _lay_over_preset(cls, value: Any) -> Any:
        """Take what is not given from the preset."""
        if not isinstance(value, Mapping) or not isinstance(value.get("preset", ""), str):
            return value
        name, known = value.get("preset", DEFAULT_PRESET), cls.known_presets()
        if name not in known:
            lens = cls.model_fields["name"].default
            raise UnknownName(f"the {lens} lens has no preset {name!r}; {nearest(name, list(known))}")
        return {**known[name].options, **value}

    @classmethod
    def known_presets(cls) -> Mapping[str, Preset]:
        """Return the presets by name; a lens without any has the default one."""
        return cls.presets if DEFAULT_PRESET in cls.presets else {DEFAULT_PRESET: STANDARD, **cls.presets}

    def requests(self, name: str) -> bool:
        """Whether a change was requested by its own name, rather than as one of all."""
        return any(VariantId.parse(operator).name == name for operator in self.operators)

    def identity(self) -> dict[str, Any]:
        """Return what rows depend on, as plain data: files by their content rather than their path, and no preset, whose
        options are there themselves.
        """
        return self.model_dump(mode="json", exclude={"preset"})
