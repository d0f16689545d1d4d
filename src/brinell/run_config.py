"""A run's config: what is measured, on what, and how. Invalid input raises an error of one line."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator

from brinell.config.budget import Budget
from brinell.config.data import DataOptions, name_sequence
from brinell.config.execution import Execution
from brinell.config.lens import LensOptions
from brinell.config.model import ModelOptions
from brinell.config.saliency import SaliencyOptions
from brinell.documents import load_yaml
from brinell.errors import ConfigError, UnknownName
from brinell.lenses.lens import LENSES, default_lens
from brinell.registry import nearest
from brinell.validation import Location, validate

COSTLY = "chat:"  # how the sources of models begin that are costly to query
COSTLY_BUDGET = "0.1"


def one_lens(value: Any) -> Any:
    """Return the options of a lens from its name, or from a mapping with its name and options."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        return value
    if not isinstance(value.get("name"), str):
        raise ConfigError(f"a lens needs a name: {', '.join(LENSES)}")
    lens = LENSES[value["name"]]
    for key in value:
        owners = [other.name for other in LENSES.values() if key in other.options.model_fields]
        if owners and lens.name not in owners:
            own = ", ".join(name for name in lens.options.model_fields if name != "name")
            raise ConfigError(f"{key} is an option of the {owners[0]} lens; {lens.name} has {own}")
    return lens.options.model_validate(value)


def lay_preset(lenses: Sequence[Any], preset: str) -> list[Any]:
    """Return lenses under a preset: those that have it and don't name one of their own. Raise if no lens has it."""
    named = [{"name": lens} if isinstance(lens, str) else lens for lens in lenses]
    names = [lens["name"] for lens in named if isinstance(lens, Mapping) and "name" in lens]
    known = {name: LENSES[name].options.known_presets() for name in names}
    if known and not any(preset in presets for presets in known.values()):
        owners = [lens.name for lens in LENSES.values() if preset in lens.options.known_presets()]
        if owners:
            raise ConfigError(
                f"{preset} is a preset of the {owners[0]} lens, and the run has {', '.join(known)}; add --lens {owners[0]}"
            )
        listed = list(dict.fromkeys(name for presets in known.values() for name in presets))
        raise UnknownName(f"there is no preset {preset!r}; {nearest(preset, listed)}")
    takers = {name for name, presets in known.items() if preset in presets}
    return [
        {"preset": preset, **lens} if isinstance(lens, Mapping) and lens.get("name") in takers else lens for lens in named
    ]


class TrackOptions(BaseModel):
    """Where a finished run is logged: an MLflow server, and which of its experiments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    to: str = Field(description="URI of an MLflow server to log the finished run to.")
    experiment: str | None = Field(
        None, description="Experiment on that server (default: MLFLOW_EXPERIMENT_NAME, or brinell)."
    )


def _track(value: Any) -> Any:
    """Let a URI alone name the server."""
    return {"to": value} if isinstance(value, str) else value


def _spare(value: dict[str, Any]) -> dict[str, Any]:
    """Return a config with the defaults for costly models if it has one: a budget, and the frugal options of lenses."""
    models = value.get("models", ())
    sources = [one.get("source", "") if isinstance(one, Mapping) else getattr(one, "source", one) for one in models]
    if not any(str(source).startswith(COSTLY) for source in sources):
        return value
    lenses = value.get("lenses", [default_lens()])
    if isinstance(lenses, (list, tuple)):
        value["lenses"] = [_spare_lens(lens) for lens in lenses]
    return value if value.get("budget") is not None else {**value, "budget": COSTLY_BUDGET}


def _spare_lens(lens: Any) -> Any:
    """Return a lens with its frugal options, unless it has a preset or was built already."""
    lens = {"name": lens} if isinstance(lens, str) else lens
    if not isinstance(lens, Mapping) or lens.get("name") not in LENSES or "preset" in lens:
        return lens
    return {**LENSES[lens["name"]].options.costly, **lens}


class RunConfig(BaseModel):
    """What `brinell run` runs.

    `select`: "all" images, the "correct" ones (that every model gets right), or "correct:MODEL" (that one model does).
    `budget` leaves out queries; a larger one adds to the same rows, up to those of a run without one. `saliency` compares
    where the models look, after all rows are written. Rows depend neither on it nor on `track` nor on `plan`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: tuple[ModelOptions, ...] = Field(min_length=1)
    data: DataOptions
    lenses: tuple[Annotated[SerializeAsAny[LensOptions], BeforeValidator(one_lens)], ...] = Field(
        default_factory=lambda: (one_lens(default_lens()),), min_length=1
    )
    select: str = Field(
        "all", description="Images to measure: all, correct (those that every model gets right) or correct:MODEL."
    )
    seed: int = Field(0, description="Seed of all random draws.")
    budget: Budget | None = Field(
        None,
        description="Share of queries to make (0.1), their number (20000), or the precision to reach (±1%); rerun with a "
        "larger budget to add queries (default: all; 0.1 for chat models).",
    )
    plan: str | None = Field(
        None,
        min_length=1,
        description="Test plan (YAML file) whose hash is stored in the run, for `brinell evidence`.",
    )
    saliency: SaliencyOptions | None = None
    track: Annotated[TrackOptions | None, BeforeValidator(_track)] = None
    out: str | None = Field(
        None,
        min_length=1,
        description="Folder or fsspec URL to store the run in (default: a name derived from the settings).",
    )
    execution: Execution = Execution()

    @model_validator(mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        """Let one model be `model`, one lens be `lens`, and `preset` be that of all lenses."""
        if not isinstance(value, Mapping):
            return value
        value = dict(value)
        for one, many in (("model", "models"), ("lens", "lenses")):
            if one in value and many not in value:
                value[many] = [value.pop(one)]
            if isinstance(value.get(many), (str, Mapping)):
                value[many] = [value[many]]
        preset = value.pop("preset", None)
        if isinstance(preset, str) and isinstance(lenses := value.get("lenses", [default_lens()]), (list, tuple)):
            value["lenses"] = lay_preset(lenses, preset)
        elif preset is not None:
            raise ConfigError(f"expected the name of a preset (see `brinell ls presets`), got {preset!r}")
        return _spare(value)

    @model_validator(mode="after")
    def _distinct(self) -> RunConfig:
        labels = [model.label for model in self.models]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"two models have the same name ({', '.join(labels)}); give them others with ?name=…")
        free = next((model.label for model in self.models if model.task == "answer"), None)
        if free is not None and self.data.labels != "prediction":
            raise ConfigError(
                f"{free} answers freely, so its answers to the clean images are the labels; add --labels prediction"
            )
        names = [lens.name for lens in self.lenses]
        if len(set(names)) < len(names):
            raise ConfigError(f"a lens is listed twice ({', '.join(names)}); make two runs of it")
        if self.select not in ("all", "correct", *(f"correct:{label}" for label in labels)):
            raise ConfigError(f"select should be all, correct or correct:MODEL with one of {', '.join(labels)}")
        return self

    def identity(self) -> dict[str, Any]:
        """Return what the rows depend on, as plain data: the config without output and execution options."""
        content = self.model_dump(mode="json", exclude={"out", "execution", "saliency", "track", "budget", "plan"})
        content["lenses"] = [lens.identity() for lens in self.lenses]
        if content["data"]["pattern"] is None:  # so that runs from before this option resume
            del content["data"]["pattern"]
        del content["data"]["metadata"]  # rows don't depend on it
        content["precision"] = self.execution.precision
        return content

    def folder(self) -> str:
        """Return the folder of the run: as given, or named by what is measured, so that a rerun finds it."""
        if self.out is not None:
            return self.out
        digest = hashlib.blake2b(json.dumps(self.identity(), sort_keys=True).encode(), digest_size=4).hexdigest()
        lenses = "-".join(lens.name for lens in self.lenses)
        return f"runs/{lenses}-{Path(self.data.source.removeprefix('object:')).stem}-{digest}"


def load_config(content: Mapping[str, Any], overrides: Iterable[str] = ()) -> RunConfig:
    """Return a config from a mapping with `key.sub=value` overrides applied."""
    return validate(RunConfig, overridden(content, overrides), _known_keys)


def overridden(content: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Return a mapping with `key.sub=value` overrides applied."""
    merged = copy.deepcopy(dict(content))
    for override in overrides:
        _put(merged, override)
    return merged


def _put(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"expected --set key=value (as in --set data.limit=100), got {override!r}")
    try:
        value = load_yaml(text)
    except ValueError:
        raise ConfigError(f"--set {key}: the value {text!r} is not valid YAML") from None
    *path, last = key.split(".")
    section: Any = content
    for part in path:
        section = _step_into(section, part, key)
    section[_key_in(section, last, key)] = value


def _step_into(section: Any, part: str, key: str) -> Any:
    """Return the mapping or list at a key of a config; a name alone becomes a mapping."""
    own = _key_in(section, part, key)
    value = section[own] if isinstance(section, list) else section.get(own)
    if isinstance(value, str):
        value = {"name" if key.startswith("lens") else "to" if key.startswith("track") else "source": value}
    section[own] = value if isinstance(value, (dict, list)) else {}
    return section[own]


def _key_in(section: Any, part: str, key: str) -> Any:
    """Return a part of a key as an index into a list, or as it is for a mapping."""
    if not isinstance(section, list):
        return part
    if not part.isdecimal() or int(part) >= len(section):
        raise ConfigError(f"--set {key}: {part!r} is not an index into a list of {len(section)}")
    return int(part)


def _known_keys(location: Location) -> list[str]:
    """Return the known keys at a location in a config."""
    parts: dict[str, type[BaseModel]] = {
        "models": ModelOptions,
        "budget": Budget,
        "data": DataOptions,
        "saliency": SaliencyOptions,
        "track": TrackOptions,
        "execution": Execution,
    }
    if len(location) == 1:
        return [*RunConfig.model_fields, "model", "lens", "preset"]
    if location[0] == "lenses":
        return sorted({key for lens in LENSES.values() for key in lens.options.model_fields})
    return list(parts.get(str(location[0]), RunConfig).model_fields)


def name_data(data: Any) -> tuple[dict[str, Any], Any]:
    """Return the options that name a dataset, and the dataset itself where it is an object."""
    if isinstance(data, DataOptions):
        return data.model_dump(mode="json"), None
    options = data if isinstance(data, Mapping) and "source" in data else {"source": data}
    source = options["source"]
    if isinstance(source, (str, Path)):
        return {**options, "source": str(source)}, None
    return {**options, "source": f"object:{name_sequence(source)}"}, source
