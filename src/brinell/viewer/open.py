"""Puts the viewer together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brinell.errors import RunError
from brinell.viewer.bundle import IMAGES, Say, write_bundle
from brinell.viewer.content import Content
from brinell.viewer.index import RunIndex, find_runs
from brinell.viewer.live_content import LiveContent
from brinell.viewer.pictures import Pictures
from brinell.viewer.server import Viewer


@dataclass(frozen=True)
class ViewerOptions:
    """What the viewer may use: further `models` by their sources, where the runs' `data` is now, a device, and whether
    models that run code may be opened (`trust`).
    """

    models: tuple[str, ...] = ()
    data: str | None = None
    device: str = "auto"
    trust: bool = False


def open_viewer(
    places: Sequence[str], options: ViewerOptions | None = None, *, host: str = "127.0.0.1", port: int = 0
) -> Viewer:
    """Return a viewer of the runs at some places, which listens already."""
    options = options or ViewerOptions()
    index, pictures = RunIndex(places), Pictures(options.data, trust=options.trust)
    live = LiveContent(index, pictures, options.models, device=options.device)
    return Viewer(Content(index, pictures, {"live": True}), live, host=host, port=port)


def bundle_runs(
    places: Sequence[str],
    folder: Path,
    options: ViewerOptions | None = None,
    *,
    images: int = IMAGES,
    say: Say = lambda line: None,
) -> int:
    """Write the viewer of the runs at some places as static files, and return their number."""
    options = options or ViewerOptions()
    if not any(find_runs(place) for place in places):
        raise RunError(f"there is no run in {', '.join(places)}; make one with `brinell demo`, or give its folder")
    content = Content(RunIndex(places), Pictures(options.data, trust=options.trust))
    return write_bundle(content, folder, images=images, say=say)
