"""The commands by panel. Their modules are imported when they are called."""

from __future__ import annotations

from dataclasses import dataclass

from brinell.lenses.lens import LENSES
from brinell.registry import load_reference


@dataclass(frozen=True)
class Command:
    """A command, its panel in the help, its one-line summary and the function behind it."""

    name: str
    panel: str
    summary: str
    function: str
    of_run: bool = False  # the function gets an opened run and returns what to print


MEASURE, INSPECT, DECIDE, IMPROVE, INTEGRATE = "Measure", "Inspect", "Decide", "Improve", "Integrate"
COMMANDS = (
    Command("run", MEASURE, "Test models on data; rerun to resume.", "brinell.cli.measure:run"),
    Command("plan", MEASURE, "Estimate what a run would cost, without running it.", "brinell.cli.measure:plan"),
    Command("check", MEASURE, "Check a model's preprocessing on a few images.", "brinell.cli.check:check"),
    Command("demo", MEASURE, "Run five lenses on a few photographs and write a report.", "brinell.cli.measure:demo"),
    Command("status", INSPECT, "Show a run's progress, and parts that are missing or stuck.", "brinell.cli.status:status"),
    Command("summary", INSPECT, "Print what a run found.", "brinell.cli.inspect:summary"),
    Command("report", INSPECT, "Write a run's report: one self-contained HTML file.", "brinell.cli.inspect:report"),
    Command("card", INSPECT, "Write each model's hardness card: SVG, PNG, Markdown.", "brinell.cli.inspect:card"),
    Command("view", INSPECT, "Explore runs in a browser, and break photographs live.", "brinell.cli.view:view"),
    Command("rows", INSPECT, "Query a run's rows in SQL.", "brinell.cli.inspect:rows"),
    Command("verify", INSPECT, "Check that a run is complete, undamaged and repeatable.", "brinell.cli.inspect:verify"),
    Command("saliency", INSPECT, "Compare where models look, before and after a change.", "brinell.cli.saliency:saliency"),
    Command("show", INSPECT, "Draw a contact sheet of an image under operators.", "brinell.cli.inspect:show"),
    Command("ls", INSPECT, "List lenses, presets, operators, models, datasets or criteria.", "brinell.cli.inspect:ls"),
    Command("gate", DECIDE, "Check a run against rules, with an exit code for CI.", "brinell.cli.decide:gate"),
    Command("decide", DECIDE, "Measure only until rules are decided, to save queries.", "brinell.cli.deciding:decide"),
    Command("compare", DECIDE, "Compare models image by image, with significance tests.", "brinell.cli.decide:compare"),
    Command("leaderboard", DECIDE, "Rank the models of several runs.", "brinell.cli.decide:leaderboard"),
    Command("evidence", DECIDE, "Write a dated test record for a safety or quality case.", "brinell.cli.evidence:evidence"),
    Command("curate", IMPROVE, "Collect the images that models fail on as a dataset.", "brinell.cli.improve:curate"),
    Command("harden", IMPROVE, "Fine-tune a model on failures, and measure the effect.", "brinell.cli.improve:harden"),
    Command("corrupt", IMPROVE, "Write a perturbed copy of a dataset.", "brinell.cli.corrupt:corrupt"),
    Command(
        "export-moved", IMPROVE, "Export geometrically transformed images to train on.", "brinell.cli.improve:export_moved"
    ),
    Command("track", INTEGRATE, "Log finished runs to an MLflow server.", "brinell.cli.integrate:track"),
    Command("serve", INTEGRATE, "Serve a model over HTTP.", "brinell.cli.integrate:serve"),
)


def all_commands() -> list[Command]:
    """Return the built-in commands, and those that lenses contribute."""
    own = [
        Command(name, INSPECT, load_reference(function).__doc__.partition("\n")[0], function, of_run=True)
        for lens in LENSES.values()
        for name, function in lens.commands
    ]
    last = max(number for number, command in enumerate(COMMANDS) if command.panel == INSPECT) + 1
    return [*COMMANDS[:last], *own, *COMMANDS[last:]]
