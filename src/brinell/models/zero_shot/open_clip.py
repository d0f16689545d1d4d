"""Networks of open_clip (extra: open_clip)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, MissingExtra, ModelError
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.processors import read_interpolation
from brinell.models.zero_shot.towers import Tokens, Towers, open_towers
from brinell.models.zoo import build_by
from brinell.registry import nearest

_ELSEWHERE = ("hf-hub:", "local-dir:")  # names that say where their weights are


def open_open_clip(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a network of open_clip by its name, with the prompts and classes of the options as its head."""
    try:
        import open_clip
    except ImportError:
        raise MissingExtra("open_clip", "open_clip") from None
    weights = _find_weights(open_clip, name, options)
    module: Any = build_by(
        lambda: open_clip.create_model(
            name,
            weights,
            load_weights=options.pretrained,
            require_pretrained=options.pretrained,
            force_quick_gelu=_was_quick(open_clip, name, weights),
            weights_only=not execution.trust,
            pretrained_text=False,
        ),
        f"open_clip:{name}",
    )
    tokeniser = build_by(lambda: open_clip.get_tokenizer(name), f"open_clip:{name}")
    bias = getattr(module, "logit_bias", None)

    def tokenise(texts: list[str]) -> Tokens:
        return {"text": tokeniser(texts)}

    towers = Towers(
        whole=module,
        image=module.visual,
        text=lambda tokens: module.encode_text(tokens["text"]),
        tokenise=tokenise,
        scale=module.logit_scale,
        bias=bias,
        sigmoid=bias is not None,
    )
    return open_towers(towers, options, execution, _read_config(open_clip.get_model_preprocess_cfg(module), name))


def _find_weights(open_clip: Any, name: str, options: ModelOptions) -> str | None:
    """Return the name or file of the weights to load, and raise if there are several to choose from."""
    if options.checkpoint is not None:
        return str(Path(options.checkpoint).expanduser())
    if name.startswith(_ELSEWHERE) or not options.pretrained:
        return None
    known = open_clip.list_models()
    if name not in known:
        raise ModelError(f"open_clip has no model {name!r}; {nearest(name, known)}")
    tags = open_clip.list_pretrained_tags_by_model(name)
    if options.weights is None:
        shown = ", ".join(tags) if tags else "none: use ?checkpoint=FILE"
        raise ConfigError(f"name the weights of open_clip:{name} with ?weights=NAME; it has {shown}")
    if options.weights not in tags:
        raise ModelError(f"open_clip:{name} has no weights {options.weights!r}; {nearest(options.weights, tags)}")
    return options.weights


def _was_quick(open_clip: Any, name: str, weights: str | None) -> bool:
    """Whether weights were trained with the approximate GELU of OpenAI; with the other one they lose some accuracy."""
    return bool((open_clip.get_pretrained_cfg(name, weights) or {}).get("quick_gelu")) if weights is not None else False


def _read_config(config: dict[str, Any], name: str) -> Preprocess:
    """Return the preprocessing that open_clip's own transform does."""
    size = config["size"]
    height, width = (size, size) if isinstance(size, int) else size
    mode = config.get("resize_mode") or "shortest"
    if mode not in ("shortest", "squash"):
        raise ModelError(
            f"open_clip:{name} resizes images by {mode!r}, which is not supported; set ?resize=stretch or crop"
        )
    return Preprocess(
        height=height,
        width=width,
        short_side=max(height, width) if mode == "shortest" else None,
        interpolation=read_interpolation(config.get("interpolation") or "bicubic"),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
    )
