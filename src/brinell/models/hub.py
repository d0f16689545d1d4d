"""Models of the Hugging Face hub, or of a folder, with the preprocessing of their processors (extra: hf)."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.criterion import Task
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, MissingExtra
from brinell.models.imagenet import imagenet_classes
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.processors import read_processor
from brinell.models.zoo import Built, build_by

SEMANTIC = "SemanticSegmentation"
UNIVERSAL = ("UniversalSegmentation", "InstanceSegmentation")  # MaskFormer, Mask2Former, OneFormer


def open_hf(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a classifier, zero-shot classifier, detector or segmenter of the Hugging Face hub, or of a folder."""
    if options.task == "zero-shot" or (options.task is None and is_hf_zero_shot(name, trust=execution.trust)):
        from brinell.models.zero_shot.hf import open_hf_zero_shot  # it imports this module

        return open_hf_zero_shot(name, options, execution)
    if wrong := options.chosen() & {"prompts", "scoring"}:
        raise ConfigError(f"{min(wrong)} is an option of zero-shot models, which hf:{name} is not by its configuration")
    if options.task == "embedding":
        embedder, known, classes = hf_embedder(name, pretrained=options.pretrained, trust=execution.trust)
        return model_from_module(embedder, options, execution, known=known, classes=classes)
    task = options.task_or(hf_task(name, trust=execution.trust))
    build = {"detection": hf_detector, "segmentation": hf_segmenter}.get(task, hf_model)
    module, known, classes = build(name, pretrained=options.pretrained, trust=execution.trust)
    return model_from_module(module, options, execution, known=known, classes=classes, task=task)


def transformers() -> Any:
    """Return the library, and raise an error of one line if it isn't installed."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "hf") from None
    return transformers


def hf_task(name: str, *, trust: bool) -> Task:
    """Return what a model is for, by its configuration."""
    names = " ".join(_hf_config(name, trust).architectures or ())
    if any(kind in names for kind in (SEMANTIC, *UNIVERSAL)):
        return "segmentation"
    return "detection" if "ObjectDetection" in names else "classification"


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


def hf_embedder(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a Hugging Face network that returns a vector for each image, from the hub or a folder."""
    module, processor, _ = _hf_parts(transformers().AutoModel, name, pretrained=pretrained, trust=trust)
    return _Vectors(module), read_processor(processor), None


def hf_segmenter(name: str, *, pretrained: bool, trust: bool) -> Built:
    """Build a Hugging Face segmenter, from the hub or a folder. Images are stretched.

    Models that predict masks and their classes (Mask2Former and the like) are decoded by their own processor.
    """
    library, names = transformers(), " ".join(_hf_config(name, trust).architectures or ())
    universal = any(kind in names for kind in UNIVERSAL)
    auto = library.AutoModelForUniversalSegmentation if universal else library.AutoModelForSemanticSegmentation
    module, processor, classes = _hf_parts(auto, name, pretrained=pretrained, trust=trust)
    known = dataclasses.replace(read_processor(processor), short_side=None)
    return (_Segments(module, processor) if universal else _Logits(module)), known, Classes(classes)


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


class _Vectors(nn.Module):
    """A Hugging Face network that returns its image features: those of its image tower, pooled ones, or the first token."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Any:
        features = getattr(self.module, "get_image_features", None)
        if features is not None:
            found = features(pixel_values=images)
            return found if isinstance(found, Tensor) else found.pooler_output
        outputs = self.module(pixel_values=images, return_dict=True)
        pooled = getattr(outputs, "pooler_output", None)
        return outputs.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)


class _Segments(nn.Module):
    """A Hugging Face segmenter whose outputs are decoded by its processor, to the class of each pixel."""

    def __init__(self, module: nn.Module, processor: Any) -> None:
        super().__init__()
        self.module, self.processor = module, processor

    def forward(self, images: Tensor) -> Tensor:
        outputs = self.module(pixel_values=images, return_dict=True)
        sizes = [tuple(images.shape[2:])] * len(images)
        return torch.stack(self.processor.post_process_semantic_segmentation(outputs, target_sizes=sizes))


class _Logits(nn.Module):
    """A Hugging Face classifier or segmenter that returns its logits only."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Any) -> Any:
        return self.module(pixel_values=images, return_dict=True).logits
