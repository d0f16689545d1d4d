"""Compare brinell's smallest breaking changes with the published ones (DSN 2020); writes docs/fidelity-knob.md.

    python -m fidelity.knobs [--device cuda] [--images 300]

The two networks need about 2.7 million forward passes on 300 photographs: minutes on an accelerator, hours on two cores.
Runs are stored under runs/fidelity-knob-*; finished ones, also from another machine, are not repeated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jinja2

import brinell
from brinell.lenses.knob.findings import KnobFindings
from brinell.perturb.property import find_property, property_names
from brinell.serve.server import Server
from fidelity.knob_tables import (
    FACTOR,
    NETWORKS,
    VARIANT,
    bracket_table,
    draws_table,
    models_table,
    network_facts,
    resize_table,
    robustness,
    split_by_confidence,
)
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of
from fidelity.words import listed, title

MODERATED = 32  # photographs that are sent over HTTP
FEWER = 100  # grid points, and so fresh draws, instead of 1,000
DETECTORS = ("ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco")
SCENES = 128  # COCO photographs of the test assets
# moderators, and the local port of each one's server
MODERATORS = {"nsfw_mobilenet_v2_mid": 8471, "open_nsfw": 8472}
NOT_FOR_MODERATORS = ("motion_blur", "gaussian_blur")  # as in the paper's Fig. 7


def run(
    given: argparse.Namespace, name: str, properties: Sequence[str], *, interpolation: str = "bicubic", **options: Any
) -> brinell.Run:
    """Execute a run of both networks, or resume it."""
    folder = ROOT / "runs" / f"fidelity-knob-{name}"
    if finished(folder):
        return brinell.Run(folder)
    execution = brinell.Execution(device=given.device)
    models = [network_of(network, execution, interpolation) for network in NETWORKS]
    data = {"source": IMAGES, "limit": given.images, "shuffle": True}
    lens = {"name": "knob", "operators": list(properties), "variant": VARIANT, **options}
    return brinell.run(models, data, lens=lens, out=folder, execution=execution)


def found_in(run: brinell.Run) -> KnobFindings:
    """Return the findings of the knob lens."""
    found = run.summary()
    assert isinstance(found, KnobFindings)
    return found


def run_moderators(properties: Sequence[str]) -> tuple[KnobFindings, dict[str, int]]:
    """Query both moderators over HTTP, by bracketing; return the findings and the number of queries."""
    folder = ROOT / "runs" / "fidelity-knob-moderators"
    if finished(folder):
        return _moderators_of(brinell.Run(folder))
    with ExitStack() as open_servers:
        urls = []
        for name, port in MODERATORS.items():
            classes = f"?classes={ASSETS}/models/nsfw.txt" if name.startswith("nsfw") else ""
            model = brinell.open_model(f"onnx:{ASSETS}/models/{name}.onnx{classes}")
            urls.append(open_servers.enter_context(Server(model, port=port)).start().url + f"/v2/models/{name}")
        data = {"source": IMAGES, "limit": MODERATED, "shuffle": True, "labels": "prediction"}
        lens = {"name": "knob", "operators": list(properties), "variant": VARIANT, "search": "bracket"}
        answers = str(ROOT / "runs" / "fidelity-moderators-answers.sqlite")
        execution = brinell.Execution(answers=answers)
        return _moderators_of(brinell.run(urls, data, lens=lens, out=folder, execution=execution))


def _moderators_of(run: brinell.Run) -> tuple[KnobFindings, dict[str, int]]:
    queries = run.rows("select model, sum(queries)::bigint from rows group by all").fetchall()
    return found_in(run), dict(queries)


def run_detectors(properties: Sequence[str]) -> KnobFindings:
    """Return the findings for both detectors, by bracketing, on photographs with a large object that both find."""
    out = ROOT / "runs" / "fidelity-knob-detectors"
    if finished(out):
        return found_in(brinell.Run(out))
    options = f"task=detection&classes={ASSETS}/models/coco80.txt&interpolation=bilinear"
    models = [f"onnx:{ASSETS}/models/{name}.onnx?{options}" for name in DETECTORS]
    data = {"source": ASSETS / "images" / "coco_val_128" / "instances.json", "min_area": 0.05, "limit": SCENES}
    lens = {"name": "knob", "operators": list(properties), "variant": VARIANT, "search": "bracket"}
    return found_in(brinell.run(models, data, lens=lens, select="correct", out=out))


NAMES = property_names()
RANDOM = [name for name in NAMES if find_property(name, VARIANT).stochastic]
BLURS = ["motion_blur", "gaussian_blur"]


def run_networks(given: argparse.Namespace) -> dict[str, brinell.Run]:
    """Return all runs of the two networks, by name."""
    return {
        "resampled": run(given, "resampled", RANDOM, resample=True),
        "scaled": run(given, "scaled", NAMES),
        "bracket": run(given, "bracket", NAMES, search="bracket"),
        "fewer": run(given, "fewer-draws", RANDOM, resample=True, points=FEWER),
        "upright": run(given, "upright", ["motion_blur:equations"]),
        "nearest": run(given, "nearest", BLURS, interpolation="nearest"),
    }


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the device and the number of photographs."""
    parser = argparse.ArgumentParser(prog="python -m fidelity.knobs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=300)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, compare, and write the page."""
    names, random, blurs = NAMES, RANDOM, BLURS
    runs = run_networks(parse_arguments())
    scaled_run, fresh_run = runs["scaled"], runs["resampled"]
    scaled, fresh, bracket, fewer, upright, nearest = (
        found_in(runs[name]) for name in ("scaled", "resampled", "bracket", "fewer", "upright", "nearest")
    )
    moderators, queries = run_moderators([name for name in names if name not in NOT_FOR_MODERATORS])
    reference = json.loads((Path(__file__).parent / "published_knobs.json").read_text(encoding="utf-8"))["robustness"]
    confidence = split_by_confidence(scaled_run) | split_by_confidence(fresh_run)
    facts = [network_facts(name, reference[NETWORKS[name]], scaled, fresh, confidence) for name in NETWORKS]
    page = {
        "networks": facts,
        "images": scaled_run.rows("select count(*) from samples").fetchall()[0][0],
        "moderated": MODERATED,
        "random": listed(title(find_property(name, VARIANT).id) for name in random),
        "bracket": bracket_table(scaled, bracket),
        "fewer": FEWER,
        "draws": draws_table(random, scaled, fresh, fewer),
        "upright": [
            (network, robustness(upright, network, "motion_blur:equations") / reference[paper]["motion_blur"])
            for network, paper in NETWORKS.items()
        ],
        "nearest": resize_table(blurs, reference, scaled, nearest),
        "moderators": models_table(moderators, list(MODERATORS)),
        "moderator_queries": queries,
        "detectors": models_table(detectors := run_detectors(names), list(DETECTORS)),
        "scenes": max(one.tested for one in detectors.hardness.values()),
        "factor": FACTOR,
    }
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "knobs.md.j2").read_text(encoding="utf-8")
    )
    target = ROOT / "docs" / "fidelity-knob.md"
    target.write_text(template.render(page) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
