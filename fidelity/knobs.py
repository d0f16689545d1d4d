"""Brinell's smallest breaking changes beside the published ones: writes docs/fidelity-knob.md.

    python -m fidelity.knobs [--device cuda] [--images 300]

The two networks take some 2.7 million forward passes on 300 photographs: minutes on an accelerator, hours on two cores.
Runs lie under runs/fidelity-knob-*, wherever they were made: those that are finished are read and not made again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np

import brinell
from brinell.lenses.knob.findings import KnobFindings
from brinell.perturb.property import find_property, property_names
from brinell.serve.server import Server
from fidelity.compare import rank_correlation
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of
from fidelity.words import grid, listed, title

VARIANT = "dsn2020"  # of properties that are named alone
MODERATED = 32  # photographs that go through HTTP
# ours, and the network of the paper that it stands beside
NETWORKS = {"mobilenet_v2": "mobilenetV2", "squeezenet1_1": "squeezenet1.0"}
# of ImageNet's validation set, from which the paper draws its photographs: the share that torchvision's weights get right
PUBLISHED_ACCURACY = {"mobilenet_v2": 0.719, "squeezenet1_1": 0.581}
FACTOR = 2.0
FEWER = 100  # points of the grid, and so fresh draws, instead of 1,000
DETECTORS = ("ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco")
SCENES = 128  # photographs of COCO that are looked at: all of the test assets
# moderators, each behind a server of its own on this machine
MODERATORS = {"nsfw_mobilenet_v2_mid": 8471, "open_nsfw": 8472}
NOT_FOR_MODERATORS = ("motion_blur", "gaussian_blur")  # as in the paper's Fig. 7


def run(
    given: argparse.Namespace, name: str, properties: Sequence[str], *, interpolation: str = "bicubic", **options: Any
) -> brinell.Run:
    """Carry out a run of both networks, or what is missing of it."""
    folder = ROOT / "runs" / f"fidelity-knob-{name}"
    if finished(folder):
        return brinell.Run(folder)
    execution = brinell.Execution(device=given.device)
    models = [network_of(network, execution, interpolation) for network in NETWORKS]
    data = {"source": IMAGES, "limit": given.images, "shuffle": True}
    lens = {"name": "knob", "operators": list(properties), "variant": VARIANT, **options}
    return brinell.run(models, data, lens=lens, out=folder, execution=execution)


def found_in(run: brinell.Run) -> KnobFindings:
    """What the knob lens found."""
    found = run.summary()
    assert isinstance(found, KnobFindings)
    return found


class Sureness(NamedTuple):
    """R of images by how sure the network is of them when clean."""

    unsure: float  # the less sure half of those that broke
    sure: float  # the other half
    matched: float  # all but the surest, of which so many are left out that the network gets as many right as of ImageNet's


def by_surety(run: brinell.Run) -> dict[tuple[str, str], Sureness]:
    """By network and property."""
    found = {}
    for model, accuracy in PUBLISHED_ACCURACY.items():
        rows = run.rows(
            f"""with surest as (
                   select index, row_number() over (order by confidence) as place,
                          (select count(*) from clean where model = '{model}' and not correct) as wrong
                   from clean where model = '{model}' and correct)
               select operator, avg(mse) filter (half <= 0.5), avg(mse) filter (half > 0.5),
                      avg(mse) filter (place <= wrong * {accuracy} / (1 - {accuracy}))
               from (select operator, mse, place, wrong, percent_rank() over (partition by operator order by place) as half
                     from rows join samples using (image) join surest using (index)
                     where rows.model = '{model}' and smallest and status = 'broken') group by all"""
        ).fetchall()
        found |= {(model, operator): Sureness(*means) for operator, *means in rows}
    return found


def moderated(properties: Sequence[str]) -> tuple[KnobFindings, dict[str, int]]:
    """Both moderators through HTTP, by bracketing: what was found, and how many queries were asked."""
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


def detected(properties: Sequence[str]) -> KnobFindings:
    """Both detectors on photographs with a large object that both find, by bracketing."""
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


def measured(given: argparse.Namespace) -> dict[str, brinell.Run]:
    """All runs of the two networks, by their names."""
    return {
        "resampled": run(given, "resampled", RANDOM, resample=True),
        "scaled": run(given, "scaled", NAMES),
        "bracket": run(given, "bracket", NAMES, search="bracket"),
        "fewer": run(given, "fewer-draws", RANDOM, resample=True, points=FEWER),
        "upright": run(given, "upright", ["motion_blur:equations"]),
        "nearest": run(given, "nearest", BLURS, interpolation="nearest"),
    }


def asked(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Where the networks run, and on how many photographs."""
    parser = argparse.ArgumentParser(prog="python -m fidelity.knobs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=300)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure, compare, and write the page."""
    names, random, blurs = NAMES, RANDOM, BLURS
    runs = measured(asked())
    scaled_run, fresh_run = runs["scaled"], runs["resampled"]
    scaled, fresh, bracket, fewer, upright, nearest = (
        found_in(runs[name]) for name in ("scaled", "resampled", "bracket", "fewer", "upright", "nearest")
    )
    moderators, queries = moderated([name for name in names if name not in NOT_FOR_MODERATORS])
    reference = json.loads((Path(__file__).parent / "published_knobs.json").read_text(encoding="utf-8"))["robustness"]
    surety = by_surety(scaled_run) | by_surety(fresh_run)
    facts = [_network(network, reference[NETWORKS[network]], scaled, fresh, surety) for network in NETWORKS]
    page = {
        "networks": facts,
        "images": scaled_run.rows("select count(*) from samples").fetchall()[0][0],
        "moderated": MODERATED,
        "random": listed(title(find_property(name, VARIANT).id) for name in random),
        "bracket": _bracketed(scaled, bracket),
        "fewer": FEWER,
        "draws": _draws(random, scaled, fresh, fewer),
        "upright": [
            (network, _robustness(upright, network, "motion_blur:equations") / reference[paper]["motion_blur"])
            for network, paper in NETWORKS.items()
        ],
        "nearest": _resized(blurs, reference, scaled, nearest),
        "moderators": _moderated(moderators),
        "moderator_queries": queries,
        "detectors": _detected(detectors := detected(names)),
        "scenes": max(one.tested for one in detectors.hardness.values()),
        "factor": FACTOR,
    }
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "knobs.md.j2").read_text(encoding="utf-8")
    )
    target = ROOT / "docs" / "fidelity-knob.md"
    target.write_text(template.render(page) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


def _network(
    network: str,
    published: dict[str, float],
    scaled: KnobFindings,
    fresh: KnobFindings,
    surety: dict[tuple[str, str], Sureness],
) -> dict[str, Any]:
    """One network's table: the paper's R, ours as the authors drew, ours with one field an image, and what survived."""
    lines, ours, theirs, one_field, matched, outside = [], [], [], [], [], []
    for name, paper in published.items():
        operator = find_property(name, VARIANT).id
        field = scaled.hardness[network, operator]
        drawn = fresh.hardness.get((network, operator), field)
        ratio = drawn.robustness.value / paper
        ours.append(drawn.robustness.value)
        theirs.append(paper)
        one_field.append(field.robustness.value)
        matched.append(surety[network, operator].matched)
        if not 1 / FACTOR <= ratio <= FACTOR:
            outside.append((title(operator), ratio))
        lines.append(
            [
                title(operator),
                f"{paper:.2e}",
                f"{drawn.robustness.value:.2e}",
                f"{ratio:.2f}" if 1 / FACTOR <= ratio <= FACTOR else f"**{ratio:.2f}**",
                f"{field.robustness.value:.2e}" if drawn is not field else "the same",
                f"{field.survived_share.value:.0%}",
                str(drawn.broken),
                " and ".join(f"{half / paper:.2f}" for half in surety[network, operator][:2]),
                f"{matched[-1] / paper:.2f}",
            ]
        )
    header = [
        "property",
        "paper",
        "ours",
        "ours / paper",
        "one scaled field",
        "survive",
        "broken images",
        "lower and higher confidence half / paper",
        "matched to ImageNet accuracy / paper",
    ]
    first = scaled.hardness[network, find_property("contrast", VARIANT).id]
    return {
        "name": network,
        "paper": NETWORKS[network],
        "table": grid(header, lines),
        "right": first.tested,
        "within": _within(ours, theirs),
        "count": len(theirs),
        "rank": rank_correlation(np.array(ours), np.array(theirs)),
        "rank_scaled": rank_correlation(np.array(one_field), np.array(theirs)),
        "within_scaled": _within(one_field, theirs),
        "accuracy": first.tested / (first.tested + first.skipped),
        "published_accuracy": PUBLISHED_ACCURACY[network],
        "within_matched": _within(matched, theirs),
        "rank_matched": rank_correlation(np.array(matched), np.array(theirs)),
        "outside": outside,
    }


def _within(ours: Sequence[float], theirs: Sequence[float]) -> int:
    """How many lie within a factor of the paper's."""
    return sum(1 / FACTOR <= mine / paper <= FACTOR for mine, paper in zip(ours, theirs, strict=True))


def _robustness(found: KnobFindings, network: str, operator: str) -> float:
    return found.hardness[network, operator].robustness.value


def _draws(random: Sequence[str], scaled: KnobFindings, fresh: KnobFindings, fewer: KnobFindings) -> str:
    """R of the random properties over that of one scaled field: with few fresh draws, and with many."""
    lines = []
    for name in random:
        operator = find_property(name, VARIANT).id
        ratios = [
            _robustness(found, network, operator) / _robustness(scaled, network, operator)
            for network in NETWORKS
            for found in (fewer, fresh)
        ]
        lines.append([title(operator), *(f"{ratio:.2f}" for ratio in ratios)])
    return grid(["property", *(f"{network}, {draws}" for network in NETWORKS for draws in ("few", "many"))], lines)


def _resized(
    blurs: Sequence[str], reference: dict[str, dict[str, float]], scaled: KnobFindings, nearest: KnobFindings
) -> str:
    """R of the blurs over the paper's, on photographs resized smoothly, and by nearest neighbours."""
    lines = []
    for name in blurs:
        operator = find_property(name, VARIANT).id
        ratios = [
            _robustness(found, network, operator) / reference[paper][name]
            for network, paper in NETWORKS.items()
            for found in (scaled, nearest)
        ]
        lines.append([title(operator), *(f"{ratio:.2f}" for ratio in ratios)])
    header = ["property", *(f"{network}, {way}" for network in NETWORKS for way in ("smooth", "nearest"))]
    return grid(header, lines)


def _bracketed(exact: KnobFindings, bracket: KnobFindings) -> dict[str, Any]:
    """How often bracketing finds what the exact search finds, and what it saves."""
    lines = []
    for name in property_names():
        operator = find_property(name, VARIANT).id
        pairs = [(exact.hardness[network, operator], bracket.hardness[network, operator]) for network in NETWORKS]
        queries = [sum(pair[place].queries for pair in pairs) / len(pairs) for place in range(2)]
        means = [sum(pair[place].robustness.value for pair in pairs) / len(pairs) for place in range(2)]
        lines.append([title(operator), f"{queries[0]:.0f}", f"{queries[1]:.0f}", f"{means[1] / means[0]:.2f}"])
    return {"table": grid(["property", "queries, exact", "queries, bracket", "R, bracket / exact"], lines)}


def _moderated(found: KnobFindings) -> str:
    return _side_by_side(found, list(MODERATORS))


def _detected(found: KnobFindings) -> str:
    return _side_by_side(found, list(DETECTORS))


def _side_by_side(found: KnobFindings, names: list[str]) -> str:
    """R and survivors of two models, property by property."""
    lines = []
    for operator in found.operators:
        pair = [found.hardness[name, operator] for name in names]
        values = [f"{one.robustness.value:.2e}" if one.broken else "never broken" for one in pair]
        lines.append([title(operator), *values, *(f"{one.survived_share.value:.0%}" for one in pair)])
    return grid(["property", *(f"R, {name}" for name in names), *(f"survive, {name}" for name in names)], lines)


if __name__ == "__main__":
    sys.exit(main())
