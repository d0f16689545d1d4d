"""Checkpoints: weights, the state of the optimiser and the epochs so far, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from brinell.errors import ModelError, RunError
from brinell.models.hardened import require_fit
from brinell.runs.store import Store

LAST, KEPT = ("checkpoints", "last.safetensors"), ("checkpoints", "kept.safetensors")
_FIX = "remove the folder's checkpoints to start over, or choose another folder with out"


@dataclass(frozen=True)
class Epoch:
    """Loss and accuracy on the training images, and accuracy on clean and changed validation images; None where there are
    none. Epoch 0 is the model before training.
    """

    epoch: int
    loss: float | None
    accuracy: float | None
    clean: float | None
    changed: float | None
    seconds: float = 0.0


@dataclass
class TrainingState:
    """The epochs so far, which of them is kept, and whether training is done, with the reason if it stopped early."""

    epochs: list[Epoch] = field(default_factory=list)
    kept: int = 0
    done: bool = False
    reason: str | None = None


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of a module's weights and buffers on the host."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}


def save_last(
    store: Store, module: nn.Module, optimiser: torch.optim.Optimizer, scaler: torch.amp.GradScaler, state: TrainingState
) -> None:
    """Write a checkpoint atomically."""
    tensors = {f"weights/{name}": value for name, value in weights_of(module).items()}
    for number, own in optimiser.state_dict()["state"].items():
        for name, value in own.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser/{number}/{name}"] = value.detach().cpu().contiguous().clone()
    metadata = {"state": asdict(state), "scaler": scaler.state_dict()}
    store.write(save(tensors, {"brinell": json.dumps(metadata)}), *LAST)


def load_last(
    store: Store, module: nn.Module, optimiser: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> TrainingState | None:
    """Load the last checkpoint, if there is one, and return the state of training."""
    if not store.exists(*LAST):
        return None
    data, path = store.read(*LAST), store.place(*LAST)
    tensors, metadata = _unpack(data, path)
    weights = {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith("weights/")}
    require_fit(module, weights, path, _FIX)
    module.load_state_dict(weights)
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "optimiser":
            number, _, key = rest.partition("/")
            moments.setdefault(int(number), {})[key] = value
    try:
        optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
        if metadata["scaler"]:
            scaler.load_state_dict(metadata["scaler"])
        known = metadata["state"]
        return TrainingState(**{**known, "epochs": [Epoch(**one) for one in known["epochs"]]})
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"can't resume from {path} ({error}); {_FIX}") from None


def _unpack(data: bytes, path: str) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """Return a safetensors file's tensors and metadata."""
    try:
        size = int.from_bytes(data[:8], "little")
        return load(data), json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["brinell"])
    except Exception as error:  # safetensors' errors have no common base
        raise ModelError(f"{path} is not a checkpoint of brinell ({error}); {_FIX}") from None


def save_kept(store: Store, module: nn.Module) -> None:
    """Write the weights of the epoch to keep."""
    store.write(save(weights_of(module)), *KEPT)


def load_kept(store: Store, module: nn.Module) -> None:
    """Load the weights of the kept epoch into a module."""
    weights = load(store.read(*KEPT))
    require_fit(module, weights, store.place(*KEPT), _FIX)
    module.load_state_dict(weights)
