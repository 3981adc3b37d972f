"""Transformers in the tensor names of Hugging Face transformers (BERT, GPT-2) and timm (ViT).

``TRANSFORMERS`` lists all by the names that ``model`` takes. An output layer that is tied to the
word embedding has no matrix of its own: the embedding stands once, first, and its gradient is
complete when the backward pass ends.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from perfsim.errors import RequestError
from perfsim.models.layers import (
    HEAD_WIDTH,
    Activation,
    ModelBuilder,
    ModelLayer,
    attention,
    conv,
    embedding,
    layernorm,
    linear,
    matmul,
)

__all__ = [
    "GPT3_2_7B",
    "GPT3_XL",
    "OPT_1_3B",
    "TEXT_MODELS",
    "TRANSFORMERS",
    "DecoderSize",
    "bert",
    "decoder",
    "gpt2",
]

_BERT_VOCABULARY = 30522
_BERT_POSITIONS = 512
_BERT_SIZES = {"base": (768, 12), "large": (1024, 24)}
"""Width and depth, by size."""
_PRETRAINING_TOKENS = 64
_SQUAD_TOKENS = 384
_PREDICTED_SHARE = 20 / 128
"""Tokens that pre-training predicts: 20 of 128, 80 of 512 (google-research/bert, README.md)."""


def _check_tokens(model: str, tokens: int, positions: int) -> None:
    if not 1 <= tokens <= positions:
        raise RequestError(
            "seq", f"{model} has 1 to {positions} positions, found {tokens}.", value=tokens
        )


def _bert_block(name: str, width: int, tokens: int) -> list[ModelLayer]:
    part, heads = f"{name}.attention", width // HEAD_WIDTH
    inner = linear(f"{name}.intermediate.dense", width, 4 * width, tokens, split="column")
    return [
        *[
            linear(f"{part}.self.{one}", width, width, tokens, split="column", parts=heads)
            for one in ("query", "key", "value")
        ],
        attention(f"{part}.self", width, tokens, dropped=True),
        linear(f"{part}.output.dense", width, width, tokens, split="row"),
        layernorm(f"{part}.output.LayerNorm", width, tokens, added=True, dropped=True),
        inner._replace(activated=True),
        linear(f"{name}.output.dense", 4 * width, width, tokens, split="row"),
        layernorm(f"{name}.output.LayerNorm", width, tokens, added=True, dropped=True),
    ]


def _pretraining_heads(width: int, tokens: int) -> list[ModelLayer]:
    # The decoder's matrix is the word embedding: only its bias and its work are here.
    decoder = ModelLayer(
        "cls.predictions",
        "linear",
        (("cls.predictions.bias", (_BERT_VOCABULARY,)),),
        2.0 * width * _BERT_VOCABULARY * tokens,
        4.0 * _BERT_VOCABULARY * tokens,
        tokens,
        split="vocabulary",
    )
    masked = [
        linear("cls.predictions.transform.dense", width, width, tokens),
        layernorm("cls.predictions.transform.LayerNorm", width, tokens),
        decoder,
    ]
    return [
        linear("bert.pooler.dense", width, width),
        *(layer._replace(gathered=_PREDICTED_SHARE) for layer in masked),
        linear("cls.seq_relationship", width, 2),
    ]


def bert(
    size: str,
    squad: bool = False,
    tokens: int = _PRETRAINING_TOKENS,
    depth: int | None = None,
) -> tuple[ModelLayer, ...]:
    """Return BERT of one size on ``tokens`` tokens a sample.

    The pre-training heads at 64 tokens are the setting of HKBU's distributed-training benchmark
    (arXiv 2005.13247), which runs them on all tokens. ``squad`` has the span head instead, at 384
    tokens. The output layer of pre-training is tied to the word embedding. ``depth`` is the number
    of blocks, the size's own if None.

    Raises
    ------
    RequestError
        If ``tokens`` is beyond the positions that BERT learns.

    References
    ----------
    Devlin et al., arXiv 1810.04805.
    """
    _check_tokens(f"bert-{size}", tokens, _BERT_POSITIONS)
    width, own_depth = _BERT_SIZES[size]
    words = "bert.embeddings.word_embeddings"
    layers = [
        embedding(words, _BERT_VOCABULARY, width, tokens, split="vocabulary"),
        embedding("bert.embeddings.position_embeddings", _BERT_POSITIONS, width, tokens),
        embedding("bert.embeddings.token_type_embeddings", 2, width, tokens),
        layernorm("bert.embeddings.LayerNorm", width, tokens, added=True, dropped=True),
    ]
    for block in range(own_depth if depth is None else depth):
        layers += _bert_block(f"bert.encoder.layer.{block}", width, tokens)
    if squad:
        layers.append(linear("qa_outputs", width, 2, tokens))
    else:
        layers += _pretraining_heads(width, tokens)
    return tuple(layers)


class DecoderSize(NamedTuple):
    """Width and depth of a decoder over text, its heads, vocabulary and positions."""

    width: int
    depth: int
    heads: int
    vocabulary: int = 50257
    positions: int = 1024


_GPT2_SIZES = {
    "gpt2": DecoderSize(768, 12, 12),
    "gpt2-medium": DecoderSize(1024, 24, 16),
    "gpt2-large": DecoderSize(1280, 36, 20),
    "gpt2-xl": DecoderSize(1600, 48, 25),
}
GPT3_XL = DecoderSize(3072, 24, 24, positions=2048)
"""GPT-3 XL as NeuSight ran it (sitar-lab/NeuSight@6945927, scripts/asplos/label): 24 heads of 128,
as table 2.1 of Brown et al., arXiv 2005.14165 has them, which prints a width of 2048."""
GPT3_2_7B = DecoderSize(2560, 32, 32, positions=2048)
"""GPT-3 2.7B (Brown et al., arXiv 2005.14165, table 2.1)."""
OPT_1_3B = DecoderSize(2048, 24, 32, vocabulary=50272, positions=2048)
"""OPT-1.3B (Zhang et al., arXiv 2205.01068, table 1); two more positions are for padding."""


def gpt2(name: str, tokens: int = 1024) -> tuple[ModelLayer, ...]:
    """Return GPT-2 of one size; its output layer is tied to the word embedding.

    Raises
    ------
    RequestError
        If ``tokens`` is beyond the positions that GPT-2 learns.

    References
    ----------
    Radford et al. 2019, "Language models are unsupervised multitask learners".
    """
    return decoder(name, _GPT2_SIZES[name], tokens, activation="gelu_new")


def decoder(
    name: str, size: DecoderSize, tokens: int, *, activation: Activation = "one-kernel"
) -> tuple[ModelLayer, ...]:
    """Return a decoder built as GPT-2 is: normalised before each part, GELU, a tied output layer.

    ``activation`` says which GELU it is.

    Raises
    ------
    RequestError
        If ``tokens`` is beyond the positions that it learns.

    Examples
    --------
    >>> round(sum(layer.elements for layer in decoder("gpt3-2.7b", GPT3_2_7B, 2048)) / 1e9, 2)
    2.65
    """
    _check_tokens(name, tokens, size.positions)
    width = size.width
    layers = [
        embedding("transformer.wte", size.vocabulary, width, tokens, split="vocabulary"),
        embedding("transformer.wpe", size.positions, width, tokens),
    ]
    for block in range(size.depth):
        part = f"transformer.h.{block}"
        attended = attention(
            f"{part}.attn", width, tokens, heads=size.heads, causal=True, dropped=True
        )
        joint = linear(f"{part}.attn.c_attn", width, 3 * width, tokens, transposed=True)
        inner = linear(f"{part}.mlp.c_fc", width, 4 * width, tokens, transposed=True)
        first, second = (
            layernorm(f"{part}.{one}", width, tokens, added=True, dropped=True)
            for one in ("ln_1", "ln_2")
        )
        last = linear(f"{part}.mlp.c_proj", 4 * width, width, tokens, transposed=True, split="row")
        layers += [
            first._replace(module="layernorm"),
            joint._replace(split="column", parts=size.heads),
            attended,
            linear(f"{part}.attn.c_proj", width, width, tokens, transposed=True, split="row"),
            second._replace(module="layernorm"),
            inner._replace(activated=True, activation=activation, split="column", module="mlp"),
            last._replace(module="mlp"),
        ]
    head = 2.0 * width * size.vocabulary * tokens
    layers += [
        layernorm("transformer.ln_f", width, tokens),
        matmul("lm_head", "linear", head, size.vocabulary * tokens, tokens, split="vocabulary"),
    ]
    return tuple(layers)


_VIT_PATCHES = (224 // 16) ** 2
_VIT_SIZES = {"b": (768, 12), "l": (1024, 24)}
"""Width and depth, by size."""


def vit(size: str) -> tuple[ModelLayer, ...]:
    """Return a vision transformer of 16 x 16 patches for 224 x 224 images and 1000 classes.

    References
    ----------
    Dosovitskiy et al., arXiv 2010.11929.
    """
    width, depth = _VIT_SIZES[size]
    rows = _VIT_PATCHES + 1
    token = ModelLayer("cls_token", "parameter", (("cls_token", (1, 1, width)),), 0.0, 4.0 * width)
    positions = (("pos_embed", (1, rows, width)),)
    layers = [
        conv("patch_embed.proj", 3, width, 16, 14, bias=True),
        token,
        ModelLayer("pos_embed", "parameter", positions, 0.0, 4.0 * rows * width),
    ]
    for block in range(depth):
        name = f"blocks.{block}"
        joint = linear(f"{name}.attn.qkv", width, 3 * width, rows)
        inner = linear(f"{name}.mlp.fc1", width, 4 * width, rows)
        layers += [
            layernorm(f"{name}.norm1", width, rows, added=True),
            joint._replace(split="column", parts=width // HEAD_WIDTH),
            attention(f"{name}.attn", width, rows),
            linear(f"{name}.attn.proj", width, width, rows, split="row"),
            layernorm(f"{name}.norm2", width, rows, added=True),
            inner._replace(activated=True, split="column"),
            linear(f"{name}.mlp.fc2", 4 * width, width, rows, split="row"),
        ]
    layers += [layernorm("norm", width, rows), linear("head", width, 1000)]
    return tuple(layers)


TRANSFORMERS: dict[str, ModelBuilder] = {
    **{f"bert-{size}": partial(bert, size) for size in _BERT_SIZES},
    **{
        f"bert-{size}-squad": partial(bert, size, squad=True, tokens=_SQUAD_TOKENS)
        for size in _BERT_SIZES
    },
    **{name: partial(gpt2, name) for name in _GPT2_SIZES},
    **{f"vit-{size}16": partial(vit, size) for size in _VIT_SIZES},
}
"""Name of each network -> the function that returns its layers; those over text take ``tokens``."""

TEXT_MODELS = tuple(name for name in TRANSFORMERS if not name.startswith("vit"))
"""Names of the networks over text, whose tokens a sample can be chosen."""
