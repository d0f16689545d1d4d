"""The torch device that models run on."""

from __future__ import annotations

import torch

from brinell.config.execution import Execution
from brinell.errors import ConfigError


def select_device(execution: Execution) -> torch.device:
    """Return the torch device of the options, and raise if it doesn't exist."""
    if execution.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(execution.device)
    except RuntimeError:
        raise ConfigError(f"there is no device {execution.device!r}; use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device is cuda, but torch finds no CUDA device here; use --device cpu or auto")
    return device
