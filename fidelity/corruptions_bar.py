"""ImageNet-C-bar's corruptions, ours and the published ones, in distribution: `python -m fidelity.corruptions_bar`.

    BRINELL_IMAGENET_C_BAR=augmentation-corruption/imagenet_c_bar .venv/bin/python -m fidelity.corruptions_bar --draws 40
    .venv/bin/python -m fidelity.corruptions --page         write the page from stored results

Both sides change the same pictures, each with random numbers of its own: photographs of 224 pixels, and CIFAR-10's images
of 32 pixels where strengths were published for them. Statistics of the changed pictures are compared picture by picture.
The published code cuts off to whole grey levels; here ours are cut off as well, so that rounding isn't taken for another
pattern. Results are in results/corruptions_bar.json; what is there with as many draws is not repeated. For the same random
numbers, tests/zoo/test_corruption_bar_parity.py compares pixels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fidelity.bar_page import RESULTS, read_bar
from fidelity.corruptions import photographs
from fidelity.measure import ASSETS
from fidelity.pattern_statistics import displacements, ramps, statistics
from fidelity.published_bar import SIDES, VARIABLE, find_folder, import_published, published_classes, published_strengths

CIFAR = ASSETS / "images" / "cifar10_test_2000.npz"
PUBLISHED_SEED, OUR_SEED = 0, 1
Pixels = NDArray[np.uint8]
Found = dict[str, float]


def pictures(side: int, count: int) -> list[Pixels]:
    """Return photographs of a side; they begin again where there are fewer."""
    found = photographs(0, count)[0] if side == max(SIDES) else list(np.load(CIFAR)["images"][:count])
    return [np.ascontiguousarray(found[index % len(found)]) for index in range(count)]


def ours(name: str, side: int, level: int, draw: int, picture: Pixels) -> Pixels:
    """Return a picture changed by our corruption, cut off to whole grey levels."""
    import torch

    from brinell.draws import Draws, key
    from brinell.perturb.corruptions import patterns, textures
    from brinell.perturb.corruptions.severity import CORRUPTIONS

    function = getattr(patterns, name, None) or getattr(textures, name)
    image = torch.tensor(picture).permute(2, 0, 1)[None].to(torch.float32)
    draws = Draws.of(key(OUR_SEED, name, level), torch.tensor([draw]))
    made = function(image, CORRUPTIONS[name].constants.at(level, side, side), draws).clamp(0, 255)
    cut: Pixels = (made + 1e-3).floor().to(torch.uint8)[0].permute(1, 2, 0).numpy()
    return cut


def published(folder: Path, name: str, side: int, level: int, draw: int, picture: Pixels) -> Pixels:
    """Return a picture changed by the published corruption."""
    kind = published_classes(import_published(folder))[name]
    np.random.seed([PUBLISHED_SEED, side, level, draw])  # noqa: TID251, whose numbers the published code draws
    made: Pixels = kind(published_strengths(folder, side)[name][level - 1], side)(picture)
    return made


def _measure(one: tuple[str, int, int, int, Pixels], change: Callable[..., Pixels]) -> Found:
    name, side, level, draw, picture = one
    found = statistics(name, picture, change(name, side, level, draw, picture))
    if name == "caustic_refraction" and draw % 4 == 0:
        found |= displacements(change(name, side, level, draw, ramps(side)))
    return found


def measure(folder: Path, name: str, side: int, draws: int) -> list[dict[str, list[float]]]:
    """Return what both sides and their differences are at each severity, by statistic.

    Of each: our mean and its standard error, the published ones, and those of the difference picture by picture.
    """
    cells = []
    with get_context("spawn").Pool(2) as pool:
        for level in range(1, 6):
            work = [(name, side, level, draw, picture) for draw, picture in enumerate(pictures(side, draws))]
            here = pool.map(partial(_measure, change=ours), work)
            there = pool.map(partial(_measure, change=partial(published, folder)), work)
            cells.append({key: _compare(here, there, key) for key in here[0]})
    return cells


def _compare(here: Sequence[Found], there: Sequence[Found], key: str) -> list[float]:
    pairs = [(one[key], other[key]) for one, other in zip(here, there, strict=True) if key in one]
    first, second = np.array(pairs).T
    return [value for part in (first, second, first - second) for value in _mean(part)]


def _mean(values: NDArray[np.float64]) -> tuple[float, float]:
    return round(float(values.mean()), 5), round(float(values.std(ddof=1) / np.sqrt(len(values))), 5)


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="corruptions; all by default")
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--side", type=int, choices=list(SIDES), default=max(SIDES))
    options = parser.parse_args()
    folder = find_folder()
    if folder is None:
        raise SystemExit(
            f"{VARIABLE} must name the folder imagenet_c_bar of a copy of facebookresearch/augmentation-corruption"
        )
    from brinell.perturb.corruptions.severity import BAR, CORRUPTIONS

    known = [name for name in published_strengths(folder, options.side) if CORRUPTIONS.get(name, None)]
    assert all(CORRUPTIONS[name].family == BAR for name in known)
    for name in options.names or known:
        held = read_bar().get(str(options.side), {}).get(name, {"draws": 0})
        if name not in known or held["draws"] >= options.draws:
            continue
        cells = measure(folder, name, options.side, options.draws)
        results = read_bar()
        results.setdefault(str(options.side), {})[name] = {"draws": options.draws, "severities": cells}
        RESULTS.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"{name}, {options.side} pixels: {options.draws} draws of each side", flush=True)


if __name__ == "__main__":
    main()
