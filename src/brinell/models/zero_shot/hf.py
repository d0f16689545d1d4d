"""Zero-shot models of the Hugging Face hub, or of a folder: CLIP, SigLIP and their kin (extra: hf)."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ModelError
from brinell.models.hub import load_hf, transformers
from brinell.models.model import Model
from brinell.models.processors import read_processor
from brinell.models.zero_shot.towers import Tokens, Towers, open_towers
from brinell.models.zoo import build_by

SIGLIP_TOKENS = 64  # it was trained on texts that are padded to this length
_TEXT_PARTS = ("text_model", "text_projection")


def open_hf_zero_shot(name: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a two-tower model, with the prompts and classes of the options as its head."""
    auto = transformers().AutoModelForZeroShotImageClassification
    module, processor, config = load_hf(auto, name, pretrained=options.pretrained, trust=execution.trust)
    tokenisers = transformers().AutoTokenizer
    tokeniser = build_by(lambda: tokenisers.from_pretrained(name, trust_remote_code=execution.trust), f"hf:{name}")
    if not hasattr(module, "logit_scale"):
        raise ModelError(f"hf:{name} is a {type(module).__name__}, which has no towers for images and texts apart")
    sigmoid = "siglip" in config.model_type

    def tokenise(texts: list[str]) -> Tokens:
        how: dict[str, Any] = {"padding": "max_length", "max_length": SIGLIP_TOKENS} if sigmoid else {"padding": True}
        return dict(tokeniser(texts, return_tensors="pt", truncation=True, **how))

    def encode_text(tokens: Tokens) -> Tensor:
        return _embedding(module.get_text_features(**tokens))

    towers = Towers(
        whole=module,
        image=_ImageTower(module),
        text=encode_text,
        tokenise=tokenise,
        scale=module.logit_scale,
        bias=getattr(module, "logit_bias", None),
        sigmoid=sigmoid,
    )
    return open_towers(towers, options, execution, read_processor(processor))


class _ImageTower(nn.Module):
    """The image tower of a Hugging Face model: a shallow copy without the text tower."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = copy.copy(module)
        self.module._modules = {key: part for key, part in module._modules.items() if key not in _TEXT_PARTS}

    def forward(self, images: Tensor) -> Tensor:
        return _embedding(self.module.get_image_features(pixel_values=images))


def _embedding(features: Any) -> Tensor:
    """Return the embedding, which transformers returned by itself before version 5."""
    embedding: Tensor = getattr(features, "pooler_output", features)
    return embedding
