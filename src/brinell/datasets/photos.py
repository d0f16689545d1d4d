"""Photographs that arrive inside pip packages, with their ImageNet labels: the demo's dataset.

They are read from where pip put them (foolbox's 20 ImageNet images carry their label in the file name); nothing is
copied, and the packages' own code is not imported.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from brinell.datasets.files import Files
from brinell.errors import MissingExtra

# photographs in other wheels whose subject is an ImageNet class, by eye
_LABELLED = {
    "skimage": {"data/camera.png": 872, "data/chelsea.png": 282, "data/coffee.png": 967},  # tripod, tiger cat, espresso
    "sklearn": {"datasets/images/china.jpg": 698},  # palace
}


def photos() -> Files:
    """The photographs of foolbox, scikit-image and scikit-learn."""
    found: list[tuple[str, int]] = []
    for path in sorted((_folder("foolbox", "foolbox") / "data").glob("imagenet_*.jpg")):
        match = re.fullmatch(r"imagenet_\d+_(\d+)", path.stem)
        if match:
            found.append((str(path), int(match[1])))
    for package, labels in _LABELLED.items():
        folder = _folder(package, {"skimage": "scikit-image", "sklearn": "scikit-learn"}[package])
        found += [(str(folder / place), label) for place, label in labels.items() if (folder / place).is_file()]
    return Files("demo-photos", Path("/"), [path for path, _ in found], [label for _, label in found])


def _folder(package: str, distribution: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(distribution, "demo")
    return Path(spec.submodule_search_locations[0])
