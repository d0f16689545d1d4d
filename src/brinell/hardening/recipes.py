"""What is done to a network before its weights are trained: which layers train, new blocks, another normalisation."""

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
    """What is trained: a module of its own in float32, and how images get to it."""

    module: nn.Module
    preprocess: Preprocess
    probabilities: bool
    excitation: Excitation | None = None

    def scores(self, inputs: Tensor) -> Tensor:
        """Scores (N, K) before any softmax, of uint8 inputs."""
        scores: Tensor = self.module(self.preprocess.normalise(inputs))
        return scores.clamp(min=1e-30).log() if self.probabilities else scores


def require_trainable(model: Model) -> nn.Module:
    """A model's module, or an error that says why it can't be trained."""
    if model.service is not None:
        raise ModelError(f"model {model.name} is behind HTTP and can't be trained; give the torch module that it serves")
    if model.detector is not None:
        raise ModelError(f"model {model.name} is a detector, and harden trains classifiers; give a torch classifier")
    if model.internals is None:
        raise ModelError(
            f"model {model.name} is no torch module and can't be trained (ONNX files give no gradients); give the module "
            "that it was exported from, as torch:package.module:factory"
        )
    module = model.internals.module
    if any(value.is_floating_point() and value.dtype != torch.float32 for value in module.parameters()):
        raise ModelError(
            f"model {model.name} was opened in {model.facts.get('precision')}, which is too coarse to train; leave "
            "execution.precision at fp32, and train with training.precision"
        )
    if not any(True for _ in module.parameters()):
        raise ModelError(f"model {model.name} has no weights to train")
    return module


def network_of(model: Model, config: HardenConfig, device: torch.device) -> Network:
    """A copy of a model's module, with what the recipe adds, ready to be trained."""
    module = copy.deepcopy(require_trainable(model)).to(device).eval()
    _let_train(module, config.training.layers)
    excitation = None
    if config.recipe == "squeeze_excitation":
        excitation = _excited(module, model.preprocess, config.excitation.after, config.excitation.reduction)
    return Network(module, model.preprocess, model.probabilities, excitation)


def require_several(module: nn.Module, options: TrainingOptions, pictures: int) -> None:
    """Refuse batches of one picture where a batch norm would count over them."""
    counts = options.batch_norm == "update" and any(isinstance(part, NORMS) and trains(part) for part in module.modules())
    if counts and min(options.batch, pictures) < 2:
        raise ConfigError(
            f"batch norms can't count over one picture: the batch is {options.batch}, of {pictures} pictures; give a batch "
            "of 2 or more and as many pictures, or batch_norm: frozen"
        )


def _let_train(module: nn.Module, patterns: Sequence[str]) -> None:
    """Let those parameters train whose layer's name, or one of a part that it lies in, fits a pattern."""
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not any(_fits(name, pattern) for name in names):
            layers = list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
            raise ConfigError(f"no layer is called {pattern!r}; {nearest(pattern, layers)}")
    for name, value in module.named_parameters():
        value.requires_grad_(any(_fits(name, pattern) for pattern in patterns))


def _fits(name: str, pattern: str) -> bool:
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:count]), pattern) for count in range(1, len(parts) + 1))


def _excited(module: nn.Module, preprocess: Preprocess, patterns: Sequence[str], reduction: int) -> Excitation:
    device = next(module.parameters()).device
    blocks = choose_blocks(module, preprocess.normalise(probe_images(preprocess).to(device)), patterns)
    if not patterns:  # in the layers that train, as the paper has it
        training = {
            name for name in blocks if any(value.requires_grad for value in module.get_submodule(name).parameters())
        }
        blocks = {name: count for name, count in blocks.items() if name in training}
    if not blocks:
        raise ConfigError(
            "no block that trains gives feature maps; let more layers train, or name blocks in excitation.after"
        )
    add_excitation(module, blocks, reduction)
    for part in module.modules():
        if isinstance(part, SqueezeExcitation):
            part.requires_grad_(True)
    return Excitation(blocks=blocks, reduction=reduction)


# ---- per-set normalisation ----


def channel_statistics(batches: Iterable[Tensor]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and standard deviation of each channel over uint8 images (N, C, H, W), in shares of 255."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for images in batches:
        values = images.to(torch.float64) / 255
        count += values.numel() // values.shape[1]
        total = total.to(values.device) + values.sum((0, 2, 3))
        squares = squares.to(values.device) + values.square().sum((0, 2, 3))
    mean = total / count
    deviation = (squares / count - mean.square()).clamp(min=0).sqrt().clamp(min=1 / 255)
    return tuple(mean.tolist()), tuple(deviation.tolist())


def set_normalised(
    preprocess: Preprocess,
    own: tuple[tuple[float, ...], tuple[float, ...]],
    clean: tuple[tuple[float, ...], tuple[float, ...]],
) -> Preprocess:
    """The normalisation that gives a set the statistics which the network is used to.

    `own` are the set's mean and standard deviation, and take the place of the model's. A model that has none normalises
    inside: its set is brought to the statistics of the `clean` images.
    """
    if (preprocess.mean, preprocess.std) != ((0.0,) * len(preprocess.mean), (1.0,) * len(preprocess.std)):
        return replace(preprocess, mean=own[0], std=own[1])
    std = tuple(mine / theirs for mine, theirs in zip(own[1], clean[1], strict=True))
    mean = tuple(mine - theirs * ratio for mine, theirs, ratio in zip(own[0], clean[0], std, strict=True))
    return replace(preprocess, mean=mean, std=std)


def trains(norm: nn.modules.batchnorm._BatchNorm) -> bool:
    """Whether a batch norm is among the layers that train."""
    return norm.weight is None or norm.weight.requires_grad


def recount(network: Network, batches: Iterable[Tensor]) -> None:
    """Give batch norms that train the statistics of a set: the mean over its batches."""
    norms = [part for part in network.module.modules() if isinstance(part, NORMS) and trains(part)]
    norms = [part for part in norms if part.track_running_stats]
    if not norms:
        return
    usual = [part.momentum for part in norms]
    for part in norms:
        part.reset_running_stats()
        part.momentum = None  # which torch takes for a plain mean
        part.train()
    with torch.no_grad():
        for images in batches:
            network.scores(images)
    for part, momentum in zip(norms, usual, strict=True):
        part.momentum = momentum
    network.module.eval()
