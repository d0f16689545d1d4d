"""Asking models about failures, where rows can't tell.

Some rows don't say what a model said to the very picture: it is asked, and what it gets right is no failure.

A search knows where each model breaks first. Whether a second model that broke before fails there, too, nobody asked: it
may have recovered. So the versions on which the models break are asked, of every other model that broke in the same
direction; one that didn't was asked there and survived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import pyarrow as pa
import torch

from brinell.config.execution import Execution
from brinell.curation.failing import count, drop_unsure
from brinell.curation.options import CurateOptions
from brinell.curation.sources import Asked, Source, failures_of, opened, regions_of
from brinell.engine.evaluator import Evaluator, Known
from brinell.engine.progress import Reporter
from brinell.engine.setup import criterion_of
from brinell.engine.shards import id_numbers, load_images
from brinell.errors import RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.method import Trials
from brinell.models.model import Model
from brinell.runs.schema import DISTANCES

SHARD = 64
OTHERS = "models have to be asked about each other's failures (--fail)"
OWN = "rows don't say what models say to moved images and to windows (leave them out with --lens)"

# every candidate with every other model that broke in its direction and is not known to fail on it
_QUESTIONS = """
    select distinct owners.owner, owners.source, owners.label, versions.* from
        (select distinct lens, operator, image, direction, version, parameters, field, seed, intensity, amount
         from failures
         where operator in (select unnest($operators)) and not white_box) as versions
        join (select lens, operator, image, direction, owner, min(source) as source, min(label) as label from broken
              group by all) as owners
          on owners.lens = versions.lens and owners.operator = versions.operator and owners.image = versions.image
             and owners.direction is not distinct from versions.direction
    where not exists (
        select 1 from broken where broken.version = versions.version and broken.owner = owners.owner)
    order by all
"""

_CANDIDATES = """
    select owner, source, label, lens, operator, image, direction, version, parameters, field, seed, intensity, amount
    from broken where lens in (select unnest($lenses)) order by all
"""
_ADD = "insert into {table} by name select found.*, model_input from found join models using (source, owner, model)"


class Asking:
    """Asks the models of some runs; those that are given needn't be opened."""

    def __init__(
        self,
        sources: Sequence[Source],
        models: Sequence[Asked],
        given: Sequence[Model],
        execution: Execution,
        pool: ThreadPoolExecutor,
        reporter: Reporter,
    ) -> None:
        self.sources, self.given, self.execution, self.pool, self.reporter = sources, given, execution, pool, reporter
        self.models = {(model.name, model.source): model for model in models}

    def confirm(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Ask about what the table `broken` has no answers to, and leave in it what fails."""
        lenses = [lens for lens in LENSES if (found := failures_of(lens)) is not None and not found.answers]
        questions = _questions(connection, _CANDIDATES, {"lenses": lenses})
        connection.execute("delete from broken where lens in (select unnest($lenses))", {"lenses": lenses})
        self._ask(connection, "broken", "asking about pictures", questions, OWN)
        if not count(connection, "broken"):
            raise RunError(
                f"there are no failures: of {len(questions):,} moved images and windows, in whole grey levels, the models "
                "get all right"
            )

    def others(self, connection: duckdb.DuckDBPyConnection, options: CurateOptions) -> None:
        """Add to the table `failures` what other models say to its versions."""
        measured = connection.execute("select distinct lens, operator from failures order by all").fetchall()
        operators = [operator for lens, operator in measured if not _complete(lens, operator)]
        questions = _questions(connection, _QUESTIONS, {"operators": operators})
        if questions:
            self._ask(connection, "failures", "asking other models", questions, OTHERS)
            drop_unsure(connection, options)

    def _ask(
        self, connection: duckdb.DuckDBPyConnection, table: str, what: str, questions: list[dict[str, Any]], why: str
    ) -> None:
        """Put what fails into a table."""
        asked: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        for question in questions:
            asked[question["owner"], question["source"]].append(question)
        advance = self.reporter.stage(what, len(questions), "images")
        for (owner, number), own in asked.items():
            source, known = self.sources[number], self.models[owner, number]
            model = opened(known, source, self.given, self.execution, why)
            images = sorted({question["image"] for question in own})
            for start in range(0, len(images), SHARD):
                shard = set(images[start : start + SHARD])
                mine = [question for question in own if question["image"] in shard]
                found = _answers(known, model, source, mine, self.execution, self.pool)
                if found:
                    connection.register("found", pa.Table.from_pylist(found))
                    connection.execute(_ADD.format(table=table))
                    connection.unregister("found")
                advance(len(mine))


def _complete(lens: str, operator: str) -> bool:
    failures = failures_of(lens)
    return failures is not None and failures.complete(operator)


def _questions(connection: duckdb.DuckDBPyConnection, sql: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    answer = connection.execute(sql, given)
    columns = [column[0] for column in answer.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in answer.fetchall()]


def _answers(
    asked: Asked,
    model: Model,
    source: Source,
    questions: list[dict[str, Any]],
    execution: Execution,
    pool: ThreadPoolExecutor,
) -> list[dict[str, Any]]:
    """The questions to which a model's answer is a failure, with it."""
    labels = {question["image"]: question["label"] for question in questions}
    entries = [source.originals[image].entry for image in labels]
    by_kind: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for question in questions:
        seed = source.seed if question["seed"] is None else question["seed"]
        by_kind[question["lens"], question["operator"], seed].append(question)
    originals = any(LENSES[lens].method.with_originals for lens, *_ in by_kind)
    with source.found():
        images = load_images(source.dataset, entries, model.preprocess, pool, with_originals=originals)
    regions = regions_of(source, asked.own, entries)
    found = []
    for (lens, operator, seed), mine in by_kind.items():
        failures = failures_of(lens)
        assert failures is not None
        evaluator = Evaluator.of(
            model,
            images.inputs,
            id_numbers(entries),
            torch.tensor(list(labels.values())),
            criterion=criterion_of(failures.criterion or source.run.lens(lens)["criterion"], model),
            seed=seed,
            batch=execution.batch or source.run.manifest["execution"]["batch"].get(asked.own, 16),
            originals=images.originals,
            known=Known(regions=regions),
        )
        places = {entry.image: place for place, entry in enumerate(entries)}
        trials = Trials(
            torch.tensor([places[question["image"]] for question in mine]),
            source.change(lens, operator, model.preprocess),
            torch.tensor([question["parameters"] for question in mine], dtype=torch.float64),
            torch.tensor([question["field"] for question in mine]),
            may_fail=True,
        )
        outcome = evaluator.query(trials)
        answers = {name: getattr(outcome.verdict, name).tolist() for name in ("prediction", "confidence", "probability")}
        answers |= {name: getattr(outcome.difference, name).tolist() for name in DISTANCES}
        failed = (outcome.broken & ~outcome.verdict.confidence.isnan()).tolist()
        for place, question in enumerate(mine):
            if failed[place]:
                said = {name: values[place] for name, values in answers.items()}
                if not model.scores:
                    said |= {"confidence": None, "probability": None}
                found.append({**question, **said, "model": asked.own, "asked": True, "white_box": False})
    return found
