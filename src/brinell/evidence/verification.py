"""Verifies a test record: its files, the plan, the run, the data and the models that it rests on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from brinell.engine.verification import Check, verify_files, verify_rows
from brinell.errors import BrinellError, RunError
from brinell.evidence.files import CHECKSUMS, NAMESPACE, SIGNATURE
from brinell.evidence.record import hash_code, hash_data, hash_run
from brinell.hashing import file_sha256
from brinell.results import Run
from brinell.units import format_amount


def is_evidence(folder: Path) -> bool:
    """Whether a folder is that of a test record."""
    return (folder / CHECKSUMS).is_file() and (folder / "record.json").is_file()


def verify_evidence(
    folder: Path, *, run: str | None = None, sample: int = 12, trust: bool = False, signers: Path | None = None
) -> list[Check]:
    """Check a record, then its run, data and models, and measure a sample of rows again (0: open no model).

    `run` is where the run is now, if it moved. `signers` lists who may sign, in the format of `ssh-keygen`.
    """
    checks = [_check_files(folder), *_check_signature(folder, signers)]
    if not checks[0].passed:
        return checks
    record: dict[str, Any] = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    hashes = record["hashes"]
    opened = Run(run or record["run"])
    found = file_sha256(folder / "plan.yaml")
    stored = opened.manifest.get("plan", {}).get("sha256")
    problems = () if found == hashes["plan"] == stored else ("plan.yaml is not the plan that the run began with",)
    checks.append(Check("plan", "its hash in the record and in the run", problems))
    checks.append(_compare("run files", hashes["run_files"], hash_run(opened), opened.folder))
    if not checks[-1].passed:
        return checks  # tables that changed may not be readable
    checks.append(_compare("data files", hashes["data_files"], hash_data(opened), opened.source["data"]["source"]))
    checks.append(_check_code(hashes["code"], record["environment"]))
    if not all(check.passed for check in checks):
        return checks
    return [*checks, *verify_files(opened), *_check_again(opened, sample, trust)]


def _check_files(folder: Path) -> Check:
    lines = (line.split("  ", 1) for line in (folder / CHECKSUMS).read_text().splitlines())
    known = {name: digest for digest, name in lines}
    own = {file.name: file_sha256(file) for file in folder.iterdir() if file.name not in (CHECKSUMS, SIGNATURE)}
    return _compare("record", known, own, str(folder))


def _compare(name: str, known: Mapping[str, str], found: Mapping[str, str], where: str) -> Check:
    problems = [f"{file} is missing in {where}" for file in known if file not in found]
    problems += [f"{file} is new in {where}" for file in found if file not in known]
    problems += [f"{file} in {where} has changed" for file in known if file in found and known[file] != found[file]]
    return Check(name, f"hashes of {len(known):,} files", tuple(problems))


def _check_code(known: str, versions: Mapping[str, Any]) -> Check:
    """Say whether this is the code that measured; newer code may verify an old record, so another one is no failure."""
    if hash_code() == known:
        return Check("code", "brinell is the one that wrote the record")
    return Check(
        "code", f"another brinell than the record's ({versions.get('brinell', 'unknown')}) checks it", skipped=True
    )


def _check_signature(folder: Path, signers: Path | None) -> Iterator[Check]:
    """Check the signature, if there is one. Without a list of signers, only that the record is what was signed."""
    if not (folder / SIGNATURE).is_file():
        if signers is not None:
            yield Check("signature", "none", ("the record is not signed",))
        return
    if shutil.which("ssh-keygen") is None:
        yield Check("signature", "not checked: it needs ssh-keygen, which comes with OpenSSH", skipped=True)
        return
    command = ["ssh-keygen", "-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(folder / SIGNATURE)]
    detail = "of the checksums, by a key that nobody vouches for (--signers FILE)"
    if signers is not None:
        finding = ["ssh-keygen", "-Y", "find-principals", "-s", str(folder / SIGNATURE), "-f", str(signers)]
        who = subprocess.run(finding, capture_output=True, text=True, check=False).stdout.strip() or "nobody in the list"
        command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", who, *command[3:]]
        detail = f"of the checksums, by {who}"
    done = subprocess.run(command, input=(folder / CHECKSUMS).read_bytes(), capture_output=True, check=False)
    yield Check("signature", detail, () if done.returncode == 0 else ("the signature doesn't fit the checksums",))


def _check_again(run: Run, sample: int, trust: bool) -> Iterator[Check]:
    """Check that models and images are those of the run, and measure some rows again."""
    if sample == 0:
        yield Check("models and images", "not checked: --sample 0 opens no model", skipped=True)
        return
    from brinell.datasets.objects import object_rule
    from brinell.engine.manifest import refuse_other_images
    from brinell.engine.reopening import reopen
    from brinell.engine.shards import worker_count
    from brinell.engine.survey import Survey, select_indices

    try:
        setup = reopen(run, trust=trust, call="verify")
        objects = object_rule(setup.config.data, any(model.detector is not None for model in setup.models))
        indices = select_indices(setup.dataset, setup.config.data, setup.config.seed)
        with ThreadPoolExecutor(worker_count(setup.config.execution.workers), "decode") as pool:
            samples = Survey(setup.dataset, indices, pool, strict=False, objects=objects).table(lambda done: None)
        refuse_other_images(run.store, setup.dataset, samples)
    except RunError as error:
        yield Check("models and images", "as the run measured them", (_describe_change(error, run.folder),))
        return
    except BrinellError as error:
        yield Check("models and images", "opened again", (str(error),))
        return
    models, images = format_amount(len(setup.models), "models"), format_amount(len(samples), "images")
    yield Check("models and images", f"{models} and {images}, as the run measured them")
    yield verify_rows(run, setup, sample=sample)


def _describe_change(error: RunError, folder: str) -> str:
    """Return what differs from the run, without advice on how to run."""
    return str(error).partition("; ")[0].replace(f"{folder} holds another run", "changed since the run")
