"""The files of a local folder, with those methods of fsspec that a run's folder needs: importing fsspec takes time."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import IO, Any, ClassVar

from brinell.errors import RunError


class LocalFiles:
    """The local file system. Paths are absolute, with slashes."""

    protocol: ClassVar[tuple[str, ...]] = ("file", "local")

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""
        return Path(path).exists()

    def open(self, path: str, mode: str = "rb") -> IO[Any]:
        """Open a file."""
        return Path(path).open(mode)

    def cat_file(self, path: str) -> bytes:
        """Return the content of a file."""
        return Path(path).read_bytes()

    def pipe_file(self, path: str, data: bytes) -> None:
        """Write a file."""
        Path(path).write_bytes(data)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder and those above it."""
        Path(path).mkdir(parents=True, exist_ok=exist_ok)

    def mv(self, path: str, target: str, recursive: bool = False) -> None:
        """Move a file, in place of one that may be there, or a folder."""
        Path(path).replace(target)

    def rm_file(self, path: str) -> None:
        """Remove a file."""
        Path(path).unlink()

    def rm(self, path: str, recursive: bool = False) -> None:
        """Remove a file, or a folder with all that is in it."""
        if recursive and Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink()

    def ls(self, path: str, detail: bool = False) -> list[str]:
        """Return the paths in a folder."""
        return [found.as_posix() for found in Path(path).iterdir()]

    def find(self, path: str) -> list[str]:
        """Return the files in a folder and in those below it; none if it doesn't exist."""
        return [found.as_posix() for found in Path(path).rglob("*") if not found.is_dir()]


def open_folder(url: str) -> tuple[Any, str]:
    """Return the file system of a folder, and its path there: absolute and with slashes if it is local."""
    if "://" not in url and "::" not in url:
        return LocalFiles(), Path(url).expanduser().absolute().as_posix().rstrip("/")
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:  # an unknown protocol, or one that needs a package
        raise RunError(f"can't open {url}: {error}") from None
    return system, path.rstrip("/")
