"""The most similar operators of other packages: similar in kind and roughly in strength, but not in algorithm.

imgcorr is a port of imagecorruptions to current packages. Kornia processes batches of floats, the others single images.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from benchmarks.corruption_peers import put_back

Batch = Callable[[Tensor], object]


def peers() -> dict[str, dict[str, Batch]]:
    """Return functions on batches of uint8 images, by operator and package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        put_back()
        import imgcorr
        import kornia
        from nrtk.impls.perturb_image.photometric import blur, enhance, noise

    def corrupt(name: str, severity: int) -> Batch:
        return _one_by_one(lambda image: imgcorr.corrupt(image, severity=severity, corruption_name=name))

    def nrtk(perturber: Callable[..., object]) -> Batch:
        return _one_by_one(lambda image: perturber(image=image))

    return {
        "global_blur": {
            "nrtk": nrtk(blur.AverageBlurPerturber(ksize=5)),
            "kornia": _floats(lambda x: kornia.filters.box_blur(x, 5)),
            "imgcorr": corrupt("gaussian_blur", 1),
        },
        "noise": {
            "nrtk": nrtk(noise.SaltAndPepperNoisePerturber(amount=0.02, seed=0)),
            "imgcorr": corrupt("impulse_noise", 1),
        },
        "white_fog": {"imgcorr": corrupt("fog", 1)},
        "fade_black": {
            "nrtk": nrtk(enhance.BrightnessPerturber(factor=0.9)),
            "kornia": _floats(lambda x: kornia.enhance.adjust_brightness_accumulative(x, 0.9)),
        },
        "fade_white": {
            "nrtk": nrtk(enhance.BrightnessPerturber(factor=1.1)),
            "kornia": _floats(lambda x: kornia.enhance.adjust_brightness_accumulative(x, 1.1)),
            "imgcorr": corrupt("brightness", 1),
        },
        "fade_grey": {
            "nrtk": nrtk(enhance.ColorPerturber(factor=0.9)),
            "kornia": _floats(lambda x: kornia.enhance.adjust_saturation(x, 0.9)),
            "imgcorr": corrupt("saturate", 1),
        },
        "posterise": {"kornia": _floats(lambda x: kornia.enhance.posterize(x, 4))},
        "jpeg": {
            "imgcorr": corrupt("jpeg_compression", 3),
            "kornia": _floats(lambda x: kornia.enhance.jpeg_codec_differentiable(x, torch.full((len(x),), 15.0))),
        },
    }


def _one_by_one(change: Callable[[np.ndarray], object]) -> Batch:
    def each(images: Tensor) -> list[object]:
        return [change(image) for image in images.permute(0, 2, 3, 1).contiguous().numpy()]

    return each


def _floats(change: Callable[[Tensor], Tensor]) -> Batch:
    return lambda images: change(images.to(torch.float32) / 255).mul(255).round().to(torch.uint8)
