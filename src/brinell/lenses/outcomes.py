"""What lenses keep of outcomes: statuses of a search, and the columns of answers and distances."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.lenses.method import Outcome, Shard
from brinell.masks import Overlap
from brinell.runs.schema import DISTANCES

STATUSES = ("broken", "survived", "skipped", "failed")
BROKEN, SURVIVED, SKIPPED, FAILED = range(4)
OVERLAPS = ("iou", "relabelled")
ANSWERS = ("prediction", "confidence", "rank", "probability")


def flatten(outcome: Outcome) -> dict[str, Tensor]:
    """Return an outcome's answers and distances by column, on the host."""
    answers = {name: getattr(outcome.verdict, name).cpu() for name in ANSWERS}
    distances = {name: getattr(outcome.difference, name).cpu() for name in DISTANCES}
    return answers | distances | join_causes([outcome]) | join_overlaps([outcome])


def join_causes(outcomes: Sequence[Outcome]) -> dict[str, Tensor]:
    """Return the column of why answers are broken, where outcomes say it."""
    causes = [outcome.cause.cpu() for outcome in outcomes if outcome.cause is not None]
    return {"cause": torch.cat(causes)} if len(causes) == len(outcomes) else {}


def join_overlaps(outcomes: Sequence[Outcome]) -> dict[str, Tensor]:
    """Return the columns of how a segmenter's masks agree with others, or how far embeddings moved, if known."""
    moved = [outcome.distance.cpu() for outcome in outcomes if outcome.distance is not None]
    if moved and len(moved) == len(outcomes):
        return {"embedding_distance": torch.cat(moved)}
    found = [outcome.overlap for outcome in outcomes if outcome.overlap is not None]
    if len(found) < len(outcomes) or not found:
        return {}
    return {name: torch.cat([getattr(each, name) for each in found]).cpu() for name in OVERLAPS}


T = TypeVar("T", Detections, Overlap)


def join_fields(parts: Sequence[T]) -> T:
    """Return what a detector found, or how masks agree, in several batches as in one."""
    first = parts[0]
    fields = (torch.cat([getattr(part, field.name) for part in parts]) for field in dataclasses.fields(first))
    return type(first)(*fields)


def wrong_when_clean(shard: Shard) -> Tensor:
    """Return which samples a search skips: wrong when clean, or broken by the criterion."""
    wrong = shard.clean.broken.cpu()
    # a detector is right if it finds its object, whatever else it finds, and a segmenter by its masks
    if shard.clean.detections is None and shard.clean.overlap is None:
        wrong = wrong | (shard.clean.verdict.rank > 0).cpu()
    return wrong
