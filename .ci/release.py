"""Build the wheel and the source archive, and try the wheel where nothing else of brinell is: `python .ci/release.py`.

The wheel is built from the source archive, installed with the extra `demo` into a new environment of the interpreter that
runs this, and used in an empty folder. `--demo` also runs the demo, `--sbom` writes sbom.json. The versions are those of
constraints.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST, ENVIRONMENT, TOOLS = ROOT / "dist", ROOT / ".venv-release", ROOT / ".venv-build"
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
RUN = "run --model efficientnet_lite0 --data demo-photos --limit 3 --operator jpeg --levels 4 --out runs/smoke"
#: commands of the smoke run, and what each must print or write
SMOKE = {
    "--version": "",
    "ls operators": "white_fog",
    RUN: "runs/smoke/manifest.json",
    "summary runs/smoke": "JPEG",
    "report runs/smoke": "runs/smoke/report.html",
    "gate runs/smoke --rules rules.yaml --junit gate.xml": "gate.xml",
    "view runs/smoke --bundle pages": "pages/index.html",
    "verify runs/smoke": "",
}
RULES = "require: estimate\nrules: [{measure: clean, min: 0}]\n"


def main() -> None:
    """Build, install, try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", action="store_true", help="also run the demo")
    parser.add_argument("--sbom", action="store_true", help="also write sbom.json")
    given = parser.parse_args()
    wheel = build()
    check_files(wheel)
    install(wheel)
    with tempfile.TemporaryDirectory() as folder:
        try_out(Path(folder), demo=given.demo)
    if given.sbom:
        write_sbom()


def build() -> Path:
    """Build both archives and return the wheel."""
    call(sys.executable, "-m", "venv", "--clear", TOOLS)
    call(python(TOOLS), *PIP, "build", "twine")
    for old in DIST.glob("brinell-*"):
        old.unlink()
    call(python(TOOLS), "-m", "build", "--outdir", DIST, ROOT)
    call(python(TOOLS), "-m", "twine", "check", "--strict", *DIST.glob("brinell-*"))
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_files(wheel: Path) -> None:
    """Check that the wheel has everything that is no code, and the licences of what is not ours."""
    files = subprocess.run(["git", "ls-files", "src/brinell"], cwd=ROOT, check=True, capture_output=True, text=True)
    expected = {name.removeprefix("src/") for name in files.stdout.splitlines() if (ROOT / name).is_file()}
    found = set(zipfile.ZipFile(wheel).namelist())
    licences = {name.rpartition("/")[2] for name in found if ".dist-info/licenses/" in name}
    expected_licences = {Path(name).name for name in expected if "LICENSE" in name} | {"LICENSE", "NOTICE"}
    require(expected <= found, f"the wheel lacks {sorted(expected - found)}")
    require(expected_licences <= licences, f"the wheel's licences lack {sorted(expected_licences - licences)}")
    others = {name for name in found - expected if ".dist-info/" not in name}
    require(not others, f"the wheel has files that are not in the repository: {sorted(others)}")


def install(wheel: Path) -> None:
    """Install the wheel into a new environment."""
    call(sys.executable, "-m", "venv", "--clear", ENVIRONMENT)
    call(python(ENVIRONMENT), *PIP, "--constraint", ROOT / "constraints.txt", f"{wheel}[demo]")
    call(python(ENVIRONMENT), "-m", "pip", "check")


def try_out(folder: Path, *, demo: bool) -> None:
    """Run commands in an empty folder, as a user would."""
    (folder / "rules.yaml").write_text(RULES)
    for line, expected in {**SMOKE, **({"demo": "runs/demo/report.html"} if demo else {})}.items():
        printed = call(ENVIRONMENT / "bin" / "brinell", *line.split(), cwd=folder)
        if "/" in expected or "." in expected:
            require((folder / expected).is_file(), f"brinell {line} wrote no {expected}")
        else:
            require(expected in printed, f"brinell {line} did not print {expected}")
    where = call(python(ENVIRONMENT), "-c", "import brinell; print(brinell.__file__)", cwd=folder).strip()
    require(Path(where).is_relative_to(ENVIRONMENT), f"this is not the wheel, but {where}")


def write_sbom() -> None:
    """List everything that is installed with the wheel, with licences, as CycloneDX."""
    call(python(TOOLS), *PIP, "cyclonedx-bom")
    file = DIST / "sbom.json"
    tool = TOOLS / "bin" / "cyclonedx-py"
    call(tool, "environment", "--output-reproducible", "--output-file", file, python(ENVIRONMENT))
    parts = json.loads(file.read_text())["components"]
    unknown = [part["name"] for part in parts if not part.get("licenses")]
    require("brinell" in {part["name"] for part in parts}, f"{file} doesn't list brinell")
    print(f"{file.relative_to(ROOT)}: {len(parts)} packages; without a stated licence: {', '.join(unknown) or 'none'}")


def python(environment: Path) -> Path:
    """Return the interpreter of an environment."""
    return environment / "bin" / "python"


def call(*words: str | Path, cwd: Path | None = None) -> str:
    """Run a command without the variables that point into this clone; print how long it took, and return its output."""
    own = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    began = time.monotonic()
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=own, capture_output=True, text=True, check=False)
    shown = " ".join(Path(word).name if isinstance(word, Path) else word for word in words)
    print(f"{time.monotonic() - began:6.1f} s  {shown}", flush=True)
    require(done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def require(holds: bool, message: str) -> None:
    """End with a message unless something holds."""
    if not holds:
        sys.exit(f"error: {message}")


if __name__ == "__main__":
    main()
