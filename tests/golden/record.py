"""Record small runs of every lens and every search, and compare a later recording with them, bit by bit.

    python record.py FOLDER                  record every run into FOLDER
    python record.py --check FOLDER          run everything again and report what is not as in FOLDER
    python record.py --check FOLDER NAME …   the same for some of the runs

Recordings are comparable on one kind of processor and with one version of torch and onnxruntime: others round differently.
One thread is used: the number of threads decides how many queries a search makes ahead (`queries`), and how large batches
are, on which the last digits of torch's scores and gradients depend.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import brinell
from brinell.engine.progress import Silent
from brinell.engine.setup import assemble
from brinell.executing import execute_setup
from brinell.run_config import load_config

ASSETS = Path(os.environ.get("BRINELL_ASSETS", Path(__file__).resolve().parents[3] / "shared" / "assets"))
COCO_CLASSES = ASSETS / "models" / "coco80.txt"

# ---- models ----

EFFICIENTNET = "efficientnet_lite0"
AS_IT_IS = "resize=stretch&interpolation=bicubic&mean=0&std=1"
RESNET = f"torch:{Path(__file__).resolve()}:cifar10_resnet20?size=32&classes={ASSETS}/models/cifar10.txt&{AS_IT_IS}"
LENET = f"torch:{Path(__file__).resolve()}:mnist_lenet5?size=28&channels=1&{AS_IT_IS}"
SSDLITE = (
    f"onnx:{ASSETS}/models/ssdlite_mobilenet_v2_coco.onnx?task=detection&classes={COCO_CLASSES}"
    "&resize=stretch&interpolation=bilinear&mean=0&std=1&box_format=xyxy&box_units=relative&activation=none&background=none"
    "&score_threshold=0.3&keep_from=0.1&iou_threshold=0.5&max_detections=20"
)


def cifar10_resnet20() -> Any:
    """A torch module for colour images of 32 by 32 pixels."""
    return _nets().load("cifar10_resnet20")[0]


def mnist_lenet5() -> Any:
    """A torch module for grey images of 28 by 28 pixels."""
    return _nets().load("mnist_lenet5_clean")[0]


def _nets() -> Any:
    spec = importlib.util.spec_from_file_location("nets", ASSETS / "models" / "nets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- data ----


def photos(limit: int, **options: Any) -> dict[str, Any]:
    """Photographs that come with pip packages."""
    return {"source": "demo-photos", "limit": limit, "shuffle": False, "labels": "auto", **options}


def assets(file: str, limit: int, **options: Any) -> dict[str, Any]:
    """Images of the assets."""
    return {"source": f"{ASSETS}/images/{file}", "limit": limit, "shuffle": False, "labels": "auto", **options}


def cifar(limit: int, **options: Any) -> dict[str, Any]:
    """Colour images of 32 by 32 pixels."""
    return assets("cifar10_test_2000.npz", limit, **options)


# ---- lenses: every option is given, so that a change of defaults changes nothing here ----

OPERATORS = [
    "global_blur:published", "local_blur:published", "local_blur:paper",
    "jpeg:published", "jpeg:paper", "jpeg:cumulative", "white_fog:published",
    "fade_black:published", "fade_white:published", "fade_grey:published",
    "posterise:published", "posterise:paper", "posterise:cumulative", "noise:published",
    "pixel_exchange:published", "pixel_exchange:paper", "adjacent_exchange:published", "adjacent_exchange:paper",
    "gradient_descent:sign", "gradient_descent:l2", "black_lines:published", "white_lines:published",
    "boxes:published", "boxes:paper",
]  # fmt: skip
PROPERTIES = [
    "fog:dsn2020", "fog:equations", "snow:dsn2020", "frost:dsn2020", "frost:equations",
    "brightness:dsn2020", "brightness:equations", "contrast:dsn2020",
    "rotation:dsn2020", "horizontal_translation:dsn2020", "vertical_translation:dsn2020", "spatial:dsn2020",
    "uniform_noise:dsn2020", "gaussian_noise:dsn2020", "gaussian_noise:equations",
    "blended_noise:dsn2020", "salt_and_pepper:dsn2020",
    "motion_blur:dsn2020", "motion_blur:equations", "gaussian_blur:dsn2020",
]  # fmt: skip
RANDOM_PROPERTIES = [name for name in PROPERTIES if name.startswith(("fog", "snow", "salt")) or "noise" in name]
GROUPS = [
    "rotation", "translation", "rotation_scale", "rotation_translation", "scale_translation",
    "similarity", "affine", "projective",
]  # fmt: skip


def profile(operators: list[str], levels: int, **options: Any) -> dict[str, Any]:
    """Every level of some operators."""
    defaults = {"variant": "published", "criterion": "misclassification"}
    return {"name": "profile", "operators": operators, "levels": levels} | defaults | options


def knob(properties: list[str], points: int, search: str = "exact", **options: Any) -> dict[str, Any]:
    """The smallest change that breaks the model."""
    defaults = {
        "variant": "dsn2020", "criterion": "misclassification", "resample": False, "rounding": "whole", "distance": "mse",
        "frost": None,
    }  # fmt: skip
    return {"name": "knob", "operators": properties, "points": points, "search": search} | defaults | options


def fragility(operators: list[str], sizes: list[float], stride: int, **options: Any) -> dict[str, Any]:
    """Windows whose answer a pixel changes."""
    defaults = {
        "variant": "published", "criterion": "misclassification",
        "fit": "bilinear", "neighbours": 8, "step": 0.8, "beam": 3, "layers": [],
    }  # fmt: skip
    return {"name": "fragility", "operators": operators, "sizes": sizes, "stride": stride} | defaults | options


def highlights(sigmas: list[float], **options: Any) -> dict[str, Any]:
    """Spots of light: both grids and the search for the least light."""
    defaults = {
        "operators": ["highlight:exact", "highlight:authors", "highlight:least"],
        "variant": "exact", "criterion": "misclassification", "cells": 3, "relative": False,
        "strength": 1.0, "colour": [255, 255, 255], "search_queries": 30, "vary_strength": False,
    }  # fmt: skip
    return {"name": "highlights", "sigmas": sigmas} | defaults | options


def photographs() -> dict[str, Any]:
    """Photographs as they are."""
    return {
        "name": "photographs", "operators": ["photograph:given"], "variant": "given", "criterion": "misclassification",
    }  # fmt: skip


def geometry(groups: list[str], methods: list[str], **options: Any) -> dict[str, Any]:
    """The smallest motion that changes the label."""
    defaults = {
        "variant": "published", "criterion": "misclassification", "against": "answer",
        "max_steps": 8, "targets": 3, "momentum": 0.1, "momentum_inside": True, "step_lengths": 5, "max_step": 1.0,
        "retry": 4.0, "grid_pixels": 1.0, "eta": 0.05, "min_change": 0.02, "backtrack": True, "drop": True,
        "jacobian": "analytic", "composed": "right", "radii": [1.0, 3.0], "draws": 2, "directions": "raw",
        "grid_motions": 81, "threshold": 0.5,
    }  # fmt: skip
    return {"name": "geometry", "operators": groups, "methods": methods} | defaults | options


SALIENCY = {"method": "gradcam++", "target": "prediction", "layer": None, "cells": 5, "pairs": 3}

# ---- runs ----

EXECUTION = {
    "device": "cpu", "precision": "fp32", "runtime": "onnxruntime", "compile": False, "channels_last": True,
    "batch": 8, "shard": 4, "workers": 2, "strict": True,
}  # fmt: skip
IN_TORCH = {"execution": EXECUTION | {"runtime": "torch"}}
ONE_BY_ONE = {"execution": EXECUTION | {"runtime": "torch", "batch": 1}}
DEFAULTS = {"select": "all", "seed": 0, "saliency": None, "execution": EXECUTION}

#: what `brinell run` would be given, by the name of the run; the seeds choose images of which some are wrong when clean
RUNS: dict[str, dict[str, Any]] = {
    "imagenet-profile": {"model": EFFICIENTNET, "data": photos(4, shuffle=True), "lens": profile(OPERATORS, 4)},
    "imagenet-knob-exact": {"model": EFFICIENTNET, "data": photos(4, shuffle=True), "lens": knob(PROPERTIES, 12)},
    "imagenet-knob-bracket": {
        "model": EFFICIENTNET,
        "data": photos(4, shuffle=True),
        "lens": knob(["brightness:dsn2020", "rotation:dsn2020", "snow:dsn2020", "spatial:dsn2020"], 60, "bracket"),
    },
    "imagenet-knob-bands": {
        "model": EFFICIENTNET,
        "data": photos(4),
        "lens": knob(["rotation:dsn2020", "fog:equations", "contrast:dsn2020"], 12, "bands", distance="linf"),
    },
    "imagenet-knob-resample": {
        "model": EFFICIENTNET,
        "data": photos(3),
        "seed": 7,
        "lens": knob(["fog:dsn2020", "snow:dsn2020", "gaussian_noise:equations"], 12, "bracket", resample=True),
    },
    "imagenet-several": {
        "model": EFFICIENTNET,
        "data": photos(3, pattern=r"imagenet_(?P<original>\d)(0|(?P<variant>\d))_"),
        "saliency": SALIENCY | {"layer": "_swish", "pairs": 1},
        "lenses": [
            fragility(["windows", "location", "minimal"], [0.3], 200, step=0.5),
            highlights([40, 120]),
            photographs(),
            geometry(
                ["rotation", "translation"],
                ["manifool", "manitest", "random", "grid"],
                max_steps=2,
                targets=2,
                step_lengths=3,
                grid_pixels=40.0,
                grid_motions=9,
            ),
        ],
    },
    "cifar-profile": {
        "model": RESNET,
        "data": cifar(6, shuffle=True),
        "seed": 5,
        "lens": profile(OPERATORS, 5, criterion="top_k_misclassification(2)"),
    },
    "cifar-knob-exact": {
        "model": RESNET,
        "data": cifar(6, shuffle=True),
        "seed": 5,
        "lens": knob(PROPERTIES, 20),
    },
    "cifar-knob-bracket": {
        "model": RESNET,
        "data": cifar(6, shuffle=True),
        "seed": 5,
        "lens": knob(PROPERTIES, 50, "bracket", distance="l2"),
    },
    "cifar-knob-bands": {
        "model": RESNET,
        "data": cifar(6, shuffle=True),
        "seed": 5,
        "select": "correct",
        "lens": knob(PROPERTIES, 20, "bands", criterion="original_class_confidence_loss(0.7)"),
    },
    "cifar-knob-resample": {
        "model": RESNET,
        "data": cifar(6),
        "seed": 7,
        "lens": knob(
            [*RANDOM_PROPERTIES, "frost"],
            20,
            resample=True,
            frost=f"{ASSETS}/images/coco_val_128/images/000000000285.jpg",
        ),
    },
    "cifar-fragility": {
        "model": RESNET,
        "data": cifar(3, shuffle=True),
        "seed": 5,
        "lens": fragility(["windows", "location", "minimal"], [0.6, 24], 4),
        **IN_TORCH,
    },
    "cifar-fragility-pad": {
        "model": RESNET,
        "data": cifar(2),
        "lens": fragility(["windows"], [0.75], 1, fit="pad", neighbours=4),
        **IN_TORCH,
    },
    "cifar-highlights": {
        "model": RESNET,
        "data": cifar(6, shuffle=True),
        "seed": 5,
        "saliency": SALIENCY,
        "lens": highlights([0.1, 0.3], relative=True, vary_strength=True, colour=[255, 220, 160]),
        **IN_TORCH,
    },
    "cifar-photographs": {
        "model": RESNET,
        "data": cifar(40, pattern=r"\[(?P<original>\d)(?P<variant>\d)?\]"),
        "lens": photographs(),
        **IN_TORCH,
    },
    "cifar-geometry": {
        "model": RESNET,
        "data": cifar(4),
        "lens": geometry(GROUPS, ["manifool", "random"]),
        **IN_TORCH,
    },
    "cifar-geometry-grids": {
        "model": RESNET,
        "data": cifar(4),
        "lens": geometry(GROUPS[:3], ["manitest", "grid"]),
        **IN_TORCH,
    },
    "mnist-geometry": {
        "model": LENET,
        "data": assets("mnist_test.npz", 4),
        "lens": geometry(
            ["rotation", "similarity"],
            ["manifool", "random"],
            against="truth",
            momentum_inside=False,
            drop=False,
            jacobian="numerical",
            composed="left",
            directions="metric",
        ),
        **ONE_BY_ONE,
    },
    "detector": {
        "model": SSDLITE,
        "data": assets("coco_val_128/instances.json", 3, min_area=0.05),
        "lenses": [
            profile(["jpeg:published", "white_fog:published"], 3, criterion="target_class_missing"),
            knob(
                ["brightness:dsn2020", "horizontal_translation:dsn2020", "snow:dsn2020"],
                12,
                criterion="regional_target_class_missing(0.1)",
            ),
            fragility(["windows"], [0.7, 450], 200, criterion="target_class_missing"),
        ],
    },
}


@cache
def _model(source: str, runtime: str) -> brinell.Model:
    return brinell.open_model(source, brinell.Execution(**EXECUTION | {"runtime": runtime}))


def measure(run: dict[str, Any], folder: Path) -> None:
    """Execute one run."""
    config = load_config({**DEFAULTS, **run, "out": str(folder)})
    execute_setup(assemble(config, [_model(run["model"], config.execution.runtime)]), Silent())


def record(folder: Path, names: Iterable[str] = RUNS) -> None:
    """Execute all runs, each into its own folder, and keep what is needed to compare and to open them."""
    for name, seconds in _measured(folder, names):
        prune(folder / name)
        summary = f"{len(rows(folder / name))} rows, {_size(folder / name) / 1e3:.0f} kB, {seconds:.1f} s"
        print(f"{name}: {summary}", flush=True)
    (folder / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n")


def _measured(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, float]]:
    for name in names:
        began = time.perf_counter()
        measure(RUNS[name], folder / name)
        yield name, time.perf_counter() - began


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


# ---- pruning ----


def prune(folder: Path) -> None:
    """Remove a run's pictures, and write its tables and manifest smaller; nothing else is lost.

    The rows of all units go into one file. brinell opens such a run as any other, but doesn't know which units are
    finished, and would measure them again.
    """
    for file in folder.rglob("*"):
        if file.suffix in (".webp", ".png", ".html") or file.name in ("exhibits.json", "pairs.json"):
            file.unlink()
    for name in ("samples", "clean", "precision", "saliency"):
        if (folder / f"{name}.parquet").exists():
            _write(_without_paths(pq.read_table(folder / f"{name}.parquet")), folder / f"{name}.parquet")
    table = _unit_rows(folder)
    shutil.rmtree(folder / "rows")
    (folder / "rows").mkdir()
    _write(table, folder / "rows" / "all.parquet")
    manifest = json.loads((folder / "manifest.json").read_text())
    text = json.dumps(manifest, separators=(",", ":"), ensure_ascii=False)
    (folder / "manifest.json").write_text(without_paths(text))
    for place in sorted((place for place in folder.rglob("*") if place.is_dir()), reverse=True):
        if not any(place.iterdir()):
            place.rmdir()


def without_paths(text: str) -> str:
    """Return a text without the paths of this machine."""
    packages = Path(np.__file__).resolve().parents[1]
    for path, name in ((ASSETS, "assets"), (packages, "site-packages"), (Path(__file__).resolve().parent, "tests/golden")):
        text = text.replace(str(path), name).replace(str(path).lstrip("/"), name)
    return text


def _without_paths(table: pa.Table) -> pa.Table:
    if "name" not in table.column_names:
        return table
    names = pa.array([None if name is None else without_paths(name) for name in table["name"].to_pylist()], pa.string())
    return table.set_column(table.column_names.index("name"), "name", names)


def machine() -> dict[str, Any]:
    """Return what the last bits of recordings depend on: the processor and the libraries that compute."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    processor = sorted({line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "flags"))})
    digest = hashlib.blake2b("\n".join(processor).encode(), digest_size=8).hexdigest()
    libraries = ("torch", "onnxruntime", "numpy", "pillow", "opencv-python-headless", "scipy")
    return {"processor": digest, **{name: version(name) for name in libraries}}


def _write(table: pa.Table, file: Path) -> None:
    pq.write_table(table, file, compression="zstd", compression_level=19, write_statistics=False)


# ---- reading ----

#: what tells the rows of a run apart
KEYS = ("lens", "model", "operator", "image", "level", "draw", "direction", "kind", "judged_by", "side", "x", "y")


def rows(folder: Path) -> pa.Table:
    """All rows of a run in a fixed order: words as plain strings, without columns that are empty or tell the time."""
    return _comparable(_unit_rows(folder))


def table(folder: Path, name: str) -> pa.Table:
    """Another table of a run (clean, precision or saliency) in the same form; without rows where there is none."""
    file = folder / f"{name}.parquet"
    return _comparable(pq.read_table(file)) if file.exists() else pa.table({})


def maps(folder: Path) -> dict[str, np.ndarray]:
    """All arrays that lie beside the rows."""
    found = {}
    for file in sorted(folder.rglob("*.npz")):
        with np.load(file) as arrays:
            found |= {f"{file.relative_to(folder)}:{name}": arrays[name] for name in arrays.files}
    return found


def _unit_rows(folder: Path) -> pa.Table:
    files = sorted((folder / "rows").rglob("*.parquet"))
    tables = [pq.ParquetFile(file).read() for file in files]
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()


def _comparable(table: pa.Table) -> pa.Table:
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name != "seconds" and column.null_count < len(column):
            columns[name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    plain = pa.table(columns)
    keys = [*KEYS, *(name for name in plain.column_names if name not in KEYS)]
    return plain.sort_by([(name, "ascending") for name in keys if name in columns and not _nested(plain[name].type)])


def _nested(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)


# ---- comparing ----


def check(folder: Path, names: Iterable[str] = ()) -> bool:
    """Run everything again, report what differs from the recordings in a folder, and say whether nothing does."""
    same = True
    with tempfile.TemporaryDirectory() as place:
        for name, seconds in _measured(Path(place), names or RUNS):
            found = differences(folder / name, Path(place) / name)
            count, columns = rows(folder / name).shape
            summary = "DIFFERENT" if found else "bit-identical"
            print(f"{name}: {summary}, {count} rows in {columns} columns, {seconds:.1f} s", flush=True)
            for column, what in found.items():
                print(f"    {column}: {what}")
            same = same and not found
    return same


def differences(old: Path, new: Path) -> dict[str, str]:
    """What is not the same in two recordings of a run, column by column."""
    found = _tables_differ(rows(old), rows(new))
    for name in ("clean", "precision", "saliency"):
        differing = _tables_differ(table(old, name), table(new, name))
        if name == "precision":  # pycocotools added these up when they were recorded; a column of folds came later
            differing = {
                column: what for column, what in differing.items() if not _is_rounding(what) and column != "without"
            }
        found |= {f"{name}.{column}": what for column, what in differing.items()}
    before, after = maps(old), maps(new)
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            found[name] = "is new" if name in after else "is gone"
        elif before[name].dtype != after[name].dtype or before[name].tobytes() != after[name].tobytes():
            found[name] = "differs"
    return found


def _tables_differ(old: pa.Table, new: pa.Table) -> dict[str, str]:
    if len(old) != len(new):
        return {"rows": f"{len(old)} before, {len(new)} now"}
    found = {}
    for name in dict.fromkeys([*old.column_names, *new.column_names]):
        if name not in old.column_names or name not in new.column_names:
            found[name] = "is new" if name in new.column_names else "is gone"
        elif what := _columns_differ(old[name].combine_chunks(), new[name].combine_chunks()):
            found[name] = what
    return found


def _columns_differ(old: pa.Array, new: pa.Array) -> str:
    """How two columns differ, or nothing."""
    if old.type != new.type:
        return f"{old.type} before, {new.type} now"
    if not old.is_null().equals(new.is_null()):
        return f"{_count(pc.xor(old.is_null(), new.is_null()))} of {len(old)} are empty in one and not in the other"
    if _nested(old.type):
        lengths = pc.not_equal(pc.list_value_length(old), pc.list_value_length(new))
        return (
            f"{_count(lengths)} lists of another length"
            if _count(lengths)
            else _columns_differ(old.flatten(), new.flatten())
        )
    old, new = old.drop_null(), new.drop_null()
    if not pa.types.is_floating(old.type):
        other = _count(pc.not_equal(old, new))
        return f"{other} of {len(old)} differ" if other else ""
    before, after = old.to_numpy(), new.to_numpy()
    bits = f"u{before.itemsize}"
    other = int((before.view(bits) != after.view(bits)).sum())
    largest = float(np.abs(before.astype(float) - after.astype(float)).max(initial=0))
    return f"{other} of {len(old)} differ, by {largest:.3g} at most" if other else ""


def _is_rounding(what: str) -> bool:
    """Whether a difference is in the last bit of numbers from 0 to 1."""
    found = re.search(r"by (\S+) at most", what)
    return found is not None and float(found[1]) < 1e-15


def _count(which: pa.Array) -> int:
    return int(pc.sum(which).as_py() or 0)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where recordings are, or will be")
    parser.add_argument("names", nargs="*", help="some of the runs alone")
    parser.add_argument("--check", action="store_true", help="compare instead of recording")
    given = parser.parse_args()
    if given.check:
        raise SystemExit(0 if check(given.folder, given.names) else 1)
    record(given.folder, given.names or RUNS)


if __name__ == "__main__":
    main()
