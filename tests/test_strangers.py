"""What strangers write: configs, manifests, annotations and answers that are malformed or hostile end in one line."""

from __future__ import annotations

import io
import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

import brinell
from brinell.cli.config_flags import config_of
from brinell.cli.main import main
from brinell.config.execution import Execution
from brinell.curation.card import _as_code, _as_yaml, _escape
from brinell.datasets.sources import open_dataset
from brinell.documents import load_json, load_yaml, printable
from brinell.errors import BrinellError, ServiceError
from brinell.models.sources import open_model
from brinell.runs.store import Store
from brinell.serve import responses
from conftest import PLAIN
from services import Handler, listening, mapping, pixels, respond_with_scores, service

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{last}'] * 9)}]\n" for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2", "the key 'a' is given twice"),
        ("a: {b: 1, b: 2}", "the key 'b' is given twice"),
        ("[" * 5000 + "]" * 5000, "nested too deeply"),
        ("- " * 5000, "nested too deeply"),
        (BOMB, "more than 200,000 values when its aliases are written out"),
        ("a: &a [*a]", "contains itself"),
        ("[" + "x, " * 900_000 + "]", "characters, and may have 2,000,000"),
        ("a: 2020-13-45", "month must be in 1..12"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    ],
    ids=["key", "inner key", "brackets", "dashes", "aliases", "itself", "long", "date", "code"],
)
def test_yaml_that_is_refused(text: str, problem: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=problem) as refused:
        load_yaml(text)
    assert "\n" not in str(refused.value)
    assert time.process_time() - began < 8, "an alias bomb took 16 seconds, a long list 81"


def test_yaml_that_is_read() -> None:
    text = "base: &base {a: 1}\nother:\n  <<: *base\n  b: [1, 2.5, x]\n"
    assert load_yaml(text) == yaml.safe_load(text) == {"base": {"a": 1}, "other": {"a": 1, "b": [1, 2.5, "x"]}}


def test_json_that_is_refused() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        load_json("[" * 100_000)
    with pytest.raises(ValueError, match="the key 'a' is given twice"):
        load_json('{"a": 1, "a": 2}', unique=True)
    assert load_json('{"a": 1, "a": 2}') == {"a": 2}


def test_control_characters_do_not_reach_a_terminal() -> None:
    assert printable("red \x1b[31mtext\x07\r\nand more\x9b") == "red [31mtext and more"


# ---- datasets ----


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_superscript_is_a_name(greys: Path) -> None:
    data = open_dataset(write(greys / "labels.csv", "file_name,label\nlight/00.png,²\nlight/01.png,3\n"))
    assert [data[0].label, data[1].label] == ["²", 3]


def test_two_labels_for_one_image_are_refused(greys: Path) -> None:
    text = "file_name,label\nlight/00.png,1\nlight/01.png,3\nlight/00.png,{}\n"
    with pytest.raises(BrinellError, match=r"two labels for light/00.png: 1 in row 1 and 2 in row 3; keep one of them"):
        open_dataset(write(greys / "labels.csv", text.format(2)))
    assert len(open_dataset(write(greys / "labels.csv", text.format(1)))) == 3


def test_duplicate_keys_in_a_manifest_are_refused(greys: Path) -> None:
    text = '{"file_name": "light/00.png", "label": 1, "label": 2}\n'
    with pytest.raises(BrinellError, match=r"labels\.jsonl can't be read: the key 'label' is given twice"):
        open_dataset(write(greys / "labels.jsonl", text))


def test_a_path_with_a_nul_is_an_unreadable_image(greys: Path) -> None:
    data = open_dataset(write(greys / "labels.jsonl", json.dumps({"file_name": "a\0b.png", "label": 1})))
    with pytest.raises(brinell.errors.UnreadableImage, match="null byte"):
        data[0]
    with pytest.raises(BrinellError, match="can't be the name of a folder"):
        Store("run\0")


def coco(**changes: Any) -> str:
    content: dict[str, Any] = {
        "images": [{"id": 1, "file_name": "light/00.png"}],
        "annotations": [{"id": 7, "image_id": 1, "category_id": 3, "bbox": [1, 2, 3, 4]}],
        "categories": [{"id": 3, "name": "thing"}],
    }
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (coco(annotations=[{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3]}]), "expected an image_id, a category_id"),
        (coco(annotations=[{"image_id": 1, "category_id": 3, "bbox": "abcd"}]), "a bbox of x, y, width, height, got"),
        (coco(annotations=[{"image_id": 1, "category_id": 3, "bbox": [1, 2, -3, 4]}]), r"\(annotation 0\)"),
        (coco(annotations=[{"image_id": 1, "category_id": 3, "bbox": [1, 2, 3, float("nan")]}]), "an image_id"),
        (coco(annotations=[{"category_id": 3, "bbox": [1, 2, 3, 4]}]), "expected an image_id"),
        (coco(annotations=[None]), "expected an image_id"),
        (coco(annotations=[{"image_id": 1, "category_id": 4, "bbox": [1, 2, 3, 4]}]), "category 4, which is not listed"),
        (coco(images=[{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]), "two images with the id 1"),
        (coco(images=[{"id": 1}]), "is not a COCO annotation file"),
        (coco(categories=[{"id": 1}]), "is not a COCO annotation file"),
        ("[" * 100_000, "is not a COCO annotation file .* nested too deeply"),
    ],
    ids=range(11),
)  # fmt: skip
def test_malformed_annotations(text: str, problem: str, greys: Path) -> None:
    with pytest.raises(BrinellError, match=problem) as refused:
        open_dataset(write(greys / "instances.json", text))
    assert "\n" not in str(refused.value)


def test_names_that_no_file_can_have(greys: Path) -> None:
    """One that is too long, and one of several lines, which an error gives in one."""
    text = coco(images=[{"id": 1, "file_name": "x" * 5000}])
    with pytest.raises(brinell.errors.UnreadableImage, match="File name too long"):
        open_dataset(write(greys / "instances.json", text))[0]
    data = open_dataset(write(greys / "labels.jsonl", json.dumps({"file_name": "a\nb.png", "label": 1})))
    with pytest.raises(brinell.errors.UnreadableImage, match=r"a b\.png: No such file"):
        data[0]


def test_labels_of_several_dimensions_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((3, 8, 8, 3), np.uint8), labels=np.eye(3))
    with pytest.raises(BrinellError, match=r"expected one label per image, shape \(3,\), got labels of shape \(3, 3\)"):
        open_dataset(tmp_path / "x.npz")


def test_images_that_are_left_out_are_reported(greys: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("light/a.heic", "light/b.HEIC", "light/c.avif"):
        (greys / name).write_bytes(b"x")
    (greys / "loose.png").write_bytes((greys / "light" / "00.png").read_bytes())
    with caplog.at_level(logging.WARNING, "brinell"):
        assert len(open_dataset(greys)) == 12
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"1 .avif files of {greys} can't be read and are left out: convert them to PNG or JPEG",
        f"2 .heic files of {greys} can't be read and are left out: convert them to PNG or JPEG",
        f"1 images in {greys} are left out: they are in no class folder, so they have no label",
    ]


def test_images_without_a_label_are_reported(greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(greys / "labels.csv", "file_name,label\nlight/00.png,light\nlight/01.png,\nlight/02.png,light\n")
    main(["run", "--model", "fake:grey", "--data", str(file), "--operator", "noise", "--levels", "2", "--yes",
          "--out", str(tmp_path / "run")])  # fmt: skip
    assert "1 of 3 images have no label and are left out" in capsys.readouterr().err


def test_jfif_files_are_jpeg_images(greys: Path) -> None:
    with Image.open(greys / "light" / "00.png") as picture:
        picture.save(greys / "light" / "phone.jfif", "jpeg")
    data = open_dataset(greys)
    assert len(data) == 13 and data[12].name.endswith("phone.jfif") and data[12].image.shape == (3, 40, 48)


def test_a_loop_of_links_is_no_class_folder(greys: Path) -> None:
    (greys / "loop").symlink_to("loop")
    assert open_dataset(greys).classes == ("light",)


def test_a_row_with_too_many_cells_is_refused(greys: Path) -> None:
    with pytest.raises(BrinellError, match=r"row 2 of .* has more cells than the first line has columns"):
        open_dataset(write(greys / "labels.csv", "file_name,label\nlight/00.png,1\nlight/01.png,a,b\n"))


# ---- models ----


def test_impossible_batches_and_empty_class_lists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="less than or equal to 65536"):
        Execution(batch=10**12)
    (tmp_path / "classes.txt").write_text("\n \n")
    with pytest.raises(BrinellError, match=r"the class list .* is empty; give a text file"):
        open_model(f"fake:grey?classes={tmp_path / 'classes.txt'}", PLAIN)


def test_secrets_in_urls_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = f"http://127.0.0.1:1/predict?api_key={{}}#mapping={mapping(tmp_path)}"
    with pytest.raises(BrinellError, match=r"the api_key in a URL would be stored; write api_key=\$\{NAME\}"):
        open_model(given.format("hunter2"))
    monkeypatch.setenv("MY_KEY", "hunter2")
    open_model(given.format("${MY_KEY}"))


@pytest.mark.usefixtures("answer_cache")
def test_errors_of_services_repeat_no_secret_and_no_escape_code(tmp_path: Path) -> None:
    def respond(handler: Handler, body: bytes) -> Any:
        return handler.send(400, json.dumps({"error": f"no \x1b[31m{handler.headers['authorization']}"}).encode())

    with listening(respond) as server:
        request = "body: raw, headers: {Authorization: Bearer hunter22}"
        options = {"source": server.url, "mapping": str(mapping(tmp_path, request=request)), "size": 32}
        with pytest.raises(ServiceError) as failed:
            open_model(options).predict(pixels(1))
    assert "hunter22" not in str(failed.value) and "\x1b" not in str(failed.value) and "no [31m***" in str(failed.value)


@pytest.mark.usefixtures("answer_cache")
def test_answers_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    with listening(respond_with_scores) as server:
        model = service(server, tmp_path)
        model.predict(pixels(2))
        folder = model.service.cache.path.parent  # type: ignore[union-attr]
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("answers*")}
    assert len(modes) >= 2 and set(modes.values()) == {0o600}, modes


QUERY = """
import sys, torch
sys.path[:0] = {path!r}
from brinell.models.sources import open_model
from services import pixels
model = open_model({{"source": {url!r}, "mapping": {mapping!r}, "size": 32}})
model.predict(pixels(24))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("answer_cache")
def test_two_processes_send_no_query_twice(tmp_path: Path) -> None:
    def slowly(handler: Handler, body: bytes) -> Any:
        time.sleep(0.3)
        return respond_with_scores(handler, body)

    with listening(slowly) as server:
        text = QUERY.format(
            path=[str(Path(__file__).parent)], url=server.url, mapping=str(mapping(tmp_path, calls="concurrency: 2"))
        )
        processes = [subprocess.Popen([sys.executable, "-c", text], env=dict(os.environ)) for _ in range(3)]
        assert [process.wait(120) for process in processes] == [0, 0, 0]
        assert len(server.requests) == 24


def test_large_images_are_read_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.BytesIO()
    Image.new("RGB", (64, 64)).save(sink, "png")
    monkeypatch.setattr(responses, "LARGE", 64 * 64 - 1)
    model, inside, most, decode = open_model("fake:grey", PLAIN), [0], [0], responses.decode

    def slowly(data: bytes, name: str) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        inside[0] -= 1
        return decode(data, name)

    monkeypatch.setattr(responses, "decode", slowly)
    threads = [threading.Thread(target=responses.predict, args=(model, sink.getvalue(), "image/png")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


# ---- curated datasets ----


def test_names_in_a_card_are_text() -> None:
    assert _escape("a|b *c* <script>\n# d [e](f)") == r"a\|b \*c\* \<script\> \# d \[e\](f)"
    assert _as_code("x`|y\nz") == "`x'/y z`"
    assert yaml.safe_load(f"name: {_as_yaml('a: b # c')}") == {"name": "a: b # c"}


# ---- consent ----


@pytest.mark.parametrize("command", ["run", "plan", "harden"])
def test_a_config_file_gives_no_consent(
    command: str, greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "config.yaml", f"model: fake:grey\ndata: {greys}\nexecution: {{trust: true}}\n")
    with pytest.raises(SystemExit) as left:
        main([command, str(file)])
    assert left.value.code == 2
    assert "allows code to be run (execution.trust), which a file can't do" in capsys.readouterr().err
    with pytest.raises(BrinellError, match="which a file can't do"):
        brinell.harden(file)
    assert config_of(write(file, f"model: fake:grey\ndata: {greys}\n"), {"trust": True}).execution.trust
