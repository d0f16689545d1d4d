"""What the steps of a run share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from brinell.engine.progress import Reporter
from brinell.engine.ready import Ready
from brinell.engine.setup import RunSetup
from brinell.models.model import Model
from brinell.runs.parts import PartFile, settings_digest
from brinell.runs.store import Store


@dataclass(frozen=True)
class RunContext:
    """A run in progress; `ready` holds model inputs that needn't be decoded again."""

    store: Store
    setup: RunSetup
    samples: pa.Table
    manifest: dict[str, Any]
    pool: ThreadPoolExecutor
    reporter: Reporter
    ready: Ready = field(default_factory=Ready)
    part: PartFile | None = None  # the record of the part that this process measures; None: it measures everything

    # what every part writes alike, so that it doesn't matter which of them does
    together: ClassVar[frozenset[str]] = frozenset({"budget", "units", "shards", "finished"})

    @property
    def settings(self) -> str:
        """Digest of the run's settings."""
        return settings_digest(self.manifest["identity"])

    def save(self, *keys: str) -> None:
        """Store these entries of the manifest. The other entries are this process's to write only if it is alone.

        A part leaves the manifest alone where it says the same already, and keeps what is its own in its record.
        """
        if self.part is None:
            self.store.write_manifest(self.manifest)
            return
        own = {key: self.manifest[key] for key in keys if key in self.manifest}
        stored = self.store.manifest()
        changed = {key: value for key, value in own.items() if key in self.together and stored.get(key) != value}
        if changed:
            self.store.write_manifest({**stored, **changed})
        if kept := {key: value for key, value in own.items() if key not in self.together}:
            self.part.keep(kept)

    def batch(self, model: Model) -> int:
        """Return the batch size of a model."""
        return int(self.manifest["execution"]["batch"][model.name])

    def warn(self, warning: str) -> None:
        """Print a warning, and keep it in the manifest for the report."""
        self.reporter.say(f"warning: {warning}")
        self.manifest.setdefault("warnings", []).append(warning)
