"""The published corruptions: the package imagecorruptions (`make test-zoo` installs it), and ImageNet-C's own script.

Version 1.1.2 of the package is of 2020: it calls NumPy, scikit-image and SciPy by names that are gone. They are put back
while it is in use; none of its code is changed. Of two corruptions it has other versions than ImageNet-C: its
elastic_transform has no affine part and other constants, and its zoom_blur is cut off at the lower right. Those of the
script (ImageNet-C/create_c/make_imagenet_c.py of hendrycks/robustness) are taken from a copy of it, if one is given.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

PACKAGE = "imagecorruptions"
FROM_SCRIPT = ("elastic_transform", "zoom_blur")  # which the package has in other versions
Corrupt = Callable[[Any, int], Any]  # a picture and a severity


def script_corruptions(script: Path) -> dict[str, Corrupt]:
    """Return the corruptions that only ImageNet-C's script has, from a copy of it; nothing else of it is executed."""
    import cv2
    from scipy import ndimage

    names = (*FROM_SCRIPT, "clipped_zoom")
    parts = [part for part in ast.parse(script.read_text(encoding="utf-8")).body if getattr(part, "name", "") in names]
    known: dict[str, Any] = {"np": np, "cv2": cv2, "gaussian": _gaussian, "scizoom": ndimage.zoom}
    known["map_coordinates"] = ndimage.map_coordinates
    exec(compile(ast.Module(parts, []), str(script), "exec"), known)
    return {name: known[name] for name in FROM_SCRIPT}


def _gaussian(image: Any, sigma: Any, multichannel: bool = False, **options: Any) -> Any:
    """Blur as scikit-image did when the published code was written."""
    from skimage import filters

    return filters.gaussian(image, sigma=sigma, channel_axis=-1 if multichannel else None, **options)


def _random_noise(image: Any, **options: Any) -> Any:
    """Add noise as scikit-image does, by NumPy's global random numbers, as when the published code was written.

    Current versions draw numbers of their own, so that no seed repeats them.
    """
    from skimage.util import random_noise

    return random_noise(image, rng=int(np.random.randint(2**31)), **options)  # noqa: TID251, whose seed the caller sets


@contextmanager
def published_corruptions() -> Iterator[Any]:
    """Yield the module of the published functions, on current packages."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise SystemExit(f"needs {PACKAGE}, which make test-zoo installs into .venv-zoo")
    from scipy import ndimage

    folder = Path(found.origin).parent
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda package, name: str(folder / name)  # type: ignore[attr-defined]
    interpolation = types.ModuleType("scipy.ndimage.interpolation")
    interpolation.map_coordinates = ndimage.map_coordinates  # type: ignore[attr-defined]

    modules = {"pkg_resources": resources, "scipy.ndimage.interpolation": interpolation}
    with patch.dict(sys.modules, modules), patch.object(np, "float_", np.float64, create=True):
        from imagecorruptions import corruptions

        drawn = types.SimpleNamespace(util=types.SimpleNamespace(random_noise=_random_noise), color=corruptions.sk.color)
        with patch.object(corruptions, "gaussian", _gaussian), patch.object(corruptions, "sk", drawn):
            yield corruptions
