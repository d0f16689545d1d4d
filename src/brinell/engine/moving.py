"""A shard's originals as motions move them: whole images in the model's scale, on its device. No model is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from brinell.models.preprocess import Preprocess
from brinell.motion.frames import Frames, Pixels


class MovingImages:
    """Whole images (uint8 (C, H, W), before the model's crop), ready to be moved; model inputs without originals."""

    def __init__(self, preprocess: Preprocess, wholes: Sequence[Tensor], device: torch.device) -> None:
        self.preprocess, self.device = preprocess, device
        sizes = torch.tensor([whole.shape[1:] for whole in wholes])
        height, width = sizes.amax(0).tolist()
        images = torch.zeros(len(wholes), preprocess.channels, height, width, device=device)
        for index, whole in enumerate(wholes):
            tall, wide = whole.shape[1:]
            images[index, :, :tall, :wide] = preprocess.normalise(whole[None].to(device))[0]
        self._frames, self._sizes = Frames.of(images, sizes), sizes
        self._corners = torch.tensor([preprocess.corner(int(tall), int(wide)) for tall, wide in sizes])
        self._whole = bool((sizes == torch.tensor([preprocess.height, preprocess.width])).all())
        if self._frames.same_size:
            self._corners = self._corners[:1]
            self._all_seen = self._positions(self._frames.corners, self._corners)

    def frames(self, samples: Tensor) -> Frames:
        """Return the whole images of samples."""
        return self._frames.select(samples)

    def shape(self, sample: int) -> tuple[int, int]:
        """Return the height and width of a whole image."""
        height, width = self._sizes[sample].tolist()
        return height, width

    def seen(self, samples: Tensor) -> Tensor | None:
        """Return which pixels of whole images the model sees; None: all of them."""
        if self._whole:
            return None
        return self._frames.compute_once("seen", partial(self._mask, samples))

    def moved(self, samples: Tensor, matrices: Tensor) -> Tensor:
        """Return whole images under motions, in whole grey levels; smaller ones lie at the top left."""
        return self.preprocess.denormalise(self.frames(samples).move(matrices))

    def view(self, samples: Tensor, matrices: Tensor | None = None) -> Tensor:
        """Return what the model sees of samples, as they are or moved; nothing else is moved."""
        frames = self._frames.select(samples)
        if matrices is None:
            return self.crop(frames.images, samples)
        return frames.move(matrices, self._pixels(samples))

    def crop(self, images: Tensor, samples: Tensor) -> Tensor:
        """Return what the model sees of whole images."""
        if self._whole:
            return images
        height, width = self.preprocess.height, self.preprocess.width
        corners = self._own_corners(samples).tolist()
        if len(corners) == 1:
            top, left = corners[0]
            return images[..., top : top + height, left : left + width].contiguous()
        parts = zip(images, corners, strict=True)
        return torch.stack([image[..., top : top + height, left : left + width] for image, (top, left) in parts])

    def _own_corners(self, samples: Tensor) -> Tensor:
        return self._corners if self._frames.same_size else self._corners[samples]

    def _pixels(self, samples: Tensor) -> Pixels | None:
        """Return where the pixels that the model sees lie in whole images; None: it sees all."""
        if self._whole:
            return None
        if self._frames.same_size:
            return self._all_seen
        return self._positions(self._frames.corners[samples], self._corners[samples])

    def _positions(self, first: Tensor, corners: Tensor) -> Pixels:
        starts = first + corners.flip(1)
        sides = (self.preprocess.width, self.preprocess.height)
        x, y = (torch.arange(side) + start[:, None] for side, start in zip(sides, starts.unbind(1), strict=True))
        return Pixels(x.to(self.device), y.to(self.device))

    def _mask(self, samples: Tensor) -> Tensor:
        top, left = (corner[:, None].to(self.device) for corner in self._own_corners(samples).unbind(1))
        rows, columns = (torch.arange(side, device=self.device) for side in self._frames.images.shape[2:])
        tall = (rows >= top) & (rows < top + self.preprocess.height)
        wide = (columns >= left) & (columns < left + self.preprocess.width)
        return (tall[:, :, None] & wide[:, None])[:, None]
