"""Coverage-guided fuzzing (atheris) of decoding, configs, manifests and mappings: python -m chaos.fuzz TARGET SECONDS

It ends with exit code 0 if nothing but a `BrinellError` was ever raised.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(
    include=["brinell.datasets", "brinell.documents", "brinell.models.remote", "brinell.validation"]
):
    from brinell.datasets.decode import decode
    from brinell.datasets.sources import open_dataset
    from brinell.documents import load_yaml
    from brinell.models.remote.mapping import read_mapping
    from brinell.run_config import load_config
from brinell.errors import BrinellError
from chaos.images import make_image
from chaos.texts import SEEDS

FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-"))


def fuzz_image(data: bytes) -> None:
    """Decode an image file."""
    decode(data, "x")


def fuzz_config(data: bytes) -> None:
    """Read a config."""
    try:
        content = load_yaml(data.decode("utf-8", "replace"))
    except ValueError:
        return
    if isinstance(content, dict):
        load_config(content)


def fuzz_mapping(data: bytes) -> None:
    """Read the mapping of a service."""
    (FOLDER / "mapping.yaml").write_bytes(data)
    read_mapping(str(FOLDER / "mapping.yaml"))


def _dataset(name: str) -> Callable[[bytes], None]:
    def fuzz(data: bytes) -> None:
        (FOLDER / name).write_bytes(data)
        dataset = open_dataset(FOLDER / name)
        for index in range(min(2, len(dataset))):
            dataset[index]

    return fuzz


TARGETS: dict[str, Callable[[bytes], None]] = {
    "image": fuzz_image,
    "config.yaml": fuzz_config,
    "mapping.yaml": fuzz_mapping,
    **{name: _dataset(name) for name in ("manifest.csv", "manifest.jsonl", "instances.json")},
}


def main() -> None:
    """Fuzz a target for some seconds, beginning with good examples."""
    name, seconds = sys.argv[1:3]
    corpus = FOLDER / "corpus"
    corpus.mkdir()
    if name == "image":
        from random import Random

        for number in range(40):
            (corpus / str(number)).write_bytes(make_image(Random(number)))
    else:
        (corpus / "seed").write_text(SEEDS[name], encoding="utf-8")

    def once(data: bytes) -> None:
        with contextlib.suppress(BrinellError):
            TARGETS[name](data)

    options = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4000", f"-artifact_prefix={FOLDER}{os.sep}"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
