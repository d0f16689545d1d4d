"""Spots of light compared with the formula of (Vats and Jerripothula 2023), and repainting with resizing everything."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from brinell.models.preprocess import Preprocess
from brinell.perturb.difference import _by_bytes, _by_norms
from brinell.perturb.highlight import CENTRES, WHITE, add_highlights, highlight_boxes, highlight_grid, highlight_view
from brinell.resizing.repaint import Repainter
from brinell.resizing.resample import resize

SIGMAS = torch.tensor([10.0, 20.0, 30.0, 40.0])


def spot(x: float, y: float, sigma: float, strength: float = 1.0) -> torch.Tensor:
    return torch.tensor([[x, y, sigma, strength]], dtype=torch.float64)


def black(height: int, width: int, channels: int = 3) -> torch.Tensor:
    return torch.zeros(1, channels, height, width, dtype=torch.uint8)


def noise(height: int, width: int, channels: int = 3) -> torch.Tensor:
    values = torch.arange(channels * height * width) * 7919 % 65537 * 257 >> 16
    return values.to(torch.uint8).view(channels, height, width)


@pytest.mark.parametrize("sigma", [10, 20, 30, 40])
def test_the_peak_is_255_for_any_sigma(sigma: float) -> None:
    light = add_highlights(black(200, 200), spot(100, 80, sigma))[0, 0]
    assert light[80, 100] == 255
    assert light.max() == 255


@pytest.mark.parametrize("sigma", [10, 20, 30, 40])
def test_the_light_is_154_grey_levels_at_one_sigma(sigma: int) -> None:
    light = add_highlights(black(200, 200), spot(100, 100, sigma))[0]
    assert math.floor(255 * math.exp(-0.5)) == 154
    for y, x in ((100, 100 + sigma), (100, 100 - sigma), (100 + sigma, 100), (100 - sigma, 100)):
        assert light[:, y, x].tolist() == [154, 154, 154]


def test_the_peak_of_a_spot_between_pixels_is_254() -> None:
    spots = highlight_grid(299, 299, 5, SIGMAS[:1])
    assert spots[12, :2].tolist() == [149.5, 149.5]
    assert add_highlights(black(299, 299), spots[12:13]).max() == 254


def test_white_stays_white_and_no_pixel_gets_darker() -> None:
    white = torch.full((1, 3, 60, 70), 255, dtype=torch.uint8)
    assert torch.equal(add_highlights(white, spot(30, 30, 20)), white)
    image = noise(60, 70)[None]
    assert bool((add_highlights(image, spot(30, 30, 20)) >= image).all())


def test_a_spot_follows_the_formula_of_the_paper() -> None:
    image, x, y, sigma, strength = noise(23, 31), 7.3, 11.8, 6.5, 0.7
    made = add_highlights(image[None], spot(x, y, sigma, strength))[0]
    for channel in range(3):
        for v in range(23):
            for u in range(31):
                light = math.floor(255 * strength * math.exp(-((u - x) ** 2 + (v - y) ** 2) / (2 * sigma**2)))
                assert made[channel, v, u] == min(255, int(image[channel, v, u]) + light)


def test_spots_can_be_coloured_and_stronger_than_white() -> None:
    red = add_highlights(black(40, 40), spot(20, 20, 5), (255.0, 128.0, 0.0))[0]
    assert red[:, 20, 20].tolist() == [255, 128, 0]
    strong = add_highlights(black(40, 40), spot(20, 20, 5, 3.0))[0, 0]
    assert strong[20, 25] == 255  # 3 · 154
    grey = add_highlights(black(40, 40, 1), spot(20, 20, 5), (255.0, 0.0, 0.0))
    assert grey[0, 0, 20, 20] == math.floor(0.299 * 255)


def test_the_grid_has_100_spots_at_25_centres_in_the_order_of_the_authors() -> None:
    spots = highlight_grid(375, 500, 5, SIGMAS)
    assert spots.shape == (100, 4)
    assert len({(x, y) for x, y, *_ in spots.tolist()}) == 25
    assert spots[0].tolist() == [50, 37.5, 10, 1]  # centre of the first cell
    assert spots[1].tolist() == [150, 37.5, 10, 1]  # next along the row
    assert spots[5].tolist() == [50, 112.5, 10, 1]
    assert spots[25].tolist() == [50, 37.5, 20, 1]  # 25 of each sigma


def test_the_centres_of_the_authors_match_their_image() -> None:
    spots = highlight_grid(374, 500, 5, SIGMAS[2:3], centres="authors")
    assert spots[1 * 5 + 2, :2].tolist() == [255.0, 114.0]
    assert CENTRES["authors"](5, 500)[-1] / 500 == pytest.approx(0.918)


def test_boxes_contain_all_pixels_that_change() -> None:
    spots = highlight_grid(120, 90, 5, torch.tensor([1.0, 7.5, 40.0]), strength=0.6)
    spots = torch.cat([spots, spot(-50, 300, 3), spot(4, 4, 2, 0.001)])
    changed = add_highlights(black(120, 90), spots)[:, 0] > 0
    for (top, left, bottom, right), where in zip(highlight_boxes(spots, 120, 90).tolist(), changed, strict=True):
        assert 0 <= top < bottom <= 120 and 0 <= left < right <= 90
        outside = where.clone()
        outside[top:bottom, left:right] = False
        assert not bool(outside.any())


@pytest.mark.parametrize("how", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize(("height", "width"), [(75, 100), (100, 64), (20, 31), (64, 64)])
@pytest.mark.parametrize("channels", [1, 3])
def test_repainting_equals_resizing_the_whole_image(how: str, height: int, width: int, channels: int) -> None:
    image = noise(height, width, channels)
    spots = highlight_grid(height, width, 4, torch.tensor([2.0, 6.0, 15.0]))
    view = highlight_view("exact")
    assert view.local is not None
    boxes = highlight_boxes(spots, height, width)

    def paint(windows: torch.Tensor, corners: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        return add_highlights(windows, spots[which], corners=corners)

    whole = resize(add_highlights(image[None], spots), 64, 64, how)  # type: ignore[arg-type]
    ready = Repainter(image, 64, 64, how)  # type: ignore[arg-type]
    assert torch.equal(ready.render(view.local, spots), whole)
    if how != "nearest":
        assert torch.equal(ready.render_windows(boxes, paint), whole)  # what an accelerator computes


@pytest.mark.parametrize("short_side", [None, 40])
def test_a_highlight_view_equals_the_model_input_of_the_lit_photograph(short_side: int | None) -> None:
    preprocess = Preprocess(32, 32, short_side=short_side)
    image, spots = noise(61, 90), highlight_grid(61, 90, 5, SIGMAS)
    view = highlight_view("exact")
    assert view.local is not None
    slow = view.look(image, spots, preprocess.inputs)
    fast = preprocess.repaint(preprocess.repainter(image), view.local, spots)
    assert torch.equal(slow, fast)
    lit = add_highlights(image[None], spots[7:8])[0]
    picture = Image.fromarray(lit.permute(1, 2, 0).numpy())
    if short_side is None:
        by_hand = np.asarray(picture.resize((32, 61), Image.Resampling.BICUBIC).resize((32, 32), Image.Resampling.BICUBIC))
        assert np.array_equal(fast[7].permute(1, 2, 0).numpy(), by_hand)


def test_distances_from_one_clean_image_equal_those_from_its_copies() -> None:
    clean, spots = noise(40, 50)[None], highlight_grid(40, 50, 2, SIGMAS)
    images = add_highlights(clean, spots)
    for measured in (_by_bytes, _by_norms):
        one, copies = measured(clean, images), measured(clean.repeat(len(spots), 1, 1, 1), images)
        for name in ("changed", "l0", "l1", "l2", "linf", "mae", "mse"):
            assert torch.equal(getattr(one, name), getattr(copies, name)), name


def test_cached_light_is_reused_for_the_next_image() -> None:
    spots = highlight_grid(61, 90, 3, SIGMAS)
    for colour, strength in ((WHITE, 1.0), ((255.0, 140.0, 20.0), 1.0), (WHITE, 0.4), (WHITE, 2.0)):
        local = highlight_view("exact", colour).local
        assert local is not None
        spots[:, 3] = strength
        for image in (noise(61, 90), noise(61, 90).flip(1), noise(61, 90, 1)):
            whole = resize(add_highlights(image[None], spots, colour), 32, 32, "bicubic")
            assert torch.equal(Repainter(image, 32, 32, "bicubic").render(local, spots), whole)
