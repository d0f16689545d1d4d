"""Pictures that are encoded and written in the background."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from brinell.engine.picture_files import WRITERS, PictureFiles
from brinell.errors import RunError
from brinell.runs.store import Store

MANY = 20 * WRITERS


class Failing(Store):
    """A store that can write nothing, and counts how often it is tried."""

    tried = 0

    def write(self, data: bytes, *parts: str) -> None:
        self.tried += 1
        threading.Event().wait(0.01)
        raise RunError("no space left")


def picture(number: int) -> Image.Image:
    return Image.new("RGB", (8, 8), (number, 0, 255 - number))


def test_all_pictures_are_there_when_the_context_ends(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.recording() as written, PictureFiles(store) as files:
        clean = files.encode(picture(0))
        for number in range(MANY):
            files.add(f"exhibits/{number}.webp", picture(number))
            files.add_encoded(f"exhibits/{number}-clean.webp", clean)
    assert len(written) == len(list((tmp_path / "exhibits").iterdir())) == 2 * MANY
    for number in (0, MANY - 1):
        red, _, blue = Image.open(io.BytesIO(store.read("exhibits", f"{number}.webp"))).getpixel((4, 4))  # type: ignore[misc]
        assert abs(red - number) < 8 and abs(blue - 255 + number) < 8
        assert store.read("exhibits", f"{number}-clean.webp") == store.read("exhibits", "0.webp")


def test_the_first_picture_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    store = Failing(str(tmp_path))
    with pytest.raises(RunError, match="no space left"), PictureFiles(store) as files:
        for number in range(MANY):
            files.add(f"{number}.webp", picture(number))
    assert store.tried < MANY


def test_a_picture_that_cannot_be_encoded_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="encoding error"), PictureFiles(Store(str(tmp_path))) as files:
        files.add("large.webp", Image.new("L", (20_000, 1)))


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_pictures_are_not_waited_for_after_an_error(tmp_path: Path, kind: Callable[[], BaseException]) -> None:
    store = Failing(str(tmp_path))
    with pytest.raises(kind), PictureFiles(store) as files:  # type: ignore[call-overload]
        for number in range(MANY):
            files.add(f"{number}.webp", picture(number))
        raise kind()
    assert store.tried < MANY
