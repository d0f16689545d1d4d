"""What a server of the Open Inference Protocol reports about its models."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, get_args
from urllib.parse import quote, urlsplit

from brinell.classes import Classes
from brinell.errors import ConfigError, ServiceError
from brinell.models.preprocess import Preprocess
from brinell.models.remote.http import HttpClient, TransientError
from brinell.types import Interpolation

_MODEL = re.compile(r"(.*/v2/models/[^/]+(?:/versions/[^/]+)?)(?:/infer|/ready)?/?")


def find_model_url(url: str, client: HttpClient, name: str) -> str:
    """Return the URL of a model; the URL of its server will do if the server has only one model."""
    parts = urlsplit(url)
    match = _MODEL.fullmatch(url.partition("?")[0])
    if match is not None and not parts.query:
        return match[1]
    if parts.path.rstrip("/") not in ("", "/v2") or parts.query:
        raise ConfigError(
            f"{url} is not the URL of an Open Inference Protocol model (http://host:port/v2/models/NAME); other services "
            "need a mapping file: #mapping=FILE.yaml"
        )
    root = f"{parts.scheme}://{parts.netloc}/v2"
    listed = _request(client, "POST", f"{root}/repository/index", name)
    names = [str(one.get("name")) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if len(names) != 1:
        raise ConfigError(f"{url} has {len(names)} models ({', '.join(names[:10])}); choose one: {root}/models/NAME")
    return f"{root}/models/{quote(names[0], safe='')}"


def read_metadata(client: HttpClient, url: str, name: str) -> Any:
    """Return the metadata of the model at a URL, which costs nothing."""
    return _request(client, "GET", url, name)


def _request(client: HttpClient, method: str, url: str, name: str) -> Any:
    body, content_type = (b"{}", "application/json") if method == "POST" else (None, None)
    try:
        return client.json(method, url, body, content_type)
    except (TransientError, ServiceError) as error:
        problem = client.redact(str(error)).removeprefix("it ")
        raise ServiceError(f"model {name} can't be opened: {url} {problem}") from None


def parameters_of(metadata: Any) -> dict[str, Any]:
    """Return the metadata's parameters, in which `brinell serve` reports more than the protocol defines."""
    parameters = metadata.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def known_preprocess(metadata: Any, image: tuple[int, int, int]) -> Preprocess:
    """Return what a server reports about its images; `image` are the channels, height and width of its input."""
    channels, height, width = image
    reported = parameters_of(metadata)
    if height <= 0 and isinstance(reported.get("size"), list) and len(reported["size"]) == 2:
        height, width = (int(side) for side in reported["size"])
    known = Preprocess(
        height=max(height, 0),
        width=max(width, 0),
        channels=channels if channels in (1, 3) else 3,
        short_side=reported.get("short_side") if isinstance(reported.get("short_side"), int) else None,
        fill=reported.get("fill") if isinstance(reported.get("fill"), int) else None,
    )
    if reported.get("interpolation") in get_args(Interpolation):
        known = replace(known, interpolation=reported["interpolation"])
    return known


def known_classes(metadata: Any) -> Classes | None:
    """Return the classes that a server reports."""
    classes = parameters_of(metadata).get("classes")
    return Classes(tuple(map(str, classes))) if isinstance(classes, list) else None
