"""What a criterion is: a pure function of a batch of answers, combined with `&`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.classes import Classes, align
from brinell.config.criterion import DEFAULT_CRITERION, default_criterion
from brinell.errors import ConfigError
from brinell.registry import Registry


@dataclass(frozen=True)
class Verdict:
    """What is read from a batch of answers about known labels, (N,) each.

    `rank` is the number of classes placed before the true one: 0 means right. `probability` is the true label's,
    `confidence` the prediction's.
    """

    prediction: Tensor
    confidence: Tensor
    rank: Tensor
    probability: Tensor


def verdict(probabilities: Tensor, labels: Tensor) -> Verdict:
    """Read predictions, ranks and probabilities off a batch (N, K)."""
    confidence, prediction = probabilities.max(1)
    own = probabilities.gather(1, labels[:, None])
    # equal scores stand in the order of their index, as argmax has it
    tied_before = (probabilities == own) & (torch.arange(probabilities.shape[1], device=own.device) < labels[:, None])
    rank = ((probabilities > own) | tied_before).sum(1)
    return Verdict(prediction, confidence, rank, own[:, 0])


def verdict_of_detector(probabilities: Tensor, labels: Tensor) -> Verdict:
    """The same for a detector, where a score of 0 says that a class was not found.

    Such a class stands behind all that were found, and is never first. Where nothing was found the prediction is -1.
    """
    read = verdict(probabilities, labels)
    found = (probabilities > 0).sum(1)
    return Verdict(
        prediction=read.prediction.masked_fill(found == 0, -1),
        confidence=read.confidence,
        rank=torch.where(read.probability == 0, found.clamp(min=1), read.rank),
        probability=read.probability,
    )


@dataclass(frozen=True)
class Scene:
    """What a detector found on inputs of a height and width, for a batch of N images.

    `detections` are those that count as found, `clean` the same of the clean image, whose scores over all classes are
    `clean_probabilities` (N, K). `labels` (N,) are the classes of the preferred objects, and `regions` (N, 4) where they
    are. Where the image moved, `clean` and `regions` moved with it.
    """

    detections: Detections
    clean: Detections
    clean_probabilities: Tensor
    labels: Tensor
    regions: Tensor
    height: int
    width: int


@dataclass(frozen=True)
class Answer:
    """A batch of answers: what was read off them, all probabilities (N, K), and what a detector found."""

    verdict: Verdict
    probabilities: Tensor
    found: Scene | None = None

    @property
    def scene(self) -> Scene:
        """What a detector found; to be asked of detectors alone."""
        assert self.found is not None
        return self.found


Rule = Callable[[Answer], Tensor]


@dataclass(frozen=True)
class Criterion:
    """Says for each answer whether it counts as broken.

    `scores` says whether it needs more than the predicted label, which is all that some services give; `detections`
    whether it needs a detector.
    """

    name: str
    rule: Rule
    scores: bool = True
    detections: bool = False

    def __call__(self, answer: Answer) -> Tensor:
        """Which answers are broken."""
        return self.rule(answer)

    def __and__(self, other: Criterion) -> Criterion:
        return Criterion(
            f"{self.name} & {other.name}",
            lambda answer: self(answer) & other(answer),
            self.scores or other.scores,
            self.detections or other.detections,
        )


Maker = Callable[..., Criterion]
CRITERIA: Registry[Maker] = Registry("criterion")


def find_criterion(
    text: str, classes: Classes | None = None, outputs: int | None = None, *, detector: bool = False
) -> Criterion:
    """A criterion from its name, `name(argument, …)`, or several joined by `&`; a class is given by name or index."""
    if text == DEFAULT_CRITERION:
        text = default_criterion(detector)
    parts = [_single(part.strip(), classes, outputs) for part in re.split(r"&(?![^()]*\))", text)]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined & part
    return joined


def _single(text: str, classes: Classes | None, outputs: int | None) -> Criterion:
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", text)
    if match is None:
        raise ConfigError(f"expected a criterion such as misclassification or top_k_misclassification(5), got {text!r}")
    name, given = match[1], (match[2] or "").strip()
    maker = CRITERIA[name]
    parameters = list(inspect.signature(maker).parameters.values())
    words = [word.strip() for word in given.rsplit(",", max(0, len(parameters) - 1))] if given else []
    if len(words) == 2 and parameters[0].name == "target" and not _is_number(words[1]):
        words = [given]  # a class whose name has a comma
    needed = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if len(words) < len(needed):
        raise ConfigError(
            f"criterion {name} needs its {needed[len(words)]}: {name}({', '.join(p.name for p in parameters)})"
        )
    try:
        if len(words) > len(parameters):
            raise ValueError(given)
        named = zip(parameters, words, strict=False)
        return maker(*(_class(word, classes, outputs) if p.name == "target" else float(word) for p, word in named))
    except ValueError:
        raise ConfigError(f"criterion {name} can't take {given!r}; {maker.__doc__}") from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _class(word: str, classes: Classes | None, outputs: int | None) -> int:
    """The index of a class by its name or number."""
    return int(word) if outputs is None else align([word], own=None, model=classes, outputs=outputs)[word]
