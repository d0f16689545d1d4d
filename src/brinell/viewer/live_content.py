"""Requests for live answers, by path. torch and the models are loaded when the first of them arrives."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import BrinellError, ConfigError
from brinell.models.sources import open_model
from brinell.registry import load_reference, nearest
from brinell.validation import validate
from brinell.viewer.content import KINDS, NotFound, Reply, as_json
from brinell.viewer.index import RunIndex
from brinell.viewer.names import parse_parameters, unescape
from brinell.viewer.pictures import Pictures

if TYPE_CHECKING:
    from brinell.models.model import Model
    from brinell.viewer.live import Bench, Studio


@dataclass(frozen=True)
class LiveModel:
    """A model that can be opened: given by its source, or as a run names it."""

    name: str
    source: str
    run: str | None = None
    own: str = ""


class LiveContent:
    """Answers live requests. Models are opened once; those that a run names only as `open_stored_model` allows."""

    def __init__(self, index: RunIndex, pictures: Pictures, models: Sequence[str] = (), *, device: str = "auto") -> None:
        self.index, self.pictures, self.device = index, pictures, device
        self._given = [validate(ModelOptions, text) for text in models]
        self._opened: dict[str, Model] = {}
        self._lock = threading.RLock()
        self._studio: Studio | None = None

    @property
    def studio(self) -> Studio:
        """What answers; torch is imported here."""
        with self._lock:
            if self._studio is None:
                self._studio = load_reference("brinell.viewer.live:Studio")()
            return self._studio

    def models(self) -> dict[str, LiveModel]:
        """Return all models by unique names: given ones, then those of runs."""
        found = {one.label: LiveModel(one.label, one.source) for one in self._given}
        prints: dict[str, str] = {}
        for identity, _, opened in self.index.all():
            if isinstance(opened, BrinellError):
                continue
            for own, record in opened.run.models.items():
                first = prints.setdefault(own, record.fingerprint)
                name = own if first == record.fingerprint else f"{own} ({identity})"
                found.setdefault(name, LiveModel(name, record.options["source"], identity, own))
        return found

    def respond(self, method: str, path: str, body: bytes) -> Reply:
        """Return the response to a live request; raise `NotFound` if there is none."""
        try:
            parts = [unescape(part) for part in path.split("/")]
        except ValueError:
            raise NotFound(path) from None
        match method, parts:
            case "GET", ["models.json"]:
                return as_json([{"name": one.name, "source": one.source, "run": one.run} for one in self.models().values()])
            case "POST", ["open"]:
                return self._open(_parse(body))
            case "POST", ["photo"]:
                photo = self.studio.add_photo(body)
                return as_json(_describe_photo(photo))
            case "POST", ["original"]:
                return self._original(_parse(body))
            case "POST", ["sweep"]:
                return self._sweep(_parse(body))
            case "POST", ["break"]:
                return self._break(_parse(body))
            case "GET", ["changes", model, file] if file.endswith(".json"):
                return self._changes(model, file.removesuffix(".json"))
            case "GET", ["images", model, photo, change, file]:
                return self._image(model, photo, change, file)
            case "GET", ["recipes", model, photo, change, file] if file.endswith(".json"):
                parameters, _ = parse_parameters(file.removesuffix(".json"))
                recipe = load_reference("brinell.viewer.recipes:write_recipe")
                return as_json(recipe(self._change({"change": change}), parameters, self.models()[model].source))
            case "GET", ["originals", file] if file.endswith(".webp"):
                return self._photograph(file.removesuffix(".webp"))
        raise NotFound(path)

    def model(self, name: str) -> Model:
        """Return a model by name, opened once."""
        with self._lock:
            if name not in self._opened:
                known = self.models()
                if name not in known:
                    raise ConfigError(f"there is no model {name!r} here; {nearest(name, list(known))}")
                self._opened[name] = self._open_model(known[name])
            return self._opened[name]

    def _open_model(self, live: LiveModel) -> Model:
        execution = Execution(device=self.device, trust=self.pictures.trust)
        if live.run is None:
            return open_model(next(one for one in self._given if one.label == live.name), execution)
        run = self.index.open(live.run).run
        opened: Model = load_reference("brinell.viewer.images:open_run_model")(run, live.own, trust=self.pictures.trust)
        return opened

    def _open(self, request: Mapping[str, Any]) -> Reply:
        began = time.perf_counter()
        name = str(request.get("model"))
        try:
            model = self.model(name)
        except BrinellError as error:
            return as_json({"model": name, "problem": str(error)})
        pre = model.preprocess
        return as_json(
            {
                "model": name,
                "input": [pre.channels, pre.height, pre.width],
                "short_side": pre.short_side,
                "classes": model.outputs,
                "gradients": model.differentiable is not None,
                "detector": model.detector is not None,
                "segmenter": model.task == "segmentation",
                "seconds": round(time.perf_counter() - began, 2),
            }
        )

    def _original(self, request: Mapping[str, Any]) -> Reply:
        """Take an original of a run as the photograph; its labels count as right."""
        identity, image = str(request.get("run")), str(request.get("image"))
        opened = self.index.open(identity)
        original = self.pictures.of(identity, opened).made.original(image)
        run = opened.run
        with opened.lock:
            labels = {model: known[image] for model in run.models if image in (known := run.labels(model))}
        photo = self.studio.add_original(original, labels, list(run.manifest.get("operators", {})), run.seed)
        return as_json(_describe_photo(photo))

    def _bench(self, model: str, photo: str) -> Bench:
        return self.studio.bench(self.studio.photo(photo), self.model(model))

    def _changes(self, model: str, photo: str) -> Reply:
        return as_json(load_reference("brinell.viewer.live:list_changes")(self._bench(model, photo)))

    def _sweep(self, request: Mapping[str, Any]) -> Reply:
        change, parameters = self._change(request), [float(value) for value in request.get("parameters", [])]
        benches = [self._bench(str(model), str(request.get("photo"))) for model in request.get("models", [])]
        if not benches:
            raise ConfigError("choose a model first")
        values = request.get("values", ())
        return as_json(self.studio.sweep(benches, change, parameters, int(request.get("axis", 0)), values))

    def _break(self, request: Mapping[str, Any]) -> Reply:
        change = self._change(request)
        models, photo = map(str, request.get("models", [])), str(request.get("photo"))
        return as_json({model: self.studio.find_break(self._bench(model, photo), change) for model in models})

    @staticmethod
    def _change(request: Mapping[str, Any]) -> Any:
        return load_reference("brinell.viewer.live:change_by_id")(str(request.get("change")))

    def _image(self, model: str, photo: str, change: str, file: str) -> Reply:
        stem, _, kind = file.rpartition(".")
        if kind not in KINDS:
            raise NotFound(file)
        try:
            parameters, _ = parse_parameters(stem)
        except ValueError:
            raise NotFound(file) from None
        pixels = self.studio.pixels(self._bench(model, photo), self._change({"change": change}), parameters)
        encoded: bytes = load_reference("brinell.viewer.images:encode")(pixels, kind)
        return Reply(encoded, KINDS[kind], lasting=True)

    def _photograph(self, photo: str) -> Reply:
        picture = load_reference("brinell.viewer.images:as_photograph")(self.studio.photo(photo).image)
        return Reply(picture, KINDS["webp"], lasting=True)


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        request = json.loads(body)
    except ValueError:
        raise ConfigError("expected JSON") from None
    if not isinstance(request, dict):
        raise ConfigError("expected a JSON object")
    return request


def _describe_photo(photo: Any) -> dict[str, Any]:
    height, width = photo.image.shape[1:]
    return {"photo": photo.id, "width": width, "height": height, "labelled": bool(photo.labels)}
