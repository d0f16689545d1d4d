"""Quantiles of the normal, Student's and beta distributions, which a test compares with SciPy: the core does without."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_SERIES_FROM = 1000  # degrees of freedom from which the series below is exact to 1e-12
_TERMS = 300
_NORMAL_FROM = 50_000  # degrees of freedom from which Student's distribution is taken for a normal one


@lru_cache(4096)
def normal_quantile(probability: float) -> float:
    """Return the number below which a normal variable lies with a probability."""
    return NormalDist().inv_cdf(probability)


@lru_cache(4096)
def student_quantile(freedom: int, probability: float) -> float:
    """Return the number below which a Student variable lies with a probability of at least 1/2."""
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        centred = 2 * probability - 1
        return centred * math.sqrt(2 / (1 - centred * centred))
    found = _series(freedom, normal_quantile(probability))
    if freedom >= _SERIES_FROM:
        return found
    for _ in range(50):  # Newton's method
        step = (_distribution(freedom, found) - probability) / _density(freedom, found)
        found -= step
        if abs(step) <= 1e-14 * found:
            break
    return found


def student_chance(freedom: int, t: float) -> float:
    """Return the probability that a Student variable is at least as far from 0 as t."""
    if freedom >= _NORMAL_FROM:
        return math.erfc(abs(t) / math.sqrt(2))
    share = freedom / (freedom + t * t)
    return _incomplete_beta(freedom / 2, 0.5, share) if share < 1 else 1.0


def beta_chance(a: float, b: float, x: float) -> float:
    """Return the probability that a beta variable is at most x; as a goes to 0, so does the variable."""
    if a <= 0 or x >= 1:
        return 1.0
    return _incomplete_beta(a, b, x) if x > 0 else 0.0


def beta_quantile(a: float, b: float, probability: float) -> float:
    """Return the number below which a beta variable lies with a probability, for b >= 1; as a goes to 0, so does it."""
    if a <= 0:
        return 0.0
    log = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    found = (math.log(probability * a) + log) / a  # the logarithm of a number below the quantile
    # Newton's method: the logarithm of the distribution is concave in that of x, so it never overshoots
    for _ in range(100):
        x = math.exp(found)
        below = _incomplete_beta(a, b, x) if x else 0.0
        slope = math.exp(a * found + (b - 1) * math.log1p(-x) - log) / below if below else 0.0
        if not slope:  # too small for a number
            break
        step = math.log(probability / below) / slope
        found += step
        if abs(step) <= 1e-13:
            break
    return math.exp(found)


def _series(n: int, z: float) -> float:
    """Return the quantile by its expansion in 1/n (Abramowitz and Stegun 26.7.5)."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + first / n + second / n**2 + third / n**3 + fourth / n**4


def _density(n: int, t: float) -> float:
    log = math.lgamma((n + 1) / 2) - math.lgamma(n / 2) - math.log(n * math.pi) / 2
    return math.exp(log - (n + 1) / 2 * math.log1p(t * t / n))


def _distribution(n: int, t: float) -> float:
    """Return the probability of at most t >= 0."""
    return 1 - student_chance(n, t) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (Lentz's method)."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            value *= d * c
        if abs(d * c - 1) < 1e-16:
            break
    return math.exp(log) * value / a
