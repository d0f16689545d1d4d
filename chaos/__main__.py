"""Try every fault, and write docs/reliability.md: python -m chaos [--scale 0.1] [--seed 0] [--only NAME]"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from random import Random

from chaos.images import bad_images
from chaos.killing import killed_commands, kills
from chaos.mutants import RESULTS as MUTANTS
from chaos.mutants import TARGETS
from chaos.processes import damaged_files, full_disk, signals, two_writers
from chaos.scenario import Result, Scenario, stop_after
from chaos.servers import hostile_servers
from chaos.stores import object_store
from chaos.survivors import REASONS
from chaos.texts import malformed_texts

SCENARIOS: tuple[Scenario, ...] = (
    kills, killed_commands, signals, two_writers, full_disk, damaged_files, bad_images, malformed_texts, hostile_servers,
    object_store,
)  # fmt: skip
FUZZED = ("image", "config.yaml", "mapping.yaml", "manifest.csv", "manifest.jsonl", "instances.json")
FUZZ_SECONDS = 30  # of each target
FOLDER = Path(__file__).parent
STORED = FOLDER / "results.json"
PAGE = FOLDER.parent / "docs" / "reliability.md"


def fuzzing(work: Path, random: Random, scale: float) -> Result:
    """Fuzz every target for some seconds, if atheris is installed."""
    result = Result(
        "coverage-guided fuzzing (atheris)", "nothing but an error of one line, for images, configs, mappings and manifests"
    )
    if importlib.util.find_spec("atheris") is None:
        result.skipped = "needs pip install --requirement chaos/requirements.txt"
        return result
    for target in FUZZED:
        given = [sys.executable, "-m", "chaos.fuzz", target, str(max(1, round(FUZZ_SECONDS * scale)))]
        done = subprocess.run(given, capture_output=True, text=True, errors="replace")
        inputs = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("Done ")]
        result.tried += int(inputs[0]) if inputs else 0
        result.expect(done.returncode == 0, f"{target}: {done.stderr[-600:]}")
    return result


def main() -> None:
    """Try the faults; exit code 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the attempts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of a scenario's name; others keep their stored results")
    parser.add_argument("--minutes", type=float, default=60, help="after which no further kill is tried, for each scenario")
    parser.add_argument("--page", action="store_true", help="write the page from the stored results alone")
    given = parser.parse_args()
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    broken = 0
    for scenario in () if given.page else (*SCENARIOS, fuzzing):
        if given.only not in scenario.__name__:
            continue
        began = time.monotonic()
        stop_after(given.minutes)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            result = scenario(Path(work), Random(given.seed), given.scale)
        seconds = time.monotonic() - began
        outcome = result.skipped or f"{result.tried:,} tried, {len(result.broken)} broken"
        print(f"{scenario.__name__}: {outcome} ({seconds:.0f} s)")
        for problem in result.broken[:20]:
            print(f"  {problem}", flush=True)
        broken += len(result.broken)
        if not result.skipped:
            stored[scenario.__name__] = {
                "fault": result.fault, "holds": result.holds, "tried": result.tried, "broken": result.broken[:20],
                "seed": given.seed, "date": date.today().isoformat(),
            }  # fmt: skip
            STORED.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render(stored, json.loads(MUTANTS.read_text(encoding="utf-8"))), encoding="utf-8")
    sys.exit(1 if broken else 0)


def render(stored: dict[str, dict[str, object]], mutants: dict[str, dict[str, dict[str, bool]]]) -> str:
    """Return the page: what is promised, what was tried, and which mutants survived."""
    order = [scenario.__name__ for scenario in (*SCENARIOS, fuzzing)]
    lines = [
        "## What was tried",
        "",
        "| fault | has to hold | tried | did not hold | seed, date |",
        "|---|---|---|---|---|",
    ]
    for one in (stored[name] for name in order if name in stored):
        problems = one["broken"]
        assert isinstance(problems, list) and isinstance(one["tried"], int)
        lines.append(
            f"| {one['fault']} | {one['holds']} | {one['tried']:,} | {len(problems)} | {one['seed']}, {one['date']} |"
        )
    problems = [f"- {one['fault']}, seed {one['seed']}: {problem}" for one in stored.values() for problem in one["broken"]]  # type: ignore[attr-defined]
    lines += ["", "What did not hold:", "", *problems] if problems else []
    return (
        (FOLDER / "page.md").read_text(encoding="utf-8").replace("@results@\n", "\n".join([*lines, *_mutants(mutants), ""]))
    )


def _mutants(mutants: dict[str, dict[str, dict[str, bool]]]) -> list[str]:
    """Return the section about mutants: a sample of each module, and those that no test notices, with the reason."""
    tried = sum(len(one["tried"]) for one in mutants.values())
    alive = [
        (name, label) for name, one in sorted(mutants.items()) for label, lives in sorted(one["tried"].items()) if lives
    ]
    untried = [f"`{name}`" for name in TARGETS if name not in mutants]
    lines = [
        "",
        "## Mutants",
        "",
        "Small errors are put into criteria, statistics and searches, one at a time (`python -m chaos.mutants`), and tests",
        f"have to fail. Of {tried} mutants, a random sample of each module's, {tried - len(alive)} were killed "
        f"({100 * (tried - len(alive)) / max(1, tried):.0f} %; the aim is 85 %).",
    ]
    if untried:
        lines += [f"Not tried yet: {', '.join(untried)}."]
    lines += ["", "| module | killed | tried |", "|---|---|---|"]
    for name, one in sorted(mutants.items()):
        lines.append(f"| `{name}` | {list(one['tried'].values()).count(False)} | {len(one['tried'])} |")
    if alive:
        lines += ["", "Survivors:", "", "| module | mutant | why no test notices |", "|---|---|---|"]
    lines += [f"| `{name}` | {label} | {REASONS.get((name, label), 'not looked into')} |" for name, label in alive]
    return lines


if __name__ == "__main__":
    main()
