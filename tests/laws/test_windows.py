"""Windows as model inputs: equal to Pillow's for every side, position and fit, with boxes that follow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from brinell.boxes import move_boxes
from brinell.models.preprocess import Preprocess
from brinell.perturb.windows import cut_windows, location_view, window_view
from brinell.resizing.resample import resize

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def picture(height: int, width: int, channels: int = 3) -> Tensor:
    return torch.from_numpy(np.random.default_rng([height, width]).integers(0, 256, (channels, height, width), np.uint8))


def by_pillow(image: Tensor, window: tuple[int, int, int], height: int, width: int, fit: str) -> Tensor:
    left, top, side = window
    cut = image[:, top : top + side, left : left + side]
    pixels = Image.fromarray(np.ascontiguousarray(cut[0] if len(cut) == 1 else cut.permute(1, 2, 0)))
    across = pixels.resize((width, side), FILTERS[fit])  # one pass at a time, because their order depends on the version
    made = np.array(across.resize((width, height), FILTERS[fit])).reshape(height, width, len(image))
    return torch.from_numpy(made).permute(2, 0, 1)


@pytest.mark.parametrize("fit", list(FILTERS))
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [1, 3, 7, 20, 33, 40])
def test_windows_equal_those_of_pillow(fit: str, channels: int, side: int) -> None:
    image = picture(47, 40, channels)
    corners = torch.tensor([[left, top] for left in (0, 1, 40 - side) for top in (0, 5, 7)])
    corners = corners.clamp(max=40 - side)
    made = cut_windows(image, side, corners, 24, 31, fit)  # type: ignore[arg-type]
    for model_input, (left, top) in zip(made, corners.tolist(), strict=True):
        assert torch.equal(model_input, by_pillow(image, (left, top, side), 24, 31, fit))


def test_windows_of_several_sides_keep_their_order() -> None:
    image = picture(60, 70)
    parameters = torch.tensor([[3, 4, 21], [0, 0, 60], [30, 2, 21], [9, 9, 19]], dtype=torch.float64)
    made = window_view("", "bilinear", 32, 32).look(image, parameters, lambda made: made)
    for model_input, (left, top, side) in zip(made, parameters.to(torch.int64).tolist(), strict=True):
        assert torch.equal(model_input, by_pillow(image, (left, top, side), 32, 32, "bilinear"))


def test_padding_centres_the_window_on_black() -> None:
    image = picture(40, 44)
    made = cut_windows(image, 21, torch.tensor([[5, 9]]), 32, 30, "pad")[0]
    expected = torch.zeros(3, 32, 30, dtype=torch.uint8)
    expected[:, 5:26, 4:25] = image[:, 9:30, 5:26]
    assert torch.equal(made, expected)


def test_a_window_in_the_model_s_own_way_is_preprocessed_like_an_image_file() -> None:
    image, preprocess = picture(50, 44), Preprocess(24, 24, 3, 28, "bicubic")
    parameters = torch.tensor([[2, 3, 33], [7, 11, 33]], dtype=torch.float64)
    made = window_view("", "own", 0, 0).look(image, parameters, preprocess.inputs)
    for model_input, (left, top, side) in zip(made, parameters.to(torch.int64).tolist(), strict=True):
        assert torch.equal(model_input, preprocess.model_input(image[:, top : top + side, left : left + side].contiguous()))


def test_a_small_image_on_black_at_any_position() -> None:
    image = picture(50, 64)
    corners = [(left, top, 12) for left in (0, 3, 18) for top in (0, 1, 12)]
    made = location_view("12px", 24, 30).look(image, torch.tensor(corners, dtype=torch.float64), lambda made: made)
    small = resize(image[None], 12, 12)[0]
    for model_input, (left, top, side) in zip(made, corners, strict=True):
        expected = torch.zeros(3, 24, 30, dtype=torch.uint8)
        expected[:, top : top + side, left : left + side] = small
        assert torch.equal(model_input, expected)


@pytest.mark.parametrize("fit", ["bilinear", "pad"])
def test_boxes_follow_the_frame_of_a_window(fit: str) -> None:
    """A white square of the original and its box cover the same part of the model input."""
    image = torch.zeros(3, 60, 60, dtype=torch.uint8)
    image[:, 20:30, 25:40] = 255
    parameters = torch.tensor([[15, 12, 30]], dtype=torch.float64)
    view = window_view("", fit, 60, 60)  # type: ignore[arg-type]
    seen = view.look(image, parameters, lambda made: made)[0, 0] > 127
    rows, columns = seen.any(1).nonzero()[:, 0], seen.any(0).nonzero()[:, 0]
    assert view.frame is not None
    box = torch.tensor([[25.0, 20.0, 40.0, 30.0]], dtype=torch.float64)
    half = torch.tensor([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]], dtype=torch.float64)
    matrices = half.inverse() @ view.frame(parameters) @ half
    left, top, right, bottom = move_boxes(box[None], matrices)[0, 0].tolist()
    assert (left, right) == (int(columns[0]), int(columns[-1]) + 1)
    assert (top, bottom) == (int(rows[0]), int(rows[-1]) + 1)
