"""The folder of a test record: JSON, Markdown, HTML and PDF, the plan, the config, checksums and a signature."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import yaml

from brinell.comparison.gates import check_run
from brinell.errors import ConfigError
from brinell.evidence.plan import read_plan, require_same_plan
from brinell.evidence.record import build_record
from brinell.hashing import file_sha256
from brinell.lenses.rating import describe_untested, rate
from brinell.lenses.sample import describe_sample
from brinell.report.cards import Card, make_cards
from brinell.report.page import Content, write_report
from brinell.results import Run
from brinell.run_config import load_config

CHECKSUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
NAMESPACE = "brinell-evidence"  # of signatures, so that one of something else is not taken for one of a record
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")  # that print HTML as PDF


def write_evidence(run: Run, plan_file: Path, out: Path, *, key: Path | None = None) -> dict[str, Any]:
    """Write the record of a finished local run into a new folder, and return it."""
    if "://" in run.folder:
        raise ConfigError(f"{run.folder} is not a local folder; copy the run to this machine first")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty; choose another folder")
    plan = read_plan(plan_file)
    digest = require_same_plan(run, plan_file)
    gate = check_run(plan.gate, run)
    record = build_record(run, plan, gate, digest)
    content = Content(run, run.shown(), rate(run), describe_untested(run), gate, describe_sample(run))
    cards = make_cards(run, content.rated, content.sections)
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(plan_file, out / "plan.yaml")
    texts = {
        "record.json": json.dumps(record, indent=1, ensure_ascii=False) + "\n",
        "record.md": _render("record.md.j2", record),
        "record.html": _render("record.html", record, cards),
        "config.yaml": yaml.safe_dump(_config(run), sort_keys=False, allow_unicode=True),
    }
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    write_report(content, out / "report.html")
    print_pdf(out / "record.html", out / "record.pdf")
    lines = [f"{file_sha256(file)}  {file.name}\n" for file in sorted(out.iterdir())]
    (out / CHECKSUMS).write_text("".join(lines))
    if key is not None:
        sign(out / CHECKSUMS, key)
    return record


def _config(run: Run) -> dict[str, Any]:
    """Return the run's config without what is at its default, or is of this machine alone."""
    config = load_config(run.source)
    content = config.model_dump(mode="json", exclude_defaults=True, exclude={"out", "execution", "plan"})
    content["lenses"] = [
        {"name": lens.name, **lens.model_dump(mode="json", exclude_defaults=True)} for lens in config.lenses
    ]
    return content


def _render(template: str, record: dict[str, Any], cards: Sequence[Card] = ()) -> str:
    """Return the record as a page; cards have the pictures of what breaks each model most easily."""
    loader = jinja2.PackageLoader("brinell.evidence", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=template.endswith(".html"), keep_trailing_newline=True)
    environment.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
    return environment.get_template(template).render(record=record, cards=cards)


def print_pdf(page: Path, file: Path) -> bool:
    """Print a page as PDF with an installed Chromium or Chrome; return whether there is one."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        return False
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--disable-gpu", "--no-first-run", "--no-sandbox", f"--user-data-dir={profile}"]
        command = [browser, *options, "--no-pdf-header-footer", f"--print-to-pdf={file}", page.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    return done.returncode == 0 and file.is_file()


def sign(file: Path, key: Path) -> None:
    """Write a detached signature of a file with an SSH key, as `ssh-keygen -Y verify` checks it."""
    if shutil.which("ssh-keygen") is None:
        raise ConfigError("signing needs ssh-keygen, which comes with OpenSSH")
    command = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(file)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"can't sign with {key}: {done.stderr.strip().splitlines()[-1]}")
