"""Options that say how a run is executed on this machine. None of them changes what is measured."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from brinell.config.cluster import parse_cluster
from brinell.config.devices import parse_devices
from brinell.config.part import PartOfRun, parse_part
from brinell.errors import ConfigError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Runtime = Literal["auto", "torch", "onnxruntime", "openvino"]


class Execution(BaseModel):
    """Device, precision, runtime, batch sizes, workers and limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: str = Field("auto", description="Device: auto (a GPU if there is one), cpu, cuda or cuda:N.")
    precision: Precision = Field("fp32", description="Precision of torch models: fp32, tf32, bf16 or fp16.")
    runtime: Runtime = Field(
        "auto",
        description="Runtime of torch models: torch, onnxruntime (several times faster for depthwise networks on a CPU), "
        "openvino or auto. On a CPU, auto picks the faster of onnxruntime and openvino, if installed; otherwise torch, "
        "fused or compiled on a GPU if that pays off. ONNX files run in onnxruntime unless openvino is given.",
    )
    compile: bool = Field(False, description="Compile torch models with torch.compile.")
    channels_last: bool = Field(True, description="Run torch models in the channels-last memory format.")
    batch: int | None = Field(None, ge=1, le=65536, description="Batch size (default: auto).")
    shard: int | None = Field(
        None, ge=1, le=10_000_000, description="Images per unit of work, fixed when a run starts (default: auto)."
    )
    workers: int | None = Field(None, ge=1, le=1024, description="Number of worker threads (default: auto).")
    part: str | None = Field(
        None,
        description="Part of the run to measure, as i/n; several processes or machines can share a run's folder (default: "
        "the task of an array job on SLURM, Kubernetes, AWS Batch or Google Batch, otherwise the whole run).",
    )
    devices: str | None = Field(
        None, description="Devices of this machine to use in parallel, one process each: 0-7, 0,2, cuda:1 or cpu,cpu."
    )
    cluster: str | None = Field(
        None,
        description="Measure on Ray: ray (this machine, or the cluster in RAY_ADDRESS) or ray://HOST:PORT (extra: ray).",
    )
    actors: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Number of Ray actors, each with its own models (default: as many as fit).",
    )
    actor_gpus: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Share of a GPU per Ray actor; 0.5: two share one (default: 1 if the cluster has GPUs, else 0).",
    )
    trust: bool = Field(False, description="Allow model files and repositories to run code when they are loaded.")
    strict: bool = Field(False, description="Stop at the first unreadable image instead of skipping it.")
    max_queries: int | None = Field(
        None,
        ge=0,
        description="Maximum number of images to send to HTTP services, including retries (default: no limit).",
    )
    answers: str | None = Field(
        None, description="File that caches the responses of HTTP services (default: one file per user, for all runs)."
    )

    @field_validator("part")
    @classmethod
    def _check_part(cls, value: str | None) -> str | None:
        return None if value is None else str(parse_part(value))

    @field_validator("devices")
    @classmethod
    def _check_devices(cls, value: str | None) -> str | None:
        return None if value is None else ",".join(parse_devices(value))

    @field_validator("cluster")
    @classmethod
    def _check_cluster(cls, value: str | None) -> str | None:
        return None if value is None else parse_cluster(value)

    @model_validator(mode="after")
    def _check_workers(self) -> Self:
        if self.cluster is None and (self.actors is not None or self.actor_gpus is not None):
            raise ConfigError("--actors and --actor-gpus are options of Ray; add --on ray")
        if self.cluster is not None and self.devices is not None:
            raise ConfigError("--devices and --on can't be combined; use one of them")
        if self.device == "cpu" and self.actor_gpus:
            raise ConfigError("--device cpu uses no GPU; leave out --actor-gpus")
        return self

    @property
    def spread(self) -> bool:
        """Whether several workers measure, which this process hands shards to."""
        return self.devices is not None or self.cluster is not None

    def part_of_run(self) -> PartOfRun | None:
        """Return the part to measure; None: everything."""
        part = None if self.part is None else parse_part(self.part)
        return None if part is None or part.count == 1 else part
