"""What a change is: anything that turns a clean image into a changed one, by a few numbers.

Operators (`operator.py`) and properties (`property.py`) act on the model input; views (`view.py`) and motions (`motion.py`)
act on the original image. The rest of the package knows this protocol alone and never asks for the kind.

Parameters are float64 (T, P) on the host: a level, severities, the parameters of a view, or the coordinates of a motion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.resizing.local import Local
from brinell.resizing.repaint import Repainter
from brinell.resizing.resample import to_device

if TYPE_CHECKING:
    from brinell.perturb.steps import StepCache

ActsOn = Literal["input", "original"]
# the loss gradient at images that stand at the given rows of the batch
Gradient = Callable[[Tensor, Tensor | slice], Tensor]
Examples = tuple[str, list[tuple[str, tuple[float, ...]]]]  # a title, and captions with parameters
Size = tuple[int, int]  # height and width


@dataclass(frozen=True)
class Slider:
    """A parameter that people turn: its range, step, and the value at which it changes nothing.

    A parameter that says where or how large something is has no such value; `start` is where it begins.
    """

    name: str
    low: float
    high: float
    step: float
    neutral: float | None = 0.0
    start: float = 0.0


class ToInput(Protocol):
    """How an original becomes a model input: resized, then cropped (see `models.preprocess.Preprocess`)."""

    @property
    def height(self) -> int:
        """Height of the model input."""
        ...

    @property
    def width(self) -> int:
        """Width of the model input."""
        ...

    def inputs(self, images: Tensor) -> Tensor:
        """Return the model inputs of originals of one size."""
        ...

    def denormalise(self, images: Tensor) -> Tensor:
        """Return normalised images as whole grey levels."""
        ...

    def repaint(self, repainter: Repainter, local: Local, parameters: Tensor) -> Tensor:
        """Return the model inputs of an original under local changes."""
        ...

    def matrix(self, height: int, width: int) -> Tensor:
        """Return the matrix from an original's pixel corners to the model input."""
        ...

    def centre_on_input(self, matrices: Tensor, height: int, width: int) -> Tensor:
        """Return matrices about the centre of the resized original as matrices on the model input."""
        ...


class MovingImages(Protocol):
    """The originals as motions move them (see `engine.moving`)."""

    def view(self, samples: Tensor, matrices: Tensor | None = None) -> Tensor:
        """Return what the model sees of samples under motions, normalised."""
        ...

    def moved(self, sample: int, matrix: Tensor) -> Tensor:
        """Return a whole image under a motion, in whole grey levels."""
        ...


class Renderer(Protocol):
    """What a change may use to make images: a shard of samples, without a model (see `engine.renderer`)."""

    seed: int
    ids: Tensor
    inputs: Tensor
    steps: StepCache

    @property
    def originals(self) -> Sequence[Tensor]:
        """The originals, uint8 (C, H, W) each; none where no change needs them."""
        ...

    @property
    def preprocess(self) -> ToInput:
        """How an original becomes a model input."""
        ...

    @property
    def moving(self) -> MovingImages:
        """The originals, ready to be moved."""
        ...

    def repainting(self, sample: int) -> Repainter:
        """Return an original that is ready to be changed locally."""
        ...

    def gradient(self, rows: Tensor | slice) -> Gradient | None:
        """Return the loss gradient at the samples of some rows, where a model provides it."""
        ...


@dataclass(frozen=True)
class Layout:
    """Where originals lie on the model input, for changes that move what boxes mark: one size per row of parameters."""

    preprocess: ToInput
    sizes: Sequence[tuple[int, int]]

    def own(self) -> Tensor:
        """Return each original's frame on the clean model input, float64 (T, 3, 3)."""
        return torch.stack([self.preprocess.matrix(*size) for size in self.sizes])


class Change(Protocol):
    """One kind of change under one variant of its definition. `id` is `name:variant`, as rows and configs write it."""

    @property
    def name(self) -> str:
        """Name without the variant."""
        ...

    @property
    def variant(self) -> str:
        """Which definition of the name it is."""
        ...

    @property
    def id(self) -> str:
        """Full name."""
        ...

    @property
    def title(self) -> str:
        """Name for people; the variant is mentioned unless it is the default one."""
        ...

    @property
    def unit(self) -> str | None:
        """Natural unit of its amounts."""
        ...

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its parameters."""
        ...

    @property
    def acts_on(self) -> ActsOn:
        """Whether it changes the model input or the original image."""
        ...

    @property
    def compares(self) -> bool:
        """Whether the changed image shows the same scene, so that a distance to the clean one means something."""
        ...

    @property
    def crops(self) -> bool:
        """Whether it shows a part of the original, so that objects outside of it are gone."""
        ...

    @property
    def sequential(self) -> bool:
        """Whether a level is made from the level below, so that a sample can't be in two batches at once."""
        ...

    @property
    def stochastic(self) -> bool:
        """Whether its effect is drawn at random."""
        ...

    @property
    def white_box(self) -> bool:
        """Whether it needs gradients of the model."""
        ...

    @property
    def measures(self) -> tuple[str, ...]:
        """What else to measure in the changed image: "grey" (mean grey value) or "colours" (their number)."""
        ...

    @property
    def whole(self) -> bool:
        """Whether its images are in whole grey levels, so that files hold them as they are."""
        ...

    def rounded(self) -> Change:
        """Return the same change in whole grey levels."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the facts that a run's manifest stores, as plain data."""
        ...

    def parameters_at(self, severity: float, height: int, width: int) -> tuple[float, ...]:
        """Return the parameters of a severity as people give it: that of a property, or the level of an operator."""
        ...

    def prepare(self, renderer: Renderer, samples: Tensor) -> None:
        """Get ready what batches share, before threads make images of these samples."""
        ...

    def images(self, renderer: Renderer, samples: Tensor, parameters: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return model inputs, uint8 (T, C, H, W), or float32 in 0 to 255 if they are not `whole`.

        `fields` selects each sample's random field (default: the first).
        """
        ...

    def matrices(self, parameters: Tensor, layout: Layout) -> Tensor | None:
        """Return where pixel centres of the clean model input move, float64 (T, 3, 3); None if they stay."""
        ...

    def examples(self, height: int, width: int, levels: Sequence[int] = ()) -> Iterator[Examples]:
        """Yield rows of a contact sheet: a title, and captions with the parameters to draw (default: weak to strong)."""
        ...

    def pictures(self, renderer: Renderer, sample: int, parameters: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return a pair (clean, changed) that shows people the change better than the model inputs; None: the inputs."""
        ...

    def sliders(self, model_input: Size, original: Size) -> tuple[Slider, ...]:
        """Return the ranges of its parameters, for people to turn; none if it is not made for that."""
        ...

    def caption(self, parameters: Sequence[float], model_input: Size) -> str:
        """Return parameters in words, in the natural unit; empty if there is none."""
        ...


def rows_of(samples: Tensor, device: torch.device) -> Tensor | slice:
    """Return samples as an index; consecutive ones as a slice, which copies nothing."""
    places = samples.numpy()
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and (places[1:] > places[:-1]).all():
        return slice(first, last + 1)
    return to_device(samples, device)


def to_whole_levels(images: Tensor) -> Tensor:
    """Return images in 0 to 255 as uint8: whole grey levels, rounded half to even."""
    return images.round().to(torch.uint8) if images.is_floating_point() else images


class ChangeDefaults:
    """What most changes share. A kind of change overrides what differs."""

    @property
    def compares(self) -> bool:
        """It shows the same scene."""
        return True

    @property
    def crops(self) -> bool:
        """It shows the whole scene."""
        return False

    @property
    def sequential(self) -> bool:
        """Any level is made from the clean image."""
        return False

    @property
    def stochastic(self) -> bool:
        """It draws nothing at random."""
        return False

    @property
    def white_box(self) -> bool:
        """It needs no gradients."""
        return False

    @property
    def measures(self) -> tuple[str, ...]:
        """It is reported by its amount."""
        return ()

    @property
    def whole(self) -> bool:
        """Its images are in whole grey levels."""
        return True

    def rounded(self: Change) -> Change:
        """Return the change itself."""
        return self

    def describe(self: Change) -> dict[str, Any]:
        """Return the facts that a run's manifest stores."""
        return {"title": self.title, "unit": self.unit, "white_box": self.white_box, "stochastic": self.stochastic}

    def parameters_at(self: Change, severity: float, height: int, width: int) -> tuple[float, ...]:
        """Raise: there is no single number to give."""
        raise ConfigError(f"{self.id} can't be applied by one number; give an operator or a property of brinell ls")

    def prepare(self, renderer: Renderer, samples: Tensor) -> None:
        """Prepare nothing."""

    def matrices(self, parameters: Tensor, layout: Layout) -> Tensor | None:
        """Leave boxes where they are."""
        return None

    def examples(self, height: int, width: int, levels: Sequence[int] = ()) -> Iterator[Examples]:
        """Yield nothing to draw."""
        yield from ()

    def pictures(self, renderer: Renderer, sample: int, parameters: Tensor) -> tuple[Tensor, Tensor] | None:
        """Show the model inputs."""
        return None

    def sliders(self, model_input: Size, original: Size) -> tuple[Slider, ...]:
        """Offer nothing to turn."""
        return ()

    def caption(self, parameters: Sequence[float], model_input: Size) -> str:
        """Say nothing."""
        return ""
