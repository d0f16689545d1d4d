"""Models behind HTTP, asked over loopback: the same answers as without, nothing asked twice, and faults that end well."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import brinell
from brinell.classes import Classes
from brinell.cli.main import main
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import BudgetSpent, ConfigError, ServiceError
from brinell.models.model import Model
from brinell.models.remote.mapping import ResponseOptions, steps
from brinell.models.remote.protocol import scores_of
from brinell.models.sources import open_model
from brinell.serve.server import Server
from conftest import PLAIN
from services import Handler, Listener, listening

SECRET = "s3cret-t0ken-of-ours"
LENS = {"name": "profile", "operators": ["fade_black", "noise"], "levels": 3}


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pixels(count: int = 5, size: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
    return (images * torch.linspace(0.2, 1, count)[:, None, None, None]).to(torch.uint8)


def light_or_dark(image: np.ndarray) -> dict[str, float]:
    light = float(1 / (1 + np.exp(-(image.mean() / 255 - 0.4) * 20)))
    return {"light": light, "dark": 1 - light}


def opened(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


def plain(handler: Handler, body: bytes) -> Any:
    """A service that is sent image files and answers with scores."""
    return {"result": light_or_dark(opened(body))}


def mapping(folder: Path, text: str = "", calls: str = "", request: str = "body: raw") -> Path:
    """A mapping file for `plain`, or with another response."""
    path = folder / "mapping.yaml"
    path.write_text(
        f"""
        classes: [light, dark]
        request: {{{request}}}
        response: {{{text or "scores: result"}}}
        calls: {{backoff: 0.05, {calls}}}
        """
    )
    return path


def service(server: Listener, folder: Path, text: str = "", calls: str = "", **more: Any) -> Model:
    options = {"source": server.url, "mapping": str(mapping(folder, text, calls)), "size": 32, "name": "service"}
    return open_model(options, Execution(**more))


def local(images: torch.Tensor) -> torch.Tensor:
    return torch.tensor([list(light_or_dark(image.numpy()).values()) for image in images])


# ---- the same answers as without a network ----


@pytest.fixture(scope="module")
def moderator(assets: Path) -> Model:
    """A real content moderator, on this machine."""
    models = assets / "models"
    source = f"onnx:{models / 'nsfw_mobilenet_v2_mid.onnx'}?classes={models / 'nsfw.txt'}&interpolation=bilinear"
    return open_model(source, PLAIN)


@pytest.fixture(scope="module")
def behind_http(moderator: Model) -> Iterator[Server]:
    with Server(moderator, port=0) as server:
        yield server.start()


def moderator_mapping(folder: Path, request: str) -> str:
    names = "[drawing, hentai, neutral, porn, sexy]"
    (folder / "moderator.yaml").write_text(f"classes: {names}\nrequest: {request}\nresponse: {{scores: scores}}\n")
    return str(folder / "moderator.yaml")


def test_a_real_moderator_answers_alike_in_every_way(
    moderator: Model, behind_http: Server, photographs: torch.Tensor, tmp_path: Path
) -> None:
    expected = moderator.predict(photographs)
    by_protocol = open_model(behind_http.url, PLAIN)
    assert by_protocol.name == behind_http.url.removeprefix("http://")
    assert by_protocol.classes == moderator.classes and by_protocol.preprocess == moderator.preprocess
    assert torch.allclose(by_protocol.predict(photographs), expected, atol=1e-5)
    for request in ("{body: raw}", "{body: multipart}", "{body: base64}"):
        options = {"source": f"{behind_http.url}/predict", "mapping": moderator_mapping(tmp_path, request)}
        found = open_model(options, PLAIN).predict(photographs)
        assert torch.allclose(found, expected, atol=1e-5), request
    options["mapping"] = moderator_mapping(tmp_path, "{body: raw, format: jpeg, quality: 98}")
    lossy = open_model(options, PLAIN).predict(photographs)
    assert torch.allclose(lossy, expected, atol=0.2) and not torch.allclose(lossy, expected, atol=1e-5)


def test_a_run_over_http_has_the_rows_of_one_without(
    moderator: Model, behind_http: Server, assets: Path, tmp_path: Path
) -> None:
    data = {"source": str(assets / "images" / "coco_val_128" / "images"), "limit": 4, "labels": "prediction"}
    lens = {"name": "profile", "operators": ["white_fog", "jpeg"], "levels": 2}
    url = f"{behind_http.url}/v2/models/{moderator.name}"
    execution = Execution(runtime="torch", shard=8)
    here = brinell.run(moderator, data, lens=lens, out=tmp_path / "here", execution=PLAIN, quiet=True)
    there = brinell.run(url, data, lens=lens, out=tmp_path / "there", execution=execution, quiet=True)
    columns = "operator, image, level, label, prediction, rank, correct, confidence, probability"
    question = f"select {columns} from rows order by all"
    ours, theirs = (run.rows(question).fetchall() for run in (here, there))
    assert len(ours) == 4 * 2 * 3
    assert [row[:7] for row in ours] == [row[:7] for row in theirs]
    assert np.allclose([row[7:] for row in ours], [row[7:] for row in theirs], atol=1e-5)
    told = there.manifest["queries"][moderator.name]
    assert told["asked"] == 3 + 4 + 4 * 2 * 2, "three plain images to see what it gives, then each image once"
    assert told["cached"] >= 4, "the clean images are asked once"


def test_images_are_sent_in_whole_grey_levels(tmp_path: Path) -> None:
    with listening(plain) as server:
        images = pixels(8)
        service(server, tmp_path).predict(images)
        sent = {opened(body).tobytes() for body in server.asked}
    assert sent == {image.permute(1, 2, 0).contiguous().numpy().tobytes() for image in images}


def test_answers_come_in_the_order_of_the_images(tmp_path: Path) -> None:
    def slow_for_some(handler: Handler, body: bytes) -> Any:
        time.sleep(0.1 if handler.number % 2 else 0)
        return plain(handler, body)

    with listening(slow_for_some) as server:
        assert torch.allclose(service(server, tmp_path).predict(pixels(6)), local(pixels(6)), atol=1e-6)


def v2(inputs: dict[str, Any], answer: Callable[[Any], Any], **more: Any) -> Callable[[Handler, bytes], Any]:
    """A server of the Open Inference Protocol with one input of any kind."""

    def respond(handler: Handler, body: bytes) -> Any:
        if handler.path.endswith("/infer"):
            return answer(json.loads(body))
        return {"name": "m", "inputs": [inputs], "outputs": [], **more}

    return respond


@pytest.mark.parametrize(
    ("datatype", "shape"),
    [
        ("UINT8", [-1, 32, 32, 3]),
        ("FP32", [-1, 3, 32, 32]),
        ("FP32", [4, 32, 32, 3]),
        ("FP32", [1, 3, -1, -1]),
        ("UINT8", [3, 32, 32]),
        ("BYTES", [-1]),
        ("BYTES", [-1, 1]),
    ],
)
def test_inputs_of_every_kind(datatype: str, shape: list[int]) -> None:
    sizes = []
    seen: set[bytes] = set()

    def answer(request: Any) -> Any:
        (tensor,) = request["inputs"]
        sizes.append(tensor["shape"])
        assert (tensor["name"], tensor["datatype"]) == ("x", datatype)
        if datatype == "BYTES":
            images = np.stack([opened(base64.b64decode(file)) for file in tensor["data"]])
        else:
            images = np.array(tensor["data"]).reshape(tensor["shape"])
            if datatype == "FP32":
                images = (images * 0.5 + 0.5) * 255
        images = images.reshape(-1, *images.shape[-3:]).round().astype(np.uint8)
        planes = images if images.shape[1] == 3 else images.transpose(0, 3, 1, 2)
        seen.update(image.tobytes() for image in planes)
        scores = [list(light_or_dark(image).values()) for image in images]
        return {"outputs": [{"name": "other", "data": []}, {"name": "y", "shape": [len(images), 2], "data": scores}]}

    with listening(v2({"name": "x", "datatype": datatype, "shape": shape}, answer)) as server:
        url = server.url.replace("/predict", "/v2/models/m")
        model = open_model(f"{url}#size=32&output=y&mean=0.5&std=0.5", PLAIN)
        assert (model.name, model.outputs, model.probabilities) == ("m", 2, True)
        assert torch.allclose(model.predict(pixels(5)), local(pixels(5)), atol=1e-4)
    assert {image.numpy().tobytes() for image in pixels(5)} <= seen
    for size in sizes:
        assert all(wanted in (-1, found) for wanted, found in zip(shape, size, strict=True)), "as the metadata has it"


def test_a_tensor_server_behind_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    (tmp_path / "m.yaml").write_text(
        "protocol: v2\nrequest: {headers: {X-Key: '${API_TOKEN}'}}\ncalls: {batch: 2, concurrency: 1}\n"
    )

    def answer(request: Any) -> Any:
        return {"outputs": [{"name": "y", "data": [[3.0, 1.0]] * request["inputs"][0]["shape"][0]}]}

    with listening(v2({"name": "x", "datatype": "UINT8", "shape": [-1, 3, 32, 32]}, answer)) as server:
        model = open_model(f"{server.url.replace('/predict', '/v2/models/m')}#mapping={tmp_path / 'm.yaml'}")
        assert not model.probabilities, "scores that need a softmax are seen"
        assert torch.allclose(model.predict(pixels(5)).sum(1), torch.ones(5))
        assert {headers.get("X-Key") for headers in server.headers} == {SECRET}
        shapes = [json.loads(body)["inputs"][0]["shape"][0] for body in server.asked if body]
    assert sorted(shapes) == [1, 1, 2, 2, 2], "three plain images and five, two at a time"


# ---- mappings ----


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
def test_answers_of_every_shape(response: Any, answer: Any, expected: list[float]) -> None:
    found = scores_of(answer, ResponseOptions(**response), Classes(("light", "dark")))
    assert found.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("response", "answer", "part"),
    [
        ({"scores": "a.b"}, {"a": {"c": 1}}, "nothing at 'a.b' (there: c)"),
        ({"scores": "a[2]"}, {"a": [1]}, "nothing at 'a[2]'"),
        ({"scores": "a"}, {"a": [0.1, 0.2, 0.7]}, "3 scores at 'a' for 2 classes"),
        ({"scores": "a"}, {"a": {"horse": 1}}, "names 'horse', which is none of the mapping's classes"),
        ({"scores": "a"}, {"a": {"dark": "PERHAPS"}}, "'PERHAPS' where a score should be"),
        ({"scores": "a"}, {"a": {"dark": None}}, "None where a score should be"),
        ({"scores": "a"}, {"a": {"dark": float("nan")}}, "nan where a score should be"),
        ({"labels": "l", "scores": "s"}, {"l": ["dark"], "s": []}, "1 labels, but 0 scores"),
    ],
)
def test_answers_that_don_t_fit_are_told(response: Any, answer: Any, part: str) -> None:
    with pytest.raises(ServiceError) as told:
        scores_of(answer, ResponseOptions(**response), Classes(("light", "dark")))
    assert part in str(told.value)


def test_paths() -> None:
    assert steps("a.b[0].c[].d") == ("a", "b", 0, "c", None, "d")
    assert steps("[].label") == (None, "label") and steps("$") == steps("") == ()
    for wrong in ("a..b", "a[x]", "a[0", "a]"):
        with pytest.raises(ValueError, match="a path should look like"):
            steps(wrong)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("request: {bodi: raw}\nresponse: {labels: l}", "did you mean body?"),
        ("respons: {labels: l}", "did you mean response or"),
        ("request: {body: raw}", "a mapping needs a response"),
        ("response: {words: {}}", "a path to labels, to scores, or to both"),
        ("response: {labels: 'a['}", "a path should look like"),
        ("response: {labels: l}", "list the service's classes"),
        ("classes: [a]\nrequest: {body: base64, template: {image: here}}\nresponse: {labels: l}", "should say {image}"),
        ("classes: [a]\nresponse: {labels: l}\ncalls: {retries: -1}", "calls.retries"),
        ("- a\n- b", "should hold a mapping with request and response"),
        ("classes: [a]\nresponse: {labels: l}\nrequest: {headers: {X: '${NOT_THERE_AT_ALL}'}}", "NOT_THERE_AT_ALL"),
    ],
)
def test_mappings_that_can_t_be_used(text: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(ConfigError) as told:
        open_model(f"http://127.0.0.1:9/predict#mapping={tmp_path / 'm.yaml'}")
    assert part in str(told.value)


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("http://127.0.0.1:9/predict", "#mapping=FILE.yaml"),
        ("http://127.0.0.1:9/predict?mapping=m.yaml", "options follow #"),
        ("http://me:secret@127.0.0.1:9/v2/models/m", "would be stored"),
        ("http:///predict", "names no host"),
        ("http://127.0.0.1:9/x#mapping=nowhere.yaml", "the mapping nowhere.yaml can't be read"),
        ("http://127.0.0.1:9/v2/models/m", "refuses connections"),
        ("http://127.0.0.1:9/predict#siez=3", "did you mean size"),
    ],
)
def test_urls_that_can_t_be_used(source: str, part: str) -> None:
    with pytest.raises(brinell.BrinellError) as told:
        open_model(source)
    assert part in str(told.value)


def test_a_url_keeps_its_query_and_options_follow_a_hash() -> None:
    options = ModelOptions.model_validate("https://host:1/v1/label?key=${KEY}&size=3#size=64&name=mine")
    assert (options.source, options.size, options.label) == ("https://host:1/v1/label?key=${KEY}&size=3", (64,), "mine")
    assert ModelOptions.model_validate("http://host:1/v2/models/net/infer").label == "net"
    assert ModelOptions.model_validate("http://host:8000").label == "host:8000"


def test_a_request_is_as_the_mapping_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        asked, form = server.asked
        assert server.headers[0]["X-Key"] == f"k {SECRET}"
    sent = json.loads(asked)
    assert sent["key"] == SECRET
    expected = pixels(1)[0].permute(1, 2, 0).numpy()
    assert np.array_equal(opened(base64.b64decode(sent["a"][0]["content"].removeprefix("data:"))), expected)
    assert b'name="media"; filename="image.png"' in form and SECRET.encode() in form


# ---- labels alone ----


def labels_alone(handler: Handler, body: bytes) -> Any:
    scores = light_or_dark(opened(body))
    return {"label": max(scores, key=lambda name: scores[name])}


def test_a_service_that_gives_labels_alone(greys: Path, tmp_path: Path) -> None:
    with listening(labels_alone) as server:
        model = service(server, tmp_path, "labels: label")
        assert not model.scores
        run = brinell.run(model, greys, lens=LENS, out=tmp_path / "run", execution=PLAIN, quiet=True)
        asked = len(server.asked)
        for criterion in ("confident_misclassification(0.5)", "misclassification & top_k_misclassification(2)"):
            with pytest.raises(ConfigError, match="needs scores, and model service gives labels alone"):
                brinell.run(model, greys, lens={**LENS, "criterion": criterion}, out=tmp_path / "other", quiet=True)
        assert len(server.asked) == asked
    unknown = run.rows("select count(*), count(confidence), count(rank), count(probability) from rows").fetchall()
    assert unknown == [(12 * 2 * 4, 0, 0, 0)], "what nobody knows is left empty"
    assert run.rows("select count(confidence) from clean").fetchall() == [(0,)]
    assert run.rows("select avg(correct::int) from rows where level = 3 and operator like 'fade%'").fetchall()[0][0] < 1
    assert "service is right on" in run.summary().verdict("service")
    assert json.dumps(run.summary().to_dict(), allow_nan=False)
    assert "None" not in Path(run.report()).read_text().partition("manifest</summary>")[0]


# ---- nothing is asked twice ----


def test_equal_images_are_one_question(tmp_path: Path) -> None:
    with listening(plain) as server:
        model = service(server, tmp_path)
        images = pixels(3)[[0, 1, 0, 2, 2, 0]]
        assert torch.allclose(model.predict(images), local(images), atol=1e-6)
        assert len(server.asked) == 3
        model.predict(images.flip(0))
        service(server, tmp_path).predict(images)
        assert len(server.asked) == 3, "another process finds them, too"


def test_two_threads_ask_one_question_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def slow(handler: Handler, body: bytes) -> Any:
        time.sleep(0.1)
        return plain(handler, body)

    with listening(slow) as server:
        model = service(server, tmp_path)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(model.predict, [pixels(5)] * 4))
        assert len(server.asked) == 5
    assert all(torch.allclose(one, local(pixels(5)), atol=1e-6) for one in found)


def test_another_service_is_another_question(tmp_path: Path) -> None:
    with listening(plain) as server:
        service(server, tmp_path).predict(pixels(1))
        path = mapping(tmp_path)
        path.write_text(path.read_text() + "\n        version: second\n")
        open_model({"source": server.url, "mapping": str(path), "size": 32}).predict(pixels(1))
        assert len(server.asked) == 2
        open_model({"source": f"{server.url}?v=3", "mapping": str(path), "size": 32}).predict(pixels(1))
        assert len(server.asked) == 3


def test_a_mended_mapping_reads_what_was_paid_for(tmp_path: Path) -> None:
    with listening(plain) as server:
        with pytest.raises(ServiceError, match="nothing at 'resolt'"):
            service(server, tmp_path, "scores: resolt", "concurrency: 1").predict(pixels(1))
        assert torch.allclose(service(server, tmp_path).predict(pixels(1)), local(pixels(1)), atol=1e-6)
        assert len(server.asked) == 1


def test_a_spent_budget_stops_a_run_that_can_go_on(greys: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"lens": LENS, "out": tmp_path / "run", "quiet": True}
    with listening(plain) as server:
        options = {"source": server.url, "mapping": str(mapping(tmp_path)), "size": 32, "name": "service"}

        def limited(limit: int | None) -> brinell.Run:
            return brinell.run(options, greys, execution=Execution(max_queries=limit, batch=4, shard=8), **how)

        for limit in (20, 20, 41):
            with pytest.raises(BudgetSpent) as told:
                limited(limit)
            assert f"{limit} queries were asked, and --max-queries allows {limit}" in str(told.value)
            assert "give the same command with a larger --max-queries" in str(told.value)
            assert len(server.asked) == limit, "a hard limit, whatever is stopped and begun again"
            assert brinell.Run(tmp_path / "run").manifest["queries"]["service"]["asked"] == limit
        done = limited(None)
        assert len(server.asked) == len(set(server.asked)) == 12 + 12 * 2 * 3
        whole = brinell.run(options, greys, execution=PLAIN, **{**how, "out": tmp_path / "whole"})
        assert len(server.asked) == 84, "another run of the same images asks nothing"
    question = "select * from rows order by operator, image, level"
    assert done.rows(question).fetchall() == whole.rows(question).fetchall()
    assert done.manifest["queries"]["service"]["asked"] == 84
    told_of_whole = whole.manifest["queries"]["service"]
    assert told_of_whole["asked"] == 0 and told_of_whole["cached"] >= 84 + 12


def test_the_budget_is_for_all_services_of_a_run(greys: Path, tmp_path: Path) -> None:
    with listening(plain) as server:
        options = [
            {"source": f"{server.url}?{name}", "mapping": str(mapping(tmp_path)), "size": 32, "name": name} for name in "ab"
        ]
        with pytest.raises(BudgetSpent):
            brinell.run(options, greys, lens=LENS, execution=Execution(max_queries=20), out=tmp_path / "run", quiet=True)
        assert len(server.asked) == 20


def test_a_killed_run_asks_nothing_again(greys: Path, tmp_path: Path) -> None:
    def slow(handler: Handler, body: bytes) -> Any:
        time.sleep(0.05)
        return plain(handler, body)

    with listening(slow) as server:
        source = f"{server.url}#size=32&name=service&mapping={mapping(tmp_path, '', 'concurrency: 2')}"
        arguments = ["--model", source, "--data", str(greys), "--operator", "noise", "--levels", "5"]
        command = [sys.executable, "-m", "brinell", "run", *arguments, "--out", str(tmp_path / "run")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(server.asked) < 20:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.2)
        main(["run", *arguments, "--out", str(tmp_path / "run")])
        assert len(set(server.asked)) == 72
        assert 72 <= len(server.asked) <= 72 + 2, "at most what was under way is asked again"
        told = brinell.Run(tmp_path / "run").manifest["queries"]["service"]
        assert told["asked"] == len(server.asked), "and the count knows of what was asked before"


# ---- faults ----


def test_an_error_that_passes(tmp_path: Path) -> None:
    def at_first_not(handler: Handler, body: bytes) -> Any:
        return handler.send(500, b"oh") if handler.number <= 2 else plain(handler, body)

    with listening(at_first_not) as server:
        model = service(server, tmp_path, "", "concurrency: 1")
        assert torch.allclose(model.predict(pixels(3)), local(pixels(3)), atol=1e-6)
        assert len(server.asked) == 5
        assert model.service is not None and model.service.counts.asked == 5


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_too_many_requests_are_waited_for(form: str, tmp_path: Path) -> None:
    def busy_at_first(handler: Handler, body: bytes) -> Any:
        wait = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
        return handler.send(429, b"{}", retry_after=wait) if handler.number == 1 else plain(handler, body)

    with listening(busy_at_first) as server:
        service(server, tmp_path, "", "concurrency: 1").predict(pixels(2))
        assert len(server.asked) == 3
        assert server.times[1] - server.times[0] > 0.9


def test_a_service_that_wants_hours_is_left_alone(tmp_path: Path) -> None:
    with listening(lambda handler, _: handler.send(429, b"{}", retry_after="7200")) as server:
        with pytest.raises(ServiceError, match="left alone for 7,200 s"):
            service(server, tmp_path, "", "concurrency: 1").predict(pixels(3))
        assert len(server.asked) == 1


def html(handler: Handler, body: bytes) -> None:
    handler.send(200, b"<html>Welcome to the proxy</html>", content_type="text/html; charset=utf-8")


def hanging(handler: Handler, body: bytes) -> None:
    time.sleep(1.0)


def dripping(handler: Handler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    for _ in range(15):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


FAULTS: dict[str, tuple[Callable[[Handler, bytes], Any], str]] = {
    "error": (lambda handler, _: handler.send(500, b'{"error": "no more memory"}'), "answered 500 (no more memory)"),
    "busy": (lambda handler, _: handler.send(429, b""), "answered 429"),
    "hangs": (hanging, "gave no answer in 0.3 s"),
    "drips": (dripping, "gave no answer in 0.3 s"),
    "breaks off": (
        lambda handler, _: handler.break_off(b'{"result": {"li'),
        "closed the connection before its answer was whole",
    ),
    "breaks off without a length": (
        lambda handler, _: handler.send(200, b'{"result": {"li'),
        "answered with application/json that is not JSON",
    ),
    "html": (html, "answered with text/html that is not JSON"),
}


def test_an_answer_in_drops_is_as_late_as_none(tmp_path: Path) -> None:
    with listening(dripping) as server:
        began = time.monotonic()
        with pytest.raises(ServiceError, match=r"no answer in 0\.3 s"):
            service(server, tmp_path, "", "timeout: 0.3, retries: 0").predict(pixels(1))
        assert time.monotonic() - began < 1.2, "though something came every tenth of a second"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lasting_fault_stops_cleanly_and_loses_nothing(fault: str, greys: Path, tmp_path: Path) -> None:
    answer, part = FAULTS[fault]
    broken = True

    def later_broken(handler: Handler, body: bytes) -> Any:
        return answer(handler, body) if broken and handler.number > 30 else plain(handler, body)

    with listening(later_broken) as server:
        path = mapping(tmp_path, "", "timeout: 0.3, retries: 1, concurrency: 2")
        options = {"source": server.url, "mapping": str(path), "size": 32}
        how: dict[str, Any] = {"lens": {**LENS, "operators": ["noise"]}, "out": tmp_path / "run", "quiet": True}
        with pytest.raises(ServiceError) as told:
            brinell.run(options, greys, execution=PLAIN, **how)
        assert f"{part}, 2 times over" in str(told.value)
        assert "the same command goes on from there" in str(told.value)
        asked = len(server.asked)
        assert 32 <= asked <= 30 + 2 * 4, "once it failed, nothing more is begun"
        broken = False
        brinell.run(options, greys, execution=PLAIN, **how)
        assert set(server.asked[:30]) & set(server.asked[asked:]) == set(), "what was answered is not asked again"
        assert len(set(server.asked)) == 48


def test_what_passes_by_itself_is_no_fault(greys: Path, tmp_path: Path) -> None:
    """Every fault in turn, each followed by an answer: the run goes on, and its rows are those of a quiet one."""
    kinds = [answer for answer, _ in FAULTS.values()]
    fine: set[bytes] = set()

    def now_and_then(handler: Handler, body: bytes) -> Any:
        if handler.number % 9 == 0 and body not in fine:
            fine.add(body)
            return kinds[len(fine) % len(kinds)](handler, body)
        return plain(handler, body)

    calls = "timeout: 0.3, backoff: 0.01"
    runs = []
    for answer in (now_and_then, plain):
        with listening(answer) as server:
            options = {"source": server.url, "mapping": str(mapping(tmp_path, "", calls.partition(",")[0])), "size": 32}
            out = tmp_path / answer.__name__
            runs.append(brinell.run(options, greys, lens=LENS, out=out, execution=PLAIN, quiet=True))
            assert len(set(server.asked)) == 84
    rows = [run.rows("select * from rows order by operator, image, level").fetchall() for run in runs]
    assert rows[0] == rows[1] and len(fine) > 7


@pytest.mark.parametrize("status", [400, 401, 403, 404, 302])
def test_what_won_t_pass_is_asked_once(status: int, tmp_path: Path) -> None:
    refuse = {"message": f"the key {SECRET} is not known"}
    with listening(lambda handler, _: handler.send(status, json.dumps(refuse).encode(), location="/elsewhere")) as server:
        with pytest.raises(ServiceError, match=f"answered {status} .the key"):
            service(server, tmp_path, "", "concurrency: 1").predict(pixels(3))
        assert len(server.asked) == 1


@pytest.mark.parametrize("bad", [b'{"result": {"light": NaN}}', b'{"result": {"light": null}}', b'{"result": 1}'])
def test_answers_without_sense_stop_and_are_asked_again(bad: bytes, tmp_path: Path) -> None:
    def at_first_bad(handler: Handler, body: bytes) -> Any:
        return handler.send(200, bad) if handler.number == 3 else plain(handler, body)

    with listening(at_first_bad) as server:
        with pytest.raises(ServiceError, match="its answer"):
            service(server, tmp_path, "", "concurrency: 1").predict(pixels(5))
        assert len(server.asked) == 3, "it is not asked again at once: it answered"
        model = service(server, tmp_path, "", "concurrency: 1")
        assert torch.allclose(model.predict(pixels(5)), local(pixels(5)), atol=1e-6)
        assert len(server.asked) == 6


def test_nan_from_a_tensor_server() -> None:
    def answer(request: Any) -> Any:
        return {"outputs": [{"name": "y", "data": [[float("nan"), 1.0]] * request["inputs"][0]["shape"][0]}]}

    with listening(v2({"name": "x", "datatype": "UINT8", "shape": [-1, 3, 32, 32]}, answer)) as server:
        url = server.url.replace("/predict", "/v2/models/m")
        with pytest.raises(ServiceError, match="NaN or nothing"):
            open_model(url)


def test_a_model_that_failed_can_be_asked_again(tmp_path: Path) -> None:
    def at_first_refused(handler: Handler, body: bytes) -> Any:
        return handler.send(403, b"") if handler.number == 1 else plain(handler, body)

    with listening(at_first_refused) as server:
        model = service(server, tmp_path, "", "concurrency: 1")
        for _ in range(2):
            with pytest.raises(ServiceError, match="answered 403"):
                model.predict(pixels(2))
        assert len(server.asked) == 1, "it is left alone"
        assert model.service is not None
        model.service.begin("another run")
        assert torch.allclose(model.predict(pixels(2)), local(pixels(2)), atol=1e-6)


# ---- how fast, and how much ----


def test_no_more_at_once_and_no_faster_than_allowed(tmp_path: Path) -> None:
    def slow(handler: Handler, body: bytes) -> Any:
        time.sleep(0.03)
        return plain(handler, body)

    with listening(slow) as server:
        service(server, tmp_path, "", "concurrency: 3").predict(pixels(12))
        assert server.most_at_once == 3
    with listening(plain) as server:
        service(server, tmp_path, "", "rate: 20").predict(pixels(9))
        assert server.times[-1] - server.times[0] > 0.3, "eight pauses of a twentieth of a second"


def test_plan_and_summary_tell_the_cost_and_plan_asks_nothing(
    greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with listening(plain) as server:
        model = f"{server.url}#size=32&name=service&mapping={mapping(tmp_path, '', 'price: 0.01, rate: 100')}"
        what = ["--model", model, "--data", str(greys), "--operator", "noise", "--levels", "5"]
        main(["plan", *what])
        told = capsys.readouterr().out
        assert "at most 72 queries for 0.72 (at 0.01 each)" in told and server.asked == []
        main(["run", *what, "--out", str(tmp_path / "run")])
        line = "service was sent 72 images for 0.72 (at 0.01 each); "
        assert line in capsys.readouterr().out
        main(["summary", str(tmp_path / "run")])
        assert line in capsys.readouterr().out
        assert line in (tmp_path / "run" / "report.html").read_text()
        main(["summary", "--json", str(tmp_path / "run")])
        assert json.loads(capsys.readouterr().out)["queries"]["service"]["asked"] == 72
        assert len(server.asked) == 72


def test_max_queries_on_the_command_line(greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(plain) as server:
        model = f"{server.url}#size=32&mapping={mapping(tmp_path)}"
        command = ["run", "--model", model, "--data", str(greys), "--operator", "noise", "--out", str(tmp_path / "run")]
        with pytest.raises(SystemExit) as left:
            main([*command, "--max-queries", "5"])
        told = capsys.readouterr().err.splitlines()[-1]
        assert left.value.code == 2 and told.startswith("error: 5 queries were asked, and --max-queries allows 5;")
        main([*command, "--levels", "30", "--max-queries", "1000"])  # the same run: how it is carried out is no part of it
        assert brinell.Run(tmp_path / "run").manifest["finished"]


# ---- secrets ----


def test_secrets_are_written_nowhere(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    monkeypatch.setenv("URL_KEY", "key-in-the-url")
    broken = True

    def echoing(handler: Handler, body: bytes) -> Any:
        assert handler.headers["authorization"] == f"Bearer {SECRET}" and handler.path.endswith("?key=key-in-the-url")
        if broken and handler.number > 20:
            return handler.send(403, json.dumps({"error": f"{handler.headers['authorization']} {handler.path}"}).encode())
        return plain(handler, body)

    request = 'body: raw, headers: {Authorization: "Bearer ${API_TOKEN}"}'
    with listening(echoing) as server:
        model = f"{server.url}?key=${{URL_KEY}}#size=32&mapping={mapping(tmp_path, '', '', request)}"
        command = ["--debug", "run", "--model", model, "--data", str(greys), "--operator", "noise", "--levels", "3"]
        command += ["--out", str(tmp_path / "run")]
        with pytest.raises(SystemExit):
            main(command)
        told = capsys.readouterr()
        assert "answered 403 (Bearer *** /predict?key=***)" in told.err
        broken = False
        main(command)
    with pytest.raises(SystemExit):
        main([*command, "--seed", "7", "--out", str(tmp_path / "gone")])  # nobody is there any more
    told_later = capsys.readouterr()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    written += [text.encode() for text in (told.out, told.err, told_later.out, told_later.err)]
    assert len(written) > 8 and any(b"${URL_KEY}" in content for content in written)
    for secret in (SECRET, "key-in-the-url"):
        assert not any(secret.encode() in content for content in written)
        assert not any(base64.b64encode(secret.encode())[:12] in content for content in written)
