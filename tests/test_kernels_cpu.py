"""Numba kernels give the bits of the tensor code; and where there are kernels."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

import brinell.perturb.difference as measuring
from brinell import kernels
from brinell.criteria.verdict import verdict
from brinell.draws import Draws, key
from brinell.models.preprocess import Format, Preprocess
from brinell.perturb import blur, colour, exchange, occlusion
from brinell.perturb.levels import to_whole
from brinell.perturb.property import PROPERTIES
from brinell.perturb.warp import warp
from brinell.perturb.weather import draw_plasma

FOLDER = Path(kernels.__file__).parent
SHARED = sorted(
    {file.stem for file in (FOLDER / "cpu").glob("*.py")} & {file.stem for file in (FOLDER / "cuda").glob("*.py")}
)
SHAPES = [(2, 3, 224, 224), (2, 1, 9, 13), (3, 3, 1, 1), (1, 3, 300, 301), (2, 2, 8, 8)]


@contextmanager
def no_kernels() -> Iterator[None]:
    """Use tensor code."""
    asking = [module for name, module in sys.modules.items() if name.startswith("brinell.") and name != kernels.__name__]
    with pytest.MonkeyPatch.context() as patch:
        for module in asking:
            if hasattr(module, "kernels_for"):
                patch.setattr(module, "kernels_for", lambda name, tensor: None)
        yield


def both(work: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the results of some work with kernels and without."""
    pytest.importorskip("numba")
    with no_kernels():
        plain = work()
    return work(), plain


def grey_levels(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


@pytest.mark.parametrize("name", [name for name in SHARED if name not in ("__init__", "hashed_draws")])
def test_kernels_for_both_devices_have_the_same_functions(name: str) -> None:
    """As their source says: Triton is not installed everywhere."""
    pytest.importorskip("numba")
    cpu = importlib.import_module(f"brinell.kernels.cpu.{name}")
    functions = {
        found: value
        for found, value in vars(cpu).items()
        if inspect.isfunction(value) and not found.startswith("_") and value.__module__ == cpu.__name__
    }
    source = (FOLDER / "cuda" / f"{name}.py").read_text(encoding="utf-8")
    assert functions
    for found, function in functions.items():
        start = source.index(f"def {found}(")
        assert all(
            f"{parameter}" in source[start:].partition(":\n")[0] for parameter in inspect.signature(function).parameters
        )


@pytest.mark.parametrize("step", [0, 3, torch.arange(8)], ids=["first", "fourth", "of each image"])
def test_keys_of_draws(step: int | Tensor) -> None:
    made, plain = both(lambda: Draws.of(key(0, "draws"), torch.arange(-3, 5) * (1 << 60), step).keys)
    assert torch.equal(made, plain)


DRAWN: dict[str, Callable[[Draws, int, int], Tensor]] = {
    "bits": lambda draws, purpose, count: draws.bits(purpose, count),
    "below": lambda draws, purpose, count: draws.below(purpose, count, 97),
    "far below": lambda draws, purpose, count: draws.below(purpose, count, 1 << 31),
    "between": lambda draws, purpose, count: draws.between(purpose, count, -5, 9),
    "uniform": lambda draws, purpose, count: draws.uniform(purpose, count),
}


@pytest.mark.parametrize("purpose", [0, 1, 12345, -3])
@pytest.mark.parametrize("count", [0, 1, 1001])
@pytest.mark.parametrize("kind", DRAWN)
def test_draws(kind: str, count: int, purpose: int) -> None:
    draws = Draws(torch.tensor([-1, 0, 1, 1 << 62, -(1 << 62)]))
    made, plain = both(lambda: DRAWN[kind](draws, purpose, count))
    assert made.dtype == plain.dtype
    assert torch.equal(made, plain)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_distances(shape: tuple[int, ...]) -> None:
    clean, other = grey_levels(shape, 0), grey_levels(shape, 1)
    some = torch.where(grey_levels(shape, 2) < 100, clean, other)
    extremes = torch.where(grey_levels(shape, 3) < 128, 0, 255).to(torch.uint8)
    for changed in (clean, other, some, extremes, 255 - extremes):
        for start in (clean, clean[:1], extremes):
            made, plain = both(lambda start=start, changed=changed: measuring.difference(start, changed))
            for field, expected in vars(plain).items():
                assert torch.equal(getattr(made, field), expected), field
    turned, plain = both(lambda: measuring.difference(clean.mT, other.mT))
    assert torch.equal(turned.l1, plain.l1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mean_grey_values(shape: tuple[int, ...]) -> None:
    for images in (grey_levels(shape, 0), grey_levels(shape, 1).mT, torch.full(shape, 255, dtype=torch.uint8)):
        made, plain = both(lambda images=images: measuring.mean_grey(images))
        assert torch.equal(made, plain)


# operators that have a kernel of their own, and the smallest side that they take
CHANGES: dict[str, tuple[Callable[[Tensor, Draws], Tensor], int]] = {
    "blurred rectangles": (blur.local_blur, 1),
    "averaged rectangles": (blur.local_blur_as_written, 1),
    "boxes": (occlusion.boxes, 1),
    "boxes as written": (occlusion.boxes_as_written, 1),
    "copied pixels": (exchange.pixel_exchange, 1),
    "swapped pixels": (exchange.swap_pixels, 1),
    "copied neighbours": (exchange.adjacent_exchange, 1),
    "swapped neighbours": (exchange.swap_neighbours, 1),
    "faded to black": (lambda images, draws: colour.fade_black(images), 1),
    "faded to white": (lambda images, draws: colour.fade_white(images), 1),
    "faded to grey": (lambda images, draws: colour.fade_grey(images), 1),
    "posterised": (lambda images, draws: colour.posterise(images, torch.tensor([1, 30, 77])), 1),
}
SIZES = [(1, 1), (1, 5), (2, 2), (3, 4), (8, 9), (33, 5), (40, 64), (224, 224)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CHANGES)
def test_operators(name: str, size: tuple[int, int]) -> None:
    change, least = CHANGES[name]
    if min(size) < least:
        pytest.skip(f"{name} have sides of at least {least} pixels")
    for channels, step in ((1, 0), (3, 7)):
        images = grey_levels((3, channels, *size), step)
        before = images.clone()
        draws = Draws.of(key(0, name), torch.arange(3), step)
        made, plain = both(lambda images=images, draws=draws: change(images, draws))
        assert torch.equal(made, plain)
        assert torch.equal(images, before)


def test_all_colours_fade_to_grey() -> None:
    pytest.importorskip("numba")
    for part in torch.arange(1 << 24).view(16, 1 << 10, 1 << 10):
        images = torch.stack([part >> shift & 0xFF for shift in (16, 8, 0)]).to(torch.uint8)[None]
        assert torch.equal(colour.fade_grey(images), colour._fade_colours(images))


@pytest.mark.parametrize("size", [(8, 8), (9, 13), (40, 64)], ids=str)
@pytest.mark.parametrize("name", PROPERTIES)
def test_properties(name: str, size: tuple[int, int]) -> None:
    """In whole grey levels and not, of grey and of colour images; more of them than are changed at once."""
    found, ids = PROPERTIES[name], torch.arange(10)
    for channels, whole in ((1, True), (3, True), (3, False)):
        images = grey_levels((10, channels, *size), channels)
        track = found.tracks(*size)[0]
        severities = track[torch.linspace(0, len(track) - 1, 10).long()].to(torch.float64)
        severities[3] = 0
        change = found.rounded() if whole else found
        made, plain = both(lambda given=(images, severities, change): given[2].apply(*given[:2], seed=1, ids=ids))
        assert made.dtype == plain.dtype
        assert torch.equal(made, plain)


MATRICES = {
    "still": torch.eye(3),
    "half a pixel": torch.tensor([[1, 0, 0.5], [0, 1, -0.5], [0, 0, 1]]),
    "rotated": torch.tensor([[0.6, -0.8, 3], [0.8, 0.6, -2.3], [0, 0, 1]]),
    "enlarged": torch.tensor([[3.3, 0, -9], [0, 2.9, -8], [0, 0, 1]]),
    "far away": torch.tensor([[1, 0, 1e9], [0, 1, -1e9], [0, 0, 1]]),
    "a projection": torch.tensor([[0.9, 0.1, 2], [0, 1.1, 1], [0.02, -0.015, 1]]),
    "partly behind the camera": torch.tensor([[1, 0, 0], [0, 1, 0], [0.2, 0.1, -1.5]]),
}


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("name", MATRICES)
def test_warps(name: str, channels: int) -> None:
    for size in ((1, 1), (5, 9), (31, 64)):
        images = grey_levels((2, channels, *size), 0)
        images[1] = 255
        matrices = MATRICES[name].to(torch.float64).expand(2, 3, 3)
        made, plain = both(lambda given=(images, matrices): warp(*given))
        assert torch.equal(made, plain)


@pytest.mark.parametrize("octaves", [1, 2, 5, 8])
def test_plasmas(octaves: int) -> None:
    images, ratio = torch.zeros(3, 1, 2**octaves, 2**octaves), torch.tensor([0.2, 0.5, 1], dtype=torch.float64)
    draws = Draws.of(key(0, "plasma"), torch.arange(3), 0)
    made, plain = both(lambda: draw_plasma(draws, images, ratio))
    assert torch.equal(made, plain)


def test_whole_levels() -> None:
    levels = torch.cat([torch.arange(-2, 258, 0.125), torch.tensor([-1e9, 1e9, 0.49999997, 254.5, 255.5])])
    made, plain = both(lambda: to_whole(levels.clone()))
    assert torch.equal(made, plain)


@pytest.mark.parametrize("pairs", exchange.PAIRS)
@pytest.mark.parametrize("swap", [False, True])
def test_a_pixel_that_is_written_many_times(pairs: str, swap: bool) -> None:
    """In more exchanges than a kernel draws at once."""
    images, draws = grey_levels((2, 3, 3, 4), 0), Draws.of(key(0, "often"), torch.arange(2), 0)
    made, plain = both(lambda: exchange._exchange(images, draws, 1300, pairs, swap=swap))
    assert torch.equal(made, plain)


def test_kernels_know_all_ways_of_drawing_pairs() -> None:
    pytest.importorskip("numba")
    assert set(importlib.import_module("brinell.kernels.cpu.exchange").PAIRS) == set(exchange.PAIRS)


@pytest.mark.parametrize("bgr", [False, True])
@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
def test_normalised_images(shape: tuple[int, ...], bgr: bool) -> None:
    images, channels = grey_levels(shape, 0), shape[1]
    for mean, std in [((0.485, 0.456, 0.406)[:channels], (0.229, 0.224, 0.225)[:channels]), ((0.5,), (0.3,))]:
        preprocess = Preprocess(mean=mean, std=std, bgr=bgr and channels == 3)
        for given in (images, images.flip(1), images.mT):
            made, plain = both(lambda given=given, preprocess=preprocess: preprocess.normalise(given))
            assert made.dtype == plain.dtype == torch.float32
            assert made.is_contiguous()
            assert torch.equal(made, plain)


def test_normalised_images_of_any_format() -> None:
    images = grey_levels((2, 3, 9, 12), 0)
    for form in (Format(memory=torch.channels_last), Format(torch.bfloat16), Format(torch.float16, torch.channels_last)):
        made, plain = both(lambda form=form: Preprocess(mean=(0.4,), std=(0.3,)).normalise(images, form))
        assert (made.dtype, made.stride()) == (plain.dtype, plain.stride())
        assert torch.equal(made, plain)


@pytest.mark.parametrize("classes", [1, 2, 1000])
def test_verdicts(classes: int) -> None:
    """Also with ties, which rank by index, and with NaN, which is the prediction where there is one."""
    generator = torch.Generator().manual_seed(classes)
    probabilities = torch.rand(60, classes, generator=generator)
    probabilities[10:30] = probabilities[10:30].mul(4).round()
    probabilities[30:40, classes // 2] = torch.nan
    probabilities[35:40, 0] = torch.nan
    probabilities[40] = torch.inf
    labels = torch.randint(0, classes, (60,), generator=generator)
    labels[30:33] = classes // 2
    for some in (probabilities, probabilities[::2], probabilities.T.contiguous().T):
        made, plain = both(lambda some=some: verdict(some, labels[: len(some)]))
        for name in ("prediction", "confidence", "rank", "probability"):
            own, expected = getattr(made, name), getattr(plain, name)
            assert own.dtype == expected.dtype
            assert torch.equal(own.nan_to_num(-7.0), expected.nan_to_num(-7.0)), name


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_that_are_no_outputs_are_refused(label: int) -> None:
    """Numba checks no bounds."""
    pytest.importorskip("numba")
    probabilities, labels = torch.rand(2, 3), torch.tensor([0, label])
    with pytest.raises(IndexError, match="none of the outputs"):
        importlib.import_module("brinell.kernels.cpu.verdict").verdict(probabilities, labels)


def test_a_gpu_has_no_kernel_for_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels work there, but not all modules exist: the stand-in for a tensor has a device and no values."""
    monkeypatch.setattr(kernels, "_works", lambda folder, device: True)
    tensor: Any = SimpleNamespace(is_cuda=True, device=torch.device("cuda"))
    assert kernels.kernels_for("verdict", tensor) is None


def test_no_input_is_overwritten() -> None:
    pytest.importorskip("numba")
    clean, changed = grey_levels((2, 3, 20, 30), 0), grey_levels((2, 3, 20, 30), 1)
    before = clean.clone(), changed.clone()
    measuring.difference(clean, changed)
    Preprocess(bgr=True).normalise(changed)
    assert torch.equal(clean, before[0])
    assert torch.equal(changed, before[1])


def test_a_device_without_kernels_and_a_module_without_kernels_for_it() -> None:
    pytest.importorskip("numba")
    assert kernels.kernels_for("difference", torch.zeros(1, device="meta")) is None
    assert kernels.kernels_for("jpeg", torch.zeros(1)) is None
    assert kernels.kernels_for("difference", torch.zeros(1)) is not None


def test_without_numba_there_are_no_kernels_for_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not kernels.numba_works.__wrapped__()


def test_numba_that_cannot_be_imported_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(name: str) -> Any:
        raise ImportError("Numba needs NumPy 2.4 or less. Got NumPy 9.0.\nmore")

    monkeypatch.setattr(kernels.importlib, "import_module", refuse)
    caplog.set_level("INFO")
    assert not kernels._works.__wrapped__("cpu", torch.device("cpu"))
    assert "No kernels on cpu: Numba needs NumPy 2.4 or less" in caplog.text
    assert "more" not in caplog.text


def test_numba_that_does_not_compile_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    assert kernels._works.__wrapped__("cpu", torch.device("cpu"))
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert not kernels._works.__wrapped__("cpu", torch.device("cpu"))


def make_kernel() -> Any:
    """Return a kernel of the same name every time."""

    def add_three(values: Any) -> None:
        values[0] += 3

    return importlib.import_module("brinell.kernels.cpu.compiled").kernel(add_three)


def test_kernels_without_a_folder_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    caching = importlib.import_module("numba.core.caching")

    def refuse(self: object) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    values = np.zeros(1)
    make_kernel()(values)
    assert values[0] == 3


def test_machine_code_that_is_damaged_or_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    values = np.zeros(1)
    make_kernel()(values)
    stored = [file for file in tmp_path.rglob("*") if file.is_file()]
    digest = importlib.import_module("brinell.kernels.cpu.compiled")._digest()
    assert any(f"-{digest}" in file.name for file in stored)
    for file in stored:
        file.write_bytes(b"")
    make_kernel()(values)
    for file in stored:
        file.unlink()
        file.mkdir()  # nothing can be written in its place
    make_kernel()(values)
    assert values[0] == 9


def test_severities_and_levels_out_of_range_stay_inside_the_image() -> None:
    """Numba checks no bounds."""
    images = grey_levels((2, 3, 40, 64), 0)
    found = PROPERTIES["snow:dsn2020"]
    severities = torch.tensor([[1.01], [1000.0]], dtype=torch.float64)
    made, plain = both(lambda: found.apply(images, severities, seed=0, ids=torch.arange(2)))
    assert torch.equal(made, plain)
    assert torch.equal(
        colour.posterise(images, torch.tensor([-(10**8), 10**8])), colour.posterise(images, torch.tensor([0, 30]))
    )
    tiny = torch.diag(torch.tensor([1e-307, 1e-307, 1], dtype=torch.float64)).expand(2, 3, 3)
    assert warp(images, tiny).shape == images.shape


@pytest.mark.parametrize("channels", [2, 4])
def test_images_of_other_channels_do_not_fade_to_grey(channels: int) -> None:
    with pytest.raises((cv2.error, ValueError, RuntimeError)):
        colour.fade_grey(grey_levels((1, channels, 4, 4), 0))
