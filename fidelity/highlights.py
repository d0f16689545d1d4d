"""Compare brinell's specular highlights with the published figures (2023); writes docs/fidelity-highlights.md.

    python -m fidelity.highlights --measure [NAME …] [--networks NAME …] [--device cuda] [--images 300] [--fewer 100]
    python -m fidelity.highlights

The first command executes runs (all, or the named ones) under runs/fidelity-highlights-*, one per network: four networks
need 120,000 forward passes on 300 photographs, the experiments several times as many; minutes on an accelerator, hours on
two cores. The second writes the page from finished runs, also from another machine, and lists the missing ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

import brinell
from fidelity import glare
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of, require_assets
from fidelity.words import listed

LITE0 = "efficientnet_lite0"
NETS = (LITE0, "mobilenet_v2", "mobilenet_v1_075_192", "squeezenet1_1")
PAIRS = 200  # variants per network whose saliency is compared: this many that fail, and as many that don't
SHORT_SIDE = 375  # of a typical photograph of ImageNet, 500 by 375
DETECTORS = ("ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco")
SCENES = 64


@dataclass(frozen=True)
class Experiment:
    """An experiment with every network: the operator, on all images or fewer, and how images are resized."""

    operator: str = glare.EXACT
    fewer: bool = True
    interpolation: str = "bicubic"
    crop: bool = False
    options: dict[str, Any] = field(default_factory=dict)


EXPERIMENTS = {
    "grid": Experiment(fewer=False),
    "relative": Experiment(options={"sigmas": [sigma / SHORT_SIDE for sigma in (10, 20, 30, 40)], "relative": True}),
    "nearest": Experiment(interpolation="nearest"),
    "crop": Experiment(crop=True),
    "authors": Experiment("highlight:authors"),
    "least": Experiment("highlight:least"),
}
SALIENCY = {"saliency": "prediction", "saliency-label": "label"}  # and the class that maps are for
MEASURES = [*EXPERIMENTS, *SALIENCY, "detectors"]


def run(name: str, network: str, given: argparse.Namespace) -> brinell.Run:
    """Execute or resume one of the runs."""
    folder, experiment = _folder(f"{name}-{network}"), EXPERIMENTS[name]
    if finished(folder):
        return brinell.Run(folder)
    execution = brinell.Execution(device=given.device)
    data = {"source": IMAGES, "limit": given.fewer if experiment.fewer else given.images}
    lens = {"name": "highlights", "operators": [experiment.operator], **experiment.options}
    return brinell.run(_network(network, experiment, execution), data, lens=lens, out=folder, execution=execution)


def _folder(name: str) -> Path:
    return ROOT / "runs" / f"fidelity-highlights-{name}"


def _network(name: str, experiment: Experiment, execution: brinell.Execution) -> brinell.Model:
    require_assets()
    if name == LITE0:
        resize = "crop" if experiment.crop else "stretch"
        return brinell.open_model(f"{LITE0}?resize={resize}&interpolation={experiment.interpolation}", execution)
    return network_of(name, execution, experiment.interpolation, short_side=256 if experiment.crop else None)


def compare_saliency(target: str, network: str, given: argparse.Namespace) -> brinell.Run:
    """Return the grid with saliency compared, for one class or the other; each in a separate folder."""
    found = run("grid", network, given)
    if target != "prediction":
        folder = _folder(f"{target}-{network}")
        if not finished(folder):
            shutil.copytree(found.folder, folder)
        found = brinell.Run(folder)
    options = {"pairs": PAIRS, "target": target}
    if not _has_saliency(found, options):
        model = _network(network, EXPERIMENTS["grid"], brinell.Execution(device=given.device))
        found.saliency(options, models=[model], data=brinell.open_dataset(IMAGES))  # the run may be from elsewhere
    return found


def run_detectors() -> brinell.Run:
    """Run two detectors on COCO photographs with a large object, whose boxes are known."""
    folder = _folder("detectors")
    if finished(folder):
        return brinell.Run(folder)
    options = f"task=detection&classes={ASSETS}/models/coco80.txt&interpolation=bilinear"
    models = [f"onnx:{ASSETS}/models/{name}.onnx?{options}" for name in DETECTORS]
    data = {"source": ASSETS / "images" / "coco_val_128" / "instances.json", "min_area": 0.05, "limit": SCENES}
    return brinell.run(models, data, lens={"name": "highlights", "operators": [glare.EXACT]}, out=folder)


def measure(name: str, given: argparse.Namespace) -> list[brinell.Run]:
    """Execute the runs of one measurement, network by network."""
    if name == "detectors":
        return [run_detectors()]
    if name in SALIENCY:
        return [compare_saliency(SALIENCY[name], network, given) for network in given.networks]
    return [run(name, network, given) for network in given.networks]


def finished_runs(name: str) -> list[brinell.Run]:
    """Return the finished runs of a measurement."""
    if name == "detectors":
        folders = [_folder(name)]
    else:
        of = {"saliency": "grid", "saliency-label": "label"}.get(name, name)
        folders = [_folder(f"{of}-{network}") for network in NETS]
    runs = [brinell.Run(folder) for folder in folders if finished(folder)]
    if name not in SALIENCY:
        return runs
    options = {"pairs": PAIRS, "target": SALIENCY[name]}
    return [run for run in runs if _has_saliency(run, options)]


def _has_saliency(run: brinell.Run, options: dict[str, Any]) -> bool:
    stored = run.manifest.get("saliency", {}).get("options", {})
    return all(stored.get(name) == value for name, value in options.items())


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(prog="python -m fidelity.highlights")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--fewer", type=int, default=100, help="images of the experiments")
    parser.add_argument("--networks", nargs="+", choices=NETS, default=NETS)
    parser.add_argument(
        "--measure", nargs="*", metavar="NAME", help=f"execute runs without writing the page: {', '.join(MEASURES)}"
    )
    return parser.parse_args(arguments)


def main() -> None:
    """Execute runs, or write the page."""
    given = parse_arguments()
    if given.measure is not None:
        for name in given.measure or MEASURES:
            measure(name, given)
        return
    runs = {name: finished_runs(name) for name in MEASURES}
    if not runs["grid"]:
        sys.exit("no finished runs; start them with python -m fidelity.highlights --measure")
    target = ROOT / "docs" / "fidelity-highlights.md"
    target.write_text(render_page(runs).rstrip() + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


def render_page(runs: dict[str, list[brinell.Run]]) -> str:
    """Return the page about the finished runs."""
    reference = json.loads((Path(__file__).parent / "published_highlights.json").read_text(encoding="utf-8"))
    found, images = glare.found_in(runs["grid"]), glare.images_of(runs["grid"])
    others = {name: glare.images_of(runs[name]) for name in glare.SETTINGS}
    shifts, labelled = (glare.shifts_in(runs[name]) for name in SALIENCY)
    page = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "highlights.md.j2").read_text(encoding="utf-8")
    )
    return page.render(
        networks=len(runs["grid"]),
        images=len({one.image for one in images}),
        fewer=min((len({one.image for one in seen}) for seen in others.values() if seen), default=0),
        pairs=PAIRS,
        short=SHORT_SIDE,
        reference=reference,
        accuracies=glare.accuracies(found),
        drops=glare.drops(found, reference),
        anyone=glare.anyone(images, found, reference),
        sizes=glare.sizes(found, reference),
        each=glare.each(found),
        cells=glare.cells(found),
        parts=glare.parts(images, reference),
        sure=glare.sure(images),
        changes=glare.changes(images, others, SHORT_SIDE),
        experiments=glare.experiments(images, others, SHORT_SIDE) if any(others.values()) else None,
        shifts=glare.shifts(shifts) if shifts else None,
        targets=glare.targets(shifts, labelled) if labelled else None,
        location=glare.location(glare.found_in(runs["detectors"]), reference) if runs["detectors"] else None,
        light=glare.light(glare.found_in(runs["least"])) if runs["least"] else None,
        missing=_missing(runs),
    )


def _missing(runs: dict[str, list[brinell.Run]]) -> list[str]:
    """Return what was not measured."""
    missing: dict[str, list[str]] = {}
    for name, own in runs.items():
        folders = [str(run.folder) for run in own]
        absent = [network for network in NETS if not any(folder.endswith(network) for folder in folders)]
        if name == "detectors":
            absent = [] if folders else list(DETECTORS)
        if absent:
            missing.setdefault(listed(absent), []).append(name)
    return [f"{listed(names)} of {networks}" for networks, names in missing.items()]


if __name__ == "__main__":
    main()
