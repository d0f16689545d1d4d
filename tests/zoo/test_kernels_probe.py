"""Triton kernels in general: they run in the interpreter, and where there is no device for them there are none."""

from __future__ import annotations

import pytest
import torch

from brinell import kernels
from brinell.kernels import kernels_for


def test_a_kernel_runs_in_the_interpreter(interpreted) -> None:
    count = torch.tensor([41], dtype=torch.int32)
    interpreted("probe").add_one(count)
    assert count.tolist() == [42]


def test_a_cpu_has_no_triton_kernels() -> None:
    assert kernels_for("jpeg", torch.zeros(1)) is None


def test_an_older_device_has_no_kernels(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    caplog.set_level("INFO")
    assert not kernels._works.__wrapped__("cuda", torch.device("cuda"))
    assert "compute capability 8.0 or newer" in caplog.text
