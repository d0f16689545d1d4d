"""Masks: overlaps against plain loops, motions against the motion of a picture, and criteria."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from brinell.classes import Classes
from brinell.criteria.criterion import Answer, find_criterion
from brinell.criteria.verdict import verdict_of_detector
from brinell.errors import LabelError
from brinell.masks import IGNORED, Overlap, class_shares, main_classes, move_masks, overlap, resize_masks
from brinell.models.preprocess import Preprocess

CLASSES = 4
MASKS = st.integers(0, 2**32 - 1).map(
    lambda seed: torch.from_numpy(np.random.default_rng(seed).integers(-1, CLASSES, (2, 5, 6))).to(torch.int16)
)


@given(predicted=MASKS.map(lambda masks: masks.clamp(min=0)), true=MASKS, clean=MASKS)
@settings(deadline=None, max_examples=40)
def test_overlaps_are_those_of_a_plain_loop(predicted: Tensor, true: Tensor, clean: Tensor) -> None:
    found = overlap(predicted, true, clean, CLASSES)
    for number in range(2):
        own, other = predicted[number].flatten().tolist(), true[number].flatten().tolist()
        pairs = [pair for pair in zip(own, other, strict=True) if pair[1] != IGNORED]
        values = []
        for label in range(CLASSES):
            common = sum(pair == (label, label) for pair in pairs)
            union = sum(label in pair for pair in pairs)
            assert (int(found.common[number, label]), int(found.union[number, label])) == (common, union)
            if any(other == label for _, other in pairs):
                values.append(common / union)
        expected = sum(values) / len(values) if values else math.nan
        assert float(found.iou[number]) == pytest.approx(expected, nan_ok=True)
        shown = [
            pair for pair in zip(predicted[number].flatten(), clean[number].flatten(), strict=True) if pair[1] != IGNORED
        ]
        changed = sum(bool(own != other) for own, other in shown) / max(len(shown), 1)
        assert float(found.relabelled[number]) == pytest.approx(changed)


def test_the_mean_iou_is_that_of_torchmetrics() -> None:
    functional = pytest.importorskip("torchmetrics.functional.segmentation")
    draw = torch.Generator().manual_seed(3)
    predicted, true = (torch.randint(0, 3, (4, 16, 16), generator=draw) for _ in range(2))
    expected = functional.mean_iou(predicted, true, num_classes=3, input_format="index", per_class=True)
    found = overlap(predicted.to(torch.int16), true.to(torch.int16), true.to(torch.int16), 3)
    torch.testing.assert_close(found.class_iou, expected)


def test_shares_and_the_main_class_leave_out_the_background_where_there_is_more() -> None:
    masks = torch.zeros(3, 4, 4, dtype=torch.int16)
    masks[0, 0, :3] = 2
    masks[2] = IGNORED
    shares = class_shares(masks, 3, background=0)
    assert shares[:2].tolist() == [[0, 0, 3 / 16], [1, 0, 0]]
    assert bool(shares[2].isnan().all())
    assert main_classes(masks, 3, background=0).tolist() == [2, 0, IGNORED]
    assert main_classes(masks, 3).tolist() == [0, 0, IGNORED]


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_a_turned_mask_is_that_of_the_turned_picture(turn: int) -> None:
    mask = np.arange(25, dtype=np.uint8).reshape(5, 5)
    angle = math.radians(turn)
    spin = torch.tensor([[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0], [0, 0, 1]])
    shift = torch.tensor([[1.0, 0, -2], [0, 1, -2], [0, 0, 1]])
    matrices = (shift.inverse() @ spin @ shift)[None].to(torch.float64)
    found = move_masks(torch.from_numpy(mask)[None].to(torch.int16), matrices)[0]
    assert found.tolist() == np.array(Image.fromarray(mask).rotate(turn)).tolist()


def test_what_comes_from_outside_is_ignored() -> None:
    mask = torch.arange(6, dtype=torch.int16).view(1, 2, 3)
    right = torch.tensor([[[1.0, 0, 1], [0, 1, 0], [0, 0, 1]]], dtype=torch.float64)
    assert move_masks(mask, right).tolist() == [[[IGNORED, 0, 1], [IGNORED, 3, 4]]]


def test_masks_are_resized_and_cropped_as_images_are() -> None:
    """A picture whose levels are its classes, scaled by whole factors, stays the mask's twin."""
    mask = torch.randint(0, 200, (1, 12, 20), generator=torch.Generator().manual_seed(1)).to(torch.int16)
    picture = mask[:, None].to(torch.uint8).expand(-1, 3, -1, -1)
    for preprocess in (Preprocess(24, 40, interpolation="nearest"), Preprocess(24, 24, 3, 24, "nearest")):
        assert torch.equal(preprocess.masks(mask), preprocess.inputs(picture)[:, 0].to(torch.int16))
    assert resize_masks(mask, 12, 20) is mask


def answer(common: list[list[int]], union: list[list[int]], true: list[list[int]], relabelled: list[float]) -> Answer:
    found = Overlap(*(torch.tensor(each, dtype=torch.int32) for each in (common, union, true)), torch.tensor(relabelled))
    shares = torch.full((len(common), 2), 0.5)
    return Answer(verdict_of_detector(shares, torch.zeros(len(common), dtype=torch.int64)), shares, masks=found)


@pytest.mark.parametrize(
    ("name", "broken", "reason"),
    [
        ("miou_below(0.5)", [False, True, False], "mean IoU 0.25 is below 0.5 (cat 0.00, sky 0.50)"),
        ("miou_below(0.2)", [False, False, False], ""),
        ("default", [False, True, False], "mean IoU 0.25 is below 0.5 (cat 0.00, sky 0.50)"),
        ("class_iou_below(cat, 0.3)", [False, True, False], "IoU of cat 0.00 is below 0.3"),
        ("class_iou_below(0)", [False, False, False], ""),
        ("pixels_changed(0.2)", [False, True, True], "30.0% of the pixels have another class, more than 0.2"),
    ],
)
def test_criteria_of_segmenters(name: str, broken: list[bool], reason: str) -> None:
    given_answer = answer([[8, 4], [4, 0], [0, 0]], [[8, 8], [8, 4], [0, 0]], [[8, 4], [4, 4], [0, 0]], [0, 0.3, 0.25])
    names = Classes(("sky", "cat"))
    criterion = find_criterion(name, names, 2, task="segmentation")
    assert criterion.masks
    assert criterion(given_answer).tolist() == broken
    assert criterion.explain is not None
    if reason:
        assert criterion.explain(given_answer, names.short_name)[1] == reason
    with pytest.raises(LabelError):
        find_criterion("class_iou_below(dog)", names, 2)
