"""Weights of sampled rows, in SQL: a row stands for as many rows of a full run as 1 / its probability of inclusion."""

from __future__ import annotations

WEIGHT = "1 / coalesce(inclusion, 1)"


def weighted_mean(value: str) -> str:
    """Return the SQL for the mean of a value over a full run's rows, from those that were sampled (Hájek 1971).

    Where nothing was left out, it is the plain mean, bit by bit, for whole numbers.
    """
    return f"sum({value} * {WEIGHT}) / sum({WEIGHT}) filter ({value} is not null)"
