"""The activations of a torch model's layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.registry import nearest

FLAT = 2  # an output with no more rows or columns than this is not shown as a map


def activations(model: Model, inputs: Tensor, layers: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Return the outputs (N, C, H, W) of a model's layers, by name.

    Without names, those of the first and the last convolution whose output is a map.
    """
    _require_layers(model, layers)
    assert model.internals is not None
    modules = dict(model.internals.module.named_modules())
    watched = {name: modules[name] for name in layers} or {n: m for n, m in modules.items() if isinstance(m, nn.Conv2d)}
    outputs: dict[str, Tensor] = {}
    hooks = [layer.register_forward_hook(_recorder(outputs, name)) for name, layer in watched.items()]
    try:
        with torch.inference_mode():
            weights = next(model.internals.module.parameters(), None)
            images = model.preprocess.normalise(inputs)
            model.internals.module(images if weights is None else images.to(weights))
    finally:
        for hook in hooks:
            hook.remove()
    if layers:
        flat = [name for name in layers if name in outputs and outputs[name].ndim != 4]
        if flat:
            raise ConfigError(
                f"the output of layer {flat[0]} of {model.name} is not a map (N, C, H, W); name another layer"
            )
        return {name: outputs[name] for name in layers if name in outputs}
    maps = [name for name, output in outputs.items() if output.ndim == 4 and min(output.shape[2:]) > FLAT]
    return {name: outputs[name] for name in dict.fromkeys([*maps[:1], *maps[-1:]])}


def _require_layers(model: Model, layers: tuple[str, ...]) -> None:
    """Raise if a model has no layers, or none of these names."""
    if model.internals is None:
        raise ConfigError(f"model {model.name} has no layers to show: it is not a torch module")
    names = [name for name, _ in model.internals.module.named_modules() if name]
    for name in layers:
        if name not in names:
            raise ConfigError(f"model {model.name} has no layer {name!r}; {nearest(name, names)}")


def _recorder(outputs: dict[str, Tensor], name: str) -> Callable[[nn.Module, object, object], None]:
    def record(_: nn.Module, __: object, output: object) -> None:
        if isinstance(output, Tensor):
            outputs[name] = output.detach().to(torch.float32).cpu()

    return record
