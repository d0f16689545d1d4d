"""Runs at a URL, read through copies of their files in the cache folder: each file is downloaded when it is first needed.

What the viewer computes is stored next to the copies; nothing is ever written to the URL.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from brinell.caching import cache_folder
from brinell.errors import RunError
from brinell.runs.files import replace_bytes
from brinell.runs.store import Store

FOLDER = "runs"  # in the cache folder
OWN = "viewer"  # the viewer's own files in a run's folder
VERSIONS = "versions.json"  # which version of each file was copied
AT_ONCE = 8  # downloads


def version_of(facts: Mapping[str, Any]) -> str:
    """Return what tells a file from one that replaced it, as far as its file system says: "" if it says nothing."""
    told = (facts.get(name) for name in ("size", "ETag", "LastModified", "Last-Modified", "mtime", "created", "md5Hash"))
    return " ".join(str(each) for each in told if each is not None)


def time_of(facts: Mapping[str, Any]) -> float | None:
    """Return when a file was written, in seconds since 1970; None where the file system doesn't say."""
    told = facts.get("mtime") or facts.get("LastModified") or facts.get("created")
    return told.timestamp() if isinstance(told, datetime) else told


class MirroredStore(Store):
    """A run's folder at a URL, copied file by file. Files whose version isn't known are copied again if `state` differs."""

    def __init__(self, url: str, state: str) -> None:
        self.remote, self.state = Store(url), state
        name = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
        super().__init__(str(cache_folder() / FOLDER / name))
        self.url = url  # what people see
        self._lock, self._listing = threading.Lock(), threading.Lock()
        self._versions = self._read_versions()
        self._absent: set[str] = set()
        self._listed: dict[str, str] | None = None
        self.times: dict[str, float | None] = {}  # when row files were written, by the paths of their copies
        self._encoded = "http" in self.remote.fs.protocol
        self.finished = True  # of a run in progress, rows are listed whenever they are needed

    def place(self, *parts: str) -> str:
        """Return the URL of a file."""
        return self.remote.place(*parts)

    def exists(self, *parts: str) -> bool:
        """Whether a file exists: here, or at the URL."""
        name = "/".join(parts)
        if Path(self.path(*parts)).exists():
            return True
        if name in self._absent or not name:
            return not name
        found = self.remote.exists(*self._encode(parts))
        if not found and self.finished:
            self._absent.add(name)
        return found

    def read(self, *parts: str) -> bytes:
        """Return the content of a file."""
        self._copy("/".join(parts), self.state)
        return super().read(*parts)

    def tables(self) -> list[str]:
        """Return the names of the tables besides the rows; their files are here afterwards."""
        self._refresh()
        found = (self._decode(path) for path in self.remote.fs.ls(self.remote.path(), detail=False))
        names = [name for name in found if name.endswith(".parquet") and "/" not in name]
        for name in names:
            self._copy(name, self.state)
        return sorted(name.removesuffix(".parquet") for name in names)

    def unit_files(self) -> list[str]:
        """Return the copies of the files of all finished units."""
        with self._listing:
            if self._listed is None or not self.finished:
                self._listed = self._list_rows()
                with ThreadPoolExecutor(AT_ONCE) as pool:
                    list(pool.map(self._copy, self._listed, self._listed.values()))
            return sorted(self.path(*name.split("/")) for name in self._listed)

    def _list_rows(self) -> dict[str, str]:
        """Return the names of row files, and their versions."""
        self._refresh()
        try:
            found = self.remote.fs.find(self.remote.path("rows"), detail=True)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise RunError(f"can't list the files of {self.url}: {error}") from error
        rows = {name: facts for path, facts in found.items() if (name := self._decode(path)).endswith(".parquet")}
        self.times = {self.path(*name.split("/")): time_of(facts) for name, facts in rows.items()}
        return {name: version_of(facts) or self.state for name, facts in rows.items()}

    def _copy(self, name: str, version: str) -> None:
        """Copy a file, unless this version of it is here."""
        local, own = Path(self.path(*name.split("/"))), name.startswith(f"{OWN}/")
        if local.exists() and (own or self._versions.get(name) == version):
            return
        data = self.remote.read(*self._encode(name.split("/")))
        local.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(self.fs, str(local), data)
        with self._lock:
            self._versions[name] = version
            replace_bytes(self.fs, self.path(VERSIONS), json.dumps(self._versions).encode())

    def _read_versions(self) -> dict[str, str]:
        """Return which versions are here."""
        with suppress(OSError, ValueError):
            known: dict[str, str] = json.loads(Path(self.path(VERSIONS)).read_bytes())
            return known
        return {}

    def _refresh(self) -> None:
        """Forget listings that the file system keeps."""
        self.remote.fs.invalidate_cache()

    def _encode(self, parts: Any) -> tuple[str, ...]:
        """Return parts of a path for the URL; names of operators hold % signs, which a web server would decode."""
        return tuple(quote(part, safe="") for part in parts) if self._encoded else tuple(parts)

    def _decode(self, path: str) -> str:
        """Return the name of a file in the run's folder."""
        name = posixpath.relpath(path, self.remote.root)
        return unquote(name) if self._encoded else name
