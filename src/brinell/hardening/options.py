"""A hardening in one frozen object: which model, on what, how, and how it is measured before and after."""

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
from brinell.models.excitation import REDUCTION
from brinell.run_config import one_lens, overridden
from brinell.validation import Location, validate

Recipe = Literal["plain", "set_normalisation", "squeeze_excitation"]
_STRICT = ConfigDict(frozen=True, extra="forbid")


def _listed(value: Any) -> Any:
    """One thing as a list of it."""
    return [value] if isinstance(value, (str, Mapping, Path)) else value


class FailureOptions(BaseModel):
    """Pictures to train on: a data set of failures, or a run whose failures are taken.

    Of a run, `curate` says which failures (as for `brinell curate`), or `moved` names the motions of a geometry run that
    images are moved by ("affine:manifool", "affine:random"), random ones by a `score`. Pictures must say which originals
    they are of, as those of `brinell curate` and `brinell moved` do; those that have none are `unrelated`.
    """

    model_config = _STRICT

    source: str
    labels: Literal["auto", "index"] = "auto"
    label_column: str | None = None
    unrelated: bool = False
    curate: CurateOptions | None = None
    moved: str | None = None
    score: float | None = Field(None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"source": str(value)} if isinstance(value, (str, Path)) else value

    @property
    def data(self) -> DataOptions:
        """The pictures as a dataset."""
        return DataOptions(source=self.source, labels=self.labels, label_column=self.label_column)


class OperatorOptions(BaseModel):
    """One change that is applied while training: an operator, a property, "highlight" or "crop".

    `strength` is drawn between two shares of what it can do: of an operator's 30 levels, of a property's range, of a
    highlight's full brightness. A highlight's `sigmas` are shares of the shorter side; a crop's `sizes`, too, or pixels.
    """

    model_config = _STRICT

    name: str
    variant: str | None = None
    strength: tuple[float, float] = (0.0, 1.0)
    sigmas: tuple[float, ...] = (10 / 375, 20 / 375, 30 / 375, 40 / 375)  # the paper's, of a photograph of 500 by 375
    sizes: tuple[float, ...] = (0.4, 0.6, 0.8, 1.0)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _sensible(self) -> OperatorOptions:
        low, high = self.strength
        if not 0 <= low <= high <= 1 or high == 0:
            raise ConfigError(
                f"the strength of {self.name} should be two shares that rise, as in [0.1, 0.5]; got {low}, {high}"
            )
        if not self.sizes or min(self.sizes) <= 0 or not self.sigmas or min(self.sigmas) <= 0:
            raise ConfigError(f"sizes and sigmas of {self.name} should be more than 0")
        return self


class AugmentOptions(BaseModel):
    """What is done to clean images while training, anew in every epoch.

    A `share` of them is changed, each by a chain of up to `depth` operators. With a `width`, so many chains are mixed with
    each other and with the image, as AugMix does; `consistency` weighs its loss that wants the same answer to an image and
    two versions of it.
    """

    model_config = _STRICT

    operators: Annotated[tuple[OperatorOptions, ...], BeforeValidator(_listed)] = ()
    share: float = Field(0.5, gt=0, le=1)
    depth: int = Field(1, ge=1, le=10)
    width: int = Field(1, ge=1, le=10)
    consistency: float = Field(0.0, ge=0)


class PartOptions(BaseModel):
    """How originals are divided into training, validation and test: shares of each class, all versions of one together.

    A class with fewer originals than there are parts is refused, or `pool`ed with others of its kind and divided with them.
    """

    model_config = _STRICT

    shares: tuple[float, float, float] = (0.6, 0.2, 0.2)
    small_classes: Literal["refuse", "pool"] = "refuse"

    @model_validator(mode="after")
    def _sensible(self) -> PartOptions:
        if min(self.shares) < 0 or self.shares[0] == 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ConfigError(f"shares should be three numbers that add up to 1, the first not 0; got {list(self.shares)}")
        return self


class ExcitationOptions(BaseModel):
    """Where squeeze-and-excitation blocks go: `after` parts whose names fit these patterns, or all blocks that train."""

    model_config = _STRICT

    after: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    reduction: int = Field(REDUCTION, ge=1)


class TrainingOptions(BaseModel):
    """How weights are trained.

    `layers` are patterns of the names of those that train. `clean`: whether clean originals are trained on beside failures.
    `floor`: training stops once the accuracy on clean validation images is so many points below where it began, and goes
    back to the last epoch above. `keep`: the "last" epoch, or the "best" on validation images that are changed. The rate
    follows a `schedule`: constant, cosine, or halved every `halve` epochs. `batch_norm`: whether batch norms go on
    counting ("update") or stay as they are ("frozen").
    """

    model_config = _STRICT

    epochs: int = Field(5, ge=1)
    batch: int = Field(64, ge=1)
    layers: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ("*",)
    clean: bool = True
    optimiser: Literal["sgd", "adam", "adamw"] = "adam"
    rate: float = Field(1e-4, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["constant", "cosine", "halve"] = "constant"
    halve: int = Field(1, ge=1)
    precision: Precision = "fp32"
    batch_norm: Literal["update", "frozen"] = "update"
    floor: float | None = Field(None, ge=0)
    keep: Literal["last", "best"] = "last"


class HardenConfig(BaseModel):
    """What `brinell harden` carries out.

    `data` are originals with their labels, of which the test part is measured and never trained on; with `test`, that is
    measured instead. `measure` lists lenses, as a run does.
    """

    model_config = _STRICT

    model: ModelOptions
    data: DataOptions
    test: DataOptions | None = None
    failures: Annotated[tuple[FailureOptions, ...], BeforeValidator(_listed)] = ()
    augment: AugmentOptions = AugmentOptions()
    recipe: Recipe = "plain"
    excitation: ExcitationOptions = ExcitationOptions()
    parts: PartOptions = PartOptions()
    training: TrainingOptions = TrainingOptions()
    measure: Annotated[
        tuple[Annotated[SerializeAsAny[LensOptions], BeforeValidator(one_lens)], ...], BeforeValidator(_listed)
    ] = Field(default_factory=lambda: (one_lens(default_lens()),), min_length=1)
    seed: int = 0
    out: str | None = None
    execution: Execution = Execution()

    @model_validator(mode="after")
    def _sensible(self) -> HardenConfig:
        if "labels" in self.data.model_fields_set and self.data.labels == "prediction":
            raise ConfigError("training needs true labels: data.labels should be auto or index, not prediction")
        if self.test is None and self.parts.shares[2] == 0:
            raise ConfigError("no image is left to measure: give the third of parts.shares more than 0, or a test data set")
        if self.training.floor is not None and self.parts.shares[1] == 0:
            raise ConfigError("a floor needs validation images: give the second of parts.shares more than 0")
        if not self.training.clean and not self.failures:
            raise ConfigError("there is nothing to train on: training.clean is false, and there are no failures")
        if self.recipe != "squeeze_excitation" and "excitation" in self.model_fields_set:
            raise ConfigError("excitation is for the recipe squeeze_excitation; choose it, or leave excitation out")
        names = [lens.name for lens in self.measure]
        if len(set(names)) < len(names):
            raise ConfigError(f"measure lists a lens twice ({', '.join(names)}); list all operators in one of them")
        return self

    def identity(self) -> dict[str, Any]:
        """What the weights depend on, as plain data: not where and how it is carried out, nor how it is measured."""
        return self.model_dump(mode="json", exclude={"out", "execution", "measure"})

    def folder(self) -> str:
        """Where it lies: as asked, or a folder named by what is done, so that the same command finds it again."""
        if self.out is not None:
            return self.out
        digest = hashlib.blake2b(json.dumps(self.identity(), sort_keys=True).encode(), digest_size=4).hexdigest()
        return f"runs/harden-{self.model.label}-{digest}"


def load_harden_config(content: Mapping[str, Any], overrides: Iterable[str] = ()) -> HardenConfig:
    """Validate a mapping, with `key.sub=value` overrides laid over it."""
    return validate(HardenConfig, overridden(content, overrides), _known_keys)


def _known_keys(place: Location) -> list[str]:
    """The keys of the part of a config that a finding is about."""
    parts: dict[str, type[BaseModel]] = {
        "model": ModelOptions,
        "data": DataOptions,
        "test": DataOptions,
        "failures": FailureOptions,
        "augment": OperatorOptions if len(place) > 2 else AugmentOptions,
        "excitation": ExcitationOptions,
        "parts": PartOptions,
        "training": TrainingOptions,
        "execution": Execution,
    }
    if len(place) == 1:
        return list(HardenConfig.model_fields)
    if place[0] == "measure":
        return sorted({key for lens in LENSES.values() for key in lens.options.model_fields})
    return list(parts.get(str(place[0]), HardenConfig).model_fields)
