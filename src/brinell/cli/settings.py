"""The options that `run` and `plan` share, as one config."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.errors import ConfigError
from brinell.run_config import RunConfig, load_config
from brinell.validation import read_yaml

_WHAT, _HOW = "What is measured", "How it is carried out"


def settings(
    config: Annotated[Path | None, typer.Argument(help="A YAML file; options are laid over it.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="A model, as SOURCE[?key=value&…] (see `brinell ls models`); may be repeated.", rich_help_panel=_WHAT
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="A dataset (see `brinell ls datasets`).", rich_help_panel=_WHAT)] = None,
    lens: Annotated[str | None, typer.Option(help="See `brinell ls lenses`.", rich_help_panel=_WHAT)] = None,
    operator: Annotated[
        list[str] | None,
        typer.Option(help="NAME or NAME:VARIANT; may be repeated. Without it: all.", rich_help_panel=_WHAT),
    ] = None,
    levels: Annotated[int | None, typer.Option(help="Levels of degradation, 1 to 30.", rich_help_panel=_WHAT)] = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="published or dsn2020 (as the figures were made), paper or equations (as the text says).",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="Of the knob lens: exact, bracket (few queries) or bands (the whole grid).", rich_help_panel=_WHAT
        ),
    ] = None,
    resample: Annotated[
        bool,
        typer.Option("--resample", help="Draw random properties afresh at every point.", rich_help_panel=_WHAT),
    ] = False,
    size: Annotated[
        list[float] | None,
        typer.Option(
            help="Of the fragility lens: a size of windows, a share of the shorter side or pixels; may be repeated.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Of the fragility lens: judge one window in so many each way.", rich_help_panel=_WHAT)
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(help="Of the fragility lens: bilinear, bicubic, lanczos, nearest, pad or own.", rich_help_panel=_WHAT),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Of the geometry lens: manifool, manitest, random or grid; may be repeated.", rich_help_panel=_WHAT
        ),
    ] = None,
    criterion: Annotated[str | None, typer.Option(help="See `brinell ls criteria`.", rich_help_panel=_WHAT)] = None,
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Compare where torch models look, too (Grad-CAM++).", rich_help_panel=_WHAT),
    ] = False,
    track: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Log the finished run to this MLflow server.", rich_help_panel=_HOW),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Take so many images.", rich_help_panel=_WHAT)] = None,
    shuffle: Annotated[
        bool, typer.Option("--shuffle", help="Take them in an order named by the seed.", rich_help_panel=_WHAT)
    ] = False,
    labels: Annotated[
        str | None,
        typer.Option(
            help="auto, index (the dataset's class numbers), or prediction (the model's own).", rich_help_panel=_WHAT
        ),
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(help="all, correct (images that every model gets right) or correct:MODEL.", rich_help_panel=_WHAT),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Names all random draws.", rich_help_panel=_WHAT)] = None,
    out: Annotated[str | None, typer.Option(help="The run's folder, or an fsspec URL.", rich_help_panel=_HOW)] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=_HOW)] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32, bf16 or fp16.", rich_help_panel=_HOW)] = None,
    runtime: Annotated[str | None, typer.Option(help="auto, torch or onnxruntime.", rich_help_panel=_HOW)] = None,
    compile: Annotated[bool, typer.Option("--compile", help="Compile torch models.", rich_help_panel=_HOW)] = False,
    batch: Annotated[
        int | None, typer.Option(help="Images a batch; without it, found by measuring.", rich_help_panel=_HOW)
    ] = None,
    shard: Annotated[int | None, typer.Option(help="Images a unit of work.", rich_help_panel=_HOW)] = None,
    workers: Annotated[int | None, typer.Option(help="Threads that decode images.", rich_help_panel=_HOW)] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Let weights files run code.", rich_help_panel=_HOW)] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first unreadable image.", rich_help_panel=_HOW)
    ] = False,
    max_queries: Annotated[
        int | None,
        typer.Option(min=0, help="Send models behind HTTP at most so many images, then stop.", rich_help_panel=_HOW),
    ] = None,
    set: Annotated[
        list[str] | None, typer.Option(help="key=value over all the rest, as in data.limit=100.", rich_help_panel=_HOW)
    ] = None,
) -> RunConfig:
    """A config from a file and options."""
    content = read_yaml(config, "config", "models and data") if config is not None else {}
    _lay(content, None, {"select": select, "seed": seed, "out": out})
    if attention:
        content["attention"] = content.get("attention") or {}
    _lay(content, "track", {"to": track})
    _lay(content, "data", {"source": data, "limit": limit, "shuffle": shuffle or None, "labels": labels})
    _lay(
        content,
        "execution",
        {
            "device": device,
            "precision": precision,
            "runtime": runtime,
            "compile": compile or None,
            "batch": batch,
            "shard": shard,
            "workers": workers,
            "trust": trust or None,
            "strict": strict or None,
            "max_queries": max_queries,
        },
    )
    _lay(
        content,
        "lens",
        {
            "name": lens,
            "operators": operator or None,
            "levels": levels,
            "variant": variant,
            "search": search,
            "resample": resample or None,
            "sizes": size or None,
            "stride": stride,
            "fit": fit,
            "methods": method or None,
            "criterion": criterion,
        },
    )
    if model:
        content["models"] = model
        content.pop("model", None)
    if not (content.get("models") or content.get("model")) or not content.get("data"):
        raise ConfigError("say what to test: --model SOURCE --data PATH, or a YAML file with models and data")
    return load_config(content, set or ())


def _lay(content: dict[str, Any], part: str | None, options: dict[str, Any]) -> None:
    """Put the options that were given over a part of a config."""
    given = {key: value for key, value in options.items() if value is not None}
    if not given:
        return
    if part is None:
        content.update(given)
        return
    if part == "lens" and "lenses" in content:
        raise ConfigError("the config lists several lenses; change one of them with --set lenses.0.…")
    there = content.get(part)
    if isinstance(there, str):
        there = {{"lens": "name", "track": "to"}.get(part, "source"): there}
    if not isinstance(there, (dict, type(None))):
        raise ConfigError(f"{part} should be a mapping of options, but is {there!r}")
    content[part] = {**({"name": "profile"} if part == "lens" else {}), **(there or {}), **given}


def with_settings(action: Callable[[RunConfig], None]) -> Callable[..., None]:
    """A command with the shared options that hands its action the config."""

    def command(**given: Any) -> None:
        action(settings(**given))

    command.__signature__ = inspect.signature(settings, eval_str=True)  # type: ignore[attr-defined]
    command.__annotations__ = {**settings.__annotations__, "return": None}
    command.__doc__ = action.__doc__
    return command
