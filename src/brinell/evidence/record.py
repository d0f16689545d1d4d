"""The test record of a run: what was required, what came out, what was and was not tested, and hashes of all of it."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brinell.classes import Classes
from brinell.comparison.gates import GateResult
from brinell.evidence.plan import Plan
from brinell.hashing import file_sha256
from brinell.lenses.rating import describe_untested
from brinell.lenses.sample import describe_sample
from brinell.results import Run
from brinell.runs.plain import to_plain
from brinell.units import format_amount

VERSION = 1
#: files of a run that a record rests on; reports and pictures can be made again
MEASURED = ("manifest.json", "samples.parquet", "clean.parquet", "rows/**/*.parquet")
#: what a record supports, and in which respect; whether it suffices is for an assessor to say
CLAUSES = (
    ("EU AI Act, Art. 13(3)(b)(ii)", "the level of accuracy and robustness that was tested, and what may affect it"),
    ("EU AI Act, Art. 15(3) and (4)", "declared accuracy metrics, and resilience to errors of the input"),
    ("EU AI Act, Annex IV, 2(g)", "test data, metrics, dated test records and the person responsible"),
    ("ISO/IEC 24029 series", "statistical assessment of the robustness of neural networks"),
    ("NIST AI RMF, MEASURE 2.5", "validity and reliability, with the limits of what was tested"),
)


def build_record(run: Run, plan: Plan, gate: GateResult, plan_hash: str) -> dict[str, Any]:
    """Return everything that the record says, as plain data; `gate` is the result of the plan's requirements."""
    return {
        "version": VERSION,
        "date": time.strftime("%Y-%m-%d"),
        "title": plan.title,
        "responsible": plan.responsible,
        "operating_domain": plan.operating_domain,
        "passed": gate.passed and not gate.select("untested"),
        "verdict": gate.verdict,
        "requirements": list(_requirements(gate)),
        "tested": list(_tested(run)),
        "sample": describe_sample(run),
        "not_tested": [*plan.not_tested, *describe_untested(run), *_unsupported(run)],
        "degradation": {
            lens: {model: findings.verdict(model) for model in findings.models} for lens, findings in run.findings().items()
        },
        "data": _data(run, plan),
        "models": {name: model.options["source"] for name, model in run.models.items()},
        "environment": {
            name: version
            for name, version in {**run.manifest["versions"], **run.manifest["machine"]}.items()
            if version is not None  # not installed
        },
        "measured": run.manifest["created"],
        "run": run.folder,
        "hashes": {
            "plan": plan_hash,
            "models": {name: model.fingerprint for name, model in run.models.items()},
            "images": run.data["fingerprint"],
            "data_files": hash_data(run),
            "run_files": hash_run(run),
            "code": hash_code(),
        },
        "clauses": [{"clause": clause, "supports": what} for clause, what in CLAUSES],
    }


def _requirements(gate: GateResult) -> Iterator[dict[str, Any]]:
    for result in gate.by_rule:
        checks = gate.checks_of(result.rule)
        yield {
            "name": result.rule.title,
            "requirement": result.rule.description,
            "state": result.state,
            "findings": [f"{check.subject}: {check.finding}" for check in checks],
            "checks": [to_plain(check.to_json()) for check in checks],
        }


def _tested(run: Run) -> Iterator[dict[str, Any]]:
    """Yield what was measured: each lens's operators, and how many rows there are."""
    for lens, operator, rows in run.query("select lens, operator, count(*) from rows group by all order by all"):
        facts = run.facts(operator)
        yield {
            "lens": lens,
            "operator": operator,
            "title": run.title(operator),
            "unit": facts.get("unit", ""),
            "rows": rows,
        }


def _unsupported(run: Run) -> list[str]:
    return [f"{run.title(one['operator'])} on {one['model']}: {one['reason']}" for one in run.manifest["unsupported"]]


def _data(run: Run, plan: Plan) -> dict[str, Any]:
    ((images, smallest, largest),) = run.query(
        "select count(*), min(least(width, height)), max(greatest(width, height)) from samples"
    )
    ((used,),) = run.query("select count(distinct index) from clean where kept")
    skipped = run.query("select name, problem from samples where problem is not null order by all")
    return {
        "name": run.data["name"],
        "description": plan.data,
        "images": images,
        "used": used,
        "sides": [smallest, largest],
        "labels": _count_labels(run),
        "excluded": [{"image": name, "reason": reason} for name, reason in skipped],
        "left_out": format_amount(images - used - len(skipped), "images"),
    }


def _count_labels(run: Run) -> dict[str, int]:
    """Return how many images have each label, the most frequent first, in the words of the first model's classes."""
    name, model = next(iter(run.models.items()))
    names = None if model.classes is None else Classes(model.classes)
    counts = run.query(
        "select label, count(*) from clean where model = ? and label is not null group by all order by 2 desc, 1", [name]
    )
    named: Counter[str] = Counter()  # two classes may have one name: cranes
    for label, count in counts:
        named[str(label) if names is None else names.short_name(label)] += count
    return dict(named.most_common())


def hash_run(run: Run) -> dict[str, str]:
    """Return the SHA-256 of the files that a local run was measured into."""
    folder = Path(run.folder)
    files = sorted(file for pattern in MEASURED for file in folder.glob(pattern))
    return {str(file.relative_to(folder)): file_sha256(file) for file in files}


def hash_data(run: Run) -> dict[str, str]:
    """Return the SHA-256 of the data's files, where it consists of files: one for each image, or one for all."""
    source = Path(run.source["data"]["source"])
    if source.is_file():
        return {source.name: file_sha256(source)}
    named = {name: source / name for (name,) in run.query("select name from samples order by name")}
    return {name: file_sha256(file) for name, file in named.items() if file.is_file()}


def hash_code() -> str:
    """Return the SHA-256 of the installed package's source, as of its files in order."""
    folder, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
