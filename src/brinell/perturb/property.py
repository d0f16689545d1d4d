"""What a safety property is (Zhong, Hu and Chen, DSN 2020): a change of the world with a severity, turned up until a
model breaks.

A severity is a number in [0, 1]. A property with two directions (lighter and darker, left and right) takes it with a
sign. A few properties have several numbers: severities are float64 (B, P), nearly always with P = 1, on the host, where
the lenses choose them. Severity 0 is the clean image.

There are two kinds. The function of a pixel property gets images (B, C, H, W) of grey levels, 0 to 255 in float32,
which it may overwrite, and their severities; its result is clipped to 0 to 255 and, unless images may be floats, rounded
to whole grey levels, half to even. The function of a motion property gets severities, height and width, and returns
float64 matrices (B, 3, 3) that map a clean pixel's (x, y, 1) to its new position; one warp moves the image, and the same
matrices move boxes.

Pixels are the same for any batch, order and device: what depends on severities alone is computed on the host in
float64; images are changed value by value, where every device rounds alike, or by sums of whole numbers that a float32
holds exactly.

A function with a parameter `draws` is stochastic. It draws one random field per image and scales it, so that a search
varies the severity of one field; other `fields` are drawn afresh.

Where the paper's equations and its authors' code differ, the name is registered once per variant: `dsn2020` has the
constants of the paper's figures, `equations` follows its text. A name alone means the variant `standard`, which is
registered where the paper's definition is not what a practitioner wants; otherwise the first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from brinell.draws import Draws, key
from brinell.errors import ConfigError
from brinell.perturb.change import ActsOn, ChangeDefaults, Examples, Layout, Renderer, Size, Slider, rows_of
from brinell.perturb.levels import per_image as per_image  # for the functions of plugins
from brinell.perturb.levels import to_whole
from brinell.perturb.warp import warp
from brinell.registry import DEFAULT_VARIANT, Registry, VariantId, find_variant
from brinell.resizing.resample import to_device
from brinell.units import format_amount

NEARLY = 1e-9  # so that 29/50 of 50 pixels is 29 pixels and not 28.999…
AT_ONCE = 8  # images that a CPU changes at a time: in floats, more would need new memory every time
EXAMPLE_SEVERITIES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
Category = Literal["luminance", "spatial", "blur", "noise", "weather", "digital"]
# severities (K, P), height and width to natural values (K,)
Amount = Callable[[Tensor, int, int], Tensor]
# number of points, height and width to severities (K, P) from weak to strong
Grid = Callable[[int, int, int], Tensor]
Function = Callable[..., Tensor]


def evenly(points: int, height: int, width: int) -> Tensor:
    """Return 1/n, 2/n, … 1."""
    return torch.arange(1, points + 1, dtype=torch.float64)[:, None] / points


class PropertyKind(StrEnum):
    """How a property changes an image."""

    PIXEL = "pixel"
    MOTION = "motion"


@dataclass(frozen=True)
class PropertyFacts:
    """The facts about a property that people see.

    `amount` is the severity in its natural `unit` (signed where the property has two directions); `points` is the number of
    severities that a search tries per direction, or a function of height and width; `directions` names one or two.
    `strongest` is the number that people call severity 1 by. Properties of a `family`, such as a benchmark, are chosen by
    its name; "all" leaves them out.
    """

    title: str
    category: Category
    unit: str
    amount: Amount
    points: int | Callable[[int, int], int] = 1000
    directions: tuple[str, ...] = ("stronger",)
    grid: Grid = evenly
    strongest: int = field(default=1, kw_only=True)
    family: str = field(default="", kw_only=True)
    source: str = field(kw_only=True)

    def format(self, amount: float) -> str:
        """Return an amount with its unit: "12.6 degrees", "1 flake", "× 1.5"."""
        return format_amount(amount, self.unit)


@dataclass(frozen=True)
class Property(ChangeDefaults):
    """A registered property: one variant of its definition, in `whole` grey levels or in floats."""

    name: str
    variant: str
    kind: PropertyKind
    facts: PropertyFacts
    function: Function
    needs: frozenset[str]
    whole: bool = True

    @property
    def id(self) -> str:
        """Full name, as rows and configs write it."""
        return f"{self.name}:{self.variant}"

    @property
    def title(self) -> str:
        """Name for people, with the variant unless it is the default one."""
        default = find_property(self.name).variant
        return self.facts.title if self.variant == default else f"{self.facts.title} ({self.variant})"

    @property
    def unit(self) -> str:
        """Natural unit of its amounts."""
        return self.facts.unit

    @property
    def stochastic(self) -> bool:
        """Whether its effect is drawn at random."""
        return "draws" in self.needs

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of its severities."""
        return ("severity", "severity_x", "severity_y")

    @property
    def acts_on(self) -> ActsOn:
        """It changes the model input."""
        return "input"

    def describe(self) -> dict[str, Any]:
        """Return the facts that a run's manifest stores: `neutral` is the amount that changes nothing, `order` the position
        in a listing by category.
        """
        neutral = float(self.facts.amount(torch.zeros(1, 3, dtype=torch.float64), 224, 224))
        order = list(dict.fromkeys([*property_names(), *(found.name for found in PROPERTIES.values())])).index(self.name)
        facts = self.facts
        more = {"directions": list(facts.directions), "category": facts.category, "neutral": neutral, "order": order}
        return {**super().describe(), **more}

    def parameters_at(self, severity: float, height: int, width: int) -> tuple[float, ...]:
        """Return a severity; of a property with several numbers, those at this share of the grid that is searched."""
        most = self.facts.strongest
        least = -most if len(self.facts.directions) > 1 else 0
        if not least <= severity <= most:
            wider = next(
                (one for one in PROPERTIES.values() if one.name == self.name and one.facts.strongest >= severity), None
            )
            hint = "" if wider is None or severity < 0 else f"; {wider.id} goes to {wider.facts.strongest}"
            raise ConfigError(f"expected a severity of {self.name} from {least} to {most}, got {severity:g}{hint}")
        severity /= most
        numbers = self.facts.grid(1, height, width).shape[1]
        if numbers == 1 or severity == 0:
            return (float(severity),) * numbers
        [track] = self.tracks(height, width)
        return tuple(track[max(1, round(severity * len(track))) - 1].tolist())

    def examples(self, height: int, width: int, levels: Sequence[int] = ()) -> Iterator[Examples]:
        """Yield one row per direction, from weak to strong along the grid that is searched."""
        if levels:
            raise ConfigError(f"{self.name} is a property and has no levels; leave --level out")
        for direction, track in zip(self.facts.directions, self.tracks(height, width), strict=True):
            examples: list[tuple[str, tuple[float, ...]]] = [("clean", (0.0,) * track.shape[1])]
            for severity in EXAMPLE_SEVERITIES:
                point = track[max(1, round(severity * len(track))) - 1]
                amount = float(self.amounts(point[None], height, width))
                examples.append((self.facts.format(amount), tuple(point.tolist())))
            title = self.facts.title
            yield f"{title}, {direction}" if len(self.facts.directions) > 1 else title, examples

    def images(self, renderer: Renderer, samples: Tensor, parameters: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return samples at their severities."""
        rows = rows_of(samples, renderer.inputs.device)
        return self.apply(renderer.inputs[rows], parameters, seed=renderer.seed, ids=renderer.ids[rows], fields=fields)

    def matrices(self, parameters: Tensor, layout: Layout) -> Tensor | None:
        """Return where a motion takes pixels of the model input; None for a property that moves nothing."""
        if self.kind is not PropertyKind.MOTION:
            return None
        return self.function(parameters, layout.preprocess.height, layout.preprocess.width)

    def sliders(self, model_input: Size, original: Size) -> tuple[Slider, ...]:
        """Return the ranges of its severities: signed where it has two directions, or several numbers."""
        count = self.tracks(*model_input, points=1)[0].shape[1]
        low = -1.0 if count > 1 or len(self.facts.directions) > 1 else 0.0
        return tuple(Slider(name, low, 1.0, 0.005) for name in self.parameters[:count])

    def caption(self, parameters: Sequence[float], model_input: Size) -> str:
        """Return severities in the natural unit."""
        if not any(parameters):
            return "clean"
        return self.facts.format(float(self.amounts(torch.tensor([parameters], dtype=torch.float64), *model_input)))

    def rounded(self) -> Property:
        """Return the same property in whole grey levels."""
        return replace(self, whole=True)

    def tracks(self, height: int, width: int, points: int | None = None) -> list[Tensor]:
        """Return severities from weak to strong, float64 (K, P), for each direction."""
        own = self.facts.points
        count = points or (own if isinstance(own, int) else own(height, width))
        forward = self.facts.grid(count, height, width)
        return [forward, -forward][: len(self.facts.directions)]

    def amounts(self, severities: Tensor, height: int, width: int) -> Tensor:
        """Return severities (K, P) in the natural unit, float64 (K,)."""
        return self.facts.amount(severities, height, width).to(torch.float64)

    def apply(self, images: Tensor, severities: Tensor, *, seed: int, ids: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return uint8 images (B, C, H, W) at their severities, float64 (B, P) on the host; float32 unless `whole`.

        `ids` (int64 (B,), on the images' device) name the draws; `fields` (int64 (B,), on the host) select the random field
        of each image (default: 0).
        """
        if images.device.type == "cpu" and len(images) > AT_ONCE:
            parts = [slice(start, start + AT_ONCE) for start in range(0, len(images), AT_ONCE)]
            own = [None if fields is None else fields[part] for part in parts]
            changes = [
                self.apply(images[part], severities[part], seed=seed, ids=ids[part], fields=some)
                for part, some in zip(parts, own, strict=True)
            ]
            return torch.cat(changes)
        if self.kind is PropertyKind.MOTION:
            changed = warp(images, self.function(severities, *images.shape[2:]))
        else:
            given: dict[str, Any] = {}
            if self.stochastic:
                step = 0 if fields is None else to_device(fields, images.device)
                given["draws"] = Draws.of(key(seed, self.name), ids, step)
            changed = self.function(images.to(torch.float32), severities, **given)
        changed = to_whole(changed) if self.whole else changed.clamp_(0, 255)
        neutral = (severities == 0).all(1)
        if not bool(neutral.any()):
            return changed
        return torch.where(to_device(neutral, images.device)[:, None, None, None], images.to(changed.dtype), changed)


PROPERTIES: Registry[Property] = Registry("property", group="brinell.properties")


def pixel_property(name: str, facts: PropertyFacts, *, variant: str = "dsn2020") -> Callable[[Function], Function]:
    """Register a function of images as a property."""
    return _register(PropertyKind.PIXEL, name, facts, variant)


def motion_property(name: str, facts: PropertyFacts, *, variant: str = "dsn2020") -> Callable[[Function], Function]:
    """Register a function from severities to matrices as a property."""
    return _register(PropertyKind.MOTION, name, facts, variant)


def _register(kind: PropertyKind, name: str, facts: PropertyFacts, variant: str) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        needs = frozenset(inspect.signature(function).parameters)
        found = Property(name, variant, kind, facts, function, needs)
        PROPERTIES.add(found.id, found)
        return function

    return add


def property_names() -> list[str]:
    """Return the names without variants, by category; those of families are not among them."""
    order = get_args(Category)
    own = (found for found in PROPERTIES.values() if not found.facts.family)
    found = sorted(own, key=lambda found: order.index(found.facts.category))
    return list(dict.fromkeys(each.name for each in found))


def property_facts(name: str) -> PropertyFacts:
    """Return the facts of a property by its id; of an unknown variant, those of the default one."""
    return (PROPERTIES[name] if name in PROPERTIES else find_property(VariantId.parse(name).name)).facts


def find_property(text: str, variant: str = DEFAULT_VARIANT) -> Property:
    """Find a property by `name` or `name:variant`; a name alone selects the preferred variant, if there is one."""
    return find_variant(PROPERTIES, text, variant)
