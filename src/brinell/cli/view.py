"""The command that opens runs in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.console import say


def view(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN...", help="Runs, or folders that hold runs (default: runs)."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model to break photographs with, as SOURCE[?key=value&…]; may be repeated.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Current location of the runs' images, if they have moved.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 7860,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines need the token that is printed.")
    ] = "127.0.0.1",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    trust: Annotated[bool, typer.Option("--trust", help="Allow model files to run code when they are loaded.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write static files for any web server to this folder instead of serving."),
    ] = None,
    images: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="With --bundle: number of images per run to write with their changed versions."
        ),
    ] = 12,
    no_open: Annotated[bool, typer.Option("--no-open", help="Don't open a browser.")] = False,
) -> None:
    """Explore runs in a browser: break photographs live, look at failures, compare models.

    Examples: [bold]brinell view[/]
    or [bold]brinell view runs/first --model timm:resnet50[/]
    """
    from brinell.viewer.open import ViewerOptions, bundle_runs, open_viewer

    options = ViewerOptions(tuple(model or ()), data, device, trust)
    if bundle is not None:
        count = bundle_runs(runs or ["runs"], bundle, options, images=images, say=say)
        say(f"wrote {count} files: python -m http.server --directory {bundle}")
        return
    with open_viewer(runs or ["runs"], options, host=host, port=port) as viewer:
        say(f"viewer: {viewer.url} (press Ctrl-C to stop)")
        if not no_open:
            webbrowser.open(viewer.url)
        viewer.serve_until_stopped()
    say("stopped")
