"""Random textures of ImageNet-C-bar (Mintun, Kirillov and Xie, NeurIPS 2021): noise of given spectra, and caustics.

Like `patterns`, they are made on the host in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.corruptions.elastic import sample
from brinell.perturb.corruptions.gaussian import smooth
from brinell.perturb.corruptions.patterns import add, on_host, pixels, strengths
from brinell.perturb.corruptions.severity import Row, corruption

_OCTAVES = (1, 2, 4, 8, 16)
_SLOPES = 256  # in the table of Perlin noise, which all octaves read
_PARTS = 128  # of a pixel that positions are rounded to
_BENDING = 4.0  # ratio of the refractive indices


@corruption(
    "blue_noise_sample", strengths("blue noise sample", "noise", (0.8, 1.6, 2.4, 4.0, 5.6), (0.7, 1.4, 2.1, 3.5, 4.2))
)
def blue_noise_sample(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Blacken pixels where high-frequency noise is low."""
    strength, share = constants
    threshold = 0.3 * strength - 2.5 if share == 1 else 0.3 * strength - 2.5 / share
    kept = _spectral(images, draws, 0, blue=True) > threshold
    return images.mul_(kept[:, None].to(images.device))


@corruption("brownish_noise", strengths("brownish noise", "noise", (1.0, 2.0, 3.0, 4.0, 5.0), (2.5, 4.0, 5.5, 6.5, 7.0)))
def brownish_noise(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add low-frequency noise, independently in each channel."""
    strength, share = constants
    noise = torch.stack([_spectral(images, draws, channel, blue=False) for channel in range(images.shape[1])], 1)
    return add(images, 6.4 * strength * noise, share)


def _spectral(images: Tensor, draws: Draws, purpose: int, *, blue: bool) -> Tensor:
    """Return noise of variance 1 whose amplitudes grow with the frequency, or fall with its square, (B, H, W)."""
    height, width = images.shape[2:]
    half = width // 2
    drawn = 2 * math.pi * draws.uniform(purpose, height * half + height // 2).cpu()
    left, top = drawn[:, : height * half].view(len(drawn), height, half), drawn[:, height * half :, None]
    middle = torch.cat([top, top.new_zeros(len(top), height % 2, 1), top.flip(1)], 1)[..., : width % 2]
    phases = torch.cat([left, middle, left.flip(1, 2)], 2)
    y, x = pixels(images)
    distance = ((x - width / 2) ** 2 + (y - height / 2) ** 2).sqrt()
    power = distance if blue else 1 / (distance**2 + 1)
    spectrum = torch.polar(power.expand_as(phases).contiguous(), phases).roll((height // 2, half), (1, 2))
    noise: Tensor = torch.fft.ifft2(spectrum).real
    return noise / noise.std((1, 2), correction=0, keepdim=True)


@corruption("perlin_noise", strengths("Perlin noise", "noise", (4.6, 5.2, 5.8, 7.6, 8.8)))
def perlin_noise(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Blend with clouds: turbulence of five octaves of Perlin noise."""
    strength, share = constants
    amount = 0.05 * strength * share
    y, x = (axis * (7 / min(images.shape[2:])) for axis in pixels(images))
    octaves = [_perlin(draws, y * octave, x * octave).abs() / octave for octave in _OCTAVES]
    clouds = (0.5 * torch.stack(octaves).sum(0) + 0.5).clamp(max=1)
    return add(images.mul_(1 - amount), 255 * amount * clouds[:, None])


def _perlin(draws: Draws, y: Tensor, x: Tensor) -> Tensor:
    """Return Perlin noise at rows (H, 1) and columns (W,), (B, H, W): slopes at grid points, joined smoothly."""
    slopes = _slopes(draws, int(y[-1, 0]) + 2, int(x[-1]) + 2)
    top, left = y.floor().to(torch.int64), x.floor().to(torch.int64)
    down, along = y - top, x - left
    corners = [
        (slopes[:, 0, top + dy, left + dx] * (down - dy) + slopes[:, 1, top + dy, left + dx] * (along - dx))
        for dy in (0, 1)
        for dx in (0, 1)
    ]
    over, under = (axis**2 * (3 - 2 * axis) for axis in (along, down))
    upper, lower = (first + over * (second - first) for first, second in (corners[:2], corners[2:]))
    noise: Tensor = 1.5 * (upper + under * (lower - upper))
    return noise


def _slopes(draws: Draws, tall: int, wide: int) -> Tensor:
    """Return a unit vector at every point of a grid, (B, 2, tall, wide), read from a table in a random order."""
    order = draws.uniform(0, _SLOPES).cpu().argsort(stable=True, dim=1)
    slopes = 2 * draws.uniform(1, 2 * _SLOPES).cpu().view(-1, 2, _SLOPES) - 1
    slopes = slopes / slopes.norm(dim=1, keepdim=True)
    rows = order[:, torch.arange(tall) % _SLOPES, None]
    places = order.gather(1, ((rows + torch.arange(wide)) % _SLOPES).flatten(1))
    found: Tensor = slopes.gather(2, places[:, None].expand(-1, 2, -1)).view(-1, 2, tall, wide)
    return found


@corruption("caustic_refraction", strengths("caustics", "weather", (2.35, 3.2, 4.9, 6.6, 9.15)))
def caustic_refraction(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Refract and light the image as moving water does."""
    strength, share = constants
    light = _caustics(images, draws)
    framed = torch.nn.functional.pad(light, (1, 1, 1, 1))
    south, north = framed[:, 1:-1, 2:], framed[:, 1:-1, :-2]  # along a row, in the words of the published code
    east, west = framed[:, 2:, 1:-1], framed[:, :-2, 1:-1]
    down, along = east - west, south - north
    length = (down**2 + along**2 + 1).sqrt()
    cosine, sine = 1 / length, (1 - length**-2).clamp(min=0).sqrt()
    after = (sine / _BENDING).asin()
    # what is left of a slope that bends light; flat places don't
    bent = (after.cos() - after.sin() * cosine / sine.clamp(min=1e-9)) / length
    bent = torch.where(cosine >= 1 - 1e-3, 0.0, bent) * (0.05 * strength * share * min(images.shape[2:]))
    y, x = pixels(images)
    positions = torch.stack([x + along * bent, y + down * bent], 1).to(images.device)
    seen = sample(images, positions, _PARTS, border="black")
    return add(seen, 255 * 0.2 * strength * (down - along)[:, None], share)


def _caustics(images: Tensor, draws: Draws) -> Tensor:
    """Return a net of light, (B, H, W) in [0, 1], softened."""
    y, x = pixels(images)
    moment, size = on_host(draws, 0, 2)
    time, scale = 0.5 + 1.5 * moment, (0.75 + 0.5 * size) * min(images.shape[2:])
    first, second = (
        ((axis / scale) % 1) * 6.28318530718 - 250 for axis in (y.expand(-1, x.shape[0]), x.expand(len(y), -1))
    )
    i, j, total = first, second, torch.ones_like(first)
    for step in range(5):
        t = time * (1 - 3.5 / (step + 1))
        i, j = first + (t - i).cos() + (t + j).sin(), second + (t - j).sin() + (t + i).cos()
        total = total + ((first * 0.005 / (i + t).sin()) ** 2 + (second * 0.005 / (j + t).cos()) ** 2) ** -0.5
    light = ((1.17 - (total / 5) ** 1.4).abs() ** 8).clamp(max=1)
    return torch.from_numpy(smooth(light.numpy(), 1, "symmetric"))
