"""Metrics both ways: accuracy with its interval as a metric of MAITE, and metrics of MAITE on the rows of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from brinell.adapters.maite.datasets import Target
from brinell.errors import ConfigError
from brinell.registry import nearest
from brinell.runs.run import ModelRecord, Run
from brinell.runs.statistics import proportion

CHUNK = 256  # answers that a metric gets at once

_ROWS = """
select rows.operator, rows.level, any_value(rows.amount) over (partition by rows.operator, rows.level), rows.image,
    rows.label, rows.prediction, rows.confidence, rows.probability,
    rows.detected_boxes, rows.detected_labels, rows.detected_scores, clean.true_boxes, clean.true_labels
from rows
join samples on samples.image = rows.image
join clean on clean.index = samples.index and clean.model = rows.model
where rows.lens = $lens and rows.model = $model and rows.level is not null and rows.prediction is not null
order by rows.operator, rows.level, samples.index
"""


class Accuracy:
    """Top-1 accuracy with its 95 % interval as a metric of MAITE: `accuracy`, `low`, `high` and the number of `images`."""

    def __init__(self) -> None:
        self.metadata = {"id": "brinell/accuracy"}
        self.reset()

    def reset(self) -> None:
        """Forget all answers."""
        self.correct = self.images = 0

    def update(self, pred_batch: Sequence[Any], target_batch: Sequence[Any], metadata_batch: Sequence[Any], /) -> None:
        """Count a batch of answers: vectors of scores, and of one-hot labels."""
        for answer, target in zip(pred_batch, target_batch, strict=True):
            self.correct += int(np.asarray(answer).argmax()) == int(np.asarray(target).argmax())
            self.images += 1

    def compute(self) -> Mapping[str, Any]:
        """Return the share of right answers, and its Wilson interval."""
        share = proportion(self.correct, self.images)
        return {"accuracy": share.value, "low": share.low, "high": share.high, "images": self.images}


def evaluate_rows(run: Run, metric: Any, *, model: str | None = None, lens: str | None = None) -> list[dict[str, Any]]:
    """Return a metric of MAITE at every operator and level of a run: `operator`, `level`, `amount`, and what it computes.

    Nothing is queried again. Rows of classifiers hold the prediction's and the label's probability: the other classes share
    the rest. Boxes are in pixels of the model input. Defaults: the run's first model and lens.
    """
    chosen, name = _choose(run.models, model, "model"), _choose(run.lenses, lens, "lens")
    record = run.models[chosen]
    rows = _read(run, name, chosen)
    found = []
    for (operator, level, amount), group in groupby(rows, key=lambda row: row[:3]):
        metric.reset()
        for part in _chunks(group, CHUNK):
            answers, targets = _detections(part) if record.detector else _probabilities(part, _count(record, part))
            metric.update(answers, targets, [{"id": row[3]} for row in part])
        found.append({"operator": operator, "level": level, "amount": amount, **metric.compute()})
    return found


def _choose(known: Mapping[str, Any], given: str | None, what: str) -> str:
    if given is not None and given not in known:
        raise ConfigError(f"the run has no {what} {given!r}; {nearest(given, list(known))}")
    return given or next(iter(known))


def _read(run: Run, lens: str, model: str) -> Iterator[tuple[Any, ...]]:
    result = run.connection.execute(_ROWS, {"lens": lens, "model": model})
    while rows := result.fetchmany(10 * CHUNK):
        yield from rows


def _chunks(rows: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := [row for _, row in zip(range(size), rows, strict=False)]:
        yield chunk


def _count(record: ModelRecord, rows: Sequence[tuple[Any, ...]]) -> int:
    return len(record.classes) if record.classes is not None else 1 + max(max(row[4], row[5]) for row in rows)


def _probabilities(rows: Sequence[tuple[Any, ...]], classes: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return classifiers' answers as probabilities over classes, and labels as one-hot vectors."""
    labels, predictions = (np.array([row[column] for row in rows]) for column in (4, 5))
    each = np.arange(len(rows))
    known = np.zeros((len(rows), classes), bool)
    answers, targets = np.zeros((len(rows), classes), np.float32), np.zeros((len(rows), classes), np.float32)
    answers[each, labels] = [row[7] or 0 for row in rows]
    answers[each, predictions] = [row[6] or 0 for row in rows]
    known[each, labels] = known[each, predictions] = targets[each, labels] = True
    rest = np.clip(1 - answers.sum(1), 0, None) / np.maximum(classes - known.sum(1), 1)
    return list(np.where(known, answers, rest[:, None].astype(np.float32))), list(targets)


def _detections(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Target], list[Target]]:
    """Return detectors' answers, and the marked objects of classes that the model knows."""
    answers = [_target(row[8], row[9], row[10]) for row in rows]
    truth = [_target(row[11], row[12], [1.0] * len(row[12] or ())) for row in rows]
    return answers, truth


def _target(boxes: Any, labels: Any, scores: Any) -> Target:
    kinds = np.array(labels or (), np.int64)
    known = kinds >= 0
    placed = np.array(boxes or (), np.float32).reshape(-1, 4)
    return Target(placed[known], kinds[known], np.array(scores or (), np.float32)[known])
