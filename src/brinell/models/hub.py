"""Models of the Hugging Face hub, or of a folder, with the preprocessing of their processors (extra: hf)."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, MissingExtra
from brinell.models.imagenet import imagenet_classes
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.processors import read_processor
from brinell.models.zoo import Built, build_by


def open_hf(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a classifier, zero-shot classifier or detector of the Hugging Face hub, or of a folder."""
    if options.task == "zero-shot" or (options.task is None and is_hf_zero_shot(name, trust=execution.trust)):
        from brinell.models.zero_shot.hf import open_hf_zero_shot  # it imports this module

        return open_hf_zero_shot(name, options, execution)
    if wrong := options.chosen() & {"prompts", "scoring"}:
        raise ConfigError(f"{min(wrong)} is an option of zero-shot models, which hf:{name} is not by its configuration")
    detector = options.is_detector(is_hf_detector(name, trust=execution.trust))
    build = hf_detector if detector else hf_model
    module, known, classes = build(name, pretrained=options.pretrained, trust=execution.trust)
    return model_from_module(module, options, execution, known=known, classes=classes, detector=detector)


def transformers() -> Any:
    """Return the library, and raise an error of one line if it isn't installed."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf") from None
    return transformers


def is_hf_detector(name: str, *, trust: bool) -> bool:
    """Whether a model is a detector by its configuration."""
    config = _hf_config(name, trust)
    return any("ObjectDetection" in architecture for architecture in config.architectures or ())


def is_hf_zero_shot(name: str, *, trust: bool) -> bool:
    """Whether a model has a tower for images and one for texts by its configuration."""
    known = transformers().models.auto.modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES
    return bool(set(_hf_config(name, trust).architectures or ()) & set(known.values()))


def hf_model(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a Hugging Face image classifier, from the hub or a folder, with the preprocessing of its processor."""
    auto = transformers().AutoModelForImageClassification
    module, processor, names = _hf_parts(auto, name, pretrained=pretrained, trust=trust)
    classes = imagenet_classes() if names == imagenet_classes().names else Classes(names)
    return _Logits(module), read_processor(processor), classes


def hf_detector(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a Hugging Face detector, from the hub or a folder, decoded by its own processor. Images are stretched."""
    auto = transformers().AutoModelForObjectDetection
    module, processor, names = _hf_parts(auto, name, pretrained=pretrained, trust=trust)
    known = dataclasses.replace(read_processor(processor), short_side=None)
    return _Objects(module, processor), known, Classes(names)


def _hf_config(name: str, trust: bool) -> Any:
    auto = transformers().AutoConfig
    return build_by(lambda: auto.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")


def _hf_parts(auto: Any, name: str, *, pretrained: bool, trust: bool) -> tuple[nn.Module, Any, tuple[str, ...]]:
    """Return a model, its processor and the names of its classes."""
    module, processor, config = load_hf(auto, name, pretrained=pretrained, trust=trust)
    return module, processor, tuple(config.id2label[index] for index in range(config.num_labels))


def load_hf(auto: Any, name: str, *, pretrained: bool, trust: bool) -> tuple[Any, Any, Any]:
    """Return a model by one of the library's `Auto…` classes, its processor and its configuration."""
    config, processors = _hf_config(name, trust), transformers().AutoImageProcessor
    if pretrained:
        module = build_by(lambda: auto.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")
    else:
        module = auto.from_config(config, trust_remote_code=trust)
    processor = build_by(lambda: processors.from_pretrained(name, trust_remote_code=trust), f"hf:{name}")
    return module, processor, config


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
