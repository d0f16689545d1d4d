"""The kernels that draw random numbers on CUDA devices, interpreted on a CPU: the same bits."""

from __future__ import annotations

import pytest
import torch

from brinell import draws as drawing
from brinell.draws import Draws, key

IDS = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 7919 << 40, -12345678901234567])


@pytest.fixture
def kernels(interpreted, monkeypatch: pytest.MonkeyPatch):
    found = interpreted("draws")
    return lambda: monkeypatch.setattr(drawing, "kernels_for", lambda name, tensor: found)


@pytest.mark.parametrize("name", [key(3, "law"), 1, -1, -(2**63), 2**31])
def test_keys_have_the_bits_of_a_cpu(kernels, name: int) -> None:
    steps = torch.arange(len(IDS)) * 3
    expected = [Draws.of(name, IDS, step).keys for step in (0, 1, 30, steps)]
    kernels()
    found = [Draws.of(name, IDS, step).keys for step in (0, 1, 30, steps)]
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_keys_of_more_images_than_a_program_makes(kernels) -> None:
    ids = torch.arange(600)[::2]
    expected = Draws.of(5, ids, 2).keys
    kernels()
    assert torch.equal(Draws.of(5, ids, 2).keys, expected)


@pytest.mark.parametrize("count", [1, 31, 1024, 1500])
def test_draws_have_the_bits_of_a_cpu(kernels, count: int) -> None:
    stream = Draws.of(key(3, "law"), IDS, 5)

    def drawn() -> list[torch.Tensor]:
        return [
            stream.bits(0, count),
            stream.bits(7, count),
            stream.below(1, count, 1),
            stream.below(1, count, 50176),
            stream.below(1, count, 2**33 + 5),  # wraps
            stream.uniform(2, count),
            stream.between(3, count, -7, 1000),
            stream.between(3, count, 2**40, 2**40 + 1),
        ]

    expected = drawn()
    kernels()
    for found, other in zip(drawn(), expected, strict=True):
        assert found.dtype == other.dtype and torch.equal(found, other)
