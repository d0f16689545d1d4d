"""What holds on an accelerator: the CPU's pixels to the bit, and batches that halve when memory runs out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell import draws as drawing
from brinell.config.execution import Execution
from brinell.draws import Draws, key
from brinell.kernels import kernels_for
from brinell.models import preprocess as preprocessing
from brinell.models.fusing import FusedConvolution
from brinell.models.preprocess import Format, Preprocess
from brinell.perturb import difference as measuring
from brinell.perturb import exchange
from brinell.perturb.difference import Difference, count_colours, difference, mean_grey
from brinell.perturb.operator import OPERATORS, Operator, find_operator
from devices import never_waiting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

ALL = [pytest.param(operator, id=operator.id) for operator in OPERATORS.values()]
SIZES = [(8, 8), (31, 12), (224, 224)]


def pictures(height: int, width: int, channels: int, count: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(height + width)
    coarse = torch.rand(count, channels, 5, 5, generator=generator) * 255
    smooth = nn.functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)
    return (smooth + torch.randint(-15, 16, smooth.shape, generator=generator)).clamp(0, 255).to(torch.uint8)


def brighter_is_worse(images: Tensor, rows: Tensor | slice) -> Tensor:
    return images.to(torch.float32) / 256 - 0.5  # exact in both places


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_same_pixels_as_on_the_cpu(operator: Operator, channels: int, size: tuple[int, int]) -> None:
    clean = pictures(*size, channels)
    ids = torch.arange(len(clean)) * 7919 - 3
    for level in (1, 7, 30):
        here = operator.at(clean, level, seed=9, ids=ids, gradient=brighter_is_worse)
        there = operator.at(clean.cuda(), level, seed=9, ids=ids.cuda(), gradient=brighter_is_worse)
        assert there.device.type == "cuda"
        assert torch.equal(there.cpu(), here), f"level {level}: {int((there.cpu() != here).sum())} values differ"


LOCAL = ["local_blur", "boxes", "black_lines", "noise", "white_fog", "pixel_exchange", "adjacent_exchange"]


@pytest.mark.parametrize("name", LOCAL)
@pytest.mark.parametrize("variant", ["published", "paper"])
def test_the_same_pixels_in_large_batches(name: str, variant: str) -> None:
    """More images than the device works on at once, of odd sides."""
    operator, clean = find_operator(name, variant), pictures(75, 101, 3, 700)
    ids = torch.arange(len(clean)) * 31 + 1
    here = operator.at(clean, 2, seed=1, ids=ids)
    assert torch.equal(operator.at(clean.cuda(), 2, seed=1, ids=ids.cuda()).cpu(), here)


@pytest.mark.parametrize("swap", [False, True], ids=["copies", "swaps"])
@pytest.mark.parametrize("pairs", list(exchange.PAIRS))
def test_the_same_pixels_where_exchanges_depend_on_each_other(pairs: str, swap: bool) -> None:
    clean, ids = pictures(9, 7, 3, 64), torch.arange(64)
    here = exchange._exchange(clean, Draws.of(3, ids), 500, pairs, swap=swap)
    there = exchange._exchange(clean.cuda(), Draws.of(3, ids.cuda()), 500, pairs, swap=swap)
    assert torch.equal(there.cpu(), here)


@pytest.mark.parametrize("name", LOCAL)
def test_the_host_never_waits_for_a_step(name: str) -> None:
    operator, clean, ids = find_operator(name), pictures(64, 48, 3).cuda(), torch.arange(6).cuda()
    if kernels_for("exchange", clean) is None:
        pytest.skip("needs Triton")
    first = operator.at(clean, 2, seed=1, ids=ids)  # compiles
    with never_waiting():
        again = operator.at(clean, 2, seed=1, ids=ids)
    assert torch.equal(again, first)


@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("short_side", [None, 40])
@pytest.mark.parametrize("size", [*SIZES, (299, 500)], ids=str)
def test_the_same_canvases_as_on_the_cpu(how: Any, short_side: int | None, size: tuple[int, int]) -> None:
    images, pre = pictures(*size, 3), Preprocess(32, 32, short_side=short_side, interpolation=how)
    assert torch.equal(pre.inputs(images.cuda()).cpu(), pre.inputs(images))


@pytest.fixture(params=[True, False], ids=["kernels", "tensors"])
def with_kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    for module in (drawing, measuring, preprocessing):
        if not request.param:
            monkeypatch.setattr(module, "kernels_for", lambda name, tensor: None)
    if request.param and kernels_for("probe", torch.zeros(1, device="cuda")) is None:
        pytest.skip("needs Triton")
    return bool(request.param)


def test_the_same_draws_as_on_the_cpu(with_kernels: bool) -> None:
    ids = torch.arange(-50, 50) * (1 << 40)
    for name in (key(3, "law"), 1):
        for step in (0, 5, torch.arange(100)):
            given = step.cuda() if isinstance(step, Tensor) else step
            here, there = Draws.of(name, ids, step), Draws.of(name, ids.cuda(), given)
            assert torch.equal(here.keys, there.keys.cpu())
    for count in (1, 1000, 3000):
        assert torch.equal(here.bits(2, count), there.bits(2, count).cpu())
        assert torch.equal(here.below(2, count, 50176), there.below(2, count, 50176).cpu())
        assert torch.equal(here.between(1, count, -7, 1000), there.between(1, count, -7, 1000).cpu())
        assert torch.equal(here.uniform(0, count), there.uniform(0, count).cpu())


def assert_same_distances(there: Difference, here: Difference, *, to_the_bit: bool) -> None:
    for name in ("l0", "l1", "l2", "linf", "mae", "mse", *(["changed"] if to_the_bit else [])):
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name)), name
    torch.testing.assert_close(there.changed.cpu(), here.changed)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_same_distances_as_on_the_cpu(with_kernels: bool, channels: int) -> None:
    for size in ((1, 1), (8, 8), (31, 13), (64, 48), (224, 224), (299, 299), (448, 432)):
        clean = pictures(*size, channels)
        changed = clean.flip(0)
        for first in (clean, clean[1:2]):
            here, there = difference(first, changed), difference(first.cuda(), changed.cuda())
            assert_same_distances(there, here, to_the_bit=with_kernels)
        grey, total = mean_grey(changed.cuda()).cpu(), changed.flatten(1).sum(1)
        torch.testing.assert_close(grey, mean_grey(changed))
        if with_kernels:  # sums of floats depend on their order above 2**24
            assert torch.equal(grey, total.float() / changed[0].numel())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [*SIZES, (299, 299)], ids=str)
def test_the_same_numbers_of_colours_as_on_the_cpu(with_kernels: bool, size: tuple[int, int], channels: int) -> None:
    clean = pictures(*size, channels)
    ids = torch.arange(len(clean))
    for images in (clean, *(find_operator("posterise").at(clean, level, seed=0, ids=ids) for level in (1, 15, 30))):
        assert torch.equal(count_colours(images.cuda()).cpu(), count_colours(images))


@pytest.mark.parametrize("bgr", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last], ids=str)
def test_the_same_normalised_images_as_on_the_cpu(
    with_kernels: bool, memory: torch.memory_format, dtype: torch.dtype, bgr: bool
) -> None:
    preprocess = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), bgr=bgr)
    grey, form = Preprocess(channels=1, mean=(0.5,), std=(0.3,)), Format(dtype, memory)
    values = (torch.arange(3 * 31 * 256) * 7919 % 256).to(torch.uint8).view(1, 3, 31, 256)
    for given in (values, *(pictures(*size, 3) for size in (*SIZES, (299, 299)))):
        found = preprocess.normalise(given.cuda(), form)
        assert found.dtype == dtype and form.convert(found) is found
        assert torch.equal(found.cpu(), preprocess.normalise(given, form))
        assert torch.equal(grey.normalise(given[:, :1].cuda(), form).cpu(), grey.normalise(given[:, :1], form))


def test_the_host_never_waits_for_what_all_batches_share() -> None:
    clean, ids = pictures(64, 48, 3).cuda(), torch.arange(6).cuda()
    if kernels_for("difference", clean) is None:
        pytest.skip("needs Triton")

    def share() -> list[Tensor]:
        draws, form = Draws.of(3, ids), Format(torch.bfloat16, torch.channels_last)
        drawn = [draws.bits(0, 9), draws.below(1, 9, 5), draws.uniform(2, 9), draws.between(3, 9, 4, 8)]
        return [difference(clean, clean.flip(0)).l2, mean_grey(clean), Preprocess().normalise(clean, form), *drawn]

    first = share()  # compiles
    with never_waiting():
        again = share()
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_scores_do_not_depend_on_how_images_are_normalised(precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    execution = Execution(device="cuda", precision=precision, runtime="torch")
    model, inputs = brinell.wrap(network, mean=(0.4, 0.5, 0.6), execution=execution), pictures(224, 224, 3, 4).cuda()
    found = [model.predict(inputs[:count]) for count in (1, 3, 4)]
    monkeypatch.setattr(preprocessing, "kernels_for", lambda name, tensor: None)
    assert all(torch.equal(one, model.predict(inputs[: len(one)])) for one in found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("groups", [1, 16])
def test_fused_convolutions_read_no_memory_that_nothing_was_written_to(dtype: torch.dtype, groups: int) -> None:
    """White pixels that were there before are no numbers in these precisions."""
    convolution = nn.Conv2d(16, 32, 3, padding=1, groups=groups).cuda().to(dtype).to(memory_format=torch.channels_last)
    convolution.requires_grad_(False)
    images = torch.randn(8, 16, 56, 56, device="cuda", dtype=dtype).to(memory_format=torch.channels_last)
    expected = convolution(images).relu()
    for _ in range(3):
        white = torch.full((expected.nbytes,), 255, dtype=torch.uint8, device="cuda")
        del white  # the next result gets its memory
        assert torch.allclose(FusedConvolution(convolution)(images), expected, rtol=1e-2, atol=1e-2)
    images[0, 0, 0, 0] = torch.nan
    assert FusedConvolution(convolution)(images).isnan().any()


class Hungry(nn.Module):
    """Needs much memory for each image, and says which side of the image is brighter."""

    def forward(self, images: Tensor) -> Tensor:
        copies = images.repeat(1, 100, 1, 1)  # 100 times the image
        left, right = copies.tensor_split(2, 3)
        return torch.stack([left.mean((1, 2, 3)), right.mean((1, 2, 3))], 1) * 50


def test_batches_halve_when_memory_runs_out(tmp_path: Path) -> None:
    data = [(image.permute(1, 2, 0).numpy(), 0) for image in pictures(224, 224, 3, 512)]
    runs = []
    limit = 2 << 30
    for name, device in (("cuda", "cuda"), ("cpu", "cpu")):
        execution = Execution(device=device, runtime="torch", batch=512, shard=512)
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
        try:
            run = brinell.run(
                brinell.wrap(Hungry(), execution=execution),
                data,
                lens={"name": "profile", "operators": ["boxes", "pixel_exchange"], "levels": 3},
                out=tmp_path / name,
                execution=execution,
                quiet=True,
            )
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        runs.append(run.rows("select operator, image, level, l0, prediction from rows order by all").fetchall())
    assert len(runs[0]) == 512 * 2 * 4
    assert [row[:4] for row in runs[0]] == [row[:4] for row in runs[1]]
    others = sum(one != other for one, other in zip(*runs, strict=True))
    assert others < 4, "scores that are all but equal may fall otherwise on another device"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
@pytest.mark.parametrize("compiled", [False, True])
def test_every_precision_runs(precision: str, compiled: bool, tmp_path: Path) -> None:
    execution = Execution(device="cuda", precision=precision, compile=compiled, batch=16, shard=64)  # type: ignore[arg-type]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    run = brinell.run(
        brinell.wrap(network, execution=execution),
        {
            "source": [(np.asarray(image.permute(1, 2, 0)), None) for image in pictures(224, 224, 3, 40)],
            "labels": "prediction",
        },
        lens={"name": "profile", "operators": ["jpeg", "gradient_descent"], "levels": 2},
        out=tmp_path / "run",
        execution=execution,
        quiet=True,
    )
    assert run.rows("select count(*) from rows where level = 0 and correct").fetchall() == [(2 * 40,)]
