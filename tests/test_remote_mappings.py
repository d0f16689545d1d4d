"""Mapping files: requests, responses and errors."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import brinell
from brinell.classes import Classes
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, ServiceError
from brinell.models.remote.mapping import ResponseOptions, ServiceMapping, parse_path
from brinell.models.remote.protocol import read_scores
from brinell.models.sources import open_model
from brinell.validation import validate
from services import SECRET, decode_image, listening, mapping, pixels

pytestmark = pytest.mark.usefixtures("answer_cache")


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        ({"scores": "a.b"}, {"a": {"b": {"Dark": 0.7, "light": 0.3}}}, [0.3, 0.7]),
        ({"scores": "$.a[1]"}, {"a": [0, [0.25, 0.75]]}, [0.25, 0.75]),
        ({"scores": {"light": "x", "dark": "y[0].z"}}, {"x": 0.1, "y": [{"z": 0.9}]}, [0.1, 0.9]),
        ({"scores": {"light": "x", "dark": "y"}}, {"x": "VERY_UNLIKELY", "y": "LIKELY"}, [0, 0.75]),
        ({"scores": "x", "words": {"no": 0.0, "yes": 1.0}}, {"x": {"dark": "yes", "light": "no"}}, [0, 1]),
        ({"labels": "[].label", "scores": "[].score"}, [{"label": "dark", "score": 0.8}], [0, 0.8]),
        ({"labels": "l", "scores": "s", "scale": 0.01}, {"l": ["dark", "light"], "s": [60, 40]}, [0.4, 0.6]),
        ({"labels": "l"}, {"l": "dark"}, [0, 1]),
        ({"labels": "l"}, {"l": ["light", "dark"]}, [1, 0]),
        ({"labels": "l", "rest": "light"}, {"l": []}, [1, 0]),
        ({"labels": "l", "rest": "light"}, {"l": ["horse"]}, [1, 0]),
        ({"labels": "l[].n", "scores": "l[].s", "rest": "light"}, {"l": [{"n": "dark", "s": 0.9}]}, [0.1, 0.9]),
        ({"scores": {"dark": "p"}, "rest": "light"}, {"p": 0.2}, [0.8, 0.2]),
    ],
)
def test_responses_of_every_shape(response: Any, answer: Any, expected: list[float]) -> None:
    found = read_scores(answer, ResponseOptions(**response), Classes(("light", "dark")))
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("response", "answer", "part"),
    [
        ({"scores": "a.b"}, {"a": {"c": 1}}, "nothing at 'a.b' (found: c)"),
        ({"scores": "a[2]"}, {"a": [1]}, "nothing at 'a[2]'"),
        ({"scores": "a"}, {"a": [0.1, 0.2, 0.7]}, "3 scores at 'a' for 2 classes"),
        ({"scores": "a"}, {"a": {"horse": 1}}, "names 'horse', which is not one of the mapping's classes"),
        ({"scores": "a"}, {"a": {"dark": "PERHAPS"}}, "'PERHAPS' instead of a score"),
        ({"scores": "a"}, {"a": {"dark": None}}, "None instead of a score"),
        ({"scores": "a"}, {"a": {"dark": float("nan")}}, "nan instead of a score"),
        ({"labels": "l", "scores": "s"}, {"l": ["dark"], "s": []}, "1 labels, but 0 scores"),
    ],
)
def test_responses_that_do_not_fit_raise(response: Any, answer: Any, part: str) -> None:
    with pytest.raises(ServiceError) as error:
        read_scores(answer, ResponseOptions(**response), Classes(("light", "dark")))
    assert part in str(error.value)


def test_paths() -> None:
    assert parse_path("a.b[0].c[].d") == ("a", "b", 0, "c", None, "d")
    assert parse_path("[].label") == (None, "label") and parse_path("$") == parse_path("") == ()
    for wrong in ("a..b", "a[x]", "a[0", "a]"):
        with pytest.raises(ValueError, match="expected a path such as"):
            parse_path(wrong)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("request: {bodi: raw}\nresponse: {labels: l}", "did you mean body?"),
        ("respons: {labels: l}", "did you mean response or"),
        ("request: {body: raw}", "a mapping needs a response"),
        ("response: {words: {}}", "a path to labels, to scores, or to both"),
        ("response: {labels: 'a['}", "expected a path such as"),
        ("response: {labels: l}", "list the service's classes"),
        (
            "classes: [a]\nrequest: {body: base64, template: {image: here}}\nresponse: {labels: l}",
            "needs {image} in",
        ),
        ("classes: [a]\nresponse: {labels: l}\ncalls: {retries: -1}", "calls.retries"),
        ("- a\n- b", "should contain a mapping with request and response"),
        ("classes: [a]\nresponse: {labels: l}\nrequest: {headers: {X: '${NOT_THERE_AT_ALL}'}}", "NOT_THERE_AT_ALL"),
    ],
)
def test_mappings_that_can_t_be_used(text: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        open_model(f"http://127.0.0.1:9/predict#mapping={tmp_path / 'm.yaml'}")
    assert part in str(error.value)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("http://127.0.0.1:9/predict", "#mapping=FILE.yaml"),
        ("http://127.0.0.1:9/predict?mapping=m.yaml", "write options after #"),
        ("http://me:secret@127.0.0.1:9/v2/models/m", "would be stored"),
        ("http:///predict", "has no host"),
        ("http://127.0.0.1:9/x#mapping=nowhere.yaml", "the mapping nowhere.yaml can't be read"),
        ("http://127.0.0.1:9/v2/models/m", "refuses connections"),
        ("http://127.0.0.1:9/predict#siez=3", "did you mean size"),
    ],
)
def test_urls_that_can_t_be_used(source: str, part: str) -> None:
    with pytest.raises(brinell.BrinellError) as error:
        open_model(source)
    assert part in str(error.value)


def test_a_url_keeps_its_query_and_options_follow_a_hash() -> None:
    options = ModelOptions.model_validate("https://host:1/v1/label?key=${KEY}&size=3#size=64&name=mine")
    assert (options.source, options.size, options.label) == ("https://host:1/v1/label?key=${KEY}&size=3", (64,), "mine")
    assert ModelOptions.model_validate("http://host:1/v2/models/net/infer").label == "net"
    assert ModelOptions.model_validate("http://host:8000").label == "host:8000"


def test_requests_follow_the_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    template = 'template: {a: [{content: "data:{image}"}], key: "${API_TOKEN}"}'
    requests = {
        "base64": f'body: base64, {template}, headers: {{X-Key: "k ${{API_TOKEN}}"}}',
        "multipart": 'body: multipart, field: media, fields: {user: "${API_TOKEN}"}',
    }
    with listening(lambda handler, body: {"result": {"light": 1}}) as server:
        for request in requests.values():
            options = {"source": f"{server.url}?token=${{API_TOKEN}}", "mapping": str(mapping(tmp_path, "", "", request))}
            open_model({**options, "size": 32}).predict(pixels(1))
        body, form = server.requests
        assert server.headers[0]["X-Key"] == f"k {SECRET}"
    sent = json.loads(body)
    assert sent["key"] == SECRET
    expected = pixels(1)[0].permute(1, 2, 0).numpy()
    assert np.array_equal(decode_image(base64.b64decode(sent["a"][0]["content"].removeprefix("data:"))), expected)
    assert b'name="media"; filename="image.png"' in form and SECRET.encode() in form


def test_the_example_of_the_documentation_is_a_mapping() -> None:
    page = (Path(__file__).parents[1] / "docs" / "remote.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    example = validate(ServiceMapping, yaml.safe_load(text))
    assert example.response is not None
    answer = {"responses": [{"safeSearchAnnotation": {"adult": "VERY_UNLIKELY", "racy": "LIKELY"}}]}
    classes = example.class_names(None)
    scores = read_scores(answer, example.response, classes)
    assert dict(zip(classes.names, scores.tolist(), strict=True)) == {"adult": 0.0, "racy": 0.75, "safe": 0.25}
