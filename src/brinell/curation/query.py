"""Query models about failures where rows don't hold the answers.

Rows of some lenses have no answer to the very image that is written, in whole grey levels: the model is queried, and images
that it gets right are dropped.

A search finds where each model breaks first. Whether another model that broke earlier still fails there is unknown: it may
have recovered. So every other model that broke in the same direction is queried about the images on which models break. A
model that did not break was queried there and survived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import torch

from brinell.config.execution import Execution
from brinell.curation.failures import count_rows, drop_small_margins
from brinell.curation.options import CurateOptions
from brinell.curation.runs import ModelOpener, RunModel, SourceRun, failures_of, regions_of, true_masks_of
from brinell.engine.evaluator import Evaluator
from brinell.engine.found import Known
from brinell.engine.progress import Reporter
from brinell.engine.setup import criterion_of
from brinell.engine.shards import Entry, id_numbers, load_images
from brinell.errors import RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.method import Outcome, Trials
from brinell.models.model import Model
from brinell.runs.schema import DISTANCES

SHARD = 64
OTHERS = "models have to be queried about each other's failures (--fail)"
OWN = "rows of some lenses have no answers to the changed images (skip these lenses with --lens)"

Row = dict[str, Any]

# every candidate with every other model that broke in its direction and is not known to fail on it
_OTHERS = """
    select distinct owners.owner, owners.source, owners.label, replays.* from
        (select distinct lens, operator, image, direction, replay, parameters, field, seed, intensity, amount
         from failures
         where operator in (select unnest($operators)) and not white_box) as replays
        join (select lens, operator, image, direction, owner, min(source) as source, min(label) as label from broken
              group by all) as owners
          on owners.lens = replays.lens and owners.operator = replays.operator and owners.image = replays.image
             and owners.direction is not distinct from replays.direction
    where not exists (
        select 1 from broken where broken.replay = replays.replay and broken.owner = owners.owner)
    order by all
"""

_CANDIDATES = """
    select owner, source, label, lens, operator, image, direction, replay, parameters, field, seed, intensity, amount
    from broken where not answered order by all
"""
_ADD = "insert into {table} by name select found.*, model_input from found join models using (source, owner, model)"


@dataclass(frozen=True)
class ModelQueries:
    """Queries the models of some runs."""

    sources: Sequence[SourceRun]
    models: Sequence[RunModel]
    opener: ModelOpener
    pool: ThreadPoolExecutor
    reporter: Reporter

    def confirm(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Query models where the table `broken` has no answers, and keep what fails."""
        candidates = _rows(connection, _CANDIDATES, {})
        connection.execute("delete from broken where not answered")
        self._query(connection, "broken", candidates, OWN)
        if not count_rows(connection, "broken"):
            raise RunError(
                f"there are no failures: models get all of {len(candidates):,} candidates right once they are rounded to "
                "whole grey levels"
            )

    def query_others(self, connection: duckdb.DuckDBPyConnection, options: CurateOptions) -> None:
        """Add the failures of other models on the same images to the table `failures`."""
        measured = connection.execute("select distinct lens, operator from failures order by all").fetchall()
        alike = len({source.run.share for source in self.sources}) == 1  # all runs queried the same cells
        operators = [operator for lens, operator in measured if not (alike and _complete(lens, operator))]
        candidates = _rows(connection, _OTHERS, {"operators": operators})
        if candidates:
            self._query(connection, "failures", candidates, OTHERS)
            drop_small_margins(connection, options)

    def _query(self, connection: duckdb.DuckDBPyConnection, table: str, candidates: list[Row], reason: str) -> None:
        """Query models about candidates and add what fails to a table."""
        by_model: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for candidate in candidates:
            by_model[candidate["owner"], candidate["source"]].append(candidate)
        known = {(model.name, model.run): model for model in self.models}
        what = "querying models" if reason == OWN else "querying other models"
        advance = self.reporter.stage(what, len(candidates), "images")
        for (owner, number), own in by_model.items():
            source, run_model = self.sources[number], known[owner, number]
            model = self.opener.open(run_model, source, reason)
            images = sorted({candidate["image"] for candidate in own})
            for start in range(0, len(images), SHARD):
                shard = set(images[start : start + SHARD])
                mine = [candidate for candidate in own if candidate["image"] in shard]
                queried = _QueriedModel(run_model, model, source, self.opener.execution)
                found = queried.find_failures(mine, self.pool)
                if found:
                    connection.register("found", pa.Table.from_pylist(found))
                    connection.execute(_ADD.format(table=table))
                    connection.unregister("found")
                advance(len(mine))


def _complete(lens: str, operator: str) -> bool:
    failures = failures_of(lens)
    return failures is not None and failures.complete(operator)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, given: dict[str, Any]) -> list[Row]:
    found = connection.execute(sql, given)
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


@dataclass(frozen=True)
class _QueriedModel:
    """A model of a run that is queried."""

    known: RunModel
    model: Model
    source: SourceRun
    execution: Execution

    def find_failures(self, candidates: list[Row], pool: ThreadPoolExecutor) -> list[Row]:
        """Return the candidates on which the model fails, with its answers."""
        source, model = self.source, self.model
        labels = {candidate["image"]: candidate["label"] for candidate in candidates}
        entries = [source.originals[image].entry for image in labels]
        by_change: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
        for candidate in candidates:
            seed = source.seed if candidate["seed"] is None else candidate["seed"]
            by_change[candidate["lens"], candidate["operator"], seed].append(candidate)
        with_originals = any(LENSES[lens].method.with_originals for lens, *_ in by_change)
        with source.explain_missing_images():
            images = load_images(source.dataset, entries, model.preprocess, pool, with_originals=with_originals)
        found: list[Row] = []
        for (lens, operator, seed), mine in by_change.items():
            failures = failures_of(lens)
            assert failures is not None
            evaluator = Evaluator.of(
                model,
                images.inputs,
                id_numbers(entries),
                torch.tensor(list(labels.values())),
                criterion=criterion_of(failures.criterion or source.run.lens(lens)["criterion"], model),
                seed=seed,
                batch=self.execution.batch or source.run.manifest["execution"]["batch"].get(self.known.own, 16),
                originals=images.originals,
                known=Known(regions_of(source, self.known.own, entries), masks=true_masks_of(source, model, entries, pool)),
            )
            outcome = evaluator.query(self._trials(lens, operator, mine, entries))
            found += self._select_failures(mine, outcome)
        return found

    def _trials(self, lens: str, operator: str, candidates: list[Row], entries: Sequence[Entry]) -> Trials:
        indices = {entry.image: index for index, entry in enumerate(entries)}
        return Trials(
            torch.tensor([indices[candidate["image"]] for candidate in candidates]),
            self.source.change(lens, operator, self.model.preprocess),
            torch.tensor([candidate["parameters"] for candidate in candidates], dtype=torch.float64),
            torch.tensor([candidate["field"] for candidate in candidates]),
            may_fail=True,
        )

    def _select_failures(self, candidates: list[Row], outcome: Outcome) -> list[Row]:
        answers = {name: getattr(outcome.verdict, name).tolist() for name in ("prediction", "confidence", "probability")}
        answers |= {name: getattr(outcome.difference, name).tolist() for name in DISTANCES}
        failed = (outcome.broken & ~outcome.verdict.confidence.isnan()).tolist()
        found = []
        for index, candidate in enumerate(candidates):
            if failed[index]:
                answer = {name: values[index] for name, values in answers.items()}
                if not self.model.scores:
                    answer |= {"confidence": None, "probability": None}
                found.append({**candidate, **answer, "model": self.known.own, "queried": True, "white_box": False})
        return found
