"""Models by name from timm and torchvision. Each library is an extra, imported when it is needed.

Every builder returns the module, what the library knows about its preprocessing, and its class list. Detectors return a
mapping per image, with boxes in pixels, labels and scores, as in torchvision.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.criterion import Task
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import MissingExtra, ModelError
from brinell.models.checkpoints import build_with_checkpoint
from brinell.models.imagenet import imagenet_classes
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.options import select_classes
from brinell.models.preprocess import Preprocess
from brinell.models.processors import read_interpolation
from brinell.registry import nearest

IMAGENET = 1000  # classes
Built = tuple[nn.Module, Preprocess, Classes | None]


def open_timm(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a timm classifier, or the same network without its head as an embedder."""
    module, known, classes = timm_model(name, options, trust=execution.trust)
    return model_from_module(module, options, execution, known=known, classes=classes)


def open_torchvision(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a torchvision classifier, detector or segmenter."""
    task = options.task_or(torchvision_task(name))
    build = {"detection": torchvision_detector, "segmentation": torchvision_segmenter}.get(task, torchvision_model)
    module, known, classes = build(name, options, trust=execution.trust)
    return model_from_module(module, options, execution, known=known, classes=classes, task=task)


def _with_weights(
    build: Callable[[int | None, bool], nn.Module], options: ModelOptions, own: int, *, trust: bool
) -> tuple[nn.Module, int]:
    """Return a network with the weights that the options name, and its number of classes, which is else its `own`.

    `build` gets a number of classes, or None for the network's own, and whether to load the library's weights.
    """
    named = None if options.classes is None else select_classes(options, None)
    count = options.class_count if named is None else len(named)
    if options.checkpoint is not None:
        file = Path(options.checkpoint).expanduser()
        return build_with_checkpoint(lambda classes: build(classes, False), file, own, count, trust=trust)
    if not options.pretrained:
        return build(count, False), count or own
    if options.class_count not in (None, own):
        raise ModelError(
            f"{options.source} has {own} classes; for {options.class_count}, add checkpoint=FILE with weights that were "
            "fine-tuned on them, or pretrained=false"
        )
    return build(None, True), own


def timm_model(name: str, options: ModelOptions, *, trust: bool) -> Built:
    """Build a timm classifier, with the preprocessing of its configuration."""
    try:
        import timm
    except ImportError:
        raise MissingExtra("timm", "timm") from None
    if not timm.is_model(name.partition(".")[0]) and not name.startswith("hf-hub"):
        raise ModelError(f"timm has no model {name!r}; {nearest(name, timm.list_models())}")

    def build(classes: int | None, pretrained: bool) -> Any:
        more = {} if classes is None else {"num_classes": classes}
        return build_by(lambda: timm.create_model(name, pretrained=pretrained, **more), f"timm:{name}")

    if options.task == "embedding":
        _refuse_checkpoint(options)
        return _described_by_timm(timm, build(0, options.pretrained), None)
    usual = build_by(lambda: timm.get_pretrained_cfg(name), f"timm:{name}")
    own = usual.num_classes if usual is not None else build(None, False).num_classes  # a network of the hub has its own
    module, outputs = _with_weights(build, options, own, trust=trust)
    return _described_by_timm(timm, module, _imagenet_if(outputs))


def _refuse_checkpoint(options: ModelOptions) -> None:
    if options.checkpoint is not None:
        raise ModelError(f"{options.source} as an embedder can't take a checkpoint; use torch:FILE?factory=… instead")


def _described_by_timm(timm: Any, module: nn.Module, classes: Classes | None) -> Built:
    config = timm.data.resolve_model_data_config(module)
    channels, height, width = config["input_size"]
    known = Preprocess(
        height=height,
        width=width,
        channels=channels,
        short_side=max(int(min(height, width) / config["crop_pct"]), height, width),
        interpolation=read_interpolation(config["interpolation"]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
    return module, known, classes


def _torchvision_models() -> Any:
    try:
        import torchvision
    except ImportError:
        raise MissingExtra("torchvision", "torchvision") from None
    return torchvision.models


def torchvision_task(name: str) -> Task:
    """Return what torchvision has a model of that name for."""
    models = _torchvision_models()
    if name in models.list_models(module=models.segmentation):
        return "segmentation"
    return "detection" if name in models.list_models(module=models.detection) else "classification"


# what builds a network with random weights; dense ones have pretrained backbones unless told otherwise
_BARE_CLASSIFIER: dict[str, Any] = {"weights": None}
_BARE_DENSE: dict[str, Any] = {"weights": None, "weights_backbone": None}


def _torchvision_network(
    name: str, options: ModelOptions, bare: dict[str, Any], *, trust: bool
) -> tuple[Any, Any, Classes | None]:
    """Return a network of torchvision, its default weights, and the classes of these if it has as many outputs."""
    models = _torchvision_models()
    weights = models.get_model_weights(name).DEFAULT
    categories = Classes(tuple(weights.meta["categories"]))

    def build(classes: int | None, pretrained: bool) -> Any:
        arguments = {"weights": weights} if pretrained else dict(bare)
        if classes is not None:
            arguments["num_classes"] = classes
        with contextlib.nullcontext() if trust else _weights_only():
            return build_by(lambda: models.get_model(name, **arguments), f"torchvision:{name}")

    module, outputs = _with_weights(build, options, len(categories), trust=trust)
    return module, weights, categories if outputs == len(categories) else None


def torchvision_detector(name: str, options: ModelOptions, *, trust: bool) -> Built:
    """Build a torchvision detector. Images are stretched to the size that it resizes the shorter side to."""
    module, _, classes = _torchvision_network(name, options, _BARE_DENSE, trust=trust)
    transform = module.transform
    height, width = getattr(transform, "fixed_size", None) or (transform.min_size[-1],) * 2
    known = Preprocess(height=height, width=width, interpolation="bilinear")  # it normalises images itself
    return _Images(module), known, classes


def torchvision_segmenter(name: str, options: ModelOptions, *, trust: bool) -> Built:
    """Build a torchvision segmenter. Images are stretched to the size that its weights resize the shorter side to."""
    module, weights, classes = _torchvision_network(name, options, _BARE_DENSE, trust=trust)
    (side,) = weights.transforms().resize_size
    return module, _described_by_torchvision(weights, side), classes


def _described_by_torchvision(weights: Any, side: int, short_side: int | None = None) -> Preprocess:
    """Return the preprocessing of weights, for square images of a side."""
    recipe = weights.transforms()
    return Preprocess(
        height=side,
        width=side,
        short_side=short_side,
        interpolation=read_interpolation(recipe.interpolation.value),
        mean=tuple(recipe.mean),
        std=tuple(recipe.std),
    )


class _Images(nn.Module):
    """A torchvision detector that takes a batch instead of a list."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Any:
        return self.module(list(images))


def torchvision_model(name: str, options: ModelOptions, *, trust: bool) -> Built:
    """Build a torchvision classifier, with the preprocessing of its default weights."""
    models = _torchvision_models()
    classifiers = models.list_models(module=models)
    if name not in classifiers:
        others = [name for part in (models.detection, models.segmentation) for name in models.list_models(module=part)]
        raise ModelError(
            f"torchvision has no classifier, detector or segmenter {name!r}; {nearest(name, classifiers + others)}"
        )
    module, weights, classes = _torchvision_network(name, options, _BARE_CLASSIFIER, trust=trust)
    if options.task == "embedding":
        _refuse_checkpoint(options)
        module = without_head(module)
    recipe = weights.transforms()
    known = _described_by_torchvision(weights, recipe.crop_size[0], recipe.resize_size[0])
    return module, known, None if classes is None else _imagenet_if(len(classes))


def without_head(module: nn.Module) -> nn.Module:
    """Return a classifier without its last linear layer, so that it returns what that layer gets."""
    name = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)][-1]
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())
    return module


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


def _imagenet_if(outputs: int) -> Classes | None:
    return imagenet_classes() if outputs == IMAGENET else None


def build_by(build: Any, source: str) -> Any:
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
