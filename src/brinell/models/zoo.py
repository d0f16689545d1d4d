"""Models by name from timm, torchvision and Hugging Face. Each library is an extra, imported when it is needed.

Every builder returns the module, what the library knows about its preprocessing, and its class list. Detectors return a
mapping per image, with boxes in pixels, labels and scores, as in torchvision.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import MissingExtra, ModelError
from brinell.models.imagenet import imagenet_classes
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.preprocess import Preprocess
from brinell.registry import nearest
from brinell.types import Interpolation

Built = tuple[nn.Module, Preprocess, Classes | None]


def open_timm(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a timm classifier."""
    module, known, classes = timm_model(name, pretrained=options.pretrained)
    return model_from_module(module, options, execution, known=known, classes=classes)


def open_torchvision(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a torchvision classifier or detector."""
    detector = options.is_detector(is_torchvision_detector(name))
    build = torchvision_detector if detector else torchvision_model
    module, known, classes = build(name, pretrained=options.pretrained, trust=execution.trust)
    return model_from_module(module, options, execution, known=known, classes=classes, detector=detector)


def open_hf(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a classifier or detector of the Hugging Face hub, or of a folder."""
    detector = options.is_detector(is_hf_detector(name, trust=execution.trust))
    build = hf_detector if detector else hf_model
    module, known, classes = build(name, pretrained=options.pretrained, trust=execution.trust)
    return model_from_module(module, options, execution, known=known, classes=classes, detector=detector)


def timm_model(name: str, *, pretrained: bool) -> Built:
    """Build a timm classifier, with the preprocessing of its configuration."""
    try:
        import timm
    except ImportError:
        raise MissingExtra("timm", "timm") from None
    if not timm.is_model(name.partition(".")[0]) and not name.startswith("hf-hub"):
        raise ModelError(f"timm has no model {name!r}; {nearest(name, timm.list_models())}")
    module = _build(lambda: timm.create_model(name, pretrained=pretrained), f"timm:{name}")
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


def _torchvision_models() -> Any:
    try:
        import torchvision
    except ImportError:
        raise MissingExtra("torchvision", "torchvision") from None
    return torchvision.models


def is_torchvision_detector(name: str) -> bool:
    """Whether torchvision has a detector of that name."""
    models = _torchvision_models()
    return name in models.list_models(module=models.detection)


def torchvision_detector(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a torchvision detector. Images are stretched to the size that it resizes the shorter side to."""
    models = _torchvision_models()
    weights = models.get_model_weights(name).DEFAULT
    arguments = {"weights": weights} if pretrained else {"weights": None, "weights_backbone": None}
    with contextlib.nullcontext() if trust else _weights_only():
        module = _build(lambda: models.get_model(name, **arguments), f"torchvision:{name}")
    height, width = getattr(module.transform, "fixed_size", None) or (module.transform.min_size[-1],) * 2
    known = Preprocess(height=height, width=width, interpolation="bilinear")  # it normalises images itself
    return _Images(module), known, Classes(tuple(weights.meta["categories"]))


class _Images(nn.Module):
    """A torchvision detector that takes a batch instead of a list."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Any:
        return self.module(list(images))


def torchvision_model(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a torchvision classifier, with the preprocessing of its default weights."""
    models = _torchvision_models()
    classifiers = models.list_models(module=models)
    if name not in classifiers:
        names = classifiers + models.list_models(module=models.detection)
        raise ModelError(f"torchvision has no classifier or detector {name!r}; {nearest(name, names)}")
    weights = models.get_model_weights(name).DEFAULT
    with contextlib.nullcontext() if trust else _weights_only():
        module = _build(lambda: models.get_model(name, weights=weights if pretrained else None), f"torchvision:{name}")
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
    """Make torch.load accept weights only, and no code, whatever its caller says."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf") from None
    return transformers


def is_hf_detector(name: str, *, trust: bool) -> bool:
    """Whether a model is a detector by its configuration."""
    config = _hf_config(name, trust)
    return any("ObjectDetection" in architecture for architecture in config.architectures or ())


def hf_model(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a Hugging Face image classifier, from the hub or a folder, with the preprocessing of its processor."""
    auto = _transformers().AutoModelForImageClassification
    module, processor, names = _hf_parts(auto, name, pretrained=pretrained, trust=trust)
    classes = imagenet_classes() if names == imagenet_classes().names else Classes(names)
    return _Logits(module), _read_processor(processor), classes


def hf_detector(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a Hugging Face detector, from the hub or a folder, decoded by its own processor. Images are stretched."""
    auto = _transformers().AutoModelForObjectDetection
    module, processor, names = _hf_parts(auto, name, pretrained=pretrained, trust=trust)
    known = dataclasses.replace(_read_processor(processor), short_side=None)
    return _Objects(module, processor), known, Classes(names)


def _hf_config(name: str, trust: bool) -> Any:
    auto = _transformers().AutoConfig
    return _build(lambda: auto.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")


def _hf_parts(auto: Any, name: str, *, pretrained: bool, trust: bool) -> tuple[nn.Module, Any, tuple[str, ...]]:
    """Return a model, its processor and the names of its classes."""
    config, processors = _hf_config(name, trust), _transformers().AutoImageProcessor
    if pretrained:
        module = _build(lambda: auto.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")
    else:
        module = auto.from_config(config, trust_remote_code=trust)
    processor = _build(lambda: processors.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")
    return module, processor, tuple(config.id2label[index] for index in range(config.num_labels))


class _Objects(nn.Module):
    """A Hugging Face detector whose outputs are decoded by its processor."""

    def __init__(self, module: nn.Module, processor: Any) -> None:
        super().__init__()
        self.module, self.processor = module, processor

    def forward(self, images: Tensor) -> Any:
        outputs = self.module(pixel_values=images, return_dict=True)
        sizes = [tuple(images.shape[2:])] * len(images)
        return self.processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)


class _Logits(nn.Module):
    """A Hugging Face classifier that returns its logits only."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Any) -> Any:
        return self.module(pixel_values=images, return_dict=True).logits


def _read_processor(processor: Any) -> Preprocess:
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
    """Return an interpolation by a library's name or Pillow's number for it."""
    numbers: dict[int, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
    if isinstance(value, int):
        return numbers.get(value, "bicubic")
    return value if value in numbers.values() else "bicubic"


def _imagenet_if(outputs: int) -> Classes | None:
    return imagenet_classes() if outputs == 1000 else None


def _build(build: Any, source: str) -> Any:
    """Return what a library builds, and raise an error of one line if it can't, mostly for lack of weights."""
    try:
        return build()
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{source} can't be opened without running code from its weights file; use --trust if you trust its source"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"{source} can't be opened: {reason[0] if reason else type(error).__name__}; download its weights "
            "first, or use ?pretrained=false for random ones"
        ) from error
