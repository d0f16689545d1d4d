"""Smoothed curves of a sampled run: accuracy at every level, from a few levels of each image.

A level of a sampled run has the answers of a few images. Levels next to it say nearly the same, so that a curve is fitted
by local polynomials over levels: no shape is assumed, and accuracy may rise again. Images are the sample: the errors of
one image's answers, at all of its levels, are added up before they are squared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DEGREE = 2  # of the polynomials: their bias is small against the error, which a straight line's is not where a curve bends
RAW = 1.0  # bandwidth at which every level stands for itself
BANDWIDTHS = (RAW, 2.0, 3.0, 4.5, 6.5, 9.5, 14.0)  # in levels, of which one is chosen by cross-validation
FOLDS = 5
RIDGE = 1e-9  # where too few levels have answers for a fit
SPREAD = DEGREE + 1  # levels with answers that a fit needs at least


@dataclass(frozen=True)
class Smoothed:
    """A curve over levels (L,), what each image adds to its error (images, L), and the weight that each has in it."""

    value: Array
    errors: Array
    loads: Array

    @property
    def variance(self) -> Array:
        """Variance of the curve, over images."""
        images = len(self.errors)
        found: Array = (self.errors**2).sum(0) * images / max(1, images - 1)
        return found

    @property
    def images(self) -> Array:
        """Number of images of equal weight that would be as certain, if each gave the same answer at all its levels."""
        found: Array = 1 / (self.loads**2).sum(0)
        return found


def smooth(values: Array, weights: Array, bandwidth: float) -> Smoothed:
    """Return the curve of values (images, L) with weights, which are 0 where an image was not queried."""
    [[coefficients]] = fit_coefficients(weights.sum(0)[None], np.array([bandwidth]))
    curve = coefficients @ (weights * values).sum(0)
    errors = (weights * (values - curve)) @ coefficients.T
    return Smoothed(curve, errors, weights @ coefficients.T)


def mean_curve(curves: list[Smoothed]) -> Smoothed:
    """Return the mean of several curves of the same images, at each level of those that have it."""
    most = max(len(curve.value) for curve in curves)

    def average(name: str) -> Array:
        parts = [getattr(curve, name) for curve in curves]
        padded = [
            np.pad(each, [(0, 0)] * (each.ndim - 1) + [(0, most - each.shape[-1])], constant_values=np.nan)
            for each in parts
        ]
        known = ~np.isnan(padded)
        totals, counts = np.where(known, padded, 0.0).sum(0), known.sum(0)
        found: Array = np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)  # NaN without scores
        return found

    return Smoothed(average("value"), average("errors"), average("loads"))


def fit_coefficients(totals: Array, bandwidths: Array) -> Array:
    """Return the coefficients (H, B, L, L) that turn weighted sums of values by level into the fit at each level.

    `totals` (B, L) are sums of weights by level, each fitted with several bandwidths (H,). Where few levels around one have
    answers, more distant ones count.
    """
    many, count = totals.shape
    levels = np.arange(count, dtype=np.float64)
    apart = levels[None, :] - levels[:, None]
    there = totals > 0
    nearest = np.sort(np.where(there[:, None, :], np.abs(apart), np.inf), axis=2)  # (B, L, L)
    needed = np.minimum(SPREAD, there.sum(1)) - 1
    reach = np.maximum(bandwidths[:, None, None], nearest[np.arange(many), :, needed] + 1)[..., None]  # (H, B, L, 1)
    scaled = apart / reach
    kernel = np.clip(1 - np.abs(scaled) ** 3, 0, None) ** 3
    powers = np.stack([scaled**power for power in range(DEGREE + 1)], -1)  # (H, B, L, L, degree + 1)
    weighted = powers * (kernel * totals[:, None])[..., None]
    moments = np.swapaxes(weighted, -1, -2) @ powers
    ridge = RIDGE * np.trace(moments, axis1=-2, axis2=-1)[..., None, None] * np.eye(DEGREE + 1)
    solved = np.linalg.solve(moments + ridge, np.broadcast_to(np.eye(DEGREE + 1)[:, :1], (*moments.shape[:-1], 1)))
    found: Array = (powers @ solved)[..., 0] * kernel
    raw = (bandwidths == RAW)[:, None] & there.all(1)
    found[raw] = (np.eye(count) / np.where(there, totals, 1)[:, None])[np.nonzero(raw)[1]]
    return found


def choose_bandwidth(values: Array, weights: Array) -> float:
    """Return a bandwidth below the one that predicts images best from the others, whose bias is as large as its error."""
    folds = np.eye(FOLDS)[np.arange(len(values)) % FOLDS].T  # (folds, images)
    held, sums = folds @ weights, folds @ (weights * values)  # by fold and level
    totals, others = held.sum(0) - held, sums.sum(0) - sums
    usable = totals.any(1)
    curves = (fit_coefficients(totals[usable], np.array(BANDWIDTHS)) @ others[usable][..., None])[..., 0]
    losses = (curves**2 * held[usable] - 2 * curves * sums[usable]).sum((1, 2))  # squared error, up to a constant
    return BANDWIDTHS[max(0, int(np.argmin(losses)) - 1)]
