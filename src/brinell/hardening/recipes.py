"""Prepare a network for training: which layers train, new blocks, another normalisation."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from brinell.errors import ConfigError, ModelError
from brinell.hardening.options import HardenConfig, TrainingOptions
from brinell.models.excitation import SqueezeExcitation, add_excitation, choose_blocks
from brinell.models.hardened import Excitation
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.probe import probe_images
from brinell.registry import nearest

NORMS = (nn.modules.batchnorm._BatchNorm,)


@dataclass(frozen=True)
class Network:
    """What is trained: a copy of the module in float32, and its preprocessing."""

    module: nn.Module
    preprocess: Preprocess
    probabilities: bool
    excitation: Excitation | None = None

    def scores(self, inputs: Tensor) -> Tensor:
        """Return logits (N, K) of uint8 inputs."""
        scores: Tensor = self.module(self.preprocess.normalise(inputs))
        return scores.clamp(min=1e-30).log() if self.probabilities else scores


_KINDS = {"detection": "a detector", "segmentation": "a segmenter", "embedding": "an embedder"}


def require_trainable(model: Model) -> nn.Module:
    """Return a model's module, or raise if it can't be trained."""
    if model.service is not None:
        raise ModelError(f"model {model.name} is behind HTTP and can't be trained; use the torch module that it serves")
    if model.task != "classification":
        raise ModelError(
            f"model {model.name} is {_KINDS[model.task]}, but harden trains classifiers; use a torch classifier"
        )
    if model.internals is None:
        raise ModelError(
            f"model {model.name} is not a torch module and can't be trained (ONNX has no gradients); use the module that "
            "it was exported from, as torch:package.module:factory"
        )
    module = model.internals.module
    if any(value.is_floating_point() and value.dtype != torch.float32 for value in module.parameters()):
        raise ModelError(
            f"model {model.name} was opened in {model.facts.get('precision')}, which is too coarse to train; leave "
            "execution.precision at fp32, and set training.precision instead"
        )
    if not any(True for _ in module.parameters()):
        raise ModelError(f"model {model.name} has no weights to train")
    return module


def build_network(model: Model, config: HardenConfig, device: torch.device) -> Network:
    """Return a copy of a model's module, with what the recipe adds, ready to be trained."""
    module = copy.deepcopy(require_trainable(model)).to(device).eval()
    _select_layers(module, config.training.layers)
    excitation = None
    if config.recipe == "squeeze_excitation":
        excitation = _add_blocks(module, model.preprocess, config.excitation.after, config.excitation.reduction)
    return Network(module, model.preprocess, model.probabilities, excitation)


def require_batches(module: nn.Module, options: TrainingOptions, images: int) -> None:
    """Raise if a batch norm would compute statistics of a single image."""
    updates = options.batch_norm == "update" and any(isinstance(part, NORMS) and trains(part) for part in module.modules())
    if updates and min(options.batch, images) < 2:
        raise ConfigError(
            f"batch norms need at least 2 images per batch, got a batch size of {options.batch} and {images} images; "
            "increase training.batch or add images, or set training.batch_norm to frozen"
        )


def _select_layers(module: nn.Module, patterns: Sequence[str]) -> None:
    """Let parameters train if their name, or that of a module that contains them, matches a pattern."""
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in names):
            layers = list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
            raise ConfigError(f"no layer is named {pattern!r}; {nearest(pattern, layers)}")
    for name, value in module.named_parameters():
        value.requires_grad_(any(_matches(name, pattern) for pattern in patterns))


def _matches(name: str, pattern: str) -> bool:
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))


def _add_blocks(module: nn.Module, preprocess: Preprocess, patterns: Sequence[str], reduction: int) -> Excitation:
    device = next(module.parameters()).device
    blocks = choose_blocks(module, preprocess.normalise(probe_images(preprocess).to(device)), patterns)
    if not patterns:  # in the layers that train, as in the paper
        training = {
            name for name in blocks if any(value.requires_grad for value in module.get_submodule(name).parameters())
        }
        blocks = {name: count for name, count in blocks.items() if name in training}
    if not blocks:
        raise ConfigError("no block that trains has feature maps; train more layers, or name blocks in excitation.after")
    add_excitation(module, blocks, reduction)
    for part in module.modules():
        if isinstance(part, SqueezeExcitation):
            part.requires_grad_(True)
    return Excitation(blocks=blocks, reduction=reduction)


# ---- per-set normalisation ----


def channel_statistics(batches: Iterable[Tensor]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel over uint8 images (N, C, H, W), scaled to [0, 1]."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for images in batches:
        values = images.to(torch.float64) / 255
        count += values.numel() // values.shape[1]
        total = total.to(values.device) + values.sum((0, 2, 3))
        squares = squares.to(values.device) + values.square().sum((0, 2, 3))
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt().clamp(min=1 / 255)
    return tuple(mean.tolist()), tuple(deviation.tolist())


def normalise_by_set(
    preprocess: Preprocess,
    own: tuple[tuple[float, ...], tuple[float, ...]],
    clean: tuple[tuple[float, ...], tuple[float, ...]],
) -> Preprocess:
    """Return the normalisation that gives a set the statistics that the network expects.

    `own` are the mean and standard deviation of the set; they replace those of the model. A model without any normalises
    inside: its set gets the statistics of the `clean` images.
    """
    if (preprocess.mean, preprocess.std) != ((0.0,) * len(preprocess.mean), (1.0,) * len(preprocess.std)):
        return replace(preprocess, mean=own[0], std=own[1])
    std = tuple(mine / theirs for mine, theirs in zip(own[1], clean[1], strict=True))
    mean = tuple(mine - theirs * ratio for mine, theirs, ratio in zip(own[0], clean[0], std, strict=True))
    return replace(preprocess, mean=mean, std=std)


def trains(norm: nn.modules.batchnorm._BatchNorm) -> bool:
    """Whether a batch norm trains."""
    return norm.weight is None or norm.weight.requires_grad


def recompute_batch_norms(network: Network, batches: Iterable[Tensor]) -> None:
    """Recompute the statistics of batch norms that train: the mean over the batches of a set."""
    norms = [part for part in network.module.modules() if isinstance(part, NORMS) and trains(part)]
    norms = [part for part in norms if part.track_running_stats]
    if not norms:
        return
    momenta = [part.momentum for part in norms]
    for part in norms:
        part.reset_running_stats()
        part.momentum = None  # torch then computes a plain mean
        part.train()
    with torch.no_grad():
        for images in batches:
            network.scores(images)
    for part, momentum in zip(norms, momenta, strict=True):
        part.momentum = momentum
    network.module.eval()
