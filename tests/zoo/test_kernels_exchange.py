"""The kernels that exchange pixels, interpreted on the CPU: the tensor code's bits, and those of a plain loop."""

from __future__ import annotations

import pytest
import torch

import reference
from brinell.draws import Draws, key
from brinell.perturb import exchange

IDS = torch.tensor([123456789012345, -77, 5])
DRAWS = Draws.of(key("exchanges"), IDS)


def noise(channels: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (len(IDS), channels, height, width), generator=generator, dtype=torch.uint8)


def one_by_one(images: torch.Tensor, pairs: tuple[torch.Tensor, torch.Tensor], *, swap: bool) -> torch.Tensor:
    made = images.permute(0, 2, 3, 1).contiguous().numpy().copy()
    for image, first, second in zip(made, *pairs, strict=True):
        (reference.swap if swap else reference.copy)(image, list(zip(first.tolist(), second.tolist(), strict=True)))
    return torch.from_numpy(made).permute(0, 3, 1, 2)


@pytest.mark.parametrize("swap", [False, True], ids=["copies", "swaps"])
@pytest.mark.parametrize("pairs", list(exchange.PAIRS))
@pytest.mark.parametrize(("height", "width", "count"), [(2, 2, 9), (4, 4, 64), (8, 8, 24), (9, 23, 88), (5, 31, 1)])
def test_exchanges_are_made_one_after_the_other(interpreted, pairs, swap, height, width, count) -> None:
    """Also where each of a few pixels is written many times."""
    kernels = interpreted("exchange")
    drawn = exchange.PAIRS[pairs](DRAWS, count, height, width)
    for channels in (1, 3):
        images = noise(channels, height, width)
        before = images.clone()
        made = kernels.exchange(images, DRAWS.keys, count, pairs, swap=swap)
        assert torch.equal(made, one_by_one(images, drawn, swap=swap))
        replayed = exchange._replay(images, *(exchange._both_ways(*drawn) if swap else drawn))
        assert torch.equal(made, replayed)
        assert torch.equal(images, before)


def test_images_that_lie_otherwise_in_memory(interpreted) -> None:
    images = noise(3, 6, 7).permute(0, 1, 3, 2)
    made = interpreted("exchange").exchange(images, DRAWS.keys, 50, "random", swap=False)
    assert torch.equal(made, exchange._replay(images, *exchange._random_pairs(DRAWS, 50, 7, 6)))
