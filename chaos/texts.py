"""Malformed configs, manifests, annotations and mappings: each is read, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from brinell.comparison.rules import read_gate
from brinell.datasets.sources import open_dataset
from brinell.errors import BrinellError
from brinell.models.remote.mapping import read_mapping
from brinell.run_config import load_config
from brinell.validation import read_yaml
from chaos.scenario import Result

COUNT = 600  # of each kind
SEEDS: dict[str, str] = {
    "config.yaml": "model: fake:grey:0.25\ndata: {source: greys, limit: 3}\nlens: {name: profile, levels: 5}\nseed: 1\n",
    "manifest.csv": "file_name,label\na.png,1\nb.png,dog\n",
    "manifest.jsonl": '{"file_name": "a.png", "label": 1}\n{"file_name": "b.png", "label": "x"}\n',
    "instances.json": json.dumps(
        {
            "images": [{"id": 1, "file_name": "a.png"}],
            "annotations": [{"id": 1, "image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4], "iscrowd": 0}],
            "categories": [{"id": 2, "name": "thing"}],
        }
    ),
    "mapping.yaml": "classes: [light, dark]\nrequest: {body: raw}\nresponse: {scores: result}\ncalls: {retries: 1}\n",
    "gate.yaml": "rules:\n- {lens: profile, measure: failure, at_least: 3}\n",
}  # fmt: skip
PIECES = [
    "", "\0", "\x1b[31m", "null", "true", "-1", "1e999", "NaN", "²", "٣", "9" * 400, "[" * 300, "{" * 300, "- " * 300,
    "&a *a", "&a [*a, *a]", "!!python/name:os.system", "<<: *x", "a: 1\na: 2", "\ufeff", "\ud7ff", "é" * 50,
    "../../etc/passwd", "$(id)", "${HOME}", "'", '"', "\\", "\n\n", "\t", ",", ":", "x" * 5000, "2020-13-45", "0x10",
    "1_000", "~", "[]", "{}", "|", ">", "%", "@", "`",
]  # fmt: skip


def mutate(text: str, random: Random) -> str:
    """Return a text with a few faults: pieces put in, cut out, doubled or replaced."""
    for _ in range(random.choice([1, 1, 2, 4])):
        start = random.randrange(len(text) + 1)
        stop = min(len(text), start + random.randrange(12))
        how = random.randrange(4)
        piece = random.choice(PIECES) if how < 2 else text[start:stop] * 2 if how == 2 else ""
        text = text[:start] + piece + text[stop if how else start :]
    return text


def _read(name: str, path: Path) -> Any:
    readers: dict[str, Callable[[Path], Any]] = {
        "config.yaml": lambda file: load_config(read_yaml(file, "config", "models and data")),
        "mapping.yaml": lambda file: read_mapping(str(file)),
        "gate.yaml": read_gate,
    }
    if name in readers:
        return readers[name](path)
    data = open_dataset(path)
    return [data[index] for index in range(min(3, len(data)))]


def malformed_texts(work: Path, random: Random, scale: float) -> Result:
    """Read mutated texts of every kind."""
    result = Result(
        "malformed configs, manifests, annotations, mappings and rules", "each is read or refused in one line within 5 s"
    )
    for name, seed in SEEDS.items():
        for number in range(max(1, round(COUNT * scale))):
            text = mutate(seed, random)
            (work / name).write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
            with result.attempt(f"{name} {number} {text[:80]!r}", BrinellError, seconds=5):
                try:
                    _read(name, work / name)
                except BrinellError as error:
                    result.expect("\n" not in str(error), f"{name} {number}: {str(error)[:100]!r} has several lines")
                    raise
    return result
