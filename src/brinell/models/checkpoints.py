"""Weights files: read without running code from them, and fitted to the network that they were saved from."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from brinell.errors import ConfigError, ModelError

State = dict[str, Tensor]
Build = Callable[[int | None], nn.Module]  # makes a network with random weights for a number of classes

#: where training scripts put the weights in what they save; averaged ones first, as timm does
NESTED = (
    "state_dict_ema",
    "model_ema",
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "net",
    "weights",
)


def build_with_checkpoint(
    build: Build, file: Path, own: int, classes: int | None = None, *, trust: bool = False
) -> tuple[nn.Module, int]:
    """Return a network with the weights of a file, and its number of classes.

    `own` is the number that the network has by default. The weights' number is read from the layers that have as many
    outputs; where that doesn't tell, as for some detectors, it is `classes` or else `own`.
    """
    state = read_state(file, trust=trust)
    network = build(None)
    state = _without_prefix(state, network.state_dict())
    found = _count_classes(state, network.state_dict(), own)
    if None not in (classes, found) and classes != found:
        raise ModelError(f"{file.name} has weights for {found} classes, but classes has {classes}; check both")
    count = found or classes or own
    if count != own:
        network = build(count)
    load_state(network, state, file, f"a network of {count} classes")
    return network, count


def load_state(network: nn.Module, state: Mapping[str, Tensor], file: Path, name: str) -> None:
    """Load weights into a network, and raise an error of one line if they don't fit."""
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        problem = " ".join(str(error).partition(":\n")[2].split())[:300] or str(error)
        raise ModelError(f"{file.name} doesn't fit {name}: {problem}") from error


def read_state(file: Path, *, trust: bool) -> State:
    """Read the weights of a file: safetensors, or what torch saved, which may only run code if it is trusted."""
    if not file.is_file():
        raise ModelError(f"there is no weights file {file}; check the path")
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        try:
            return dict(load_file(file))
        except Exception as error:  # safetensors' errors have no common base
            raise ModelError(f"{file.name} can't be read as safetensors: {error}") from error
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):  # options of training scripts: attributes, no code
            content = torch.load(file, map_location="cpu", weights_only=not trust)
    except Exception as error:  # torch raises pickle's errors, and its own
        raise ModelError(
            f"{file.name} can't be loaded without running code from it; use a safetensors file, or --trust if you trust "
            "its source"
        ) from error
    return _find_state(content, file)


def _find_state(content: Any, file: Path) -> State:
    """Return the weights in what a training script saved: the content itself, or under one of the usual names."""
    while not _is_state(content):
        if isinstance(content, nn.Module):
            return dict(content.state_dict())
        inner = [content[key] for key in NESTED if key in content] if isinstance(content, Mapping) else []
        if not inner:
            keys = f" with {', '.join(map(str, list(content)[:8]))}" if isinstance(content, Mapping) else ""
            raise ConfigError(
                f"expected weights in {file.name}, or a mapping that holds them under one of {', '.join(NESTED)}; "
                f"got {type(content).__name__}{keys}"
            )
        content = inner[0]
    return dict(content)


def _is_state(content: Any) -> bool:
    return isinstance(content, Mapping) and bool(content) and all(isinstance(value, Tensor) for value in content.values())


def _without_prefix(state: State, expected: Mapping[str, Tensor]) -> State:
    """Return weights without what wrappers put before their names (module., model., _orig_mod.)."""
    last = list(expected)[-1]  # of the classifier; names at the start, such as conv1.weight, recur inside blocks
    prefixes = {name[: -len(last)] for name in state if name.endswith(last)} | {""}
    prefix = max(sorted(prefixes), key=lambda one: sum(one + name in state for name in expected))
    return {name[len(prefix) :]: value for name, value in state.items() if name.startswith(prefix)}


def _count_classes(state: State, expected: Mapping[str, Tensor], own: int) -> int | None:
    """Return the number of classes that weights are for, by the layers whose outputs are the classes."""
    counts = {
        state[name].shape[0]
        for name, value in expected.items()
        if name in state and value.ndim and value.shape[0] == own and value.shape[1:] == state[name].shape[1:]
    }
    return counts.pop() if len(counts) == 1 else None
