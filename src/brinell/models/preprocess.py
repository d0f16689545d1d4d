"""What happens to an image before a model sees it, in two steps.

First it is resized and cropped to the model input, in whole grey levels, which is what operators change. Then the model's
own normalisation follows, on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.kernels import kernels_for
from brinell.masks import IGNORED, resize_masks
from brinell.resizing.local import Local
from brinell.resizing.repaint import Repainter
from brinell.resizing.resample import resize
from brinell.types import Interpolation


@dataclass(frozen=True)
class Format:
    """The precision and memory format of images."""

    dtype: torch.dtype = torch.float32
    memory: torch.memory_format = torch.contiguous_format

    def convert(self, images: Tensor) -> Tensor:
        """Return images in this format: the same tensor, if they are."""
        return images.to(self.dtype, memory_format=self.memory)


PLAIN = Format()


@dataclass(frozen=True)
class Preprocess:
    """A model input: its size and channels, how images are brought to them, and the normalisation (x/255 - mean) / std.

    Images are stretched to the size; with a `short_side`, their shorter side is resized to it and the centre is cropped;
    with a `fill`, they are resized to fit, and bars of that grey level fill the rest (letterbox). `bgr`: the network takes
    blue, green and red; `mean` and `std` are still in the order red, green, blue.
    """

    height: int = 224
    width: int = 224
    channels: int = 3
    short_side: int | None = None
    interpolation: Interpolation = "bicubic"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    fill: int | None = None
    bgr: bool = False

    def model_input(self, image: Tensor) -> Tensor:
        """Return the model input, in whole grey levels, of an image of any size, grey or RGB (uint8 (C, H, W))."""
        return self.inputs(image[None])[0]

    def inputs(self, images: Tensor) -> Tensor:
        """Return the model inputs of images of one size (N, C, H, W), on their device."""
        return self._crop(self.resize(images))

    def resize(self, images: Tensor) -> Tensor:
        """Return images (N, C, H, W) in the model's channels, resized but not cropped; a letterbox has its bars."""
        images = self.convert_channels(images)
        resized = resize(images, *self._full_size(*images.shape[2:]), self.interpolation)
        return resized if self.fill is None else self._crop(resized)

    def repainter(self, image: Tensor) -> Repainter:
        """Return an image (C, H, W), in the model's channels, prepared for changes in windows; see `resizing.repaint`."""
        return Repainter(image, *self._full_size(*image.shape[1:]), self.interpolation)

    def repaint(self, repainter: Repainter, local: Local, parameters: Tensor) -> Tensor:
        """Return the model inputs of such an image under local changes."""
        return self._crop(repainter.render(local, parameters))

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """Return where the centre crop begins in a resized image: rows from the top, columns from the left."""
        left, top = self._corner(width, height)
        return top, left

    def _full_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width that an image is resized to before the centre is cropped, or bars are added."""
        if self.fill is not None:
            scale = min(self.height / height, self.width / width)
            return max(1, round(height * scale)), max(1, round(width * scale))
        if self.short_side is None:
            return self.height, self.width
        wide, tall = self._resized_size((width, height), self.short_side)
        return tall, wide

    def masks(self, masks: Tensor) -> Tensor:
        """Return masks (N, H, W) of images of one size on their model inputs."""
        return self._crop(resize_masks(masks, *self._full_size(*masks.shape[1:])), IGNORED)

    def _crop(self, images: Tensor, outside: int | None = None) -> Tensor:
        height, width = images.shape[-2:]
        if (height, width) == (self.height, self.width):
            return images
        left, top = self._corner(width, height)
        edges = (-left, left + self.width - width, -top, top + self.height - height)
        return pad(images, edges, value=(self.fill or 0) if outside is None else outside).contiguous()

    def convert_channels(self, images: Tensor) -> Tensor:
        """Return images in the model's channels: grey is repeated, colours are weighted as in Pillow (ITU-R 601)."""
        if images.shape[-3] == self.channels:
            return images
        if self.channels == 3:
            return images.expand(*images.shape[:-3], 3, *images.shape[-2:])
        red, green, blue = images.to(torch.int32).unbind(-3)
        return (red * 19595 + green * 38470 + blue * 7471 + 0x8000 >> 16).to(torch.uint8).unsqueeze(-3)

    def map_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """Map boxes (K, 4) of an image of a height and width to its model input; they may reach beyond a crop."""
        if self.short_side is None and self.fill is None:
            return boxes * boxes.new_tensor([self.width / width, self.height / height] * 2)
        tall, wide = self._full_size(height, width)
        left, top = self._corner(wide, tall)
        return boxes * boxes.new_tensor([wide / width, tall / height] * 2) - boxes.new_tensor([left, top] * 2)

    def unmap_boxes(self, boxes: Tensor, height: int, width: int) -> Tensor:
        """Map boxes (K, 4) on a model input back to its image, which has a height and width."""
        corner = self.map_boxes(boxes.new_zeros(1, 4), height, width)
        unit = self.map_boxes(boxes.new_ones(1, 4), height, width) - corner
        return (boxes - corner) / unit

    def matrix(self, height: int, width: int) -> Tensor:
        """Return `map_boxes` as a float64 matrix (3, 3) on (x, y, 1), where pixels are counted from their corners."""
        ends = torch.tensor([[0, 0, 1, 1]], dtype=torch.float64)
        left, top, right, bottom = self.map_boxes(ends, height, width)[0].tolist()
        return torch.tensor([[right - left, 0, left], [0, bottom - top, top], [0, 0, 1]], dtype=torch.float64)

    def centre_on_input(self, matrices: Tensor, height: int, width: int) -> Tensor:
        """Return matrices (…, 3, 3) around the centre of a resized image as matrices on its model input.

        Height and width are those of the image before it is resized.
        """
        tall, wide = self._full_size(height, width) if self.fill is None else (self.height, self.width)
        left, top = self._corner(wide, tall)
        shift = torch.eye(3, dtype=torch.float64)
        shift[:2, 2] = torch.tensor([left - (wide - 1) / 2, top - (tall - 1) / 2])
        return shift.inverse() @ matrices @ shift

    def normalise(self, inputs: Tensor, form: Format = PLAIN, *, out: Tensor | None = None) -> Tensor:
        """Return model inputs (N, C, H, W), uint8 or float in 0..255, as normalised images, computed in float32.

        They may be written to `out`, which has their shape and format.
        """
        scale, shift = _scale_and_shift(self.mean, self.std, inputs.device)
        kernels = kernels_for("normalise", inputs) if inputs.dtype == torch.uint8 else None
        if kernels is not None:
            if out is None:
                out = torch.empty(inputs.shape, dtype=form.dtype, device=inputs.device, memory_format=form.memory)
            kernels.normalise(inputs, out, scale, shift, bgr=self.bgr)
            return out
        if inputs.requires_grad or inputs.device.type != "cpu":
            return form.convert(self._swap(inputs * scale + shift))
        return form.convert(self._swap(inputs.to(torch.float32, copy=True).mul_(scale).add_(shift)))

    def denormalise(self, images: Tensor) -> Tensor:
        """Return normalised images as model inputs in whole grey levels, uint8: the inverse of `normalise`."""
        scale, shift = _scale_and_shift(self.mean, self.std, images.device)
        return ((self._swap(images) - shift) / scale).round_().clamp_(0, 255).to(torch.uint8)

    def _swap(self, images: Tensor) -> Tensor:
        """Swap red and blue if the network takes them so."""
        return images.flip(1) if self.bgr else images

    @staticmethod
    def _resized_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
        """Return the width and height of an image whose shorter side is resized to a length."""
        width, height = (short_side * side // min(size) for side in size)
        return width, height

    def _corner(self, width: int, height: int) -> tuple[int, int]:
        """Return where the centre crop begins, from the left and from the top; below 0 if there are bars."""
        if self.fill is not None:  # an odd row or column of bars is at the right or bottom, as in YOLO's letterbox
            return -((self.width - width) // 2), -((self.height - height) // 2)
        return round((width - self.width) / 2), round((height - self.height) / 2)


@cache
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return (x/255 - mean) / std as x * scale + shift. Cached, since moving numbers to a device makes it wait."""
    with torch.inference_mode(False):  # gradients need them, too
        centre, spread = (torch.tensor(values)[:, None, None] for values in (mean, std))
        return (1 / (255 * spread)).to(device), (-centre / spread).to(device)
