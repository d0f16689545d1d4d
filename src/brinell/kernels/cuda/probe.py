"""The smallest kernel, which shows whether Triton works on a device."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_one(count):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    tl.store(count, tl.load(count) + 1)


def add_one(count: Tensor) -> None:
    """Add one to a single number, int32 (1,), in place."""
    with torch.cuda.device_of(count):  # type: ignore[no-untyped-call]
        _add_one[(1,)](count, enable_fp_fusion=False)
