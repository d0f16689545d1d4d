"""What each core dependency costs: its size, the CPU time to import it, and the commands that load it.

`python -m benchmarks.dependencies PYTHON` measures in another environment, which should hold a plain install of brinell
(python -m venv clean && clean/bin/pip install dist/*.whl), and writes docs/dependencies.md; `page` writes it from results.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

HERE = Path(__file__).parent
RESULT, TEMPLATE = HERE / "results" / "dependencies.json", HERE / "dependencies.md.j2"
PAGE = HERE.parent / "docs" / "dependencies.md"
#: the part of a package that is imported, where it isn't the package's name
MODULES = {
    "opencv-python-headless": "cv2",
    "pillow": "PIL.Image",
    "pyyaml": "yaml",
    "vl-convert-python": "vl_convert",
}
COMMANDS = {
    "run": ["run", "--model", "fake:grey", "--data", "greys", "--operator", "fade_black", "--levels", "2", "--out", "run"],
    "summary": ["summary", "run"],
    "report": ["report", "run"],
}
TIMES = 7  # imports, each in a fresh process
_LIST = """
import importlib.metadata as metadata, json
def size(one):
    files = [one.locate_file(file) for file in one.files or ()]
    return sum(file.stat().st_size for file in files if file.is_file())
print(json.dumps([{"name": one.name, "version": one.version, "requires": one.requires or [], "bytes": size(one)}
                  for one in metadata.distributions()]))
"""
_IMPORT = "import time; began = time.process_time(); import {}; print(time.process_time() - began)"
_LOADED = "import sys; from brinell.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


def measure(python: str) -> dict[str, Any]:
    """Return the cost of every core dependency, as installed for an interpreter."""
    installed = {canonicalize_name(one["name"]): one for one in json.loads(_ask(python, _LIST).stdout)}
    core = _needs(installed, "brinell")
    loaded = _loaded(python)
    rows = [
        {
            "name": name,
            "version": installed[name]["version"],
            "megabytes": round(installed[name]["bytes"] / 1e6, 1),
            "alone": round(sum(installed[one]["bytes"] for one in _only_for(installed, core, name)) / 1e6, 1),
            "seconds": round(_import_time(python, name), 3),
            "loaded": [
                command for command, modules in loaded.items() if MODULES.get(name, name).partition(".")[0] in modules
            ],
        }
        for name in sorted(core)
    ]
    everything = _closure(installed, core)
    return {
        "python": _ask(python, "import platform; print(platform.python_version())").stdout.strip(),
        "packages": len(everything),
        "megabytes": round(sum(installed[one]["bytes"] for one in everything) / 1e6),
        "dependencies": sorted(rows, key=lambda row: -row["alone"]),
    }


def _ask(python: str, code: str, *arguments: str, cwd: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", "-c", code, *arguments], check=True, capture_output=True, text=True, cwd=cwd
    )  # isolated: nothing of this clone is imported


def _needs(installed: Mapping[str, Any], name: str) -> set[str]:
    """Return what a package requires itself, without extras."""
    needed = map(Requirement, installed[name]["requires"])
    names = {canonicalize_name(one.name) for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})}
    return names & installed.keys()


def _closure(installed: Mapping[str, Any], names: set[str]) -> set[str]:
    """Return packages and all that they require."""
    found, new = set(names), set(names)
    while new:
        new = set().union(*(_needs(installed, name) for name in new)) - found
        found |= new
    return found


def _only_for(installed: Mapping[str, Any], core: set[str], name: str) -> set[str]:
    """Return what would not be installed without a dependency: itself, and what nothing else needs."""
    others = _closure(installed, core - {name})
    return _closure(installed, {name}) - others | ({name} - others)


def _import_time(python: str, name: str) -> float:
    code = _IMPORT.format(MODULES.get(name, name))
    return statistics.median(float(_ask(python, code).stdout) for _ in range(TIMES))


def _loaded(python: str) -> dict[str, set[str]]:
    """Return the packages that each command loads, on a small run."""
    with tempfile.TemporaryDirectory() as folder:
        for grey in range(80, 240, 16):
            file = Path(folder) / "greys" / "light" / f"{grey}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((32, 32, 3), grey, np.uint8)).save(file)
        return {
            command: {module.partition(".")[0] for module in _ask(python, _LOADED, *words, cwd=folder).stderr.split()}
            for command, words in COMMANDS.items()
        }


def render() -> str:
    """Return the page, from stored results."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.from_string(TEMPLATE.read_text()).render(json.loads(RESULT.read_text()))


if __name__ == "__main__":
    if sys.argv[1:] != ["page"]:
        RESULT.write_text(json.dumps(measure(str(Path(sys.argv[1]).absolute())), indent=1) + "\n")
    PAGE.write_text(render())
