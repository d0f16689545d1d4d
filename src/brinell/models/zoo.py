"""Models by name from timm, torchvision and Hugging Face. Each library is an extra, imported when it is asked for.

Every function gives the module, what the library knows of its preprocessing, and its class list.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from typing import Any

from torch import nn

from brinell.classes import Classes
from brinell.errors import MissingExtra, ModelError
from brinell.models.imagenet import imagenet_classes
from brinell.models.preprocess import Interpolation, Preprocess
from brinell.registry import nearest

Opened = tuple[nn.Module, Preprocess, Classes | None]


def timm_model(name: str, *, pretrained: bool) -> Opened:
    """A timm classifier with the preprocessing of its configuration."""
    try:
        import timm
    except ImportError:
        raise MissingExtra("timm", "timm") from None
    if not timm.is_model(name.partition(".")[0]) and not name.startswith("hf-hub"):
        raise ModelError(f"timm has no model {name!r}; {nearest(name, timm.list_models())}")
    module = _built(lambda: timm.create_model(name, pretrained=pretrained), f"timm:{name}")
    config = timm.data.resolve_model_data_config(module)
    channels, height, width = config["input_size"]
    known = Preprocess(
        height=height,
        width=width,
        channels=channels,
        short_side=max(int(min(height, width) / config["crop_pct"]), height, width),
        interpolation=_interpolation(config["interpolation"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
    return module, known, _imagenet_if(module.num_classes)


def torchvision_model(name: str, *, pretrained: bool, trust: bool) -> Opened:
    """A torchvision classifier with the preprocessing of its default weights."""
    try:
        import torchvision
    except ImportError:
        raise MissingExtra("torchvision", "torchvision") from None
    models = torchvision.models
    if name not in models.list_models(module=models):
        raise ModelError(f"torchvision has no classifier {name!r}; {nearest(name, models.list_models(module=models))}")
    weights = models.get_model_weights(name).DEFAULT
    with contextlib.nullcontext() if trust else _weights_only():
        module = _built(lambda: models.get_model(name, weights=weights if pretrained else None), f"torchvision:{name}")
    recipe = weights.transforms()
    known = Preprocess(
        height=recipe.crop_size[0],
        width=recipe.crop_size[0],
        short_side=recipe.resize_size[0],
        interpolation=_interpolation(recipe.interpolation.value),
        mean=tuple(recipe.mean),
        std=tuple(recipe.std),
    )
    return module, known, _imagenet_if(len(weights.meta["categories"]))


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """Let torch.load take weights alone, and no code, whatever its caller says."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def hf_model(name: str, *, pretrained: bool, trust: bool) -> Opened:
    """A Hugging Face image classifier, from the hub or a folder, with its processor's preprocessing."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf") from None
    auto = transformers.AutoModelForImageClassification
    config = _built(lambda: transformers.AutoConfig.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")
    if pretrained:
        module = _built(lambda: auto.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")
    else:
        module = auto.from_config(config, trust_remote_code=trust)
    processor = _built(lambda: transformers.AutoImageProcessor.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")
    names = [config.id2label[index] for index in range(config.num_labels)]
    classes = imagenet_classes() if tuple(names) == imagenet_classes().names else Classes(tuple(names))
    return _Logits(module), _processor_facts(processor), classes


class _Logits(nn.Module):
    """A Hugging Face classifier that gives its logits alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Any) -> Any:
        return self.module(pixel_values=images, return_dict=True).logits


def _processor_facts(processor: Any) -> Preprocess:
    size = dict(processor.size)
    crop = dict(getattr(processor, "crop_size", None) or {}) if getattr(processor, "do_center_crop", False) else {}
    target = crop or size
    short_side = size.get("shortest_edge")
    height, width = (int(target.get(side) or short_side or 224) for side in ("height", "width"))
    if not crop and short_side is not None and getattr(processor, "crop_pct", None):
        short_side = int(short_side / processor.crop_pct)  # ConvNeXt's rule
    rescale = 255 * processor.rescale_factor if getattr(processor, "do_rescale", True) else 255.0
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,), (1.0,))
    return Preprocess(
        height=height,
        width=width,
        short_side=short_side or (max(size["height"], height, width) if crop and "height" in size else None),
        interpolation=_interpolation(int(processor.resample)),
        mean=tuple(value / rescale for value in mean),
        std=tuple(value / rescale for value in std),
    )


def _interpolation(value: Any) -> Interpolation:
    """A library's word or Pillow's number for an interpolation."""
    numbers: dict[int, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
    if isinstance(value, int):
        return numbers.get(value, "bicubic")
    return value if value in numbers.values() else "bicubic"


def _imagenet_if(outputs: int) -> Classes | None:
    return imagenet_classes() if outputs == 1000 else None


def _built(build: Any, source: str) -> Any:
    """What a library builds, or an error in one line: weights that can't be fetched are the usual case."""
    try:
        return build()
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{source} can't be opened without running code from its weights file; use --trust if you know where it comes "
            "from"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"{source} can't be opened: {reason[0] if reason else type(error).__name__}; its weights may have to be "
            "downloaded first, or use ?pretrained=false for random ones"
        ) from error
