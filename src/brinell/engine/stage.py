"""A shard's images as they move: whole, in the model's scale, where the model is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from brinell.errors import ModelError
from brinell.lenses.tasks import NO_ANSWER
from brinell.models.model import Model, pad_batch
from brinell.motion.frames import Frames, Pixels


class Stage:
    """What `brinell.lenses.Stage` says, for one model and one shard.

    `wholes` are uint8 images (C, H, W) before the model's crop, one a sample; where the model has none they are inputs.
    """

    def __init__(self, model: Model, wholes: Sequence[Tensor], ids: Tensor, labels: Tensor, seed: int) -> None:
        self.model, self.seed = model, seed
        self.ids, self.labels = ids.cpu(), labels.cpu()
        sizes = torch.tensor([whole.shape[1:] for whole in wholes])
        height, width = sizes.amax(0).tolist()
        images = torch.zeros(len(wholes), model.preprocess.channels, height, width, device=model.device)
        for place, whole in enumerate(wholes):
            tall, wide = whole.shape[1:]
            images[place, :, :tall, :wide] = model.preprocess.normalise(whole[None].to(model.device))[0]
        self._frames, self._sizes = Frames.of(images, sizes), sizes
        self._corners = torch.tensor([model.preprocess.corner(int(tall), int(wide)) for tall, wide in sizes])
        self._whole = bool((sizes == torch.tensor([model.preprocess.height, model.preprocess.width])).all())
        if self._frames.same_size:
            self._corners = self._corners[:1]
            self._all_seen = self._places(self._frames.corners, self._corners)

    def frames(self, samples: Tensor) -> Frames:
        """The whole images of samples."""
        return self._frames.select(samples)

    def shape(self, sample: int) -> tuple[int, int]:
        """The height and width of a whole image."""
        height, width = self._sizes[sample].tolist()
        return height, width

    def seen(self, samples: Tensor) -> Tensor | None:
        """Which pixels of whole images the model sees."""
        if self._whole:
            return None
        return self._frames.compute_once("seen", partial(self._mask, samples))

    def moved(self, samples: Tensor, matrices: Tensor) -> Tensor:
        """Whole images of samples under motions, in whole grey levels; smaller ones lie at the top left."""
        return self.model.preprocess.denormalise(self.frames(samples).move(matrices))

    def view(self, samples: Tensor, matrices: Tensor | None = None) -> Tensor:
        """What the model sees of samples, as they are or moved; nothing else is moved."""
        frames = self._frames.select(samples)
        if matrices is None:
            return self._cut(frames.images, samples)
        return frames.move(matrices, self._pixels(samples))

    def scores(self, samples: Tensor, matrices: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores (N, K) before any softmax, and the labels that win."""
        model = self.model
        with torch.inference_mode():
            seen = self.view(samples, matrices)
            if model.service is not None:  # it is sent whole grey levels
                values = model.predict(model.preprocess.denormalise(seen))
            else:
                full = seen if model.device.type == "cpu" else pad_batch(seen)
                values = model.forward(full).to(torch.float32)[: len(seen)]
            best, labels = values.max(1)
            if model.detector is not None:
                labels = labels.masked_fill(best <= 0, -1)
            labels = labels.masked_fill(values.isnan().any(1), NO_ANSWER)
            return (values.clamp(min=1e-30).log() if model.probabilities else values), labels

    def gradient(self, images: Tensor, samples: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        """The gradient of score `plus` less score `minus` with respect to whole images."""
        model = self.model
        if model.differentiable is None:
            raise ModelError(f"model {model.name} gives no gradients: ManiFool needs a torch classifier")
        plus, minus = (which.to(images.device)[:, None] for which in (plus, minus))
        with torch.enable_grad():
            images = images.detach().requires_grad_()
            seen = self._cut(images, samples)
            values = model.differentiable(seen if model.device.type == "cpu" else pad_batch(seen))
            values = values.to(torch.float32)[: len(images)]
            if model.probabilities:
                values = values.clamp(min=1e-30).log()
            if not values.requires_grad:  # a constant
                return torch.zeros_like(images)
            gap = (values.gather(1, plus) - values.gather(1, minus)).sum()
            return torch.autograd.grad(gap, images)[0].nan_to_num(0.0, 0.0, 0.0)

    def _cut(self, images: Tensor, samples: Tensor) -> Tensor:
        """What the model sees of whole images."""
        if self._whole:
            return images
        height, width = self.model.preprocess.height, self.model.preprocess.width
        corners = self._own_corners(samples).tolist()
        if len(corners) == 1:
            top, left = corners[0]
            return images[..., top : top + height, left : left + width].contiguous()
        parts = zip(images, corners, strict=True)
        return torch.stack([image[..., top : top + height, left : left + width] for image, (top, left) in parts])

    def _own_corners(self, samples: Tensor) -> Tensor:
        return self._corners if self._frames.same_size else self._corners[samples]

    def _pixels(self, samples: Tensor) -> Pixels | None:
        """Where the pixels that the model sees lie in whole images; None: it sees all."""
        if self._whole:
            return None
        return (
            self._all_seen
            if self._frames.same_size
            else self._places(self._frames.corners[samples], self._corners[samples])
        )

    def _places(self, first: Tensor, corners: Tensor) -> Pixels:
        starts = first + corners.flip(1)
        sides = (self.model.preprocess.width, self.model.preprocess.height)
        x, y = (torch.arange(side) + start[:, None] for side, start in zip(sides, starts.unbind(1), strict=True))
        return Pixels(x.to(self.model.device), y.to(self.model.device))

    def _mask(self, samples: Tensor) -> Tensor:
        top, left = (corner[:, None].to(self.model.device) for corner in self._own_corners(samples).unbind(1))
        rows, columns = (torch.arange(side, device=self.model.device) for side in self._frames.images.shape[2:])
        tall = (rows >= top) & (rows < top + self.model.preprocess.height)
        wide = (columns >= left) & (columns < left + self.model.preprocess.width)
        return (tall[:, :, None] & wide[:, None])[:, None]
