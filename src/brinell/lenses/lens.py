"""What a lens is: a generator over a shard of samples that asks and is told.

It yields `Trials` (which samples, which operator at which level, as tensors) and is sent an `Outcome` with one row a
trial. It sees no device, no file and no progress bar; the engine cuts what it yields into full batches. What it returns
are its rows: columns of tensors, one row a measured fact.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from brinell.boxes import Detections
from brinell.config.criterion import DEFAULT_CRITERION
from brinell.criteria.verdict import Verdict
from brinell.lenses.tasks import Motion, MotionSearch, Task
from brinell.perturb.difference import Difference
from brinell.perturb.operator import Operator
from brinell.perturb.property import Property
from brinell.perturb.view import View
from brinell.registry import Registry

Size = tuple[int, int]  # height and width
Asked = Operator | Property | View | Motion  # what a trial is of
Change = Asked | MotionSearch


@dataclass(frozen=True)
class Trials:
    """What to ask, on the host: sample numbers of the shard (int64 (T,)), and how far each is changed.

    `levels` are int64 (T,) for an operator, severities for a property, parameters for a view and coordinates for a motion,
    float64 (T, P); views of one image go best side by side. `fields` says which of an image's random fields a property
    draws, where that is not always the first. With `may_fail` an answer of NaN is an
    outcome; without it, it stops the run.
    """

    samples: Tensor
    operator: Asked
    levels: Tensor
    fields: Tensor | None = None
    may_fail: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came back, (T,) each: the model's verdict, whether it counts as broken, and how the image changed.

    `grey` is the image's mean grey value and `colours` its number of distinct colours, where the operator is told by it;
    `detections` are all that a detector found.
    """

    verdict: Verdict
    broken: Tensor
    difference: Difference
    grey: Tensor | None
    colours: Tensor | None
    detections: Detections | None = None


@dataclass(frozen=True)
class Shard:
    """What a lens knows of its samples: how many, the size of their model input, and the answer on the clean images.

    `full` is how many trials keep the machine busy: with fewer than that left, a search may as well ask ahead. `sizes` are
    the heights and widths of the originals, int64 (N, 2), for a lens that looks at them, and `boxes` where their objects
    are in their own pixels, (N, 4), NaN where nobody knows. `ids` (int64 (N,)) and the `model`'s name are for naming files.
    """

    count: int
    height: int
    width: int
    clean: Outcome
    full: int = 1
    sizes: Tensor | None = None
    boxes: Tensor | None = None
    ids: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    model: str = ""


@dataclass(frozen=True)
class Nullable:
    """A column that is empty where it is not `known`."""

    values: Tensor
    known: Tensor


@dataclass(frozen=True)
class Categorical:
    """A column of a few words: their places in a list; -1: empty."""

    places: Tensor
    words: tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """What doesn't belong into rows: files by their names, which the store keeps in the lens's folder."""

    content: Mapping[str, bytes]


Columns = dict[str, Tensor | Nullable | Categorical | Detections | Files]
Asking = Generator[Trials | Task, Any, Columns]  # an outcome for trials, and what came of a task


class LensOptions(BaseModel):
    """Options that every lens has. The usual criterion is misclassification, or a detector's missing its object."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    operators: tuple[str, ...] = ("all",)
    variant: str = "published"
    criterion: str = DEFAULT_CRITERION

    def names(self, change: Change) -> bool:
        """Whether a change was asked for by its own name."""
        return any(name.partition(":")[0] == change.name for name in self.operators)


@dataclass(frozen=True)
class Again:
    """The way from a lens's rows back to what the model was asked about.

    `change` is told the options, an operator's full name and the model input's size. `columns` are those of the rows that say
    how far it went: an operator's level, severities, a view's parameters; None where single numbers don't tell it (see
    `engine.failures`). Where images are `resampled`, the level names the random field. What rows tell of failures alone is
    compared with something `weaker`, if that is known.
    """

    change: Callable[[Any, str, Size], Asked]
    columns: tuple[str, ...] | None = None
    resampled: Callable[[Any], bool] = lambda options: False
    weaker: Callable[[Trials], Trials] | None = None

    def trials(self, options: LensOptions, change: Asked, samples: Tensor, parameters: Tensor, level: Tensor) -> Trials:
        """The trials that rows are of, by how far the change went, float64 (T, P), and by their levels, if any."""
        if isinstance(change, Operator):
            return Trials(samples, change, parameters[:, 0].to(torch.int64))
        drawn = self.resampled(options) and isinstance(change, Property) and change.stochastic
        return Trials(samples, change, parameters, level.to(torch.int64) if drawn else None, may_fail=True)


def half(trials: Trials) -> Trials:
    """Half of changes that are the smallest to break: they don't break."""
    return replace(trials, levels=trials.levels / 2)


@dataclass(frozen=True)
class Lens:
    """A registered lens: its options, its generator, and how many trials it asks of a sample at most.

    `trials` is told the options, what is asked about, and the height and width of the model input. A `searching` lens asks
    less than that where it finds what it seeks. A lens that looks at `originals` has them beside their inputs, and its
    units hold no more than `unit` images. Where the number of trials depends on an image's size, `counted` is told that,
    too (heights and widths of image and model input), and units hold about `trials_a_unit`; of one that must hold more, what was
    answered is kept while it is measured. `fits` is told the sizes of all images and the model input's, before anything is
    asked: it says what can't be measured, or raises. `again` says how to make again what the model saw. The rows of a lens
    that is `timed` say how long an image took.
    """

    name: str
    what: str
    options: type[LensOptions]
    ask: Callable[[Shard, Any, LensOptions], Asking]
    operators: Callable[[LensOptions], Iterable[Change]]
    trials: Callable[[LensOptions, Change, int, int], int]
    searching: bool = False
    originals: bool = False
    unit: int | None = None
    counted: Callable[[LensOptions, Change, Size, Size], int] | None = None
    trials_a_unit: int | None = None
    fits: Callable[[LensOptions, Tensor, Size], list[str]] | None = None
    again: Again | None = None
    timed: bool = False


LENSES: Registry[Lens] = Registry("lens")
