"""Models behind HTTP: a URL, and a mapping file where the service doesn't speak the Open Inference Protocol."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import torch
from torch import Tensor

from brinell.classes import Classes
from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, ServiceError
from brinell.models.detection import Detector
from brinell.models.device import select_device
from brinell.models.model import Forward, Model, Probe, probe
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.remote.cache import Answers, usual_file
from brinell.models.remote.detections import MappedObjects, OpenObjects, detecting
from brinell.models.remote.http import Passing, Wire
from brinell.models.remote.inference import OpenInference, image_input
from brinell.models.remote.mapping import Mapping, ResponseOptions, read_mapping
from brinell.models.remote.protocol import Asking, Mapped
from brinell.models.remote.service import Service

_MODEL = re.compile(r"(.*/v2/models/[^/]+(?:/versions/[^/]+)?)(?:/infer|/ready)?/?")


def open_url(_: str, options: ModelOptions, execution: Execution) -> Model:
    """A model behind HTTP. A service with a mapping is not asked before the run asks it; others are looked at first."""
    url = _checked(options.source)
    mapping = read_mapping(options.mapping) if options.mapping is not None else Mapping(protocol="v2")
    wire = Wire(url, mapping.request, mapping.calls)
    answers = Answers(Path(execution.answers).expanduser() if execution.answers else usual_file())
    if mapping.protocol == "v2":
        return _open_inference(url, mapping, wire, answers, options, execution)
    return _mapped(url, mapping, wire, answers, options, execution)


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname:
        raise ConfigError(f"{url} names no host; a model's URL looks like http://host:8000/v2/models/NAME")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "a URL with a password would be stored; give it as a header from the environment (see the README)"
        )
    if any(key == "mapping" for key, _ in parse_qsl(parts.query)):
        raise ConfigError(
            "what follows ? belongs to the URL; brinell's options follow #, as in http://host/predict#mapping=FILE"
        )
    return url


def _mapped(url: str, mapping: Mapping, wire: Wire, answers: Answers, options: ModelOptions, execution: Execution) -> Model:
    response = mapping.response
    assert response is not None
    detects = options.is_detector(response.boxes is not None)
    if detects and response.boxes is None:
        raise ConfigError(f"the mapping of {url} should say where boxes are (response.boxes), if it is a detector")
    if not detects and response.boxes is not None:
        raise ConfigError(f"the mapping of {url} has boxes, which a classifier has not; leave out task or response.boxes")
    classes = mapping.class_names(select_classes(options, None))
    request = mapping.request.model_dump(mode="json", exclude={"headers"})
    asked = {"url": url, "version": mapping.version, "request": request, "headers": _plain_headers(mapping)}
    asking = Mapped(mapping.request, response, classes)
    if detects:
        asking = MappedObjects(mapping.request, response, classes, most_found=options.max_detections)
    service = Service(wire, url, asking, answers, identity=_digest(asked), name=options.label, limit=execution.max_queries)
    model = Model(
        name=options.label,
        forward=_forward(service),
        preprocess=_whole_levels(select_preprocess(options, Preprocess())),
        device=select_device(execution),
        fingerprint=_digest({**asked, "response": _told(response)}),
        outputs=len(classes),
        probabilities=not response.logits,
        classes=classes,
        facts=_facts(options, execution, f"mapping {options.mapping}", mapping.request.format),
        scores=response.scores is not None,
        service=service,
    )
    how = options.model_copy(update={"box_format": response.box_format, "box_units": response.box_units})
    return _finding(model, how) if detects else model


def _finding(model: Model, how: Decoding) -> Model:
    """A model whose answers are tables of objects, as a detector."""
    detect = detecting(model.forward, how, model.preprocess.height, model.preprocess.width)
    return replace(
        model,
        forward=lambda images: detect(images).class_scores(model.outputs),
        probabilities=True,
        detector=Detector(detect, how),
    )


def _open_inference(
    url: str, mapping: Mapping, wire: Wire, answers: Answers, options: ModelOptions, execution: Execution
) -> Model:
    device = select_device(execution)
    base = _model_url(url, wire, options)
    metadata = _get(wire, "GET", base, options)
    try:
        entry = image_input(metadata)
    except ServiceError as error:
        raise ServiceError(f"model {options.label} ({base}) can't be used: {error}") from None
    known, classes = _known(metadata, entry.image)
    preprocess = select_preprocess(options, known)
    if 0 in (preprocess.height, preprocess.width):
        raise ConfigError(f"{options.source} takes images of any size; say which to use: {options.source}#size=224")
    most = entry.most or mapping.calls.batch
    how, detects = _detection(metadata, options)
    asking: Asking = OpenInference(entry, preprocess, options.output, most)
    if detects:
        names = (how.boxes or "boxes", how.labels or "labels", how.scores or "scores")
        asking = OpenObjects(entry, preprocess, None, most, names, how.max_detections)
    asked = {
        "url": base,
        "version": mapping.version,
        "metadata": metadata,
        "headers": _plain_headers(mapping),
        "output": options.output,
        "scaling": [preprocess.mean, preprocess.std],
    }
    service = Service(
        wire, f"{base}/infer", asking, answers, identity=_digest(asked), name=options.label, limit=execution.max_queries
    )
    forward, plain = _forward(service), _whole_levels(preprocess)
    classes = select_classes(options, classes)
    if detects and classes is None:
        raise ConfigError(f"detector {options.label} gives labels alone: give it its class list (#classes=FILE)")
    first_look = Probe(len(classes), True) if detects and classes else probe(forward, plain, device, options.label)
    if classes is not None and len(classes) != first_look.outputs:
        raise ServiceError(
            f"model {options.label} has {first_look.outputs} outputs, but its class list has {len(classes)} names"
        )
    model = Model(
        name=options.label,
        forward=forward,
        preprocess=plain,
        device=device,
        fingerprint=_digest(asked),
        outputs=first_look.outputs,
        probabilities=first_look.probabilities,
        classes=classes,
        facts=_facts(options, execution, "Open Inference Protocol v2", f"{entry.datatype} tensors"),
        service=service,
    )
    return _finding(model, how) if detects else model


def _detection(metadata: Any, options: ModelOptions) -> tuple[Decoding, bool]:
    """How a server's boxes are read, and whether it is a detector: `brinell serve` says so."""
    more = metadata.get("parameters")
    more = more if isinstance(more, dict) else {}
    detects = options.is_detector(more.get("task") == "detection")
    if more.get("box_units") in ("pixels", "relative") and "box_units" not in options.model_fields_set:
        return options.model_copy(update={"box_units": more["box_units"]}), detects
    return options, detects


def _told(response: ResponseOptions) -> dict[str, Any]:
    """A mapping's response as data; what only detectors have is told where there are boxes."""
    without = set() if response.boxes is not None else {"boxes", "box_format", "box_units"}
    return response.model_dump(mode="json", exclude=without)


def _model_url(url: str, wire: Wire, options: ModelOptions) -> str:
    """The model's own URL; a server's will do where it has one model."""
    parts = urlsplit(url)
    match = _MODEL.fullmatch(url.partition("?")[0])
    if match is not None and not parts.query:
        return match[1]
    if parts.path.rstrip("/") not in ("", "/v2") or parts.query:
        raise ConfigError(
            f"{url} is not the URL of an Open Inference Protocol model (http://host:port/v2/models/NAME); another kind of "
            "service needs a mapping: #mapping=FILE.yaml"
        )
    root = f"{parts.scheme}://{parts.netloc}/v2"
    listed = _get(wire, "POST", f"{root}/repository/index", options)
    names = [str(one.get("name")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if len(names) != 1:
        raise ConfigError(f"{url} has {len(names)} models ({', '.join(names[:10])}); give one: {root}/models/NAME")
    return f"{root}/models/{quote(names[0], safe='')}"


def _get(wire: Wire, method: str, url: str, options: ModelOptions) -> Any:
    """What a server says about itself, which costs nothing."""
    try:
        return wire.json(method, url, b"{}" if method == "POST" else None, "application/json" if method == "POST" else None)
    except (Passing, ServiceError) as error:
        problem = wire.hidden(str(error)).removeprefix("it ")
        raise ServiceError(f"model {options.label} can't be opened: {url} {problem}") from None


def _known(metadata: Any, image: tuple[int, int, int]) -> tuple[Preprocess, Classes | None]:
    """What a server says of its images and classes; `brinell serve` says more than the protocol has."""
    channels, height, width = image
    more = metadata.get("parameters")
    more = more if isinstance(more, dict) else {}
    classes = more.get("classes")
    if height <= 0 and isinstance(more.get("size"), list) and len(more["size"]) == 2:
        height, width = (int(side) for side in more["size"])
    known = Preprocess(
        height=max(height, 0),
        width=max(width, 0),
        channels=channels if channels in (1, 3) else 3,
        short_side=more.get("short_side") if isinstance(more.get("short_side"), int) else None,
    )
    if more.get("interpolation") in ("nearest", "bilinear", "bicubic", "lanczos"):
        known = replace(known, interpolation=more["interpolation"])
    return known, Classes(tuple(map(str, classes))) if isinstance(classes, list) else None


def _forward(service: Service) -> Forward:
    """A service as a function on images in [0, 1], which are made whole grey levels again."""

    def forward(images: Tensor) -> Tensor:
        inputs = (images * 255).round().clamp(0, 255).to(torch.uint8).cpu().contiguous()
        return service.scores(inputs).to(images.device)

    return forward


def _whole_levels(preprocess: Preprocess) -> Preprocess:
    return replace(preprocess, mean=(0.0,), std=(1.0,))


def _plain_headers(mapping: Mapping) -> dict[str, str]:
    """Headers without secrets: one of them may say which model is asked."""
    return {name: value for name, value in mapping.request.headers.items() if "${" not in value}


def _facts(options: ModelOptions, execution: Execution, protocol: str, sent: str) -> dict[str, str]:
    device = str(select_device(execution))
    return {"source": options.source, "runtime": "http", "protocol": protocol, "sent": sent, "device": device}


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
