"""Fading colours, white fog and posterisation (Swingler 2022)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import cv2
import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.kernels import kernels_for
from brinell.perturb.operator import Facts, level_operator, step_operator
from brinell.perturb.papers import SWINGLER_2022

Value = Callable[[Tensor, Tensor], Tensor]  # of bins, by index and number of bins


@step_operator(
    "white_fog",
    Facts(
        "white fog",
        "pixels lightened",
        lambda level, h, w: level * (w * h // 5),
        "local",
        "pixel",
        reported_as="grey",
        source=SWINGLER_2022,
    ),
)
def white_fog(images: Tensor, draws: Draws) -> Tensor:
    """Lighten w·h/5 more pixels, drawn with replacement, by 20 grey levels."""
    batch, _, height, width = images.shape
    area = height * width
    count = area // 5
    if kernels := kernels_for("dots", images):
        made: Tensor = kernels.lighten(images, draws.keys, count, 20)
        return made
    hits = torch.zeros(batch, area, dtype=torch.int16, device=images.device)
    pixels = draws.below(0, count, area)
    hits.scatter_add_(1, pixels, hits.new_ones(1).expand_as(pixels))
    lighter = images.to(torch.int16) + hits.mul_(20).view(batch, 1, height, width)
    return lighter.clamp_(max=255).to(torch.uint8)


def _fade(target: str) -> Facts:
    return Facts(
        f"fade to {target}",
        "fading steps",
        lambda level, h, w: level,
        "global",
        "colour",
        reported_as="amount" if target == "grey" else "grey",
        source=SWINGLER_2022,
    )


@step_operator("fade_black", _fade("black"))
def fade_black(images: Tensor) -> Tensor:
    """Multiply every value by 0.9 (rounded half to even)."""
    return _scale_by_tenths(images, 9)


@step_operator("fade_white", _fade("white"))
def fade_white(images: Tensor) -> Tensor:
    """Multiply every value by 1.1 (rounded half to even, at most 255)."""
    return _scale_by_tenths(images, 11)


def _scale_by_tenths(images: Tensor, count: int) -> Tensor:
    table = _tenths_table(count, images.device)
    if (kernels := kernels_for("colour", images)) is not None:
        made: Tensor = kernels.look_up(images, table[None])
        return made
    return _look_up(table, images.to(torch.int32))


@cache
def _tenths_table(tenths: int, device: torch.device) -> Tensor:
    # exact fractions: 1.1 has no exact float, and float products round wrongly at 55, 95, 115, 175, 195 and 215
    values = [min(255, round(Fraction(tenths * value, 10))) for value in range(256)]
    return torch.tensor(values, dtype=torch.uint8, device=device)


@step_operator("fade_grey", _fade("grey"))
def fade_grey(images: Tensor) -> Tensor:
    """Multiply the saturation by 0.9 in 8-bit HSV (rounded down); grey images stay as they are.

    8-bit HSV is OpenCV's: hue in 0..179, computed in 12-bit fixed point; the way back to RGB is in float32, truncated to
    whole grey levels. OpenCV itself depends on the processor: its AVX2 code truncates, its scalar code (processors without
    AVX2, and the last pixels of a row) rounds, so that values differ by one grey level. Ours is the portable result: the
    same on every device, equal to OpenCV's with AVX2.
    """
    if images.shape[1] == 1:
        return images.clone()
    if images.shape[1] == 3 and (kernels := kernels_for("colour", images)) is not None:
        made: Tensor = kernels.fade_grey(images, _hsv_tables(images.device).in_order())
        return made
    if images.device.type != "cpu":
        return _fade_colours(images)
    # one after the other, because a core's cache holds what one image needs
    fade = _fade_by_opencv if _opencv_agrees() else _fade_colours
    return torch.cat([fade(image) for image in images[:, None]])


@cache
def _opencv_agrees() -> bool:
    """Return whether OpenCV's hues and saturations are ours on this processor, for a quarter of a million colours."""
    shuffled = torch.arange(1 << 18).mul_(0x9E3779).bitwise_and_(0xFFFFFF)  # an odd factor: no colour comes twice
    colours = torch.stack([shuffled >> shift & 0xFF for shift in (0, 8, 16)]).to(torch.uint8).view(1, 3, 512, 512)
    return torch.equal(_fade_by_opencv(colours), _fade_colours(colours))


def _fade_by_opencv(images: Tensor) -> Tensor:
    """Fade one image (1, 3, H, W): OpenCV finds hues and saturations, which are whole numbers, and tables fade them."""
    hsv = cv2.cvtColor(cv2.merge(list(images[0].numpy())), cv2.COLOR_RGB2HSV)
    hue, saturation, value = (torch.from_numpy(plane) for plane in cv2.split(hsv))
    index = hue.to(torch.int32).mul_(256).add_(saturation.to(torch.int32)).flatten()
    bright = value.to(torch.float32).mul_(1 / 255).flatten()
    faded = [ramp.index_select(0, index).mul_(bright).mul_(255).to(torch.int16) for ramp in _faded_ramps()]
    return torch.stack(faded).to(torch.uint8).view(images.shape)


@cache
def _faded_ramps() -> list[Tensor]:
    """Return the share of the value that red, green and blue have at each hue and saturation, float32 (180·256,) each."""
    tables = _hsv_tables(torch.device("cpu"))
    return [(ramp[:180, None] * tables.faded).neg_().add_(1).flatten() for ramp in tables.ramps]


def _fade_colours(images: Tensor) -> Tensor:
    tables = _hsv_tables(images.device)
    red, green, blue = images.to(torch.int32).unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    spread = value - torch.minimum(torch.minimum(red, green), blue)
    saturation = _look_up(tables.per_value, value).mul_(spread).add_(2048).bitwise_right_shift_(12)
    # bit masks, because torch.where is slow on a CPU
    is_red, is_green = (value - red - 1) >> 31, (value - green - 1) >> 31
    sector = ((red - green) + 4 * spread) & ~is_green | ((blue - red) + 2 * spread) & is_green
    sector = sector & ~is_red | (green - blue) & is_red
    hue = _look_up(tables.per_spread, spread).mul_(sector).add_(2048).bitwise_right_shift_(12).add_(180)
    faded, bright = _look_up(tables.faded, saturation), value.to(torch.float32).mul_(1 / 255)
    out = torch.empty_like(images)
    for channel, ramp in enumerate(tables.ramps):
        out[:, channel] = _look_up(ramp, hue).mul_(faded).neg_().add_(1).mul_(bright).mul_(255)
    return out


def _look_up(table: Tensor, index: Tensor) -> Tensor:
    # index_select is several times faster than indexing
    return table.index_select(0, index.flatten()).view(index.shape)


@dataclass(frozen=True)
class _HsvTables:
    """255/value and 30/spread in 12-bit fixed point, the faded saturation in [0, 1], and for each channel how far it
    drops from the value at each hue from -180 to 179 (0: not at all, 1: by the full saturation).
    """

    per_value: Tensor
    per_spread: Tensor
    faded: Tensor
    ramps: tuple[Tensor, Tensor, Tensor]

    def in_order(self) -> tuple[Tensor, ...]:
        """Return all tables."""
        return self.per_value, self.per_spread, self.faded, *self.ramps


@cache
def _hsv_tables(device: torch.device) -> _HsvTables:
    def reciprocal(scale: int) -> Tensor:
        values = [0] + [round(Fraction(scale << 12, value)) for value in range(1, 256)]
        return torch.tensor(values, dtype=torch.int32, device=device)

    faded = torch.tensor([saturation * 9 // 10 for saturation in range(256)], dtype=torch.float32) * (1 / 255)
    hue = torch.arange(180, dtype=torch.float32) * (6 / 180)
    sector, part = hue.floor().long(), hue - hue.floor()
    none, full = torch.zeros_like(part), torch.ones_like(part)
    falls = torch.stack([none, full, part, 1 - part])
    # for each sixth of the hue circle, which of the four drops red, green and blue have
    choice = torch.tensor([[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]])
    ramps = [falls.gather(0, choice[sector, channel][None])[0].repeat(2).to(device) for channel in range(3)]
    return _HsvTables(reciprocal(255), reciprocal(30), faded.to(device), (ramps[0], ramps[1], ramps[2]))


_POSTERISE = Facts(
    "posterise",
    "values per channel",
    lambda level, h, w: bins(level),
    "global",
    "colour",
    reported_as="colours",
    source=SWINGLER_2022,
)


def bins(level: int) -> int:
    """Return the number of values per channel at a level: 31 at level 1 down to 2 at level 30 and above."""
    return 256 if level == 0 else max(2, 32 - level)


@level_operator("posterise", _POSTERISE)
def posterise(images: Tensor, levels: Tensor) -> Tensor:
    """Reduce each channel by one value: b equal bins, bin i becomes i·255/(b-1), so black and white stay."""
    return _posterise(images, levels, _from_black)


@level_operator("posterise", _POSTERISE, variant="paper")
def posterise_as_written(images: Tensor, levels: Tensor) -> Tensor:
    """Reduce each channel by one value: b equal bins, bin i becomes (i+1)·255/b (rounded down), so black is lost."""
    return _posterise(images, levels, _above_black)


@step_operator("posterise", _POSTERISE, variant="cumulative")
def posterise_cumulative(images: Tensor, step: int) -> Tensor:
    """Reduce each channel of the image of the level below by one value, with the published bins."""
    return posterise(images, torch.full((len(images),), step + 1, device=images.device))


def _from_black(index: Tensor, count: Tensor) -> Tensor:
    return index * 255 // (count - 1)


def _above_black(index: Tensor, count: Tensor) -> Tensor:
    return (index + 1) * 255 // count


def _posterise(images: Tensor, levels: Tensor, value: Value) -> Tensor:
    """Look up every value in its image's table of bins."""
    if (kernels := kernels_for("colour", images)) is not None:
        made: Tensor = kernels.look_up(images, _tables_of_all_levels(value, images.device), levels)
        return made
    offset = torch.arange(0, 256 * len(images), 256, dtype=torch.int32, device=images.device)[:, None, None, None]
    return _look_up(_bin_tables(levels, value).flatten(), images.to(torch.int32).add_(offset))


def _bin_tables(levels: Tensor, value: Value) -> Tensor:
    """Return tables (B, 256), uint8, of bins [i·255/b, (i+1)·255/b) at levels (B,); the last bin includes 255."""
    count = (32 - levels).clamp(min=2)[:, None]
    index = torch.minimum(torch.arange(256, device=levels.device) * count // 255, count - 1)
    return value(index, count).to(torch.uint8)


@cache
def _tables_of_all_levels(value: Value, device: torch.device) -> Tensor:
    return _bin_tables(torch.arange(31), value).to(device)
