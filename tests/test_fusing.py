"""Networks whose convolutions do the work of batch norms, sums and ReLUs: the same scores by fewer steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from brinell.config.execution import Execution
from brinell.models.compile_choice import EAGER, expecting
from brinell.models.fusing import FusedConvolution, fold_batch_norms, folded_when_called, fuse_activations
from brinell.models.modules import _accelerated
from brinell.models.preprocess import Preprocess


def network(*, shared: bool = False, used_twice: bool = False, by_shape: bool = False) -> nn.Module:
    """Return a residual network with batch norms that change what they get; the options stand in the way of fusing."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
            self.first, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8)
            self.second, self.norm2 = nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8)
            self.last = nn.Linear(8, 5)

        def forward(self, images: Tensor) -> Tensor:
            kept = self.stem(images)
            made = torch.relu(self.norm1(self.first(kept)))
            if shared:
                made = torch.relu(self.norm1(self.first(made)))
            plain = self.second(made)
            made = self.norm2(plain)
            if used_twice:
                made = made + plain
            if by_shape and made.sum() > 0:
                made = made * 2
            made += kept
            return self.last(nn.functional.relu(made).mean((2, 3)))

    torch.manual_seed(0)
    made = Residual().eval().requires_grad_(False)
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            for values in (part.running_mean, part.running_var, part.weight, part.bias):
                values.uniform_(0.5, 1.5)
    return made


def count(module: nn.Module, kind: type[nn.Module]) -> int:
    return sum(type(part) is kind for part in module.modules())


def test_all_is_done_by_convolutions() -> None:
    plain, images = network(), torch.rand(4, 3, 16, 16)
    folded = fold_batch_norms(plain)
    assert folded is not None and count(folded, nn.BatchNorm2d) == 0 and count(plain, nn.BatchNorm2d) == 3
    fused = fuse_activations(folded)
    assert fused is not None and count(fused, FusedConvolution) == 3 and count(fused, nn.ReLU) == 0
    names = [str(node.target) for node in fused.graph.nodes if node.op == "call_function"]
    assert not any("relu" in name or "add" in name for name in names)
    for made in (folded, fused):
        assert torch.allclose(made(images), plain(images), atol=1e-5)


@pytest.mark.parametrize("option", ["shared", "used_twice"])
def test_what_is_needed_elsewhere_stays(option: str) -> None:
    plain, images = network(**{option: True}), torch.rand(2, 3, 16, 16)
    folded = fold_batch_norms(plain)
    assert folded is not None and count(folded, nn.BatchNorm2d) == 1
    fused = fuse_activations(folded)
    assert fused is not None
    assert torch.allclose(fused(images), plain(images), atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [lambda: network(by_shape=True), lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU6())],
    ids=["steps", "no norm"],
)
def test_other_networks_are_left_alone(make: Callable[[], nn.Module]) -> None:
    assert fold_batch_norms(make()) is None


@pytest.mark.parametrize("where", ["", "stem.0"])
def test_networks_with_hooks_are_left_alone(where: str) -> None:
    """A traced module would not call them."""
    before, after = network(), network()
    before.get_submodule(where).register_forward_pre_hook(lambda _, given: (given[0] / 2,))
    after.get_submodule(where).register_forward_hook(lambda _, given, made: made / 2)
    assert fold_batch_norms(before) is None and fold_batch_norms(after) is None


def test_weights_that_are_read_elsewhere_stay() -> None:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)

        def forward(self, images: Tensor) -> Tensor:
            made: Tensor = self.norm(self.convolution(images)) + self.convolution.weight.sum()
            return made

    assert fold_batch_norms(Reading()) is None


def test_a_network_that_cannot_be_copied_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    plain = network()
    plain.lock = threading.Lock()
    with expecting(10**9, None):
        found = _accelerated(plain, Preprocess(16, 16), "none", Execution(device="cpu"))
    assert found.runtime == EAGER and found.forward(torch.rand(2, 3, 16, 16)).shape == (2, 5)


def test_no_activation_to_fuse() -> None:
    folded = fold_batch_norms(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.SiLU()))
    assert folded is not None and fuse_activations(folded) is None


def test_folded_networks_have_the_same_gradients() -> None:
    plain, placed = network(), list[nn.Module]()

    def place(folded: nn.Module) -> nn.Module:
        placed.append(folded)
        return folded

    forward, images = folded_when_called(plain, plain, place), torch.rand(4, 3, 16, 16, requires_grad=True)
    assert not placed  # nothing is folded before it is called
    own, true = (torch.autograd.grad(run(images)[:, 2].sum(), images)[0] for run in (forward, plain))
    assert torch.allclose(own, true, rtol=1e-4, atol=1e-6)
    assert own.abs().max() > 1e-3
    forward(images)
    assert [count(each, nn.BatchNorm2d) for each in placed] == [0]


def test_networks_that_are_first_called_in_inference_mode_have_gradients() -> None:
    plain, images = network(), torch.rand(2, 3, 16, 16)
    forward = folded_when_called(plain, plain, lambda folded: folded)
    with torch.inference_mode():
        forward(images.clone())
    pixels = images.requires_grad_()
    assert torch.autograd.grad(forward(pixels).sum(), pixels)[0].abs().max() > 1e-3


class Rounded(torch.autograd.Function):
    """Rounds forward, and passes gradients on."""

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return values.round()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return gradient


class Special(nn.Module):
    """Does, after a network, something that tracing forgets or takes for something else."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.network = kind, network()

    def forward(self, images: Tensor) -> Tensor:
        if self.kind == "constant":
            with torch.no_grad():
                scores: Tensor = self.network(images)
            return scores + images.mean()
        if self.kind == "branch":
            return self.network(images) if isinstance(images, Tensor) else self.network(-images)
        if self.kind == "failure":
            return self.network(images) if isinstance(images, Tensor) else self.network(images[0])
        return Rounded.apply(self.network(images) * 8)


@pytest.mark.parametrize("kind", ["constant", "branch", "failure", "function"])
def test_networks_that_cannot_be_traced_have_their_own_gradients(kind: str) -> None:
    plain, images = Special(kind), torch.rand(2, 3, 16, 16, requires_grad=True)
    assert fold_batch_norms(plain) is not None
    forward = folded_when_called(plain, plain, lambda folded: folded)
    own, true = (torch.autograd.grad(run(images)[:, 2].sum(), images)[0] for run in (forward, plain))
    assert torch.equal(own, true) and true.abs().max() > 0


def test_networks_without_batch_norms_have_their_own_gradients() -> None:
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(folded_when_called(plain, plain, lambda folded: nn.Identity())(images), plain(images))
