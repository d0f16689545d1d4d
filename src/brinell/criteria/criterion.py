"""The `Criterion` type, a pure function of a batch of predictions, and its registry. Criteria are combined with `&`.

Importing this module does not import torch, so that criteria can be listed quickly.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brinell.classes import Classes, align
from brinell.config.criterion import DEFAULT_CRITERION, Task, default_criterion
from brinell.errors import ConfigError
from brinell.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from brinell.boxes import Detections
    from brinell.criteria.verdict import Verdict
    from brinell.masks import Overlap


@dataclass(frozen=True)
class Scene:
    """What a detector found in a batch of N model inputs of a height and width.

    `detections` are those that count as found, `clean` the same for the clean image, whose scores over all classes are
    `clean_probabilities` (N, K). `labels` (N,) are the classes of the preferred objects, and `regions` (N, 4) their boxes.
    If the image moved, `clean` and `regions` moved with it. Detections count as found from the `score_threshold`.
    """

    detections: Detections
    clean: Detections
    clean_probabilities: Tensor
    labels: Tensor
    regions: Tensor
    height: int
    width: int
    score_threshold: float = 0.0


@dataclass(frozen=True)
class Answer:
    """A batch of predictions: the verdict on them, all probabilities (N, K), what a detector found, and how a segmenter's
    masks agree with the true ones, and the cosine `distance` of an embedder's vectors from those of the clean images (N,).
    """

    verdict: Verdict
    probabilities: Tensor
    found: Scene | None = None
    masks: Overlap | None = None
    distance: Tensor | None = None

    @property
    def scene(self) -> Scene:
        """What a detector found; only for detectors."""
        assert self.found is not None
        return self.found

    @property
    def overlap(self) -> Overlap:
        """How a segmenter's masks agree with the true ones; only for segmenters."""
        assert self.masks is not None
        return self.masks


Rule = Callable[[Answer], "Tensor"]
Namer = Callable[[int], str]  # from an output to the name of its class
Explanation = Callable[[Answer, Namer], list[str]]

# why an answer is broken, as the rows of detectors store it
CAUSES = ("score below threshold", "class changed", "box moved", "lost", "score rose", "detections changed")
BELOW_THRESHOLD, CLASS_CHANGED, BOX_MOVED, LOST, SCORE_ROSE, DETECTIONS_CHANGED = range(len(CAUSES))


@dataclass(frozen=True)
class Criterion:
    """Decides for each image of a batch whether the model is broken.

    `scores`: it needs more than the predicted label, which is all that some services return. `detections`: it needs a
    detector. `masks`: it needs a segmenter. `embeddings`: it needs an embedder. It may explain itself: `cause` returns
    indices into `CAUSES` (N,), and `explain` a text for each image; both speak of broken images alone. A criterion without
    `explain` is one that the predictions themselves explain. `clean`: it compares with the answer to the clean image, which
    must then be the label.
    """

    name: str
    rule: Rule
    scores: bool = True
    detections: bool = False
    masks: bool = False
    embeddings: bool = False
    cause: Rule | None = None
    explain: Explanation | None = None
    clean: bool = False

    def __call__(self, answer: Answer) -> Tensor:
        """Return for which images the model is broken, (N,)."""
        return self.rule(answer)

    def __and__(self, other: Criterion) -> Criterion:
        return Criterion(
            f"{self.name} & {other.name}",
            lambda answer: self(answer) & other(answer),
            self.scores or other.scores,
            self.detections or other.detections,
            self.masks or other.masks,
            self.embeddings or other.embeddings,
            self.cause or other.cause,
            _join_explanations([each for each in (self.explain, other.explain) if each is not None]),
            self.clean or other.clean,
        )


def format_compared(value: float, limit: float) -> str:
    """Return a number with two digits, or as many more as it takes to tell it from the limit that it is compared with."""
    digits = next((digits for digits in range(2, 6) if f"{value:.{digits}f}" != f"{limit:.{digits}f}"), 6)
    return f"{value:.{digits}f}"


def _join_explanations(explanations: list[Explanation]) -> Explanation | None:
    """Return one explanation that gives the texts of all."""
    if len(explanations) < 2:
        return explanations[0] if explanations else None

    def explain(answer: Answer, name: Namer) -> list[str]:
        parts = zip(*(each(answer, name) for each in explanations), strict=True)
        return ["; ".join(dict.fromkeys(part)) for part in parts]

    return explain


Factory = Callable[..., Criterion]
CRITERIA: Registry[Factory] = Registry("criterion", group="brinell.criteria")


def find_criterion(
    text: str, classes: Classes | None = None, outputs: int | None = None, *, task: Task = "classification"
) -> Criterion:
    """Return a criterion by `name` or `name(argument, …)`, or several joined by `&`. A class is given by name or index."""
    if text == DEFAULT_CRITERION:
        text = default_criterion(task)
    first, *others = [_parse(part.strip(), classes, outputs) for part in re.split(r"&(?![^()]*\))", text)]
    for other in others:
        first = first & other
    return first


def check_criterion(text: str) -> None:
    """Raise if a criterion is unknown or can't take its arguments, as far as that shows without a model's classes."""
    find_criterion(text)


def _parse(text: str, classes: Classes | None, outputs: int | None) -> Criterion:
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", text)
    if match is None:
        raise ConfigError(f"expected a criterion such as misclassification or top_k_misclassification(5), got {text!r}")
    name, given = match[1], (match[2] or "").strip()
    factory = CRITERIA[name]
    parameters = list(inspect.signature(factory).parameters.values())
    words = [word.strip() for word in given.rsplit(",", max(0, len(parameters) - 1))] if given else []
    if len(words) == 2 and parameters[0].name == "target" and not _is_number(words[1]):
        words = [given]  # a class whose name contains a comma
    required = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if len(words) < len(required):
        raise ConfigError(
            f"criterion {name} needs its {required[len(words)]}: {name}({', '.join(p.name for p in parameters)})"
        )
    try:
        if len(words) > len(parameters):
            raise ValueError(given)
        named = zip(parameters, words, strict=False)
        return factory(*(_class_index(word, classes, outputs) if p.name == "target" else float(word) for p, word in named))
    except ValueError:
        raise ConfigError(f"criterion {name} can't take {given!r}; {factory.__doc__}") from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _class_index(word: str, classes: Classes | None, outputs: int | None) -> int:
    """Return the index of a class by its name or number; 0 for a name as long as the model is not known."""
    if outputs is None:
        return int(word) if word.isdigit() else 0
    return align([word], own=None, model=classes, outputs=outputs)[word]
