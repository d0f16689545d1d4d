"""The rows of one image under one operator, from weak to strong: what a slider moves through."""

from __future__ import annotations

import math
from typing import Any

from brinell.errors import RunError
from brinell.runs.plain import to_plain
from brinell.runs.run import ModelRecord, Run
from brinell.runs.schema import DISTANCES, Unit
from brinell.runs.store import unit_file
from brinell.viewer.digest import Digest
from brinell.viewer.tables import connect_rows, operator_files
from brinell.viewer.values import readers

MOST = 400  # points of a sequence; a grid of spots may have more

_POINTS = """
    select level, amount, {parameters} as parameters, {field} as field, prediction, confidence, probability, rank,
           coalesce(correct, status <> 'broken') as correct, cause, iou, {distances}
    from rows where image = $image and model = $model and ({changed}) and {parameters} is not null
    order by level nulls last, abs(amount) nulls last, parameters limit {most}
"""


def read_sequence(run: Run, digest: Digest, model: str, lens: str, operator: str, image: str) -> dict[str, Any]:
    """Return an image under an operator as plain data: the clean answer, and one point per row."""
    record, reader = run.models[model], readers(lens)
    files = _files(run, digest, model, lens, operator, image)
    failures = reader.failures
    pairs = failures is not None and failures.pairs
    sql = _POINTS.format(
        parameters=reader.parameters,
        field=reader.field(run.lens(lens)),
        distances=", ".join(DISTANCES),
        changed=reader.changed,
        most=MOST,
    )
    points: list[dict[str, Any]] = []
    if files:
        with connect_rows(run, files) as connection:
            found = connection.execute(sql, {"image": image, "model": model})
            names = [column[0] for column in found.description or ()]
            points = [_point(run, record, operator, dict(zip(names, row, strict=True)), pairs) for row in found.fetchall()]
    facts = {"title": run.title(operator), "pairs": pairs, "masks": record.task == "segmentation"}
    return {"clean": clean_answer(run, model, image), "points": points, **facts}


def _files(run: Run, digest: Digest, model: str, lens: str, operator: str, image: str) -> list[str]:
    """Return the file that the image's rows are in; all files of the operator where that isn't known."""
    try:
        column = next(n for n, one in enumerate(digest.columns) if (one.lens, one.operator) == (lens, operator))
        shard = int(digest.cells[model].shard[column, digest.positions[image]])
    except (StopIteration, ValueError, KeyError):
        raise RunError(f"the run in {run.folder} has no rows of {image} under {operator}; choose another image") from None
    file = unit_file(Unit(lens, model, operator, shard))
    if run.store.exists(*file):
        return [run.store.path(*file)]
    return operator_files(run, lens, operator, model)


def _point(run: Run, record: ModelRecord, operator: str, row: dict[str, Any], pairs: bool) -> dict[str, Any]:
    parameters = [float(value) for value in row["parameters"]]
    half = len(parameters) // 2 if pairs else len(parameters)
    amount, steps = row["amount"], run.manifest["operators"].get(operator, {}).get("levels")
    point = {
        "level": row["level"] if steps else None,  # elsewhere the number of a row, which tells people nothing
        "amount": amount,
        "text": "" if amount is None else run.format(operator, amount),
        "parameters": parameters[:half],
        "counterpart": parameters[half:] or None,
        "field": row["field"] or 0,
        "prediction": name_class(record, row["prediction"]),
        "confidence": row["confidence"],
        "probability": row["probability"],
        "rank": row["rank"],
        "correct": row["correct"],
        "cause": row["cause"],
        "iou": row["iou"],
        "distances": {name: row[name] for name in DISTANCES if row[name] is not None and not math.isnan(row[name])},
    }
    plain: dict[str, Any] = to_plain(point)
    return plain


def clean_answer(run: Run, model: str, image: str) -> dict[str, Any]:
    """Return a model's answer to a clean image, and the label that counts as right."""
    record = run.models[model]
    found = run.query(
        "select clean.prediction, clean.confidence, clean.correct, clean.label from clean join samples using (index) "
        "where model = $model and image = $image order by index limit 1",
        {"model": model, "image": image},
    )
    if not found:
        return {"prediction": None, "confidence": None, "correct": None, "label": None}
    prediction, confidence, correct, label = found[0]
    answer: dict[str, Any] = to_plain(
        {
            "prediction": name_class(record, prediction),
            "confidence": confidence,
            "correct": correct,
            "label": name_class(record, label),
        }
    )
    return answer


def name_class(record: ModelRecord, index: int | None) -> str | None:
    """Return a class's name for people; its number if it has none, and "nothing" where a detector finds nothing."""
    if index is None:
        return None
    return "nothing" if index < 0 else record.class_name(index) or str(index)
