"""Criteria of detectors, and the weighted distance, against results by hand."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from brinell.boxes import Detections
from brinell.criteria.criterion import CAUSES, Answer, Scene, find_criterion
from brinell.criteria.distance import own_regions, weighted_distance
from brinell.criteria.verdict import verdict_of_detector

HERE, AWAY = [10.0, 10, 50, 50], [60.0, 60, 90, 90]


def detections(*found: list[tuple[list[float], int, float]]) -> Detections:
    most = max(1, max(len(each) for each in found))
    boxes, labels, scores = (
        torch.zeros(len(found), most, 4),
        torch.full((len(found), most), -1),
        torch.zeros(len(found), most),
    )
    for image, each in enumerate(found):
        for index, (box, label, score) in enumerate(each):
            boxes[image, index], labels[image, index], scores[image, index] = torch.tensor(box), label, score
    return Detections(boxes, labels, scores)


def scene(now: Detections, clean: Detections, label: int = 1) -> Scene:
    count = len(now.labels)
    labels, regions = torch.full((count,), label), torch.tensor([HERE] * count)
    return Scene(now, clean, clean.class_scores(4), labels, regions, 100, 100)


def broken(name: str, now: Detections, clean: Detections) -> list[bool]:
    seen = scene(now, clean)
    probabilities = now.class_scores(4)
    answer = Answer(verdict_of_detector(probabilities, seen.labels), probabilities, seen)
    return find_criterion(name, None, 4)(answer).tolist()


CLEAN = detections(*[[(HERE, 1, 0.9), (AWAY, 2, 0.5)]] * 5)
NOW = detections(
    [(HERE, 1, 0.8), (AWAY, 2, 0.6)],  # as before
    [(AWAY, 1, 0.8)],  # elsewhere
    [(HERE, 3, 0.8), (AWAY, 2, 0.5)],  # another class
    [],
    [(HERE, 1, 0.8), (AWAY, 2, 0.9), ([0.0, 60, 20, 80], 3, 0.4)],  # more
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("target_class_missing", [False, False, True, True, False]),
        ("target_class_missing(3)", [True, True, False, True, False]),
        ("regional_target_class_missing", [False, True, True, True, False]),
        ("target_class_boost(3)", [False, False, True, False, True]),
        ("target_class_boost(2, 0.35)", [False, False, False, False, True]),
        ("weighted_ap", [False, True, True, True, True]),
        ("weighted_ap(0.3)", [False, True, False, False, False]),
        ("target_class_missing & weighted_ap", [False, False, True, True, False]),
        ("target_class_missing & misclassification", [False, False, True, True, False]),
        ("default", [False, False, True, True, True]),
    ],
)
def test_criteria(name: str, expected: list[bool]) -> None:
    assert broken(name, NOW, CLEAN) == expected
    if name != "target_class_missing(3)" and name != "default":
        assert not any(broken(name, CLEAN, CLEAN)), "the clean image is never broken"


def test_a_boost_includes_scores_below_the_threshold() -> None:
    now = detections([(HERE, 3, 0.31)])
    weak = scene(now, detections([]))
    weak = dataclasses.replace(weak, clean_probabilities=torch.tensor([[0, 0, 0, 0.29]]))
    scores = now.class_scores(4)
    answer = Answer(verdict_of_detector(scores, weak.labels), scores, weak)
    assert not find_criterion("target_class_boost(3)", None, 4)(answer).any()
    assert find_criterion("target_class_boost(3, 0.01)", None, 4)(answer).all()


def test_a_region_needs_the_given_overlap() -> None:
    half = detections([([10.0, 10, 30, 50], 1, 0.9)])
    assert broken("regional_target_class_missing(0.4)", half, half) == [False]
    assert broken("regional_target_class_missing(0.6)", half, half) == [True]
    touching = detections([([50.0, 10, 90, 50], 1, 0.9)])
    assert broken("regional_target_class_missing", touching, touching) == [True], "touching is not overlapping"


def test_the_weighted_distance_by_hand() -> None:
    """One of two boxes changed its class; one of two is lost; one is new."""
    total = 40 * 40 + 30 * 30
    weight = 0.1 * (total / 10_000) / (total / 10_000 + 0.001)
    found = weighted_distance(scene(NOW, CLEAN))
    assert float(found[0]) == 0
    assert float(found[2]) == pytest.approx(0.5 / 3.1, rel=1e-5)
    both_lost = weight / 2 + 0.1
    assert float(found[3]) == pytest.approx(both_lost / 3.1, rel=1e-5)
    more = total + 400
    new = 0.1 * (more / 10_000) / (more / 10_000 + 0.001) * 400 / more
    assert float(found[4]) == pytest.approx((new + 0.1 / 3) / 3.1, rel=1e-5)


def test_the_verdict_on_a_detector() -> None:
    """Classes that were not found rank after those that were; if nothing was found, no prediction is correct."""
    scores = torch.tensor([[0.0, 0, 0], [0, 0.4, 0.2], [0.9, 0.4, 0.2]])
    found = verdict_of_detector(scores, torch.tensor([0, 0, 0]))
    assert found.prediction.tolist() == [-1, 1, 0]
    assert found.rank.tolist() == [1, 2, 0]


def test_regions_without_annotations() -> None:
    found = own_regions(NOW, torch.ones(5, dtype=torch.int64))
    assert found[0].tolist() == HERE and found[1].tolist() == AWAY
    assert not found[2].any()


# ---- explanations ----

NAMES = ("sky", "bus", "cat", "dog")


def explained(name: str, now: Detections, clean: Detections, threshold: float = 0.25) -> list[tuple[str, str]]:
    """Return the cause and the explanation of each image; detections below the threshold are not found."""
    found = now.where(now.scores >= threshold)
    seen = dataclasses.replace(scene(found, clean), score_threshold=threshold)
    probabilities = now.class_scores(4)
    answer = Answer(verdict_of_detector(probabilities, seen.labels), probabilities, seen)
    criterion = find_criterion(name, outputs=4, task="detection")
    assert criterion.cause is not None and criterion.explain is not None and bool(criterion(answer).all())
    texts = criterion.explain(answer, NAMES.__getitem__)
    return [(CAUSES[code], text) for code, text in zip(criterion.cause(answer).tolist(), texts, strict=True)]


BUS = detections([(HERE, 1, 0.72)])


@pytest.mark.parametrize(
    ("criterion", "now", "cause", "text"),
    [
        ("target_class_missing", [], "lost", "bus lost"),
        (
            "target_class_missing",
            [(HERE, 1, 0.21)],
            "score below threshold",
            "score of bus 0.21 is below the threshold 0.25",
        ),
        (
            "target_class_missing",
            [(HERE, 1, 0.2499)],
            "score below threshold",
            "score of bus 0.2499 is below the threshold 0.25",
        ),
        ("target_class_missing", [(HERE, 2, 0.6)], "class changed", "class changed to cat"),
        (
            "target_class_missing",
            [(HERE, 2, 0.6), (HERE, 1, 0.1)],
            "class changed",
            "class changed to cat (score of bus 0.10 is below the threshold 0.25)",
        ),
        ("target_class_missing", [(AWAY, 2, 0.6)], "lost", "bus lost"),
        ("target_class_missing(2)", [(HERE, 1, 0.6)], "lost", "cat lost"),
        (
            "regional_target_class_missing(0.5)",
            [([30.0, 10, 70, 50], 1, 0.8)],
            "box moved",
            "box moved: IoU 0.33, required above 0.5",
        ),
        ("regional_target_class_missing(0.5)", [(AWAY, 1, 0.8)], "box moved", "box moved: IoU 0.00, required above 0.5"),
        (
            "regional_target_class_missing(0.5)",
            [(HERE, 1, 0.2)],
            "score below threshold",
            "score of bus 0.20 is below the threshold 0.25",
        ),
        (
            "target_class_boost(3)",
            [(AWAY, 3, 0.9)],
            "score rose",
            "score of dog rose from 0.00 to 0.90, by more than 0.3",
        ),
        (
            "weighted_ap",
            [(AWAY, 3, 0.9)],
            "detections changed",
            "detections changed: weighted distance 0.096, above 0.0001",
        ),
    ],
)
def test_a_criterion_explains_itself(
    criterion: str, now: list[tuple[list[float], int, float]], cause: str, text: str
) -> None:
    assert explained(criterion, detections(now), BUS) == [(cause, text)]


def test_joined_criteria_give_both_reasons() -> None:
    (found,) = explained("target_class_missing & target_class_boost(3)", detections([(AWAY, 3, 0.9)]), BUS)
    assert found == ("lost", "bus lost; score of dog rose from 0.00 to 0.90, by more than 0.3")
    (found,) = explained("target_class_missing & original_class_confidence_loss(0.5)", detections([(HERE, 1, 0.1)]), BUS)
    assert found[1] == "score of bus 0.10 is below the threshold 0.25; the true class's score 0.10 is below 0.5"
