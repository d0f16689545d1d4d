"""Random numbers that are a function of what they are for.

A draw is named by (seed, image, operator, step, purpose, element) and computed from that name alone with integer
arithmetic, so batch size, order, workers, a resume and the device can't change it. Nothing else in the package
draws (a linter rule forbids the other sources).

Names are hashed in two stages. `key` turns words into 64 bits on the host; `Draws.of` mixes keys, images and steps
into one 64-bit key an image with the finaliser of splitmix64 (Steele, Lea, Flood 2014). `Draws.bits` then hashes a
counter under that key with triple32 (Wellons, "Prospecting for hash functions", 2018: three multiply-xorshift rounds,
bias under 0.021), with half of the key added before the first round and half after it. int32 and int64 arithmetic
wraps alike on every device; right shifts are made logical by a mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.hashing import GOLDEN32, GOLDEN64, TRIPLE32, mix64, to_signed
from brinell.hashing import key as key

_LOW32 = 0xFFFFFFFF
# purposes start this far apart in the counter, so that no two of them share an element
_PURPOSE_STRIDE = 0x632BE5AB


def _xor_shift(x: Tensor, spare: Tensor, shift: int) -> None:
    """X ^= x >>> shift in place; `spare` is overwritten."""
    torch.bitwise_right_shift(x, shift, out=spare)
    x.bitwise_xor_(spare.bitwise_and_((1 << (32 - shift)) - 1))


@dataclass(frozen=True)
class Draws:
    """One independent stream of numbers per image: `keys` is int64 (B,)."""

    keys: Tensor

    @staticmethod
    def of(key: int, images: Tensor, step: int | Tensor = 0) -> Draws:
        """The streams of a batch of images (their ids as int64 (B,)) under a host key, at one step or one step each."""
        place = (step + 1) * to_signed(GOLDEN64, 64) if isinstance(step, Tensor) else to_signed(GOLDEN64 * (step + 1), 64)
        return Draws(mix64(mix64(images + place) ^ key))

    def bits(self, purpose: int, count: int) -> Tensor:
        """32 random bits an element as int32, (B, count)."""
        first = self.keys.to(torch.int32)[:, None]
        second = (self.keys >> 32).to(torch.int32)[:, None]
        counter = torch.arange(count, dtype=torch.int32, device=self.keys.device)
        counter = counter.mul_(to_signed(GOLDEN32, 32)).add_(to_signed(purpose * _PURPOSE_STRIDE, 32))
        x = counter + first
        spare = torch.empty_like(x)
        _xor_shift(x, spare, 17)
        x.mul_(to_signed(TRIPLE32[0], 32)).add_(second)
        _xor_shift(x, spare, 11)
        x.mul_(to_signed(TRIPLE32[1], 32))
        _xor_shift(x, spare, 15)
        x.mul_(to_signed(TRIPLE32[2], 32))
        _xor_shift(x, spare, 14)
        return x

    def below(self, purpose: int, count: int, bound: int) -> Tensor:
        """Uniform integers in [0, bound) as int64, (B, count); the bias is below bound / 2**32."""
        return self.bits(purpose, count).to(torch.int64).bitwise_and_(_LOW32).mul_(bound).bitwise_right_shift_(32)

    def uniform(self, purpose: int, count: int) -> Tensor:
        """Numbers in (0, 1) as float64, (B, count)."""
        return (self.bits(purpose, count).to(torch.int64).bitwise_and_(_LOW32).to(torch.float64) + 0.5) / 2**32

    def between(self, purpose: int, count: int, low: int, high: int) -> Tensor:
        """Uniform integers with both ends included, as the papers' randint."""
        return self.below(purpose, count, high - low + 1).add_(low)


def permutation(count: int, seed: int) -> list[int]:
    """The numbers 0..count-1 in an order named by the seed."""
    bits = Draws.of(key("shuffle", seed), torch.zeros(1, dtype=torch.int64)).bits(0, count)[0]
    return torch.argsort(bits, stable=True).tolist()
