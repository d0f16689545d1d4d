"""Opens models behind HTTP, by the Open Inference Protocol or by a mapping file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import torch
from torch import Tensor

from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, ServiceError
from brinell.models.detection import Detector
from brinell.models.device import select_device
from brinell.models.embedders import check_embedder, make_embedder
from brinell.models.model import Description, Forward, Model
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.probe import Probe, make_classifier, probe
from brinell.models.remote.cache import AnswerCache, default_file
from brinell.models.remote.detections import InferenceDetectionCodec, MappingDetectionCodec, make_detect
from brinell.models.remote.http import HttpClient
from brinell.models.remote.inference import InferenceCodec, image_input
from brinell.models.remote.mapping import ResponseOptions, ServiceMapping, read_mapping
from brinell.models.remote.masks import InferenceMaskCodec, MappingMaskCodec, to_segmenter
from brinell.models.remote.metadata import find_model_url, known_classes, known_preprocess, parameters_of, read_metadata
from brinell.models.remote.protocol import Codec, MappingCodec
from brinell.models.remote.secrets import is_secret
from brinell.models.remote.service import Endpoint, RemoteService


@dataclass(frozen=True)
class Opening:
    """What is needed to open a model: its mapping, options, connections and cache."""

    url: str
    mapping: ServiceMapping
    client: HttpClient
    cache: AnswerCache
    options: ModelOptions
    execution: Execution

    def service(self, url: str, codec: Codec, identity: str) -> RemoteService:
        """Return the service at a URL."""
        endpoint = Endpoint(self.options.label, url, identity)
        return RemoteService(self.client, endpoint, codec, self.cache, limit=self.execution.max_queries)

    def facts(self, protocol: str, sent: str) -> dict[str, str]:
        """Return the facts about the model for the manifest."""
        device = str(select_device(self.execution))
        return {"source": self.options.source, "runtime": "http", "protocol": protocol, "sent": sent, "device": device}


def open_url(_: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a model behind HTTP. A service with a mapping is not queried before the run; others are probed first."""
    url = check_url(options.source)
    mapping = read_mapping(options.mapping) if options.mapping is not None else ServiceMapping(protocol="v2")
    client = HttpClient(url, mapping.request, mapping.calls)
    cache = AnswerCache(Path(execution.answers).expanduser() if execution.answers else default_file())
    opening = Opening(url, mapping, client, cache, options, execution)
    return _open_inference(opening) if mapping.protocol == "v2" else _open_mapped(opening)


def check_url(url: str) -> str:
    """Return a URL, and raise if it has no host or holds a secret."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ConfigError(f"{url} has no host; expected a URL such as http://host:8000/v2/models/NAME")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "a password in a URL would be stored; send it as a header from an environment variable (see docs/remote.md)"
        )
    for name, value in parse_qsl(parts.query):
        if is_secret(name) and "${" not in value:
            raise ConfigError(
                f"the {name} in a URL would be stored; write {name}=${{NAME}} for an environment variable "
                "(see docs/remote.md)"
            )
    if any(key == "mapping" for key, _ in parse_qsl(parts.query)):
        raise ConfigError(
            "the part after ? belongs to the URL; write options after #, as in http://host/predict#mapping=FILE"
        )
    return url


# ---- mapping files ----


def _open_mapped(opening: Opening) -> Model:
    url, mapping, options = opening.url, opening.mapping, opening.options
    response = mapping.response
    assert response is not None
    segmenter = _is_mapped_segmenter(url, response, options)
    detector = not segmenter and _is_mapped_detector(url, response, options)
    classes = mapping.class_names(select_classes(options, None))
    request = mapping.request.model_dump(mode="json", exclude={"headers"})
    identity = {"url": url, "version": mapping.version, "request": request, "headers": public_headers(mapping)}
    codec = MappingCodec(mapping.request, response, classes)
    if detector:
        codec = MappingDetectionCodec(mapping.request, response, classes, max_detections=options.max_detections)
    elif segmenter:
        codec = MappingMaskCodec(mapping.request, response, classes)
    service = opening.service(url, codec, digest(identity))
    model = Model(
        name=options.label,
        forward=service_forward(service),
        preprocess=without_normalisation(select_preprocess(options, Preprocess())),
        device=select_device(opening.execution),
        fingerprint=digest({**identity, "response": _dump_response(response)}),
        outputs=len(classes),
        probabilities=not response.logits,
        classes=classes,
        facts=opening.facts(f"mapping {options.mapping}", mapping.request.format),
        scores=response.scores is not None,
        service=service,
        whole_only=True,
    )
    if segmenter:
        return to_segmenter(model)
    decoding = options.model_copy(update={"box_format": response.box_format, "box_units": response.box_units})
    return _to_detector(model, decoding) if detector else model


def _is_mapped_detector(url: str, response: ResponseOptions, options: ModelOptions) -> bool:
    """Whether a mapping is of a detector; raise if the task says otherwise."""
    detector = options.is_detector(response.boxes is not None)
    if detector and response.boxes is None:
        raise ConfigError(f"the mapping of {url} needs a path to boxes (response.boxes) for a detector")
    if not detector and response.boxes is not None:
        raise ConfigError(f"the mapping of {url} has boxes, but the task is classification; leave out one of them")
    return detector


def _is_mapped_segmenter(url: str, response: ResponseOptions, options: ModelOptions) -> bool:
    """Whether a mapping is of a segmenter; raise if the task says otherwise."""
    segmenter = options.is_segmenter(response.mask is not None)
    if segmenter != (response.mask is not None):
        raise ConfigError(
            f"the mapping of {url} needs a path to a mask (response.mask) for a segmenter, and other models have none; set "
            "task=segmentation, or correct the mapping"
        )
    return segmenter


def _dump_response(response: ResponseOptions) -> dict[str, Any]:
    """Return a mapping's response as data, without the options of other tasks."""
    excluded = set() if response.boxes is not None else {"boxes", "box_format", "box_units"}
    excluded |= set() if response.mask is not None else {"mask"}
    return response.model_dump(mode="json", exclude=excluded)


# ---- Open Inference Protocol ----


def _open_inference(opening: Opening) -> Model:
    options, mapping = opening.options, opening.mapping
    device = select_device(opening.execution)
    base = find_model_url(opening.url, opening.client, options.label)
    metadata = read_metadata(opening.client, base, options.label)
    try:
        entry = image_input(metadata)
    except ServiceError as error:
        raise ServiceError(f"model {options.label} ({base}) can't be used: {error}") from None
    preprocess = select_preprocess(options, known_preprocess(metadata, entry.image))
    if 0 in (preprocess.height, preprocess.width):
        raise ConfigError(f"{options.source} takes images of any size; choose one: {options.source}#size=224")
    most = entry.most or mapping.calls.batch
    decoding, detector = _select_decoding(metadata, options)
    codec: Codec = InferenceCodec(entry, preprocess, options.output, most)
    classes = select_classes(options, known_classes(metadata))
    segmenter = options.is_segmenter(parameters_of(metadata).get("task") == "segmentation")
    if segmenter:
        codec = InferenceMaskCodec(entry, preprocess, options.output, most, None if classes is None else len(classes))
    elif detector:
        names = (decoding.boxes or "boxes", decoding.labels or "labels", decoding.scores or "scores")
        codec = InferenceDetectionCodec(entry, preprocess, None, most, names, decoding.max_detections)
    identity = digest(
        {
            "url": base,
            "version": mapping.version,
            "metadata": metadata,
            "headers": public_headers(mapping),
            "output": options.output,
            "scaling": [preprocess.mean, preprocess.std],
        }
    )
    service = opening.service(f"{base}/infer", codec, identity)
    forward = service_forward(service)
    description = Description(options.label, options.source, without_normalisation(preprocess), classes)
    if options.task == "embedding":
        check_embedder(options)
        facts = opening.facts("Open Inference Protocol v2", f"{entry.datatype} tensors")
        model = make_embedder(forward, description, options, device=device, fingerprint=identity, facts=facts)
        return replace(model, service=service, whole_only=True)
    found = segmenter or detector
    if found and classes is None:
        kind, what = ("segmenter", "classes") if segmenter else ("detector", "labels")
        raise ConfigError(f"{kind} {options.label} returns {what}, so it needs its class list (#classes=FILE)")
    probed = Probe(len(classes), True) if found and classes else probe(forward, description, device)
    facts = opening.facts("Open Inference Protocol v2", f"{entry.datatype} tensors")
    model = make_classifier(forward, probed, description, device=device, fingerprint=identity, facts=facts)
    model = replace(model, service=service, whole_only=True)
    if segmenter:
        return to_segmenter(model)
    return _to_detector(model, decoding) if detector else model


def _select_decoding(metadata: Any, options: ModelOptions) -> tuple[Decoding, bool]:
    """Return how a server's boxes are decoded, and whether it is a detector, which `brinell serve` reports."""
    reported = parameters_of(metadata)
    detector = options.is_detector(reported.get("task") == "detection")
    if reported.get("box_units") in ("pixels", "relative") and "box_units" not in options.model_fields_set:
        return options.model_copy(update={"box_units": reported["box_units"]}), detector
    return options, detector


# ---- both ----


def _to_detector(model: Model, decoding: Decoding) -> Model:
    """Turn a model whose forward function returns tables of objects into a detector."""
    detect = make_detect(model.forward, decoding, model.preprocess.height, model.preprocess.width)
    return replace(
        model,
        forward=lambda images: detect(images).class_scores(model.outputs),
        probabilities=True,
        detector=Detector(detect, decoding),
    )


def service_forward(service: RemoteService) -> Forward:
    """Return a service as a function of images in [0, 1], which are converted back to whole grey levels."""

    def forward(images: Tensor) -> Tensor:
        inputs = (images * 255).round().clamp(0, 255).to(torch.uint8).cpu().contiguous()
        return service.scores(inputs).to(images.device)

    return forward


def without_normalisation(preprocess: Preprocess) -> Preprocess:
    """Return a preprocessing that leaves values in [0, 1]: services get whole grey levels."""
    return replace(preprocess, mean=(0.0,), std=(1.0,))


def public_headers(mapping: ServiceMapping) -> dict[str, str]:
    """Return the headers without secrets; they may select the model."""
    return {name: value for name, value in mapping.request.headers.items() if "${" not in value}


def digest(value: Any) -> str:
    """Return 16 hex digits of a hash of plain data."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
