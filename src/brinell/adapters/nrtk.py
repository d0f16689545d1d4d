"""nrtk's perturbers as operators: register a factory or a list of them, weak to strong, and every lens can use them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from brinell.errors import ConfigError, DataError
from brinell.perturb.operator import OPERATORS, Facts, Operator, level_operator

VARIANT = "nrtk"


class Perturber(Protocol):
    """What nrtk's `PerturbImage` offers."""

    def __call__(self, *, image: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return an image (H, W, C) or (H, W) perturbed, and its boxes."""
        ...


def register_perturbers(
    name: str,
    perturbers: Iterable[Perturber],
    *,
    title: str | None = None,
    unit: str = "",
    amounts: Sequence[float] | None = None,
    reach: Literal["global", "local"] = "global",
) -> Operator:
    """Register perturbers as the operator `NAME:nrtk`: level 1 is the first of them, further levels the next ones.

    `perturbers` are a list or one of nrtk's factories, from weak to strong; levels beyond the last are the last. `amounts`
    are the levels in a `unit` (default: what the factory varies). Perturbers must be deterministic and keep the size of
    images: give random ones a `seed` and `is_static=True`.
    """
    steps = list(perturbers)
    if not steps:
        raise ConfigError(f"expected at least one perturber for {name}, got none")
    values = list(amounts if amounts is not None else getattr(perturbers, "thetas", range(1, len(steps) + 1)))
    if len(values) != len(steps):
        raise ConfigError(f"expected an amount for each of {len(steps)} perturbers of {name}, got {len(values)}")
    _check(name, steps[-1])

    def perturb(images: Tensor, levels: Tensor) -> Tensor:
        each = zip(images.cpu(), levels.tolist(), strict=True)
        changed = [_perturb(name, steps[min(level, len(steps)) - 1], image) if level else image for image, level in each]
        return torch.stack(changed).to(images.device)

    def amount(level: int, height: int, width: int) -> float:
        return float(values[min(level, len(values)) - 1]) if level else 0.0

    known = unit or str(getattr(perturbers, "theta_key", "level"))
    facts = Facts(title or name.replace("_", " "), known, amount, reach, "pixel", source="nrtk")
    perturb.__doc__ = f"Apply nrtk's {type(steps[0]).__name__}."
    level_operator(name, facts, variant=VARIANT)(perturb)
    return OPERATORS[f"{name}:{VARIANT}"]


def _perturb(name: str, perturber: Perturber, image: Tensor) -> Tensor:
    """Return an image (C, H, W) perturbed; nrtk takes one image at a time."""
    array = image.permute(1, 2, 0).contiguous().numpy()
    given = array[..., 0] if array.shape[2] == 1 else array
    changed, _ = perturber(image=given.copy())
    if np.shape(changed) != given.shape:
        raise DataError(
            f"{name} changes the size of images, from {given.shape} to {np.shape(changed)}; use a perturber that keeps it"
        )
    levels = np.rint(np.clip(changed, 0, 255)).astype(np.uint8).reshape(array.shape)
    return torch.from_numpy(np.ascontiguousarray(levels)).permute(2, 0, 1)


def _check(name: str, perturber: Perturber) -> None:
    """Raise if a perturber makes two different images of one."""
    ramp = (torch.arange(3 * 32 * 32) % 251).to(torch.uint8).view(3, 32, 32)
    if not torch.equal(_perturb(name, perturber, ramp), _perturb(name, perturber, ramp)):
        raise ConfigError(
            f"{name} is random, so that its rows could not be repeated; give its perturbers seed=… and is_static=True"
        )
