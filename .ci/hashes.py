"""Write constraints-hashed.txt: the pins of constraints.txt with the hashes of the files that CI may install.

    python .ci/hashes.py INDEX [WHEEL…]

Hashes come from a package index (the address of its simple pages, as pip's --index-url has it), for CPython 3.11 on Linux
x86-64. A wheel that is given is allowed alone: PyTorch's build for the CPU has the version of PyPI's build, and is not on
PyPI.
"""

from __future__ import annotations

import hashlib
import html
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
LINKS = re.compile(r'href="[^"#]*/([^"#/]+)#sha256=([0-9a-f]{64})"')
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)]
PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
TAGS: frozenset[Tag] = frozenset(
    [*cpython_tags((3, 11), platforms=PLATFORMS), *compatible_tags((3, 11), "cp311", PLATFORMS)]
)


def pins() -> dict[str, str]:
    """Return the pinned versions by name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))  # type: ignore[misc]


def hashes(index: str, name: str, version: str) -> list[str]:
    """Return the hashes of a release's wheels for this platform, or that of its source if there are none."""
    with urllib.request.urlopen(f"{index}/{canonicalize_name(name)}/", timeout=180) as answer:
        page = html.unescape(answer.read().decode())
    wheels, sources = [], []
    for file, digest in LINKS.findall(page):
        if f"-{version}-" in file and file.endswith(".whl"):
            wheels += [digest] if not TAGS.isdisjoint(parse_wheel_filename(file)[3]) else []
        elif file.endswith(f"-{version}.tar.gz"):
            sources.append(digest)
    return sorted(wheels or sources)


def main() -> None:
    """Write the file; stop if a pin has no file."""
    pinned = pins()
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(pinned, pool.map(partial(hashes, sys.argv[1]), pinned, pinned.values()), strict=True))
    for wheel in map(Path, sys.argv[2:]):
        name, *_ = parse_wheel_filename(wheel.name)
        own = next(each for each in pinned if canonicalize_name(each) == name)
        found[own] = [hashlib.sha256(wheel.read_bytes()).hexdigest()]
    missing = [name for name in pinned if not found[name]]
    if missing:
        sys.exit(f"no file for {', '.join(missing)}")
    text = "# Written by .ci/hashes.py from constraints.txt: what CI installs on Linux x86-64 with Python 3.11.\n"
    for name, version in pinned.items():
        text += " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in found[name])]) + "\n"
    (ROOT / "constraints-hashed.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
