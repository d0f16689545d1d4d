"""A run in one frozen object: what is measured, on what, and how. Errors stop here, in one line."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator

from brinell.config.data import DataOptions
from brinell.config.execution import Execution
from brinell.config.lens import LensOptions
from brinell.config.model import ModelOptions
from brinell.config.saliency import SaliencyOptions
from brinell.errors import ConfigError
from brinell.lenses.lens import LENSES
from brinell.validation import Location, validate


def one_lens(value: Any) -> Any:
    """A lens by its name, or by a mapping with its name and options."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        return value
    if not isinstance(value.get("name"), str):
        raise ConfigError(f"a lens needs a name: {', '.join(LENSES)}")
    asked = LENSES[value["name"]]
    for key in value:
        owners = [lens.name for lens in LENSES.values() if key in lens.options.model_fields]
        if owners and asked.name not in owners:
            own = ", ".join(name for name in asked.options.model_fields if name != "name")
            raise ConfigError(f"{key} is an option of the {owners[0]} lens; {asked.name} has {own}")
    return asked.options.model_validate(value)


class TrackOptions(BaseModel):
    """Where a finished run is logged: an MLflow server, and which of its experiments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: str = Field(description="URI of an MLflow server to log the finished run to.")
    experiment: str | None = Field(
        None, description="Experiment on that server (default: MLFLOW_EXPERIMENT_NAME, or brinell)."
    )


def _track(value: Any) -> Any:
    """A server by its URI alone, or by a mapping."""
    return {"to": value} if isinstance(value, str) else value


class RunConfig(BaseModel):
    """What `brinell run` carries out.

    `select`: "all" images, the "correct" ones (that every model gets right), or "correct:MODEL" (that one model does).
    `saliency` compares where the models look, after all rows are there; rows depend neither on it nor on where they are
    logged afterwards (`track`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[ModelOptions, ...] = Field(min_length=1)
    data: DataOptions
    lenses: tuple[Annotated[SerializeAsAny[LensOptions], BeforeValidator(one_lens)], ...] = Field(
        default_factory=lambda: (one_lens("profile"),), min_length=1
    )
    select: str = Field(
        "all", description="Images to measure: all, correct (those that every model gets right) or correct:MODEL."
    )
    seed: int = Field(0, description="Seed of all random draws.")
    saliency: SaliencyOptions | None = None
    track: Annotated[TrackOptions | None, BeforeValidator(_track)] = None
    out: str | None = Field(None, description="Folder or fsspec URL of the run (default: named by what is measured).")
    execution: Execution = Execution()

    @model_validator(mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        """Let one model be `model`, and one lens be `lens`."""
        if not isinstance(value, Mapping):
            return value
        value = dict(value)
        for one, many in (("model", "models"), ("lens", "lenses")):
            if one in value and many not in value:
                value[many] = [value.pop(one)]
            if isinstance(value.get(many), (str, Mapping)):
                value[many] = [value[many]]
        return value

    @model_validator(mode="after")
    def _distinct(self) -> RunConfig:
        labels = [model.label for model in self.models]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"two models have the same name ({', '.join(labels)}); give them others with ?name=…")
        names = [lens.name for lens in self.lenses]
        if len(set(names)) < len(names):
            raise ConfigError(f"a lens is listed twice ({', '.join(names)}); make two runs of it")
        if self.select not in ("all", "correct", *(f"correct:{label}" for label in labels)):
            raise ConfigError(f"select should be all, correct or correct:MODEL with one of {', '.join(labels)}")
        return self

    def identity(self) -> dict[str, Any]:
        """What the rows depend on, as plain data: the config without where and how it is carried out."""
        content = self.model_dump(mode="json", exclude={"out", "execution", "saliency", "track"})
        content["lenses"] = [lens.identity() for lens in self.lenses]
        if content["data"]["pattern"] is None:  # runs that began before there was one go on
            del content["data"]["pattern"]
        content["precision"] = self.execution.precision
        return content

    def folder(self) -> str:
        """Where the run lies: as asked, or a folder named by what is measured, so that the same command finds it again."""
        if self.out is not None:
            return self.out
        digest = hashlib.blake2b(json.dumps(self.identity(), sort_keys=True).encode(), digest_size=4).hexdigest()
        lenses = "-".join(lens.name for lens in self.lenses)
        return f"runs/{lenses}-{Path(self.data.source).stem}-{digest}"


def load_config(content: Mapping[str, Any], overrides: Iterable[str] = ()) -> RunConfig:
    """Validate a mapping, with `key.sub=value` overrides laid over it."""
    return validate(RunConfig, overridden(content, overrides), _known_keys)


def overridden(content: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """A mapping with `key.sub=value` overrides laid over it."""
    merged = copy.deepcopy(dict(content))
    for override in overrides:
        _put(merged, override)
    return merged


def _put(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"expected --set key=value (as in --set data.limit=100), got {override!r}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {key}: the value {text!r} is not valid YAML") from None
    *path, last = key.split(".")
    place: Any = content
    for part in path:
        place = _step_into(place, part, key)
    place[_spot(place, last, key)] = value


def _step_into(place: Any, part: str, key: str) -> Any:
    """The mapping or list at a part of a config; a name that stands there alone becomes a mapping."""
    spot = _spot(place, part, key)
    there = place[spot] if isinstance(place, list) else place.get(spot)
    if isinstance(there, str):
        there = {"name" if key.startswith("lens") else "to" if key.startswith("track") else "source": there}
    place[spot] = there if isinstance(there, (dict, list)) else {}
    return place[spot]


def _spot(place: Any, part: str, key: str) -> Any:
    if not isinstance(place, list):
        return part
    if not part.isdigit() or int(part) >= len(place):
        raise ConfigError(f"--set {key}: {part!r} is not a place in a list of {len(place)}")
    return int(part)


def _known_keys(place: Location) -> list[str]:
    """The keys of the part of a config that a finding is about."""
    parts: dict[str, type[BaseModel]] = {
        "models": ModelOptions,
        "data": DataOptions,
        "saliency": SaliencyOptions,
        "track": TrackOptions,
        "execution": Execution,
    }
    if len(place) == 1:
        return [*RunConfig.model_fields, "model", "lens"]
    if place[0] == "lenses":
        return sorted({key for lens in LENSES.values() for key in lens.options.model_fields})
    return list(parts.get(str(place[0]), RunConfig).model_fields)


def name_data(data: Any) -> tuple[dict[str, Any], Any]:
    """Return the options that name a dataset, and the dataset itself where it is an object."""
    if isinstance(data, DataOptions):
        return data.model_dump(mode="json"), None
    options = data if isinstance(data, Mapping) and "source" in data else {"source": data}
    source = options["source"]
    if isinstance(source, (str, Path)):
        return {**options, "source": str(source)}, None
    return {**options, "source": f"object:{type(source).__name__}"}, source
