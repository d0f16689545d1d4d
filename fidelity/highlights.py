"""Compare brinell's specular highlights with the published figures (2023); writes docs/fidelity-highlights.md.

    python -m fidelity.highlights measure [NAME …] [--networks NAME …] [--device cuda] [--images 300] [--fewer 100]
    python -m fidelity.highlights store [NAME …]
    python -m fidelity.highlights page

`measure` executes runs (all, or the named ones) under runs/fidelity-highlights-*, one per network: four networks need
120,000 forward passes on 300 photographs, the experiments several times as many; minutes on an accelerator, hours on two
cores. `store` adds the figures of finished runs, also from another machine, to fidelity/results/highlights.json, from which
`page` writes the page. Experiments at native sizes need `--photographs`: the 1,000 files of the GitHub repository
EliSchwartz/imagenet-sample-images, or some of them. efficientnet_lite4 needs `--lite4`: its arrays (see fidelity.lite4).
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import brinell
from brinell.classes import Classes
from fidelity import glare_results
from fidelity.glare_results import EXACT
from fidelity.highlights_page import PAGE, PAIRS, SHORT_SIDE, render_page
from fidelity.lite4 import MEAN, STD, Lite4
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of, require_assets

RESULTS = Path(__file__).parent / "results" / "highlights.json"
NETS = ("efficientnet_lite0", "mobilenet_v2", "mobilenet_v1_075_192", "squeezenet1_1")
LARGER = ("efficientnet_lite2", "efficientnet_lite4")
DETECTORS = ("ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco")
SCENES = 64


@dataclass(frozen=True)
class Experiment:
    """An experiment with several networks: the operator, on which images, and how they are resized.

    `images` is "all" (photographs of the assets), "some" (fewer of them), "native" (photographs at their native sizes) or
    "square" (the same, cropped and scaled as the assets are).
    """

    operator: str = EXACT
    images: str = "some"
    networks: Sequence[str] = NETS
    interpolation: str = "bicubic"
    crop: bool = False
    options: dict[str, Any] = field(default_factory=dict)


EXPERIMENTS = {
    "grid": Experiment(images="all"),
    "relative": Experiment(options={"sigmas": [sigma / SHORT_SIDE for sigma in (10, 20, 30, 40)], "relative": True}),
    "nearest": Experiment(interpolation="nearest"),
    "crop": Experiment(crop=True),
    "authors": Experiment("highlight:authors"),
    "least": Experiment("highlight:least"),
    "larger": Experiment(images="all", networks=LARGER),
    "native": Experiment(images="native", networks=(*NETS, *LARGER)),
    "square": Experiment(images="square", networks=(*NETS, *LARGER)),
}
SALIENCY = {"saliency": "prediction", "saliency-label": "label"}  # and the class that maps are for
MEASURES = [*EXPERIMENTS, *SALIENCY, "detectors"]


def run(name: str, network: str, given: argparse.Namespace) -> brinell.Run:
    """Execute or resume one of the runs."""
    folder, experiment = _folder(f"{name}-{network}"), EXPERIMENTS[name]
    if finished(folder):
        return brinell.Run(folder)
    execution = brinell.Execution(device=given.device, batch=given.batch)
    data: dict[str, Any] = {"source": IMAGES, "limit": given.fewer if experiment.images == "some" else given.images}
    if experiment.images in ("native", "square"):
        data = {"source": glare_results.prepare_photographs(given.photographs, experiment.images)}
    lens = {"name": "highlights", "operators": [experiment.operator], **experiment.options}
    model = _network(network, experiment, execution, given.lite4)
    return brinell.run(model, data, lens=lens, out=folder, execution=execution)


def _folder(name: str) -> Path:
    return ROOT / "runs" / f"fidelity-highlights-{name}"


def _network(name: str, experiment: Experiment, execution: brinell.Execution, lite4: Path | None = None) -> brinell.Model:
    require_assets()
    if name == "efficientnet_lite4":
        if lite4 is None:
            raise SystemExit("efficientnet_lite4 needs --lite4, the folder of its arrays")
        names = (ASSETS / "models" / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
        return brinell.wrap(Lite4(lite4), name=name, mean=MEAN, std=STD, classes=Classes(tuple(names)), execution=execution)
    if name.startswith("efficientnet"):
        resize = "crop" if experiment.crop else "stretch"
        return brinell.open_model(f"{name}?resize={resize}&interpolation={experiment.interpolation}", execution)
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


def run_detectors(given: argparse.Namespace) -> brinell.Run:
    """Run two detectors on COCO photographs with a large object, whose boxes are known."""
    folder = _folder("detectors")
    if finished(folder):
        return brinell.Run(folder)
    options = f"task=detection&classes={ASSETS}/models/coco80.txt&interpolation=bilinear"
    models = [f"onnx:{ASSETS}/models/{name}.onnx?{options}" for name in DETECTORS]
    limit = min(SCENES, given.fewer)
    data = {"source": ASSETS / "images" / "coco_val_128" / "instances.json", "min_area": 0.05, "limit": limit}
    return brinell.run(models, data, lens={"name": "highlights", "operators": [EXACT]}, out=folder)


def measure(name: str, given: argparse.Namespace) -> None:
    """Execute the runs of one measurement, network by network."""
    if name == "detectors":
        run_detectors(given)
        return
    networks = NETS if name in SALIENCY else EXPERIMENTS[name].networks
    for network in networks:
        if not given.networks or network in given.networks:
            if name in SALIENCY:
                compare_saliency(SALIENCY[name], network, given)
            else:
                run(name, network, given)


def finished_runs(name: str) -> dict[str, brinell.Run]:
    """Return the finished runs of a measurement, by network."""
    if name == "detectors":
        folders = {name: _folder(name)}
    else:
        of = {"saliency": "grid", "saliency-label": "label"}.get(name, name)
        networks = NETS if name in SALIENCY else EXPERIMENTS[name].networks
        folders = {network: _folder(f"{of}-{network}") for network in networks}
    runs = {network: brinell.Run(folder) for network, folder in folders.items() if finished(folder)}
    if name not in SALIENCY:
        return runs
    options = {"pairs": PAIRS, "target": SALIENCY[name]}
    return {network: run for network, run in runs.items() if _has_saliency(run, options)}


def _has_saliency(run: brinell.Run, options: dict[str, Any]) -> bool:
    stored = run.manifest.get("saliency", {}).get("options", {})
    return all(stored.get(name) == value for name, value in options.items())


def store(names: Sequence[str], results: Path = RESULTS) -> None:
    """Add the figures of finished runs to the results."""
    found = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    for name in names:
        collect = glare_results.collect_saliency if name in SALIENCY else glare_results.collect_grid
        for network, one in finished_runs(name).items():
            found.setdefault(name, {})[network] = collect(one, variants=name == "grid")
            print(f"stored {name} of {network}")
    ordered = {name: found[name] for name in MEASURES if name in found}
    results.write_text(json.dumps(ordered, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "store", "page"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"measurements: {', '.join(MEASURES)} (default: all)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--fewer", type=int, default=100, help="images of the experiments")
    parser.add_argument("--networks", nargs="+", choices=(*NETS, *LARGER), default=())
    parser.add_argument("--photographs", type=Path, help="folder of photographs at native sizes")
    parser.add_argument("--lite4", type=Path, help="folder of the arrays of efficientnet_lite4")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(MEASURES):
        parser.error(f"expected measurements among {', '.join(MEASURES)}, got {', '.join(sorted(unknown))}")
    return given


def main() -> None:
    """Execute runs, store their figures, or write the page."""
    given = parse_arguments()
    names = given.names or MEASURES
    if given.what == "measure":
        for name in names:
            measure(name, given)
    elif given.what == "store":
        store(names)
    else:
        PAGE.write_text(render_page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
