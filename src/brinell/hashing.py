"""The integer arithmetic of random draws: keys from names, and two mixing functions; and hashes of files. No torch.

Tensors and NumPy arrays of integers wrap alike, so that `brinell.draws` and `brinell.comparison.resampling` draw the same
numbers from the same names.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

Integers = TypeVar("Integers", bound=Any)  # a tensor or an array of int64

GOLDEN32 = 0x9E3779B1
GOLDEN64 = 0x9E3779B97F4A7C15
TRIPLE32 = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)  # multipliers of triple32 (Wellons, "Prospecting for hash functions", 2018)


def to_signed(value: int, width: int) -> int:
    """Return an unsigned constant as a two's complement integer."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def key(*words: int | str) -> int:
    """Return 64 bits named by words, as a signed integer."""
    text = "\x1f".join(f"{type(word).__name__}:{word}" for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def mix64(x: Integers) -> Integers:
    """Return the finaliser of splitmix64 (Steele, Lea, Flood 2014) of int64 numbers."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * to_signed(0xBF58476D1CE4E5B9, 64)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * to_signed(0x94D049BB133111EB, 64)
    mixed: Integers = x ^ ((x >> 31) & ((1 << 33) - 1))
    return mixed


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
