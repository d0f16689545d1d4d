"""Where training stands, as one safetensors file: weights, the optimiser's state, and the epochs so far."""

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
_FIX = "remove the folder's checkpoints to train anew, or give another folder with out"


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to: the mean loss and accuracy on what was trained on, and the accuracy on validation images,
    clean and changed; None where there are none. Epoch 0 is the model as it was.
    """

    epoch: int
    loss: float | None
    accuracy: float | None
    clean: float | None
    changed: float | None
    seconds: float = 0.0


@dataclass
class Standing:
    """How far training is: its epochs, which of them is kept, and whether it is over."""

    epochs: list[Epoch] = field(default_factory=list)
    kept: int = 0
    done: bool = False
    reason: str | None = None


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A module's weights and buffers on the host, each with memory of its own."""
    return {name: value.detach().cpu().contiguous().clone() for name, value in module.state_dict().items()}


def save_last(
    store: Store, module: nn.Module, optimiser: torch.optim.Optimizer, scaler: torch.amp.GradScaler, standing: Standing
) -> None:
    """Write where training stands, whole or not at all."""
    tensors = {f"weights/{name}": value for name, value in weights_of(module).items()}
    for number, own in optimiser.state_dict()["state"].items():
        for name, value in own.items():
            if isinstance(value, Tensor):
                tensors[f"optimiser/{number}/{name}"] = value.detach().cpu().contiguous().clone()
    told = {"standing": asdict(standing), "scaler": scaler.state_dict()}
    store.write(save(tensors, {"brinell": json.dumps(told)}), *LAST)


def load_last(
    store: Store, module: nn.Module, optimiser: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> Standing | None:
    """Go back to where training stood, if it did."""
    if not store.exists(*LAST):
        return None
    data, place = store.read(*LAST), store.place(*LAST)
    tensors, told = _unpacked(data, place)
    weights = {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith("weights/")}
    require_fit(module, weights, place, _FIX)
    module.load_state_dict(weights)
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition("/")
        if kind == "optimiser":
            number, _, key = rest.partition("/")
            state.setdefault(int(number), {})[key] = value
    try:
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        if told["scaler"]:
            scaler.load_state_dict(told["scaler"])
        standing = Standing(**{**told["standing"], "epochs": [Epoch(**one) for one in told["standing"]["epochs"]]})
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{place} can't be gone on with ({error}); {_FIX}") from None
    return standing


def _unpacked(data: bytes, place: str) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """A safetensors file's tensors and what was told with them."""
    try:
        size = int.from_bytes(data[:8], "little")
        return load(data), json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["brinell"])
    except Exception as error:  # safetensors' errors have no common base
        raise ModelError(f"{place} is no checkpoint of brinell ({error}); {_FIX}") from None


def save_kept(store: Store, module: nn.Module) -> None:
    """Write the weights of the epoch that is kept."""
    store.write(save(weights_of(module)), *KEPT)


def load_kept(store: Store, module: nn.Module) -> None:
    """Give a module the weights that were kept."""
    weights = load(store.read(*KEPT))
    require_fit(module, weights, store.place(*KEPT), _FIX)
    module.load_state_dict(weights)
