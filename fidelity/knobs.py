"""Compare brinell's smallest breaking changes with the published ones (DSN 2020); writes docs/fidelity-knob.md.

    python -m fidelity.knobs [--device cuda] [--images 300]              measure everything
    python -m fidelity.knobs --sections searches --images 20 --points 100   measure a section again, on fewer images
    python -m fidelity.knobs --sections                                  write the page from stored results

The two networks need about 4 million forward passes on 300 photographs: minutes on an accelerator, a day on two cores.
Runs are stored under runs/fidelity-knob-*; finished ones, also from another machine, are not repeated. What the page shows
is kept in results/knob.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jinja2

import brinell
from brinell.lenses.knob.findings import KnobFindings
from brinell.lenses.knob.search import PROBES
from brinell.perturb.property import find_property, property_names
from brinell.serve.server import Server
from fidelity.knob_searches import compare_rounding, compare_searches, count_images, no_probes, read_searches
from fidelity.knob_tables import (
    FACTOR,
    NETWORKS,
    VARIANT,
    draws_table,
    models_table,
    network_facts,
    resize_table,
    robustness,
    split_by_confidence,
)
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of
from fidelity.words import listed, signed, title

RESULTS = Path(__file__).parent / "results" / "knob.json"
PAGE = ROOT / "docs" / "fidelity-knob.md"
IMAGES_USED = 300  # photographs of the test assets
MODERATED = 32  # photographs that are sent over HTTP
FEWER = 100  # grid points, and so fresh draws, instead of 1,000
DETECTORS = ("ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco")
SCENES, LARGE = 128, 0.05  # COCO photographs of the test assets, and the share of the image that an object covers at least
# moderators, and the local port of each one's server
MODERATORS = {"nsfw_mobilenet_v2_mid": 8471, "open_nsfw": 8472}
NOT_FOR_MODERATORS = ("motion_blur", "gaussian_blur")  # as in the paper's Fig. 7


def run(
    given: argparse.Namespace, name: str, properties: Sequence[str], *, interpolation: str = "bicubic", **options: Any
) -> brinell.Run:
    """Execute a run of both networks, or resume it."""
    fewer = f"-{given.images}-{given.points}" if (given.images, given.points) != (IMAGES_USED, None) else ""
    folder = ROOT / "runs" / f"fidelity-knob-{name}{fewer}"
    if finished(folder):
        return brinell.Run(folder)
    execution = brinell.Execution(device=given.device)
    models = [network_of(network, execution, interpolation) for network in NETWORKS]
    data = {"source": IMAGES, "limit": given.images, "shuffle": True}
    lens = {"name": "knob", "operators": list(properties), "variant": VARIANT, "points": given.points, **options}
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
    data = {"source": ASSETS / "images" / "coco_val_128" / "instances.json", "min_area": LARGE, "limit": SCENES}
    lens = {"name": "knob", "operators": list(properties), "variant": VARIANT, "search": "bracket"}
    return found_in(brinell.run(models, data, lens=lens, select="correct", out=out))


NAMES = property_names()
RANDOM = [name for name in NAMES if find_property(name, VARIANT).stochastic]
BLURS = ["motion_blur", "gaussian_blur"]
WHOLE = ("horizontal_translation", "vertical_translation", "salt_and_pepper")  # need no rounding
FINE = [*BLURS, "rotation"]
WORST = 2  # properties that are named
ROUNDED = [name for name in NAMES if name not in WHOLE]


def measure_networks(given: argparse.Namespace) -> dict[str, Any]:
    """Compare both networks with the paper's: tables and figures."""
    scaled_run = run(given, "scaled", NAMES)
    fresh_run = run(given, "resampled", RANDOM, resample=True)
    scaled, fresh = found_in(scaled_run), found_in(fresh_run)
    fewer = found_in(run(given, "fewer-draws", RANDOM, resample=True, points=FEWER))
    upright = found_in(run(given, "upright", ["motion_blur:equations"]))
    nearest = found_in(run(given, "nearest", BLURS, interpolation="nearest"))
    reference = json.loads((Path(__file__).parent / "published_knobs.json").read_text(encoding="utf-8"))["robustness"]
    confidence = split_by_confidence(scaled_run) | split_by_confidence(fresh_run)
    return {
        "images": scaled_run.rows("select count(*) from samples").fetchall()[0][0],
        "networks": [network_facts(name, reference[NETWORKS[name]], scaled, fresh, confidence) for name in NETWORKS],
        "draws": draws_table(RANDOM, scaled, fresh, fewer),
        "upright": [
            (network, robustness(upright, network, "motion_blur:equations") / reference[paper]["motion_blur"])
            for network, paper in NETWORKS.items()
        ],
        "nearest": resize_table(BLURS, reference, scaled, nearest),
    }


def measure_searches(given: argparse.Namespace) -> dict[str, Any]:
    """Compare exact search with bracketing, and whole grey levels with floats."""
    exact = read_searches(run(given, "scaled", NAMES))
    bracket = read_searches(run(given, "bracket", NAMES, search="bracket"))
    with no_probes():
        blind = read_searches(run(given, "bracket-without-probes", NAMES, search="bracket"))
    some = argparse.Namespace(**{**vars(given), "images": given.floats or given.images})
    floats = read_searches(run(some, "floats", ROUNDED, rounding="none"))
    return {
        "images": given.images,
        "floats": some.images,
        "points": given.points,
        "right": count_images(exact),
        "bracket": compare_searches(exact, bracket, blind),
        "rounding": compare_rounding(exact, floats),
        "fine": None if given.points is None else compare_fine_rounding(some),
    }


def compare_fine_rounding(given: argparse.Namespace) -> dict[str, Any]:
    """Compare whole grey levels with floats on the paper's own grids, for the properties that rounding matters most for."""
    fine = argparse.Namespace(**{**vars(given), "points": None})
    found = [read_searches(run(fine, f"fine-{rounding}", FINE, rounding=rounding)) for rounding in ("whole", "none")]
    return compare_rounding(*found)


def measure_moderators(given: argparse.Namespace) -> dict[str, Any]:
    """Search two moderators over HTTP."""
    found, queries = run_moderators([name for name in NAMES if name not in NOT_FOR_MODERATORS])
    return {"table": models_table(found, list(MODERATORS)), "queries": queries}


def measure_detectors(given: argparse.Namespace) -> dict[str, Any]:
    """Search two detectors."""
    found = run_detectors(NAMES)
    return {
        "table": models_table(found, list(DETECTORS)),
        "images": max(one.tested for one in found.hardness.values()),
    }


def describe_searched(found: dict[str, Any]) -> str:
    """Return which photographs and grid the searches were compared on."""
    counts = listed(f"{count} that {network} gets right" for network, count in found["right"].items())
    return f"{found['images']} of the photographs ({counts}{describe_grid(found)})"


def describe_grid(found: dict[str, Any]) -> str:
    """Return how fine the grid was, if it was not the paper's."""
    return "" if found["points"] is None else f", with {found['points']} grid points per direction"


def _largest_change(found: dict[str, Any]) -> float:
    """Return the ratio of R with and without rounding that is farthest from 1."""
    ratios = [ratio for part in (found["rounding"], found["fine"]) if part for _, ratio in part["largest"]]
    return max(ratios, key=lambda ratio: abs(ratio - 1))


def describe_worst_bracket(table: str) -> str:
    """Return which properties bracketing does worst on, from the stored table: R against exact search, false survivors."""
    _, _, *lines = ([cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines())
    found = [(name, float(ratio), int(missed.split()[0])) for name, *_, ratio, _, missed in lines]
    worst = sorted(found, key=lambda one: -one[1])[:WORST]
    rest = max(ratio for name, ratio, _ in found if name not in {one[0] for one in worst})
    named = listed(f"{name} ({signed(100 * (ratio - 1), 0)} %, {missed} false survivors)" for name, ratio, missed in worst)
    return f"{named}; for the other properties R is at most {100 * (rest - 1):.0f} % too large"


SECTIONS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "networks": measure_networks,
    "searches": measure_searches,
    "moderators": measure_moderators,
    "detectors": measure_detectors,
}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the device, the number of photographs and what to measure."""
    parser = argparse.ArgumentParser(prog="python -m fidelity.knobs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=IMAGES_USED)
    parser.add_argument("--points", type=int, help="grid points per direction (default: as many as in the paper)")
    parser.add_argument("--floats", type=int, help="photographs for the comparison with floats (default: all)")
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=list(SECTIONS), help="what to measure")
    return parser.parse_args(arguments)


def render_page(results: dict[str, Any]) -> str:
    """Return the page that stored results make."""
    page = {
        **results,
        "random": listed(title(find_property(name, VARIANT).id) for name in RANDOM),
        "moderated": MODERATED,
        "fewer": FEWER,
        "factor": FACTOR,
        "scenes": SCENES,
        "large": LARGE,
        "probes": PROBES,
        "searched": describe_searched(results["searches"]),
        "grid_points": describe_grid(results["searches"]),
        "largest_change": _largest_change(results["searches"]),
        "signed": signed,
        "older": listed(results["older"]) if results["older"] else "",
        "missing_most": describe_worst_bracket(results["searches"]["bracket"]["table"]),
        "whole": listed(title(find_property(name, VARIANT).id) for name in WHOLE),
    }
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "knobs.md.j2").read_text(encoding="utf-8")
    )
    return template.render(page) + "\n"


def main() -> None:
    """Measure, store the results, and write the page."""
    given = parse_arguments()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in given.sections:
        results[name] = SECTIONS[name](given)
        results["older"] = [one for one in results.get("older", []) if one != name]
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render_page(results), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
