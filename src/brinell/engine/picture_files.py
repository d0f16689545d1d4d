"""Writes the pictures of a run's exhibits, in the background."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from PIL.Image import Image

from brinell.pictures import encode_webp
from brinell.runs.store import Store

WRITERS = 8  # threads, which wait for the disk half of their time: a file is written through before it has its name


class PictureFiles:
    """Encodes pictures and writes them; all are there when its context ends. The first that fails ends it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(WRITERS, "pictures")
        self._written: list[Future[None]] = []

    def add(self, file: str, picture: Image) -> None:
        """Write a picture into a file of the run."""
        self.add_encoded(file, self.encode(picture))

    def encode(self, picture: Image) -> Future[bytes]:
        """Encode a picture that belongs in several files, such as a clean image next to its changed ones."""
        return self._pool.submit(encode_webp, picture, 90)

    def add_encoded(self, file: str, encoded: Future[bytes]) -> None:
        """Write an encoded picture into a file of the run."""
        # tasks begin in their order, so this one waits for none that has not begun
        self._written.append(self._pool.submit(self._write, file, encoded))

    def _write(self, file: str, encoded: Future[bytes]) -> None:
        self._store.write(encoded.result(), *file.split("/"))

    def __enter__(self) -> PictureFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for future in self._written:
                    future.result()
        finally:
            self._pool.shutdown(cancel_futures=True)  # all are written, or nobody needs the others
