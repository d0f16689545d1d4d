"""What tensor code does in many steps, in one pass: Triton kernels for CUDA devices (`cuda/`), Numba kernels for CPUs
(`cpu/`). Both reproduce the tensor code bit for bit, except for images that move for
searches and the lengths of their paths, which are rounded differently.

Each module of kernels serves one module of tensor code, which asks for it by `kernels_for` and also works without it. A
module that exists in both folders has the same functions in both.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
LEAST = (8, 0)  # compute capability; tensor code serves older GPUs, and those of other makers


def kernels_for(name: str, tensor: Tensor) -> ModuleType | None:
    """Return a module of kernels for tensors like this one; None where there is none that works on their device."""
    if tensor.is_cuda:
        return _module(f"cuda.{name}") if _exists("cuda", name) and _works("cuda", tensor.device) else None
    if tensor.device.type == "cpu":
        return _module(f"cpu.{name}") if _exists("cpu", name) and numba_works() else None
    return None


@cache
def _module(name: str) -> ModuleType:
    return importlib.import_module(f"brinell.kernels.{name}")


@cache
def _exists(folder: str, name: str) -> bool:
    return importlib.util.find_spec(f"brinell.kernels.{folder}.{name}") is not None


@cache
def numba_works() -> bool:
    """Return whether Numba is installed, compiles and runs a kernel; if it is installed and does not, say why."""
    return importlib.util.find_spec("numba") is not None and _works("cpu", torch.device("cpu"))


@cache
def _works(folder: str, device: torch.device) -> bool:
    """Return whether a kernel is compiled and runs on a device, and say why not."""
    try:
        _require(folder, device)
        probe = _module(f"{folder}.probe")
        count = torch.zeros(1, dtype=torch.int32, device=device)
        probe.add_one(count)
        return int(count) == 1
    except Exception as error:  # no Triton, no C compiler for it, a device that is too old, or a NumPy too new for Numba
        LOG.info("No kernels on %s: %s", device, (str(error).strip() or type(error).__name__).splitlines()[0])
        return False


def _require(folder: str, device: torch.device) -> None:
    """Raise if a device is not one that kernels are for."""
    if folder == "cpu":
        if importlib.import_module("numba").config.DISABLE_JIT:
            raise RuntimeError("NUMBA_DISABLE_JIT is set")
    elif torch.version.hip is not None or torch.cuda.get_device_capability(device) < LEAST:
        raise RuntimeError(f"kernels need an NVIDIA GPU of compute capability {LEAST[0]}.{LEAST[1]} or newer")
