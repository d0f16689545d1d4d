"""What a lens is: a generator over a shard of samples that asks and is told.

It yields `Trials` (which samples, which operator at which level, as tensors) and is sent an `Outcome` with one row a
trial. It sees no device, no file and no progress bar; the engine cuts what it yields into full batches. What it returns
are its rows: columns of tensors, one row a measured fact.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from brinell.criteria import Verdict
from brinell.perturb import Difference, Operator
from brinell.registry import Registry


@dataclass(frozen=True)
class Trials:
    """What to ask: sample numbers of the shard (int64 (T,)) and the level of each (int64 (T,)), both on the host."""

    samples: Tensor
    operator: Operator
    levels: Tensor


@dataclass(frozen=True)
class Outcome:
    """What came back, (T,) each: the model's verdict, whether it counts as broken, and how the image changed.

    `grey` is the image's mean grey value and `colours` its number of distinct colours, where the operator is told by it.
    """

    verdict: Verdict
    broken: Tensor
    difference: Difference
    grey: Tensor | None
    colours: Tensor | None


@dataclass(frozen=True)
class Shard:
    """What a lens knows of its samples: how many, the size of their canvas, and the answer on the clean images."""

    count: int
    height: int
    width: int
    clean: Outcome


Columns = dict[str, Tensor]
Asking = Generator[Trials, Outcome, Columns]


class LensOptions(BaseModel):
    """Options that every lens has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    operators: tuple[str, ...] = ("all",)
    semantics: str = "published"
    criterion: str = "misclassification"


@dataclass(frozen=True)
class Lens:
    """A registered lens: its options, its generator, and how many trials it asks of a sample at most."""

    name: str
    what: str
    options: type[LensOptions]
    ask: Callable[[Shard, Operator, LensOptions], Asking]
    operators: Callable[[LensOptions], Iterable[Operator]]
    trials: Callable[[LensOptions], int]


LENSES: Registry[Lens] = Registry("lens")
