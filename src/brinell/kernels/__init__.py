"""Triton kernels for CUDA devices: what tensor code does in many steps, in one or a few launches, to the same bits
(but for lengths of paths, whose sums are rounded).

Tensor code reads and writes memory once per step, and beside a network at full speed those passes count. A module here
belongs to the module of tensor code that asks `kernels_for` for it, and that works without it. Kernels are compiled when
they are first launched (Triton keeps them on disk). Tests run them on a CPU, in Triton's interpreter.

Floats: Triton may fuse a product and a sum into one rounding, which tensor code does not. Launches with floats that are not
whole numbers pass `enable_fp_fusion=False`.
"""

from __future__ import annotations

import importlib
import logging
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)
LEAST = (8, 0)  # compute capability; tensor code serves older GPUs, and those of other makers


def kernels_for(name: str, tensor: Tensor) -> ModuleType | None:
    """Return a module of kernels for tensors like this one; None where Triton can't compile for their device."""
    return _module(name) if tensor.is_cuda and _usable(tensor.device) else None


@cache
def _module(name: str) -> ModuleType:
    return importlib.import_module(f"brinell.kernels.{name}")


@cache
def _usable(device: torch.device) -> bool:
    """Return whether Triton compiles and runs a kernel on a device, and say why not."""
    try:
        if torch.version.hip is not None or torch.cuda.get_device_capability(device) < LEAST:
            raise RuntimeError(f"kernels need an NVIDIA GPU of compute capability {LEAST[0]}.{LEAST[1]} or newer")
        probe = _module("probe")
        count = torch.zeros(1, dtype=torch.int32, device=device)
        probe.add_one(count)
        return int(count) == 1
    except Exception as error:  # no Triton, no C compiler for it, or a device that is too old
        LOG.info("No Triton kernels on %s: %s", device, (str(error).strip() or type(error).__name__).splitlines()[0])
        return False
