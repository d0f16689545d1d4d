"""What the layers of a torch module do on the way to its answer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.registry import nearest

FLAT = 2  # a map has more rows and columns than this


def activations(model: Model, inputs: Tensor, layers: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """The outputs (N, C, H, W) of layers of a model's module, by their names; without names, of its first and its last
    convolution whose output is a map.
    """
    _require_layers(model, layers)
    assert model.insides is not None
    named = dict(model.insides.module.named_modules())
    watched = {name: named[name] for name in layers} or {n: m for n, m in named.items() if isinstance(m, nn.Conv2d)}
    outputs: dict[str, Tensor] = {}
    hooks = [layer.register_forward_hook(_keeper(outputs, name)) for name, layer in watched.items()]
    try:
        with torch.inference_mode():
            weights = next(model.insides.module.parameters(), None)
            images = model.preprocess.normalise(inputs)
            model.insides.module(images if weights is None else images.to(weights))
    finally:
        for hook in hooks:
            hook.remove()
    if layers:
        flat = [name for name in layers if name in outputs and outputs[name].ndim != 4]
        if flat:
            raise ConfigError(f"layer {flat[0]} of {model.name} gives no map (N, C, H, W) to show; name another")
        return {name: outputs[name] for name in layers if name in outputs}
    maps = [name for name, output in outputs.items() if output.ndim == 4 and min(output.shape[2:]) > FLAT]
    return {name: outputs[name] for name in dict.fromkeys([*maps[:1], *maps[-1:]])}


def _require_layers(model: Model, layers: tuple[str, ...]) -> None:
    """Raise if a model has no layers, or none of these names."""
    if model.insides is None:
        raise ConfigError(f"model {model.name} has no layers to look at: it is no torch module")
    named = [name for name, _ in model.insides.module.named_modules() if name]
    for name in layers:
        if name not in named:
            raise ConfigError(f"model {model.name} has no layer {name!r}; {nearest(name, named)}")


def _keeper(outputs: dict[str, Tensor], name: str) -> Callable[[nn.Module, object, object], None]:
    def keep(_: nn.Module, __: object, output: object) -> None:
        if isinstance(output, Tensor):
            outputs[name] = output.detach().to(torch.float32).cpu()

    return keep
