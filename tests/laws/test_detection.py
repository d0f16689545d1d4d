"""Detectors: decoding, suppression and moving boxes, against plain loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from brinell.boxes import areas, box_iou, clip_boxes, move_boxes
from brinell.config.detection import Decoding
from brinell.errors import ModelError
from brinell.models.detection import Heads, decode_heads, read_heads, suppress
from brinell.models.preprocess import Preprocess
from brinell.perturb.change import Layout
from brinell.perturb.property import find_property

SIDE = 32


def plain_iou(a: list[float], b: list[float]) -> float:
    wide, tall = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(wide, 0) * max(tall, 0)
    return common / max((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common, 1e-9)


def plain_detections(boxes: Any, scores: Any, floor: float, limit: float, most: int) -> list[tuple[int, int]]:
    """Return the (box, class) pairs of one image by a plain greedy loop, best first."""
    pairs = [(a, k) for a in range(len(boxes)) for k in range(len(scores[0])) if scores[a][k] >= floor]
    pairs.sort(key=lambda pair: (-scores[pair[0]][pair[1]], pair))
    kept: list[tuple[int, int]] = []
    for box, kind in pairs:
        if not any(other == kind and plain_iou(boxes[box], boxes[one]) > limit for one, other in kept):
            kept.append((box, kind))
    return kept[:most]


def crowd(seed: int, images: int = 3, count: int = 40, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Return boxes that overlap a lot, and scores of which many are equal or low."""
    generator = torch.Generator().manual_seed(seed)
    low = torch.rand(images, count, 2, generator=generator) * 0.5
    sides = 0.1 + torch.rand(images, count, 2, generator=generator) * 0.4
    scores = (torch.rand(images, count, classes, generator=generator) * 20).round() / 20
    return torch.cat([low, low + sides], -1), scores


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0]), st.sampled_from([0.01, 0.5]))
@settings(deadline=None, max_examples=40)
def test_detections_are_those_of_the_greedy_loop(seed: int, limit: float, floor: float) -> None:
    boxes, scores = crowd(seed)
    found = decode_heads(
        Heads(boxes, scores), Decoding(iou_threshold=limit, keep_from=floor, max_detections=30), SIDE, SIDE
    )
    for image in range(len(boxes)):
        pixels = (boxes[image] * SIDE).tolist()
        expected = plain_detections(pixels, scores[image].tolist(), floor, limit, 30)
        count = int((found.labels[image] >= 0).sum())
        assert found.labels[image, :count].tolist() == [kind for _, kind in expected]
        assert found.boxes[image, :count].tolist() == [pixels[box] for box, _ in expected]
        assert found.scores[image, :count].tolist() == [scores[image, box, kind].item() for box, kind in expected]
        assert not found.scores[image, count:].any() and not found.boxes[image, count:].any()


def test_a_suppressed_box_suppresses_no_other() -> None:
    """A chain in which each box overlaps the next: every second one remains."""
    boxes = torch.tensor([[[4.0 * index, 0, 4.0 * index + 10, 10] for index in range(7)]])
    kept = suppress(boxes, torch.zeros(1, 7, dtype=torch.int64), torch.ones(1, 7, dtype=torch.bool), 0.4)
    assert kept.tolist() == [[True, False] * 3 + [True]]


def test_detections_do_not_depend_on_the_batch() -> None:
    boxes, scores = crowd(7, images=6)
    together = decode_heads(Heads(boxes, scores), Decoding(), SIDE, SIDE)
    for image in range(6):
        alone = decode_heads(Heads(boxes[image : image + 1], scores[image : image + 1]), Decoding(), SIDE, SIDE)
        assert alone.boxes.equal(together.boxes[image : image + 1])
        assert alone.labels.equal(together.labels[image : image + 1])


def test_a_higher_threshold_keeps_the_best_detections() -> None:
    """So weak detections can be kept for the average precision and filtered elsewhere."""
    boxes, scores = crowd(3)
    all_of_them = decode_heads(Heads(boxes, scores), Decoding(), SIDE, SIDE)
    strong = decode_heads(Heads(boxes, scores), Decoding(keep_from=0.6), SIDE, SIDE)
    filtered = all_of_them.where(all_of_them.scores >= 0.6)
    assert strong.labels.equal(filtered.labels) and strong.scores.equal(filtered.scores)


BOXES = torch.tensor([[[0.1, 0.2, 0.5, 0.6], [0.5, 0.5, 0.9, 1.0]]])
SCORES = torch.tensor([[[0.9, 0.1], [0.2, 0.7]]])


def format_boxes(form: str, units: str) -> Tensor:
    low, high = BOXES[..., :2], BOXES[..., 2:]
    first = (low + high) / 2 if form == "cxcywh" else low
    written = BOXES if form == "xyxy" else torch.cat([first, high - low], -1)
    return written * torch.tensor([40.0, 20, 40, 20]) if units == "pixels" else written


@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
@pytest.mark.parametrize("units", ["relative", "pixels"])
def test_boxes_in_every_format(form: str, units: str) -> None:
    decoding = Decoding.model_validate({"box_format": form, "box_units": units, "keep_from": 0.5})
    found = decode_heads(Heads(format_boxes(form, units), SCORES), decoding, height=20, width=40)
    expected = BOXES[0] * torch.tensor([40.0, 20, 40, 20])
    torch.testing.assert_close(found.boxes[0, :2], expected)
    assert found.labels[0, :3].tolist() == [0, 1, -1]


def test_scores_of_every_kind() -> None:
    def labels(scores: Tensor, **how: Any) -> list[tuple[int, float]]:
        found = decode_heads(Heads(BOXES, scores), Decoding(keep_from=0.15, **how), SIDE, SIDE)
        pairs = zip(found.labels[0].tolist(), found.scores[0].tolist(), strict=True)
        return [(label, round(score, 4)) for label, score in pairs if label >= 0]

    expected = [(0, 0.9), (1, 0.7), (0, 0.2)]
    nothing = 1 - SCORES.sum(2, keepdim=True)
    assert labels(SCORES) == expected
    assert labels(SCORES.logit(), activation="sigmoid") == expected
    assert labels(torch.cat([nothing, SCORES], 2).log(), activation="softmax", background="first") == expected
    assert labels(torch.cat([SCORES, nothing], 2).log(), activation="softmax", background="last") == expected
    halved = decode_heads(Heads(BOXES, SCORES, objectness=torch.tensor([[0.5, 1.0]])), Decoding(), SIDE, SIDE)
    torch.testing.assert_close(halved.scores[0, :2], torch.tensor([0.7, 0.45]))


def test_heads_are_found_by_name_shape_or_column() -> None:
    def same(heads: Heads) -> bool:
        return heads.boxes.equal(BOXES) and heads.scores.equal(SCORES)

    more = BOXES.repeat(1, 9, 1), SCORES.repeat(1, 9, 1)
    together = torch.cat(more, 2)
    assert same(read_heads((BOXES, SCORES), Decoding(), "it"))
    assert same(read_heads({"scores": SCORES, "boxes": BOXES}, Decoding(), "it"))
    assert same(read_heads({"a": SCORES, "b": BOXES, "c": SCORES * 0}, Decoding(boxes="b", scores="a"), "it"))
    for output in (together, together.transpose(1, 2)):
        heads = read_heads(output, Decoding(), "it")
        assert heads.boxes.equal(more[0]) and heads.scores.equal(more[1])
    column = torch.cat([more[0], more[1][..., :1], more[1]], 2)
    heads = read_heads([column], Decoding(objectness="column"), "it")
    assert heads.scores.equal(more[1]) and heads.objectness is not None and heads.objectness.equal(more[1][..., 0])
    with pytest.raises(ModelError, match=r"name the output of detector it that holds the scores \(\?scores=NAME\)"):
        read_heads({"a": SCORES, "b": BOXES, "c": SCORES}, Decoding(), "it")
    with pytest.raises(ModelError, match="has no output 'x'; it has a, b"):
        read_heads({"a": SCORES, "b": BOXES}, Decoding(boxes="x"), "it")
    with pytest.raises(ModelError, match="should return tensors"):
        read_heads({"a": "no"}, Decoding(), "it")


def test_outputs_in_the_form_of_torchvision() -> None:
    """One mapping per image, with boxes in pixels, labels, and duplicates already suppressed."""
    one = {"boxes": torch.tensor([[1.0, 2, 30, 40], [1, 2, 30, 41]]), "labels": torch.tensor([3, 3])}
    one["scores"] = torch.tensor([0.4, 0.8])
    none = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64), "scores": torch.zeros(0)}
    found = decode_heads(read_heads([one, none], Decoding(), "it"), Decoding(), 100, 100)
    assert found.labels[:, :3].tolist() == [[3, 3, -1], [-1, -1, -1]]
    assert found.boxes[0, 0].tolist() == [1, 2, 30, 41]
    nothing = decode_heads(read_heads([none, none], Decoding(), "it"), Decoding(), 100, 100)
    assert nothing.labels.eq(-1).all() and nothing.labels.shape == (2, 100)


def test_an_image_without_an_answer_has_scores_of_nan() -> None:
    boxes, scores = crowd(1)
    scores[1, 4, 2] = torch.nan
    best = decode_heads(Heads(boxes, scores), Decoding(), SIDE, SIDE).class_scores(3)
    assert best.isnan().all(1).tolist() == [False, True, False]
    assert best[0].tolist() == scores[0].amax(0).tolist()


# ---- moving boxes ----


def plain_hull(image: Tensor) -> list[float]:
    rows, columns = image.nonzero(as_tuple=True)
    return [float(columns.min()), float(rows.min()), float(columns.max()) + 1, float(rows.max()) + 1]


@pytest.mark.parametrize("name", ["rotation", "horizontal_translation", "vertical_translation", "spatial"])
@pytest.mark.parametrize("severity", [-0.31, -0.05, 0.0, 0.08, 0.5])
def test_boxes_move_with_the_image(name: str, severity: float) -> None:
    """A white box on black: after the move, the moved box is the white area, within 1.5 pixels."""
    found = find_property(name)
    size, box = 64, [24, 20, 40, 34]
    image = torch.zeros(1, 1, size, size, dtype=torch.uint8)
    image[..., box[1] : box[3], box[0] : box[2]] = 255
    severities = torch.tensor([[severity] * (3 if name == "spatial" else 1)], dtype=torch.float64)
    changed = found.apply(image, severities, seed=0, ids=torch.zeros(1, dtype=torch.int64))
    matrices = found.matrices(severities, Layout(Preprocess(size, size), [(size, size)]))
    assert matrices is not None
    where = move_boxes(torch.tensor([[box]], dtype=torch.float32), matrices)
    expected = clip_boxes(where, size, size)[0, 0]
    if areas(expected) == 0:
        assert not changed.any()
        return
    seen = torch.tensor(plain_hull(changed[0, 0] > 8))
    assert (seen - expected).abs().max() <= 1.5
    if name.endswith("translation"):
        assert seen.equal(expected)


@pytest.mark.parametrize("pre", [Preprocess(48, 64), Preprocess(40, 40, short_side=50), Preprocess(40, 32, short_side=44)])
def test_boxes_are_mapped_to_the_model_input(pre: Preprocess) -> None:
    image = torch.zeros(3, 90, 120, dtype=torch.uint8)
    image[:, 30:60, 42:78] = 255
    model_input = pre.model_input(image)[0]
    box = clip_boxes(pre.map_boxes(torch.tensor([[42.0, 30, 78, 60]]), 90, 120), pre.height, pre.width)[0]
    assert (torch.tensor(plain_hull(model_input > 127)) - box).abs().max() <= 1


def test_box_iou() -> None:
    boxes, _ = crowd(5, images=1, count=12)
    matrix = box_iou(boxes[0], boxes[0])
    for a in range(12):
        for b in range(12):
            assert float(matrix[a, b]) == pytest.approx(plain_iou(boxes[0, a].tolist(), boxes[0, b].tolist()), abs=1e-6)
