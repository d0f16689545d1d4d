"""Embeddings: vectors of images, and heads that make classes of them with a gallery of labelled images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from brinell.errors import ConfigError, ModelError
from brinell.models.preprocess import Preprocess
from brinell.pictures import open_picture

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp"})
SHARPNESS = 20.0  # cosines times this are the logits of the nearest neighbour; it changes no prediction
BATCH = 32
STEPS, DECAY = 100, 1e-3  # of the linear probe


@dataclass(frozen=True)
class Embedder:
    """What makes a model an embedder: a function from normalised images to vectors of length 1 (N, D), and a head that
    makes logits (N, K) of them, if there is a gallery.
    """

    embed: Callable[[Tensor], Tensor]
    head: nn.Module | None = None

    def scores(self, vectors: Tensor) -> Tensor:
        """Return probabilities (N, K); without a gallery, 1 for the only class there is."""
        if self.head is not None:
            probabilities: Tensor = self.head(vectors).softmax(1)
            return probabilities
        return torch.ones_like(vectors[:, :1]).masked_fill(vectors.isnan().any(1, keepdim=True), torch.nan)


class UnitVectors(nn.Module):
    """A network that returns vectors of length 1."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module, self.name = module, name

    def forward(self, images: Tensor) -> Tensor:
        """Return vectors (N, D)."""
        return to_vectors(self.module(images), self.name)


def to_vectors(output: Tensor, name: str) -> Tensor:
    """Return a network's output as vectors of length 1, float32 (N, D); maps of features are averaged."""
    if not isinstance(output, Tensor) or output.ndim not in (2, 4):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ModelError(f"embedder {name} should return one vector per image (N, D), but returned {shape}")
    vectors = output.mean((2, 3)) if output.ndim == 4 else output
    return normalize(vectors.to(torch.float32), dim=1)


class Nearest(nn.Module):
    """The nearest neighbour in a gallery: a class's logit is the largest cosine with one of its images."""

    def __init__(self, vectors: Tensor, owners: Tensor, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.register_buffer("vectors", vectors)
        self.register_buffer("owners", owners)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return logits (N, K)."""
        cosines = linear(vectors, self.get_buffer("vectors"))
        best = cosines.new_full((len(vectors), self.classes), -1.0)
        owners = self.get_buffer("owners").expand(len(vectors), -1)
        return SHARPNESS * best.scatter_reduce(1, owners, cosines, "amax", include_self=False)


def fit_linear(vectors: Tensor, owners: Tensor, classes: int) -> nn.Linear:
    """Return a linear probe: logistic regression on a gallery's vectors, from zero weights, so without chance."""
    head = nn.Linear(vectors.shape[1], classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = cross_entropy(head(vectors), owners) + DECAY * head.weight.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return head.eval().requires_grad_(False)


# ---- galleries ----


@dataclass(frozen=True)
class Gallery:
    """Labelled images: the names of classes, files, and the class of each."""

    names: tuple[str, ...]
    files: tuple[Path, ...]
    owners: tuple[int, ...]


def read_gallery(folder: str) -> Gallery:
    """Return the images of a folder with a folder for each class."""
    root = Path(folder).expanduser()
    folders = sorted(entry for entry in root.iterdir() if entry.is_dir()) if root.is_dir() else []
    found = {one.name: sorted(file for file in one.rglob("*") if file.suffix.lower() in ENDINGS) for one in folders}
    names = tuple(name for name, files in found.items() if files)
    if len(names) < 2:
        raise ConfigError(
            f"the gallery {folder!r} should be a folder with a folder of images for each of at least two classes"
        )
    pairs = [(file, label) for label, name in enumerate(names) for file in found[name]]
    return Gallery(names, tuple(file for file, _ in pairs), tuple(label for _, label in pairs))


def embed_gallery(
    gallery: Gallery, embed: Callable[[Tensor], Tensor], preprocess: Preprocess, device: torch.device
) -> Tensor:
    """Return the vectors of a gallery's images, float32 (G, D), on the host."""
    parts = []
    for start in range(0, len(gallery.files), BATCH):
        inputs = torch.stack([preprocess.model_input(_read(file)) for file in gallery.files[start : start + BATCH]])
        with torch.inference_mode():
            parts.append(embed(preprocess.normalise(inputs.to(device))).cpu())
    return torch.cat(parts).clone()


def _read(file: Path) -> Tensor:
    try:
        pixels = np.array(open_picture(file.read_bytes()).convert("RGB"))
    except Exception as error:  # Pillow's plugins raise many kinds for damaged files
        raise ConfigError(f"{file} of the gallery can't be read: {error}") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def make_head(gallery: Gallery, vectors: Tensor, match: str) -> nn.Module:
    """Return a head by its name: nearest (neighbour) or linear (probe)."""
    owners = torch.tensor(gallery.owners)
    if match == "linear":
        return fit_linear(vectors, owners, len(gallery.names))
    return Nearest(vectors, owners, len(gallery.names)).requires_grad_(False)
