"""What detectors find in the examples of a dataset's card, and why they fail on them: they are queried once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from brinell.criteria.criterion import Answer, find_criterion
from brinell.criteria.verdict import verdict_of_detector
from brinell.curation.failures import Failure
from brinell.curation.runs import ModelOpener, failures_of, regions_of
from brinell.engine.progress import Reporter
from brinell.errors import BrinellError
from brinell.lenses.scenes import Move, make_scene
from brinell.marks import Mark
from brinell.models.marking import marker_of
from brinell.models.model import Model
from brinell.perturb.change import Layout


@dataclass(frozen=True)
class Example:
    """A failure on the card: its image, and the clean one or its counterpart; of detectors also boxes and the reason."""

    failure: Failure
    clean: Tensor
    image: Tensor
    clean_marks: tuple[Mark, ...] = ()
    marks: tuple[Mark, ...] = ()
    reason: str = ""


def mark_examples(examples: Sequence[Example], opener: ModelOpener, reporter: Reporter) -> list[Example]:
    """Return examples with what detectors find in them; as they are, if a detector can't be opened."""
    opened: dict[tuple[int, str], Model] = {}
    marked = []
    try:
        for example in examples:
            source, known = example.failure.source, example.failure.model
            if source.run.models[known.own].detector:
                if (known.run, known.own) not in opened:
                    opened[known.run, known.own] = opener.open(known, source, "examples are shown without boxes")
                example = _mark(example, opened[known.run, known.own])
            marked.append(example)
    except BrinellError as error:  # a picture is not worth the dataset
        reporter.say(str(error))
        return list(examples)
    return marked


def _mark(example: Example, model: Model) -> Example:
    failure, marker = example.failure, marker_of(model)
    probabilities, detections = model.answer(torch.stack([example.clean, example.image]).to(model.device))
    assert detections is not None
    first, second = detections.at(slice(0, 1)), detections.at(slice(1, 2))
    own = failure.source.originals[failure.replay.image]
    paired = failure.counterpart is not None  # two windows, next to each other
    regions = torch.full((1, 4), torch.nan) if paired else regions_of(failure.source, failure.model.own, [own.entry])
    parameters = torch.tensor([failure.replay.parameters], dtype=torch.float64)
    move = None if paired else Move(failure.replay.change, parameters, Layout(model.preprocess, [(own.height, own.width)]))
    labels = torch.tensor([failure.answers[0].label], device=model.device)
    scene = make_scene(model, second, first, labels=labels, regions=regions.to(model.device), move=move)
    own_criterion = failures_of(failure.lens)
    text = (own_criterion.criterion if own_criterion else None) or failure.source.options(failure.lens)["criterion"]
    criterion = find_criterion(text, model.classes, model.outputs, task="detection")
    answer = Answer(verdict_of_detector(probabilities[1:], labels), probabilities[1:], scene)
    named = failure.answers[0].label, failure.answers[0].prediction
    broken = criterion.explain is not None and bool(criterion(answer)[0])
    return replace(
        example,
        clean_marks=marker.mark_clean(first, named),
        marks=marker.mark_changed(second, scene.clean, named),
        reason=criterion.explain(answer, marker.name)[0] if criterion.explain is not None and broken else "",
    )
