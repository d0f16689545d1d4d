"""Torch modules exported to ONNX and run by onnxruntime, which is faster on a CPU."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from brinell.errors import MissingExtra, ModelError
from brinell.interrupts import raise_if_interrupted, stoppable
from brinell.models.exports import cached_file, keep
from brinell.models.model import Forward
from brinell.models.onnx import open_session, session_forward
from brinell.models.preprocess import Preprocess
from brinell.models.probe import probe_images

LOG = logging.getLogger(__name__)
# largest difference between torch and another runtime, as a share of the largest score
AGREEMENT = 1e-3
ORT = "onnxruntime"


def export_forward(module: nn.Module, preprocess: Preprocess, name: str, scores: Tensor | None = None) -> Forward:
    """Export a module, and return its forward pass in onnxruntime after checking that both return the same scores.

    Exports are cached. One that can't be read, or that scores differently, is made again. `scores` are the module's for
    `probe_images`, if they are known.
    """
    images = preprocess.normalise(probe_images(preprocess))
    expected = known_scores(module, images, scores)
    file = cached_file(module, preprocess)
    if file.is_file():
        with contextlib.suppress(ModelError):
            forward = check_scores(session_forward(open_session(file)), images, expected, f"model {name}", ORT)
            file.touch()  # it was used
            return forward
    LOG.info("Exporting %s to ONNX …", name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        export(module, images, path, name)
        forward = check_scores(session_forward(open_session(path)), images, expected, f"model {name}", ORT)
        keep(path, file)
    return forward


def known_scores(module: nn.Module, images: Tensor, scores: Tensor | None) -> Tensor:
    """Return a module's scores, which are computed only if they are not known: in eager torch that takes long."""
    if scores is not None:
        return scores
    with torch.inference_mode():
        computed: Tensor = module(images)
    return computed


def exported_file(module: nn.Module, preprocess: Preprocess, name: str) -> Path:
    """Return the cached ONNX file of a module, which is made if it isn't there."""
    file = cached_file(module, preprocess)
    if not file.is_file():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            export(module, preprocess.normalise(probe_images(preprocess)), path, name)
            keep(path, file)
    if not file.is_file():
        raise ModelError(
            f"model {name} needs the cache for its export, and {file.parent} can't be written to; set BRINELL_CACHE"
        )
    return file


def check_scores(
    forward: Forward, images: Tensor, expected: Tensor, name: str, runtime: str, agreement: float = AGREEMENT
) -> Forward:
    """Return a forward pass, or raise if it doesn't return the expected scores."""
    with torch.inference_mode():
        found = forward(images)
    if found.shape != expected.shape:
        raise ModelError(f"{name} has other outputs in {runtime} than in torch; use runtime torch")
    gap = float((expected - found).abs().max() / expected.abs().max().clamp(min=1e-6))
    if not gap <= agreement:
        raise ModelError(f"{name} scores differently in {runtime} and in torch (by {gap:.1%}); use runtime torch")
    return forward


def export(module: nn.Module, images: Tensor, path: Path, name: str) -> None:
    """Write a module as an ONNX file that takes batches of any size."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtra("onnx and onnxscript", "onnx") from None
    batch = torch.export.Dim("batch", min=1, max=1 << 16)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with stoppable(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (images,),
                path,
                input_names=["images"],
                output_names=["scores"],
                dynamic_shapes=({0: batch},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        raise_if_interrupted()  # the exporter swallows Ctrl-C
    except Exception as error:  # its passes may raise anything
        raise_if_interrupted()
        reason = str(error).strip().splitlines()
        raise ModelError(
            f"model {name} can't be exported to ONNX ({reason[0] if reason else type(error).__name__}); use runtime torch"
        ) from error
