"""Image files and arrays of every kind, good and bad."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from brinell.datasets.decode import decode, from_array, from_picture, read_image
from brinell.errors import UnreadableImage
from brinell.types import image_id
from test_datasets import picture, save_images


def test_modes_of_image_files(tmp_path: Path) -> None:
    array = picture()
    grey = array[..., 0]
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(array).convert("P").save(tmp_path / "palette.png")
    Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    alpha = np.dstack([array, np.full(grey.shape, 0, np.uint8)])
    Image.fromarray(alpha).save(tmp_path / "clear.png")
    Image.fromarray(array).convert("CMYK").save(tmp_path / "cmyk.tif")
    Image.fromarray(grey > 99).save(tmp_path / "bits.png")
    assert torch.equal(read_image(tmp_path / "grey.png")[0], torch.from_numpy(grey.copy()))
    assert read_image(tmp_path / "palette.png").shape[0] == 3
    assert torch.equal(read_image(tmp_path / "deep.png")[0], torch.from_numpy(grey.copy())), "16 bits are scaled"
    assert read_image(tmp_path / "clear.png").unique().tolist() == [255], "transparency becomes white"
    assert read_image(tmp_path / "cmyk.tif").shape[0] == 3
    assert read_image(tmp_path / "bits.png").unique().tolist() == [0, 255]


def test_phone_photos_are_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    Image.fromarray(picture(size=(10, 30))).save(tmp_path / "phone.jpg", exif=exif)
    assert tuple(read_image(tmp_path / "phone.jpg").shape) == (3, 30, 10)


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((5, 5, 5), np.uint8), "shape"),
        (np.full((4, 4), 300.0), r"\[0, 1\]"),
        (np.full((4, 4), np.nan), r"\[0, 1\]"),
        (np.full((4, 4), 70000), "8 or 16 bits"),
        (np.zeros((0, 4), np.uint8), "no pixels"),
        (np.array([["a", "b"], ["c", "d"]]), "numbers"),
    ],
)
def test_invalid_arrays_raise(array: np.ndarray, reason: str) -> None:
    with pytest.raises(UnreadableImage, match=reason):
        from_array(array, "x")


def test_invalid_files_raise(tmp_path: Path) -> None:
    save_images(tmp_path, "good.png")
    whole = (tmp_path / "good.png").read_bytes()
    for data, reason in (
        (b"", "empty"),
        (b"hello", "not an image"),
        (whole[: len(whole) // 2], "truncated|broken|incomplete"),
    ):
        with pytest.raises(UnreadableImage, match=reason):
            decode(data, "x.png")
    with pytest.raises(UnreadableImage, match="No such file"):
        read_image(tmp_path / "gone.png")


def test_an_id_depends_on_the_content_only(tmp_path: Path) -> None:
    array = picture()
    Image.fromarray(array).save(tmp_path / "a.png")
    Image.fromarray(array).save(tmp_path / "b.bmp")
    ids = {image_id(read_image(tmp_path / name)) for name in ("a.png", "b.bmp")} | {image_id(from_array(array, ""))}
    assert len(ids) == 1
    assert image_id(from_array(array[:, ::-1], "")) not in ids


def test_a_file_with_broken_exif_is_one_unreadable_image(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "odd.png", exif=b"Exif\x00\x00no such thing")
    with pytest.raises(UnreadableImage):
        read_image(tmp_path / "odd.png")


def test_kinds_that_start_other_programs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would give an EPS file to Ghostscript, whatever the file is called."""

    def started(*arguments: object, **options: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.check_call", started)
    file = tmp_path / "photo.jpg"
    file.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    with Image.open(file) as known:
        assert known.format == "EPS"
    with pytest.raises(UnreadableImage, match="not an image of a known kind"):
        read_image(file)


@pytest.mark.parametrize("kind", ["fifo", "device", "loop", "folder"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "photo.png"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    with pytest.raises(UnreadableImage, match=r"not a regular file|symbolic links"):
        read_image(path)


@pytest.mark.parametrize("size", [(1, 1), (7, 3), (500, 375), (3000, 1500)])
@pytest.mark.parametrize("shares", [True, False])
def test_pixels_are_the_same_whether_pillow_shares_its_memory_or_not(
    size: tuple[int, int], shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large pictures lie in several pieces, and older versions share nothing."""
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    if not shares:
        monkeypatch.delattr(Image.Image, "__arrow_c_array__", raising=False)
    found = from_picture(Image.fromarray(pixels), "picture")
    assert np.array_equal(found.numpy(), pixels.transpose(2, 0, 1))
