"""The kernels that light and resize on CUDA devices, interpreted on the CPU: Pillow's bytes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
import torch

from brinell.perturb.highlight import add_highlights, highlight_boxes, highlight_grid, highlight_view
from brinell.resizing import repaint, resample

pytest.importorskip("triton", reason="needs Triton, which comes with torch for CUDA")
HOW = ("bilinear", "bicubic", "lanczos")


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found = importlib.reload(importlib.import_module("brinell.resizing.kernels"))
    for module in (resample, repaint):
        monkeypatch.setattr(module, "load_kernels", lambda kind: found)
    yield found


def noise(*shape: int) -> torch.Tensor:
    values = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    values[..., : shape[-1] // 2] = np.where(values[..., : shape[-1] // 2] > 127, 255, 0)  # sums that have to be cut
    return torch.from_numpy(values)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("source", "target"), [((37, 51), (24, 24)), ((100, 75), (70, 33)), ((9, 14), (30, 70))])
def test_one_pass_after_the_other(interpreted: ModuleType, source, target, channels: int, how) -> None:
    images = noise(2, channels, *source)
    made = resample.resize_axis(images, target[1], how, across=True)
    made = resample.resize_axis(made, target[0], how, across=False)
    assert torch.equal(made, resample.resize(images, *target, how))


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("height", "width"), [(75, 100), (20, 31)])
def test_windows_of_an_image(interpreted: ModuleType, height: int, width: int, how) -> None:
    image, spots = noise(3, height, width), highlight_grid(height, width, 4, torch.tensor([2.0, 6.0, 15.0]))

    def paint(windows: torch.Tensor, corners: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        return add_highlights(windows, spots[which], corners=corners)

    whole = resample.resize(add_highlights(image[None], spots), 64, 64, how)
    ready = repaint.Repainter(image, 64, 64, how)
    assert torch.equal(ready.render_windows(highlight_boxes(spots, height, width), paint), whole)


@pytest.mark.parametrize(
    ("size", "how", "colour"),
    [
        ((3, 37, 51), "bicubic", (255.0, 140.0, 20.0)),
        ((1, 37, 51), "bilinear", (255.0, 140.0, 20.0)),
        ((3, 20, 31), "lanczos", (255.0, 255.0, 255.0)),
    ],
    ids=["orange", "grey", "white"],
)
def test_light_on_an_image(interpreted: ModuleType, size, how, colour) -> None:
    image, spots = noise(*size), highlight_grid(*size[1:], 2, torch.tensor([2.0, 6.0]))
    spots[::4, 3] = 1.7  # light that no byte holds
    local = highlight_view("exact", colour).local
    whole = resample.resize(add_highlights(image[None], spots, colour), 24, 30, how)
    assert torch.equal(repaint.Repainter(image, 24, 30, how).render(local, spots), whole)
