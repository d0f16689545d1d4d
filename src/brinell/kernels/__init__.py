"""What tensor code does in many steps, in one pass: Triton kernels for CUDA devices (`cuda/`), Numba kernels for CPUs
(`cpu/`). Both give the bits of the tensor code (but for lengths of paths, whose sums are rounded).

A module belongs to the module of tensor code that asks `kernels_for` for it, and that works without it. A module of both
folders has the same functions in both.
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
        return _module(f"cuda.{name}") if _compiles_for(tensor.device) else None
    return _host_module(name) if tensor.device.type == "cpu" else None


@cache
def _module(name: str) -> ModuleType:
    return importlib.import_module(f"brinell.kernels.{name}")


@cache
def _host_module(name: str) -> ModuleType | None:
    """Return a module of kernels for CPUs, if there is one and Numba is installed."""
    there = importlib.util.find_spec(f"brinell.kernels.cpu.{name}") is not None
    return _module(f"cpu.{name}") if there and numba_is_installed() else None


@cache
def numba_is_installed() -> bool:
    """Return whether Numba can be imported, and say why not if it is there."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except Exception as error:  # it refuses versions of NumPy that it doesn't know
        LOG.info("No kernels for the CPU: %s", (str(error).strip() or type(error).__name__).splitlines()[0])
        return False
    return True


@cache
def _compiles_for(device: torch.device) -> bool:
    """Return whether Triton compiles and runs a kernel on a device, and say why not."""
    try:
        if torch.version.hip is not None or torch.cuda.get_device_capability(device) < LEAST:
            raise RuntimeError(f"kernels need an NVIDIA GPU of compute capability {LEAST[0]}.{LEAST[1]} or newer")
        probe = _module("cuda.probe")
        count = torch.zeros(1, dtype=torch.int32, device=device)
        probe.add_one(count)
        return int(count) == 1
    except Exception as error:  # no Triton, no C compiler for it, or a device that is too old
        LOG.info("No Triton kernels on %s: %s", device, (str(error).strip() or type(error).__name__).splitlines()[0])
        return False
