"""What a model does to an image before looking at it, in two parts.

The model input comes first: resize and crop to the model's input size, in whole grey levels. Operators work on it. Then the
model's own normalisation follows, on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.resizing.local import Local
from brinell.resizing.repaint import Repainter
from brinell.resizing.resample import resize
from brinell.types import Interpolation


@dataclass(frozen=True)
class Preprocess:
    """A model's input: size, channels, how images get there, and the normalisation (x/255 - mean) / std.

    `short_side` None stretches the image to the size; otherwise its shorter side is resized to that and the middle is
    cut out.
    """

    height: int = 224
    width: int = 224
    channels: int = 3
    short_side: int | None = None
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def model_input(self, image: Tensor) -> Tensor:
        """An image of any size, grey or RGB (uint8 (C, H, W)), as the model's input in whole grey levels."""
        return self.inputs(image[None])[0]

    def inputs(self, images: Tensor) -> Tensor:
        """The same for images of one size (N, C, H, W), where they are."""
        return self._cut(self.wholes(images))

    def wholes(self, images: Tensor) -> Tensor:
        """The same before the middle is cut out, or the inputs of a model that cuts nothing."""
        images = self.coloured(images)
        return resize(images, *self._full(*images.shape[2:]), self.interpolation)

    def repainting(self, image: Tensor) -> Repainter:
        """One image (C, H, W), in the model's channels, ready to be changed in windows: see `repainting`."""
        return Repainter(image, *self._full(*image.shape[1:]), self.interpolation)

    def repainted(self, ready: Repainter, local: Local, parameters: Tensor) -> Tensor:
        """The inputs of such an image under local changes."""
        return self._cut(ready.render(local, parameters))

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """Where in a whole image the model input begins: rows from the top, columns from the left."""
        left, top = self._corner(width, height)
        return top, left

    def _full(self, height: int, width: int) -> tuple[int, int]:
        """The height and width that an image is resized to, before the middle is cut out."""
        if self.short_side is None:
            return self.height, self.width
        wide, tall = self._resized((width, height), self.short_side)
        return tall, wide

    def _cut(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        if (height, width) == (self.height, self.width):
            return images
        left, top = self._corner(width, height)
        return pad(images, (-left, left + self.width - width, -top, top + self.height - height)).contiguous()

    def coloured(self, images: Tensor) -> Tensor:
        """Images in as many channels as the model sees: grey ones repeated, colours weighted as Pillow does (ITU-R 601)."""
        if images.shape[-3] == self.channels:
            return images
        if self.channels == 3:
            return images.expand(*images.shape[:-3], 3, *images.shape[-2:])
        red, green, blue = images.to(torch.int32).unbind(-3)
        return (red * 19595 + green * 38470 + blue * 7471 + 0x8000 >> 16).to(torch.uint8).unsqueeze(-3)

    def boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """Boxes (K, 4) of an image of that size, where they lie on its model input; what a crop cuts off sticks out."""
        if self.short_side is None:
            return boxes * boxes.new_tensor([self.width / width, self.height / height] * 2)
        wide, tall = self._resized((width, height), self.short_side)
        left, top = self._corner(wide, tall)
        return boxes * boxes.new_tensor([wide / width, tall / height] * 2) - boxes.new_tensor([left, top] * 2)

    def original_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """Boxes (K, 4) on a model input, where they lie in the image of that size that it is of."""
        corner = self.boxes(boxes.new_zeros(1, 4), height, width)
        unit = self.boxes(boxes.new_ones(1, 4), height, width) - corner
        return (boxes - corner) / unit

    def frame(self, height: int, width: int) -> Tensor:
        """The same as a matrix, float64 (3, 3), from an image's (x, y, 1), counted from corners of pixels."""
        left, top, right, bottom = self.boxes(torch.tensor([[0, 0, 1, 1]], dtype=torch.float64), height, width)[0].tolist()
        return torch.tensor([[right - left, 0, left], [0, bottom - top, top], [0, 0, 1]], dtype=torch.float64)

    def centred(self, matrices: Tensor, height: int, width: int) -> Tensor:
        """Matrices (…, 3, 3) around the middle of an image of that size, before anything is cut off, on its model input."""
        tall, wide = self._full(height, width)
        left, top = self._corner(wide, tall)
        away = torch.eye(3, dtype=torch.float64)
        away[:2, 2] = torch.tensor([left - (wide - 1) / 2, top - (tall - 1) / 2])
        return away.inverse() @ matrices @ away

    def normalise(self, inputs: Tensor) -> Tensor:
        """Canvases (N, C, H, W), uint8 or float in 0..255, as float32 in the model's scale."""
        scale, shift = _scale_and_shift(self.mean, self.std, inputs.device)
        if inputs.requires_grad or inputs.device.type != "cpu":
            return inputs * scale + shift
        return inputs.to(torch.float32, copy=True).mul_(scale).add_(shift)

    def levels(self, images: Tensor) -> Tensor:
        """Images in the model's scale as whole grey levels, uint8: what `normalise` began with."""
        scale, shift = _scale_and_shift(self.mean, self.std, images.device)
        return ((images - shift) / scale).round_().clamp_(0, 255).to(torch.uint8)

    @staticmethod
    def _resized(size: tuple[int, int], short_side: int) -> tuple[int, int]:
        """Width and height with the shorter of them at that."""
        width, height = (short_side * side // min(size) for side in size)
        return width, height

    def _corner(self, width: int, height: int) -> tuple[int, int]:
        """Where the middle begins."""
        return round((width - self.width) / 2), round((height - self.height) / 2)


@cache
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """(x/255 - mean) / std as x * scale + shift. Kept: bringing numbers to a device makes it wait."""
    with torch.inference_mode(False):  # gradients need them, too
        centre, spread = (torch.tensor(values)[:, None, None] for values in (mean, std))
        return (1 / (255 * spread)).to(device), (-centre / spread).to(device)
