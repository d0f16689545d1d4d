"""Criteria exactly at their thresholds, and what they say about themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from brinell.boxes import Detections
from brinell.classes import Classes
from brinell.criteria.criterion import (
    BELOW_THRESHOLD,
    BOX_MOVED,
    CLASS_CHANGED,
    CRITERIA,
    DETECTIONS_CHANGED,
    LOST,
    SCORE_ROSE,
    Answer,
    Scene,
    find_criterion,
    format_compared,
)
from brinell.criteria.distance import own_regions, weighted_distance
from brinell.criteria.verdict import verdict, verdict_of_detector
from brinell.errors import ConfigError

# ---- classifiers ----


def answer_of(scores: list[float], label: int) -> Answer:
    table = torch.tensor([scores], dtype=torch.float64)
    return Answer(verdict(table, torch.tensor([label])), table)


EIGHTHS = [3 / 8, 2 / 8, 1 / 8, 1 / 8, 1 / 16, 1 / 16, 0.0]


@pytest.mark.parametrize(
    ("criterion", "label", "broken"),
    [
        ("misclassification", 0, False),
        ("misclassification", 1, True),
        ("top_k_misclassification", 4, False),
        ("top_k_misclassification", 5, True),
        ("top_k_misclassification(1)", 0, False),
        ("top_k_misclassification(1)", 1, True),
        ("confident_misclassification(0.375)", 1, True),
        ("confident_misclassification(0.376)", 1, False),
        ("confident_misclassification(0)", 0, False),
        ("confident_misclassification(1)", 1, False),
        ("original_class_confidence_loss(0.25)", 1, False),
        ("original_class_confidence_loss(0.251)", 1, True),
        ("target_class(0)", 3, True),
        ("target_class_probability(1, 0.25)", 0, False),
        ("target_class_probability(1, 0.249)", 0, True),
    ],
)
def test_thresholds_of_classifiers(criterion: str, label: int, broken: bool) -> None:
    assert find_criterion(criterion, None, 7)(answer_of(EIGHTHS, label)).tolist() == [broken]


def test_what_criteria_need() -> None:
    of_a_class = {name for name in CRITERIA if "target" in name and "regional" not in name} | {"class_iou_below"}
    needs = {name: find_criterion(f"{name}(1)" if name in of_a_class else name) for name in CRITERIA}
    needs = {name: one for name, one in needs.items() if CRITERIA[name].__module__.startswith("brinell.")}
    assert {name for name, one in needs.items() if not one.scores} == {"misclassification", "same_answer", "target_class"}
    assert {name for name, one in needs.items() if one.detections} == {
        "target_class_missing", "regional_target_class_missing", "target_class_boost", "weighted_ap",
    }  # fmt: skip
    assert {name for name, one in needs.items() if one.masks} == {"miou_below", "class_iou_below", "pixels_changed"}
    assert {name for name, one in needs.items() if one.embeddings} == {"embedding_moved"}
    assert {name for name, one in needs.items() if one.clean} == {"same_answer"}
    for name in ("miou_below", "embedding_moved", "same_answer"):
        for text in (f"misclassification & {name}", f"{name} & misclassification"):
            joined = find_criterion(text)
            assert (joined.masks, joined.embeddings, joined.clean) == (
                name == "miou_below", name == "embedding_moved", name == "same_answer",
            )  # fmt: skip
    both = find_criterion("misclassification & target_class(1)")
    assert not both.scores and not both.detections and both.cause is not None
    assert find_criterion("misclassification & top_k_misclassification").scores
    assert find_criterion("target_class(1) & target_class_missing").detections
    assert find_criterion("target_class_missing").name == "target_class_missing"
    assert find_criterion("target_class_missing(2)").name == "target_class_missing(2)"
    assert find_criterion("target_class(1) & target_class(2)").name == "target_class(1) & target_class(2)"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("target_class(route, 66)", "target_class(1)"),
        ("target_class(crane, bird)", "target_class(2)"),
        ("target_class_probability(crane, bird)", "target_class_probability(2, 0.5)"),
        ("target_class_probability(crane, bird, 0.25)", "target_class_probability(2, 0.25)"),
        ("target_class_probability(dog, 0.25)", "target_class_probability(0, 0.25)"),
        ("target_class_probability(2, 0.25)", "target_class_probability(2, 0.25)"),
    ],
)
def test_names_of_classes_may_contain_commas(text: str, meant: str) -> None:
    assert find_criterion(text, Classes(("dog", "route, 66", "crane, bird")), 3).name == meant


def test_a_class_by_name_is_0_until_the_model_is_known() -> None:
    assert find_criterion("target_class(dog)").name == "target_class(0)"
    assert find_criterion("target_class(7)").name == "target_class(7)"


def test_nothing_found_is_lost_and_class_0_is_a_class() -> None:
    cause = find_criterion("misclassification").cause
    assert cause is not None
    table = torch.tensor([[0.4, 0.0], [0.0, 0.3], [0.0, 0.0]])
    answer = Answer(verdict_of_detector(table, torch.tensor([1, 0, 0])), table)
    assert cause(answer).tolist() == [CLASS_CHANGED, CLASS_CHANGED, LOST]


def test_explanations_of_two_criteria_are_joined_and_not_repeated() -> None:
    answer = answer_of(EIGHTHS, 6)
    for text, expected in (
        ("top_k_misclassification(2)", "the true class has rank 7, not among the best 2"),
        (
            "top_k_misclassification(2) & original_class_confidence_loss",
            "the true class has rank 7, not among the best 2; the true class's score 0.00 is below 0.5",
        ),
        ("top_k_misclassification(2) & top_k_misclassification(2)", "the true class has rank 7, not among the best 2"),
        ("misclassification & top_k_misclassification(2)", "the true class has rank 7, not among the best 2"),
    ):
        explain = find_criterion(text).explain
        assert explain is not None and explain(answer, str) == [expected]
    assert find_criterion("misclassification").explain is None


def test_numbers_show_on_which_side_of_a_limit_they_are() -> None:
    compared = [(0.3, 0.5), (0.499, 0.5), (0.4996, 0.5), (0.49996, 0.5), (0.499999, 0.5), (0.5, 0.5)]
    texts = [format_compared(*each) for each in compared]
    assert texts == ["0.30", "0.499", "0.4996", "0.49996", "0.499999", "0.500000"]


@pytest.mark.parametrize(
    "text",
    [
        "top_k_misclassification(5, 6)", "target_class()", "misclassification &",
        "target_class_probability", "confident_misclassification(1.01)",
    ],
)  # fmt: skip
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        find_criterion(text, None, 3)


# ---- detectors ----


def test_verdicts_of_detectors() -> None:
    table = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.5, 0.2], [0.3, 0.5, 0.2], [0.0, 0.0, 0.4], [0.0, 0.9, 0.0]])
    found = verdict_of_detector(table, torch.tensor([1, 0, 0, 2, 0]))
    assert found.prediction.tolist() == [-1, 1, 1, 2, 1]
    assert found.rank.tolist() == [1, 2, 1, 0, 1]
    assert found.confidence.tolist() == pytest.approx([0, 0.5, 0.5, 0.4, 0.9])
    assert found.probability.tolist() == pytest.approx([0, 0, 0.3, 0.4, 0])
    late = verdict_of_detector(torch.tensor([[0.0, 0.9, 0.0], [0.0, 0.0, 0.0]]), torch.tensor([2, 0]))
    assert late.rank.tolist() == [1, 1], "after all classes that were found, and never first"


HERE, NEAR, AWAY = [10.0, 10, 50, 50], [10.0, 10, 50, 30], [60.0, 60, 90, 90]  # NEAR overlaps HERE by a half
Found = list[tuple[list[float], int, float]]


def boxes(*found: Found) -> Detections:
    most = max(1, *(len(each) for each in found))
    places, labels, scores = (
        torch.zeros(len(found), most, 4),
        torch.full((len(found), most), -1),
        torch.zeros(len(found), most),
    )
    for image, each in enumerate(found):
        for index, (box, label, score) in enumerate(each):
            places[image, index], labels[image, index], scores[image, index] = torch.tensor(box), label, score
    return Detections(places, labels, scores)


def detected(now: Detections, clean: Detections, label: int, weak: Any = None, limit: float = 0.25) -> Answer:
    count = len(now.labels)
    scores = now.class_scores(4) if weak is None else torch.tensor(weak)
    labels = torch.full((count,), label)
    scene = Scene(now, clean, clean.class_scores(4), labels, torch.tensor([HERE] * count), 100, 100, limit)
    return Answer(verdict_of_detector(scores, labels), scores, scene)


def test_why_an_object_is_missing() -> None:
    now = boxes([(HERE, 0, 0.8)], [(NEAR, 2, 0.6), (HERE, 3, 0.7)], [(AWAY, 2, 0.9)], [], [(AWAY, 1, 0.5)])
    weak = [[0.8, 0.0, 0, 0], [0, 0.2, 0.6, 0.7], [0, 0.2, 0.9, 0], [0.0, 0, 0, 0], [0, 0.5, 0, 0]]
    answer = detected(now, boxes(*[[(HERE, 1, 0.9)]] * 5), 1, weak)
    criterion, regional = find_criterion("target_class_missing"), find_criterion("regional_target_class_missing(0.1)")
    assert criterion(answer).tolist() == [True, True, True, True, False]
    assert criterion.cause is not None and criterion.explain is not None
    assert criterion.cause(answer).tolist()[:4] == [CLASS_CHANGED, CLASS_CHANGED, BELOW_THRESHOLD, LOST]
    assert criterion.explain(answer, lambda label: "abcd"[label])[:4] == [
        "class changed to a",
        "class changed to d (score of b 0.20 is below the threshold 0.25)",
        "score of b 0.20 is below the threshold 0.25",
        "b lost",
    ]
    assert regional.cause is not None and regional.explain is not None
    assert regional.cause(answer).tolist() == [CLASS_CHANGED, CLASS_CHANGED, BELOW_THRESHOLD, LOST, BOX_MOVED]
    assert regional.explain(answer, str)[4] == "box moved: IoU 0.00, required above 0.1"
    of_three = find_criterion("target_class_missing(3)", None, 4)
    assert of_three(answer).tolist() == [True, False, True, True, True]
    assert of_three.cause is not None and of_three.cause(answer).tolist() == [LOST, BELOW_THRESHOLD, LOST, LOST, LOST]


def test_overlaps_at_their_limits() -> None:
    answer = detected(boxes([(NEAR, 2, 0.6)], [(NEAR, 1, 0.6)]), boxes([(HERE, 1, 0.9)], [(HERE, 1, 0.9)]), 1)
    cause = find_criterion("target_class_missing").cause
    assert cause is not None and cause(answer).tolist()[0] == CLASS_CHANGED, "half of a box is the same place"
    assert find_criterion("regional_target_class_missing(0.5)")(answer).tolist() == [True, True]
    assert find_criterion("regional_target_class_missing(0.49)")(answer).tolist() == [True, False]
    assert find_criterion("regional_target_class_missing")(answer).tolist() == [True, False]
    touching = detected(boxes([([50.0, 10, 90, 50], 1, 0.6)]), boxes([(HERE, 1, 0.9)]), 1)
    assert find_criterion("regional_target_class_missing")(touching).tolist() == [True], "an edge is no overlap"


def test_rising_scores_and_changed_detections() -> None:
    answer = detected(boxes([(HERE, 1, 0.75)], [(HERE, 1, 1.0)]), boxes([(HERE, 1, 0.5)], [(HERE, 1, 0.5)]), 1)
    boost = find_criterion("target_class_boost(1, 0.25)", None, 4)
    assert boost(answer).tolist() == [False, True] and boost.cause is not None and boost.explain is not None
    assert boost.cause(answer).tolist() == [SCORE_ROSE] * 2
    assert boost.explain(answer, str)[1] == "score of 1 rose from 0.50 to 1.00, by more than 0.25"
    assert find_criterion("target_class_boost(1)", None, 4)(answer).tolist() == [False, True]
    apart = find_criterion("weighted_ap")
    assert apart.name == "weighted_ap(0.0001)" and apart.cause is not None and apart.explain is not None
    assert apart.cause(answer).tolist() == [DETECTIONS_CHANGED] * 2
    assert apart.explain(answer, str)[0] == "detections changed: weighted distance 0, above 0.0001"


@pytest.mark.parametrize(
    ("now", "clean", "expected"),
    [
        ([(HERE, 0, 0.9)], [(HERE, 0, 0.9)], 0.0),
        ([(HERE, 2, 0.9)], [(HERE, 0, 0.9)], 1 / 3.1),
        ([(NEAR, 0, 0.9)], [(HERE, 0, 0.9)], 0.0),
        ([(AWAY, 0, 0.9)], [], (0.1 * 0.09 / 0.091 + 0.1) / 3.1),
        ([], [(AWAY, 0, 0.9)], (0.1 * 0.09 / 0.091 + 0.1) / 3.1),
        ([(HERE, 0, 0.9), (AWAY, 0, 0.5)], [(HERE, 0, 0.9)], (0.1 * 0.25 / 0.251 * 0.09 / 0.25 + 0.05) / 3.1),
        ([([-20.0, 10, -5, 50], 0, 0.9)], [], 0.0),
    ],
    ids=["same", "another class", "half", "new", "lost", "one more", "outside"],
)
def test_the_distance_of_detections(now: Found, clean: Found, expected: float) -> None:
    answer = detected(boxes(now), boxes(clean), 0)
    assert weighted_distance(answer.scene).tolist() == pytest.approx([expected], rel=1e-5)


def test_the_distance_of_boxes_of_less_than_a_pixel() -> None:
    share = 0.25 / 100**2
    answer = detected(boxes([([10.0, 10, 10.5, 10.5], 0, 0.9)]), boxes([]), 0)
    assert weighted_distance(answer.scene).tolist() == pytest.approx(
        [(0.1 * share / (share + 0.001) + 0.1) / 3.1], rel=1e-5
    )


def test_the_distance_does_not_depend_on_the_other_images() -> None:
    """Images with fewer boxes than others have empty places, which are no boxes."""
    now, clean = [(AWAY, 0, 0.9)], [(HERE, 0, 0.9)]
    alone = weighted_distance(detected(boxes(now), boxes(clean), 0).scene)
    many = [(HERE, 1, 0.5), (NEAR, 2, 0.4), (AWAY, 3, 0.3)]
    together = weighted_distance(detected(boxes(now, many), boxes(clean, many), 0).scene)
    assert together.tolist() == [float(alone[0]), 0.0]
    assert Scene.score_threshold == 0, "without a threshold, all detections count"


def test_the_box_of_a_label_is_the_first_of_its_class() -> None:
    found = boxes([(HERE, 0, 0.9), (AWAY, 1, 0.5), (NEAR, 1, 0.4)], [(HERE, 2, 0.9)])
    assert own_regions(found, torch.tensor([1, 1])).tolist() == [AWAY, [0, 0, 0, 0]]
