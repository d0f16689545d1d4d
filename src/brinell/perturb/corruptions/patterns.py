"""Patterns of ImageNet-C-bar (Mintun, Kirillov and Xie, NeurIPS 2021): waves, rings, plasma, rays and boards.

A pattern depends on the draws alone and is made on the host in float64, so that every device gets the same one. The
published strength is a number from 0 to 10; constants are that number and the share of the changed image, which is 1 at the
published severities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.corruptions.fields import normal
from brinell.perturb.corruptions.severity import BAR, Constants, Corruption, Row, corruption
from brinell.perturb.property import Category

_SPARKLES, _RAYS = 5, (50, 200)  # number of sparkles; rays of one, from and below
_CELLS = 64  # along a side of a board's table


def strengths(title: str, category: Category, large: Sequence[float], small: Sequence[float] | None = None) -> Corruption:
    """Return the facts of a corruption with one published strength per severity."""
    rows, few = ([(value, 1.0) for value in values] for values in (large, small or large))
    return Corruption(title, category, Constants(rows, few, (0.0, 0.0)), family=BAR)


def on_host(draws: Draws, purpose: int, count: int) -> Tensor:
    """Draw uniform numbers, float64 (count, B, 1, 1) on the host."""
    return draws.uniform(purpose, count).cpu().T[..., None, None]


def pixels(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows (H, 1) and columns (W,), float64 on the host."""
    height, width = images.shape[2:]
    return torch.arange(height, dtype=torch.float64)[:, None], torch.arange(width, dtype=torch.float64)


def add(images: Tensor, pattern: Tensor, share: float = 1.0) -> Tensor:
    """Add a pattern (B, C, H, W) in grey levels, or a share of it."""
    return images.add_((share * pattern).to(torch.float32).to(images.device))


@corruption("single_frequency_greyscale", strengths("single frequency", "noise", (1.0, 1.5, 2.0, 4.5, 5.0)))
def single_frequency_greyscale(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add a grey wave of one random frequency."""
    strength, share = constants
    y, x = pixels(images)
    first, second, phase, coin = on_host(draws, 0, 4)
    along = (2 * first - 1) * math.pi
    across = (2 * second - 1) * along.abs()
    along, across = torch.where(coin < 0.5, along, across), torch.where(coin < 0.5, across, along)
    wave = (x * along + y * across + 2 * math.pi * phase).sin()
    return add(images, 19.6 * strength * wave[:, None], share)


@corruption("cocentric_sine_waves", strengths("concentric waves", "noise", (3.0, 5.0, 8.0, 9.0, 10.0)))
def cocentric_sine_waves(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add wavy rings around a random point."""
    strength, share = constants
    side = min(images.shape[2:])
    y, x = pixels(images)
    left, top, turns, swing, ring = on_host(draws, 0, 5)
    dx, dy = x - left * images.shape[3], y - top * images.shape[2]
    angle, width = torch.atan2(dx, dy) * (10 * turns), ring * (side / 10)
    distance = (dx**2 + dy**2).sqrt() + angle.sin() * (swing * side / 10)
    return add(images, 12.8 * strength * (distance.remainder(width) / width - 0.5)[:, None], share)


@corruption("plasma_noise", strengths("plasma", "noise", (4.75, 7.0, 8.5, 9.25, 10.0)))
def plasma_noise(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Blend with smooth colourful streaks."""
    strength, share = constants
    amount = 6.4 * strength * share
    y, x = pixels(images)
    moment, count, sharp, size = on_host(draws, 0, 4)
    time, sharpness = 6 * math.pi * moment, 0.5 + 0.5 * sharp
    scale = (0.075 + 0.125 * size) * min(images.shape[2:])
    x, y = (x / scale).expand(-1, len(y), -1), (y / scale).expand(-1, -1, x.shape[-1])
    bend, slow, weak, shift = (torch.full_like(moment, value) for value in (1.0, 1.0, 1.0, 0.0))
    for step in range(6):
        across, down = (y * bend - shift + time / slow).cos() / weak, (x * bend - shift + time / slow).sin() / weak
        on = (4 + (3 * count).floor()) > step  # four to six rounds
        x, y = x + on * (across - 0.3 * down), y + on * (down + 0.3 * across)
        bend, slow, weak, shift = bend * 1.93, slow * 1.15, weak * (2.25 - sharpness), shift * time * slow
    colours = torch.stack([(x - time).sin(), ((x + y + time.sin()) * 0.5).sin(), (y + time).sin()], 1)
    return add(images.mul_(1 - amount / 255), amount * colours[:, : images.shape[1]])


@corruption("sparkles", strengths("sparkles", "weather", (1.0, 2.0, 3.0, 5.0, 6.0), (0.7, 3.5, 5.6, 6.3, 7.0)))
def sparkles(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add five bright stars with random rays."""
    strength, share = constants
    height, width = images.shape[2:]
    radius = 0.01 * strength * min(height, width)
    centres = on_host(draws, 0, 2 * _SPARKLES)
    left = torch.ones(len(images), height, width, dtype=torch.float64)
    for number in range(_SPARKLES):
        centre = centres[2 * number] * height, centres[2 * number + 1] * width
        left *= 1 - _rays(images, draws, 1 + number, (*centre, radius, 1.0, 1.0))
    return _whiten(images, (1 - left) * share)


@corruption(
    "inverse_sparkles", strengths("inverse sparkles", "weather", (1.0, 2.0, 4.0, 9.0, 10.0), (1.0, 1.5, 2.5, 4.5, 5.0))
)
def inverse_sparkles(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Cover everything except a star with random rays with white."""
    strength, share = constants
    height, width = images.shape[2:]
    down, along = 0.25 + 0.5 * on_host(draws, 0, 2)
    star = (down * height, along * width, 0.25 * min(height, width), 6.5 * strength / 50, 0.0)
    return _whiten(images, (1 - _rays(images, draws, 1, star)) * share)


def _rays(images: Tensor, draws: Draws, purpose: int, star: tuple[Tensor, Tensor, float, float, float]) -> Tensor:
    """Return the light of a star of a centre, radius and power, with rays at least so long, in [0, 1], (B, H, W)."""
    top, left, radius, power, least = star
    y, x = pixels(images)
    dy, dx = y - top, x - left
    fewest, below = _RAYS
    count = fewest + ((below - fewest) * on_host(draws, 2 * purpose, 1)[0]).floor()
    lengths = normal(draws, 2 * purpose + 1, torch.Size([len(images), below])).cpu().to(torch.float64)
    lengths = (radius * (1 + 0.25 * lengths)).clamp(min=least) if least else radius * (1 + 0.25 * lengths)
    turn = (torch.atan2(dx, dy) + math.pi) / (2 * math.pi) * count
    ray = turn.floor()
    part = turn - ray
    near, far = ((ray + step).remainder(count).to(torch.int64).flatten(1) for step in (0, 1))
    first, second = (lengths.gather(1, index).view_as(turn) for index in (near, far))
    length = first + part * (second - first)
    glow = (length**2 / (dx**2 + dy**2 + 1e-4)) ** power
    return ((1 - (part - 0.5) ** 2) * glow).clamp(0, 1)


def _whiten(images: Tensor, share: Tensor) -> Tensor:
    white = share[:, None].to(torch.float32).to(images.device)
    return images.mul_(1 - white).add_(white.mul_(255))


@corruption(
    "checkerboard_cutout", strengths("checkerboard", "digital", (2.0, 3.0, 4.0, 5.0, 6.0), (1.0, 2.0, 3.0, 4.0, 5.0))
)
def checkerboard_cutout(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Cover random squares of a rotated chessboard, all of one colour, with grey."""
    strength, _ = constants
    y, x = pixels(images)
    angle, size = on_host(draws, 0, 2)
    angle, scale = 2 * math.pi * angle, ((0.1 + 0.15 * size) * min(images.shape[2:])).clamp(min=1)
    along = (angle.cos() * y + angle.sin() * x) / scale
    down = (angle.cos() * x - angle.sin() * y) / scale
    alike = along.remainder(2).floor() == down.remainder(2).floor()
    cell = (along.trunc().remainder(_CELLS) * _CELLS + down.trunc().remainder(_CELLS)).to(torch.int64)
    table = draws.uniform(1, _CELLS**2).cpu() < 0.1 * strength
    covered = alike & table.gather(1, cell.flatten(1)).view_as(alike)
    return images.masked_fill_(covered[:, None].to(images.device), 128)
