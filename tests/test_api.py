"""The package from Python: its public names, objects as inputs, and what a run shows of itself."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import altair
import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.errors import ConfigError, RunError
from conftest import PLAIN

LENS = {"name": "profile", "operators": ["fade_black", "jpeg"], "levels": 20}


def test_the_public_names() -> None:
    assert brinell.__all__ == [
        "OPERATORS",
        "BrinellError",
        "BudgetSpent",
        "ConfigError",
        "CorruptOptions",
        "Corrupted",
        "CurateOptions",
        "Curated",
        "DataError",
        "DataOptions",
        "Dataset",
        "Execution",
        "HardenConfig",
        "Hardened",
        "LabelError",
        "MissingExtra",
        "Model",
        "ModelError",
        "ModelOptions",
        "Operator",
        "PluginError",
        "Preprocess",
        "ProfileOptions",
        "Run",
        "RunConfig",
        "RunError",
        "Sample",
        "ServiceError",
        "UnknownName",
        "UnreadableImage",
        "compare",
        "corrupt",
        "curate",
        "decide",
        "find_operator",
        "gate",
        "harden",
        "leaderboard",
        "merge",
        "open_dataset",
        "open_model",
        "run",
        "wrap",
    ]
    assert all(hasattr(brinell, name) for name in brinell.__all__)
    errors = [getattr(brinell, name) for name in brinell.__all__ if name.endswith("Error") or name == "MissingExtra"]
    assert all(issubclass(error, brinell.BrinellError) for error in errors)


class Light(nn.Module):
    """Scores for light and dark, by the mean of images that were normalised to -1..1."""

    def forward(self, images: Tensor) -> Tensor:
        level = images.mean((1, 2, 3))
        return nn.functional.softmax(nn.functional.pad((level + 0.5)[:, None], (0, 1)) * 20, 1)


def pictures(count: int = 6) -> list[np.ndarray]:
    return [np.full((20, 24, 3), 100 + 20 * index, np.uint8) for index in range(count)]


class Maite:
    """A dataset of MAITE's shape, which subclasses nothing."""

    metadata = {"id": "maite-like", "index2label": {0: "dark", 1: "light"}}

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Any, Any, dict[str, Any]]:
        return pictures()[index].transpose(2, 0, 1), np.array([0.0, 1.0]), {"id": f"item-{index}"}


@pytest.mark.parametrize(
    "data",
    [
        [(picture, "light") for picture in pictures()],
        [(Image.fromarray(picture), 0) for picture in pictures()],
        Maite(),
        {"source": Maite(), "limit": 6},
        {"source": pictures(), "labels": "prediction"},
    ],
    ids=["pairs", "Pillow", "MAITE", "with options", "images alone"],
)
def test_objects_as_inputs(data: Any, tmp_path: Path) -> None:
    """The same images in many forms, and a module of one's own: the same rows."""
    model = brinell.wrap(Light(), size=16, mean=[0.5], std=[0.5], classes=["light", "dark"], name="own", execution=PLAIN)
    run = brinell.run(model, data, lens=LENS, out=tmp_path / "run", execution=PLAIN, quiet=True)
    found = dict(
        run.rows("select level, sum(correct::int) from rows where operator like 'fade_black%' group by 1").fetchall()
    )
    expected = {}
    values = np.array([int(picture[0, 0, 0]) for picture in pictures()])
    for level in range(21):
        expected[level] = int((values / 127.5 - 1 > -0.5).sum())
        values = np.rint(values * 0.9)
    assert found == expected
    assert brinell.Run(tmp_path / "run").manifest["models"]["own"]["source"] == "object:Light"


def test_a_bare_module_is_refused_with_the_fix(tmp_path: Path) -> None:
    for model in (Light(), ["fake:grey", Light()]):
        with pytest.raises(ConfigError, match=r"needs its input size.*brinell\.wrap\(module, size=224"):
            brinell.run(model, pictures(), out=tmp_path / "run", quiet=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": "fake:grey?sise=3"}, "models.0.sise is not an option; did you mean size"),
        ({"model": {"source": "fake:grey", "sise": 3}}, "models.0.sise is not an option; did you mean size"),
        ({"data": {"source": "greys", "limmit": 3}}, "data.limmit is not an option; did you mean limit?"),
        ({"data": {"source": "greys", "limit": 0}}, "data.limit: input should be greater than or equal to 1, got 0"),
        ({"lens": {"name": "profile", "levels": 99}}, "lenses.0.levels: input should be less than or equal to 30, got 99"),
        ({"lens": "profiles"}, "there is no lens 'profiles'; did you mean profile?"),
        ({"select": "some"}, "select should be all, correct or correct:MODEL"),
        ({"seed": "one"}, "seed: input should be a valid integer"),
    ],
)
def test_bad_options_are_told_in_one_line(changed: dict[str, Any], told: str) -> None:
    given = {"model": "fake:grey", "data": "greys", "quiet": True, **changed}
    with pytest.raises(ConfigError) as caught:
        brinell.run(given.pop("model"), given.pop("data"), **given)
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_model_s_bad_options_are_told_in_one_line() -> None:
    with pytest.raises(ConfigError, match="sise is not an option; did you mean size"):
        brinell.open_model("fake:grey?sise=3")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    folder = tmp_path_factory.mktemp("api") / "run"
    data = {"source": pictures(), "labels": "prediction"}
    return brinell.run("fake:grey:0.25", data, lens=LENS, out=folder, execution=PLAIN, quiet=True)


def test_a_run_shows_itself(run: brinell.Run) -> None:
    assert repr(run) == f"Run({run.folder!r})"
    shown = run._repr_html_()
    assert shown.count("<table>") == 2, "by operator, and over all of them"
    for text in ("grey:0.25 is right on 100% [58–100%] of the clean images", "fade to black", "Mean over all levels"):
        assert text in shown


def test_findings_print_as_the_summary_does(run: brinell.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = run.summary()
    printed = str(found)
    assert printed.startswith("grey:0.25\n") and "Only 6 images were tested." in " ".join(printed.split())
    assert "fade to black" in printed and "…" not in printed and max(map(len, printed.splitlines())) <= 80
    start = "<ProfileFindings: 1 model, 2 operators; "
    assert repr(found).startswith(start) and len(repr(found)) < 120


def test_rows_answer_questions(run: brinell.Run) -> None:
    assert len(run.rows().fetchall()) == 2 * 6 * 21
    assert run.rows("select count(*) from samples").fetchall() == [(6,)]
    assert run.rows("select model, count(*) from clean group by 1 order by 1").fetchall()[0] == ("grey:0.25", 6)
    table = run.rows("select * from rows").arrow()
    assert table.num_rows == 252 and "probability" in table.column_names
    with pytest.raises(RunError, match=r"the query failed: .*[Ss]yntax [Ee]rror"):
        run.rows("selec")


def test_rows_as_a_data_frame(run: brinell.Run) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    assert len(run.rows().df()) == 252


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("average", {"metric": "rank"}),
        ("operators", {"model": "grey:0.25", "metric": "rank"}),
        ("panels", {}),
        ("areas", {}),
    ],
)
def test_figures_are_altair_charts(run: brinell.Run, name: str, choice: dict[str, str]) -> None:
    for chosen in ({}, choice):
        chart = run.figure(name, **chosen)
        assert isinstance(chart, altair.ConcatChart if name == "panels" else altair.LayerChart)
        assert chart.to_dict()["$schema"].startswith("https://vega.github.io")
        (drawn,) = chart.properties(title="changed")._repr_mimebundle_().items()
        assert drawn[0] == "image/svg+xml" and drawn[1].startswith("<svg"), "a notebook loads nothing from the network"
    with pytest.raises(ConfigError, match="there is no figure 'pie'; known: average, operators, panels, areas"):
        run.figure("pie")
    with pytest.raises(ConfigError, match="the figure 'areas' has no choice 'metric'"):
        run.figure("areas", metric="rank")


def test_figures_are_written_as_svg_and_png(run: brinell.Run) -> None:
    written = run.figures("pictures")
    assert len(written) == 2 * (4 + 1 + 4)
    for name in written:
        data = run.store.read("pictures", name)
        if name.endswith(".svg"):
            assert data.startswith(b"<svg") and data.rstrip().endswith(b"</svg>")
        else:
            with Image.open(io.BytesIO(data)) as picture:
                picture.load()
                assert picture.format == "PNG" and min(picture.size) > 100 and len(picture.convert("L").getcolors()) > 10


def test_summaries_at_other_thresholds(run: brinell.Run) -> None:
    found = run.summary(thresholds=(0.8, 0.3))
    assert [failure.threshold for failure in found.failure_points] == [0.8, 0.3] * 2
    assert found.verdict("grey:0.25") == run.summary().verdict("grey:0.25"), "a verdict is about halves, always"


def test_a_run_is_opened_from_its_folder(run: brinell.Run, tmp_path: Path) -> None:
    again = brinell.Run(Path(run.folder))
    assert (
        again.rows("select * from rows order by all").fetchall() == run.rows("select * from rows order by all").fetchall()
    )
    with pytest.raises(RunError, match=r"is not the folder of a brinell run: it has no manifest\.json"):
        brinell.Run(tmp_path)
    (tmp_path / "manifest.json").write_text('{"name": "something else"}')
    with pytest.raises(RunError, match="is not that of a brinell run"):
        brinell.Run(tmp_path)
