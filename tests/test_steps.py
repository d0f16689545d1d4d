"""Images under a step operator are found again at their level, however they are asked for."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from brinell.perturb.steps import StepCache

COUNT = 12


def clean() -> torch.Tensor:
    return torch.arange(COUNT, dtype=torch.uint8)[:, None, None, None].repeat(1, 3, 4, 4)


def advance(cache: StepCache, first: int, end: int, wanted: int, *, scattered: bool = False) -> None:
    """Ask for samples at a level, check them, and keep new ones: each level adds 16 to all values."""
    samples = torch.arange(first, end)
    rows = samples if scattered else slice(first, end)
    start, images = cache.at(samples, rows, torch.full((end - first,), wanted))
    assert bool((start <= wanted).all())
    assert torch.equal(images, clean()[first:end] + 16 * start.to(torch.uint8)[:, None, None, None])
    cache.keep(samples, rows, torch.full((end - first,), wanted), clean()[first:end] + 16 * wanted)


@pytest.mark.parametrize("seed", range(20))
def test_any_samples_in_any_order(seed: int) -> None:
    choose = random.Random(seed)
    inputs = clean()
    cache = StepCache(inputs)
    for operator in ("one", "two", "two", "one"):
        cache.begin(operator)
        for _ in range(30):
            first = choose.randrange(COUNT)
            advance(cache, first, choose.randint(first + 1, COUNT), choose.randrange(8), scattered=choose.random() < 0.3)
    assert torch.equal(inputs, clean())


def test_chains_side_by_side() -> None:
    cache = StepCache(clean())
    cache.begin("operator")

    def follow(first: int) -> None:
        for level in range(1, 13):
            advance(cache, first, first + 3, level)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(40):
            list(pool.map(follow, range(0, COUNT, 3)))


def test_images_on_an_accelerator_are_copied_before_any_is_written() -> None:
    """Batches are computed in streams that don't wait for each other: none may copy what another has written to."""
    inputs = torch.empty(2, 3, 4, 4, dtype=torch.uint8, device="meta")
    cache = StepCache(inputs)
    cache.begin("operator")
    assert cache._images is not inputs


def test_a_level_counts_only_with_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """An accelerator may have no memory for them; the batch is then halved and made again."""
    cache = StepCache(clean())
    cache.begin("operator")

    def no_memory(rows: torch.Tensor | slice, images: torch.Tensor) -> None:
        raise torch.OutOfMemoryError

    samples = torch.arange(3)
    with monkeypatch.context() as patched, pytest.raises(torch.OutOfMemoryError):
        patched.setattr(cache, "_write", no_memory)
        cache.keep(samples, samples, torch.ones(3, dtype=torch.int64), clean()[:3] + 16)
    advance(cache, 0, 3, 1)


def test_images_of_a_chain_are_not_copied() -> None:
    cache = StepCache(clean())
    cache.begin("operator")
    samples, made = torch.arange(3), clean()[:3] + 16
    cache.keep(samples, slice(0, 3), torch.ones(3, dtype=torch.int64), made)
    start, images = cache.at(samples, slice(0, 3), torch.full((3,), 2))
    assert start.tolist() == [1, 1, 1]
    assert images.data_ptr() == made.data_ptr()
