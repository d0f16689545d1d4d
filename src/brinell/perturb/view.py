"""What a view is: a way of looking at an original image that gives inputs.

Operators and properties change the model input, the image at a model's input size. A view begins before that: a window cut out
of the photograph, a light that falls on it. Its function is given one original (uint8 (C, H, W), where the model is), the
parameters of as many views as are asked (float64 (T, P), on the host), and the model's own way to a model input (images (T, C,
H, W) to inputs); it returns uint8 inputs (T, C, h, w). A `local` view changes a window of the original and leaves the
rest as it is, so that only what the window is part of is resized anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from brinell.resizing.local import Local

ToInputs = Callable[[Tensor], Tensor]
Look = Callable[[Tensor, Tensor, ToInputs], Tensor]


@dataclass(frozen=True)
class View:
    """A named view. Where it `compares`, its inputs differ from the clean one by what was changed, and the distance
    means something; a window shows another part of the image, and it does not. A view that shows the original elsewhere on
    the model input than the model's own resize does has a `frame`: parameters (T, P) to float64 matrices (T, 3, 3) that take
    the original's (x, y, 1), counted from corners of pixels, to the model input. Detectors' boxes follow it.
    """

    name: str
    variant: str
    inputs: Look
    compares: bool = True
    white_box: bool = False
    frame: Callable[[Tensor], Tensor] | None = None
    local: Local | None = None

    @property
    def id(self) -> str:
        """The full name, as rows and configs write it."""
        return f"{self.name}:{self.variant}"
