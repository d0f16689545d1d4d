"""The kernel that normalises images on CUDA devices, interpreted on a CPU: torch's bits in every format."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from brinell.models import preprocess as preprocessing
from brinell.models.preprocess import Format, Preprocess

IMAGENET = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
FORMATS = [
    Format(dtype, memory)
    for dtype in (torch.float32, torch.bfloat16, torch.float16)
    for memory in (torch.contiguous_format, torch.channels_last)
]


def all_values(channels: int, height: int, width: int) -> torch.Tensor:
    """Return images that hold every value in every channel, if they are large enough."""
    values = torch.arange(3 * channels * height * width) * 7919 % 256
    return values.to(torch.uint8).view(3, channels, height, width)


@pytest.fixture
def kernels(interpreted, monkeypatch: pytest.MonkeyPatch):
    found = interpreted("normalise")
    return lambda: monkeypatch.setattr(preprocessing, "kernels_for", lambda name, tensor: found)


def rounded(images: torch.Tensor, form: Format) -> torch.Tensor:
    """Return float32 images in a format. In bfloat16 the interpreter cuts digits off, which devices round as torch does."""
    if form.dtype == torch.bfloat16:
        images = (images.view(torch.int32) >> 16 << 16).view(torch.float32)
    return form.convert(images)


def assert_same(found: torch.Tensor, expected: torch.Tensor, form: Format) -> None:
    assert found.dtype == form.dtype and found.is_contiguous(memory_format=form.memory)
    assert found.stride() == expected.stride() and torch.equal(found, expected)
    assert form.convert(found) is found


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("size", [(1, 1), (8, 8), (13, 7), (28, 34)], ids=str)
def test_images_have_the_bits_of_torch(kernels, form: Format, size) -> None:
    inputs = all_values(3, *size)
    expected = rounded(IMAGENET.normalise(inputs), form)
    kernels()
    assert_same(IMAGENET.normalise(inputs, form), expected, form)


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize(
    "preprocess",
    [
        Preprocess(channels=1, mean=(0.5,), std=(0.3,)),
        Preprocess(channels=3, mean=(0.5,), std=(0.2, 0.3, 0.4)),
        Preprocess(channels=4, mean=(0.1, 0.2, 0.3, 0.4), std=(0.7,)),
        replace(IMAGENET, bgr=True),
        Preprocess(mean=(0.5,), std=(0.3,)),
    ],
    ids=["grey", "one mean", "four channels", "bgr", "one of both"],
)
def test_channels(kernels, form: Format, preprocess: Preprocess) -> None:
    inputs = all_values(preprocess.channels, 12, 12)
    expected = rounded(preprocess.normalise(inputs), form)
    kernels()
    assert_same(preprocess.normalise(inputs, form), expected, form)


def test_floats_and_gradients_keep_their_own_way(kernels) -> None:
    inputs, form = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)) * 255, FORMATS[3]
    expected = form.convert(IMAGENET.normalise(inputs))
    kernels()
    assert torch.equal(IMAGENET.normalise(inputs, form), expected)
    assert IMAGENET.normalise(inputs.requires_grad_()).requires_grad
