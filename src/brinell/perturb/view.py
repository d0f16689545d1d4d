"""What a view is: a change of the original image, before it is resized to the model input.

A window cut out of a photograph is a view, and so is a spot of light that falls on it. Its `look` gets one original
(uint8 (C, H, W), on the model's device), the parameters of T views (float64 (T, P), on the host) and the model's own
resize (images (T, C, H, W) to model inputs); it returns uint8 model inputs (T, C, h, w). A `local` view changes a
window of the original and leaves the rest alone, so that only the pixels that depend on the window are resized again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.perturb.change import ActsOn, ChangeDefaults, Layout, Renderer, Size, Slider
from brinell.resizing.local import Local

ToInputs = Callable[[Tensor], Tensor]
Look = Callable[[Tensor, Tensor, ToInputs], Tensor]


@dataclass(frozen=True)
class View(ChangeDefaults):
    """A named view.

    With `same_scene` the changed input differs from the clean one by the change alone, and a distance means
    something; a window shows another part of the image, and it does not. A view that shows the original elsewhere on
    the model input than the model's own resize has a `frame`: parameters (T, P) to float64 matrices (T, 3, 3) from the
    original's pixel corners to the model input. Boxes follow it. `ranges` are those of its parameters on an original of
    a height and width, and `words` describes them, where people may turn them.
    """

    name: str
    variant: str
    look: Look
    title: str
    parameters: tuple[str, ...]
    unit: str | None = None
    same_scene: bool = True
    frame: Callable[[Tensor], Tensor] | None = None
    local: Local | None = None
    ranges: Callable[[Size], tuple[Slider, ...]] | None = None
    words: Callable[[Sequence[float]], str] = lambda parameters: ""

    @property
    def id(self) -> str:
        """Full name, as rows and configs write it."""
        return f"{self.name}:{self.variant}"

    @property
    def compares(self) -> bool:
        """Whether it shows the same scene."""
        return self.same_scene

    @property
    def acts_on(self) -> ActsOn:
        """It changes the original."""
        return "original"

    @property
    def crops(self) -> bool:
        """Whether it shows a part of the original."""
        return self.frame is not None

    def prepare(self, renderer: Renderer, samples: Tensor) -> None:
        """Get originals ready for local changes here, where streams of an accelerator wait for it."""
        if self.local is not None:
            for sample in sorted(set(samples.tolist())):
                renderer.repainting(sample)

    def images(self, renderer: Renderer, samples: Tensor, parameters: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return views of originals; consecutive views of one original are made together."""
        which, counts = torch.unique_consecutive(samples, return_counts=True)
        parts = zip(which.tolist(), torch.split(parameters, counts.tolist()), strict=True)
        return torch.cat([self._of_one(renderer, sample, own) for sample, own in parts])

    def _of_one(self, renderer: Renderer, sample: int, parameters: Tensor) -> Tensor:
        if self.local is not None:
            return renderer.preprocess.repaint(renderer.repainting(sample), self.local, parameters)
        return self.look(renderer.originals[sample], parameters, renderer.preprocess.inputs)

    def sliders(self, model_input: Size, original: Size) -> tuple[Slider, ...]:
        """Return the ranges of its parameters."""
        return () if self.ranges is None else self.ranges(original)

    def caption(self, parameters: Sequence[float], model_input: Size) -> str:
        """Return its parameters in words."""
        return self.words(parameters)

    def matrices(self, parameters: Tensor, layout: Layout) -> Tensor | None:
        """Return where pixel centres of the clean model input are shown."""
        if self.frame is None:
            return None
        half = torch.tensor([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]], dtype=torch.float64)
        return half.inverse() @ self.frame(parameters) @ layout.own().inverse() @ half
