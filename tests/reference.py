"""Plain loops for the operators, written from (Swingler 2022) and its published code, to compare the batched code with.

A new built-in operator needs one here; operators of other packages need none. A function in STEPS takes one image as a
uint8 array (H, W, C), a `Chance` with the same draws as the package's, and the number of steps made before, and adds one
step in place. A function in LEVELS takes an image and a level and returns the changed image. Properties have theirs in
reference_properties.py.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch

from brinell.draws import Draws, key
from brinell.perturb.operator import Operator
from brinell.perturb.property import Property


def is_built_in(part: Operator | Property) -> bool:
    """Whether an operator or a property comes with brinell, not with another package.

    Corruptions of benchmarks have plain code in reference_corruptions.py.
    """
    return part.function.__module__.partition(".")[0] == "brinell" and not part.facts.family


class Chance:
    """The draws of one image at one step, as lists of Python integers."""

    def __init__(self, seed: int, operator: str, identity: int, step: int) -> None:
        self.draws = Draws.of(key(seed, operator), torch.tensor([identity]), step)

    def below(self, purpose: int, count: int, bound: int) -> list[int]:
        return self.draws.below(purpose, count, bound)[0].tolist()

    def between(self, purpose: int, count: int, low: int, high: int) -> list[int]:
        return self.draws.between(purpose, count, low, high)[0].tolist()

    def bits(self, purpose: int, count: int) -> list[int]:
        return [bits & 0xFFFFFFFF for bits in self.draws.bits(purpose, count)[0].tolist()]


def line(image: np.ndarray, chance: Chance, colour: int) -> None:
    height, width = image.shape[:2]
    first, last = chance.below(0, 2, 2)
    x, y = chance.below(1, 2, width), chance.below(2, 2, height)
    start = (0, y[0]) if first == 0 else (x[0], 0)
    end = (width, y[1]) if last == 0 else (x[1], height)
    cv2.line(image, start, end, (colour,) * 3, 1, cv2.LINE_AA)


def rectangles(chance: Chance, count: int, height: int, width: int, longest: int) -> list[tuple[int, int, int, int]]:
    tall = chance.between(0, count, 2, min(longest, height))
    wide = chance.between(1, count, 2, min(longest, width))
    tops, lefts = chance.bits(2, count), chance.bits(3, count)
    return [
        (top * (height - h + 1) >> 32, left * (width - w + 1) >> 32, h, w)
        for top, left, h, w in zip(tops, lefts, tall, wide, strict=True)
    ]


def black_lines(image: np.ndarray, chance: Chance, step: int) -> None:
    line(image, chance, 0)


def white_lines(image: np.ndarray, chance: Chance, step: int) -> None:
    line(image, chance, 255)


def boxes(image: np.ndarray, chance: Chance, step: int) -> None:
    height, width = image.shape[:2]
    for top, left, h, w in rectangles(chance, (width + height) // 10, height, width, 5):
        cv2.rectangle(image, (left, top), (left + w, top + h), (0, 0, 0), -1)


def boxes_paper(image: np.ndarray, chance: Chance, step: int) -> None:
    height, width = image.shape[:2]
    for top, left, h, w in rectangles(chance, (width + height) // 10, height, width, 5):
        image[top : top + h, left : left + w] = 0


def global_blur(image: np.ndarray, chance: Chance, step: int) -> None:
    image[:] = cv2.blur(image, (5, 5)).reshape(image.shape)


def local_blur(image: np.ndarray, chance: Chance, step: int) -> None:
    height, width = image.shape[:2]
    for top, left, h, w in rectangles(chance, width + height, height, width, 10):
        part = np.ascontiguousarray(image[top : top + h, left : left + w])
        image[top : top + h, left : left + w] = cv2.blur(part, (5, 5), borderType=cv2.BORDER_REFLECT_101).reshape(
            part.shape
        )


def local_blur_paper(image: np.ndarray, chance: Chance, step: int) -> None:
    height, width = image.shape[:2]
    for top, left, h, w in rectangles(chance, width + height, height, width, 10):
        part = image[top : top + h, left : left + w]
        part[:] = np.rint(part.reshape(-1, part.shape[2]).mean(0)).astype(np.uint8)


def noise(image: np.ndarray, chance: Chance, step: int) -> None:
    height, width, channels = image.shape
    count = width * height // 50
    for pixel, bits in zip(chance.below(0, count, width * height), chance.bits(1, count), strict=True):
        image[pixel // width, pixel % width] = [(bits >> 8 * channel) & 255 for channel in range(channels)]


def pairs(image: np.ndarray, chance: Chance) -> list[tuple[int, int]]:
    height, width = image.shape[:2]
    count = max(1, (width - 1) * (height - 1) // 20)
    first, second = chance.below(0, count, width * height), chance.below(1, count, width * height)
    return list(zip(first, second, strict=True))


def neighbours(image: np.ndarray, chance: Chance) -> list[tuple[int, int]]:
    height, width = image.shape[:2]
    count = max(1, (width - 1) * (height - 1) // 2)
    found = []
    columns = zip(chance.below(0, count, width - 1), chance.below(1, count, height - 1), chance.bits(2, count), strict=True)
    for x, y, bits in columns:
        dx = ((bits & 0xFFFF) * 3 >> 16) - 1 if x else (bits & 0xFFFF) * 2 >> 16
        dy = ((bits >> 16) * 3 >> 16) - 1 if y else (bits >> 16) * 2 >> 16
        assert 0 <= x + dx < width and 0 <= y + dy < height
        found.append((y * width + x, (y + dy) * width + x + dx))
    return found


def copy(image: np.ndarray, pairs: list[tuple[int, int]]) -> None:
    flat = image.reshape(-1, image.shape[2])
    for target, source in pairs:
        flat[target] = flat[source]


def swap(image: np.ndarray, pairs: list[tuple[int, int]]) -> None:
    flat = image.reshape(-1, image.shape[2])
    for first, second in pairs:
        flat[first], flat[second] = flat[second].copy(), flat[first].copy()


def pixel_exchange(image: np.ndarray, chance: Chance, step: int) -> None:
    copy(image, pairs(image, chance))


def pixel_exchange_paper(image: np.ndarray, chance: Chance, step: int) -> None:
    """Section 1.2: pairs of locations are selected at random and their colours exchanged, wh/20 per level."""
    height, width = image.shape[:2]
    count = width * height // 20
    swap(image, list(zip(chance.below(0, count, width * height), chance.below(1, count, width * height), strict=True)))


def adjacent_exchange(image: np.ndarray, chance: Chance, step: int) -> None:
    copy(image, neighbours(image, chance))


def adjacent_exchange_paper(image: np.ndarray, chance: Chance, step: int) -> None:
    """Section 1.2: the first location is any pixel, the second one of the eight adjacent locations, wh/20 per level."""
    height, width = image.shape[:2]
    count = width * height // 20
    exchanged = []
    for first, bits in zip(chance.below(0, count, width * height), chance.bits(1, count), strict=True):
        y, x = divmod(first, width)
        around = [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]
        inside = [(row, column) for row, column in around if 0 <= row < height and 0 <= column < width]
        row, column = inside[bits * len(inside) >> 32]
        exchanged.append((first, row * width + column))
    swap(image, exchanged)


def white_fog(image: np.ndarray, chance: Chance, step: int) -> None:
    height, width = image.shape[:2]
    flat = image.reshape(-1, image.shape[2])
    for pixel in chance.below(0, width * height // 5, width * height):
        flat[pixel] = np.minimum(flat[pixel].astype(int) + 20, 255)


def fade_black(image: np.ndarray, chance: Chance, step: int) -> None:
    image[:] = cv2.multiply(image, 1, scale=0.9).reshape(image.shape)


def fade_white(image: np.ndarray, chance: Chance, step: int) -> None:
    exact = image.astype(np.int64) * 11
    down, rest = exact // 10, exact % 10
    up = (rest > 5) | ((rest == 5) & (down % 2 == 1))
    image[:] = np.minimum(down + up, 255)


def fade_grey(image: np.ndarray, chance: Chance, step: int) -> None:
    if image.shape[2] == 3:
        hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
        hsv[..., 1] = np.floor(hsv[..., 1] * 0.9)
        # OpenCV truncates in its vector code but rounds the last pixels of a row; padded rows go through vector code only
        wide = np.pad(hsv, ((0, 0), (0, -hsv.shape[1] % 64), (0, 0)))
        image[:] = cv2.cvtColor(wide, cv2.COLOR_HSV2RGB)[:, : image.shape[1]]


def posterise_to(image: np.ndarray, count: int, paper: bool) -> np.ndarray:
    out = image.copy()
    for index in range(count):
        held = (image >= index * 255 / count) & (image < (index + 1) * 255 / count)
        out[held] = int((index + 1) * 255 / count) if paper else int(index * 255 / (count - 1))
    return out


def posterise_cumulative(image: np.ndarray, chance: Chance, step: int) -> None:
    image[:] = posterise_to(image, 31 - step, paper=False)


def compress_jpeg(image: np.ndarray, quality: int, paper: bool) -> np.ndarray:
    picture = np.ascontiguousarray(image[..., ::-1]) if paper else image
    _, code = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    decoded = cv2.imdecode(code, cv2.IMREAD_UNCHANGED).reshape(image.shape)
    return decoded[..., ::-1] if paper else decoded


def jpeg_cumulative(image: np.ndarray, chance: Chance, step: int) -> None:
    image[:] = compress_jpeg(image, 31 - step, paper=False)


STEPS = {
    "black_lines:published": black_lines,
    "white_lines:published": white_lines,
    "boxes:published": boxes,
    "boxes:paper": boxes_paper,
    "global_blur:published": global_blur,
    "local_blur:published": local_blur,
    "local_blur:paper": local_blur_paper,
    "noise:published": noise,
    "pixel_exchange:published": pixel_exchange,
    "pixel_exchange:paper": pixel_exchange_paper,
    "pixel_exchange:standard": pixel_exchange_paper,
    "adjacent_exchange:published": adjacent_exchange,
    "adjacent_exchange:paper": adjacent_exchange_paper,
    "adjacent_exchange:standard": adjacent_exchange_paper,
    "white_fog:published": white_fog,
    "fade_black:published": fade_black,
    "fade_white:published": fade_white,
    "fade_grey:published": fade_grey,
    "posterise:cumulative": posterise_cumulative,
    "jpeg:cumulative": jpeg_cumulative,
}
LEVELS = {
    "posterise:published": lambda image, level: posterise_to(image, 32 - level, paper=False),
    "posterise:paper": lambda image, level: posterise_to(image, 32 - level, paper=True),
    "jpeg:published": lambda image, level: compress_jpeg(image, 32 - level, paper=False),
    "jpeg:paper": lambda image, level: compress_jpeg(image, 32 - level, paper=True),
    "jpeg:standard": lambda image, level: compress_jpeg(image, int(np.linspace(95, 5, 30).round()[level - 1]), paper=True),
}


def apply_operator(operator: str, image: np.ndarray, level: int, *, seed: int, identity: int) -> np.ndarray:
    """Return one image (H, W, C) at a level, by plain loops."""
    if operator in LEVELS:
        return LEVELS[operator](image, level)
    if operator not in STEPS:
        raise AssertionError(
            f"the built-in operator {operator!r} has no plain loop to compare it with; add a function for one image "
            "to STEPS (for @step_operator) or to LEVELS (for @level_operator) in tests/reference.py"
        )
    image = image.copy()
    for step in range(level):
        STEPS[operator](image, Chance(seed, operator.partition(":")[0], identity, step), step)
    return image
