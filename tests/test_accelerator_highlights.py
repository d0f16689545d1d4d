"""Highlights and saliency maps on an accelerator: the CPU's pixels to the bit, and its maps up to rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn

import brinell
from brinell.engine.threads import two_in_flight
from brinell.models.preprocess import Preprocess
from brinell.perturb.highlight import WHITE, add_highlights, highlight_grid, highlight_view
from brinell.resizing import local as lighting
from brinell.resizing import repaint, resample
from brinell.resizing.local import Local
from brinell.saliency.mapper import open_mapper
from test_accelerator import pictures

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIGMAS = torch.tensor([3.0, 10.0, 20.0, 40.0])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(31, 47), (299, 299), (375, 500)], ids=str)
def test_the_same_light_as_on_the_cpu(channels: int, size: tuple[int, int]) -> None:
    image, spots = pictures(*size, channels, 1), highlight_grid(*size, 5, SIGMAS)
    for colour in ((255.0, 255.0, 255.0), (255.0, 140.0, 20.0)):
        here, there = add_highlights(image, spots, colour), add_highlights(image.cuda(), spots, colour)
        assert torch.equal(there.cpu(), here)


@pytest.mark.parametrize("short_side", [None, 256])
@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(31, 47), (299, 299), (375, 500), (500, 333)], ids=str)
def test_the_same_canvases_as_on_the_cpu(size: tuple[int, int], how: str, short_side: int | None) -> None:
    preprocess = Preprocess(224, 224, short_side=short_side, interpolation=how)  # type: ignore[arg-type]
    image, spots = pictures(*size, 3, 1)[0], highlight_grid(*size, 5, SIGMAS)
    spots[::7, 3] = 1.7
    for colour in (WHITE, (255.0, 140.0, 20.0)):
        lit = highlight_view("exact", colour).local
        assert lit is not None
        painted = replace(lit, light=None)  # as a change that is no light

        def made(image: torch.Tensor, local: Local) -> torch.Tensor:
            return preprocess.repaint(preprocess.repainter(image), local, spots)

        here, there = made(image, lit), made(image.cuda(), lit)
        assert there.device.type == "cuda"
        assert torch.equal(there.cpu(), here)
        assert torch.equal(made(image.cuda(), painted), there)
        with (
            patch.object(repaint, "load_kernels", lambda kind: None),
            patch.object(resample, "load_kernels", lambda kind: None),
        ):
            assert torch.equal(made(image.cuda(), lit), there)


def test_plans_of_two_streams_are_apart() -> None:
    """Twice as many plans as are kept, made and used in turns by two threads with streams of their own."""
    images = pictures(150, 200, 3, 2 * lighting.KEPT)
    preprocess, local = Preprocess(224, 224), highlight_view("exact").local
    assert local is not None
    every = [highlight_grid(150, 200, 3, SIGMAS + place) for place in range(len(images))]
    ready = [preprocess.repainter(image.cuda()) for image in images]
    places = list(range(len(images))) * 8
    made = two_in_flight(lambda at: preprocess.repaint(ready[at], local, every[at]), places, torch.device("cuda"))
    clean = [preprocess.repaint(preprocess.repainter(each), local, own) for each, own in zip(images, every, strict=True)]
    for at, inputs in zip(places, made, strict=True):
        assert torch.equal(inputs.cpu(), clean[at])


@pytest.mark.parametrize("how", ["bilinear", "bicubic", "lanczos"])
def test_the_kernel_is_there_and_gives_pillows_bytes(how: str) -> None:
    assert resample.load_kernels("cuda") is not None
    for source, target in (
        ((299, 299), (224, 224)),
        ((375, 500), (224, 224)),
        ((31, 47), (224, 300)),
        ((901, 1203), (64, 96)),
    ):
        images = pictures(*source, 3, 2)
        there = resample.resize(images.cuda(), *target, how)  # type: ignore[arg-type]
        assert torch.equal(there.cpu(), resample.resize(images, *target, how))  # type: ignore[arg-type]


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(
            nn.Conv2d(3, 8, 5, 4),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 4),
        )


def test_the_same_maps_as_on_the_cpu() -> None:
    inputs, classes = pictures(224, 224, 3), torch.arange(6) % 4
    maps = []
    for device in ("cpu", "cuda"):
        execution = brinell.Execution(device=device, runtime="torch")
        model = brinell.wrap(network(), execution=execution)
        with open_mapper(model) as mapper:
            maps.append(mapper.maps(inputs.to(device), classes.to(device)).cpu())
    assert torch.allclose(maps[0], maps[1], atol=1e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_with_saliency(precision: str, tmp_path: Path) -> None:
    execution = brinell.Execution(device="cuda", precision=precision, batch=64)  # type: ignore[arg-type]
    data = [(image.permute(1, 2, 0).numpy(), None) for image in pictures(150, 200, 3, 8)]
    run = brinell.run(
        brinell.wrap(network(), execution=execution),
        {"source": data, "labels": "prediction"},
        lens={"name": "highlights", "search_queries": 60},
        saliency={"pairs": 10},
        out=tmp_path / "run",
        execution=execution,
        quiet=True,
    )
    assert run.rows("select count(*) from rows where operator = 'highlight:exact'").fetchall() == [(8 * 101,)]
    assert run.findings()["saliency"].layers == {"Sequential": "2, after 3"}  # type: ignore[union-attr]
