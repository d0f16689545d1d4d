"""Segmenters behind HTTP: the Open Inference Protocol, and mappings to masks in several forms."""

from __future__ import annotations

import base64
import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
import shapes
from brinell.errors import ConfigError, ServiceError
from brinell.models.model import Model
from brinell.models.sources import open_model
from brinell.serve.server import Server
from conftest import PLAIN
from services import Handler, decode_image, listening, v2

pytestmark = pytest.mark.usefixtures("answer_cache")


@pytest.fixture(scope="module")
def images() -> Tensor:
    local()  # before threads of servers need it
    return torch.from_numpy(shapes.pictures(4)[0]).permute(0, 3, 1, 2).contiguous()


@cache
def local() -> Model:
    return shapes.segmenter()


def segmented(body: bytes) -> np.ndarray:
    image = torch.from_numpy(decode_image(body).copy()).permute(2, 0, 1)[None].contiguous()
    mask: np.ndarray = local().segment(image)[0].numpy()
    return mask


def png(values: np.ndarray) -> str:
    sink = io.BytesIO()
    Image.fromarray(values).save(sink, "png")
    return base64.b64encode(sink.getvalue()).decode()


def as_parts(body: bytes) -> Any:
    """What the Hugging Face inference API answers: a mask of black and white for each label."""
    mask = segmented(body)
    return [
        {"label": name, "mask": png(255 * (mask == label).astype(np.uint8))} for label, name in enumerate(shapes.CLASSES)
    ]


FORMS = {
    "file": ("mask: result", lambda body: {"result": png(segmented(body).astype(np.uint8))}),
    "rows": ("mask: 'all[0]'", lambda body: {"all": [segmented(body).tolist()]}),
    "parts": ("{labels: '[].label', mask: '[].mask'}", as_parts),
}


@pytest.mark.parametrize("form", FORMS)
def test_masks_of_a_mapping(form: str, images: Tensor, tmp_path: Path) -> None:
    text, respond = FORMS[form]

    def handle(handler: Handler, body: bytes) -> Any:
        return respond(body)

    with listening(handle) as server:
        model = open_mapped(server.url, tmp_path, text)
        assert (model.task, model.outputs) == ("segmentation", 3)
        assert torch.equal(model.segment(images), local().segment(images))


def open_mapped(url: str, folder: Path, response: str, **more: Any) -> Model:
    path = folder / "mapping.yaml"
    written = response if response.startswith("{") else f"{{{response}}}"
    names = ", ".join(shapes.CLASSES)
    path.write_text(f"classes: [{names}]\nrequest: {{body: raw}}\nresponse: {written}\ncalls: {{retries: 0}}\n")
    return open_model({"source": url, "mapping": str(path), "size": 32, "name": "service", **more}, PLAIN)


@pytest.mark.parametrize("output", ["classes", "scores"])
def test_masks_of_the_inference_protocol(output: str, images: Tensor) -> None:
    def infer(request: Any) -> Any:
        given = torch.tensor(request["inputs"][0]["data"], dtype=torch.float32).view(-1, 3, 32, 32)
        found = local().segment((given * 255).round().to(torch.uint8)) if output == "classes" else shapes.learned()(given)
        return {
            "outputs": [{"name": "o", "datatype": "FP32", "shape": list(found.shape), "data": found.flatten().tolist()}]
        }

    entry = {"name": "x", "datatype": "FP32", "shape": [-1, 3, 32, 32]}
    with listening(v2(entry, infer, parameters={"task": "segmentation", "classes": list(shapes.CLASSES)})) as server:
        model = open_model(f"{server.url}/v2/models/m", PLAIN)
        assert torch.equal(model.segment(images), local().segment(images))


def test_a_run_over_http_has_the_rows_of_a_local_one(tmp_path: Path) -> None:
    data = {"source": str(shapes.folder(tmp_path / "data")), "limit": 3}
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 3}
    rows = []
    with Server(shapes.segmenter(), port=0) as started:
        server = started.start()
        for model in (shapes.segmenter(), open_model(f"{server.url}/v2/models/shapes", PLAIN)):
            run = brinell.run(model, data, lens=lens, out=tmp_path / str(len(rows)), execution=PLAIN, quiet=True)
            rows.append(run.query("select image, level, iou, relabelled, mask_common, mask_union from rows order by all"))
        assert rows[0] == rows[1]
        mapped = open_mapped(f"{server.url}/predict", tmp_path, "mask: mask")
        image = torch.from_numpy(shapes.pictures(1)[0]).permute(0, 3, 1, 2).contiguous()
        assert torch.equal(mapped.segment(image), local().segment(image))


def test_what_is_no_mask_is_refused(images: Tensor, tmp_path: Path) -> None:
    with listening(lambda handler, body: {"mask": "nothing"}) as server:
        with pytest.raises(ServiceError, match="should have a mask, a PNG file in base64 or rows of classes"):
            open_mapped(server.url, tmp_path, "mask: mask").segment(images)
        with pytest.raises(ConfigError, match="a mask needs no scores and no boxes"):
            open_mapped(server.url, tmp_path, "mask: mask, scores: s")
        with pytest.raises(ConfigError, match=r"needs a path to a mask \(response\.mask\) for a segmenter"):
            open_mapped(server.url, tmp_path, "scores: s", task="segmentation")
