"""How a run is carried out on this machine. None of it changes what is measured."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from brinell.errors import ConfigError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Runtime = Literal["auto", "torch", "onnxruntime"]


class Execution(BaseModel):
    """Device, precision, batches and workers.

    `batch` is found by measuring where it is left out; `shard`, the images of a unit, is fixed when a run begins.
    `runtime` is how torch models run: "auto" takes onnxruntime on a CPU where it is installed (several times faster on
    depthwise networks), torch elsewhere. `max_queries` is how many images a run may send to models behind HTTP, retries
    and all, and `answers` the file that keeps what they answered (one for all of a user's runs, where it is left out).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str = "auto"
    precision: Precision = "fp32"
    runtime: Runtime = "auto"
    compile: bool = False
    channels_last: bool = True
    batch: int | None = Field(None, ge=1)
    shard: int | None = Field(None, ge=1)
    workers: int | None = Field(None, ge=1)
    trust: bool = False
    strict: bool = False
    max_queries: int | None = Field(None, ge=0)
    answers: str | None = None

    def torch_device(self) -> torch.device:
        """The device that "auto" means here, or the one asked for if it is there."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise ConfigError(f"there is no device {self.device!r}; use auto, cpu, cuda or cuda:N") from None
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ConfigError("device cuda was asked for, but torch sees no CUDA device here; use --device cpu or auto")
        return device
