"""ImageNet-C's corruptions of one image in NumPy, SciPy, scikit-image, OpenCV and Pillow, by their published formulas.

Each function takes an image of grey levels, float64 (H, W, C), the constants of a severity and the draws of that image,
from which it takes the same random numbers as the package. It returns grey levels, neither clipped nor rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from io import BytesIO

import cv2
import numpy as np
import torch
from PIL import Image
from scipy import ndimage, stats
from skimage import color, filters

from brinell.draws import Draws
from brinell.perturb.corruptions import ice
from brinell.perturb.corruptions.fields import halves, normal
from brinell.perturb.corruptions.severity import published_side

Row = tuple[float, ...]
Plain = Callable[[np.ndarray, Row, Draws], np.ndarray]


def chw(numbers: torch.Tensor) -> np.ndarray:
    """Return the numbers of one image as (H, W, C), in double precision."""
    return numbers[0].permute(1, 2, 0).double().numpy()


def shape_of(image: np.ndarray, channels: int | None = None) -> torch.Size:
    height, width, own = image.shape
    return torch.Size([1, channels or own, height, width])


def gaussian_noise(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    return image + 255 * c[0] * chw(normal(draws, 0, shape_of(image)))


def speckle_noise(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    return image + image * c[0] * chw(normal(draws, 0, shape_of(image)))


def impulse_noise(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    uniform = (chw(halves(draws, 0, shape_of(image))) + 2**15 + 0.5) / 2**16
    return np.where(uniform > 1 - c[0] / 2, 255, np.where(uniform < c[0] / 2, 0, image))


def shot_noise(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    level = (chw(halves(draws, 0, shape_of(image))) + 2**15) // 16
    photons = stats.poisson.ppf((level + 0.5) / 4096, image / 255 / c[0] ** 2)
    return np.minimum(photons * c[0] ** 2, 1) * 255


def gaussian_blur(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    return 255 * filters.gaussian(image / 255, sigma=c[0], channel_axis=-1, mode="nearest", truncate=4) if c[0] else image


def glass_blur(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    """Go through the pixels backwards and copy each from a near one."""
    sigma, distance, times = c[0], int(c[1]), int(c[2])
    blurred = np.floor(gaussian_blur(image, (sigma,), None) + 1e-9)  # so that whole numbers stay what they are
    height, width = image.shape[:2]
    for time in range(times):
        bits = draws.bits(time, height * width)[0].view(height, width).numpy().astype(np.int64) & 0xFFFFFFFF
        for row in range(height - distance, distance, -1):
            for column in range(width - distance, distance, -1):
                dx = ((bits[row, column] & 0xFFFF) * 2 * distance >> 16) - distance
                dy = ((bits[row, column] >> 16) * 2 * distance >> 16) - distance
                blurred[row, column] = blurred[row + dy, column + dx]
    return gaussian_blur(blurred, (sigma,), None)


def defocus_blur(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    radius, softness = c
    side = np.arange(-8, 9) if radius <= 8 else np.arange(-math.ceil(radius), math.ceil(radius) + 1)
    disc = (side[:, None] ** 2 + side**2 <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disc / disc.sum(), (3, 3) if radius <= 8 else (5, 5), sigmaX=softness)
    reach = int(np.abs(side)[(kernel > 1e-5).any(0)].max())
    kernel = kernel[
        len(side) // 2 - reach : len(side) // 2 + reach + 1, len(side) // 2 - reach : len(side) // 2 + reach + 1
    ]
    return cv2.filter2D(image, -1, kernel.astype(np.float64)).reshape(image.shape)


def along_a_line(image: np.ndarray, radius: int, sigma: float, angle: float) -> np.ndarray:
    """Sum up shifted images; the border is repeated."""
    height, width = image.shape[:2]
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    total = np.zeros_like(image)
    for step, weight in enumerate(weights / weights.sum()):
        dy = math.ceil(step * math.sin(math.radians(angle)) - 0.5)
        dx = math.ceil(step * math.cos(math.radians(angle)) - 0.5)
        rows, columns = np.arange(height) + dy, np.arange(width) + dx
        total += weight * image[rows.clip(0, height - 1)][:, columns.clip(0, width - 1)]
    return total


def angle(draws: Draws, purpose: int, low: float, high: float) -> float:
    return low + (high - low) * float(draws.uniform(purpose, 1))


def motion_blur(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    return along_a_line(image, int(c[0]), c[1], angle(draws, 0, -45, 45))


def clipped_zoom(image: np.ndarray, factor: float) -> np.ndarray:
    """Enlarge the centre, and cut out the centre of that."""
    height, width = image.shape[:2]
    tall, wide = math.ceil(height / factor), math.ceil(width / factor)
    top, left = (height - tall) // 2, (width - wide) // 2
    large = ndimage.zoom(image[top : top + tall, left : left + wide], (factor, factor, 1), order=1)
    top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
    return large[top : top + height, left : left + width]


def zoom_blur(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    factors = np.arange(1, *c)
    return (image + sum(clipped_zoom(image, factor) for factor in factors)) / (len(factors) + 1)


def snow(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    layer = clipped_zoom(chw(normal(draws, 0, shape_of(image, 1)).mul_(c[1]).add_(c[0])), c[2])
    layer[layer < c[3]] = 0
    layer = np.floor(layer.clip(0, 1) * 255)
    layer = np.rint(along_a_line(layer, int(c[4]), c[5], angle(draws, 1, -135, -45)))
    grey = image @ [[0.299], [0.587], [0.114]] if image.shape[2] == 3 else image
    image = c[6] * image + (1 - c[6]) * np.maximum(image, grey * 1.5 + 127.5)
    return image + layer + np.rot90(layer, 2)


def plasma(draws: Draws, side: int, decay: float) -> np.ndarray:
    """Fill a torus by diamonds and squares, with a random term that falls by the square of the decay."""
    noise = (draws.bits(0, side * side - 1)[0] >> 8).double().numpy()
    field = np.zeros((side, side))
    step, width = side, 1.0
    while step >= 2:
        half, count = step // 2, side // step
        terms = noise[count**2 - 1 : 4 * count**2 - 1].reshape(3, count, count) * width
        for i in range(count):
            for j in range(count):
                y, x = i * step, j * step
                near = field[y, x] + field[(y + step) % side, x] + field[y, (x + step) % side]
                field[y + half, x + half] = (near + field[(y + step) % side, (x + step) % side]) / 4 + terms[0, i, j]
        for i in range(count):
            for j in range(count):
                y, x = i * step, j * step
                across = field[y, x] + field[y, (x + step) % side] + field[y + half, x + half]
                field[y, x + half] = (across + field[(y - half) % side, x + half]) / 4 + terms[1, i, j]
                down = field[y, x] + field[(y + step) % side, x] + field[y + half, x + half]
                field[y + half, x] = (down + field[y + half, (x - half) % side]) / 4 + terms[2, i, j]
        step, width = half, width / decay**2
    field -= field.min()
    return field / field.max()


def fog(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    height, width = image.shape[:2]
    side = 1 << (max(height, width) - 1).bit_length()
    field = plasma(draws, side, c[1])[:height, :width, None]
    brightest = image.max()
    return (image + 255 * c[0] * field) * brightest / (brightest + 255 * c[0])


def frost(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    height, width, channels = image.shape
    pictures = [ice._fit(picture, height, width, channels) for picture in ice._grown()]
    picture = pictures[int(draws.below(0, 1, 5))].permute(1, 2, 0).double().numpy()
    top = int(draws.below(1, 1, max(1, picture.shape[0] - height)))
    left = int(draws.below(2, 1, max(1, picture.shape[1] - width)))
    return c[0] * image + c[1] * picture[top : top + height, left : left + width]


def spatter(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    field = chw(normal(draws, 0, shape_of(image, 1)).mul_(c[1]).add_(c[0]))[..., 0]
    wet = filters.gaussian(field, sigma=c[2], mode="nearest")
    wet[wet < c[3]] = 0
    if c[5]:
        cover = filters.gaussian((wet > c[3]).astype(np.float64), sigma=c[4], mode="nearest")[..., None]
        cover[cover < 0.8] = 0
        return image * (1 - cover) + cover * tint(image, [63, 42, 20])
    drops = (wet * 255 // 1 % 256).astype(np.uint8)
    depth = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    _, depth = cv2.threshold(depth, 20, 20, cv2.THRESH_TRUNC)
    relief = cv2.equalizeHist(cv2.blur(depth, (3, 3)).astype(np.uint8))
    relief = cv2.filter2D(relief, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    light = drops * cv2.blur(relief, (3, 3)).astype(np.float64)
    light = light / light.max() * c[4] if light.max() else light
    return image + light[..., None] * tint(image, [175, 238, 238])


def tint(image: np.ndarray, colour: list[float]) -> np.ndarray:
    return np.array(colour) if image.shape[2] == 3 else np.array([np.dot(colour, [0.2989, 0.5870, 0.1140])])


def brightness(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    if image.shape[2] == 1:
        return image + 255 * c[0]
    hsv = color.rgb2hsv(image / 255)
    hsv[..., 2] = (hsv[..., 2] + c[0]).clip(0, 1)
    return 255 * color.hsv2rgb(hsv)


def saturate(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    hsv = color.rgb2hsv(image / 255)
    hsv[..., 1] = (hsv[..., 1] * c[0] + c[1]).clip(0, 1)
    return 255 * color.hsv2rgb(hsv)


def contrast(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    means = image.mean((0, 1), keepdims=True)
    return (image - means) * c[0] + means


def to_pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image.astype(np.uint8)[..., 0] if image.shape[2] == 1 else image.astype(np.uint8))


def jpeg_compression(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    file = BytesIO()
    to_pillow(image).save(file, "JPEG", quality=int(c[0]))
    return np.asarray(Image.open(file), np.float64).reshape(image.shape)


def pixelate(image: np.ndarray, c: Row, draws: Draws | None) -> np.ndarray:
    height, width = image.shape[:2]
    small = to_pillow(image).resize((int(width * c[0]), int(height * c[0])), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX), np.float64).reshape(image.shape)


def elastic_transform(image: np.ndarray, c: Row, draws: Draws) -> np.ndarray:
    height, width, channels = image.shape
    scale = min(height, width) / published_side(height, width)
    strength, sigma, jitter = (scale * value for value in c)
    centre, arm = np.array([width // 2, height // 2]), min(height, width) // 3
    corners = np.float32([centre + arm, centre + np.array([arm, -arm]), centre - arm])
    moves = (2 * draws.uniform(0, 6)[0].numpy().reshape(3, 2) - 1) * jitter
    matrix = cv2.getAffineTransform(corners, (corners + moves).astype(np.float32))
    moved = cv2.warpAffine(image.astype(np.float32), matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    field = (chw(halves(draws, 1, shape_of(image, 2))) + 0.5) / 2**15
    dx, dy = (strength * ndimage.gaussian_filter(field[..., i], sigma, mode="reflect", truncate=3) for i in (0, 1))
    y, x = np.mgrid[:height, :width]
    moved = moved.reshape(image.shape)
    bands = [ndimage.map_coordinates(moved[..., i], (y + dy, x + dx), order=1, mode="reflect") for i in range(channels)]
    return np.stack(bands, -1)


PLAIN: dict[str, Plain] = {
    function.__name__: function
    for function in (
        gaussian_noise, shot_noise, impulse_noise, speckle_noise, defocus_blur, glass_blur, motion_blur, zoom_blur,
        gaussian_blur, snow, frost, fog, spatter, brightness, contrast, saturate, elastic_transform, pixelate,
        jpeg_compression,
    )
}  # fmt: skip
