"""Laws for every registered operator, those of installed plugins included; built-in ones also agree with plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from brinell.errors import ModelError, UnknownName
from brinell.perturb import codec
from brinell.perturb.occlusion import line_coverage
from brinell.perturb.operator import OPERATORS, Facts, Kind, Operator, find_operator, operator_names, step_operator

ALL = [pytest.param(operator, id=operator.id) for operator in OPERATORS.values()]
STOCHASTIC = [pytest.param(operator, id=operator.id) for operator in OPERATORS.values() if operator.stochastic]
BUILT_IN = [operator for operator in OPERATORS.values() if reference.is_built_in(operator)]
BUILT_IN_BLACK_BOX = [pytest.param(operator, id=operator.id) for operator in BUILT_IN if not operator.white_box]
SIZES = [(8, 8), (8, 23), (31, 12), (64, 64)]
IDS = torch.tensor([123456789012345, -77, 5, 6])


def images(height: int, width: int, channels: int = 3, count: int = 4) -> torch.Tensor:
    """Return smooth colours with some noise, different in every image."""
    generator = torch.Generator().manual_seed(height * 1000 + width)
    coarse = torch.rand(count, channels, 4, 4, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear", align_corners=True)
    noise = torch.randint(-15, 16, smooth.shape, generator=generator)
    return (smooth + noise).clamp(0, 255).to(torch.uint8)


def some_gradient(pixels: torch.Tensor, rows: torch.Tensor | slice) -> torch.Tensor:
    """Return the gradient of a made-up loss that grows with brightness."""
    return pixels.to(torch.float32) / 255 - 0.5


def at(operator: Operator, pixels: torch.Tensor, level: int, ids: torch.Tensor = IDS, seed: int = 5) -> torch.Tensor:
    return operator.at(pixels, level, seed=seed, ids=ids, gradient=some_gradient)


def test_the_operators_of_the_paper_are_registered() -> None:
    names = """black_lines white_lines boxes global_blur local_blur noise pixel_exchange adjacent_exchange white_fog
        fade_black fade_white fade_grey posterise jpeg gradient_descent"""
    assert set(names.split()) <= set(operator_names())


@pytest.mark.parametrize("operator", ALL)
def test_every_operator_has_a_title_a_source_and_a_docstring(operator: Operator) -> None:
    """`brinell ls operators` shows the first line of the docstring."""
    assert operator.facts.title and operator.facts.source
    assert operator.function.__doc__, f"describe in the docstring of {operator.id}'s function what one more level does"


@pytest.mark.parametrize("operator", ALL)
def test_level_zero_leaves_images_unchanged(operator: Operator) -> None:
    clean = images(16, 16)
    assert torch.equal(at(operator, clean, 0), clean)


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_images_of_any_size_grey_or_rgb_keep_shape_and_type(
    operator: Operator, channels: int, size: tuple[int, int]
) -> None:
    clean = images(*size, channels)
    changed = at(operator, clean, 3)
    assert changed.shape == clean.shape
    assert changed.dtype == torch.uint8
    if channels == 3:
        assert not torch.equal(at(operator, clean, 30), clean), "level 30 changes nothing"


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_only_fading_to_grey_leaves_grey_images_unchanged(size: tuple[int, int]) -> None:
    clean = images(*size, channels=1)
    unchanged = [operator.name for operator in BUILT_IN if torch.equal(at(operator, clean, 30), clean)]
    assert unchanged == ["fade_grey"]


@pytest.mark.parametrize("operator", ALL)
def test_operators_do_not_overwrite_their_input(operator: Operator) -> None:
    clean = images(16, 16)
    before = clean.clone()
    at(operator, clean, 2)
    assert torch.equal(clean, before)


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_the_batch_size_does_not_change_the_pixels(operator: Operator, batch: int) -> None:
    clean = images(24, 20, count=64)
    ids = torch.arange(64) * 7919
    whole = at(operator, clean, 3, ids)
    parts = [at(operator, part, 3, few) for part, few in zip(clean.split(batch), ids.split(batch), strict=True)]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("operator", ALL)
def test_the_order_of_images_does_not_change_the_pixels(operator: Operator) -> None:
    clean = images(16, 20, count=8)
    ids = torch.arange(8) * 31 + 1
    order = torch.tensor([3, 1, 4, 0, 5, 7, 2, 6])
    assert torch.equal(at(operator, clean[order], 4, ids[order]), at(operator, clean, 4, ids)[order])


@pytest.mark.parametrize("operator", STOCHASTIC)
def test_draws_differ_between_images_seeds_and_steps(operator: Operator) -> None:
    same = images(32, 32, count=1).expand(4, -1, -1, -1).contiguous()
    one = at(operator, same, 1)
    assert not torch.equal(one[0], one[1])
    assert not torch.equal(one, at(operator, same, 1, seed=6))
    assert not torch.equal(one, at(operator, same, 2))


@pytest.mark.parametrize("operator", ALL)
def test_images_advance_from_any_level_to_any_higher_one(operator: Operator) -> None:
    """Each image ends as if it had started clean, whatever the levels of the others in its batch."""
    clean = images(16, 16)
    targets = torch.tensor([4, 2, 0, 7])
    expected = torch.stack([at(operator, clean, int(level))[row] for row, level in enumerate(targets)])
    if operator.kind is Kind.LEVEL:
        start, begun = torch.zeros(4, dtype=torch.int64), clean
    else:
        start = torch.tensor([3, 2, 0, 0])
        begun = torch.stack([at(operator, clean, int(level))[row] for row, level in enumerate(start)])
    advanced = operator.advance(begun, start, targets, seed=5, ids=IDS, gradient=some_gradient)
    assert torch.equal(advanced, expected)


@pytest.mark.parametrize("operator", BUILT_IN_BLACK_BOX)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_built_in_operators_agree_with_plain_loops(operator: Operator, channels: int, size: tuple[int, int]) -> None:
    """The loops write pixel after pixel with the same draws; they call OpenCV where the authors of the paper did."""
    clean = images(*size, channels, count=2)
    for level in (1, 3):
        ours = at(operator, clean, level, IDS[:2]).permute(0, 2, 3, 1).numpy()
        for row in range(2):
            picture = np.ascontiguousarray(clean[row].permute(1, 2, 0).numpy())
            plain = reference.apply_operator(operator.id, picture, level, seed=5, identity=int(IDS[row]))
            gap = np.abs(plain.astype(int) - ours[row])
            if operator.name == "fade_grey":
                # OpenCV's float code may round a product up or down by one grey level
                assert gap.max() <= 1
                assert (gap > 0).mean() < 2e-3
            else:
                assert gap.max() == 0, f"level {level}: {(gap > 0).mean():.2%} of values differ by up to {gap.max()}"


def test_a_built_in_operator_without_a_plain_loop_is_reported_with_what_to_add() -> None:
    with pytest.raises(
        AssertionError, match=r"operator 'scratches:published' .* add .* STEPS .* LEVELS .* tests/reference\.py"
    ):
        reference.apply_operator("scratches:published", np.zeros((8, 8, 3), np.uint8), 1, seed=0, identity=0)


@pytest.mark.parametrize("size", [(224, 224), (37, 61), (61, 37), (9, 8)], ids=str)
def test_lines_are_those_of_opencv(size: tuple[int, int]) -> None:
    import cv2

    height, width = size
    generator = torch.Generator().manual_seed(1)
    count = 300
    along = torch.randint(0, width, (count, 2), generator=generator)
    down = torch.randint(0, height, (count, 2), generator=generator)
    coins = torch.randint(0, 2, (count, 2), generator=generator)
    start_x, start_y = torch.where(coins[:, 0] == 0, 0, along[:, 0]), torch.where(coins[:, 0] == 0, down[:, 0], 0)
    end_x = torch.where(coins[:, 1] == 0, width, along[:, 1])
    end_y = torch.where(coins[:, 1] == 0, down[:, 1], height)
    index, alpha = line_coverage(start_x, start_y, end_x, end_y, height, width)
    for row in range(count):
        theirs = np.zeros((height, width), np.uint8)
        cv2.line(theirs, (int(start_x[row]), int(start_y[row])), (int(end_x[row]), int(end_y[row])), 255, 1, cv2.LINE_AA)
        ours = torch.zeros(height * width, dtype=torch.int32)
        inside = index[row] >= 0
        values = torch.zeros(int(inside.sum()), dtype=torch.int32)
        for _ in range(2):
            values += ((255 - values) * alpha[row][inside] + 127) >> 8
        ours[index[row][inside]] = values
        assert np.array_equal(ours.view(height, width).numpy(), theirs)


@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_exchanges_are_made_one_after_the_other(data: st.DataObject) -> None:
    """Any list of copies or swaps, however entangled, has the result of making them in order."""
    from brinell.perturb.exchange import _both_ways, _replay

    area = data.draw(st.integers(2, 12))
    count = data.draw(st.integers(1, 40))
    pixel = st.integers(0, area - 1)
    pairs = data.draw(st.lists(st.tuples(pixel, pixel), min_size=count, max_size=count))
    targets = torch.tensor([[target for target, _ in pairs]])
    sources = torch.tensor([[source for _, source in pairs]])
    pixels = torch.arange(area, dtype=torch.uint8).view(1, 1, 1, area)
    for plain, ours in (
        (reference.copy, _replay(pixels, targets, sources)),
        (reference.swap, _replay(pixels, *_both_ways(targets, sources))),
    ):
        expected = pixels.numpy().reshape(1, area, 1).copy()
        plain(expected, pairs)
        assert ours.flatten().tolist() == expected.flatten().tolist()


def test_white_box_operators_raise_without_a_gradient() -> None:
    clean = images(8, 8)
    with pytest.raises(ModelError, match="torch model"):
        find_operator("gradient_descent").at(clean, 1, seed=0, ids=IDS)


def test_gradient_descent_increases_the_loss() -> None:
    clean = torch.full((4, 3, 8, 8), 100, dtype=torch.uint8)
    up = torch.ones(4, 3, 8, 8)
    up[:, 1] = -1
    sign = find_operator("gradient_descent").at(clean, 2, seed=0, ids=IDS, gradient=lambda x, rows: up * 0.01)
    assert set(sign[:, 0].unique().tolist()) == {102}
    assert set(sign[:, 1].unique().tolist()) == {98}
    flat = find_operator("gradient_descent:l2").at(clean, 2, seed=0, ids=IDS, gradient=lambda x, rows: up * 0.01)
    assert torch.equal(flat, sign), "both variants take the same step where the gradient has one magnitude everywhere"


def test_an_unknown_name_suggests_the_nearest_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean fade_black"):
        find_operator("fade_blak")
    with pytest.raises(UnknownName, match=r"no variant 'papper'; it has published, paper"):
        find_operator("boxes:papper")


def test_an_operator_without_the_preferred_variant_has_its_first() -> None:
    assert find_operator("jpeg").variant == "standard"
    assert find_operator("global_blur").variant == find_operator("global_blur", "paper").variant == "published"
    assert find_operator("boxes", "paper").variant == "paper"
    assert find_operator("gradient_descent", "paper").variant == "sign"


def test_a_name_in_use_and_an_unknown_parameter_are_refused() -> None:
    facts = Facts("x", "x", lambda level, h, w: level, "local", "pixel", source="a test")
    with pytest.raises(ValueError, match="registered twice"):
        step_operator("noise", facts)(lambda images: images)
    with pytest.raises(TypeError, match="asks for"):
        step_operator("something", facts)(lambda images, weather: images)


def test_tags_follow_from_the_parameters_of_the_function() -> None:
    assert find_operator("noise").tags == ("local", "stochastic", "pixel")
    assert find_operator("fade_black").tags == ("global", "deterministic", "colour")
    assert find_operator("gradient_descent").white_box


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (9, 40), (17, 23), (31, 12), (64, 48)], ids=str)
def test_jpeg_in_tensors_equals_the_codec_to_the_bit(channels: int, size: tuple[int, int]) -> None:
    """Accelerators have no codec; tensor code gives them the same pixels, for smooth images, noise and extremes."""
    generator = torch.Generator().manual_seed(1)
    smooth = images(*size, channels, count=2)
    noise = torch.randint(0, 256, smooth.shape, generator=generator).to(torch.uint8)
    pixels = torch.cat([smooth, noise, (noise > 127).to(torch.uint8) * 255])
    for quality in (2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 31, 40, 49, 50, 51, 65, 80, 89, 95):
        qualities = torch.full((len(pixels),), quality)
        for swapped in (True, False):
            expected = codec._compress_by_codec(pixels, qualities, swapped)
            assert torch.equal(codec._compress_in_tensors(pixels, qualities, swapped), expected), quality


def test_images_are_compressed_alike_on_one_core_and_on_several(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels, qualities = images(40, 48, count=9), torch.arange(10, 100, 10)
    alone = codec._compress_by_codec(pixels, qualities, True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert torch.equal(codec._compress_by_codec(pixels, qualities, True), alone)
    singly = [codec._compress_by_codec(pixels[[row]], qualities[[row]], True) for row in range(9)]
    assert torch.equal(torch.cat(singly), alone)
