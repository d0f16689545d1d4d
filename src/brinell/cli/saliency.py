"""The command `saliency`: its flags come from the options, which a summary needn't import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.cli.console import print_findings, say
from brinell.cli.flags import Flag, flags_of, with_flags
from brinell.cli.inspect import Folder
from brinell.config.saliency import SaliencyOptions
from brinell.results import Run


def _saliency(given: Mapping[str, Any], folder: Folder) -> None:
    """Compare where a run's models look on clean and on changed images.

    Example: [bold]brinell saliency runs/first --pairs 500[/]
    """
    run, trust = Run(folder), bool(given.get("trust"))
    options = {key.replace("-", "_"): value for key, value in given.items() if key != "trust"}
    run.saliency(options, trust=trust)
    print_findings([shown for shown in run.shown() if shown[1] == "saliency"])
    say(f"report: {run.report()}")


_TRUST = Flag(("trust",), "trust", bool, "Allow model files to run code when they are loaded.", "Options")

saliency = with_flags(_saliency, [*flags_of(SaliencyOptions, panel="Options"), _TRUST])
