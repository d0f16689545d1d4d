"""Criteria of classifiers, and verdicts on scores."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from brinell.classes import Classes
from brinell.criteria.criterion import CAUSES, CLASS_CHANGED, CRITERIA, Answer, Criterion, find_criterion
from brinell.criteria.verdict import verdict
from brinell.errors import ConfigError, LabelError, UnknownName


@drawn(data=st.data())
@settings(deadline=None, max_examples=80)
def test_rank_is_the_position_in_the_sorted_scores(data: st.DataObject) -> None:
    """Ties rank by index, so that rank 0 and argmax always agree."""
    classes = data.draw(st.integers(1, 6))
    rows = data.draw(
        st.lists(
            st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5]), min_size=classes, max_size=classes), min_size=1, max_size=4
        )
    )
    scores = torch.tensor(rows)
    labels = torch.tensor([data.draw(st.integers(0, classes - 1)) for _ in rows])
    found = verdict(scores, labels)
    for row, label in enumerate(labels.tolist()):
        order = sorted(range(classes), key=lambda index: (-float(scores[row, index]), index))
        assert int(found.rank[row]) == order.index(label)
        assert (int(found.rank[row]) == 0) == (int(found.prediction[row]) == label)
        assert float(found.probability[row]) == float(scores[row, label])
        assert float(found.confidence[row]) == float(scores[row].max())


SCORES = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.05, 0.05, 0.9]])
LABELS = torch.tensor([0, 0, 0])
NAMES = Classes(("x", "a, b", "y"))
OF_CLASSIFIERS = [name for name in CRITERIA if CRITERIA[name].__module__.endswith("classification")]


def make_answer(scores: torch.Tensor, labels: torch.Tensor) -> Answer:
    return Answer(verdict(scores, labels), scores)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("misclassification", [False, True, True]),
        ("top_k_misclassification(2)", [False, True, False]),
        ("top_k_misclassification", [False, False, False]),
        ("confident_misclassification(0.8)", [False, False, True]),
        ("misclassification & top_k_misclassification(2)", [False, True, False]),
        ("original_class_confidence_loss", [False, True, True]),
        ("original_class_confidence_loss(0.08)", [False, False, True]),
        ("target_class(2)", [False, False, True]),
        ("target_class(a, b)", [False, True, False]),
        ("target_class_probability(2, 0.25)", [False, True, True]),
        ("target_class_probability(b)", [False, True, False]),
        ("target_class_probability(2, 0.2) & top_k_misclassification(2)", [False, True, False]),
    ],
)
def test_criteria(name: str, broken: list[bool]) -> None:
    assert find_criterion(name, NAMES, 3)(make_answer(SCORES, LABELS)).tolist() == broken


def with_defaults(name: str) -> Criterion:
    """Return a criterion with its defaults, and a target if it needs one."""
    return find_criterion(f"{name}(2)" if name.startswith("target") else name)


@pytest.mark.parametrize("name", OF_CLASSIFIERS)
def test_every_criterion_is_documented(name: str) -> None:
    assert with_defaults(name)(make_answer(SCORES, LABELS)).dtype == torch.bool
    assert CRITERIA[name].__doc__


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("top_k_misclassification(2)", {1: "the true class has rank 3, not among the best 2"}),
        ("confident_misclassification(0.8)", {2: "class changed to y; its score 0.90 is at least 0.8"}),
        (
            "original_class_confidence_loss",
            {1: "the true class's score 0.10 is below 0.5", 2: "the true class's score 0.05 is below 0.5"},
        ),
        ("target_class_probability(2, 0.25)", {1: "score of y 0.30 is above 0.25", 2: "score of y 0.90 is above 0.25"}),
    ],
)
def test_criteria_explain_themselves(name: str, texts: dict[int, str]) -> None:
    criterion, answer = find_criterion(name, NAMES, 3), make_answer(SCORES, LABELS)
    assert criterion.explain is not None
    explained = criterion.explain(answer, NAMES.short_name)
    assert {row: explained[row] for row, broken in enumerate(criterion(answer).tolist()) if broken} == texts


@pytest.mark.parametrize("name", OF_CLASSIFIERS)
def test_criteria_that_need_no_scores_give_the_same_result_for_labels(name: str) -> None:
    labels_only = torch.nn.functional.one_hot(SCORES.argmax(1), 3).float()
    same = with_defaults(name)(make_answer(labels_only, LABELS)).equal(with_defaults(name)(make_answer(SCORES, LABELS)))
    assert same or with_defaults(name).scores


@pytest.mark.parametrize("name", OF_CLASSIFIERS)
def test_a_correct_and_confident_prediction_is_never_broken(name: str) -> None:
    confident = torch.eye(6)[[0, 1, 3, 4, 5]]  # all classes except the target
    labels = torch.tensor([0, 1, 3, 4, 5])
    assert not with_defaults(name)(make_answer(confident, labels)).any()


def test_unknown_criteria_and_arguments_raise() -> None:
    with pytest.raises(UnknownName, match="did you mean misclassification"):
        find_criterion("missclassification")
    with pytest.raises(ConfigError, match="can't take 'x'"):
        find_criterion("top_k_misclassification(x)")
    with pytest.raises(ConfigError, match="can't take '3'"):
        find_criterion("misclassification(3)")
    with pytest.raises(ConfigError, match=r"target_class needs its target: target_class\(target\)"):
        find_criterion("target_class")
    with pytest.raises(LabelError, match="'c' are not among the model's"):
        find_criterion("target_class(c)", NAMES, 3)
    with pytest.raises(ConfigError, match="expected a criterion"):
        find_criterion("a b")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("top_k_misclassification(0)", r"whole number of classes \(1 or more\), got 0"),
        ("top_k_misclassification(1.5)", "whole number of classes"),
        ("confident_misclassification(90)", "a probability from 0 to 1, got 90"),
        ("original_class_confidence_loss(-0.1)", "a probability"),
        ("target_class_probability(1, 50)", "a probability"),
    ],
)
def test_invalid_numbers_raise(text: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        find_criterion(text, None, 3)


def test_the_first_class_is_a_class() -> None:
    """Only a prediction below 0 means that nothing was found."""
    criterion = find_criterion("misclassification", NAMES, 3)
    answer = Answer(verdict(SCORES, torch.tensor([1, 0, 0])), SCORES)
    assert criterion.cause is not None
    assert answer.verdict.prediction.tolist() == [0, 1, 2]
    assert [CAUSES[code] for code in criterion.cause(answer)] == [CAUSES[CLASS_CHANGED]] * 3
