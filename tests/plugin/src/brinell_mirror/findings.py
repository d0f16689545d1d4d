"""What the mirror lens found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from brinell.lenses.reader import ANSWER, Failures, Figures, Measure, PrintedFindings, Reader
from brinell.report.exhibits import Exhibit
from brinell.runs.hardness import Scale
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, proportion
from brinell.runs.words import format_share, join_names

COLUMNS = {"clean_correct": "bool"}


@dataclass(frozen=True, repr=False)
class MirrorFindings(PrintedFindings):
    """Accuracy by model and operator, clean and mirrored."""

    clean: dict[tuple[str, str], Estimate]
    mirrored: dict[tuple[str, str], Estimate]

    @property
    def models(self) -> list[str]:
        """The models."""
        return list(dict.fromkeys(model for model, _ in self.mirrored))

    @property
    def operators(self) -> list[str]:
        """The operators."""
        return list(dict.fromkeys(operator for _, operator in self.mirrored))

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence."""
        own = {operator: value for (owner, operator), value in self.mirrored.items() if owner == model}
        shares = [f"{format_share(value)} of the images under {operator}" for operator, value in own.items()]
        return f"{model} is right on {join_names(shares)}."

    def table(self) -> list[dict[str, Any]]:
        """Return one record per model and operator."""
        return [{"model": key[0], "operator": key[1], **asdict(value)} for key, value in self.mirrored.items()]

    def figures(self) -> Iterator[Figures]:
        """Yield the accuracies."""
        for (model, operator), value in self.mirrored.items():
            yield model, operator, 0, {"accuracy": value, "clean_accuracy": self.clean[model, operator]}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"verdicts": {model: self.verdict(model) for model in self.models}, "mirrored": self.table()}


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> MirrorFindings:
    """Compute the findings from the rows."""
    clean, mirrored = {}, {}
    sql = """
        select model, operator, count(*), count(*) filter (correct), count(*) filter (clean_correct)
        from rows where lens = 'mirror' group by all order by all
    """
    for model, operator, count, right, before in run.query(sql):
        clean[model, operator], mirrored[model, operator] = proportion(before, count), proportion(right, count)
    return MirrorFindings(clean, mirrored)


def exhibits(run: Run, options: Mapping[str, Any]) -> list[Exhibit]:
    """Return an image that mirroring breaks, for each model and operator."""
    sql = """
        select model, operator, image, label, prediction, confidence from rows
        where lens = 'mirror' and clean_correct and not correct
        qualify row_number() over (partition by model, operator order by image) = 1
    """
    return [
        Exhibit("mirror", model, operator, image, (1.0,), label, prediction, confidence, None, "mirrored")
        for model, operator, image, label, prediction, confidence in run.query(sql)
    ]


def _failures(options: Mapping[str, Any]) -> str:
    return f"""
        select model, operator, image, label, [1]::double[], 0, null, 100, null, {ANSWER}
        from rows where lens = 'mirror' and clean_correct and not correct
    """


ACCURACY = Measure(
    name="mirrored",
    lens="mirror",
    what="share of mirrored images that are right",
    better="higher",
    unit="points",
    sql="select model, operator, image, correct::int as value from rows where lens = 'mirror'",
    yes_or_no=True,
)
HARDNESS = Scale(
    what="mirroring",
    meaning="Of the images that the model gets right when clean: the share that it gets right when mirrored.",
    sql="""select model, operator, image, correct::int as value from rows where lens = 'mirror' and clean_correct""",
)
READER = Reader(
    columns=COLUMNS,
    find=find,
    changed="lens = 'mirror'",
    parameters="[1]::double[]",
    measures=(ACCURACY,),
    hardness=HARDNESS,
    failures=Failures(_failures, parameters="mirrored", complete=lambda operator: True),
    exhibits=exhibits,
)
