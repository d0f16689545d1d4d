"""Windows on an accelerator have the same bytes as on the CPU, and are made without waiting for the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.config.execution import Execution
from brinell.perturb.windows import cut_windows, location_view, window_view
from devices import never_waiting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def picture(height: int, width: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng([height, width]).integers(0, 256, (3, height, width), np.uint8))


@pytest.mark.parametrize("fit", ["bilinear", "bicubic", "lanczos", "nearest", "pad"])
@pytest.mark.parametrize("side", [3, 75, 151, 224])
def test_the_same_windows_as_on_the_cpu(fit: str, side: int) -> None:
    image = picture(300, 260)
    corners = torch.tensor([[left, top] for left in (0, 1, 36) for top in (0, 1, 2, 40, 76)])
    here = cut_windows(image, side, corners, 224, 224, fit)  # type: ignore[arg-type]
    there = cut_windows(image.cuda(), side, corners, 224, 224, fit)  # type: ignore[arg-type]
    assert there.device.type == "cuda" and torch.equal(there.cpu(), here)


def test_the_same_positions_on_black_as_on_the_cpu() -> None:
    image, positions = picture(90, 70), torch.tensor([[0, 0, 50], [3, 9, 50], [174, 174, 50]], dtype=torch.float64)
    view = location_view("50px", 224, 224)
    here, there = (view.look(each, positions, lambda made: made) for each in (image, image.cuda()))
    assert torch.equal(there.cpu(), here)


def test_windows_are_made_without_waiting_for_the_device() -> None:
    image, view = picture(375, 500).cuda(), window_view("", "bilinear", 224, 224)
    corners = torch.cartesian_prod(torch.arange(40, 44), torch.arange(60, 188))
    parameters = torch.cat([corners, torch.full((len(corners), 1), 75)], 1).to(torch.float64)
    view.look(image, parameters, lambda made: made)  # weights are brought to the device once
    with never_waiting():
        view.look(image, parameters, lambda made: made)


class Lighter(nn.Module):
    """Says 1 where the left half of an image is lighter than its right half."""

    def forward(self, images: Tensor) -> Tensor:
        left, right = images.tensor_split(2, 3)
        difference = left.double().mean((1, 2, 3)) - right.double().mean((1, 2, 3))
        return torch.stack([-difference, difference], 1).float()


def test_the_same_rows_as_on_the_cpu(tmp_path: Path) -> None:
    data = [(np.random.default_rng(index).integers(0, 256, (40, 50, 3), np.uint8), index % 2) for index in range(3)]
    rows = []
    for device in ("cuda", "cpu"):
        execution = Execution(device=device, runtime="torch", batch=64)
        run = brinell.run(
            brinell.wrap(Lighter(), size=32, execution=execution),
            data,
            lens={"name": "fragility", "sizes": [0.5], "operators": ["windows", "location"]},
            out=tmp_path / device,
            execution=execution,
            quiet=True,
        )
        columns = "operator, image, kind, judged_by, windows, recognised, fragile"
        rows.append(run.rows(f"select {columns} from rows order by all").fetchall())
    assert len(rows[0]) == 3 * (8 + 4)
    different = [(one, other) for one, other in zip(*rows, strict=True) if one != other]
    assert len(different) <= 2, "means that are all but equal may fall otherwise on another device"
