"""Two towers as a classifier: prompts become a linear head once, and only the image tower runs afterwards."""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import linear, normalize

from brinell.caching import cache_folder
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError
from brinell.models.device import select_device
from brinell.models.exports import keep, weights_fingerprint
from brinell.models.model import Description, Model
from brinell.models.modules import from_quantised
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.zero_shot.prompts import class_phrases, fill, read_prompts
from brinell.versions import package_version

LOG = logging.getLogger(__name__)
BATCH = 256  # prompts that are encoded at once
_VERSIONED = ("torch", "transformers", "open_clip_torch")

Tokens = Mapping[str, Tensor]


@dataclass(frozen=True)
class Towers:
    """A two-tower network as its library built it.

    `image` maps normalised images to embeddings; `text` maps tokens to embeddings, and `tokenise` texts to tokens. `whole`
    holds all weights. A logit is `scale` times the cosine of two embeddings, plus `bias`. `sigmoid`: the network was
    trained with a sigmoid for each pair of an image and a text, as SigLIP is, and not with a softmax.
    """

    whole: nn.Module
    image: nn.Module
    text: Callable[[Tokens], Tensor]
    tokenise: Callable[[list[str]], Tokens]
    scale: Tensor
    bias: Tensor | None
    sigmoid: bool


class ZeroShot(nn.Module):
    """An image tower with a linear head on its normalised embeddings."""

    def __init__(self, image: nn.Module, weight: Tensor, bias: Tensor, *, sigmoid: bool) -> None:
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor
        self.image, self.sigmoid = image, sigmoid
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, or probabilities if each class has a sigmoid."""
        logits = linear(normalize(self.image(images), dim=-1), self.weight, self.bias)
        return logits.sigmoid() if self.sigmoid else logits


def open_towers(towers: Towers, options: ModelOptions, execution: Execution, known: Preprocess) -> Model:
    """Make a classifier over the classes that the options name."""
    options.is_detector()  # raises if there are options of detectors
    classes = select_classes(options, None)
    if classes is None:
        raise ConfigError(f"{options.source} is a zero-shot model, so it needs class names: ?classes=imagenet or a file")
    device = select_device(execution)
    head = text_head(towers, read_prompts(options.prompts), class_phrases(options, classes), device)
    scale = towers.scale.detach().to(head).exp()
    bias = torch.zeros(1) if towers.bias is None else towers.bias.detach().flatten()
    sigmoid = towers.sigmoid if options.scoring is None else options.scoring == "sigmoid"
    module = ZeroShot(towers.image, head * scale, bias.to(head).expand(len(head)).clone(), sigmoid=sigmoid)
    preprocess = select_preprocess(options, known)
    description = Description(options.label, options.source, preprocess, classes, probabilities=sigmoid)
    return from_quantised(module, description, options, execution)


def text_head(towers: Towers, prompts: tuple[str, ...], phrases: tuple[str, ...], device: torch.device) -> Tensor:
    """Return the mean embedding of each class's prompts, normalised before and after, (K, D), or a cached one."""
    tokens = towers.tokenise(fill(prompts, phrases))
    file = _cached_file(towers.whole, tokens, len(prompts), device)
    if file.is_file():
        file.touch()  # it was used
        return load_file(file)["head"]
    count = len(prompts) * len(phrases)
    LOG.info("Encoding %s prompts …", f"{count:,}")
    towers.whole.eval().to(device)
    with torch.inference_mode():
        parts = [
            normalize(towers.text({key: value[at : at + BATCH].to(device) for key, value in tokens.items()}), dim=-1)
            for at in range(0, count, BATCH)
        ]
        means = torch.cat(parts).view(len(phrases), len(prompts), -1).mean(1)
        head = normalize(means, dim=-1).to("cpu", torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "head.safetensors"
        save_file({"head": head}, path)
        keep(path, file)
    return head.clone()  # not an inference tensor


def _cached_file(whole: nn.Module, tokens: Tokens, prompts: int, device: torch.device) -> Path:
    """Return the file of a head, named by everything that it depends on; it may not exist yet."""
    digest = hashlib.blake2b(weights_fingerprint(whole).encode(), digest_size=16)
    for key, value in sorted(tokens.items()):
        digest.update(f"{key}{tuple(value.shape)}".encode() + value.contiguous().numpy().tobytes())
    digest.update(str([prompts, device.type, *(package_version(name) for name in _VERSIONED)]).encode())
    return cache_folder() / "heads" / f"{digest.hexdigest()}.safetensors"
