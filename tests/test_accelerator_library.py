"""Operators as a library on an accelerator: tensors stay there, with the pixels of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import brinell
from brinell.config.execution import Execution
from brinell.perturb import Perturbation, apply
from brinell.perturb.operator import OPERATORS
from brinell.perturb.property import PROPERTIES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CHANGES = [
    *((one.id, 5) for one in OPERATORS.values() if not (one.white_box or one.facts.family)),
    *((one.id, 0.3 * one.facts.strongest) for one in PROPERTIES.values()),
]


@pytest.mark.parametrize(("operator", "severity"), CHANGES)
def test_the_same_pixels_as_on_the_cpu(operator: str, severity: float) -> None:
    images = (torch.arange(3 * 3 * 48 * 64) * 7919 % 251).to(torch.uint8).view(3, 3, 48, 64)
    for given in (images, images / 255):
        changed = apply(given.cuda(), operator, severity, seed=4)
        assert changed.device.type == "cuda" and changed.dtype == given.dtype
        # floats are grey levels divided by 255, which devices round differently
        assert torch.allclose(changed.cpu(), apply(given, operator, severity, seed=4), rtol=0, atol=1e-6)


def test_boxes_and_masks_stay_on_the_device() -> None:
    turn = Perturbation("rotation", 0.1)
    masks, boxes = torch.ones(2, 48, 64, dtype=torch.bool), torch.tensor([[3.0, 4.0, 20.0, 30.0]])
    assert torch.equal(turn.masks(masks.cuda()).cpu(), turn.masks(masks))
    assert torch.allclose(turn.boxes(boxes.cuda(), 48, 64).cpu(), turn.boxes(boxes, 48, 64))


def test_copies_have_the_same_bytes(greys: Path, tmp_path: Path) -> None:
    options = {"operators": ["fog", "jpeg"], "severities": [0.4], "levels": [9]}
    for device in ("cpu", "cuda"):
        brinell.corrupt(greys, tmp_path / device, options, execution=Execution(device=device), quiet=True)
    written = [
        {
            path.relative_to(tmp_path / device): path.read_bytes()
            for path in (tmp_path / device).rglob("*")
            if path.is_file()
        }
        for device in ("cpu", "cuda")
    ]
    assert written[0] == written[1] and len(written[0]) == 27
