"""The user's own torch modules: built by a function, with weights from a file if there is one."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from brinell.config.execution import Execution
from brinell.config.model import WEIGHTS, ModelOptions
from brinell.errors import ConfigError, ModelError
from brinell.models.checkpoints import load_state, read_state
from brinell.models.code import code_digest
from brinell.models.model import Model
from brinell.models.modules import code_facts, model_from_module
from brinell.models.preprocess import Preprocess


def open_torch(rest: str, options: ModelOptions, execution: Execution) -> Model:
    """Open `package.module:factory`, `file.py:factory`, or a weights file whose `factory` is an option."""
    file = Path(rest).expanduser()
    if file.suffix in WEIGHTS:
        module, origin = _load_with_weights(file, options, execution)
    else:
        module, origin = _build(rest)
    code = code_digest(module, factory=origin)
    model = model_from_module(module, options, execution, known=Preprocess(), classes=None)
    return replace(model, facts={**model.facts, **code_facts(code)})


def _build(text: str) -> tuple[nn.Module, ModuleType]:
    """Build a module by `package.module:factory` or `file.py:factory`, and return the Python module of the factory, too.

    The factory is called without arguments.
    """
    path, _, name = text.rpartition(":")
    if not path or not name:
        raise ConfigError(f"expected torch:package.module:factory, got torch:{text}")
    module = _import_file(Path(path)) if path.endswith(".py") else _import(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ModelError(f"{path} has no function or class {name!r} that builds the model")
    try:
        built = factory()
    except Exception as error:  # the user's code may raise anything
        raise ModelError(f"{text} can't be built: {type(error).__name__}: {error}") from error
    if not isinstance(built, nn.Module):
        raise ModelError(f"{text} should return a torch.nn.Module, but returned {type(built).__name__}")
    return built, module


def _import(name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # the user's module may lie in the current folder
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"can't import {name}: {error}; is it installed, or in the current folder?") from error


def _import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():  # the factory of a weights file
        raise ModelError(f"there is no file {path}; check the path")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_with_weights(file: Path, options: ModelOptions, execution: Execution) -> tuple[nn.Module, ModuleType | None]:
    """Build a module and load its weights from a file, which is only unpickled if the user trusts it."""
    if options.factory is None:
        if execution.trust and file.suffix != ".safetensors":
            return _unpickle(file), None
        raise ModelError(
            f"{file.name} holds weights only; name the function that builds its module: "
            f"torch:{file}?factory=package.module:factory"
        )
    module, origin = _build(options.factory)
    load_state(module, read_state(file, trust=execution.trust), file, options.factory)
    return module, origin


def _unpickle(file: Path) -> nn.Module:
    built = torch.load(file, map_location="cpu", weights_only=False)
    if not isinstance(built, nn.Module):
        raise ModelError(f"{file.name} holds a {type(built).__name__}, not a module; add ?factory=package.module:factory")
    return built
