"""The flags of `run` and `plan`, and a config from a YAML file and flags."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from brinell.cli.flags import Flag, flags_of, unique
from brinell.config.data import DataOptions
from brinell.config.execution import Execution
from brinell.config.saliency import SaliencyOptions
from brinell.errors import ConfigError
from brinell.lenses.lens import LENSES, default_lens
from brinell.run_config import RunConfig, TrackOptions, load_config
from brinell.validation import read_config

_MAIN = "What to measure"
_DATA, _EXECUTION, _SALIENCY = "Data", "Execution", "Saliency"


@cache
def run_flags() -> list[Flag]:
    """Return all flags of a run: its own, then those of the data, the lenses, saliency and execution."""
    return unique(
        [
            Flag(
                ("models",),
                "model",
                list[str],
                "Model, as SOURCE[?key=value&…] (see `brinell ls models`); may be repeated.",
                _MAIN,
            ),
            Flag(("data", "source"), "data", str, "Dataset: a folder, file or name (see `brinell ls datasets`).", _MAIN),
            Flag(
                ("lenses",),
                "lens",
                list[str],
                f"Lens (default: {default_lens()}; see `brinell ls lenses`); may be repeated.",
                _MAIN,
            ),
            Flag(
                ("preset",),
                "preset",
                str,
                "Named set of options: quick (minutes), standard (the defaults), full, or a paper's settings (see `brinell "
                "ls presets`). Other flags override it.",
                _MAIN,
            ),
            *flags_of(RunConfig, panel=_MAIN, skip=("models", "data", "lenses", "saliency", "track", "execution")),
            *flags_of(DataOptions, ("data",), panel=_DATA, skip=("source",)),
            *_lens_flags(),
            Flag(("saliency",), "saliency", bool, "Also compare where torch models look (saliency maps).", _SALIENCY),
            *flags_of(SaliencyOptions, ("saliency",), panel=_SALIENCY, prefix="saliency-"),
            *flags_of(Execution, ("execution",), panel=_EXECUTION, names={"cluster": "on"}),
            *flags_of(TrackOptions, ("track",), panel=_EXECUTION, names={"to": "track", "experiment": "track-experiment"}),
            Flag(
                ("set",),
                "set",
                list[str],
                "Set any option, as key.sub=value (data.limit=100); may be repeated.",
                _EXECUTION,
            ),
        ]
    )


def _lens_flags() -> list[Flag]:
    """Return the flags of all lenses, those that several share first."""
    flags = [
        flag
        for lens in LENSES.values()
        for flag in flags_of(lens.options, ("lens",), panel=f"Lens: {lens.name}", skip=("preset",))
    ]
    names = [flag.name for flag in flags]
    shared = [flag for flag in flags if names.count(flag.name) > 1]
    common = [Flag(**{**vars(flag), "panel": "All lenses"}) for flag in unique(shared)]
    return [*common, *(flag for flag in flags if names.count(flag.name) == 1)]


def config_of(file: Path | None, given: Mapping[str, Any]) -> RunConfig:
    """Return a config from a file with flags laid over it."""
    content = read_config(file, "models and data") if file is not None else {}
    paths = {flag.name: flag.path for flag in run_flags()}
    lens_options = {paths[name][1]: value for name, value in given.items() if paths[name][0] == "lens"}
    for name, value in given.items():
        path = paths[name]
        if path[0] in ("lens", "lenses", "set", "models") or name == "saliency":
            continue
        if len(path) == 1:
            content[path[0]] = value
        else:
            content[path[0]] = {**_section(content, path[0]), path[1]: value}
    if "preset" in given:
        _forget_presets(content)
    if given.get("saliency"):
        content["saliency"] = content.get("saliency") or {}
    if given.get("model"):
        content["models"] = given["model"]
        content.pop("model", None)
    _lay_lenses(content, given.get("lens", ()), lens_options)
    if not (content.get("models") or content.get("model")):
        raise ConfigError("nothing to test; give --model SOURCE and --data PATH, or a YAML file with models and data")
    if not content.get("data"):
        raise ConfigError("no images to test on; give --data PATH (see `brinell ls datasets`), or data in a YAML file")
    return load_config(content, given.get("set", ()))


def _section(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a config as a mapping; a string stands for its first option."""
    section = content.get(name)
    if isinstance(section, str):
        return {{"track": "to"}.get(name, "source"): section}
    if not isinstance(section, (dict, type(None))):
        raise ConfigError(f"{name} should be a mapping of options, but is {section!r}")
    return dict(section or {})


def _lay_lenses(content: dict[str, Any], names: list[str], options: Mapping[str, Any]) -> None:
    """Lay lenses and their options over a config: an option goes to every lens that has it."""
    if not names and not options:
        return
    lenses = [{"name": name} for name in names] or _given_lenses(content)
    _refuse_unknown(lenses, options)
    laid = [lens | _own(lens["name"], options) for lens in lenses]
    for key in ("lens", "lenses"):
        content.pop(key, None)
    if len(laid) == 1:
        content["lens"] = laid[0]  # so that --set lens.key=value finds it
    else:
        content["lenses"] = laid


def _given_lenses(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = content.get("lenses", content.get("lens", default_lens()))
    listed = given if isinstance(given, list) else [given]
    return [{"name": lens} if isinstance(lens, str) else {"name": default_lens(), **lens} for lens in listed]


def _forget_presets(content: Mapping[str, Any]) -> None:
    """Remove the presets that lenses of a config name themselves, so that the flag's replaces them."""
    for key in ("lens", "lenses"):
        listed = content.get(key)
        for lens in listed if isinstance(listed, list) else [listed]:
            if isinstance(lens, dict):
                lens.pop("preset", None)


def _own(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a lens has."""
    known = LENSES[name].options.model_fields
    return {key: value for key, value in options.items() if key in known}


def _refuse_unknown(lenses: list[dict[str, Any]], options: Mapping[str, Any]) -> None:
    for key in options:
        if not any(key in LENSES[lens["name"]].options.model_fields for lens in lenses):
            owner = next(lens.name for lens in LENSES.values() if key in lens.options.model_fields)
            names = ", ".join(lens["name"] for lens in lenses)
            raise ConfigError(f"--{key.replace('_', '-')} is an option of the {owner} lens, but the run has {names}")
