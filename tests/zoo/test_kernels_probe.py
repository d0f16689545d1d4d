"""Triton kernels in general: they run in the interpreter, and where there is no device for them there are none."""

from __future__ import annotations

import torch

from brinell.kernels import kernels_for


def test_a_kernel_runs_in_the_interpreter(interpreted) -> None:
    count = torch.tensor([41], dtype=torch.int32)
    interpreted("probe").add_one(count)
    assert count.tolist() == [42]


def test_a_cpu_has_no_kernels() -> None:
    assert kernels_for("probe", torch.zeros(1)) is None
