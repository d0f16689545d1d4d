"""Plain loops for the properties, written from the equations and the code of (DSN 2020, Zhong, Hu and Chen).

A new built-in property needs one here, or a test that compares it with another library (COMPARED_WITH_LIBRARIES);
properties of other packages need neither. A function takes an image of grey levels as a float64 array (H, W, C), a
severity and a `Chance` with the same draws as the package's, and returns the changed image, neither clipped nor rounded.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from PIL import Image
from scipy import special

from brinell.perturb.frost import grow_frost
from reference import Chance


def uniform_field(picture: np.ndarray, chance: Chance, channels: int) -> np.ndarray:
    """Return numbers in [0, 1): the top 24 bits of each signed draw, channel after channel."""
    height, width = picture.shape[:2]
    bits = chance.bits(0, channels * height * width)
    numbers = [((value ^ 0x80000000) >> 8) / 2**24 for value in bits]
    return np.array(numbers).reshape(channels, height, width).transpose(1, 2, 0)


def uniform_noise(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    return picture + 255 * e * (2 * e * uniform_field(picture, chance, picture.shape[2]) - e)


def gaussian_noise(picture: np.ndarray, e: float, chance: Chance, scale: float = 3**-0.5) -> np.ndarray:
    height, width, channels = picture.shape
    count = height * width * channels
    bits = chance.bits(0, (count + 1) // 2)
    halves = [value & 0xFFFF for value in bits] + [value >> 16 for value in bits]
    field = special.ndtri((np.array(halves[:count]) + 0.5) / 65536)
    return picture + 255 * e * e * scale * field.reshape(channels, height, width).transpose(1, 2, 0)


def blended_noise(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    return (1 - e) * picture + e * 255 * uniform_field(picture, chance, picture.shape[2])


def salt_and_pepper(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    u = uniform_field(picture, chance, 1)
    return np.where(u >= 1 - e / 2, 255, np.where(u < e / 2, 0, picture))


def diamond_square(side: int, chance: Chance, ratio: float) -> np.ndarray:
    """Return a plasma made point by point on a torus, then scaled to [0, 1]."""
    heights = np.zeros((side, side))
    numbers = iter([((value ^ 0x80000000) >> 8) / 2**23 - 1 for value in chance.bits(0, side * side - 1)])
    step, width = side, 1.0
    while step > 1:
        half = step // 2

        def around(y: int, x: int, offsets: list[tuple[int, int]], half: int = half) -> float:
            return sum(heights[(y + dy * half) % side, (x + dx * half) % side] for dy, dx in offsets) / 4

        square, diamond = [(-1, -1), (-1, 1), (1, -1), (1, 1)], [(-1, 0), (1, 0), (0, -1), (0, 1)]
        for first_y, first_x, offsets in ((half, half, square), (0, half, diamond), (half, 0, diamond)):
            for y in range(first_y, side, step):
                for x in range(first_x, side, step):
                    heights[y, x] = around(y, x, offsets) + width * next(numbers)
        step, width = half, width * ratio
    return (heights - heights.min()) / (heights.max() - heights.min())


def plasma(picture: np.ndarray, chance: Chance, ratio: float) -> np.ndarray:
    side = 2
    while side < max(picture.shape[:2]):
        side *= 2
    return diamond_square(side, chance, ratio)[: picture.shape[0], : picture.shape[1], None]


def fog(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    x, p = picture / 255, 1 + 2.5 * e
    return 255 * (x + p * plasma(picture, chance, (2.3 - 1.3 * e) ** -2)) * x.max() / (x.max() + p)


def fog_equations(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    return picture + 255 * e * 3.5 * plasma(picture, chance, e)


def fog_standard(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    return (1 - e) * picture + e * 255 * plasma(picture, chance, 0.25)


def snow(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    height, width = picture.shape[:2]
    side, length = max(1, height // 10), max(1, int(0.9 * (height // 10 // 2)))
    disc = np.zeros((side, side))
    for i in range(side):
        for j in range(side):
            disc[i, j] = (i - side // 2) ** 2 + (j - side // 2) ** 2 <= 0.1 * min(height, width)
    flake = cv2.filter2D(disc, -1, np.fliplr(np.eye(length)) / length)
    out = picture.copy()
    tops, lefts = chance.below(0, 100, height - side), chance.below(1, 100, width - side)
    for number in range(int(1 + 99 * e)):
        top, left = tops[number], lefts[number]
        out[top : top + side, left : left + side] += 255 * flake[:, :, None]
    return out


def frost_template(picture: np.ndarray) -> np.ndarray:
    height, width, channels = picture.shape
    template = Image.fromarray(grow_frost()).convert("L" if channels == 1 else "RGB").resize((width, height))
    return np.asarray(template, np.float64).reshape(picture.shape)


def frost(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    return (1 - 0.5 * e) * picture + (0.3 + 0.5 * e) * frost_template(picture)


def frost_equations(picture: np.ndarray, e: float, chance: Chance) -> np.ndarray:
    return (1 - 0.5 * e) * picture + 0.8 * e * frost_template(picture)


Loop = Callable[[np.ndarray, float, Chance], np.ndarray]
LOOPS: dict[str, Loop] = {
    "brightness:dsn2020": lambda x, e, chance: x * (1 + 254 * e if e > 0 else 1 + e * 254 / 255),
    "brightness:standard": lambda x, e, chance: x * 2 ** (8 * e),
    "brightness:equations": lambda x, e, chance: x + 255 * e,
    "contrast:dsn2020": lambda x, e, chance: (1 - e) * x + e * 255 / 2,
    "uniform_noise:dsn2020": uniform_noise,
    "gaussian_noise:dsn2020": gaussian_noise,
    "gaussian_noise:equations": lambda x, e, chance: gaussian_noise(x, e, chance, 1),
    "blended_noise:dsn2020": blended_noise,
    "salt_and_pepper:dsn2020": salt_and_pepper,
    "fog:dsn2020": fog,
    "fog:equations": fog_equations,
    "fog:standard": fog_standard,
    "snow:dsn2020": snow,
    "frost:dsn2020": frost,
    "frost:equations": frost_equations,
    "frost:standard": frost_equations,
}

#: properties that a test in laws/test_property_references.py compares with OpenCV or SciPy, and the name of that test
COMPARED_WITH_LIBRARIES = {
    "rotation:dsn2020": "test_rotation_is_that_of_opencv",
    "horizontal_translation:dsn2020": "test_translation_shifts_the_array",
    "horizontal_translation:standard": "test_translation_shifts_the_array",
    "vertical_translation:dsn2020": "test_translation_shifts_the_array",
    "vertical_translation:standard": "test_translation_shifts_the_array",
    "spatial:dsn2020": "test_spatial_turns_and_then_moves",
    "motion_blur:dsn2020": "test_motion_blur_is_a_filter_of_opencv",
    "motion_blur:standard": "test_motion_blur_is_a_filter_of_opencv",
    "motion_blur:equations": "test_motion_blur_is_a_filter_of_opencv",
    "gaussian_blur:dsn2020": "test_gaussian_blur_is_that_of_scipy",
}


def apply_property(name: str, picture: np.ndarray, severity: float, chance: Chance) -> np.ndarray:
    """Return one image (H, W, C) at a severity, by plain loops."""
    if name not in LOOPS:
        raise AssertionError(
            f"the built-in property {name!r} has no plain loop to compare it with; add a function for one image "
            "to LOOPS in tests/reference_properties.py, or a test against another library to "
            "tests/laws/test_property_references.py and its name to COMPARED_WITH_LIBRARIES"
        )
    return LOOPS[name](picture, severity, chance)
