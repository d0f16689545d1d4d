"""The config of `brinell harden`: the model, what it is trained on and how, and how it is measured before and after.

Importing this needs no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator

from brinell.config.data import DataOptions
from brinell.config.execution import Execution, Precision
from brinell.config.lens import LensOptions
from brinell.config.model import ModelOptions
from brinell.curation.options import CurateOptions
from brinell.errors import ConfigError
from brinell.lenses.lens import LENSES, default_lens
from brinell.run_config import one_lens, overridden
from brinell.validation import Location, validate

Recipe = Literal["plain", "set_normalisation", "squeeze_excitation"]
_STRICT = ConfigDict(frozen=True, extra="forbid")


def _as_list(value: Any) -> Any:
    """Return a single entry as a list."""
    return [value] if isinstance(value, (str, Mapping, Path)) else value


class FailureOptions(BaseModel):
    """Failures to train on: a dataset, or a run.

    Images must name their originals, as those of `brinell curate` and `brinell export-moved` do, or be `unrelated`.
    """

    model_config = _STRICT

    source: str = Field(description="A dataset of failures, or the folder of a run.")
    labels: Literal["auto", "index"] = Field("auto", description="Match labels by name where possible, or by index.")
    label_column: str | None = Field(None, description="Column of the labels in the dataset's metadata.")
    unrelated: bool = Field(False, description="The images have no originals in `data`.")
    curate: CurateOptions | None = Field(None, description="Which failures of a run to take; see `brinell curate`.")
    moved: str | None = Field(
        None, description="Take a run's images as the motions of this operator left them; see `brinell export-moved`."
    )
    score: float | None = Field(None, ge=0, description="Score of random motions (default: the median of the smallest).")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"source": str(value)} if isinstance(value, (str, Path)) else value

    @property
    def data(self) -> DataOptions:
        """The images as a dataset."""
        return DataOptions(source=self.source, labels=self.labels, label_column=self.label_column)


class OperatorOptions(BaseModel):
    """A change that is applied during training: an operator, a property, "highlight" or "crop"."""

    model_config = _STRICT

    name: str = Field(description='Name of an operator or property, "highlight" or "crop".')
    variant: str | None = Field(
        None, description="Variant of the operator or property (default: standard, else its first)."
    )
    strength: tuple[float, float] = Field(
        (0.0, 1.0),
        description="Range of the random strength: a share of 30 levels, of a property's range, or of full brightness.",
    )
    sigmas: tuple[float, ...] = Field(
        (10 / 375, 20 / 375, 30 / 375, 40 / 375),  # the paper's, for a photograph of 500 by 375
        description="Sizes of a highlight, as shares of the shorter side.",
    )
    sizes: tuple[float, ...] = Field(
        (0.4, 0.6, 0.8, 1.0), description="Sizes of a crop, as shares of the shorter side or in pixels."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> OperatorOptions:
        low, high = self.strength
        if not 0 <= low <= high <= 1 or high == 0:
            raise ConfigError(
                f"expected the strength of {self.name} as two increasing shares, such as [0.1, 0.5]; got {low}, {high}"
            )
        if not self.sizes or min(self.sizes) <= 0 or not self.sigmas or min(self.sigmas) <= 0:
            raise ConfigError(f"expected sizes and sigmas of {self.name} greater than 0")
        return self


class AugmentOptions(BaseModel):
    """Random changes of clean images during training, drawn anew in every epoch."""

    model_config = _STRICT

    operators: Annotated[tuple[OperatorOptions, ...], BeforeValidator(_as_list)] = Field(
        (), description="Changes to choose from."
    )
    share: float = Field(0.5, gt=0, le=1, description="Share of the clean images that are changed.")
    depth: int = Field(1, ge=1, le=10, description="Maximum number of operators in a chain.")
    width: int = Field(1, ge=1, le=10, description="Number of chains that are mixed with the image, as in AugMix.")
    consistency: float = Field(0.0, ge=0, description="Weight of AugMix's consistency loss.")


class PartOptions(BaseModel):
    """How originals are split into training, validation and test."""

    model_config = _STRICT

    shares: tuple[float, float, float] = Field(
        (0.6, 0.2, 0.2), description="Shares of training, validation and test in each class."
    )
    small_classes: Literal["refuse", "pool"] = Field(
        "refuse", description="What to do with classes that have fewer originals than splits: refuse them, or pool them."
    )

    @model_validator(mode="after")
    def _check(self) -> PartOptions:
        if min(self.shares) < 0 or self.shares[0] == 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ConfigError(
                f"expected shares as three numbers that add up to 1, the first not 0; got {list(self.shares)}"
            )
        return self


class ExcitationOptions(BaseModel):
    """Squeeze-and-excitation blocks."""

    model_config = _STRICT

    after: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = Field(
        (), description="Name patterns of the modules to add blocks after (default: all blocks that train)."
    )
    reduction: int = Field(16, ge=1, description="Channels per hidden unit of a block.")  # 16: the paper's


class TrainingOptions(BaseModel):
    """How weights are trained."""

    model_config = _STRICT

    epochs: int = Field(5, ge=1, description="Number of epochs.")
    batch: int = Field(64, ge=1, description="Batch size.")
    layers: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = Field(
        ("*",), description="Name patterns of the layers to train."
    )
    clean: bool = Field(True, description="Train on clean originals as well as on failures.")
    optimiser: Literal["sgd", "adam", "adamw"] = Field("adam", description="Optimiser.")
    rate: float = Field(1e-4, gt=0, description="Learning rate.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD, or beta 1 of Adam.")
    weight_decay: float = Field(0.0, ge=0, description="Weight decay.")
    schedule: Literal["constant", "cosine", "halve"] = Field(
        "constant", description="Learning-rate schedule: constant, cosine or halve."
    )
    halve: int = Field(1, ge=1, description="Epochs after which the schedule `halve` halves the rate.")
    precision: Precision = Field("fp32", description="Precision: fp32, tf32, bf16 or fp16; weights stay in fp32.")
    batch_norm: Literal["update", "frozen"] = Field("update", description="Whether batch-norm statistics are updated.")
    floor: float | None = Field(
        None,
        ge=0,
        description="Stop when clean validation accuracy has dropped by more than this many points, and keep the last "
        "epoch above that floor.",
    )
    keep: Literal["last", "best"] = Field(
        "last", description="Which epoch to keep: the last one, or the best one on changed validation images."
    )


class HardenConfig(BaseModel):
    """The config of `brinell harden`."""

    model_config = _STRICT

    model: ModelOptions = Field(description="Model: a torch classifier.")
    data: DataOptions = Field(description="Originals with labels; the test split is measured and never trained on.")
    test: DataOptions | None = Field(None, description="Dataset to measure instead of the test split.")
    failures: Annotated[tuple[FailureOptions, ...], BeforeValidator(_as_list)] = Field(
        (), description="Failures to train on: datasets or runs."
    )
    augment: AugmentOptions = Field(AugmentOptions(), description="Random changes of clean images during training.")
    recipe: Recipe = Field(
        "plain", description="Change to the network before training: plain (none), set_normalisation or squeeze_excitation."
    )
    excitation: ExcitationOptions = Field(ExcitationOptions(), description="Blocks of the recipe squeeze_excitation.")
    parts: PartOptions = Field(PartOptions(), description="Split into training, validation and test.")
    training: TrainingOptions = Field(TrainingOptions(), description="How weights are trained.")
    measure: Annotated[
        tuple[Annotated[SerializeAsAny[LensOptions], BeforeValidator(one_lens)], ...], BeforeValidator(_as_list)
    ] = Field(
        default_factory=lambda: (one_lens(default_lens()),),
        min_length=1,
        description="Lenses to measure with before and after, as in a run.",
    )
    seed: int = Field(0, description="Seed of all random draws.")
    out: str | None = Field(None, description="Folder of the hardened model (default: runs/harden-MODEL-DIGEST).")
    execution: Execution = Field(Execution(), description="Device, batch size, workers and so on, as in a run.")

    @model_validator(mode="after")
    def _check(self) -> HardenConfig:
        if "labels" in self.data.model_fields_set and self.data.labels == "prediction":
            raise ConfigError("training needs true labels; set data.labels to auto or index instead of prediction")
        if self.test is None and self.parts.shares[2] == 0:
            raise ConfigError(
                "there are no images to measure; make the third of parts.shares greater than 0, or add a test dataset"
            )
        if self.training.floor is not None and self.parts.shares[1] == 0:
            raise ConfigError("training.floor needs validation images; make the second of parts.shares greater than 0")
        if not self.training.clean and not self.failures:
            raise ConfigError("there is nothing to train on; set training.clean to true, or add failures")
        if self.recipe != "squeeze_excitation" and "excitation" in self.model_fields_set:
            raise ConfigError("excitation needs the recipe squeeze_excitation; choose it, or remove excitation")
        names = [lens.name for lens in self.measure]
        if len(set(names)) < len(names):
            raise ConfigError(f"measure lists a lens twice ({', '.join(names)}); list all operators in one entry")
        return self

    def identity(self) -> dict[str, Any]:
        """Return what the weights depend on, as plain data: neither where and how it runs nor how it is measured."""
        return self.model_dump(mode="json", exclude={"out", "execution", "measure"})

    def folder(self) -> str:
        """Return the folder: as given, or named after the config, so that the same command resumes."""
        if self.out is not None:
            return self.out
        digest = hashlib.blake2b(json.dumps(self.identity(), sort_keys=True).encode(), digest_size=4).hexdigest()
        return f"runs/harden-{self.model.label}-{digest}"


def load_harden_config(content: Mapping[str, Any], overrides: Iterable[str] = ()) -> HardenConfig:
    """Return a config from a mapping and `key.sub=value` overrides, or raise."""
    return validate(HardenConfig, overridden(content, overrides), _known_keys)


def _known_keys(location: Location) -> list[str]:
    """Return the known keys at a location of a config."""
    parts: dict[str, type[BaseModel]] = {
        "model": ModelOptions,
        "data": DataOptions,
        "test": DataOptions,
        "failures": FailureOptions,
        "augment": OperatorOptions if len(location) > 2 else AugmentOptions,
        "excitation": ExcitationOptions,
        "parts": PartOptions,
        "training": TrainingOptions,
        "execution": Execution,
    }
    if len(location) == 1:
        return list(HardenConfig.model_fields)
    if location[0] == "measure":
        return sorted({key for lens in LENSES.values() for key in lens.options.model_fields})
    return list(parts.get(str(location[0]), HardenConfig).model_fields)
