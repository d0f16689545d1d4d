"""Model inputs that are made while the images are surveyed, so that the first shards needn't decode them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from brinell.models.model import Model
from brinell.models.preprocess import Preprocess

ROOM = {"cpu": 1 << 25, "cuda": 1 << 31}  # bytes: on a CPU, decoding takes little of a run


@dataclass(frozen=True)
class Ready:
    """Inputs by dataset index, as many as fit into `room` bytes. Threads add them while others read."""

    preprocess: Preprocess = field(default_factory=Preprocess)
    room: int = 0
    _inputs: dict[int, Tensor] = field(default_factory=dict)

    @staticmethod
    def for_model(model: Model) -> Ready:
        """Return an empty place for inputs of a model."""
        return Ready(model.preprocess, ROOM.get(model.device.type, ROOM["cpu"]))

    def add(self, index: int, image: Tensor) -> None:
        """Make an image's input and keep it, if there is room."""
        if self.has_room:
            self.keep(index, self.make(image))

    def make(self, image: Tensor) -> Tensor:
        """Return an image's input, without what a crop cuts off."""
        return self.preprocess.model_input(image).contiguous()

    def keep(self, index: int, model_input: Tensor) -> None:
        """Keep an input."""
        self._inputs[index] = model_input

    @property
    def has_room(self) -> bool:
        """Whether there is room for another input."""
        pre = self.preprocess
        return (len(self._inputs) + 1) * pre.channels * pre.height * pre.width <= self.room

    def inputs(self, preprocess: Preprocess) -> Mapping[int, Tensor]:
        """Return what can serve as inputs for a preprocessing: models may differ in their normalisation alone."""
        return self._inputs if _resize_of(preprocess) == _resize_of(self.preprocess) else {}


def _resize_of(preprocess: Preprocess) -> Preprocess:
    """Return how images become inputs, without the normalisation that follows."""
    return replace(preprocess, mean=(0.0,), std=(1.0,), bgr=False)
