"""OpenVINO as a runtime of ONNX files on a CPU, with the few methods of an onnxruntime session that are used here."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from brinell.errors import MissingExtra, ModelError

_TYPES = {"f32": "tensor(float)", "f16": "tensor(float16)", "u8": "tensor(uint8)"}


@dataclass(frozen=True)
class Port:
    """An input or output: a side that may have any length is None."""

    name: str
    shape: list[int | None]
    type: str


def is_installed() -> bool:
    """Whether OpenVINO can be imported; it is not, as that takes a while."""
    return find_spec("openvino") is not None


class OpenVinoSession:
    """A compiled ONNX file. Threads run batches side by side, each on one core."""

    def __init__(self, path: Path) -> None:
        try:
            import openvino
        except ImportError:
            raise MissingExtra("openvino", "openvino") from None
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        options = {
            "INFERENCE_PRECISION_HINT": "f32",  # otherwise bf16 on processors that have it
            "NUM_STREAMS": cores,  # as many batches as there may be side by side, however many threads torch has now
            "INFERENCE_NUM_THREADS": cores,  # one for each stream
            "ENABLE_CPU_PINNING": False,  # other processes may use the same cores
        }
        try:
            self._model = openvino.Core().compile_model(str(path), "CPU", options)
        except RuntimeError as error:
            raise ModelError(f"OpenVINO can't load {path.name}: {str(error).strip().splitlines()[-1]}") from error
        self._own = threading.local()

    def get_inputs(self) -> list[Port]:
        """Return the inputs."""
        return [_port(each) for each in self._model.inputs]

    def get_outputs(self) -> list[Port]:
        """Return the outputs."""
        return [_port(each) for each in self._model.outputs]

    def run(self, outputs: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the named outputs."""
        if not hasattr(self._own, "request"):
            self._own.request = self._model.create_infer_request()  # one for each thread
        found = self._own.request.infer(inputs, share_inputs=True)
        return [found[name] for name in outputs]


def _port(port: Any) -> Port:
    shape = [axis.get_length() if axis.is_static else None for axis in port.get_partial_shape()]
    kind = port.get_element_type().get_type_name()
    return Port(port.get_any_name(), shape, _TYPES.get(kind, kind))
