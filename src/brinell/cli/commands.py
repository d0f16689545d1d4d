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
    Command("check", MEASURE, "Check that a model sees images as it was trained to.", "brinell.cli.check:check"),
    Command("demo", MEASURE, "Run five lenses on a few photographs and write a report.", "brinell.cli.measure:demo"),
    Command(
        "status", INSPECT, "Print how far a run is, and which parts are missing or stuck.", "brinell.cli.status:status"
    ),
    Command("summary", INSPECT, "Print what a run found.", "brinell.cli.inspect:summary"),
    Command("report", INSPECT, "Write a run's HTML report: one file that opens anywhere.", "brinell.cli.inspect:report"),
    Command("card", INSPECT, "Write each model's hardness card: SVG, PNG, Markdown.", "brinell.cli.inspect:card"),
    Command("view", INSPECT, "Look at runs in a browser, and break photographs live.", "brinell.cli.view:view"),
    Command("rows", INSPECT, "Query a run's rows in SQL.", "brinell.cli.inspect:rows"),
    Command("verify", INSPECT, "Check that a run is complete, undamaged and repeatable.", "brinell.cli.inspect:verify"),
    Command("saliency", INSPECT, "Compare where a run's models look.", "brinell.cli.saliency:saliency"),
    Command("show", INSPECT, "Draw an image under operators, as a contact sheet.", "brinell.cli.inspect:show"),
    Command("ls", INSPECT, "List lenses, presets, operators, models, datasets or criteria.", "brinell.cli.inspect:ls"),
    Command("gate", DECIDE, "Check a run against rules: pass or fail, for CI.", "brinell.cli.decide:gate"),
    Command("decide", DECIDE, "Measure models until rules are decided, with few queries.", "brinell.cli.deciding:decide"),
    Command("compare", DECIDE, "Compare runs image by image, and gate a release.", "brinell.cli.decide:compare"),
    Command("leaderboard", DECIDE, "Rank the models of several runs.", "brinell.cli.decide:leaderboard"),
    Command("evidence", DECIDE, "Write a dated test record of a run, to be filed.", "brinell.cli.evidence:evidence"),
    Command("curate", IMPROVE, "Make a dataset of the images that models fail on.", "brinell.cli.improve:curate"),
    Command("harden", IMPROVE, "Fine-tune a model on failures, and measure the effect.", "brinell.cli.improve:harden"),
    Command("corrupt", IMPROVE, "Write a copy of a dataset under operators.", "brinell.cli.corrupt:corrupt"),
    Command("export-moved", IMPROVE, "Write moved images to train on.", "brinell.cli.improve:export_moved"),
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
