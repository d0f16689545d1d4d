"""Counter-based random numbers: a draw is a pure function of its name.

A draw is named by (seed, image, operator, step, purpose, element) and computed from that name alone in integer
arithmetic, so it doesn't depend on batch size, order, workers, interruptions or the device. Nothing else in the package
draws random numbers (a linter rule forbids other sources).

Names are hashed in two stages. `key` hashes words to 64 bits on the host; `Draws.of` mixes key, image and step into one
64-bit key per image with the finaliser of splitmix64 (Steele, Lea, Flood 2014). `Draws.bits` then hashes a counter under
that key with triple32 (Wellons, "Prospecting for hash functions", 2018: three multiply-xorshift rounds, bias under 0.021),
adding one half of the key before the first round and the other half after it. int32 and int64 arithmetic wraps the same way
on every device; masks make right shifts logical. On a CPU the same is computed in NumPy, whose unsigned integers need no
masks, and on CUDA devices in one kernel.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from brinell.kernels import kernels_for

_LOW32 = 0xFFFFFFFF
_GOLDEN64 = 0x9E3779B97F4A7C15
_GOLDEN32 = 0x9E3779B1
# distance between the counters of two purposes, so that they share no element
_PURPOSE_STRIDE = 0x632BE5AB
_FACTORS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)  # of triple32


def _signed(value: int, width: int) -> int:
    """Return an unsigned constant as a signed integer in two's complement."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def key(*words: int | str) -> int:
    """Hash words to 64 bits, as a signed integer."""
    text = "\x1f".join(f"{type(word).__name__}:{word}" for word in words)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _mix64(x: Tensor) -> Tensor:
    """Apply the finaliser of splitmix64 to int64."""
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9, 64)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB, 64)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _xor_shift(x: Tensor, spare: Tensor, shift: int) -> None:
    """Compute `x ^= x >>> shift` in place; `spare` is overwritten."""
    torch.bitwise_right_shift(x, shift, out=spare)
    x.bitwise_xor_(spare.bitwise_and_((1 << (32 - shift)) - 1))


@dataclass(frozen=True)
class Draws:
    """One independent stream of random numbers per image; `keys` is int64 (B,)."""

    keys: Tensor

    @staticmethod
    def of(key: int, images: Tensor, step: int | Tensor = 0) -> Draws:
        """Return the streams of a batch of image ids, int64 (B,), under a key, at one step or one int64 step per image."""
        kernels = kernels_for("draws", images)
        if kernels is not None:
            return Draws(kernels.keys_of(images, key, step, stride=_GOLDEN64))
        offset = (step + 1) * _signed(_GOLDEN64, 64) if isinstance(step, Tensor) else _signed(_GOLDEN64 * (step + 1), 64)
        return Draws(_mix64(_mix64(images + offset) ^ key))

    def bits(self, purpose: int, count: int) -> Tensor:
        """Return 32 random bits per element, int32 (B, count)."""
        drawn = self._by_kernel("bits", purpose, count)
        if drawn is not None:
            return drawn
        return (_bits_on_host if self.keys.device.type == "cpu" else _bits_in_tensors)(self.keys, purpose, count)

    def below(self, purpose: int, count: int, bound: int) -> Tensor:
        """Return uniform integers in [0, bound), int64 (B, count); the bias is below bound / 2**32."""
        return self._whole(purpose, count, bound)

    def uniform(self, purpose: int, count: int) -> Tensor:
        """Return uniform numbers in (0, 1), float64 (B, count)."""
        drawn = self._by_kernel("uniform", purpose, count)
        if drawn is not None:
            return drawn
        return (self.bits(purpose, count).to(torch.int64).bitwise_and_(_LOW32).to(torch.float64) + 0.5) / 2**32

    def between(self, purpose: int, count: int, low: int, high: int) -> Tensor:
        """Return uniform integers in [low, high], like the papers' randint, int64 (B, count)."""
        return self._whole(purpose, count, high - low + 1, low)

    def _whole(self, purpose: int, count: int, bound: int, low: int = 0) -> Tensor:
        """Return uniform integers in [low, low + bound), int64 (B, count)."""
        drawn = self._by_kernel("below", purpose, count, bound, low)
        if drawn is not None:
            return drawn
        drawn = self.bits(purpose, count).to(torch.int64).bitwise_and_(_LOW32).mul_(bound).bitwise_right_shift_(32)
        return drawn.add_(low) if low else drawn

    def _by_kernel(self, kind: str, purpose: int, count: int, bound: int = 0, low: int = 0) -> Tensor | None:
        """Return draws of a kind, or None where there are no kernels."""
        kernels = kernels_for("draws", self.keys)
        if kernels is None:
            return None
        first = _signed(purpose * _PURPOSE_STRIDE, 32)
        drawn: Tensor = kernels.draw(self.keys, first, count, kind, bound=bound, low=low)
        return drawn


def _bits_in_tensors(keys: Tensor, purpose: int, count: int) -> Tensor:
    first, second = keys.to(torch.int32)[:, None], (keys >> 32).to(torch.int32)[:, None]
    counter = torch.arange(count, dtype=torch.int32, device=keys.device)
    counter = counter.mul_(_signed(_GOLDEN32, 32)).add_(_signed(purpose * _PURPOSE_STRIDE, 32))
    x = counter + first
    spare = torch.empty_like(x)
    _xor_shift(x, spare, 17)
    x.mul_(_signed(_FACTORS[0], 32)).add_(second)
    _xor_shift(x, spare, 11)
    x.mul_(_signed(_FACTORS[1], 32))
    _xor_shift(x, spare, 15)
    x.mul_(_signed(_FACTORS[2], 32))
    _xor_shift(x, spare, 14)
    return x


def _bits_on_host(keys: Tensor, purpose: int, count: int) -> Tensor:
    """Return the same bits, twice as fast as torch on a CPU."""
    both = keys.numpy().view(np.uint64)[:, None]
    first, second = both.astype(np.uint32), (both >> np.uint64(32)).astype(np.uint32)
    x = _counters(count) + (first + np.uint32(purpose * _PURPOSE_STRIDE & _LOW32))
    spare = np.right_shift(x, 17)
    x ^= spare
    x *= np.uint32(_FACTORS[0])
    x += second
    x ^= np.right_shift(x, 11, out=spare)
    x *= np.uint32(_FACTORS[1])
    x ^= np.right_shift(x, 15, out=spare)
    x *= np.uint32(_FACTORS[2])
    x ^= np.right_shift(x, 14, out=spare)
    return torch.from_numpy(x.view(np.int32))


@lru_cache(16)
def _counters(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32) * np.uint32(_GOLDEN32)


def permutation(count: int, seed: int) -> list[int]:
    """Return the numbers 0..count-1 in an order determined by the seed."""
    bits = Draws.of(key("shuffle", seed), torch.zeros(1, dtype=torch.int64)).bits(0, count)[0]
    return torch.argsort(bits, stable=True).tolist()
