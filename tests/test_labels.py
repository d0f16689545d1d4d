"""Labels of any kind are matched with the model's outputs."""

from __future__ import annotations

import pytest

from brinell.classes import Classes, align
from brinell.errors import LabelError
from brinell.models.imagenet import imagenet_classes

PETS = Classes(("tabby, tabby cat", "golden retriever", "crane", "crane", "Egyptian-cat"), ("n1", "n2", "n3", "n4", "n5"))


def indices(*labels: int | str, **options: object) -> list[int]:
    given = {"own": None, "model": PETS, "outputs": len(PETS), **options}
    found = align(labels, **given)  # type: ignore[arg-type]
    return [found[label] for label in labels]


def test_by_index_name_synonym_and_wordnet_id() -> None:
    assert indices(4, "golden retriever", "tabby cat", "TABBY", "golden_retriever", "egyptian cat", "n4") == [
        4,
        1,
        0,
        0,
        1,
        4,
        3,
    ]


def test_digits_are_indices_unless_a_class_has_that_name() -> None:
    assert indices("3") == [3]
    digits = Classes(("1", "0"))
    assert align(["0", "1"], own=None, model=digits, outputs=2) == {"0": 1, "1": 0}


def test_a_dataset_s_integer_labels_are_matched_by_name() -> None:
    assert indices(0, 1, own=("golden retriever", "tabby")) == [1, 0]
    assert indices(0, 1, own=("golden retriever", "tabby"), by_index=True) == [0, 1]


def test_unknown_names_raise_with_the_classes_and_the_nearest_name() -> None:
    with pytest.raises(
        LabelError, match=r"'golden retreiver'.*not among the model's 5 classes.*did you mean golden retriever"
    ):
        indices("golden retreiver", "tabby")


def test_an_index_out_of_range_raises() -> None:
    with pytest.raises(LabelError, match="'1000'"):
        indices(0, 1000)
    with pytest.raises(LabelError):
        indices(-1)


def test_names_need_a_class_list() -> None:
    with pytest.raises(LabelError, match=r"\?classes=FILE"):
        indices("tabby", model=None)


def test_an_ambiguous_name_raises() -> None:
    with pytest.raises(LabelError, match=r"'crane' means more than one class.*2 .* and 3"):
        indices("crane")
    assert indices("n3", "n4") == [2, 3]


def test_imagenet_has_its_thousand_classes() -> None:
    classes = imagenet_classes()
    assert len(classes) == len(classes.ids) == 1000
    assert classes.find("n01440764") == [0]
    assert classes.find("tench") == [0]
    assert classes.find("toilet tissue") == [999]
    assert classes.find("crane") == [134, 517]
    assert classes.short_name(281) == "tabby"


@pytest.mark.parametrize("label", [-1, 3, 1])
def test_an_integer_label_without_a_name_raises(label: int) -> None:
    """-1 often means "no label", and must not select the last class; an empty name matches nothing."""
    with pytest.raises(LabelError, match=f"the labels '{label}' are not among the model's"):
        indices(label, own=("tabby", "", "golden retriever"))
