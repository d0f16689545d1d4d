"""Asking models about each other's failures, where rows can't tell.

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

from brinell.criteria import find_criterion
from brinell.curation.failing import drop_unsure
from brinell.curation.options import CurateOptions
from brinell.curation.sources import Asked, Source, opened, regions_of
from brinell.engine.bench import Bench
from brinell.engine.failures import DISTANCES, FAILURES
from brinell.engine.progress import Reporter
from brinell.engine.remake import Makeable
from brinell.engine.shards import id_numbers, load_images
from brinell.execution import Execution
from brinell.lenses import Trials
from brinell.models import Model

SHARD = 64
WHY = "models have to be asked about each other's failures (--fail)"

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

_ADD = "insert into failures by name select found.*, canvas from found join models using (source, owner, model)"


def ask_others(
    connection: duckdb.DuckDBPyConnection,
    sources: Sequence[Source],
    models: Sequence[Asked],
    changes: dict[tuple[int, str], Makeable],
    options: CurateOptions,
    given: Sequence[Model],
    execution: Execution,
    pool: ThreadPoolExecutor,
    reporter: Reporter,
) -> None:
    """Add to the table `failures` what other models say to its versions."""
    measured = connection.execute("select distinct lens, operator from failures order by all").fetchall()
    operators = [operator for lens, operator in measured if not FAILURES[lens].complete(operator)]
    answer = connection.execute(_QUESTIONS, {"operators": operators})
    columns = [column[0] for column in answer.description or ()]
    asked: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in answer.fetchall():
        told = dict(zip(columns, row, strict=True))
        asked[told["owner"], told["source"]].append(told)
    if not asked:
        return
    tick = reporter.stage("asking other models", sum(map(len, asked.values())), "images")
    by_name = {(model.name, model.source): model for model in models}
    for (owner, number), questions in asked.items():
        model = opened(by_name[owner, number], sources[number], given, execution, WHY)
        images = sorted({question["image"] for question in questions})
        for start in range(0, len(images), SHARD):
            shard = set(images[start : start + SHARD])
            mine = [question for question in questions if question["image"] in shard]
            found = _answers(by_name[owner, number], model, sources[number], mine, changes, execution, pool)
            if found:
                connection.register("found", pa.Table.from_pylist(found))
                connection.execute(_ADD)
                connection.unregister("found")
            tick(len(mine))
    drop_unsure(connection, options)


def _answers(
    asked: Asked,
    model: Model,
    source: Source,
    questions: list[dict[str, Any]],
    changes: dict[tuple[int, str], Makeable],
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
    originals = any(FAILURES[lens].originals for lens, *_ in by_kind)
    with source.found():
        images = load_images(source.dataset, entries, model.preprocess, pool, with_originals=originals)
    regions = regions_of(source, asked.own, entries)
    found = []
    for (lens, operator, seed), mine in by_kind.items():
        bench = Bench(
            model,
            images.canvases,
            id_numbers(entries),
            torch.tensor(list(labels.values())),
            criterion=find_criterion(
                source.lenses()[lens]["criterion"], model.classes, model.outputs, detector=model.detector is not None
            ),
            seed=seed,
            batch=execution.batch or source.manifest["execution"]["batch"].get(asked.own, 16),
            regions=regions,
            originals=images.originals,
        )
        places = {entry.image: place for place, entry in enumerate(entries)}
        trials = Trials(
            torch.tensor([places[question["image"]] for question in mine]),
            changes[source.number, operator],
            torch.tensor([question["parameters"] for question in mine], dtype=torch.float64),
            torch.tensor([question["field"] for question in mine]),
            may_fail=True,
        )
        outcome = bench.ask(trials)
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
