"""Which way of running a module on an accelerator ends a run soonest, and what each way costs.

An opener gets options and an execution alone, so what a run expects of its models is set around their opening.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brinell.models.preprocess import Preprocess

EAGER, FUSED, COMPILED = "torch", "torch fused", "torch compiled"
# Images per second in bf16 on an H200, in eager torch, fused (`fusing`) and compiled with folded batch norms: ResNet-50
# 16,200, 28,000 and 28,700; MobileNet V2 30,400, no way to fuse, and 53,600. Without folding, compilers gained 1.41 to 1.58
# for EfficientNet-B0 and ConvNeXt-T, and nothing for ViT-B/16. First compilations took 5 to 22 s.
GAINS = {EAGER: 1.0, FUSED: 1.6, COMPILED: 1.41}
STARTS = {EAGER: 0.0, FUSED: 1.0, COMPILED: 14.0}
# What Inductor keeps on disk makes the next start shorter: 7.7 s after 22.1 s.
WARM = 0.35


@dataclass(frozen=True)
class Way:
    """Seconds before the first image, and images per second after it."""

    start: float
    rate: float

    def seconds(self, passes: int) -> float:
        """Return how long a number of forward passes takes."""
        return self.start + passes / self.rate


def assumed_ways(eager: float) -> dict[str, Way]:
    """Return what can be assumed of a module of which nothing is known but its rate in eager torch."""
    return {name: Way(STARTS[name], eager * gain) for name, gain in GAINS.items()}


def order_of_ways(ways: Mapping[str, Way], passes: int) -> list[str]:
    """Return the ways to try, fastest first, up to eager torch, which always works; of equals, the simplest."""
    ranked = sorted(ways, key=lambda name: (ways[name].seconds(passes), list(GAINS).index(name)))
    return ranked[: ranked.index(EAGER) + 1]


@dataclass(frozen=True)
class Expected:
    """What a run expects of a model: forward passes, and the runtime that measured rows of it before, if one did.

    `on_preprocess` is called as soon as it is known how the model's inputs are made, which is before it is ready.
    """

    passes: int = 0
    runtime: str | None = None
    on_preprocess: Callable[[Preprocess], None] | None = None


_EXPECTED: ContextVar[Expected | None] = ContextVar("expected", default=None)


@contextmanager
def expecting(
    passes: int, runtime: str | None, on_preprocess: Callable[[Preprocess], None] | None = None
) -> Iterator[None]:
    """Have models that are opened in this context know what is expected of them."""
    token = _EXPECTED.set(Expected(passes, runtime, on_preprocess))
    try:
        yield
    finally:
        _EXPECTED.reset(token)


def expected() -> Expected:
    """Return what is expected of a model that is opened now; outside of runs, nothing."""
    return _EXPECTED.get() or Expected()


def announce_preprocess(preprocess: Preprocess) -> None:
    """Say how the inputs of the model that is opened now are made."""
    if (on_preprocess := expected().on_preprocess) is not None:
        on_preprocess(preprocess)
