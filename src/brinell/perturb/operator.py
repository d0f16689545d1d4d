"""What an operator is: a pure function on images, with its facts declared next to it.

There are two kinds. A step operator adds one increment to images that it changed before: level n is n steps, so a
profile of 30 levels costs 30 applications. A level operator makes any level from the clean image.

The function's first parameter is a batch of uint8 images (B, C, H, W), which it never modifies. The names of the other
parameters say what else it needs: `draws` (random numbers), `step` (the number of steps done before, an int), `levels`
(int64 (B,), level operators only), `gradient` (of the model's loss at the images). The signature therefore shows whether
an operator is stochastic, and whether it is a white-box operator.

Where a paper's text and its published code differ, the name is registered once per variant. A name alone means the
variant `standard`, which is registered where the paper's definition is not what a practitioner wants; otherwise the first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import torch
from torch import Tensor

from brinell.draws import Draws, key
from brinell.errors import ConfigError, ModelError
from brinell.perturb.change import ActsOn, ChangeDefaults, Examples, Gradient, Renderer, Size, Slider, rows_of
from brinell.registry import DEFAULT_VARIANT, Registry, find_variant
from brinell.resizing.resample import to_device
from brinell.units import format_amount

Amount = Callable[[int, int, int], float]
Function = Callable[..., Tensor]

MOST = 30  # levels of most operators
EXAMPLE_LEVELS = (0, 1, 2, 5, 10, 20, MOST)


class Kind(StrEnum):
    """How an operator reaches a level."""

    STEP = "step"
    LEVEL = "level"


@dataclass(frozen=True)
class Facts:
    """The facts about an operator that people see.

    `amount(level, height, width)` is the level in its `unit`; `reported_as` names what a failure point is
    reported as: that amount, or the mean grey value or number of colours measured in the image. `levels` is the highest
    level that differs from the one below. Operators of a `family`, such as a benchmark, are chosen by its name; "all"
    leaves them out.
    """

    title: str
    unit: str
    amount: Amount
    reach: Literal["global", "local"]
    domain: Literal["colour", "pixel"]
    reported_as: Literal["amount", "grey", "colours"] = "amount"
    levels: int = field(default=MOST, kw_only=True)
    family: str = field(default="", kw_only=True)
    source: str = field(kw_only=True)

    def format(self, amount: float) -> str:
        """Return an amount with its unit: "1 line", "4,480 blurred boxes", "quality 7"."""
        return format_amount(amount, self.unit)


@dataclass(frozen=True)
class Operator(ChangeDefaults):
    """A registered operator: one variant of its definition."""

    name: str
    variant: str
    kind: Kind
    facts: Facts
    function: Function

    needs: frozenset[str]

    @property
    def id(self) -> str:
        """The full name, as rows and configs write it."""
        return f"{self.name}:{self.variant}"

    @property
    def title(self) -> str:
        """Name for people, with the variant unless it is the default one."""
        default = find_operator(self.name).variant
        return self.facts.title if self.variant == default else f"{self.facts.title} ({self.variant})"

    @property
    def unit(self) -> str:
        """Natural unit of its amounts."""
        return self.facts.unit

    @property
    def parameters(self) -> tuple[str, ...]:
        """Name of its parameter."""
        return ("level",)

    @property
    def acts_on(self) -> ActsOn:
        """It changes the model input."""
        return "input"

    @property
    def sequential(self) -> bool:
        """Whether a level is made from the level below."""
        return self.kind is Kind.STEP

    @property
    def stochastic(self) -> bool:
        """Whether its effect is drawn at random."""
        return "draws" in self.needs

    @property
    def white_box(self) -> bool:
        """Whether it needs the model's gradient."""
        return "gradient" in self.needs

    @property
    def measures(self) -> tuple[str, ...]:
        """What else to measure in the changed image."""
        return () if self.facts.reported_as == "amount" else (self.facts.reported_as,)

    def describe(self) -> dict[str, Any]:
        """Return the facts that a run's manifest stores."""
        return {**super().describe(), "reported_as": self.facts.reported_as, "levels": self.facts.levels}

    def parameters_at(self, severity: float, height: int, width: int) -> tuple[float, ...]:
        """Return a level, which must be one."""
        most = self.facts.levels
        if severity not in range(most + 1):
            raise ConfigError(f"expected a level of {self.name}, a whole number from 0 to {most}, got {severity:g}")
        return (float(severity),)

    def prepare(self, renderer: Renderer, samples: Tensor) -> None:
        """Start from the clean images, unless they are under this operator already."""
        if self.sequential:
            renderer.steps.begin(self)

    def images(self, renderer: Renderer, samples: Tensor, parameters: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return samples at their levels; a step operator continues from the levels that they have reached."""
        levels, rows = parameters[:, 0].to(torch.int64), rows_of(samples, renderer.inputs.device)
        gradient = renderer.gradient(rows) if self.white_box else None
        if not self.sequential:
            start, images = torch.zeros_like(levels), renderer.inputs[rows]
            return self.advance(images, start, levels, seed=renderer.seed, ids=renderer.ids[rows], gradient=gradient)
        start, images = renderer.steps.at(samples, rows, levels)
        images = self.advance(images, start, levels, seed=renderer.seed, ids=renderer.ids[rows], gradient=gradient)
        renderer.steps.keep(samples, rows, levels, images)
        return images

    @property
    def tags(self) -> tuple[str, str, str]:
        """The three tags of an operator (Swingler 2022)."""
        return self.facts.reach, "stochastic" if self.stochastic else "deterministic", self.facts.domain

    def examples(self, height: int, width: int, levels: Sequence[int] = ()) -> Iterator[Examples]:
        """Yield one row of levels."""
        examples: list[tuple[str, tuple[float, ...]]] = [
            (self._caption(level, height, width), (float(level),)) for level in levels or self._example_levels()
        ]
        yield self.facts.title, examples

    def _example_levels(self) -> Sequence[int]:
        return EXAMPLE_LEVELS if self.facts.levels == MOST else range(self.facts.levels + 1)

    def _caption(self, level: int, height: int, width: int) -> str:
        if not level:
            return "clean"
        amount = self.facts.format(self.facts.amount(level, height, width))
        return amount if self.unit == "severity" else f"level {level}: {amount}"

    def sliders(self, model_input: Size, original: Size) -> tuple[Slider, ...]:
        """Return the range of levels."""
        return (Slider("level", 0, self.facts.levels, 1),)

    def caption(self, parameters: Sequence[float], model_input: Size) -> str:
        """Return a level in the natural unit."""
        level = round(parameters[0])
        return self.facts.format(self.facts.amount(level, *model_input)) if level else "clean"

    def at(self, images: Tensor, level: int, *, seed: int, ids: Tensor, gradient: Gradient | None = None) -> Tensor:
        """Return clean images at one level."""
        levels = torch.full((len(images),), level)
        return self.advance(images, torch.zeros_like(levels), levels, seed=seed, ids=ids, gradient=gradient)

    def advance(
        self, images: Tensor, start: Tensor, stop: Tensor, *, seed: int, ids: Tensor, gradient: Gradient | None = None
    ) -> Tensor:
        """Advance images from level `start` to level `stop`; both are int64 (B,) on the host.

        `ids` (int64 (B,), on the images' device) names the draws. A pixels operator has to start from level 0.
        """
        if self.kind is Kind.LEVEL:
            assert not bool(start.any())
            return self._from_clean(images, stop, seed, ids)
        for step in range(int(start.min()), int(stop.max())):
            due = (start <= step) & (step < stop)
            if bool(due.all()):
                images = self._step(images, slice(None), step, seed, ids, gradient)
            elif bool(due.any()):
                rows = to_device(due.nonzero()[:, 0], images.device)
                images = images.index_copy(0, rows, self._step(images[rows], rows, step, seed, ids[rows], gradient))
        return images

    def _step(
        self, images: Tensor, rows: Tensor | slice, step: int, seed: int, ids: Tensor, gradient: Gradient | None
    ) -> Tensor:
        given: dict[str, Any] = {}
        if "draws" in self.needs:
            given["draws"] = Draws.of(key(seed, self.name), ids, step)
        if "step" in self.needs:
            given["step"] = step
        if "gradient" in self.needs:
            if gradient is None:
                raise ModelError(f"{self.name} follows the model's gradient, and this model gives none: use a torch model")
            given["gradient"] = gradient(images, rows)
        return self.function(images, **given)

    def _from_clean(self, images: Tensor, levels: Tensor, seed: int, ids: Tensor) -> Tensor:
        given: dict[str, Any] = {"levels": to_device(levels, images.device)}
        if "draws" in self.needs:
            given["draws"] = Draws.of(key(seed, self.name), ids)
        changed: Tensor = self.function(images, **given)
        if not bool((levels == 0).any()):
            return changed
        return torch.where((given["levels"] == 0)[:, None, None, None], images, changed)


OPERATORS: Registry[Operator] = Registry("operator", group="brinell.operators")


def step_operator(name: str, facts: Facts, *, variant: str = "published") -> Callable[[Function], Function]:
    """Register a function that adds one increment to images it changed before."""
    return _register(Kind.STEP, name, facts, variant, {"draws", "step", "gradient"})


def level_operator(name: str, facts: Facts, *, variant: str = "published") -> Callable[[Function], Function]:
    """Register a function that makes any level from the clean image."""
    return _register(Kind.LEVEL, name, facts, variant, {"levels", "draws"})


def _register(kind: Kind, name: str, facts: Facts, variant: str, offered: set[str]) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        needs = frozenset(list(inspect.signature(function).parameters)[1:])
        if needs - offered:
            raise TypeError(f"{kind} operator {name!r} asks for {needs - offered}; it can have {offered}")
        operator = Operator(name, variant, kind, facts, function, needs)
        OPERATORS.add(operator.id, operator)
        return function

    return add


def operator_names() -> list[str]:
    """Return the names without variants, in order of registration; those of families are not among them."""
    return list(dict.fromkeys(operator.name for operator in OPERATORS.values() if not operator.facts.family))


def find_operator(text: str, variant: str = DEFAULT_VARIANT) -> Operator:
    """Find an operator by `name` or `name:variant`; a name alone selects the preferred variant, if there is one."""
    return find_variant(OPERATORS, text, variant)
