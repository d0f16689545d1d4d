"""Registries: names, variants, and parts that installed packages add through entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from brinell.datasets.sources import SOURCES as DATASETS
from brinell.errors import BrinellError, PluginError, UnknownName
from brinell.models.sources import SOURCES as MODELS
from brinell.registry import Registry, VariantId, find_variant, load_reference, select_variants

GROUP = "brinell.shapes"
shapes: Registry[Any]  # the registry that a test's plugin module adds to


@dataclass(frozen=True)
class Part:
    name: str
    variant: str

    @property
    def id(self) -> str:
        return str(VariantId(self.name, self.variant))


@pytest.fixture
def registry() -> Registry[Any]:
    global shapes
    shapes = Registry("shape", group=GROUP)
    return shapes


Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package with one module and one entry point, as pip would."""
    monkeypatch.syspath_prepend(str(tmp_path))
    installed = []

    def add(package: str, entry_point: str, code: str) -> None:
        installed.append(package)
        (tmp_path / f"{package}.py").write_text(code)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entry_point}\n")

    yield add
    for package in installed:
        sys.modules.pop(package, None)


REGISTERS = """
import test_registry

@test_registry.shapes.register("circle")
def circle():
    return "round"
"""


def test_a_module_registers_its_parts_on_the_first_read(registry: Registry[Any], install: Install) -> None:
    registry.add("square", lambda: "angular")
    install("round_shapes", "anything = round_shapes", REGISTERS)
    assert "round_shapes" not in sys.modules, "adding a part loads no plugins"
    assert list(registry) == ["square", "circle"]
    assert registry["circle"]() == "round"


def test_a_part_is_added_under_the_name_of_its_entry_point(registry: Registry[Any], install: Install) -> None:
    install("round_shapes", "oval = round_shapes:oval", "def oval(): return 'long'")
    assert "oval" in registry and registry["oval"]() == "long"


def test_a_part_with_an_id_is_added_under_its_id(registry: Registry[Any], install: Install) -> None:
    install("round_shapes", "oval = round_shapes:oval", "import test_registry\noval = test_registry.Part('oval', 'tall')")
    assert list(registry) == ["oval:tall"]
    assert find_variant(registry, "oval", "published").variant == "tall"


@pytest.mark.parametrize(
    ("read", "code", "error"),
    [
        (len, "import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        (list, "1 / 0", "ZeroDivisionError: division by zero"),
        (lambda registry: registry["square"], REGISTERS.replace("circle", "square"), "'square' is registered twice"),
        (lambda registry: "square" in registry, "raise BaseException.__class__('x')", "TypeError"),
    ],
)
def test_a_broken_plugin_is_named_when_the_registry_is_read(
    registry: Registry[Any], install: Install, read: Callable[[Registry[Any]], object], code: str, error: str
) -> None:
    registry.add("square", lambda: "angular")
    install("broken_shapes", "broken = broken_shapes", code)
    for _ in range(2):  # every read reports it
        with pytest.raises(PluginError) as raised:
            read(registry)
        assert "the shape plugin 'broken' of the package broken_shapes (broken_shapes) can't be loaded" in str(raised.value)
        assert error in str(raised.value)
        assert str(raised.value).endswith("or remove it: pip uninstall broken_shapes")
    assert isinstance(raised.value, BrinellError)


def test_a_missing_attribute_of_a_plugin_is_named(registry: Registry[Any], install: Install) -> None:
    install("empty_shapes", "oval = empty_shapes:oval", "")
    with pytest.raises(PluginError, match=r"empty_shapes:oval.* can't be loaded: AttributeError"):
        registry.values()


def test_a_plugin_may_read_the_registry_while_it_is_loaded(registry: Registry[Any], install: Install) -> None:
    registry.add("square", "angular")
    install("more_shapes", "more = more_shapes", "import test_registry as t\nt.shapes.add('cube', t.shapes['square'])")
    assert registry["cube"] == "angular"


def test_plugins_of_other_groups_are_not_loaded(install: Install) -> None:
    install("broken_shapes", "broken = broken_shapes", "1 / 0")
    assert list(Registry[Any]("colour", group="brinell.colours")) == list(Registry[Any]("colour")) == []


def test_a_clash_raises_and_a_miss_suggests(registry: Registry[Any]) -> None:
    registry.add("square", 1)
    with pytest.raises(ValueError, match="shape 'square' is registered twice"):
        registry.add("square", 2)
    with pytest.raises(UnknownName, match=r"there is no shape 'sqare'; did you mean square\?"):
        registry["sqare"]


def test_ids_of_variants() -> None:
    assert VariantId.parse("blur:published") == VariantId("blur", "published") == ("blur", "published")
    assert VariantId.parse("blur") == VariantId("blur")
    assert [str(VariantId.parse(text)) for text in ("blur", "blur:published")] == ["blur", "blur:published"]
    assert VariantId.parse("windows:0.2:x").variant == "0.2:x"


def test_variants_are_found_by_name_or_id(registry: Registry[Any]) -> None:
    for part in (Part("oval", "wide"), Part("oval", "tall"), Part("cube", "wide")):
        registry.add(part.id, part)
    assert find_variant(registry, "oval", "tall").id == "oval:tall"
    assert find_variant(registry, "oval:wide", "tall").id == "oval:wide"
    assert find_variant(registry, "cube", "tall").id == "cube:wide", "the first variant, if the preferred one is missing"
    selected = select_variants(registry, ["oval", "cube", "oval:tall"], "tall")
    assert [part.id for part in selected] == ["oval:tall", "cube:wide"]
    with pytest.raises(UnknownName, match="shape 'oval' has no variant 'flat'; it has wide, tall"):
        find_variant(registry, "oval:flat", "tall")
    with pytest.raises(UnknownName, match="no shape has the variant 'flat'"):
        select_variants(registry, ["oval"], "flat")


@pytest.mark.parametrize("source", [*MODELS.values(), *DATASETS.values()], ids=lambda source: source.form)
def test_every_source_has_an_opener(source: Any) -> None:
    assert callable(load_reference(source.opener) if isinstance(source.opener, str) else source.opener)
    assert source.description and not source.description.endswith(".")


PLUGIN = """
from brinell.criteria.criterion import CRITERIA, Criterion
from brinell.datasets.sources import SOURCES as DATASETS, Source as DatasetSource
from brinell.models.sources import Source

model = Source("twin:THRESHOLD", "a second grey model", "brinell.models.fake:open_fake")
dataset = DatasetSource("letters:WORD", "one sample per letter", lambda path, options: list(str(path)))


@CRITERIA.register("always")
def always():
    return Criterion("always", lambda answer: answer.verdict.rank >= 0)
"""
USE = """
from brinell import open_dataset, open_model
from brinell.criteria.criterion import find_criterion

print(open_model("twin:grey:0.3").classes.names, open_dataset("letters:word"), find_criterion("always").name)
"""


@pytest.mark.slow
def test_an_installed_package_adds_models_datasets_and_criteria(tmp_path: Path) -> None:
    (tmp_path / "my_parts.py").write_text(PLUGIN)
    (tmp_path / "my_parts-1.0.dist-info").mkdir()
    (tmp_path / "my_parts-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: my_parts\nVersion: 1.0\n")
    groups = {"models": "twin = my_parts:model", "datasets": "letters = my_parts:dataset", "criteria": "all = my_parts"}
    points = "".join(f"[brinell.{group}]\n{point}\n" for group, point in groups.items())
    (tmp_path / "my_parts-1.0.dist-info" / "entry_points.txt").write_text(points)
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "('light', 'dark') ['w', 'o', 'r', 'd'] always\n", done.stderr


def test_every_kind_of_part_has_its_entry_point_group() -> None:
    from brinell.criteria.criterion import CRITERIA
    from brinell.perturb.operator import OPERATORS
    from brinell.perturb.property import PROPERTIES

    groups = [registry.group for registry in (OPERATORS, PROPERTIES, CRITERIA, MODELS, DATASETS)]
    names = ["operators", "properties", "criteria", "models", "datasets"]
    assert groups == [f"brinell.{name}" for name in names]
