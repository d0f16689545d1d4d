"""Resizing equals Pillow's to the bit, on a CPU and by an accelerator's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from brinell.resizing.resample import nearest_pixels, resize, resize_axis

HOW = ("nearest", "bilinear", "bicubic", "lanczos")
side = st.integers(1, 70)


def random_images(seed: int, *shape: int) -> torch.Tensor:
    values = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    values[..., : shape[-1] // 2] = np.where(values[..., : shape[-1] // 2] > 127, 255, 0)  # sums that must be clipped
    return torch.from_numpy(values)


def pillow(image: torch.Tensor, height: int, width: int, how: str) -> torch.Tensor:
    picture = Image.fromarray(image.permute(1, 2, 0).numpy() if len(image) == 3 else image[0].numpy())
    how = getattr(Image.Resampling, how.upper())
    made = np.array(picture.resize((width, picture.height), how).resize((width, height), how))
    return torch.from_numpy(made.reshape(height, width, -1)).permute(2, 0, 1)


def by_products(images: torch.Tensor, height: int, width: int, how: str) -> torch.Tensor:
    """Resize on the CPU as an accelerator does."""
    if how == "nearest":
        return images[:, :, nearest_pixels(images.shape[2], height)[:, None], nearest_pixels(images.shape[3], width)]
    return resize_axis(resize_axis(images, width, how, across=True), height, how, across=False)


@settings(max_examples=150, deadline=None)
@given(st.tuples(side, side), st.tuples(side, side), st.sampled_from(HOW), st.sampled_from((1, 3)), st.integers(0, 1000))
def test_products_of_weights_equal_pillow(size, target, how, channels, seed):
    (height, width), (tall, wide) = size, target
    images = random_images(seed, 2, channels, height, width)
    expected = torch.stack([pillow(image, tall, wide, how) for image in images])
    assert torch.equal(by_products(images, tall, wide, how), expected)
    assert torch.equal(resize(images, tall, wide, how), expected)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("source", "target"), [(299, 224), (500, 224), (75, 224), (375, 256), (1999, 192)])
def test_common_sizes_equal_pillow(how, source, target):
    images = random_images(source, 1, 3, source, source // 2)
    expected = pillow(images[0], target, target, how)[None]
    assert torch.equal(by_products(images, target, target, how), expected)


@pytest.mark.parametrize(("height", "width"), [(224, 300), (256, 341), (341, 256)])
def test_one_call_of_pillow_agrees_where_its_versions_do(height, width):
    image = random_images(5, 3, *(side * 3 // 2 for side in (height, width)))
    picture = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((width, height), Image.Resampling.BICUBIC)
    assert np.array_equal(resize(image[None], height, width, "bicubic")[0].permute(1, 2, 0).numpy(), np.array(picture))


def test_a_box_crops_before_resizing():
    images = random_images(3, 2, 3, 40, 50)
    assert torch.equal(resize(images, 24, 24, box=(5, 7, 35, 31)), resize(images[..., 7:31, 5:35], 24, 24))
