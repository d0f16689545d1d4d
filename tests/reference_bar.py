"""ImageNet-C-bar's corruptions of one image in NumPy and SciPy, by their published formulas.

Each function takes an image of grey levels, float64 (H, W, C), the constants of a severity (the published strength, and the
share of the changed image) and the draws of that image, from which it takes the same random numbers as the package. It
returns grey levels, neither clipped nor rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from scipy import ndimage

from brinell.draws import Draws
from brinell.perturb.corruptions.fields import normal

Row = tuple[float, ...]
Plain = Callable[[np.ndarray, Row, Draws], np.ndarray]


def each_pixel(image: np.ndarray, value: Callable[[int, int], float]) -> np.ndarray:
    height, width = image.shape[:2]
    return np.array([[[value(y, x)] for x in range(width)] for y in range(height)])


def single_frequency_greyscale(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    first, second, phase, coin = draws.uniform(0, 4)[0].tolist()
    one = math.pi * (2 * first - 1)
    other = abs(one) * (2 * second - 1)
    fx, fy = (one, other) if coin < 0.5 else (other, one)
    noise = each_pixel(image, lambda y, x: math.sin(x * fx + y * fy + 2 * math.pi * phase))
    return image + c[1] * c[0] / 10 * 196 * noise


def cocentric_sine_waves(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    height, width = image.shape[:2]
    left, top, turns, swing, ring = draws.uniform(0, 5)[0].tolist()
    x0, y0, ring_width, amplitude = (
        left * width,
        top * height,
        ring * min(height, width) / 10,
        swing * min(height, width) / 10,
    )

    def value(y: int, x: int) -> float:
        angle = math.atan2(x - x0, y - y0) * 10 * turns
        return (math.hypot(x - x0, y - y0) + math.sin(angle) * amplitude) % ring_width / ring_width - 0.5

    return image + c[1] * c[0] / 10 * 128 * each_pixel(image, value)


def checkerboard_cutout(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    first, second = draws.uniform(0, 2)[0].tolist()
    angle, scale = 2 * math.pi * first, max(1, (0.1 + 0.15 * second) * min(image.shape[:2]))
    table = draws.uniform(1, 64 * 64)[0].view(64, 64).numpy() < c[0] / 10

    def covered(y: int, x: int) -> float:
        nx = (math.cos(angle) * y + math.sin(angle) * x) / scale
        ny = (-math.sin(angle) * y + math.cos(angle) * x) / scale
        return int(nx % 2) == int(ny % 2) and table[int(nx), int(ny)]

    return np.where(each_pixel(image, covered), 128, image)


def plasma_noise(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    """Move points of the plane (complex numbers) by ever finer waves; colours are sines of where they end."""
    moment, count, sharp, size = draws.uniform(0, 4)[0].tolist()
    time, sharpness = 6 * math.pi * moment, 0.5 + 0.5 * sharp
    y, x = np.mgrid[: image.shape[0], : image.shape[1]] / ((0.075 + 0.125 * size) * min(image.shape[:2]))
    place = x + 1j * y
    for step in range(4 + int(3 * count)):
        turn = time / 1.15**step
        wave = np.cos(place.imag * 1.93**step + turn) + 1j * np.sin(place.real * 1.93**step + turn)
        place += wave * (1 + 0.3j) / (2.25 - sharpness) ** step
    x, y = place.real, place.imag
    colours = np.stack([np.sin(x - time), np.sin((x + y + math.sin(time)) / 2), np.sin(y + time)], -1)
    amount = c[1] * 64 * c[0] / 10
    return (1 - amount / 255) * image + amount * colours[..., : image.shape[2]]


def star(image: np.ndarray, centre: tuple[float, float], lengths: np.ndarray, power: float) -> np.ndarray:
    """Return the light of a star with rays of these lengths, between which lengths are interpolated by angle."""
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    dy, dx = y - centre[0], x - centre[1]
    turn = (np.arctan2(dx, dy) / (2 * math.pi) + 0.5) * len(lengths)
    length = np.interp(turn, np.arange(len(lengths) + 1), np.append(lengths, lengths[0]))
    glow = (length**2 / (dy**2 + dx**2 + 1e-4)) ** power
    return ((1 - (turn % 1 - 0.5) ** 2) * glow).clip(0, 1)[..., None]


def ray_lengths(draws: Draws, purpose: int, radius: float) -> np.ndarray:
    rays = 50 + int(150 * float(draws.uniform(2 * purpose, 1)))
    return radius + 0.25 * radius * normal(draws, 2 * purpose + 1, torch.Size([1, 200]))[0, :rays].double().numpy()


def sparkles(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    """Draw five stars, one over the other."""
    height, width = image.shape[:2]
    lit = image
    for number, (down, along) in enumerate(draws.uniform(0, 10)[0].view(5, 2).tolist(), 1):
        lengths = np.maximum(1, ray_lengths(draws, number, 0.1 * c[0] / 10 * min(height, width)))
        lit = lit + star(image, (down * height, along * width), lengths, 1) * (255 - lit)
    return image + c[1] * (lit - image)


def inverse_sparkles(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    height, width = image.shape[:2]
    down, along = (0.25 + 0.5 * draws.uniform(0, 2)[0]).tolist()
    lengths = ray_lengths(draws, 1, 0.25 * min(height, width))
    light = star(image, (down * height, along * width), lengths, 65 * c[0] / 10 / 50)
    return image + c[1] * (1 - light) * (255 - image)


def coloured_noise(image: np.ndarray, draws: Draws, purpose: int, power: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Add up waves of given amplitudes and random phases, which are alike on both sides of the middle."""
    height, width = image.shape[:2]
    drawn = 2 * math.pi * draws.uniform(purpose, height * (width // 2) + height // 2)[0].numpy()
    phases = np.zeros((height, width))
    phases[:, : width // 2] = drawn[: height * (width // 2)].reshape(height, -1)
    if width % 2:
        phases[: height // 2, width // 2] = drawn[height * (width // 2) :]
        phases[(height + 1) // 2 :, width // 2] = phases[: height // 2, width // 2][::-1]
    phases[:, (width + 1) // 2 :] = phases[::-1, : width // 2][:, ::-1]
    y, x = np.mgrid[:height, :width]
    amplitudes = power(np.hypot(y - height / 2, x - width / 2)) * np.exp(1j * phases)
    down, along = (
        np.exp(2j * math.pi * np.outer(np.arange(side), np.arange(side) + side // 2) / side) for side in (height, width)
    )
    noise = (down @ amplitudes @ along.T).real
    return noise / noise.std()


def blue_noise_sample(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    noise = coloured_noise(image, draws, 0, lambda distance: distance)
    return np.where(noise[..., None] > 3 * c[0] / 10 - 2.5 / c[1], image, 0)


def brownish_noise(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    bands = [coloured_noise(image, draws, band, lambda distance: 1 / (distance**2 + 1)) for band in range(image.shape[2])]
    return image + c[1] * 64 * c[0] / 10 * np.stack(bands, -1)


def perlin_noise(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    """Add up turbulence: at each point the slopes of the four grid points around it, each with a weight."""
    height, width = image.shape[:2]
    order = np.argsort(draws.uniform(0, 256)[0].numpy(), kind="stable")
    slopes = 2 * draws.uniform(1, 512)[0].view(2, 256).numpy() - 1
    slopes /= np.hypot(*slopes)
    clouds = np.zeros((height, width))
    for octave in (1, 2, 4, 8, 16):
        y, x = np.mgrid[:height, :width] * octave * 7 / min(height, width)
        noise = np.zeros((height, width))
        for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
            i, j = np.floor(y).astype(int) + row, np.floor(x).astype(int) + column
            slope = slopes[:, order[(order[i % 256] + j) % 256]]
            dy, dx = y - i, x - j
            weight = (1 - 3 * dy**2 + 2 * np.abs(dy) ** 3) * (1 - 3 * dx**2 + 2 * np.abs(dx) ** 3)
            noise += weight * (slope[0] * dy + slope[1] * dx)
        clouds += np.abs(1.5 * noise) / octave
    amount = c[1] * 0.5 * c[0] / 10
    return (1 - amount) * image + amount * 255 * np.minimum(0.5 + 0.5 * clouds, 1)[..., None]


def caustics(height: int, width: int, time: float, scale: float) -> np.ndarray:
    y, x = np.mgrid[:height, :width] / scale % 1 * 6.28318530718 - 250
    i, j, light = y, x, np.ones((height, width))
    for t in (time * (1 - 3.5 / number) for number in range(1, 6)):
        i, j = y + np.cos(t - i) + np.sin(t + j), x + np.sin(t - j) + np.cos(t + i)
        light = light + 1 / np.hypot(y / (np.sin(i + t) / 0.005), x / (np.cos(j + t) / 0.005))
    return ndimage.gaussian_filter(np.minimum(np.abs(1.17 - (light / 5) ** 1.4) ** 8, 1), 1)


def caustic_refraction(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    """Refract a ray from above at a lens whose height is the light, by Snell's law in space."""
    height, width = image.shape[:2]
    moment, size = draws.uniform(0, 2)[0].tolist()
    light = np.pad(caustics(height, width, 0.5 + 1.5 * moment, (0.75 + 0.5 * size) * min(height, width)), 1)
    down, along = light[2:, 1:-1] - light[:-2, 1:-1], light[1:-1, 2:] - light[1:-1, :-2]
    surface = np.stack([down, along, np.ones_like(down)], -1)
    surface /= np.linalg.norm(surface, axis=-1, keepdims=True)
    axis = np.cross([0.0, 0.0, 1.0], surface)
    axis /= np.maximum(np.linalg.norm(axis, axis=-1, keepdims=True), 1e-12)
    after = np.arcsin(np.sin(np.arccos(surface[..., 2:].clip(-1, 1))) / 4)
    ray = np.cos(after) * surface + np.sin(after) * np.cross(surface, axis)
    move = np.where(surface[..., 2:] >= 1 - 1e-3, 0, ray) * c[1] * 0.5 * min(height, width) * c[0] / 10
    places = np.moveaxis(np.stack(np.mgrid[:height, :width], -1) + move[..., :2], -1, 0)
    seen = [ndimage.map_coordinates(band, places, order=1, mode="grid-constant") for band in np.moveaxis(image, -1, 0)]
    return np.stack(seen, -1) + c[1] * 255 * 2 * c[0] / 10 * (down - along)[..., None]


PLAIN_BAR: dict[str, Plain] = {
    function.__name__: function
    for function in (
        blue_noise_sample, plasma_noise, checkerboard_cutout, inverse_sparkles, sparkles, caustic_refraction,
        brownish_noise, perlin_noise, cocentric_sine_waves, single_frequency_greyscale,
    )
}  # fmt: skip
