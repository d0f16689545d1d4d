"""The viewer as static files, for any plain web server: what the server would answer, written to the same paths."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from brinell.errors import BrinellError, RunError
from brinell.viewer.content import Content, NotFound
from brinell.viewer.digest import STRONGEST, SURVIVED, WRONG, Digest
from brinell.viewer.names import escape
from brinell.viewer.server import HEADERS, static_files

IMAGES, POINTS = 12, 12  # images with pictures, and pictures of each of their sequences
UNFINISHED = ".unfinished"  # marks a bundle that may be written again after an interruption
Say = Callable[[str], None]


def write_bundle(content: Content, folder: Path, *, images: int = IMAGES, say: Say = lambda line: None) -> int:
    """Write the viewer of all runs into a folder, and return the number of files.

    The grid, all figures and thumbnails are there for every image; sequences, maps and pictures for the `images` of each
    run that break most easily.
    """
    _require_own(folder)
    bundle = _Bundle(content, folder, images)
    bundle.write(UNFINISHED, b"")
    bundle.write_static()
    content.site |= {"bundle": True, "live": False, "pictured": bundle.pictured, "boxed": bundle.boxed}
    bundle.copy("runs.json")
    for identity, _, opened in content.index.all():
        if not isinstance(opened, BrinellError):
            say(f"bundling {identity} …")
            bundle.write_run(identity)
    bundle.copy("site.json")
    (folder / UNFINISHED).unlink()
    return bundle.count - 1


def _require_own(folder: Path) -> None:
    """Raise if a folder holds something other than a bundle or a part of one."""
    try:
        own = not folder.exists() or not any(folder.iterdir())
    except OSError as error:
        raise RunError(f"can't write {folder}: {error.strerror or error}") from error
    if not own and not any((folder / mark).exists() for mark in (UNFINISHED, "api/site.json")):
        raise RunError(f"{folder} holds other files; give an empty folder with --bundle")


class _Bundle:
    """Writes files into a folder."""

    def __init__(self, content: Content, folder: Path, images: int) -> None:
        self.content, self.folder, self.images = content, folder, images
        self.count = 0
        self.pictured: dict[str, list[str]] = {}  # images with pictures, by run
        self.boxed: dict[str, list[str]] = {}  # detectors whose boxes are there, by run

    def write(self, path: str, data: bytes) -> None:
        """Write one file."""
        file = self.folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            raise RunError(f"can't write {file}: {error.strerror or error}; give the same command again") from error
        self.count += 1

    def write_static(self) -> None:
        """Write the front end; the page states the policy that the server's headers state."""
        for path, file in static_files().items():
            data = file.read_bytes()
            if path == "index.html":
                policy = HEADERS["Content-Security-Policy"].partition("; frame-ancestors")[0]
                tag = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>'
                data = data.replace(b"<title>", tag.encode(), 1)
            self.write(path, data)

    def copy(self, *parts: str) -> bytes | None:
        """Write what the server would answer; what can't be made is left out."""
        path = "/".join(escape(part) for part in parts)
        try:
            body = self.content.respond(path).body
        except (BrinellError, NotFound):
            return None
        self.write(f"api/{path}", body)
        return body

    def write_run(self, identity: str) -> None:
        """Write everything about a run."""
        opened = self.content.index.open(identity)
        digest = self.content.digests.wait(identity, opened)
        for name in ("run.json", "digest.json", "headline.json", "findings.json", "watch.json"):
            self.copy("runs", identity, name)
        for model in digest.cells:
            self.copy("runs", identity, "cells", f"{model}.bin")
        for image in digest.images["id"]:
            self.copy("runs", identity, "thumbnails", f"{image}.webp")
        models = list(digest.cells)
        for model in models[1:]:
            self.copy("compare", identity, models[0], identity, f"{model}.json")
        self.pictured[identity] = _most_fragile(digest, self.images)
        for image in self.pictured[identity]:
            self.write_image(identity, digest, image)

    def write_image(self, identity: str, digest: Digest, image: str) -> None:
        """Write the sequences, maps and pictures of an image."""
        self.copy("runs", identity, "originals", f"{image}.webp")
        for model in digest.cells:
            self.copy("runs", identity, "maps", model, f"{image}.json")
            self.copy("runs", identity, "inputs", model, f"{image}.webp")
            for column in digest.columns:
                self.write_sequence(identity, model, column.lens, column.operator, image)

    def write_sequence(self, identity: str, model: str, lens: str, operator: str, image: str) -> None:
        """Write a sequence with the points whose pictures are written, too."""
        parts = "sequences", model, lens, operator, f"{image}.json"
        body = self.copy("runs", identity, *parts)
        if body is None:
            return
        sequence = json.loads(body)
        kept = list(_thinned(sequence["points"]))
        pictured = []
        for point in kept:
            keys = [key for key in (point["key"], point["counterpart"]) if key]
            made = [self.copy("runs", identity, "replays", model, lens, operator, image, f"{key}.webp") for key in keys]
            if all(made):
                pictured.append(point)
                self.write_boxes(identity, model, lens, operator, image, point)
        sequence["points"] = pictured or kept
        path = "/".join(escape(part) for part in ("runs", identity, *parts))
        self.write(f"api/{path}", json.dumps(sequence, separators=(",", ":")).encode())
        self.count -= 1  # it was there before, with all points

    def write_boxes(self, identity: str, model: str, lens: str, operator: str, image: str, point: dict[str, Any]) -> None:
        """Write the boxes on a picture, if its model is a detector that can be opened."""
        if model in self.boxed.setdefault(identity, self._detectors(identity)):
            parts = "boxes", model, lens, operator, image, point["counterpart"] or "clean", f"{point['key']}.json"
            if self.copy("runs", identity, *parts) is None:
                self.boxed[identity].remove(model)  # all of them, or none that a page would look for

    def _detectors(self, identity: str) -> list[str]:
        return [name for name, model in self.content.index.open(identity).run.models.items() if model.detector]


def _thinned(points: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield at most so many points: evenly spaced ones, and the first that breaks."""
    first = next((number for number, point in enumerate(points) if point["correct"] is False), None)
    step = max(1, -(-len(points) // POINTS))
    wanted = {*range(step - 1, len(points), step)} | ({first} if first is not None else set())
    yield from (points[number] for number in sorted(wanted))


def _most_fragile(digest: Digest, count: int) -> list[str]:
    """Return the images that break most easily, over all models."""
    totals: dict[int, list[float]] = {}
    for cells in digest.cells.values():
        for codes in cells.first:
            for position, code in enumerate(codes.tolist()):
                if code < WRONG or code == SURVIVED:
                    totals.setdefault(position, []).append(min(code, STRONGEST))
    order = sorted(totals, key=lambda position: sum(totals[position]) / len(totals[position]))
    return [digest.images["id"][position] for position in order[:count]]
