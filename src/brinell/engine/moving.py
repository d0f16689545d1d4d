"""A shard's originals as motions move them: whole images in the model's scale, on its device. No model is needed.

Images are moved together where they have one canvas, which depends on an image's size alone: what is computed for an image
must not depend on the others in its shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from brinell.models.preprocess import Preprocess
from brinell.motion.frames import Frames, Pixels

_ROUNDED_TO = 64  # pixels of a canvas's longer side: few canvases, and little of them unused


class MovingImages:
    """Whole images (uint8 (C, H, W), before the model's crop), ready to be moved; model inputs without originals.

    `layouts` (N,) numbers the canvas of each sample. Frames are of samples with one layout.
    """

    def __init__(self, preprocess: Preprocess, wholes: Sequence[Tensor], device: torch.device) -> None:
        self.preprocess, self.device = preprocess, device
        self._sizes = torch.tensor([whole.shape[1:] for whole in wholes])
        canvases = _canvases(self._sizes, (preprocess.height, preprocess.width))
        filled = (canvases == self._sizes).all(1, keepdim=True)  # no pixel is masked
        kinds, self.layouts = torch.unique(torch.cat([canvases, filled], 1), dim=0, return_inverse=True)
        self._places = torch.zeros_like(self.layouts)
        self._canvases = []
        for layout, (height, width, _) in enumerate(kinds.tolist()):
            mine = (self.layouts == layout).nonzero()[:, 0]
            self._places[mine] = torch.arange(len(mine))
            some = [wholes[sample] for sample in mine.tolist()]
            self._canvases.append(_Canvas(preprocess, some, (height, width), device))

    def _find(self, samples: Tensor) -> tuple[_Canvas, Tensor]:
        """Return the canvas of samples of one layout, and their places on it."""
        return self._canvases[int(self.layouts[samples[0]])], self._places[samples]

    def frames(self, samples: Tensor) -> Frames:
        """Return the whole images of samples."""
        canvas, places = self._find(samples)
        return canvas.frames.select(places)

    def shape(self, sample: int) -> tuple[int, int]:
        """Return the height and width of a whole image."""
        height, width = self._sizes[sample].tolist()
        return height, width

    def seen(self, samples: Tensor) -> Tensor | None:
        """Return which pixels of whole images the model sees; None: all of them."""
        canvas, places = self._find(samples)
        return canvas.seen(places)

    def crop(self, images: Tensor, samples: Tensor) -> Tensor:
        """Return what the model sees of whole images."""
        canvas, places = self._find(samples)
        return canvas.crop(images, places)

    def moved(self, sample: int, matrix: Tensor) -> Tensor:
        """Return a whole image under a motion (3, 3), in whole grey levels, uint8 (C, H, W)."""
        height, width = self.shape(sample)
        image = self.frames(torch.tensor([sample])).move(matrix[None])
        return self.preprocess.denormalise(image)[0, :, :height, :width]

    def view(self, samples: Tensor, matrices: Tensor | None = None) -> Tensor:
        """Return what the model sees of samples of any layouts, as they are or moved; nothing else is moved."""
        layouts = self.layouts[samples]
        if bool((layouts == layouts[0]).all()):
            canvas, places = self._find(samples)
            return canvas.view(places, matrices)
        size = (self.preprocess.channels, self.preprocess.height, self.preprocess.width)
        seen = torch.empty(len(samples), *size, device=self.device)
        for layout in torch.unique(layouts):
            mine = (layouts == layout).nonzero()[:, 0]
            seen[mine.to(self.device)] = self.view(samples[mine], None if matrices is None else matrices[mine])
        return seen


def _canvases(sizes: Tensor, model_input: tuple[int, int]) -> Tensor:
    """Return the canvases (N, 2) of whole images (N, 2).

    The longer side is rounded up. Square images and those of the size of the model input are often many: they stay alone.
    """
    longer = sizes > sizes.flip(1)
    whole = (sizes == torch.tensor(model_input)).all(1, keepdim=True)
    return torch.where(longer & ~whole, -(-sizes // _ROUNDED_TO) * _ROUNDED_TO, sizes)


class _Canvas:
    """Whole images on one canvas, at its top left."""

    def __init__(
        self, preprocess: Preprocess, wholes: Sequence[Tensor], size: tuple[int, int], device: torch.device
    ) -> None:
        self.preprocess, self.device = preprocess, device
        sizes = torch.tensor([whole.shape[1:] for whole in wholes])
        images = torch.zeros(len(wholes), preprocess.channels, *size, device=device)
        for index, whole in enumerate(wholes):
            tall, wide = whole.shape[1:]
            images[index, :, :tall, :wide] = preprocess.normalise(whole[None].to(device))[0]
        self.frames = Frames.of(images, sizes)
        self._corners = torch.tensor([preprocess.corner(int(tall), int(wide)) for tall, wide in sizes])
        self._whole = bool((sizes == torch.tensor([preprocess.height, preprocess.width])).all())
        if self.frames.same_size:
            self._corners = self._corners[:1]
            self._all_seen = self._positions(self.frames.corners, self._corners)

    def seen(self, places: Tensor) -> Tensor | None:
        """Return which pixels of whole images the model sees; None: all of them."""
        if self._whole:
            return None
        return self.frames.compute_once("seen", partial(self._mask, places))

    def view(self, places: Tensor, matrices: Tensor | None) -> Tensor:
        """Return what the model sees of images, as they are or moved."""
        if matrices is None:
            return self.crop(self.frames.select(places).images, places)
        return self.frames.move(matrices, self._pixels(places), places)

    def crop(self, images: Tensor, places: Tensor) -> Tensor:
        """Return what the model sees of whole images."""
        if self._whole:
            return images
        height, width = self.preprocess.height, self.preprocess.width
        corners = self._own_corners(places).tolist()
        if len(corners) == 1:
            top, left = corners[0]
            return images[..., top : top + height, left : left + width].contiguous()
        parts = zip(images, corners, strict=True)
        return torch.stack([image[..., top : top + height, left : left + width] for image, (top, left) in parts])

    def _own_corners(self, places: Tensor) -> Tensor:
        return self._corners if self.frames.same_size else self._corners[places]

    def _pixels(self, places: Tensor) -> Pixels | None:
        """Return where the pixels that the model sees lie in whole images; None: it sees all."""
        if self._whole:
            return None
        if self.frames.same_size:
            return self._all_seen
        return self._positions(self.frames.corners[places], self._corners[places])

    def _positions(self, first: Tensor, corners: Tensor) -> Pixels:
        starts = first + corners.flip(1)
        sides = (self.preprocess.width, self.preprocess.height)
        x, y = (torch.arange(side) + start[:, None] for side, start in zip(sides, starts.unbind(1), strict=True))
        return Pixels(x.to(self.device), y.to(self.device))

    def _mask(self, places: Tensor) -> Tensor:
        top, left = (corner[:, None].to(self.device) for corner in self._own_corners(places).unbind(1))
        rows, columns = (torch.arange(side, device=self.device) for side in self.frames.images.shape[2:])
        tall = (rows >= top) & (rows < top + self.preprocess.height)
        wide = (columns >= left) & (columns < left + self.preprocess.width)
        return (tall[:, :, None] & wide[:, None])[:, None]
