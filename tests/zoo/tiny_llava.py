"""A LLaVA of some thousand weights that was trained for seconds to tell light images from dark ones, for real servers.

It answers A for light images and B for dark ones. The same weights can be written for transformers and for llama.cpp.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.classes import Classes
from brinell.models.remote.questions import QUESTION, Question

SIDE, PATCH, HIDDEN, HEADS, LAYERS = 32, 8, 32, 2, 2
PAD, END, IMAGE = 0, 3, 4
WORDS = ("<pad>", "<unk>", "<s>", "</s>", "<image>", *map(chr, range(32, 127)), "\n")
PROMPT = Question(QUESTION, Classes(("light", "dark"))).ask()
EPSILON = 1e-6
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{{ '\n' }}{% endfor %}"
)
_LLAMA_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{{ '\n' }}{% endfor %}"


def tokeniser(transformers: Any) -> Any:
    """One token per character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    plain = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    plain.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, additional_special_tokens=["<image>"], model_max_length=2048, **special
    )


def train(transformers: Any) -> tuple[Any, Any]:
    """Return the network and its processor."""
    tokens = tokeniser(transformers)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    vision = transformers.SiglipVisionConfig(image_size=SIDE, patch_size=PATCH, layer_norm_eps=EPSILON, **sizes)
    text = transformers.LlamaConfig(
        vocab_size=len(WORDS), max_position_embeddings=2048, bos_token_id=2, eos_token_id=END, pad_token_id=PAD, **sizes
    )
    torch.manual_seed(0)
    network = transformers.LlavaForConditionalGeneration(
        transformers.LlavaConfig(
            vision_config=vision,
            text_config=text,
            image_token_index=IMAGE,
            image_seq_length=(SIDE // PATCH) ** 2,
            vision_feature_select_strategy="full",
            projector_hidden_act="gelu_pytorch_tanh",  # llama.cpp's GELU
        )
    )
    network.generation_config.eos_token_id, network.generation_config.pad_token_id = END, PAD
    processor = transformers.LlavaProcessor(
        image_processor=transformers.SiglipImageProcessor(size={"height": SIDE, "width": SIDE}),
        tokenizer=tokens,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        chat_template=TEMPLATE,
    )
    greys = torch.cat([torch.linspace(5, 100, 8), torch.linspace(150, 250, 8)])
    given = inputs(processor, greys)
    letters = torch.tensor([WORDS.index("A" if grey > 125 else "B") for grey in greys])
    ends = torch.full_like(letters, END)
    whole = torch.cat([given["input_ids"], letters[:, None], ends[:, None]], 1)
    labels = whole.clone()
    labels[:, :-2] = -100
    adam = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(60):
        loss = network(input_ids=whole, pixel_values=given["pixel_values"], labels=labels).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
    return network.eval(), processor


def inputs(processor: Any, greys: Tensor) -> Any:
    """The question with plain images, as tensors."""
    pictures = [picture(float(grey)) for grey in greys]
    return processor(images=pictures, text=[f"{PROMPT}<image>\n"] * len(pictures), return_tensors="pt")


def picture(grey: float) -> Image.Image:
    """A plain image."""
    return Image.fromarray(np.full((SIDE, SIDE, 3), grey, np.uint8))


def letter_scores(network: Any, processor: Any, greys: Tensor) -> Tensor:
    """The probabilities of A and B as the first token, by transformers itself."""
    given = inputs(processor, greys)
    with torch.no_grad():
        logits = network(input_ids=given["input_ids"], pixel_values=given["pixel_values"]).logits[:, -1]
    return logits.softmax(1)[:, [WORDS.index("A"), WORDS.index("B")]]


def write_gguf(network: Any, processor: Any, folder: Path) -> tuple[Path, Path]:
    """Write the network for llama.cpp: its text model, and what it sees images with."""
    state = {name.removeprefix("model."): value.float().numpy() for name, value in network.state_dict().items()}
    return _write_text(state, folder / "text.gguf"), _write_vision(state, processor, folder / "vision.gguf")


def _write_text(state: dict[str, np.ndarray], file: Path) -> Path:
    import gguf

    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(2048)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(64)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([word.replace(" ", "▁") for word in WORDS])
    writer.add_token_scores([0.0] * len(WORDS))
    special = gguf.TokenType.CONTROL
    writer.add_token_types([special if place <= IMAGE else gguf.TokenType.NORMAL for place in range(len(WORDS))])
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(END)
    writer.add_pad_token_id(PAD)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(_LLAMA_TEMPLATE)
    part = "language_model."
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attn_output"}
    names |= {f"self_attn.{each}_proj": f"attn_{each}" for each in "qkv"}
    names |= {f"mlp.{each}_proj": f"ffn_{each}" for each in ("gate", "up", "down")}
    tensors = {"token_embd": state[f"{part}embed_tokens.weight"], "output_norm": state[f"{part}norm.weight"]}
    tensors["output"] = state["lm_head.weight"]
    for layer in range(LAYERS):
        for theirs, ours in names.items():
            weight = state[f"{part}layers.{layer}.{theirs}.weight"]
            tensors[f"blk.{layer}.{ours}"] = _interleave(weight) if ours in ("attn_q", "attn_k") else weight
    return _save(writer, {f"{name}.weight": tensor for name, tensor in tensors.items()}, file)


def _interleave(weight: np.ndarray) -> np.ndarray:
    """Order the rows of a head as llama.cpp's rotary embedding pairs them."""
    return weight.reshape(HEADS, 2, -1, HIDDEN).swapaxes(1, 2).reshape(weight.shape)


def _write_vision(state: dict[str, np.ndarray], processor: Any, file: Path) -> Path:
    import gguf

    writer = gguf.GGUFWriter(str(file), "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)
    writer.add_string("clip.projector_type", "mlp")
    sizes = {"image_size": SIDE, "patch_size": PATCH, "embedding_length": HIDDEN, "feed_forward_length": 64}
    sizes |= {"block_count": LAYERS, "projection_dim": HIDDEN, "attention.head_count": HEADS}
    for name, value in sizes.items():
        writer.add_uint32(f"clip.vision.{name}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", EPSILON)
    writer.add_array("clip.vision.image_mean", list(processor.image_processor.image_mean))
    writer.add_array("clip.vision.image_std", list(processor.image_processor.image_std))
    names = {"layer_norm1": "ln1", "layer_norm2": "ln2", "self_attn.out_proj": "attn_out"}
    names |= {f"self_attn.{each}_proj": f"attn_{each}" for each in "qkv"} | {"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"}
    part = next(name.partition("embeddings.")[0] for name in state if name.endswith("patch_embedding.weight"))
    tensors = {
        "v.patch_embd.weight": state[f"{part}embeddings.patch_embedding.weight"],
        "v.patch_embd.bias": state[f"{part}embeddings.patch_embedding.bias"],
        "v.position_embd.weight": state[f"{part}embeddings.position_embedding.weight"],
    }
    for kind in ("weight", "bias"):
        for place, number in ((0, 1), (2, 2)):
            tensors[f"mm.{place}.{kind}"] = state[f"multi_modal_projector.linear_{number}.{kind}"]
        for layer in range(LAYERS):
            for theirs, ours in names.items():
                tensors[f"v.blk.{layer}.{ours}.{kind}"] = state[f"{part}encoder.layers.{layer}.{theirs}.{kind}"]
    return _save(writer, tensors, file)


def _save(writer: Any, tensors: dict[str, np.ndarray], file: Path) -> Path:
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@contextmanager
def serving(start: Callable[[Any], Popen[bytes]], url: str, log: Path) -> Iterator[str]:
    """A server in a process of its own, once it responds at /health."""
    with log.open("wb") as file:
        process = start(file)
        try:
            for _ in range(1200):
                assert process.poll() is None, log.read_text()[-2000:]
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield f"{url}/v1"
        finally:
            process.terminate()
            process.wait(20)
