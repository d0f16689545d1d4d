"""A shard's images as they move: whole, in the model's scale, where the model is."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.errors import ModelError
from brinell.geometry import Frames
from brinell.lenses.stage import NO_ANSWER
from brinell.models import Model


class Stage:
    """What `brinell.lenses.Stage` says, for one model and one shard.

    `wholes` are uint8 images (C, H, W) before the model's crop, one a sample; where the model has none they are canvases.
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
        corners = [model.preprocess.corner(int(tall), int(wide)) for tall, wide in sizes]
        self._corners = torch.tensor(corners)
        self._one_corner = corners[0] if len(set(corners)) == 1 else None

    def frames(self, samples: Tensor) -> Frames:
        """The whole images of samples."""
        return self._frames.at(samples.to(self.model.device))

    def shape(self, sample: int) -> tuple[int, int]:
        """The height and width of a whole image."""
        height, width = self._sizes[sample].tolist()
        return height, width

    def crop(self, images: Tensor, samples: Tensor) -> Tensor:
        """The part of whole images (N, …, H, W) that the model sees."""
        height, width = self.model.preprocess.height, self.model.preprocess.width
        if self._one_corner is not None:
            top, left = self._one_corner
            return images[..., top : top + height, left : left + width]
        corners = self._corners[samples].tolist()
        parts = zip(images, corners, strict=True)
        return torch.stack([image[..., top : top + height, left : left + width] for image, (top, left) in parts])

    def moved(self, samples: Tensor, matrices: Tensor) -> Tensor:
        """Whole images of samples under motions, in whole grey levels; smaller ones lie at the top left."""
        return self.model.preprocess.levels(self.frames(samples).moved(matrices))

    def scores(self, images: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, K) before any softmax, and the labels that win."""
        model = self.model
        with torch.inference_mode():
            seen = self.crop(images, samples).contiguous()
            if model.service is not None:  # it is sent whole grey levels
                values = model.predict(model.preprocess.levels(seen))
            elif model.detector is not None:
                values = model.detector.detect(seen).class_scores(model.outputs)
            else:
                values = model.forward(seen).to(torch.float32)
            best, labels = values.max(1)
            if model.detector is not None:
                labels = labels.masked_fill(best <= 0, -1)
            labels = labels.masked_fill(values.isnan().any(1), NO_ANSWER)
            return (values.clamp(min=1e-30).log() if model.probabilities else values), labels

    def gradient(self, images: Tensor, samples: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        """The gradient of score `plus` less score `minus` with respect to what the model sees."""
        model = self.model
        if model.differentiable is None:
            raise ModelError(f"model {model.name} gives no gradients: ManiFool needs a torch model")
        plus, minus = (which.to(images.device)[:, None] for which in (plus, minus))
        with torch.enable_grad():
            seen = self.crop(images, samples).contiguous().requires_grad_()
            values = model.differentiable(seen).to(torch.float32)
            if model.probabilities:
                values = values.clamp(min=1e-30).log()
            if not values.requires_grad:  # a constant
                return torch.zeros_like(seen)
            gap = (values.gather(1, plus) - values.gather(1, minus)).sum()
            return torch.autograd.grad(gap, seen)[0].nan_to_num(0.0, 0.0, 0.0)
