"""Hardening on an accelerator: the same changes as on a CPU, and every precision trains and goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import brinell
import brinell.hardening.training as loop
from test_harden import settings
from test_hardening import EVERY, NUMBERS, augmentation, pictures

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("width", [1, 3])
def test_changes_are_those_of_a_cpu(width: int) -> None:
    images, change = pictures(), augmentation(*EVERY, share=0.9, depth=3, width=width)
    made = change(images.cuda(), NUMBERS, "1").cpu()
    expected = change(images, NUMBERS, "1")
    assert torch.equal(made, expected) if width == 1 else int((made.int() - expected.int()).abs().max()) <= 1


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_interrupted_training_resumes_in_every_precision(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    content: dict[str, Any] = settings(
        tmp_path,
        training={"epochs": 3, "batch": 8, "rate": 0.01, "precision": precision},
        execution={"device": "cuda", "batch": 32},
    )
    real = loop._loss

    def stopping(*given: Any) -> Any:
        if given[-1] == 2:
            raise Stop
        return real(*given)

    monkeypatch.setattr(loop, "_loss", stopping)
    with pytest.raises(Stop):
        brinell.harden(content, quiet=True)
    monkeypatch.setattr(loop, "_loss", real)
    found = brinell.harden(content, quiet=True)
    assert len(found.record["epochs"]) == 4 and found.record["epochs"][-1]["loss"] < found.record["epochs"][1]["loss"]
    assert found.model.device.type == "cuda"
