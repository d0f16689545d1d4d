"""The torch device that models run on."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

import torch
from torch.nn.functional import conv2d

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


def wake(execution: Execution) -> None:
    """Start the accelerator and its libraries in the background, which takes a second, while a model is read."""

    def first_use() -> None:
        with suppress(Exception):  # whoever uses the device next says what is wrong with it
            image = torch.zeros(8, 8, device=select_device(execution))
            conv2d((image @ image)[None, None], image[None, None, :3, :3]).sum().item()

    if execution.device != "cpu" and torch.cuda.is_available():
        Thread(target=first_use).start()
