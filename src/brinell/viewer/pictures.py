"""Images of runs, made where torch and the data are there, and taken from stored pictures otherwise."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from brinell.errors import BrinellError, RunError
from brinell.registry import load_reference
from brinell.report.exhibits import FILE
from brinell.runs.run import Run
from brinell.viewer.index import Opened
from brinell.viewer.stored import Stored

if TYPE_CHECKING:
    from torch import Tensor

    from brinell.models.model import Model
    from brinell.viewer.images import RunImages


class Pictures:
    """Images of all runs. `data` replaces the runs' data where that moved; `trust` allows models that run code."""

    def __init__(self, data: str | None = None, *, trust: bool = False) -> None:
        self.data, self.trust = data, trust
        self._runs: dict[tuple[str, Any], RunPictures] = {}
        self._lock = threading.Lock()

    def of(self, identity: str, opened: Opened) -> RunPictures:
        """Return the images of a run."""
        key = identity, opened.state
        with self._lock:
            if key not in self._runs:
                self._runs[key] = RunPictures(opened, self)
            return self._runs[key]


class RunPictures:
    """Images of one run."""

    def __init__(self, opened: Opened, pictures: Pictures) -> None:
        self.run, self._reading, self._pictures = opened.run, opened.lock, pictures
        self._made: RunImages | None = None
        self._models: dict[str, Model] = {}
        self._lock = threading.Lock()

    @property
    def made(self) -> RunImages:
        """What makes images; torch is imported here."""
        with self._lock:
            if self._made is None:
                images = load_reference("brinell.viewer.images:RunImages")
                self._made = images(self.run, self._pictures.data, self._open_model, self._reading)
            return self._made

    def _open_model(self, run: Run, model: str) -> Model:
        with self._lock:
            if model not in self._models:
                opener = load_reference("brinell.viewer.images:open_run_model")
                self._models[model] = opener(run, model, trust=self._pictures.trust)
            return self._models[model]

    def thumbnail(self, image: str) -> bytes:
        """Return a small picture of an image: made, or the stored exhibit of a run whose data is not here."""
        known = self._stored("thumbnails", image)
        if known is not None:
            return known
        try:
            return self.made.thumbnail(image)
        except BrinellError:
            exhibit = self._exhibit(image)
            if exhibit is None:
                raise
            return exhibit

    def photograph(self, image: str) -> bytes:
        """Return an original."""
        try:
            return self.made.photograph(image)
        except BrinellError:
            exhibit = self._exhibit(image)
            if exhibit is None:
                raise
            return exhibit

    def clean(self, model: str, image: str, kind: str) -> bytes:
        """Return a clean model input."""
        self._require(model)
        return self.made.clean(model, image, kind)

    def replay(self, model: str, lens: str, operator: str, image: str, *, at: Any, kind: str) -> bytes:
        """Return the pixels behind a row."""
        self._require(model)
        if lens not in self.run.lenses:
            raise RunError(f"the run in {self.run.folder} has no lens {lens!r}")
        pixels = self.made.replay(model, lens, operator, image, at=at)
        encoded: bytes = load_reference("brinell.viewer.images:encode")(pixels, kind)
        return encoded

    def saliency(self, model: str, image: str, row: tuple[str, str, Any] | None = None) -> bytes:
        """Return where a model looks: on a clean image, or on one that a row describes (lens, operator, parameters)."""
        return self.made.saliency(model, self._pixels(model, image, row))

    def masks(self, model: str, image: str, row: tuple[str, str, Any] | None = None) -> bytes:
        """Return the classes that a segmenter gives to the pixels of such an image."""
        return self.made.masks(model, self._pixels(model, image, row))

    def _pixels(self, model: str, image: str, row: tuple[str, str, Any] | None) -> Tensor:
        self._require(model)
        if row is None:
            return self.made.clean_pixels(model, image)
        lens, operator, at = row
        return self.made.replay(model, lens, operator, image, at=at)

    def boxes(self, model: str, lens: str, operator: str, image: str, *, at: Any, counterpart: Any) -> dict[str, Any]:
        """Return a detector's boxes on the image of a row, and on its counterpart (the clean image if that is None)."""
        self._require(model)
        if lens not in self.run.lenses:
            raise RunError(f"the run in {self.run.folder} has no lens {lens!r}")
        return self.made.boxes(model, lens, operator, image, at=at, counterpart=counterpart)

    def _require(self, model: str) -> None:
        if model not in self.run.models:
            raise RunError(f"the run in {self.run.folder} has no model {model!r}")

    def _stored(self, folder: str, image: str) -> bytes | None:
        return Stored(self.run).read(folder, f"{image}.webp") if image.isalnum() else None

    def _exhibit(self, image: str) -> bytes | None:
        """Return a stored picture of a clean image."""
        if not self.run.store.exists(FILE):
            return None
        records = json.loads(self.run.store.read(FILE))
        file = next((one["clean_file"] for one in records if one["image"] == image and one.get("clean_file")), None)
        return None if file is None else self.run.store.read(*file.split("/"))
