"""How a lens measures: a generator over a shard of samples that yields trials and is sent their outcomes.

It yields `Trials` (samples, a change, its parameters, as tensors) and is sent an `Outcome` with one row per trial.
Instead of trials it may yield a `Task`: work on whole images, such as following a gradient. It sees no device, no file
and no progress bar; the engine cuts what it yields into full batches. What it returns are its rows: columns of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.config.criterion import Task as ModelTask
from brinell.config.lens import LensOptions
from brinell.criteria.verdict import Verdict
from brinell.lenses.entry import Entry
from brinell.lenses.sampling import Chosen, Sampling
from brinell.masks import Overlap
from brinell.models.model import Model
from brinell.motion.frames import Frames
from brinell.perturb.change import Change
from brinell.perturb.difference import Difference
from brinell.runs.store import Store

Size = tuple[int, int]  # height and width
NO_ANSWER = -2  # the label of an image for which the model returned no number


@dataclass(frozen=True)
class Trials:
    """Queries, on the host: indices of samples in the shard (int64 (T,)), a change, and its parameters (float64 (T, P)).

    Consecutive trials of one sample are the cheapest for a change of the original. `fields` selects the random field of
    each sample (default: the first). With `may_fail` an answer of NaN is an outcome; otherwise it stops the run.
    """

    samples: Tensor
    change: Change
    parameters: Tensor
    fields: Tensor | None = None
    may_fail: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came back, (T,) each: the model's verdict, whether it counts as broken, and how far the image changed.

    `grey` (mean grey value) and `colours` (their number) are measured where the change asks for them; `detections` are all
    that a detector found, and `cause` is why its answer is broken (see `criteria.criterion.CAUSES`; -1: it isn't).
    `overlap` is how a segmenter's masks agree with the true ones; the outcome of clean images has the `masks` themselves.
    `distance` is how far an embedder's vectors are from those of the clean images, whose outcome has the `vectors`.
    """

    verdict: Verdict
    broken: Tensor
    difference: Difference
    grey: Tensor | None
    colours: Tensor | None
    detections: Detections | None = None
    cause: Tensor | None = None
    overlap: Overlap | None = None
    masks: Tensor | None = None
    distance: Tensor | None = None
    vectors: Tensor | None = None


@dataclass(frozen=True)
class Shard:
    """What a lens knows about its samples: their number, the size of the model input and the clean outcome.

    `full` is how many trials keep the machine busy: with fewer left, a search may query ahead. `sizes` are the heights
    and widths of the originals, int64 (N, 2), for a lens that needs them; `boxes` are the objects' boxes in their
    pixels, (N, 4), NaN where unknown. `ids` (int64 (N,)) and the `model`'s name are for naming files. `sampling` is what a
    budget leaves of the trials; None: all of them. `stored` returns what a smaller budget stored under a file's name.
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
    sampling: Sampling | None = None
    stored: Callable[[str], bytes | None] = lambda name: None

    @property
    def resumed(self) -> bool:
        """Whether a smaller budget has been measured before, clean images included."""
        return self.sampling is not None and self.sampling.done > 0

    def choose(self, change: Change, cells: int) -> Chosen:
        """Return the cells of every sample's grid to query, such as levels."""
        if self.sampling is None:
            return Chosen(torch.ones(self.count, cells, dtype=torch.bool), torch.ones(self.count, dtype=torch.float64))
        return self.sampling.choose(change.id, self.ids, cells)


class Stage(Protocol):
    """A shard's images as they move, and the model that looks at them. Samples are indices into the shard, on the host."""

    seed: int
    ids: Tensor  # of the samples, on the host
    labels: Tensor  # on the host

    def frames(self, samples: Tensor) -> Frames:
        """Return whole images in the model's scale: before its crop, after its normalisation."""

    def seen(self, samples: Tensor) -> Tensor | None:
        """Return which pixels of whole images the model sees, (N or 1, 1, H, W); None: all of them."""

    def scores(self, samples: Tensor, matrices: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return scores (N, K) before any softmax of samples moved by matrices (N, 3, 3), and the top label.

        The label is -1 where a detector finds nothing, and `NO_ANSWER` where the model returned no number.
        """

    def gradient(self, images: Tensor, samples: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        """Return the gradient of score `plus` minus score `minus` (N,) with respect to whole images of samples."""


Done = dict[str, Tensor]


@dataclass(frozen=True)
class Task:
    """Work on each of `samples` (indices into the shard, on the host; a sample may be there often), in batches.

    `do` gets the stage and positions in `samples`, and returns a row for each. All its batches have one size and hold
    images of one canvas; where too few positions are left, the last one is repeated. So a row depends on its own image
    alone, even if the last bits of a sum depend on the size of the batch. `queries`: the images go through the model.
    `batch` is for work that is not on images, in place of the engine's size. With `few`, batches are smaller on an
    accelerator: for work that takes long for each position, of which a search's last steps have few. `ended` is how many of
    the shard's images need nothing more when the task begins; it is for progress.
    """

    samples: Tensor
    do: Callable[[Stage, Tensor], Done]
    queries: bool = False
    batch: int | None = None
    few: bool = False
    ended: int = 0


@dataclass(frozen=True)
class Nullable:
    """A column that is null where it is not `valid`."""

    values: Tensor
    valid: Tensor


@dataclass(frozen=True)
class Categorical:
    """A column of a few words: indices into `categories`; -1 is null."""

    codes: Tensor
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """What does not belong into rows: files by their names, which the store keeps in the lens's folder."""

    content: Mapping[str, bytes]


Columns = dict[str, Tensor | Nullable | Categorical | Detections | Overlap | Files]
# an outcome is sent for trials, the results of a task, and those of several that don't need each other's
Measuring = Generator[Trials | Task | tuple[Task, ...], Any, Columns]


@dataclass(frozen=True)
class Drawing:
    """What a lens gets to draw its own pictures for the report: the run's folder, models and originals by their ids."""

    store: Store
    models: Sequence[Model]
    original: Callable[[str], Tensor]
    name: Callable[[str], str]


Options = TypeVar("Options", bound=LensOptions)


@dataclass(frozen=True)
class Method(Generic[Options]):
    """How a lens measures.

    `changes` are what the options select; `measure` is the generator for one of them; `trials` is the largest number of
    trials for an image of a size (height and width of image and model input). `replay` makes a change again from its
    id, for model inputs of a size. Units of work hold at most `images_per_unit` images (not searches on an accelerator, see
    `engine.units`) and about `trials_per_unit` trials, if given; a unit that needs more keeps a journal. A method that is a
    `search` may need fewer trials than `trials`. `sketch` returns options that need some times fewer trials of the same
    kind, from which a run's cost is estimated; None: trials can't be made fewer. `overhead`: the time of a trial divided by
    that of a bare forward pass, as measured by the benchmarks: what is assumed of runs that are too short for a probe.
    `by_window`: trials depend on an image's size. `with_originals`: the originals are needed besides the model inputs.
    `check` gets the model and all image sizes (int64 (N, 2)) before anything is queried, and returns warnings or raises.
    `draw` makes pictures of its own. `timed`: rows store the seconds per image. `queries_per_cell`: what one of the cells
    takes that a budget chooses. `weaker` returns changes that are known not to break. `opposite` is for rows that pair a
    failure with a similar image that is right: from the parameters of both (T, P) and the sizes of the originals (int64
    (T, 2)) it returns the parameters of the image on the other side of the right one, and which of them exist (bool
    (T,)). `refuses`: why models of a task can't be measured.
    """

    changes: Callable[[Options], Iterable[Change]]
    measure: Callable[[Shard, Any, Options], Measuring]
    trials: Callable[[Options, Change, Size, Size], int]
    replay: Callable[[Options, str, Size], Change]
    search: bool = False
    sketch: Callable[[Options, float], Options] | None = None
    overhead: float = 1.1
    by_window: bool = False
    with_originals: bool = False
    images_per_unit: int | None = None
    trials_per_unit: int | None = None
    check: Callable[[Options, Model, Tensor], list[str]] | None = None
    draw: Callable[[Drawing, Options], None] | None = None
    timed: bool = False
    queries_per_cell: int = 1
    weaker: Callable[[Trials], Trials] | None = None
    opposite: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    catalogue: Callable[[], Iterable[Entry]] = tuple
    refuses: Mapping[ModelTask, str] = field(default_factory=dict)


def halve(trials: Trials) -> Trials:
    """Return half of changes that are the smallest to break a model, which don't break it."""
    return replace(trials, parameters=trials.parameters / 2)
