"""Operators of other packages that compute the same as a corruption of ImageNet-C, or nearly so, with its constants.

imagecorruptions is taken from a checkout of its source, since the released package breaks on current packages; imgcorr is a
port of it. The others have single operators. All change one image after the other.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.perturb.corruptions.severity import CORRUPTIONS

Corrupt = Callable[[str, int], object]  # a name and a severity
Change = Callable[[np.ndarray], object]  # of an image (H, W, 3)
SIDE = 224


def peers(images: Tensor, source: Path | None) -> dict[str, Corrupt]:
    """Return what other packages do with images; a KeyError says that a package doesn't have a corruption."""
    pictures = list(images.permute(0, 2, 3, 1).contiguous().numpy())
    put_back()
    found: dict[str, Corrupt] = {}
    for package, changes in (("albumentations", _albumentations), ("nrtk", _nrtk)):
        if importlib.util.find_spec(package):
            found[package] = _one_by_one(changes, pictures)
    if importlib.util.find_spec("torchvision"):
        found["torchvision"] = lambda name, severity: [
            _torchvision(name, _constants(name, severity))(one) for one in images
        ]
    if importlib.util.find_spec("kornia"):
        found["kornia"] = lambda name, severity: _kornia(name, _constants(name, severity))(images)
    if importlib.util.find_spec("imgcorr"):
        import imgcorr

        found["imgcorr"] = lambda name, severity: [imgcorr.corrupt(one, severity, name) for one in pictures]
    if source is not None:
        sys.path.insert(0, str(source))
        from imagecorruptions import corruptions

        found["imagecorruptions"] = lambda name, severity: [
            np.uint8(getattr(corruptions, name)(Image.fromarray(one), severity)) for one in pictures
        ]
    return found


def put_back() -> None:
    """Put back names that imgcorr and imagecorruptions ask for and current packages no longer have."""
    from scipy import ndimage

    def resource_filename(package: str, name: str) -> str:
        spec = importlib.util.find_spec(package.partition(".")[0])
        assert spec is not None and spec.origin is not None
        return str(Path(spec.origin).parent / name)

    resources, old = types.ModuleType("pkg_resources"), types.ModuleType("scipy.ndimage.interpolation")
    resources.resource_filename = resource_filename  # type: ignore[attr-defined]
    old.map_coordinates = ndimage.map_coordinates  # type: ignore[attr-defined]
    sys.modules.setdefault("pkg_resources", resources)
    sys.modules.setdefault("scipy.ndimage.interpolation", old)


def _constants(name: str, severity: int) -> tuple[float, ...]:
    return CORRUPTIONS[name].constants.at(severity, SIDE, SIDE)


def _one_by_one(changes: Callable[[str, tuple[float, ...]], Change], pictures: list[np.ndarray]) -> Corrupt:
    def corrupt(name: str, severity: int) -> list[object]:
        change = changes(name, _constants(name, severity))
        return [change(one) for one in pictures]

    return corrupt


def _albumentations(name: str, c: tuple[float, ...]) -> Change:
    import albumentations as A
    import cv2

    def pair(value: float) -> tuple[float, float]:
        return (value, value)

    made: dict[str, Callable[[], Any]] = {
        "gaussian_noise": lambda: A.GaussNoise(std_range=pair(c[0]), p=1),
        "impulse_noise": lambda: A.SaltAndPepper(amount=pair(c[0]), salt_vs_pepper=pair(0.5), p=1),
        "gaussian_blur": lambda: A.GaussianBlur(blur_limit=0, sigma_limit=pair(c[0]), p=1),
        "defocus_blur": lambda: A.Defocus(radius=(int(c[0]), int(c[0])), alias_blur=pair(c[1]), p=1),
        "zoom_blur": lambda: A.ZoomBlur(max_factor=pair(c[0]), step_factor=pair(c[1]), p=1),
        "glass_blur": lambda: A.GlassBlur(sigma=c[0], max_delta=int(c[1]), iterations=int(c[2]), p=1),
        "jpeg_compression": lambda: A.ImageCompression(quality_range=(int(c[0]), int(c[0])), p=1),
        "pixelate": lambda: A.Downscale(
            scale_range=pair(c[0]),
            interpolation_pair={"downscale": cv2.INTER_AREA, "upscale": cv2.INTER_NEAREST},
            p=1,
        ),
    }
    transform = made[name]()
    return lambda image: transform(image=image)["image"]


def _nrtk(name: str, c: tuple[float, ...]) -> Change:
    from nrtk.impls.perturb_image.photometric import noise

    made: dict[str, Callable[[], Any]] = {
        "gaussian_noise": lambda: noise.GaussianNoisePerturber(var=c[0] ** 2, seed=0),
        "speckle_noise": lambda: noise.SpeckleNoisePerturber(var=c[0] ** 2, seed=0),
        "impulse_noise": lambda: noise.SaltAndPepperNoisePerturber(amount=c[0], seed=0),
    }
    perturber = made[name]()
    return lambda image: perturber(image=image)


def _torchvision(name: str, c: tuple[float, ...]) -> Callable[[Tensor], object]:
    from torchvision.transforms import v2

    made: dict[str, Callable[[], Callable[[Tensor], object]]] = {
        "gaussian_noise": lambda: lambda image: v2.GaussianNoise(sigma=c[0])(image / 255).mul(255).round().to(torch.uint8),
        "gaussian_blur": lambda: v2.GaussianBlur(2 * int(4 * c[0] + 0.5) + 1, c[0]),
        "jpeg_compression": lambda: v2.JPEG((int(c[0]), int(c[0]))),
    }
    return made[name]()


def _kornia(name: str, c: tuple[float, ...]) -> Callable[[Tensor], object]:
    import kornia

    size = 2 * int(4 * c[0] + 0.5) + 1
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "gaussian_blur": lambda floats: kornia.filters.gaussian_blur2d(floats, (size, size), (c[0], c[0]), "replicate"),
        "jpeg_compression": lambda floats: kornia.enhance.jpeg_codec_differentiable(
            floats, torch.full((len(floats),), float(c[0]))
        ),
    }
    change = changes[name]
    return lambda images: change(images.to(torch.float32) / 255).mul(255).round().to(torch.uint8)
