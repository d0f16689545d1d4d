"""Laws for every registered property, those of installed plugins included."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import reference
from brinell.errors import UnknownName
from brinell.models.preprocess import Preprocess
from brinell.perturb.change import Layout
from brinell.perturb.property import PROPERTIES, Property, PropertyKind, find_property, property_names

ALL = [pytest.param(found, id=found.id) for found in PROPERTIES.values()]
BUILT_IN = [found for found in PROPERTIES.values() if reference.is_built_in(found)]
STOCHASTIC = [pytest.param(found, id=found.id) for found in PROPERTIES.values() if found.stochastic]
MOTIONS = [pytest.param(found, id=found.id) for found in PROPERTIES.values() if found.kind is PropertyKind.MOTION]
SIZES = [(8, 8), (33, 20), (20, 33), (224, 224)]


def images(height: int, width: int, channels: int = 3, count: int = 4) -> Tensor:
    """Return smooth colours with some noise, different in every image."""
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
    """Return severities spread over the tracks, the weakest and the strongest included."""
    track = torch.cat(found.tracks(height, width))
    return track[torch.linspace(0, len(track) - 1, count).round().long()]


def moves(found: Property, severities: Tensor, height: int, width: int) -> Tensor:
    """Return where a motion takes the pixels of model inputs of a size, (B, 3, 3)."""
    matrices = found.matrices(severities, Layout(Preprocess(height, width), ()))
    assert matrices is not None
    return matrices


def severity_at(found: Property, share: float, size: int) -> Tensor:
    """Return the severity at a share of the first track, (1, P)."""
    track = found.tracks(size, size)[0]
    return track[round(share * len(track)) - 1][None]


@pytest.mark.parametrize("found", ALL)
def test_floats_are_what_whole_grey_levels_are_rounded_from(found: Property) -> None:
    clean, floats = images(33, 20), replace(found, whole=False)
    severities = some_severities(found, 33, 20, len(clean))
    exact = at(floats, clean, severities)
    assert exact.dtype == torch.float32 and float(exact.min()) >= 0 and float(exact.max()) <= 255
    assert torch.equal(exact.round().to(torch.uint8), at(found, clean, severities))
    alone = [at(floats, clean[n, None], severities[n, None], torch.tensor([n * 7919])) for n in range(len(clean))]
    assert torch.equal(torch.cat(alone), exact), "in any batch"
    assert torch.equal(at(floats, clean, torch.zeros_like(severities)), clean.to(torch.float32))
    assert floats.rounded() == found and floats.id == found.id


def test_the_properties_of_the_paper_are_registered() -> None:
    names = """brightness contrast rotation horizontal_translation vertical_translation spatial motion_blur gaussian_blur
        uniform_noise gaussian_noise blended_noise salt_and_pepper fog snow frost"""
    assert [name for name in property_names() if name in names.split()] == names.split(), "listed category by category"
    assert all(f"{name}:dsn2020" in PROPERTIES for name in names.split())
    assert all(
        f"{name}:equations" in PROPERTIES for name in ["brightness", "motion_blur", "gaussian_noise", "fog", "frost"]
    )


@pytest.mark.parametrize("found", ALL)
def test_every_property_has_a_title_a_source_and_a_docstring(found: Property) -> None:
    """`brinell ls operators` shows the first line of the docstring."""
    assert found.facts.title and found.facts.source
    assert found.function.__doc__, f"describe in the docstring of {found.id}'s function what it does"


@pytest.mark.parametrize("found", ALL)
def test_severity_zero_leaves_images_unchanged(found: Property) -> None:
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
def test_images_of_any_size_grey_or_rgb_keep_shape_and_type(found: Property, channels: int, size: tuple[int, int]) -> None:
    clean = images(*size, channels)
    before = clean.clone()
    changed = at(found, clean, some_severities(found, *size, 4))
    assert changed.shape == clean.shape
    assert changed.dtype == torch.uint8
    colourless = found.name == "saturate" and channels == 1
    assert torch.equal(changed[3], clean[3]) == colourless
    assert torch.equal(clean, before), "the input was overwritten"


@pytest.mark.parametrize("found", ALL)
@pytest.mark.parametrize("size", [(224, 224), (33, 20)], ids=str)
def test_neither_batch_size_nor_order_changes_the_pixels(found: Property, size: tuple[int, int]) -> None:
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
def test_a_gpu_gives_the_same_pixels(found: Property, channels: int, size: tuple[int, int]) -> None:
    clean = images(*size, channels, count=16)
    ids, severities = torch.arange(16) * 7919 - 3, some_severities(found, *size, 16)
    here, there = at(found, clean, severities, ids), at(found, clean.cuda(), severities, ids.cuda())
    assert there.device.type == "cuda"
    assert torch.equal(there.cpu(), here), f"{int((there.cpu() != here).sum())} values differ"


@pytest.mark.parametrize("found", ALL)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_tracks_run_from_weak_to_strong(found: Property, size: tuple[int, int]) -> None:
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


def test_searches_try_as_many_severities_as_the_authors() -> None:
    points = {found.id: [len(track) for track in found.tracks(224, 224)] for found in PROPERTIES.values()}
    two_sided = {"brightness": 500, "rotation": 500, "horizontal_translation": 50, "vertical_translation": 50}
    assert all(points[f"{name}:dsn2020"] == [count, count] for name, count in two_sided.items())
    assert all(points[f"{name}:dsn2020"] == [999] for name in ("fog", "snow", "frost"))
    assert points["motion_blur:dsn2020"] == [224]
    rest = "contrast spatial gaussian_blur uniform_noise gaussian_noise blended_noise salt_and_pepper"
    assert all(points[f"{name}:dsn2020"] == [1000] for name in rest.split())


@pytest.mark.parametrize("found", ALL)
def test_equal_amounts_give_equal_images(found: Property) -> None:
    """A search skips severities whose amount it has tried, so an amount has to determine the image."""
    size = (24, 30)
    track = torch.cat(found.tracks(*size, points=400))
    repeats = repeated_amounts(found, track, size)
    if len(repeats):
        repeats = repeats[:: max(1, len(repeats) // 40)]
        clean = images(*size, count=1).expand(len(repeats), -1, -1, -1).contiguous()
        one = torch.zeros(len(repeats), dtype=torch.int64)
        assert torch.equal(at(found, clean, track[repeats], one), at(found, clean, track[repeats + 1], one))


def repeated_amounts(found: Property, track: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the indices of severities whose successor has the same amount."""
    return (found.amounts(track, *size).diff() == 0).nonzero()[:, 0]


def test_amounts_in_pixels_flakes_and_grey_levels_are_whole_numbers() -> None:
    size, whole = (24, 30), []
    for found in BUILT_IN:
        track = torch.cat(found.tracks(*size, points=400))
        if len(repeated_amounts(found, track, size)):
            amounts = found.amounts(track, *size)
            assert torch.equal(amounts, amounts.round()), found.id
            whole.append(found.id)
    expected = [
        found.id for found in BUILT_IN if found.facts.unit in ("px", "flakes") or found.id == "brightness:equations"
    ]
    assert whole == expected


@pytest.mark.parametrize("found", STOCHASTIC)
def test_random_fields_differ_between_images_seeds_and_numbers(found: Property) -> None:
    same = images(96, 96, count=1).expand(4, -1, -1, -1).contiguous()
    severities = severity_at(found, 0.5, 96).expand(4, -1)
    one = at(found, same, severities)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, at(found, same, severities, seed=6))
    given = {"seed": 5, "ids": torch.zeros(4, dtype=torch.int64)}
    fields = found.apply(same, severities, fields=torch.tensor([0, 0, 1, 2]), **given)
    assert torch.equal(fields[0], one[0])
    assert torch.equal(fields[0], fields[1])
    assert not torch.equal(fields[1], fields[2])
    assert not torch.equal(fields[2], fields[3])


@pytest.mark.parametrize("found", STOCHASTIC)
def test_severity_scales_one_random_field(found: Property) -> None:
    """Changes at neighbouring severities correlate; changes by another field do not."""
    grey = torch.full((3, 3, 64, 64), 60, dtype=torch.uint8)
    if found.facts.family:  # some of these move pixels, which a flat image doesn't show
        grey = images(64, 64, count=1).expand(3, -1, -1, -1).contiguous()
    weaker, stronger = severity_at(found, 0.30, 64), severity_at(found, 0.36, 64)
    severities = torch.cat([weaker, stronger, stronger])
    ids = torch.zeros(3, dtype=torch.int64)
    changed = found.apply(grey, severities, seed=1, ids=ids, fields=torch.tensor([0, 0, 1])).flatten(1).double()
    correlation = torch.corrcoef(changed - grey.flatten(1).double())
    assert float(correlation[0, 1]) > 0.7
    # where an image is blended with a field, both changes have the image in common
    assert float(correlation[0, 2]) < (0.9 * float(correlation[0, 1]) if found.facts.family else 0.7)


@pytest.mark.parametrize("found", MOTIONS)
def test_the_matrices_of_a_motion_move_points_as_the_image_moves(found: Property) -> None:
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
            "bij,bj->bi", moves(found, severities, height, width), torch.cat([marks, torch.ones(4, 1)], 1).double()
        )
        mass = moved.sum((1, 2))
        across = (moved.sum(1) * torch.arange(width)).sum(1) / mass
        down = (moved.sum(2) * torch.arange(height)).sum(1) / mass
        assert float((across - there[:, 0]).abs().max()) < 0.02
        assert float((down - there[:, 1]).abs().max()) < 0.02


def test_names_variants_and_near_misses() -> None:
    assert find_property("brightness").variant == "standard"
    assert find_property("contrast").variant == "dsn2020"
    assert find_property("brightness", "equations").variant == "equations"
    assert find_property("contrast", "equations").variant == "dsn2020"
    with pytest.raises(UnknownName, match="did you mean brightness"):
        find_property("brightnes")
    with pytest.raises(UnknownName, match="no variant 'paper'; it has dsn2020, standard, equations"):
        find_property("fog:paper")


def test_amounts_are_shown_with_their_units() -> None:
    def shown(name: str, severity: float) -> str:
        found = find_property(name)
        amount = found.amounts(torch.tensor([[severity]], dtype=torch.float64), 224, 224)
        return found.facts.format(float(amount))

    assert shown("rotation", -0.07) == "-12.6°"
    assert shown("brightness", 1 / 500) == "1.01×"
    assert shown("brightness:dsn2020", 1 / 500) == "1.51×"
    assert shown("brightness:equations", -1 / 255) == "-1 grey level"
    assert shown("horizontal_translation", 0.02) == "4 px"
    assert shown("motion_blur", 0.1) == "22 px"
    assert shown("gaussian_blur", 0.1) == "sigma 4.48 px"
    assert shown("salt_and_pepper", 0.25) == "25 % of pixels"
    assert shown("salt_and_pepper", 0.01) == "1 % of pixels"
    assert find_property("spatial").facts.format(1.0) == "1 px (rms)"
    assert shown("snow", 0.5) == "50 flakes"
    assert shown("snow", 0.001) == "1 flake"
