"""The cache of ONNX exports, which take several seconds each.

A file is named by everything that an export depends on: weights, structure and code of the module, input size, and the
versions of the libraries. The folder can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from brinell.caching import cache_folder
from brinell.models.preprocess import Preprocess
from brinell.versions import package_version

KEPT = 20  # files; the ones that were used last
_VERSIONED = ("brinell", "torch", "onnx", "onnxscript", "onnxruntime", "timm", "torchvision", "transformers")


def weights_fingerprint(module: nn.Module) -> str:
    """Return 16 hex digits of a hash of a module's class, weights and buffers."""
    digest = hashlib.blake2b(type(module).__qualname__.encode(), digest_size=8)
    for name, value in sorted(module.state_dict().items()):
        digest.update(name.encode())
        if isinstance(value, Tensor):
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def cached_file(module: nn.Module, preprocess: Preprocess) -> Path:
    """Return the file of a module's export, which may not exist yet."""
    digest = hashlib.blake2b(weights_fingerprint(module).encode(), digest_size=16)
    digest.update(str(module).encode())
    for name, part in module.named_modules():  # settings that are no weights, such as strides
        digest.update(f"{name}: {[(key, _describe(value)) for key, value in sorted(vars(part).items())]}".encode())
    for source in sorted({_source(type(part)) for part in module.modules()}):
        digest.update(source.encode())
    digest.update(str((preprocess.channels, preprocess.height, preprocess.width)).encode())
    digest.update(str([package_version(name) for name in _VERSIONED]).encode())
    return cache_folder() / "exports" / f"{digest.hexdigest()}.onnx"


def _describe(value: Any) -> str:
    """Return an attribute of a module as text that is the same in every process."""
    if isinstance(value, Tensor | np.ndarray):
        return hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
    if isinstance(value, bool | int | float | str | bytes | None):
        return repr(value)
    if isinstance(value, list | tuple):
        return str([_describe(each) for each in value])
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _source(kind: type) -> str:
    """Return the code of the file that defines a class; its name if there is none."""
    with suppress(OSError, TypeError):
        file = inspect.getsourcefile(kind)
        if file is not None:
            return Path(file).read_text(encoding="utf-8", errors="replace")
    return f"{kind.__module__}.{kind.__qualname__}"


def read_record(file: Path) -> dict[str, Any] | None:
    """Return a small record of the cache; None if there is none, or if it is damaged."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_record(file: Path, content: Mapping[str, Any]) -> None:
    """Write a small record to the cache, if there is room for it."""
    with suppress(OSError), tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / file.name
        written.write_text(json.dumps(content, indent=1), encoding="utf-8")
        keep(written, file)


def keep(export: Path, file: Path) -> None:
    """Copy an export, or another file, into the cache atomically, and remove the files that were not used for longest.

    A cache that can't be written to is not used.
    """
    part = file.with_name(f"{file.name}.{uuid.uuid4().hex}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(export, part)
        with part.open("rb+") as copied:
            os.fsync(copied.fileno())
        part.replace(file)
        for old in sorted(file.parent.glob(f"*{file.suffix}"), key=lambda each: each.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
    except OSError:
        with suppress(OSError):
            part.unlink(missing_ok=True)
