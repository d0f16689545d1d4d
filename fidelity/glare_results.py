"""Figures of highlight runs as plain data for fidelity/results/highlights.json, and the findings rebuilt from them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

import brinell
from brinell.lenses.highlights.findings import HighlightFindings
from brinell.lenses.highlights.glare import AnyModel, ByLocation, BySize, Glare
from brinell.lenses.highlights.light import LeastLight
from brinell.runs.plain import to_plain
from brinell.runs.statistics import Estimate
from brinell.saliency.findings import SaliencyFindings, ShiftRate
from fidelity.measure import ROOT

EXACT = "highlight:exact"
SIZES = ("10 px", "20 px", "30 px", "40 px")
SIDE = 299  # of the photographs of the assets
REFERENCE = Path(__file__).parent / "published_highlights.json"


@dataclass(frozen=True)
class Seen:
    """An image and a network: whether the original is classified correctly, with which confidence, and how many of the
    hundred variants fail.
    """

    model: str
    image: str
    label: int
    right: bool
    sure: float
    failing: int


_IMAGES = """
    select any_value(name), any_value(label), bool_or(correct) filter (level = 0),
           any_value(confidence) filter (level = 0), count(*) filter (level > 0 and not correct),
           list_sort(list(level) filter (level > 0 and not correct))
    from rows join (select image, any_value(name) as name from samples group by all) using (image)
    group by image order by all
"""


def collect_grid(run: brinell.Run, *, variants: bool = False) -> dict[str, Any]:
    """Return a run's findings and, for a run of one network on a grid, its images; with `variants`, which of them fail."""
    found = run.findings()["highlights"]
    assert isinstance(found, HighlightFindings)
    plain: dict[str, Any] = {"glare": list(found.glare.values()), "least": list(found.least.values())}
    if len(found.glare) == 1:
        plain["images"] = [
            [Path(name).stem, label, right, round(sure, 6), failing, *([levels or []] if variants else [])]
            for name, label, right, sure, failing, levels in run.rows(_IMAGES).fetchall()
        ]
    content: dict[str, Any] = to_plain(plain)
    return content


def collect_saliency(run: brinell.Run, *, variants: bool = False) -> dict[str, Any]:
    """Return how often saliency shifts in a run."""
    found = run.findings()["saliency"]
    assert isinstance(found, SaliencyFindings)
    content: dict[str, Any] = to_plain({"shifts": found.shifts, "layers": found.layers})
    return content


def images_of(runs: Mapping[str, Any]) -> list[Seen]:
    """Return every image of stored runs."""
    return [Seen(network, *image[:5]) for network, run in runs.items() for image in run["images"]]


def found_in(runs: Mapping[str, Any]) -> HighlightFindings:
    """Return the combined findings of stored runs; variants that break any of the networks count once."""
    every = HighlightFindings({}, {}, {})
    for run in runs.values():
        for plain in run["glare"]:
            one = _glare(plain)
            every.glare[one.model, one.operator] = one
        for plain in run["least"]:
            least = LeastLight(**_with_estimates(plain))
            every.least[least.model] = least
    failures = {
        (name, level)
        for run in runs.values()
        for name, _, right, _, _, *levels in run.get("images", ())
        if right and levels
        for level in levels[0]
    }
    if failures:
        counts = Counter((level - 1) // 25 for _, level in failures)
        shares = {SIZES[size]: counts[size] / len(failures) for size in range(len(SIZES))}
        every.any_model[EXACT] = AnyModel(len(failures), shares)
    return every


def shifts_in(runs: Mapping[str, Any]) -> list[ShiftRate]:
    """Return how often saliency shifts in stored runs."""
    return [ShiftRate(**_with_estimates(plain)) for run in runs.values() for plain in run["shifts"]]


def _glare(plain: Mapping[str, Any]) -> Glare:
    own = _with_estimates(plain)
    for name in ("at_least", "over_right"):
        own[name] = {int(k): value for k, value in _with_estimates(plain[name]).items()}
    own["sizes"] = [BySize(**_with_estimates(size)) for size in plain["sizes"]]
    own["location"] = None if plain["location"] is None else ByLocation(**_with_estimates(plain["location"]))
    return Glare(**own)


def _with_estimates(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its estimates rebuilt; numbers that are not finite were stored as null."""
    estimate = {"value", "low", "high"}
    return {
        name: Estimate(**{key: float("nan") if each is None else each for key, each in value.items()})
        if isinstance(value, dict) and set(value) == estimate
        else value
        for name, value in plain.items()
    }


# ---- photographs at their native sizes ----


def prepare_photographs(source: Path | None, kind: str) -> Path:
    """Return a folder of photographs: "native", or "square", cropped and scaled to the size of the assets."""
    folder = ROOT / "runs" / "fidelity-photographs" / kind
    if (folder / "metadata.jsonl").exists():
        return folder
    if kind == "square":
        return _make_square(prepare_photographs(source, "native"), folder)
    if source is None:
        raise SystemExit("photographs at native sizes are needed; give their folder as --photographs")
    files = sorted(source.glob("n*.JPEG"))  # one per class, in the order of the classes
    if len(files) != 1000:
        raise SystemExit(f"expected 1,000 photographs n*.JPEG in {source}, got {len(files)}")
    paper = set(json.loads(REFERENCE.read_text(encoding="utf-8"))["classes"])
    others = [label for label in range(1000) if label not in paper][::8]
    _write(folder, ((label, files[label].name) for label in sorted([*paper, *others])))
    for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines():
        shutil.copy(source / json.loads(line)["file_name"], folder)
    return folder


def _make_square(native: Path, folder: Path) -> Path:
    """Write the centre squares of photographs, scaled."""
    records = [json.loads(line) for line in (native / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    folder.mkdir(parents=True, exist_ok=True)
    for record in records:
        image = Image.open(native / record["file_name"]).convert("RGB")
        side = min(image.size)
        left, top = ((each - side) // 2 for each in image.size)
        square = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
        square.save(folder / Path(record["file_name"]).with_suffix(".png"))
    _write(folder, ((record["label"], str(Path(record["file_name"]).with_suffix(".png"))) for record in records))
    return folder


def _write(folder: Path, files: Iterable[tuple[int, str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"file_name": name, "label": label}) for label, name in files]
    (folder / "metadata.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
