"""Commands that integrate with other tools: track and serve."""

from __future__ import annotations

from typing import Annotated

import typer

from brinell.cli.console import say


def track(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    to: Annotated[str | None, typer.Option(metavar="URI", help="MLflow server (default: MLFLOW_TRACKING_URI).")] = None,
    experiment: Annotated[
        str | None, typer.Option(help="Experiment (default: MLFLOW_EXPERIMENT_NAME, or brinell).")
    ] = None,
) -> None:
    """Log finished runs to an MLflow server: figures by lens, operator and level, and the report. Needs the extra mlflow.

    Example: [bold]brinell track runs/first --to http://localhost:5000[/]
    """
    from brinell.cli.execute import describe_tracked
    from brinell.results import Run
    from brinell.tracking.server import Server

    server = Server(to, experiment)
    for folder in runs:
        say(describe_tracked(Run(folder).track(server)))


def serve(
    model: Annotated[str, typer.Argument(help="Model, as SOURCE[?key=value&…] (see `brinell ls models`).")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Address to listen on; 127.0.0.1 accepts this machine only.")] = "127.0.0.1",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    trust: Annotated[bool, typer.Option("--trust", help="Allow model files to run code when they are loaded.")] = False,
) -> None:
    """Serve a model over HTTP: the Open Inference Protocol v2, and /predict for image files.

    Example: [bold]brinell serve timm:resnet50 --port 8000[/]
    """
    from brinell.config.execution import Execution
    from brinell.models.sources import open_model
    from brinell.serve.server import Server, usage_lines

    with Server(open_model(model, Execution(device=device, trust=trust)), host, port) as server:
        say(*usage_lines(server))
        server.serve_until_stopped()
    say("stopped")
