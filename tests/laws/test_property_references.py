"""Built-in properties compared with plain loops, OpenCV and SciPy."""

from __future__ import annotations

import math
import re
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from test_properties import BUILT_IN, at, images, moves, some_severities

import reference
import reference_properties
from brinell.errors import ConfigError
from brinell.perturb.frost import grow_frost, use_frost_template
from brinell.perturb.property import PROPERTIES, Property, find_property
from brinell.perturb.warp import warp
from brinell.perturb.weather import flake_counts

WITH_LOOPS = [
    pytest.param(found, id=found.id) for found in BUILT_IN if found.id not in reference_properties.COMPARED_WITH_LIBRARIES
]


def test_rotation_is_that_of_opencv() -> None:
    """Anticlockwise about (w/2, h/2), black outside; up to rounding, which OpenCV's float code does elsewhere."""
    for height, width in ((224, 224), (33, 20), (20, 33)):
        clean = images(height, width)
        for severity in (0.002, 0.1, 0.5, 1.0, -0.03, -0.61):
            ours = at(find_property("rotation"), clean, severity).permute(0, 2, 3, 1).numpy()
            matrix = cv2.getRotationMatrix2D((width / 2, height / 2), 180 * severity, 1)
            for row, picture in enumerate(clean.permute(0, 2, 3, 1).contiguous().numpy()):
                theirs = cv2.warpAffine(picture.astype(np.float32), matrix, (width, height))
                gap = np.abs(np.rint(theirs) - ours[row])
                assert gap.max() <= 2
                assert (gap > 0).mean() < 0.06


@pytest.mark.parametrize(("name", "axis"), [("horizontal_translation", 1), ("vertical_translation", 0)])
@pytest.mark.parametrize("variant", ["standard", "dsn2020"])
@pytest.mark.parametrize("size", [(224, 224), (33, 20), (100, 50)], ids=str)
def test_translation_shifts_the_array(name: str, axis: int, variant: str, size: tuple[int, int]) -> None:
    found = find_property(f"{name}:{variant}")
    clean = images(*size, count=1)
    for track, sign in zip(found.tracks(*size), (1, -1), strict=True):
        moved = at(found, clean.expand(len(track), -1, -1, -1).contiguous(), track)
        for step, picture in enumerate(moved, 1):
            pixels = size[axis] * step // len(track)  # truncated to whole pixels
            assert float(found.amounts(track[step - 1 : step], *size)) == sign * pixels
            plain = np.zeros_like(clean[0].numpy())
            to, origin = (slice(pixels, None), slice(0, size[axis] - pixels))[::sign]
            plain[(slice(None),) * (axis + 1) + (to,)] = clean[0].numpy()[(slice(None),) * (axis + 1) + (origin,)]
            assert np.array_equal(picture.numpy(), plain)


@pytest.mark.parametrize("size", [(224, 224), (33, 20), (8, 8)], ids=str)
def test_spatial_severities_cover_all_directions_by_growing_displacement(size: tuple[int, int]) -> None:
    height, width = size
    found = find_property("spatial")
    (track,) = found.tracks(*size)
    amounts = found.amounts(track, *size)
    assert bool((amounts.diff() > 0).all()), "no displacement occurs twice"
    assert len(track.unique(dim=0)) == 1000
    assert float(amounts[0]) > 0.01 * math.hypot(*size) / 100
    y, x = torch.meshgrid(torch.arange(height).double(), torch.arange(width).double(), indexing="ij")
    points = torch.stack([x.flatten(), y.flatten(), torch.ones(height * width)])
    for index in (0, 10, 100, 500, 999):
        moved = moves(found, track[index : index + 1], *size)[0] @ points
        plain = (moved - points).square().sum(0).mean().sqrt()
        assert float(amounts[index]) == pytest.approx(float(plain), rel=1e-9)
    shifts = track[:, 1:] * 5
    assert float((shifts - shifts.round()).abs().max()) < 1e-12
    assert float(track[:, 0].abs().max()) > 0.9
    for part in track.tensor_split(4):
        turned = part[:, 0] > 0
        assert 0.3 < float(turned.double().mean()) < 0.7
    if size == (224, 224):
        assert len(shifts.round().unique(dim=0)) == 121
        near = track[(amounts > 1) & (amounts < 7)]
        assert len(near) > 60
        assert len((near[:, 1:] * 5).round().unique(dim=0)) > 40


def test_spatial_turns_and_then_moves() -> None:
    clean = images(60, 80, count=1)
    severities = torch.tensor([[0.11, 0.6, -0.4]], dtype=torch.float64)
    ours = at(find_property("spatial"), clean, severities)[0].permute(1, 2, 0).numpy()
    turned = cv2.getRotationMatrix2D((40, 30), 180 * 0.11, 1)
    picture = np.pad(clean[0].permute(1, 2, 0).numpy(), ((20, 20), (20, 20), (0, 0))).astype(np.float32)
    around = turned.copy()
    around[:, 2] += [20, 20] - turned[:, :2] @ [20, 20]
    # on a padded image, so that nothing leaves the frame between the two warps
    twice = cv2.warpAffine(cv2.warpAffine(picture, around, (120, 100)), np.float64([[1, 0, 3], [0, 1, -2]]), (120, 100))
    assert np.abs(np.rint(twice[20:80, 20:100]) - ours).max() <= 1


def test_a_projective_warp_is_that_of_opencv() -> None:
    clean = images(64, 80, count=2)
    matrix = np.array([[1.1, 0.05, -3], [-0.02, 0.95, 2], [0.0006, -0.0009, 1]])
    ours = warp(clean, torch.from_numpy(matrix).expand(2, 3, 3)).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    for row, picture in enumerate(clean.permute(0, 2, 3, 1).contiguous().numpy()):
        theirs = cv2.warpPerspective(picture.astype(np.float32), matrix, (80, 64))
        gap = np.abs(np.rint(theirs) - ours[row])
        assert np.median(gap) == 0
        assert (gap > 2).mean() < 0.01


@pytest.mark.parametrize("size", [(224, 224), (33, 20), (8, 60)], ids=str)
def test_gaussian_blur_is_that_of_scipy(size: tuple[int, int]) -> None:
    clean = images(*size, count=9)
    severities = torch.tensor([0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 0.8, 1.0], dtype=torch.float64)[:, None]
    ours = at(find_property("gaussian_blur"), clean, severities).numpy()
    for row, severity in enumerate(severities[:, 0].tolist()):
        sigma = 0.2 * severity * max(size)
        theirs = ndimage.gaussian_filter(clean[row].numpy().astype(np.float64), (0, sigma, sigma))
        assert np.abs(ours[row] - theirs).max() < 0.5 + 0.15, sigma
        assert (np.rint(theirs) != ours[row]).mean() < 0.04, sigma


@pytest.mark.parametrize("size", [(224, 224), (33, 20), (8, 60)], ids=str)
@pytest.mark.parametrize("variant", ["standard", "dsn2020", "equations"])
def test_motion_blur_is_a_filter_of_opencv(size: tuple[int, int], variant: str) -> None:
    """The authors' k×k kernel with its line in row round((k-1)/2), a single row or a single column, equal to the bit."""
    shorter = min(size)
    lengths = [1, 2, 3, 4, 5, 6, 7, shorter - 2, shorter - 1, shorter]
    clean = images(*size, count=len(lengths))
    severities = torch.tensor(lengths, dtype=torch.float64)[:, None] / shorter
    ours = at(find_property(f"motion_blur:{variant}"), clean, severities).permute(0, 2, 3, 1).numpy()
    for row, length in enumerate(lengths):
        kernel = {"standard": np.ones((1, length)), "equations": np.ones((length, 1))}.get(variant)
        if kernel is None:
            kernel = np.zeros((length, length))
            kernel[round((length - 1) / 2)] = 1
        picture = np.ascontiguousarray(clean[row].permute(1, 2, 0).numpy()).astype(np.float64)
        sums = cv2.filter2D(picture, -1, kernel).round()
        assert np.array_equal(np.rint((sums / length).astype(np.float32)), ours[row]), length


@pytest.mark.parametrize("found", WITH_LOOPS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (33, 20), (40, 64)], ids=str)
def test_built_in_properties_agree_with_plain_loops(found: Property, channels: int, size: tuple[int, int]) -> None:
    clean = images(*size, channels)
    ids, severities = torch.tensor([3, -9, 1 << 40, 5]), some_severities(found, *size, 4)
    ours = at(found, clean, severities, ids)
    for row in range(4):
        picture = clean[row].permute(1, 2, 0).numpy().astype(np.float64)
        chance = reference.Chance(5, found.name, int(ids[row]), 0)
        plain = reference_properties.apply_property(found.id, picture, severities[row, 0].item(), chance)
        gap = np.abs(np.clip(plain, 0, 255) - ours[row].permute(1, 2, 0).numpy())
        assert gap.max() < 0.5 + 2e-3, f"up to {gap.max()} grey levels"


def test_a_built_in_property_without_a_plain_loop_is_reported_with_what_to_add() -> None:
    with pytest.raises(AssertionError, match=r"property 'hail:dsn2020' .* add .* LOOPS in tests/reference_properties\.py"):
        reference_properties.apply_property("hail:dsn2020", np.zeros((8, 8, 3)), 0.5, reference.Chance(0, "hail", 0, 0))


def test_properties_without_plain_loops_are_compared_with_libraries() -> None:
    for name, test in reference_properties.COMPARED_WITH_LIBRARIES.items():
        assert name in PROPERTIES
        assert test in globals(), f"the test that compares {name} with a library is not in this file: {test}"


@pytest.mark.parametrize("size", [(224, 224), (100, 140), (8, 8), (300, 20)], ids=str)
def test_a_flake_is_a_smeared_disc(size: tuple[int, int]) -> None:
    flake, length = flake_counts(*size)
    side = max(1, min(size[0] // 10, size[1]))
    assert flake.shape == (side, side)
    middle, kernel = side // 2, np.zeros((length, length))
    for step in range(length):
        kernel[length - 1 - step, step] = 1 / length
    disc = np.array([[(i - middle) ** 2 + (j - middle) ** 2 <= 0.1 * min(size) for j in range(side)] for i in range(side)])
    assert np.allclose(cv2.filter2D(disc.astype(np.float64), -1, kernel), flake.numpy() / length)


def test_more_snow_or_salt_keeps_what_was_there() -> None:
    grey = torch.full((60, 3, 64, 64), 100, dtype=torch.uint8)
    ids, severities = torch.zeros(60, dtype=torch.int64), torch.linspace(0.02, 1, 60, dtype=torch.float64)[:, None]
    for name in ("snow", "salt_and_pepper"):
        changed = at(find_property(name), grey, severities, ids) != 100
        assert not bool((changed[:-1] & ~changed[1:]).any())
        assert bool(changed[-1].any())


def test_an_image_file_as_frost_template(tmp_path: Path) -> None:
    ice = np.zeros((30, 40, 3), np.uint8)
    ice[:, 20:] = 200
    Image.fromarray(ice).save(tmp_path / "window_7.png")
    found = use_frost_template(tmp_path / "window_7.png")
    try:
        assert re.fullmatch("frost:window_7-[0-9a-f]{6}", found.id) and find_property(found.id) is found
        assert use_frost_template(tmp_path / "window_7.png") is found
        black = torch.zeros(1, 3, 60, 80, dtype=torch.uint8)
        frosted = at(found, black, 1.0)[0]
        assert int(frosted[:, :, :30].max()) == 0
        assert frosted[:, :, 50:].unique().tolist() == [160]
        assert at(found, black[:, :1], 1.0)[0, :, :, 50:].unique().tolist() == [160]
        Image.fromarray(ice // 2).save(tmp_path / "window_7.png")
        weak = use_frost_template(tmp_path / "window_7.png", "standard")
        assert re.fullmatch("frost:window_7-[0-9a-f]{6}-standard", weak.id)
        assert torch.equal(at(weak, black, 1e-6), black) and not torch.equal(at(found, black, 1e-6), black)
        other = use_frost_template(tmp_path / "window_7.png")
        assert other is not found and at(other, black, 1.0)[0, :, :, 50:].unique().tolist() == [80]
    finally:
        for name in [name for name in PROPERTIES if name.startswith("frost:window_7")]:
            PROPERTIES._parts.pop(name)
    with pytest.raises(ConfigError, match=r"can't read .*text\.png as an image of frost"):
        (tmp_path / "text.png").write_text("no")
        use_frost_template(tmp_path / "text.png")
    with pytest.raises(ConfigError, match="No such file"):
        use_frost_template(tmp_path / "nowhere.png")


def test_the_frost_template_is_deterministic() -> None:
    one = grow_frost()
    assert np.array_equal(one, grow_frost())
    assert math.sqrt(((one / 255) ** 2).mean()) == pytest.approx(0.5, abs=0.005)
