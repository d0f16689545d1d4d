"""Gaussian smoothing equals SciPy's, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from brinell.perturb.corruptions.gaussian import smooth

MODES: dict[str, Any] = {"edge": "nearest", "symmetric": "reflect"}


@pytest.mark.parametrize("border", MODES)
@pytest.mark.parametrize("sigma", [0.4, 0.6, 1, 1.3, 2, 3, 4])
@pytest.mark.parametrize("size", [(224, 224), (37, 50), (5, 7), (1, 3)])
def test_fields_are_those_of_scipy(size: tuple[int, int], sigma: float, border: Any) -> None:
    fields = np.random.default_rng(0).normal(0.6, 0.3, (2, *size))
    expected = ndimage.gaussian_filter(fields, (0, sigma, sigma), mode=MODES[border])
    before = fields.copy()
    assert np.array_equal(smooth(fields, sigma, border), expected)
    assert np.array_equal(fields, before), "the input stays as it is"
