"""The notebooks as they are stored: without outputs, with links that lead somewhere. `make docs` executes them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from website.changes import _by_name, _definition
from website.checks import find_faults

import brinell
from brinell.perturb.operator import find_operator

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_they_are_stored_without_outputs(notebook: Path) -> None:
    code = cells(notebook, "code")
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert "widgets" not in json.loads(notebook.read_text())["metadata"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_they_use_what_there_is(notebook: Path) -> None:
    owners = {"brinell": brinell, "run": brinell.Run, "knob": brinell.Run}
    for cell in cells(notebook, "code"):
        for node in ast.walk(ast.parse(source(cell))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in owners:
                assert hasattr(owners[node.value.id], node.attr), f"{node.value.id}.{node.attr}"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_their_links_lead_somewhere(notebook: Path) -> None:
    links = [link for cell in cells(notebook, "markdown") for link in re.findall(r"\]\(([^)#\s]*)", source(cell))]
    assert links and [link for link in links if not (notebook.parent / link).is_file()] == []


def test_they_are_on_the_site() -> None:
    index = (ROOT / "website" / "pages" / "index.md").read_text()
    assert NOTEBOOKS and [path.stem for path in NOTEBOOKS if f"notebooks/{path.stem}\n" not in index] == []


# ---- pages of operators ----


def test_pages_show_the_code_that_defines_a_change() -> None:
    """Corruptions are registered as functions around their definitions; a page has the definition, and its constants."""
    found = {change.id: _definition(change) for kind, variants in _by_name() if kind == "operator" for change in variants}
    corruptions = [name for name in found if ":imagenet_c" in name]
    assert len(corruptions) == 29
    for name in corruptions:
        function, constants = found[name]
        assert function.__name__ == name.partition(":")[0] and len(constants.at(5, 224, 224)) >= 1
    assert found["fade_black:published"] == (find_operator("fade_black:published").function, None)


# ---- what `make docs` checks about the finished site ----


def test_faults_of_a_site(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "index.html").write_text('<p id="here"><a href="../">up</a> <a href="https://example.org">out</a>')
    (tmp_path / "own.css").write_text("")
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="own.css?v=1"><link rel="canonical" href="https://example.org">'
        '<link rel="stylesheet" href="//fonts.example.org/x.css"><script src="https://cdn.example.org/x.js"></script>'
        '<img src="data:image/png;base64,AA"><img src="gone.png">'
        '<a href="more/#here"></a><a href="more/index.html#there"></a><a href="gone.html"></a><a href="#top"></a>'
    )
    assert list(find_faults(tmp_path)) == [
        "index.html loads //fonts.example.org/x.css, which needs a network",
        "index.html loads https://cdn.example.org/x.js, which needs a network",
        "index.html loads gone.png, which doesn't exist",
        "index.html links to more/index.html#there, which has no such place",
        "index.html links to gone.html, which doesn't exist",
        "index.html links to #top, which has no such place",
    ]
