"""The JSON that brinell writes follows the published schemas: real runs of every lens, and every key is declared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brinell import schemas
from brinell.config.saliency import SaliencyOptions
from brinell.lenses.lens import LENSES
from brinell.results import Run
from brinell.runs.plain import to_plain
from brinell.runs.shapes import to_schema
from brinell.runs.statistics import Estimate
from brinell.saliency.findings import SaliencyFindings, ShiftRate

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")

DOCS = Path(__file__).parents[1] / "docs" / "schema"
RUNS = sorted(path for path in (Path(__file__).parent / "golden" / "runs").iterdir() if path.is_dir())
BUILT = schemas.build()


def test_the_published_schemas_are_up_to_date() -> None:
    """If this fails, run `python -m brinell.schemas docs/schema`."""
    assert {path.name: json.loads(path.read_text()) for path in DOCS.glob("*.json")} == BUILT


@pytest.mark.parametrize("name", BUILT)
def test_they_are_valid_schemas(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(BUILT[name])


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_recorded_runs_follow_them(folder: Path) -> None:
    run = Run(folder)
    found = json.loads(json.dumps(run.to_json(), allow_nan=False))
    check(found, "summary-1.json")
    missing = list(undeclared(found, BUILT["summary-1.json"]))
    assert missing == [], "declare these in the lens's shape.py, then run python -m brinell.schemas docs/schema"
    for table in ("rows", "samples", "clean"):
        records = to_plain(run.rows(f"select * from {table} limit 200").arrow().to_pylist())
        check(records, f"{table}-1.json")


def check(content: Any, name: str) -> None:
    jsonschema.Draft202012Validator(BUILT[name]).validate(content)


def undeclared(content: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the paths of keys that a schema doesn't declare: they would go unnoticed, because objects may grow."""
    if isinstance(content, list):
        for each in content:
            yield from undeclared(each, schema.get("items", {}), f"{path}[]")
    if isinstance(content, dict) and "anyOf" not in schema:
        for key, each in content.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if inner is None and "properties" in schema:
                yield f"{path}.{key}"
            elif isinstance(inner, dict):
                yield from undeclared(each, inner, f"{path}.{key}")


def test_recorded_runs_cover_every_lens() -> None:
    ours = {lens.name for lens in LENSES.values() if lens.package.startswith("brinell.")}
    assert {lens for folder in RUNS for lens in Run(folder).measured} == ours


def test_findings_about_saliency_follow_it() -> None:
    share = Estimate(0.5, 0.1, math.nan)
    rate = ShiftRate("profile", "net", "jpeg:standard", True, 4, 4, share, share, 0.0, share, share)
    findings = SaliencyFindings([rate], SaliencyOptions().model_dump(), {"net": "layer4"}, {"other": "no layers"})
    content = {"version": 1, "run": "runs/first", "lenses": {"saliency": findings.to_json()}, "queries": {}, "sample": None}
    check(json.loads(json.dumps(content, allow_nan=False)), "summary-1.json")
    assert list(undeclared(content, BUILT["summary-1.json"])) == []


def test_wrong_content_is_noticed() -> None:
    content = json.loads(json.dumps(Run(RUNS[0]).to_json()))
    name, findings = next(iter(content["lenses"].items()))
    findings["verdicts"] = ["no", "mapping"]
    with pytest.raises(jsonschema.ValidationError):
        check(content, "summary-1.json")
    del findings["verdicts"]
    with pytest.raises(jsonschema.ValidationError, match="'verdicts' is a required property"):
        check(content, "summary-1.json")
    assert name in LENSES
    with pytest.raises(jsonschema.ValidationError):
        check([{"level": "three"}], "rows-1.json")


def test_shapes() -> None:
    number = {"type": ["number", "null"]}
    estimate = {
        "type": "object",
        "properties": {"value": number, "low": number, "high": number},
        "required": ["value", "low", "high"],
    }
    assert to_schema({str: Estimate}) == {"type": "object", "additionalProperties": estimate}
    assert to_schema([int | None]) == {"type": "array", "items": {"type": ["integer", "null"]}}
    assert to_schema({"a": str, "b?": bool})["required"] == ["a"]
    assert to_schema(dict[int, tuple[int, ...]])["additionalProperties"] == {"type": "array", "items": {"type": "integer"}}
