"""Moving images and the model that looks at them: what a lens's tasks work with."""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.engine.moving import MovingImages
from brinell.engine.threads import in_turn
from brinell.errors import ModelError
from brinell.lenses.method import NO_ANSWER
from brinell.models.model import Model, pad_batch
from brinell.motion.frames import Frames


class Stage:
    """Implements `lenses.method.Stage` for one model and one shard."""

    def __init__(self, model: Model, moving: MovingImages, ids: Tensor, labels: Tensor, seed: int) -> None:
        self.model, self.moving, self.seed = model, moving, seed
        self.ids, self.labels = ids.cpu(), labels.cpu()

    def frames(self, samples: Tensor) -> Frames:
        """Return the whole images of samples."""
        return self.moving.frames(samples)

    def seen(self, samples: Tensor) -> Tensor | None:
        """Return which pixels of whole images the model sees."""
        return self.moving.seen(samples)

    def scores(self, samples: Tensor, matrices: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return scores (N, K) before any softmax, and the top labels."""
        model = self.model
        with torch.inference_mode():
            seen = self.moving.view(samples, matrices)
            if model.service is not None:  # a service gets whole grey levels
                values = model.predict(model.preprocess.denormalise(seen))
            else:
                full = seen if model.device.type == "cpu" else pad_batch(seen)
                with in_turn(model.device):
                    values = model.forward(full).to(torch.float32)[: len(seen)]
            best, labels = values.max(1)
            if model.detector is not None:
                labels = labels.masked_fill(best <= 0, -1)
            labels = labels.masked_fill(values.isnan().any(1), NO_ANSWER)
            return (values.clamp(min=1e-30).log() if model.probabilities else values), labels

    def gradient(self, images: Tensor, samples: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        """Return the gradient of score `plus` minus score `minus` with respect to whole images."""
        model = self.model
        if model.differentiable is None:
            raise ModelError(f"model {model.name} has no gradients; ManiFool needs a torch classifier")
        plus, minus = (which.to(images.device)[:, None] for which in (plus, minus))
        with torch.enable_grad(), in_turn(model.device), model.own_precision():
            images = images.detach().requires_grad_()
            seen = self.moving.crop(images, samples)
            values = model.differentiable(seen if model.device.type == "cpu" else pad_batch(seen))
            values = values.to(torch.float32)[: len(images)]
            if model.probabilities:
                values = values.clamp(min=1e-30).log()
            if not values.requires_grad:  # a constant
                return torch.zeros_like(images)
            gap = (values.gather(1, plus) - values.gather(1, minus)).sum()
            return torch.autograd.grad(gap, images)[0].nan_to_num(0.0, 0.0, 0.0)
