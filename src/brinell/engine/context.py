"""What the steps of a run share."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from torch import Tensor

from brinell.engine.progress import Reporter
from brinell.engine.setup import RunSetup
from brinell.engine.shards import Entry
from brinell.models.model import Model
from brinell.runs.store import Store


@dataclass(frozen=True)
class RunContext:
    """A run in progress; `ready` are model inputs that needn't be decoded again, by their dataset index."""

    store: Store
    setup: RunSetup
    samples: pa.Table
    manifest: dict[str, Any]
    pool: ThreadPoolExecutor
    reporter: Reporter
    ready: dict[int, Tensor]

    def batch(self, model: Model) -> int:
        """Return the batch size of a model."""
        return int(self.manifest["execution"]["batch"][model.name])

    def warn(self, warning: str) -> None:
        """Print a warning, and keep it in the manifest for the report."""
        self.reporter.say(f"warning: {warning}")
        self.manifest.setdefault("warnings", []).append(warning)

    def keep_ready(self, entries: Sequence[Entry], inputs: Tensor) -> None:
        """Keep the inputs of the first model's first shard, so that it starts without decoding."""
        room = self.manifest["execution"]["shard"] - len(self.ready)
        self.ready.update((entry.index, image) for entry, image in zip(entries[:room], inputs, strict=False))
