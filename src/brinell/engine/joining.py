"""Results of batches joined to one."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.criteria.verdict import Verdict
from brinell.lenses.method import Outcome
from brinell.masks import Overlap
from brinell.perturb.difference import Difference

T = TypeVar("T", Outcome, Verdict, Difference, Detections, Overlap)


def joined(parts: list[T]) -> T:
    """Concatenate batch results, field by field."""
    if len(parts) == 1:
        return parts[0]
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(parts[0]):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], Tensor):
            fields[field.name] = torch.cat(values)
        else:
            fields[field.name] = None if values[0] is None else joined(values)
    return type(parts[0])(**fields)


def reordered(result: T, order: Tensor) -> T:
    """Return results in another order: the one at each of the indices."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        fields[field.name] = (
            value[order] if isinstance(value, Tensor) else None if value is None else reordered(value, order)
        )
    return type(result)(**fields)
