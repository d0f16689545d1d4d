"""A run is its rows: whatever stops it, however it is carried out, the same command ends with the same rows."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from PIL import Image

import brinell
from brinell.cli.main import main
from brinell.errors import DataError, LabelError, RunError, UnreadableImage
from brinell.runs.store import Store
from conftest import PLAIN

# a server that has the package imported, and forks a process for each command: a real one, ready at once
PROCESSES = multiprocessing.get_context("forkserver")
PACKAGE = ("api", "cli.main", "cli.measure", "models.fake", "lenses.profile.lens", "lenses.profile.show")
PROCESSES.set_forkserver_preload(["conftest", *(f"brinell.{name}" for name in PACKAGE)])

LENS = {"name": "profile", "operators": ["fade_black", "noise", "boxes"], "levels": 3}
MODEL = "fake:grey:0.25"


def quick(data: Any, out: Path | str, **changed: Any) -> brinell.Run:
    given: dict[str, Any] = {"lens": LENS, "execution": PLAIN, "quiet": True, **changed}
    return brinell.run(given.pop("model", MODEL), data, out=out, **given)


def command(data: Path, out: Path) -> list[str]:
    """The same run as `quick`, for the command line."""
    operators = [word for name in LENS["operators"] for word in ("--operator", name)]
    given = ["--model", MODEL, "--data", str(data), "--levels", "3", *operators, "--out", str(out)]
    return ["run", *given, "--runtime", "torch", "--batch", "4", "--shard", "8"]


def rows(run: brinell.Run | Path) -> list[tuple[Any, ...]]:
    """All rows with all columns, in an order that is theirs alone."""
    found = run if isinstance(run, brinell.Run) else brinell.Run(run)
    return found.rows("select * from rows order by all").fetchall()


def in_a_process(arguments: list[str], log: Path, *, die_at: int = 0, largest_file: int = -1) -> int:
    """The exit code of a command in a process that dies before it touches its n-th file, or can't write large files."""
    process = PROCESSES.Process(target=_carry_out, args=(arguments, log, die_at, largest_file))
    process.start()
    process.join(60)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


def _carry_out(arguments: list[str], log: Path, die_at: int, largest_file: int) -> None:
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    touched = 0

    def count(event: str, given: tuple[Any, ...]) -> None:
        nonlocal touched
        if event in ("open", "os.mkdir", "os.rename") and str(given[0]).startswith(str(log.parent)):
            touched += 1
            if touched == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    main(arguments)


# ---- stopped ----


def stage(run: Path) -> str:
    """How far a run has come, by its files."""
    units = len(list(run.glob("rows/*/*/*/*.parquet")))
    for file in ("manifest.json", "samples.parquet", "clean.parquet"):
        if not (run / file).exists():
            return f"no {file}"
    if units < 6:
        return f"{units} units"
    return "all" if (run / "exhibits.json").exists() else "no exhibits"


@pytest.mark.slow
def test_killed_anywhere_it_goes_on_to_the_same_rows(greys: Path, tmp_path: Path) -> None:
    """Killed while reading images, between writes and inside them, again and again; each time a few files later."""
    never_killed = rows(quick(greys, tmp_path / "whole"))
    run, stages, half_written = tmp_path / "run", [], False
    for number in range(2, 400, 4):
        code = in_a_process(command(greys, run), tmp_path / "log", die_at=number)
        if code == 0:
            break
        assert code == -signal.SIGKILL, (tmp_path / "log").read_text()
        stages.append(stage(run))
        half_written = half_written or any(run.rglob("*.part"))
    assert code == 0
    assert len(set(stages)) >= 5, f"it should be killed in many places, but was at {stages}"
    assert half_written, "it should have been killed with a file half written"
    assert not list(run.rglob("*.part")), "what was left half written is removed"
    assert rows(run) == never_killed
    assert brinell.Run(run).manifest["finished"]


@pytest.mark.slow
def test_a_real_network_killed_and_started_again(assets: Path, tmp_path: Path) -> None:
    data = f"{assets}/images/cifar10_test_2000.npz"
    model = f"onnx:{assets}/models/cifar10_resnet20.onnx?classes={assets}/models/cifar10.txt"
    lens = ["--operator", "jpeg", "--operator", "noise", "--operator", "boxes", "--levels", "3"]
    given = ["run", "--model", model, "--data", data, "--limit", "24", *lens, "--shard", "4", "--batch", "4", "--out"]
    main([*given, str(tmp_path / "whole")])

    run = tmp_path / "run"
    process = PROCESSES.Process(target=_carry_out, args=([*given, str(run)], tmp_path / "log", 0, -1))
    process.start()
    while len(list(run.glob("rows/**/*.parquet"))) < 4:
        assert process.exitcode is None, (tmp_path / "log").read_text()
        time.sleep(0.001)
    process.kill()
    process.join(60)
    done = {file: file.stat().st_mtime_ns for file in run.glob("rows/**/*.parquet")}
    assert 4 <= len(done) < 18
    assert in_a_process([*given, str(run)], tmp_path / "log") == 0
    assert all(file.stat().st_mtime_ns == when for file, when in done.items()), "what is done is not done again"
    assert rows(run) == rows(tmp_path / "whole")


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing(greys: Path, tmp_path: Path) -> None:
    """The system refuses to write large files: first the manifest, then the samples, the rows, and at last the report."""
    run, log = tmp_path / "run", tmp_path / "log"
    stages = []
    for largest in (1_000, 5_000, 7_000, 100_000):
        assert in_a_process(command(greys, run), log, largest_file=largest) == 2
        errors = [line for line in log.read_text().splitlines() if line.startswith("error:")]
        assert len(errors) == 1
        assert "no space left to write" in errors[0] and "give the same command again" in errors[0]
        assert "Traceback" not in log.read_text()
        assert not list(run.rglob("*.part")), "what could not be written takes no space"
        stages.append(stage(run))
    assert stages == ["no manifest.json", "no samples.parquet", "0 units", "all"]
    assert in_a_process(command(greys, run), log) == 0
    assert rows(run) == rows(quick(greys, tmp_path / "whole"))


# ---- carried out otherwise ----


@pytest.mark.parametrize(
    "changed",
    [
        {"batch": 1, "shard": 8},
        {"batch": 7, "shard": 8},
        {"batch": 64, "shard": 64},
        {"batch": 4, "shard": 5},
        {"batch": 4, "shard": 8, "workers": 1},
        {"batch": 4, "shard": 8, "workers": 4},
    ],
    ids=str,
)
def test_rows_do_not_depend_on_how_it_is_carried_out(greys: Path, tmp_path: Path, changed: dict[str, int]) -> None:
    run = quick(greys, tmp_path / "run", execution=brinell.Execution(runtime="torch", **changed))
    assert rows(run) == rows(quick(greys, tmp_path / "plain"))


def test_rows_of_a_real_network_do_not_depend_on_batches(assets: Path, tmp_path: Path) -> None:
    found = []
    for batch in (1, 7, 64):
        run = quick(
            {"source": str(assets / "images" / "cifar10_test_2000.npz"), "limit": 40},
            tmp_path / str(batch),
            model=f"onnx:{assets}/models/cifar10_resnet20.onnx",
            execution=brinell.Execution(batch=batch, shard=3 * batch),
        )
        found.append(run.rows("select * from rows order by operator, level, image").fetchnumpy())
    for other in found[1:]:
        for column in found[0]:
            if column in ("probability", "confidence"):  # sums in another order
                assert np.abs(found[0][column] - other[column]).max() < 1e-4, column
            else:
                assert np.ma.allequal(found[0][column], other[column]), column


def test_rows_do_not_depend_on_the_order_of_images(greys: Path, tmp_path: Path) -> None:
    names = sorted(path.relative_to(tmp_path) for path in greys.rglob("*.png"))
    for number, order in enumerate((names[::-1], names[5:] + names[:5])):
        (tmp_path / f"{number}.csv").write_text("path,label\n" + "".join(f"{name},light\n" for name in order))
    plain = rows(quick(greys, tmp_path / "plain"))
    assert rows(quick(tmp_path / "0.csv", tmp_path / "reversed")) == plain
    assert rows(quick(tmp_path / "1.csv", tmp_path / "turned")) == plain
    shuffled = quick({"source": greys, "shuffle": True}, tmp_path / "shuffled")
    assert rows(shuffled) == plain
    assert shuffled.rows("select index from samples").fetchall() != [(index,) for index in range(12)]


def test_a_run_at_a_url(greys: Path, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    try:
        run = quick(greys, "memory://brinell/run")
        assert rows(run) == rows(quick(greys, tmp_path / "plain"))
        assert rows(quick(greys, "memory://brinell/run")) == rows(run), "and it is found again"
        assert run.summary().models == ["grey:0.25"]
        assert run.report() == "memory://brinell/run/report.html"
        assert b"grey:0.25 is right on 100%" in memory.cat_file(run.report())
    finally:
        memory.rm("/brinell", recursive=True)


# ---- another run ----


def test_the_tables_of_a_run_are_read_once_in_a_process(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings, pictures and the report share a connection."""
    connected, plain = list[str](), Store.connect
    monkeypatch.setattr(Store, "connect", lambda store: connected.append(store.url) or plain(store))
    run = quick(greys, tmp_path / "run")
    run.report()
    assert run.finished
    assert len(connected) == 1


def test_a_large_run_is_read_like_a_small_one(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lenses = [LENS, {"name": "knob", "operators": ["brightness"], "points": 5}]  # with columns of their own
    small = quick(greys, tmp_path / "run", lens=lenses)
    monkeypatch.setattr("brinell.runs.store._SMALL", 0)
    large = brinell.Run(small.folder)
    assert {row[:2] for row in small.rows("describe rows").fetchall()} == {
        row[:2] for row in large.rows("describe rows").fetchall()
    }
    query = "select * from rows order by lens, operator, image, level, direction"
    assert small.rows(query).columns == large.rows(query).columns
    assert small.rows(query).fetchall() == large.rows(query).fetchall() != []


def test_another_run_in_the_same_folder_is_refused(greys: Path, tmp_path: Path) -> None:
    run = quick(greys, tmp_path / "run")
    before = rows(run)
    for changed, difference in (
        ({"lens": {**LENS, "levels": 4}}, "config.lenses.0.levels was 3 and is now 4"),
        ({"seed": 5}, "config.seed was 0 and is now 5"),
        ({"model": "fake:grey:0.3"}, "config.models.0.source was 'fake:grey:0.25' and is now 'fake:grey:0.3'"),
    ):
        with pytest.raises(RunError) as caught:
            quick(greys, tmp_path / "run", **changed)
        assert difference in str(caught.value)
        assert "use that run's settings, or choose another folder with --out" in str(caught.value)
    assert rows(run) == before


@pytest.mark.parametrize("what", ["changed", "removed", "broken"])
def test_an_image_that_is_not_what_it_was_is_named(greys: Path, tmp_path: Path, what: str) -> None:
    run = quick(greys, tmp_path / "run")
    for file in (tmp_path / "run").glob("rows/*/*/noise*/*.parquet"):
        file.unlink()  # something is left to do
    image = greys / "light" / "11.png"
    if what == "removed":
        image.unlink()
    else:
        image.write_bytes((greys / "light" / "03.png").read_bytes() if what == "changed" else b"")
    with pytest.raises(RunError, match=r"light/11\.png changed since the run in .* started; restore the data, or choose"):
        quick(greys, run.folder)


def test_data_that_changed_is_noticed_though_nothing_is_left_to_do(greys: Path, tmp_path: Path) -> None:
    run = quick(greys, tmp_path / "run")
    assert rows(quick(greys, run.folder)) == rows(run)
    (greys / "light" / "12.png").write_bytes((greys / "light" / "03.png").read_bytes())
    with pytest.raises(RunError, match=r"light/12\.png changed since"):
        quick(greys, run.folder)
    first, second = ([(np.full((9, 9, 3), grey, np.uint8), "light")] for grey in (200, 210))
    quick(first, tmp_path / "objects")
    with pytest.raises(RunError, match=r"images\[0\] changed since"):
        quick(second, tmp_path / "objects")


def test_a_wrapped_model_s_preprocessing_is_part_of_the_run(greys: Path, tmp_path: Path) -> None:
    from brinell.models.fake import GreyThreshold

    def wrapped(mean: float) -> brinell.Model:
        names = ["light", "dark"]
        return brinell.wrap(GreyThreshold(0.25), size=16, mean=(mean,), classes=names, name="own", execution=PLAIN)

    lens = {"name": "profile", "operators": ["noise"], "levels": 1}
    brinell.run(wrapped(0.0), greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    with pytest.raises(RunError, match=r"models\.own\.preprocess\.mean\.0 was 0\.0 and is now 0\.1"):
        brinell.run(wrapped(0.1), greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)


def test_how_a_run_is_carried_out_may_change(greys: Path, tmp_path: Path) -> None:
    """Another batch size or runtime resumes the same run."""
    lens = {"name": "profile", "operators": ["noise"], "levels": 2}
    first = PLAIN.model_copy(update={"runtime": "onnxruntime", "batch": 2})
    run = brinell.run("fake:grey", greys, lens=lens, out=tmp_path / "run", execution=first, quiet=True)
    again = brinell.run("fake:grey", greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert rows(again) == rows(run)


# ---- images that can't be used ----


@pytest.fixture
def damaged(greys: Path) -> Path:
    """The twelve images with three more that can't be read."""
    whole = (greys / "light" / "00.png").read_bytes()
    (greys / "light" / "empty.png").write_bytes(b"")
    (greys / "light" / "half.png").write_bytes(whole[: len(whole) // 2])
    (greys / "light" / "no: image.jpg").write_text("hello")
    return greys


def test_unreadable_images_are_left_out_and_listed(damaged: Path, tmp_path: Path) -> None:
    run = quick(damaged, tmp_path / "run")
    listed = dict(run.rows("select name, problem from samples where problem is not null").fetchall())
    assert {Path(name).name: problem for name, problem in listed.items()} == {
        "empty.png": "the file is empty",
        "half.png": listed[str(damaged / "light" / "half.png")],
        "no: image.jpg": "not an image of a known kind",
    }
    assert "truncated" in listed[str(damaged / "light" / "half.png")]
    page = Path(run.report()).read_text()
    assert "3 could not be read" in page
    assert all(name in page for name in listed)
    for name in ("empty.png", "half.png", "no: image.jpg"):
        (damaged / "light" / name).unlink()
    assert rows(run) == rows(quick(damaged, tmp_path / "without"))


def test_strict_stops_at_the_first_unreadable_image(damaged: Path, tmp_path: Path) -> None:
    strict = PLAIN.model_copy(update={"strict": True})
    with pytest.raises(UnreadableImage, match=r"empty\.png: the file is empty"):
        quick(damaged, tmp_path / "strict", execution=strict)
    assert not (tmp_path / "strict").exists()
    quick(damaged, tmp_path / "run")
    with pytest.raises(UnreadableImage, match=r"empty\.png: the file is empty"):
        quick(damaged, tmp_path / "run", execution=strict)


def test_data_that_can_t_be_tested(greys: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there are no images in"):
        quick(tmp_path / "empty", tmp_path / "run")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"none of the 1 images of broken can be read \(the first: the file is empty\)"):
        quick({"source": tmp_path / "broken", "labels": "prediction"}, tmp_path / "run")
    (greys / "light").rename(greys / "ligth")
    with pytest.raises(LabelError, match=r"the labels 'ligth' are not among the model's 2 classes.*did you mean light\?"):
        quick(greys, tmp_path / "run")
    with pytest.raises(DataError, match=r"there is no dataset at .*; did you mean greys\?"):
        quick(tmp_path / "grays", tmp_path / "run")


@pytest.mark.parametrize(
    ("select", "least"), [("all", 0), ("correct", 0.6), ("correct:grey:0.6", 0.6), ("correct:grey:0.25", 0.25)]
)
def test_selection_keeps_the_images_that_models_get_right(greys: Path, tmp_path: Path, select: str, least: float) -> None:
    run = quick(greys, tmp_path / "run", model=[MODEL, "fake:grey:0.6"], select=select)
    preprocess = brinell.open_model(MODEL, PLAIN).preprocess
    dataset = brinell.open_dataset(greys)
    lit = [float(preprocess.model_input(dataset[index].image).float().mean()) / 255 for index in range(12)]
    kept = [index for index in range(12) if lit[index] > least]
    assert run.rows("select distinct index from clean where kept order by 1").fetchall() == [(index,) for index in kept]
    for model in ("grey:0.25", "grey:0.6"):
        measured = run.rows(
            f"select distinct index from rows join samples using (image) where model = '{model}' order by 1"
        ).fetchall()
        assert measured == [(index,) for index in kept]
    sentence = f"{12 - len(kept)} were excluded by the selection"
    assert (sentence in Path(run.report()).read_text()) == (len(kept) < 12)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    """800 inputs of 224 × 224 take 120 MB; a shard of 16 takes 2."""
    image = np.full((16, 16, 3), 200, np.uint8)
    peaks = []
    for count in (100, 900):
        (tmp_path / f"{count}/light").mkdir(parents=True)
        for index in range(count):
            image[0, 0, :2] = divmod(index, 256)
            Image.fromarray(image).save(tmp_path / f"{count}/light/{index}.bmp")
        process = PROCESSES.Process(target=_tell_peak, args=(tmp_path / str(count), tmp_path / "peak"))
        process.start()
        process.join(60)
        peaks.append(int((tmp_path / "peak").read_text()) / 1024)
    assert peaks[1] < peaks[0] + 60, f"peaks of {peaks} MB"


def _tell_peak(data: Path, file: Path) -> None:
    execution = brinell.Execution(runtime="torch", batch=8, shard=16)
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 1}
    quick(data, f"{data}-run", model=f"{MODEL}?size=224", lens=lens, execution=execution)
    file.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
