"""Laws that every registered safety property keeps, and its agreement with plain code and other libraries."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

import reference
from brinell.errors import ConfigError, UnknownName
from brinell.perturb.frost import grow_frost, use_frost_template
from brinell.perturb.property import PROPERTIES, Property, PropertyKind, find_property, property_names
from brinell.perturb.warp import warp
from brinell.perturb.weather import flake_counts

ALL = [pytest.param(found, id=found.id) for found in PROPERTIES.values()]
STOCHASTIC = [pytest.param(found, id=found.id) for found in PROPERTIES.values() if found.stochastic]
MOTIONS = [pytest.param(found, id=found.id) for found in PROPERTIES.values() if found.kind is PropertyKind.MOTION]
SIZES = [(8, 8), (33, 20), (20, 33), (224, 224)]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Threads that wait for each other take longer than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def images(height: int, width: int, channels: int = 3, count: int = 4) -> Tensor:
    """Smooth colours with some noise, all different."""
    generator = torch.Generator().manual_seed(height * 1000 + width)
    coarse = torch.rand(count, channels, 6, 6, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)
    noise = torch.randint(-15, 16, smooth.shape, generator=generator)
    return (smooth + noise).clamp(0, 255).to(torch.uint8)


def at(found: Property, clean: Tensor, severities: Tensor | float, ids: Tensor | None = None, seed: int = 5) -> Tensor:
    if isinstance(severities, float):
        severities = torch.full((len(clean), 1), severities, dtype=torch.float64)
    return found.apply(clean, severities, seed=seed, ids=torch.arange(len(clean)) * 7919 if ids is None else ids)


def some_severities(found: Property, height: int, width: int, count: int) -> Tensor:
    """Severities from all over the tracks, the weakest and the strongest among them."""
    track = torch.cat(found.tracks(height, width))
    return track[torch.linspace(0, len(track) - 1, count).round().long()]


def test_the_paper_s_fifteen_properties_are_there() -> None:
    names = """brightness contrast rotation horizontal_translation vertical_translation spatial motion_blur gaussian_blur
        uniform_noise gaussian_noise blended_noise salt_and_pepper fog snow frost"""
    assert property_names() == names.split()
    assert all(f"{name}:dsn2020" in PROPERTIES for name in names.split())
    other = {found.name for found in PROPERTIES.values() if found.variant == "equations"}
    assert other == {"brightness", "motion_blur", "gaussian_noise", "fog", "frost"}


@pytest.mark.parametrize("found", ALL)
def test_severity_0_is_the_identity(found: Property) -> None:
    clean = images(16, 20)
    severities = some_severities(found, 16, 20, 4)
    assert torch.equal(at(found, clean, torch.zeros_like(severities)), clean)
    severities[2] = 0
    changed = at(found, clean, severities)
    assert torch.equal(changed[2], clean[2])
    assert not torch.equal(changed[3], clean[3])


@pytest.mark.parametrize("found", ALL)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_any_size_and_grey_or_rgb(found: Property, channels: int, size: tuple[int, int]) -> None:
    clean = images(*size, channels)
    before = clean.clone()
    changed = at(found, clean, some_severities(found, *size, 4))
    assert changed.shape == clean.shape
    assert changed.dtype == torch.uint8
    assert not torch.equal(changed[3], clean[3])
    assert torch.equal(clean, before), "the input was touched"


@pytest.mark.parametrize("found", ALL)
@pytest.mark.parametrize("size", [(224, 224), (33, 20)], ids=str)
def test_neither_batch_nor_order_matters(found: Property, size: tuple[int, int]) -> None:
    clean = images(*size, count=16)
    ids, severities = torch.arange(16) * 7919 - 3, some_severities(found, *size, 16)
    whole = at(found, clean, severities, ids)
    for batch in (1, 7):
        split = zip(clean.split(batch), severities.split(batch), ids.split(batch), strict=True)
        assert torch.equal(torch.cat([at(found, *part) for part in split]), whole), f"batches of {batch}"
    order = torch.arange(16).flip(0).roll(3)
    assert torch.equal(at(found, clean[order], severities[order], ids[order]), whole[order])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("found", ALL)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_same_pixels_on_a_gpu(found: Property, channels: int, size: tuple[int, int]) -> None:
    clean = images(*size, channels, count=16)
    ids, severities = torch.arange(16) * 7919 - 3, some_severities(found, *size, 16)
    here, there = at(found, clean, severities, ids), at(found, clean.cuda(), severities, ids.cuda())
    assert there.device.type == "cuda"
    assert torch.equal(there.cpu(), here), f"{int((there.cpu() != here).sum())} values differ"


@pytest.mark.parametrize("found", ALL)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_tracks_go_from_weak_to_strong(found: Property, size: tuple[int, int]) -> None:
    tracks = found.tracks(*size)
    assert len(tracks) == len(found.facts.directions)
    neutral = found.amounts(torch.zeros_like(tracks[0][:1]), *size)
    for track, sign in zip(tracks, (1, -1), strict=False):
        points = found.facts.points
        assert len(track) == (points if isinstance(points, int) else points(*size))
        assert track.dtype == torch.float64
        assert float(track.abs().max()) <= 1
        amounts = (found.amounts(track, *size) - neutral).abs()
        assert bool((amounts.diff() >= 0).all())
        assert float(amounts[0]) < float(amounts[-1])
        if track.shape[1] == 1:
            assert bool((sign * track[:, 0] > 0).all())
            assert float(track[-1, 0]) == sign


def test_points_are_the_authors() -> None:
    points = {found.id: [len(track) for track in found.tracks(224, 224)] for found in PROPERTIES.values()}
    two_sided = {"brightness": 500, "rotation": 500, "horizontal_translation": 50, "vertical_translation": 50}
    assert all(points[f"{name}:dsn2020"] == [count, count] for name, count in two_sided.items())
    assert all(points[f"{name}:dsn2020"] == [999] for name in ("fog", "snow", "frost"))
    assert points["motion_blur:dsn2020"] == [224]
    rest = "contrast spatial gaussian_blur uniform_noise gaussian_noise blended_noise salt_and_pepper"
    assert all(points[f"{name}:dsn2020"] == [1000] for name in rest.split())


@pytest.mark.parametrize("found", ALL)
def test_equal_amounts_are_equal_images(found: Property) -> None:
    """A search skips repeats, so an amount has to tell all there is to tell; nearly equal severities show it."""
    size = (24, 30)
    track = torch.cat(found.tracks(*size, points=400))
    amounts = found.amounts(track, *size)
    again = torch.isclose(amounts.diff(), torch.zeros(1, dtype=torch.float64), rtol=0, atol=0).nonzero()[:, 0]
    in_whole_numbers = found.facts.unit in ("px", "flakes") or found.id == "brightness:equations"
    assert bool(len(again)) == in_whole_numbers
    if in_whole_numbers:
        again = again[:: max(1, len(again) // 40)]
        clean = images(*size, count=1).expand(len(again), -1, -1, -1).contiguous()
        one = torch.zeros(len(again), dtype=torch.int64)
        assert torch.equal(at(found, clean, track[again], one), at(found, clean, track[again + 1], one))
        whole = found.amounts(track, *size)
        assert torch.equal(whole, whole.round())


@pytest.mark.parametrize("found", STOCHASTIC)
def test_fields_differ_between_images_seeds_and_fields(found: Property) -> None:
    same = images(32, 32, count=1).expand(4, -1, -1, -1).contiguous()
    one = at(found, same, 0.5)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, at(found, same, 0.5, seed=6))
    given = {"seed": 5, "ids": torch.zeros(4, dtype=torch.int64)}
    severities = torch.full((4, 1), 0.5, dtype=torch.float64)
    fields = found.apply(same, severities, fields=torch.tensor([0, 0, 1, 2]), **given)
    assert torch.equal(fields[0], one[0])
    assert torch.equal(fields[0], fields[1])
    assert not torch.equal(fields[1], fields[2])
    assert not torch.equal(fields[2], fields[3])


@pytest.mark.parametrize("found", STOCHASTIC)
def test_severity_scales_one_field(found: Property) -> None:
    """The change at one severity looks like the change at the next, and not like that of another field."""
    grey = torch.full((3, 3, 64, 64), 60, dtype=torch.uint8)
    severities = torch.tensor([[0.30], [0.36], [0.36]], dtype=torch.float64)
    ids = torch.zeros(3, dtype=torch.int64)
    changed = found.apply(grey, severities, seed=1, ids=ids, fields=torch.tensor([0, 0, 1])).flatten(1).double()
    alike = torch.corrcoef(changed)
    assert float(alike[0, 1]) > 0.8
    assert float(alike[0, 2]) < 0.7


@pytest.mark.parametrize("found", MOTIONS)
def test_matrices_move_a_marked_pixel_to_where_the_image_has_it(found: Property) -> None:
    height, width = 96, 128
    marks = torch.tensor([[40, 30], [70, 50], [64, 48], [90, 60]])
    track = torch.cat([part[: len(part) // 6] for part in found.tracks(height, width)])
    for severity in track[torch.linspace(0, len(track) - 1, 12).round().long()]:
        pictures = torch.zeros(len(marks), 1, height, width, dtype=torch.uint8)
        for picture, (x, y) in zip(pictures, marks.tolist(), strict=True):
            picture[0, y - 2 : y + 3, x - 2 : x + 3] = 255
        severities = severity.expand(len(marks), -1)
        moved = at(found, pictures, severities)[:, 0].double()
        there = torch.einsum(
            "bij,bj->bi", found.matrices(severities, height, width), torch.cat([marks, torch.ones(4, 1)], 1).double()
        )
        mass = moved.sum((1, 2))
        across = (moved.sum(1) * torch.arange(width)).sum(1) / mass
        down = (moved.sum(2) * torch.arange(height)).sum(1) / mass
        assert float((across - there[:, 0]).abs().max()) < 0.02
        assert float((down - there[:, 1]).abs().max()) < 0.02


def test_rotation_is_opencv_s() -> None:
    """Anticlockwise about (w/2, h/2), black outside; OpenCV's float code rounds elsewhere."""
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
@pytest.mark.parametrize("size", [(224, 224), (33, 20), (100, 50)], ids=str)
def test_translation_is_a_shift_of_the_array(name: str, axis: int, size: tuple[int, int]) -> None:
    found = find_property(name)
    clean = images(*size, count=1)
    for track, sign in zip(found.tracks(*size), (1, -1), strict=True):
        moved = at(found, clean.expand(len(track), -1, -1, -1).contiguous(), track)
        for step, picture in enumerate(moved, 1):
            pixels = size[axis] * step // len(track)  # cut off to whole pixels
            assert float(found.amounts(track[step - 1 : step], *size)) == sign * pixels
            plain = np.zeros_like(clean[0].numpy())
            to, origin = (slice(pixels, None), slice(0, size[axis] - pixels))[::sign]
            plain[(slice(None),) * (axis + 1) + (to,)] = clean[0].numpy()[(slice(None),) * (axis + 1) + (origin,)]
            assert np.array_equal(picture.numpy(), plain)


@pytest.mark.parametrize("size", [(224, 224), (33, 20), (8, 8)], ids=str)
def test_spatial_goes_by_displacement_in_all_directions(size: tuple[int, int]) -> None:
    height, width = size
    found = find_property("spatial")
    (track,) = found.tracks(*size)
    amounts = found.amounts(track, *size)
    assert bool((amounts.diff() > 0).all()), "no two alike"
    assert len(track.unique(dim=0)) == 1000
    assert float(amounts[0]) > 0.01 * math.hypot(*size) / 100
    y, x = torch.meshgrid(torch.arange(height).double(), torch.arange(width).double(), indexing="ij")
    places = torch.stack([x.flatten(), y.flatten(), torch.ones(height * width)])
    for index in (0, 10, 100, 500, 999):
        moved = found.matrices(track[index : index + 1], *size)[0] @ places
        plain = (moved - places).square().sum(0).mean().sqrt()
        assert float(amounts[index]) == pytest.approx(float(plain), rel=1e-9)
    moves = track[:, 1:] * 5
    assert float((moves - moves.round()).abs().max()) < 1e-12
    assert float(track[:, 0].abs().max()) > 0.9
    for part in track.tensor_split(4):
        turned = part[:, 0] > 0
        assert 0.3 < float(turned.double().mean()) < 0.7
    if size == (224, 224):
        assert len(moves.round().unique(dim=0)) == 121
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
    # on a larger model input, where nothing leaves the frame between the two warps
    twice = cv2.warpAffine(cv2.warpAffine(picture, around, (120, 100)), np.float64([[1, 0, 3], [0, 1, -2]]), (120, 100))
    assert np.abs(np.rint(twice[20:80, 20:100]) - ours).max() <= 1


def test_a_projective_warp_is_opencv_s() -> None:
    clean = images(64, 80, count=2)
    matrix = np.array([[1.1, 0.05, -3], [-0.02, 0.95, 2], [0.0006, -0.0009, 1]])
    ours = warp(clean, torch.from_numpy(matrix).expand(2, 3, 3)).permute(0, 2, 3, 1).numpy()
    for row, picture in enumerate(clean.permute(0, 2, 3, 1).contiguous().numpy()):
        theirs = cv2.warpPerspective(picture.astype(np.float32), matrix, (80, 64))
        gap = np.abs(np.rint(theirs) - ours[row])
        assert np.median(gap) == 0
        assert (gap > 2).mean() < 0.01


@pytest.mark.parametrize("size", [(224, 224), (33, 20), (8, 60)], ids=str)
def test_gaussian_blur_is_scipy_s(size: tuple[int, int]) -> None:
    clean = images(*size, count=9)
    severities = torch.tensor([0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 0.8, 1.0], dtype=torch.float64)[:, None]
    ours = at(find_property("gaussian_blur"), clean, severities).numpy()
    for row, severity in enumerate(severities[:, 0].tolist()):
        sigma = 0.2 * severity * max(size)
        theirs = ndimage.gaussian_filter(clean[row].numpy().astype(np.float64), (0, sigma, sigma))
        assert np.abs(ours[row] - theirs).max() < 0.5 + 0.15, sigma
        assert (np.rint(theirs) != ours[row]).mean() < 0.04, sigma


@pytest.mark.parametrize("size", [(224, 224), (33, 20), (8, 60)], ids=str)
@pytest.mark.parametrize("variant", ["dsn2020", "equations"])
def test_motion_blur_is_opencv_s_filter(size: tuple[int, int], variant: str) -> None:
    """The authors' kernel, k×k with its line in row round((k-1)/2); and a plain column. Sums are compared, to the bit."""
    shorter = min(size)
    lengths = [1, 2, 3, 4, 5, 6, 7, shorter - 2, shorter - 1, shorter]
    clean = images(*size, count=len(lengths))
    severities = torch.tensor(lengths, dtype=torch.float64)[:, None] / shorter
    ours = at(find_property(f"motion_blur:{variant}"), clean, severities).permute(0, 2, 3, 1).numpy()
    for row, length in enumerate(lengths):
        kernel = np.zeros((length, length)) if variant == "dsn2020" else np.ones((length, 1))
        if variant == "dsn2020":
            kernel[round((length - 1) / 2)] = 1
        picture = np.ascontiguousarray(clean[row].permute(1, 2, 0).numpy()).astype(np.float64)
        sums = cv2.filter2D(picture, -1, kernel).round()
        assert np.array_equal(np.rint((sums / length).astype(np.float32)), ours[row]), length


@pytest.mark.parametrize(
    "found", [pytest.param(found, id=found.id) for found in PROPERTIES.values() if found.id in reference.PROPERTIES]
)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (33, 20), (40, 64)], ids=str)
def test_agrees_with_plain_code(found: Property, channels: int, size: tuple[int, int]) -> None:
    clean = images(*size, channels)
    ids, severities = torch.tensor([3, -9, 1 << 40, 5]), some_severities(found, *size, 4)
    ours = at(found, clean, severities, ids)
    for row in range(4):
        picture = clean[row].permute(1, 2, 0).numpy().astype(np.float64)
        chance = reference.Chance(5, found.name, int(ids[row]), 0)
        plain = reference.PROPERTIES[found.id](picture, severities[row, 0].item(), chance)
        gap = np.abs(np.clip(plain, 0, 255) - ours[row].permute(1, 2, 0).numpy())
        assert gap.max() < 0.5 + 2e-3, f"up to {gap.max()} grey levels"


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


def test_more_snow_and_more_salt_only_add() -> None:
    grey = torch.full((60, 3, 64, 64), 100, dtype=torch.uint8)
    ids, severities = torch.zeros(60, dtype=torch.int64), torch.linspace(0.02, 1, 60, dtype=torch.float64)[:, None]
    for name in ("snow", "salt_and_pepper"):
        changed = at(find_property(name), grey, severities, ids) != 100
        assert not bool((changed[:-1] & ~changed[1:]).any())
        assert bool(changed[-1].any())


def test_your_own_frost(tmp_path: Path) -> None:
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
        other = use_frost_template(tmp_path / "window_7.png")
        assert other is not found and at(other, black, 1.0)[0, :, :, 50:].unique().tolist() == [80]
    finally:
        for name in [name for name in PROPERTIES if name.startswith("frost:window_7")]:
            PROPERTIES._parts.pop(name)
    with pytest.raises(ConfigError, match="is no image of frost that can be read"):
        (tmp_path / "text.png").write_text("no")
        use_frost_template(tmp_path / "text.png")
    with pytest.raises(ConfigError, match="No such file"):
        use_frost_template(tmp_path / "nowhere.png")


def test_frost_grows_the_same_every_time() -> None:
    one = grow_frost()
    assert np.array_equal(one, grow_frost())
    assert math.sqrt(((one / 255) ** 2).mean()) == pytest.approx(0.5, abs=0.005)


def test_names_and_readings() -> None:
    assert find_property("brightness").variant == "dsn2020"
    assert find_property("brightness", "equations").variant == "equations"
    assert find_property("contrast", "equations").variant == "dsn2020"
    with pytest.raises(UnknownName, match="did you mean brightness"):
        find_property("brightnes")
    with pytest.raises(UnknownName, match="no variant 'paper'; it has dsn2020, equations"):
        find_property("fog:paper")


def test_amounts_are_told_with_their_units() -> None:
    def told(name: str, severity: float) -> str:
        found = find_property(name)
        amount = found.amounts(torch.tensor([[severity]], dtype=torch.float64), 224, 224)
        return found.facts.tell(float(amount))

    assert told("rotation", -0.07) == "-12.6 degrees"
    assert told("brightness", 1 / 500) == "× 1.51"
    assert told("brightness:equations", -1 / 255) == "-1 grey level"
    assert told("horizontal_translation", 0.02) == "4 px"
    assert told("motion_blur", 0.1) == "22 px"
    assert told("gaussian_blur", 0.1) == "sigma 4.48"
    assert told("salt_and_pepper", 0.25) == "25 % of pixels"
    assert told("salt_and_pepper", 0.01) == "1 % of pixels"
    assert told("snow", 0.5) == "50 flakes"
    assert told("snow", 0.001) == "1 flake"
