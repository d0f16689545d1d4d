"""The walk of a curation: failures from rows, those that are taken, pictures, what is told of them, and the card."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, TypeVar

import torch

from brinell.config.execution import Execution
from brinell.curation.asking import Asking
from brinell.curation.card import card, contact_sheet, examples_of
from brinell.curation.failing import Picture, chosen, gather, narrow, needed
from brinell.curation.layouts import LAYOUTS, check_boxes, encoded, licence_of, places_beside, write_coco
from brinell.curation.likeness import Seen, hashes
from brinell.curation.making import Made, Maker
from brinell.curation.options import CurateOptions
from brinell.curation.records import class_of, record
from brinell.curation.sources import connected, models_of, sources_of
from brinell.engine.progress import Reporter, Silent
from brinell.engine.shards import in_order, worker_count
from brinell.engine.threads import torch_alone
from brinell.errors import RunError
from brinell.models.model import Model
from brinell.runs.run import Run
from brinell.runs.store import Store
from brinell.versions import package_version

A = TypeVar("A")

HASHED = 64  # pictures at a time
UNFINISHED = ".unfinished"  # tells what is being written


@dataclass(frozen=True)
class Curated:
    """A data set of failures: where it lies, and how many pictures there are of each model, operator and class."""

    folder: str
    images: int
    originals: int
    models: dict[str, int]
    operators: dict[str, int]
    classes: dict[str, int]


def curate(
    runs: Sequence[Run],
    out: Store,
    options: CurateOptions,
    *,
    data: Any = None,
    models: Sequence[Model] = (),
    execution: Execution | None = None,
    reporter: Reporter | None = None,
) -> Curated:
    """Write the failures of finished runs as a data set. Models that are given needn't be opened."""
    execution, reporter = execution or Execution(), reporter or Silent()
    refuse_full(out)
    sources = sources_of(runs, data)
    asked = models_of(sources)
    fail = needed(options, asked)
    connection = connected(sources)
    gather(connection, sources, asked, options)
    with torch_alone(), ThreadPoolExecutor(worker_count(execution.workers), "pictures") as pool:
        asking = Asking(sources, asked, models, execution, pool, reporter)
        asking.confirm(connection)
        narrow(connection, options)
        if fail > 1:
            asking.others(connection, options)
        found = chosen(connection, sources, asked, options, fail)
        if options.layout == "coco":
            check_boxes(found)
        told = [f"{len(found):,} pictures of versions on which {_many(options, fail)}"]
        maker = Maker(models, execution, pool)
        pictures = _taken(found, options, maker, reporter, told)
        places = LAYOUTS[options.layout](pictures, options.format)
        beside = places_beside(pictures, places, options)
        begin(out, pictures, places, options)
        shown = _write(out, pictures, places, beside, options, maker, pool, reporter)

    def records() -> Iterator[dict[str, Any]]:  # anew each time: they are larger than what they are made of
        return (record(*each, sources) for each in zip(pictures, places, beside, strict=True))

    if options.layout == "coco":
        write_coco(out, pictures, list(records()))
    if shown:
        out.write(contact_sheet(shown), ".card", "examples.png")
    name = out.root.rpartition("/")[2]
    licences = Counter(map(licence_of, records()))
    page = card(name, package_version("brinell") or "", pictures, licences, sources, asked, options, told)
    out.write(page.encode(), "README.md")
    lines = (json.dumps(one, ensure_ascii=False, allow_nan=False).encode() + b"\n" for one in records())
    out.write(b"".join(lines), "metadata.jsonl")
    out.remove(UNFINISHED)
    return Curated(
        folder=out.place(),
        images=len(pictures),
        originals=len({picture.replay.image for picture in pictures}),
        models=dict(sorted(Counter(failure.model.name for one in pictures for failure in one.failures).items())),
        operators=dict(sorted(Counter(picture.replay.change.id for picture in pictures).items())),
        classes=dict(sorted(Counter(map(class_of, pictures)).items())),
    )


def refuse_full(out: Store) -> None:
    """Raise if there is something in the folder, other than what a curation left that was stopped."""
    try:
        there = out.fs.ls(out.path(), detail=False) if out.exists() else []
    except NotADirectoryError:
        there = [out.path()]
    if there and not out.exists(UNFINISHED):
        raise RunError(f"{out.url} is not empty; give another folder with -o, or empty it first")


def begin(out: Store, pictures: Sequence[Picture], places: Sequence[str], options: CurateOptions) -> None:
    """Say what is going to be written, or see that it is what was going to be written before; half a file is removed."""
    content = [options.model_dump(mode="json"), package_version("brinell"), [one.key for one in pictures], list(places)]
    told = hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest().encode()
    if not out.exists(UNFINISHED):
        out.write(told, UNFINISHED)
    elif out.read(UNFINISHED) != told:
        raise RunError(f"{out.url} holds a part of another data set; give another folder with -o, or empty it first")
    for path in out.fs.find(out.path()):
        if path.endswith(".part"):
            out.fs.rm_file(path)


def _many(options: CurateOptions, fail: int) -> str:
    return {"any": "any model fails", "all": "all models fail"}.get(str(options.fail), f"at least {fail} models fail")


def _taken(
    found: Sequence[Picture], options: CurateOptions, maker: Maker, reporter: Reporter, told: list[str]
) -> list[Picture]:
    """Without near-duplicates, so many of each class, so many in all: the least perturbed of each class and operator in
    turn. In the order that they were found in.
    """
    order = in_turn(found, options)
    if options.near_duplicates is not None:
        bits, seen = _hashes(found, maker, reporter), Seen(options.near_duplicates)
        kept = [number for number in order if seen.takes(bits[number])]
        told.append(f"{len(order) - len(kept):,} near-duplicates left out (hashes within {options.near_duplicates} bits)")
        order = kept
    if options.per_class is not None:
        counts: Counter[str] = Counter()
        kept = []
        for number in order:
            name = class_of(found[number])
            counts[name] += 1
            if counts[name] <= options.per_class:
                kept.append(number)
        short = sum(count < options.per_class for count in counts.values())
        told.append(f"{options.per_class:,} of each class; {short} of {len(counts)} classes have fewer")
        order = kept
    if options.limit is not None and len(order) > options.limit:
        told.append(f"the first {options.limit:,} of {len(order):,}")
        order = order[: options.limit]
    return [found[number] for number in sorted(order)]


def _hashes(pictures: Sequence[Picture], maker: Maker, reporter: Reporter) -> torch.Tensor:
    """The hash of each picture, (N, 64) bits; pictures of one size are hashed together."""
    bits = torch.zeros(len(pictures), 64, dtype=torch.bool)
    advance = reporter.stage("comparing pictures", len(pictures), "images")
    for _, same in groupby(maker.make(pictures), lambda made: made.image.shape):
        for batch in batched(same, HASHED):
            bits[[made.number for made in batch]] = hashes(torch.stack([made.image for made in batch]))
            advance(len(batch))
    return bits


def batched(items: Iterable[A], size: int) -> Iterator[list[A]]:
    """Items in lists of so many."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def in_turn(pictures: Sequence[Picture], options: CurateOptions) -> list[int]:
    """Numbers of pictures, the least perturbed of each class and operator first, then the second of each, and so on."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, picture in enumerate(pictures):
        groups[class_of(picture), picture.replay.change.id].append(number)

    def extent(number: int) -> tuple[float, float, int]:
        distance = pictures[number].distances[options.distance]
        return float("inf") if distance is None else distance, pictures[number].intensity, number

    turns = [
        (turn, *group, number)
        for group, numbers in groups.items()
        for turn, number in enumerate(sorted(numbers, key=extent))
    ]
    return [number for *_, number in sorted(turns)]


def _write(
    out: Store,
    pictures: Sequence[Picture],
    places: Sequence[str],
    beside: Sequence[str | None],
    options: CurateOptions,
    maker: Maker,
    pool: ThreadPoolExecutor,
    reporter: Reporter,
) -> list[tuple[Picture, torch.Tensor, torch.Tensor]]:
    """Write the pictures that are not there, and give the examples among all of them."""
    there = set(out.fs.find(out.path()))
    examples: dict[int, tuple[torch.Tensor, torch.Tensor] | None] = dict.fromkeys(examples_of(pictures))
    wanted = [
        number
        for number, files in enumerate(zip(places, beside, strict=True))
        if number in examples or any(file is not None and out.path(file) not in there for file in files)
    ]
    advance = reporter.stage("writing pictures", len(wanted), "images")

    def write(made: Made) -> Made:
        number = wanted[made.number]
        for image, place in ((made.image, places[number]), (made.clean, beside[number])):
            if place is not None and out.path(place) not in there:
                out.write(encoded(image, options.format), *place.split("/"))
        return made

    for made in in_order(pool, write, maker.make([pictures[number] for number in wanted]), 32):
        if wanted[made.number] in examples:
            examples[wanted[made.number]] = made.clean, made.image
        advance(1)
    return [(pictures[number], *pair) for number, pair in examples.items() if pair is not None]
