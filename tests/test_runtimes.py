"""Which runtime computes a model: rules and measurements, without the runtimes themselves (tests/zoo has those)."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

import brinell
from brinell.config.execution import Execution
from brinell.errors import BrinellError, MissingExtra
from brinell.models import runtimes
from small_nets import SIDE, small


@pytest.mark.parametrize(
    ("other", "expected"), [(0.5, "openvino"), (0.94, "openvino"), (0.96, "onnxruntime"), (2.0, "onnxruntime")]
)
def test_openvino_has_to_be_clearly_faster(other: float, expected: str) -> None:
    assert runtimes.choose({"onnxruntime": 1.0, "openvino": other}) == expected


def test_runtimes_are_timed_in_turns_and_the_shortest_time_counts() -> None:
    """A clock that a runtime advances: the first batches, and every other one, are slow."""
    now, calls = [0.0], list[str]()

    def forward(name: str, seconds: float) -> runtimes.Forward:
        def run(images: Tensor) -> Tensor:
            calls.append(name)
            now[0] += seconds * (3 if calls.count(name) % 2 else 1)
            return images

        return run

    forwards = {"onnxruntime": forward("onnxruntime", 2.0), "openvino": forward("openvino", 1.0)}
    found = runtimes.seconds_each(forwards, torch.zeros(1), clock=lambda: now[0])
    assert found == {"onnxruntime": 2.0, "openvino": 1.0}
    assert calls == ["onnxruntime", "openvino"] * (runtimes.ROUNDS + 1)


def test_without_openvino_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtra, match=r"needs openvino, which is not installed: pip install .*\[openvino\]"):
        brinell.wrap(small(), size=SIDE, execution=Execution(runtime="openvino", device="cpu"))


def test_openvino_is_refused_where_it_does_not_run() -> None:
    with pytest.raises(BrinellError, match="runtime openvino needs the CPU, fp32 and no --compile"):
        brinell.wrap(small(), size=SIDE, execution=Execution(runtime="openvino", device="cpu", precision="bf16"))


def test_a_processor_has_a_name() -> None:
    assert runtimes.processor().strip()
