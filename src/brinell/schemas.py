"""JSON Schema of what brinell writes: `summary --json` with the findings of every lens, the tables of a run, test records.

`python -m brinell.schemas docs/schema` writes the files; a test fails when they are out of date, and checks real runs
against them. A version changes when something is removed or renamed; additions keep it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from brinell.evidence.record import VERSION
from brinell.evidence.shape import SHAPE
from brinell.lenses.analysis import ANALYSES
from brinell.lenses.lens import LENSES, Analysis
from brinell.runs.schema import CLEAN, ROWS, SAMPLES
from brinell.runs.shapes import Schema, to_schema
from brinell.runs.store import FORMAT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SUMMARY = 1  # version of `Run.to_json`
_TYPES = {"text": "string", "name": "string", "bool": "boolean", "int": "integer", "float": "number"}


def build() -> dict[str, Schema]:
    """Return the schemas by the names of their files."""
    rows = {
        **ROWS,
        **{name: kind for lens in LENSES.values() if _built_in(lens) for name, kind in lens.reader.columns.items()},
    }
    return {
        f"summary-{SUMMARY}.json": _head("summary", SUMMARY, "What a run found: brinell summary RUN --json") | _summary(),
        f"rows-{FORMAT}.json": _head("rows", FORMAT, "Rows of a run: brinell rows RUN --json") | _table(rows),
        f"samples-{FORMAT}.json": _head("samples", FORMAT, "The images of a run: the table samples") | _table(SAMPLES),
        f"clean-{FORMAT}.json": _head("clean", FORMAT, "Answers to the clean images: the table clean") | _table(CLEAN),
        f"record-{VERSION}.json": _head("record", VERSION, "A test record: brinell evidence RUN") | to_schema(SHAPE),
    }


def write(folder: Path) -> None:
    """Write all schemas into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schema in build().items():
        (folder / name).write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _built_in(analysis: Analysis) -> bool:
    return analysis.package.startswith("brinell.")


def _head(name: str, version: int, title: str) -> Schema:
    return {"$schema": DIALECT, "$id": f"urn:brinell:schema:{name}:{version}", "title": title}


def _summary() -> Schema:
    every: list[Analysis] = [*LENSES.values(), *ANALYSES.values()]
    lenses = {one.name: to_schema(one.shape) for one in every if _built_in(one)}
    schema = to_schema({"version": int, "run": str, "lenses": {str: object}, "queries": {str: object}, "sample": object})
    share = to_schema({"share": float, "words": str})  # of a run that a budget left queries out of
    schema["properties"]["sample"] = {"anyOf": [share, {"type": "null"}]}
    schema["properties"]["version"] = {"const": SUMMARY}
    # lenses of other packages have verdicts, and whatever else they say
    schema["properties"]["lenses"] = {"type": "object", "properties": lenses, "additionalProperties": {"type": "object"}}
    return schema


def _table(columns: Mapping[str, str]) -> Schema:
    properties = {name: _nullable(_column(kind)) for name, kind in columns.items()}
    return {"type": "array", "items": {"type": "object", "properties": properties, "additionalProperties": False}}


def _column(kind: str) -> Schema:
    if kind.endswith("[]"):
        return {"type": "array", "items": _column(kind[:-2])}
    if kind == "text{}":
        return {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": _TYPES[kind.rstrip("0123456789")]}


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/schema"))
