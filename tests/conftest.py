"""What tests share: the folder of real models and images, and small datasets made on the spot."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from brinell.config.execution import Execution

ASSETS = Path(os.environ.get("BRINELL_ASSETS", Path(__file__).parents[2] / "shared" / "assets"))

#: plain torch, small batches: nothing to export, nothing to measure
PLAIN = Execution(runtime="torch", batch=4, shard=8)


@pytest.fixture(scope="session")
def assets() -> Path:
    """The real networks and photographs that the project is tested with; they are not part of it."""
    if not ASSETS.is_dir():
        pytest.skip(f"needs the folder of real models and images, which is not at {ASSETS} (set BRINELL_ASSETS)")
    return ASSETS


@pytest.fixture(scope="session")
def photographs() -> torch.Tensor:
    """Two photographs that come with scikit-image, as uint8 (2, 3, 224, 224)."""
    from brinell.datasets.sources import open_dataset
    from brinell.models.preprocess import Preprocess

    pytest.importorskip("skimage", reason="needs the photographs of scikit-image")
    photos = open_dataset("demo-photos")
    model_input = Preprocess(224, 224).model_input
    return torch.stack([model_input(photos[index].image) for index in (20, 21, 22)])


@pytest.fixture
def greys(tmp_path: Path) -> Path:
    """Twelve small images of known mean grey in class folders `light` and `dark`, for the fake model."""
    generator = np.random.default_rng(0)
    for index in range(12):
        level = 80 + 12 * index
        folder = tmp_path / "greys" / "light"
        folder.mkdir(parents=True, exist_ok=True)
        noise = generator.integers(-20, 21, (40, 48, 3))
        Image.fromarray(np.clip(level + noise, 0, 255).astype(np.uint8)).save(folder / f"{index:02d}.png")
    return tmp_path / "greys"
