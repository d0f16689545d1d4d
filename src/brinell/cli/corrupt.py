"""The command `brinell corrupt`: a perturbed copy of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brinell.cli.ask import ask_to_start
from brinell.cli.console import say
from brinell.cli.flags import flags_of, with_flags
from brinell.cli.interrupt import resuming
from brinell.config.data import DataOptions
from brinell.config.execution import Execution
from brinell.corruption.options import CorruptOptions
from brinell.runs.store import Store
from brinell.validation import validate

if TYPE_CHECKING:
    from brinell.corruption.costs import CopyCost

LISTED = 3  # images that could not be read and are named


def _corrupt(
    given: Mapping[str, Any],
    data: Annotated[str, typer.Argument(metavar="IN", help="Dataset to copy (see `brinell ls datasets`).")],
    folder: Annotated[str, typer.Argument(metavar="OUT", help="Folder or URL of the copy.")],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first unreadable image.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking if it takes more than an hour.")] = False,
) -> None:
    """Write a perturbed copy of a dataset, with its labels and boxes; rerun to resume.

    One operator at one severity gives one dataset; several are written to OUT/OPERATOR/SEVERITY. Prints a cost estimate,
    and asks if it is more than an hour.

    Examples: [bold]brinell corrupt photos/ foggy/ --operator fog --severity 0.4[/]
    or [bold]brinell corrupt photos/ photos-c/ --operator jpeg --level 5 --level 10 --like imagenet-c[/]
    """
    from brinell.corruption.corrupt import corrupt as write_copy
    from brinell.datasets.sources import open_dataset
    from brinell.engine.estimates.text import HOUR, format_time
    from brinell.engine.progress import reporter

    options = validate(CorruptOptions, {_COPY[name]: value for name, value in given.items() if name in _COPY})
    source = validate(
        DataOptions, {"source": data, **{_DATA[name]: value for name, value in given.items() if name in _DATA}}
    )
    out = Store(folder)
    with resuming(lambda: out.exists(".unfinished")), reporter() as progress:

        def confirm(cost: CopyCost) -> None:
            about = f"about {format_time(cost.seconds)}, {cost.images:,} images, {cost.bytes / 1e6:,.1f} MB"
            progress.say(f"Estimate: {about}.")
            if cost.seconds > HOUR:
                ask_to_start(progress, yes=yes)

        execution = Execution(device=device, strict=strict)
        copy = write_copy(open_dataset(source), out, options, execution=execution, reporter=progress, confirm=confirm)
    if copy.skipped:
        named = "; ".join(f"{name}: {problem}" for name, problem in copy.skipped[:LISTED])
        say(f"{len(copy.skipped):,} images could not be read: {named}{' …' if len(copy.skipped) > LISTED else ''}")
    before = "" if copy.written else "Already complete: "
    say(f"{before}{copy.images:,} images of {copy.originals:,} originals: {copy.folder}")


_FLAGS = flags_of(CorruptOptions, panel="Operators and format")
_COPY = {flag.name: flag.path[-1] for flag in _FLAGS}
_DATA_FLAGS = flags_of(DataOptions, panel="Data", skip=set(DataOptions.model_fields) - {"label_column", "images"})
_DATA = {flag.name: flag.path[-1] for flag in _DATA_FLAGS}
corrupt = with_flags(_corrupt, [*_FLAGS, *_DATA_FLAGS])
