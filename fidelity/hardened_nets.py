"""Factories of the networks to harden: those of the test assets, without their normalisation."""

from __future__ import annotations

import sys
from typing import Any

from safetensors.torch import load_file
from torch import nn

from fidelity.cifar_resnet18 import WEIGHTS, ResNet18
from fidelity.measure import ASSETS

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # the normalisation inside the networks


def _bare(name: str) -> nn.Module:
    sys.path.insert(0, str(ASSETS / "models"))
    import nets  # type: ignore[import-not-found]

    module: Any = nets.load(name)[0]
    module.norm = nn.Identity()
    bare: nn.Module = module
    return bare


def resnet20() -> nn.Module:
    """ResNet-20 for CIFAR-10."""
    return _bare("cifar10_resnet20")


def resnet56() -> nn.Module:
    """ResNet-56 for CIFAR-10."""
    return _bare("cifar10_resnet56")


def resnet18() -> nn.Module:
    """ResNet-18 for CIFAR-10, as trained by `fidelity.cifar_resnet18`."""
    net = ResNet18()
    net.load_state_dict(load_file(WEIGHTS))
    return net


def mobilenet_v2() -> nn.Module:
    """MobileNet V2 for ImageNet, whose batch norms are folded into its convolutions."""
    return _bare("mobilenet_v2")


def options(factory: str, size: int, classes: str) -> dict[str, Any]:
    """Return the options of a model of brinell for a factory."""
    return {
        "source": f"torch:fidelity.hardened_nets:{factory}",
        "name": factory,
        "size": size,
        "mean": MEAN,
        "std": STD,
        "classes": str(ASSETS / "models" / classes),
    }
