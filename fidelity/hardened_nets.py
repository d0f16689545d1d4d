"""The networks that are hardened, as factories: those of the test assets, with their normalisation outside."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from fidelity.measure import ASSETS

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # what the networks have inside


def _bare(name: str) -> nn.Module:
    sys.path.insert(0, str(ASSETS / "models"))
    import nets  # type: ignore[import-not-found]

    module: Any = nets.load(name)[0]
    module.norm = nn.Identity()
    return module


def resnet20() -> nn.Module:
    """ResNet-20 for CIFAR-10."""
    return _bare("cifar10_resnet20")


def mobilenet_v2() -> nn.Module:
    """MobileNet V2 for ImageNet, whose batch norms are folded into its convolutions."""
    return _bare("mobilenet_v2")


def options(factory: str, size: int, classes: str) -> dict[str, Any]:
    """One of them as a model of brinell."""
    return {
        "source": f"torch:fidelity.hardened_nets:{factory}",
        "name": factory,
        "size": size,
        "mean": MEAN,
        "std": STD,
        "classes": str(ASSETS / "models" / classes),
    }
