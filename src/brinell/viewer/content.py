"""What pages ask for, by path. The server and the bundle answer with the same bytes. Nothing here imports torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brinell.errors import BrinellError, RunError
from brinell.lenses.analysis import analyses_of
from brinell.lenses.lens import LENSES
from brinell.registry import load_reference
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.versions import package_version
from brinell.viewer.compare import compare_models
from brinell.viewer.digest import Digest
from brinell.viewer.digests import Digests
from brinell.viewer.headline import headline
from brinell.viewer.index import Opened, RunIndex
from brinell.viewer.names import format_parameters, parse_parameters, unescape
from brinell.viewer.pictures import Pictures
from brinell.viewer.sequences import clean_answer, name_class, read_sequence
from brinell.viewer.watch import watch_run

JSON, BYTES = "application/json", "application/octet-stream"
KINDS = {"webp": "image/webp", "png": "image/png"}


class NotFound(Exception):
    """A path that nothing answers to."""


@dataclass(frozen=True)
class Reply:
    """A response. `lasting`: it doesn't change while the viewer runs."""

    body: bytes
    kind: str = JSON
    status: int = 200
    lasting: bool = False


def as_json(content: Any, status: int = 200) -> Reply:
    """Return plain data as a response."""
    return Reply(json.dumps(to_plain(content), separators=(",", ":")).encode(), status=status)


class Content:
    """Answers requests for what is stored."""

    def __init__(self, index: RunIndex, pictures: Pictures, site: dict[str, Any] | None = None) -> None:
        self.index, self.pictures, self.digests = index, pictures, Digests()
        self.site = {"version": package_version("brinell"), "bundle": False, "live": False, **(site or {})}

    def respond(self, path: str) -> Reply:
        """Return the response to a path such as "runs/demo/digest.json"; raise `NotFound` if there is none."""
        try:
            parts = [unescape(part) for part in path.split("/")]
        except ValueError:
            raise NotFound(path) from None
        match parts:
            case ["site.json"]:
                return as_json(self.site)
            case ["runs.json"]:
                return as_json([self.describe(*one) for one in self.index.all()])
            case ["compare", old, before, new, file] if file.endswith(".json"):
                return self._compare((old, before), (new, file.removesuffix(".json")))
            case ["runs", identity, *rest]:
                return self._of_run(identity, self.index.open(identity), rest)
        raise NotFound(path)

    def _compare(self, old: tuple[str, str], new: tuple[str, str]) -> Reply:
        first, second = self.index.open(old[0]), self.index.open(new[0])
        for opened, (_, model) in ((first, old), (second, new)):
            if model not in opened.run.models:
                raise NotFound(model)
        with first.lock, second.lock:
            return as_json(compare_models((first.run, old[1]), (second.run, new[1])))

    def _of_run(self, identity: str, opened: Opened, parts: list[str]) -> Reply:
        match parts:
            case ["run.json"]:
                return as_json(describe_run(identity, opened.run))
            case ["digest.json"]:
                return self._with_digest(identity, opened, lambda digest: Reply(digest.description))
            case ["headline.json"]:
                return self._with_digest(identity, opened, lambda digest: as_json(headline(digest)))
            case ["cells", file] if file.endswith(".bin"):
                return self._with_digest(identity, opened, lambda digest: _cells(digest, file.removesuffix(".bin")))
            case ["findings.json"]:
                with opened.lock:
                    return as_json(find_verdicts(opened.run))
            case ["watch.json"]:
                with opened.lock:
                    return as_json(watch_run(opened.run))
            case ["maps", model, file] if file.endswith(".json"):
                with opened.lock:
                    return as_json(read_maps(opened.run, model, file.removesuffix(".json")))
            case ["sequences", model, lens, operator, file] if file.endswith(".json"):
                return self._sequence(identity, opened, (model, lens, operator, file.removesuffix(".json")))
            case ["boxes", model, lens, operator, image, before, file] if file.endswith(".json"):
                at, counterpart = (
                    _parameters(file.removesuffix(".json")),
                    None if before == "clean" else _parameters(before),
                )
                pictures = self.pictures.of(identity, opened)
                found = pictures.boxes(model, lens, operator, image, at=at, counterpart=counterpart)
                return Reply(as_json(found).body, lasting=True)
        return self._picture(identity, opened, parts)

    def _picture(self, identity: str, opened: Opened, parts: list[str]) -> Reply:
        *folder, name = parts
        stem, _, kind = name.rpartition(".")
        if kind not in KINDS:
            raise NotFound("/".join(parts))
        pictures = self.pictures.of(identity, opened)
        match folder:
            case ["thumbnails"]:
                body = pictures.thumbnail(stem)
            case ["originals"]:
                body = pictures.photograph(stem)
            case ["inputs", model]:
                body = pictures.clean(model, stem, kind)
            case ["replays", model, lens, operator, image]:
                body = pictures.replay(model, lens, operator, image, at=_parameters(stem), kind=kind)
            case ["saliency", model, image] if stem == "clean":
                body = pictures.saliency(model, image)
            case ["saliency", model, lens, operator, image]:
                body = pictures.saliency(model, image, (lens, operator, _parameters(stem)))
            case ["masks", model, image] if stem == "clean":
                body = pictures.masks(model, image)
            case ["masks", model, lens, operator, image]:
                body = pictures.masks(model, image, (lens, operator, _parameters(stem)))
            case _:
                raise NotFound("/".join(parts))
        return Reply(body, KINDS[kind], lasting=True)

    def _with_digest(self, identity: str, opened: Opened, respond: Callable[[Digest], Reply]) -> Reply:
        digest = self.digests.get(identity, opened)
        return as_json({"progress": digest}, status=202) if isinstance(digest, float) else respond(digest)

    def _sequence(self, identity: str, opened: Opened, key: tuple[str, str, str, str]) -> Reply:
        model, lens, _, _ = key
        run = opened.run
        if model not in run.models or lens not in run.lenses or lens not in LENSES:
            raise NotFound("/".join(key))

        def respond(digest: Digest) -> Reply:
            with opened.lock:
                content = read_sequence(run, digest, *key)
            for point in content["points"]:
                point["key"] = format_parameters(point["parameters"], point["field"])
                if point["counterpart"]:
                    point["counterpart"] = format_parameters(point["counterpart"], point["field"])
            return as_json(content)

        return self._with_digest(identity, opened, respond)

    def describe(self, identity: str, folder: str, opened: Opened | BrinellError) -> dict[str, Any]:
        """Return a run on the start page; one that can't be opened with the reason."""
        if isinstance(opened, BrinellError):
            return {"id": identity, "folder": folder, "problem": str(opened)}
        run = opened.run
        return {
            "id": identity,
            "folder": folder,
            "data": run.data["name"],
            "models": [{"name": name, "detector": one.detector} for name, one in run.models.items()],
            "lenses": list(run.lenses),
            "images": opened.image_count,
            "created": run.manifest.get("created"),
            "seconds": run.manifest.get("seconds"),
            "finished": run.finished,
            "brinell": run.manifest.get("versions", {}).get("brinell"),
        }


def _parameters(text: str) -> tuple[tuple[float, ...], int]:
    try:
        return parse_parameters(text)
    except ValueError:
        raise NotFound(text) from None


def describe_run(identity: str, run: Run) -> dict[str, Any]:
    """Return what a run is: models, data, lenses and their questions."""
    return {
        "id": identity,
        "folder": run.folder,
        "data": run.data["name"],
        "source": run.source["data"]["source"],
        "labels": run.config["data"]["labels"],
        "seed": run.seed,
        "created": run.manifest.get("created"),
        "finished": run.finished,
        "models": [
            {"name": name, "input": list(one.input), "detector": one.detector, "source": one.options["source"]}
            for name, one in run.models.items()
        ],
        "lenses": [
            {"name": name, "question": LENSES[name].question, "summary": LENSES[name].summary}
            for name in run.lenses
            if name in LENSES
        ],
    }


def _cells(digest: Digest, model: str) -> Reply:
    if model not in digest.cells:
        raise NotFound(model)
    return Reply(digest.cells[model].pack(), BYTES)


def find_verdicts(run: Run) -> list[dict[str, Any]]:
    """Return what each lens says about each model, in sentences."""
    found = []
    for name, analysis in analyses_of(run).items():
        try:
            findings = analysis.reader.find(run, run.lens(name), {})
        except RunError:
            continue  # no rows yet
        verdicts = [{"model": model, "verdict": findings.verdict(model)} for model in findings.models]
        found.append({"lens": name, "question": analysis.question, "verdicts": verdicts})
    return found


def read_maps(run: Run, model: str, image: str) -> dict[str, Any]:
    """Return a model's answers over the places of an image, of every lens that asks about places."""
    if model not in run.models or image not in run.image_names:
        raise NotFound(image)
    record = run.models[model]
    ((height, width),) = run.query("select height, width from samples where image = $image limit 1", {"image": image})
    found: list[dict[str, Any]] = []
    classes: dict[int, str | None] = {}
    for lens in run.lenses:
        reference = LENSES[lens].reader.maps if lens in LENSES else None
        for one in load_reference(reference)(run, run.lens(lens), model, image) if reference is not None else ():
            found.append({"lens": lens, **to_plain(one)})
            classes |= {index: name_class(record, index) for row in one.predictions for index in row if index is not None}
    return {"height": height, "width": width, "maps": found, "classes": classes, "clean": clean_answer(run, model, image)}
