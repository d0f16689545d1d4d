"""What a CPU computes by NumPy and OpenCV is what tensor code computes on other devices, to the bit."""

from __future__ import annotations

from functools import partial

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from brinell import draws
from brinell.perturb import colour, smear, weather
from brinell.perturb.corruptions import blur, elastic
from brinell.perturb.corruptions.shifts import add_many, add_shifted, cut
from brinell.resizing.resample import resize


def grey_levels(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.uint8)


@pytest.mark.parametrize("purpose", [0, 1, 12345, -3])
def test_draws_on_the_host_are_those_in_tensors(purpose: int) -> None:
    keys = draws.Draws.of(draws.key("draws"), torch.arange(-2, 3)).keys
    for count in (0, 1, 1001):
        assert torch.equal(draws._bits_on_host(keys, purpose, count), draws._bits_in_tensors(keys, purpose, count))


@pytest.mark.parametrize("size", [(8, 8), (9, 13), (64, 64)])
def test_colours_fade_by_opencv_as_in_tensors(size: tuple[int, int]) -> None:
    images = grey_levels(1, 3, *size)
    before = images.clone()
    assert torch.equal(colour._fade_by_opencv(images), colour._fade_colours(images))
    assert torch.equal(images, before)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (1, 41), (29, 29), (21, 21)])
def test_weighted_shifts_are_summed_up_exactly(shape: tuple[int, int]) -> None:
    weights = np.random.default_rng(0).integers(0, 60, shape).astype(np.float32)
    first = (-(shape[0] // 2), -(shape[1] // 3))
    image = grey_levels(2, 12, 15).to(torch.float32)
    made = torch.empty_like(image)
    add_shifted(image, list(cut(weights, first)), cv2.BORDER_REPLICATE, made)
    rows, columns = np.arange(12), np.arange(15)
    plain = sum(
        weights[y, x] * image.numpy()[:, (rows + y + first[0]).clip(0, 11)][:, :, (columns + x + first[1]).clip(0, 14)]
        for y in range(shape[0])
        for x in range(shape[1])
    )
    assert np.array_equal(made.numpy(), plain)


@pytest.mark.parametrize("sigma", [0.4, 0.7, 1.5, 2.0, 6.0])
def test_a_short_blur_is_the_product_of_matrices(sigma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    images = grey_levels(2, 3, 20, 27).to(torch.float32)
    short = blur.blur(images, sigma)
    monkeypatch.setattr(blur, "_SHORT", 0)
    assert torch.equal(short, blur.blur(images, sigma))


@pytest.mark.parametrize("sigma", [0.4, 0.7, 1.1, 1.5])
def test_a_blur_is_cut_off_by_opencv_as_in_tensors(sigma: float) -> None:
    images = grey_levels(2, 3, 20, 27).to(torch.float32)
    images[0, 0] = 255  # where a sum that is not exact would fall by one
    assert torch.equal(blur._floor_by_opencv(images, sigma), blur._floor_in_tensors(images, sigma))


@pytest.mark.parametrize("sigma", [0.3, 2.44, 9.0, 40.0])
@pytest.mark.parametrize("size", [(20, 27), (27, 30), (64, 32)])
def test_fields_are_smoothed_as_by_matrices(sigma: float, size: tuple[int, int]) -> None:
    """To within what float64 loses; positions are rounded to 1/128 of a pixel."""
    field = torch.rand(2, 2, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    down, across = (elastic._smoothing(sigma, side, field.device) for side in size)
    expected = down @ field @ across.T
    assert torch.allclose(elastic._smooth(field, sigma), expected, rtol=0, atol=1e-14)
    halves = np.stack([elastic._smooth_by_halves(plane, sigma) for plane in field.flatten(0, 1).numpy()])
    assert np.allclose(halves, expected.flatten(0, 1).numpy(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("size", [(8, 9), (40, 31)])
@pytest.mark.parametrize("constants", [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5), (1.5, 0.1)])
def test_discs_are_summed_up_by_opencv_as_in_tensors(constants: tuple[float, float], size: tuple[int, int]) -> None:
    """Directly for small discs, and by Fourier transforms for large ones."""
    images = grey_levels(2, 3, *size).to(torch.float32)
    images[0, 0] = 255
    assert torch.equal(blur._add_on_host(images, *constants), blur._add_boxes(images, *constants))


@pytest.mark.parametrize("side", [13, 41])
def test_many_weights_are_summed_up_exactly(side: int) -> None:
    """Weights of no symmetry, with sums up to the largest that float32 holds."""
    weights = np.random.default_rng(0).integers(0, 2**17 // side**2, (side, side)).astype(np.float32)
    image = grey_levels(2, 12, 15).to(torch.float32)
    made, plain = torch.empty_like(image), torch.empty_like(image)
    add_many(image, weights, cv2.BORDER_REPLICATE, made)
    add_shifted(image, list(cut(weights, (-(side // 2), -(side // 2)))), cv2.BORDER_REPLICATE, plain)
    assert torch.equal(made, plain)


def test_a_zoom_in_little_memory_is_that_of_all_planes() -> None:
    planes, factors = grey_levels(3, 20, 27).to(torch.float32), [1.02, 1.1, 1.31]
    assert torch.equal(blur._zoom_one_by_one(planes, factors), blur._zoom_together(planes, factors))


def test_fog_in_arrays_is_that_in_tensors() -> None:
    generator = torch.Generator().manual_seed(0)
    for side in (1, 2, 16):
        corners, term = (torch.rand(2, *shape, generator=generator) for shape in ((side, side), (3, side, side)))
        arrays = weather._fill_in(corners.numpy(), term.numpy(), partial(np.empty, dtype=np.float32))
        assert np.array_equal(arrays, weather._fill_in(corners, term, torch.empty).numpy())


@pytest.mark.parametrize("target", [(10, 14), (9, 7), (33, 50), (20, 29)])
def test_a_box_resize_by_rows_is_pillows(target: tuple[int, int]) -> None:
    images = grey_levels(2, 3, 20, 28)
    for image, made in zip(images, resize(images, *target, "box"), strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        picture = picture.resize((target[1], 20), Image.Resampling.BOX).resize(target[::-1], Image.Resampling.BOX)
        assert np.array_equal(made.permute(1, 2, 0).numpy(), np.asarray(picture))


@pytest.mark.parametrize("size", [(2, 3), (12, 15), (40, 64)])
@pytest.mark.parametrize("axis", [-1, -2])
def test_lines_are_averaged_by_opencv_as_in_tensors(axis: int, size: tuple[int, int]) -> None:
    images, length = grey_levels(4, 3, *size).to(torch.float32), torch.tensor([1.0, 2.0, 3.0, min(size)])
    reach = int(length.max()) // 2
    first = -(length // 2)[:, None]
    offsets = torch.arange(-reach, reach + 1)
    weights = (offsets >= first) & (offsets < first + length[:, None])
    matrix = smear._fold_border(weights.to(torch.float32), size[axis], edge_twice=False)[:, None]
    plain = images @ matrix.mT if axis == -1 else matrix @ images
    assert torch.equal(smear._line_sums_by_opencv(images, length, axis), plain)


@pytest.mark.parametrize("size", [(2, 3), (12, 15), (40, 64)])
@pytest.mark.parametrize("sigma", [(0.3, 0.5), (0.0, 2.2), (7.9, 8.0)])
def test_a_gaussian_blur_by_opencv_is_that_by_matrices(
    sigma: tuple[float, float], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of borders that are reflected several times, too."""
    severities = torch.tensor(sigma, dtype=torch.float64)[:, None] / (0.2 * max(size))
    images = grey_levels(2, 3, *size).to(torch.float32)
    short = smear.gaussian_blur(images.clone(), severities)
    monkeypatch.setattr(smear, "_SHORT", 0)
    assert torch.equal(short, smear.gaussian_blur(images.clone(), severities))
