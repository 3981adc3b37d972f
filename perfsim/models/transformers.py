"""Transformers in the tensor names of Hugging Face transformers (BERT, GPT-2) and timm (ViT).

``TRANSFORMERS`` lists all by the names that ``model`` takes. An output layer that is tied to the
word embedding has no matrix of its own: the embedding stands once, first, and its gradient is
complete when the backward pass ends.
"""

from __future__ import annotations

from functools import partial

from perfsim.models.layers import (
    ModelBuilder,
    ModelLayer,
    conv,
    embedding,
    layernorm,
    linear,
    matmul,
)

__all__ = ["TRANSFORMERS", "bert"]

_BERT_VOCABULARY = 30522
_BERT_POSITIONS = 512
_BERT_SIZES = {"base": (768, 12), "large": (1024, 24)}
"""Width and depth, by size."""
_PRETRAINING_TOKENS = 64
_SQUAD_TOKENS = 384


def _bert_block(name: str, width: int, tokens: int) -> list[ModelLayer]:
    attention = f"{name}.attention"
    scores = 4.0 * tokens * tokens * width
    return [
        linear(f"{attention}.self.query", width, width, tokens),
        linear(f"{attention}.self.key", width, width, tokens),
        linear(f"{attention}.self.value", width, width, tokens),
        matmul(f"{attention}.self", "attention", scores, tokens * width),
        linear(f"{attention}.output.dense", width, width, tokens),
        layernorm(f"{attention}.output.LayerNorm", width, tokens),
        linear(f"{name}.intermediate.dense", width, 4 * width, tokens),
        linear(f"{name}.output.dense", 4 * width, width, tokens),
        layernorm(f"{name}.output.LayerNorm", width, tokens),
    ]


def _pretraining_heads(width: int, tokens: int) -> list[ModelLayer]:
    # The decoder's matrix is the word embedding: only its bias and its work are here.
    decoder = ModelLayer(
        "cls.predictions",
        "linear",
        (("cls.predictions.bias", (_BERT_VOCABULARY,)),),
        2.0 * width * _BERT_VOCABULARY * tokens,
        4.0 * _BERT_VOCABULARY * tokens,
    )
    return [
        linear("bert.pooler.dense", width, width),
        linear("cls.predictions.transform.dense", width, width, tokens),
        layernorm("cls.predictions.transform.LayerNorm", width, tokens),
        decoder,
        linear("cls.seq_relationship", width, 2),
    ]


def bert(
    size: str, squad: bool = False, tokens: int = _PRETRAINING_TOKENS
) -> tuple[ModelLayer, ...]:
    """Return BERT of one size on ``tokens`` tokens a sample.

    The pre-training heads at 64 tokens are the setting of HKBU's distributed-training benchmark
    (arXiv 2005.13247); ``squad`` has the span head instead, at 384 tokens. The output layer of
    pre-training is tied to the word embedding.

    References
    ----------
    Devlin et al., arXiv 1810.04805.
    """
    width, depth = _BERT_SIZES[size]
    layers = [
        embedding("bert.embeddings.word_embeddings", _BERT_VOCABULARY, width, tokens),
        embedding("bert.embeddings.position_embeddings", _BERT_POSITIONS, width, tokens),
        embedding("bert.embeddings.token_type_embeddings", 2, width, tokens),
        layernorm("bert.embeddings.LayerNorm", width, tokens),
    ]
    for block in range(depth):
        layers += _bert_block(f"bert.encoder.layer.{block}", width, tokens)
    if squad:
        layers.append(linear("qa_outputs", width, 2, tokens))
    else:
        layers += _pretraining_heads(width, tokens)
    return tuple(layers)


_GPT2_VOCABULARY = 50257
_GPT2_TOKENS = 1024
_GPT2_SIZES = {
    "gpt2": (768, 12),
    "gpt2-medium": (1024, 24),
    "gpt2-large": (1280, 36),
    "gpt2-xl": (1600, 48),
}
"""Width and depth, by name."""


def gpt2(name: str) -> tuple[ModelLayer, ...]:
    """Return GPT-2 of one size at 1024 tokens; its output layer is tied to the word embedding.

    References
    ----------
    Radford et al. 2019, "Language models are unsupervised multitask learners".
    """
    width, depth = _GPT2_SIZES[name]
    layers = [
        embedding("transformer.wte", _GPT2_VOCABULARY, width, _GPT2_TOKENS),
        embedding("transformer.wpe", _GPT2_TOKENS, width, _GPT2_TOKENS),
    ]
    for block in range(depth):
        part = f"transformer.h.{block}"
        scores = 4.0 * _GPT2_TOKENS * _GPT2_TOKENS * width
        layers += [
            layernorm(f"{part}.ln_1", width, _GPT2_TOKENS),
            linear(f"{part}.attn.c_attn", width, 3 * width, _GPT2_TOKENS, transposed=True),
            matmul(f"{part}.attn", "attention", scores, _GPT2_TOKENS * width),
            linear(f"{part}.attn.c_proj", width, width, _GPT2_TOKENS, transposed=True),
            layernorm(f"{part}.ln_2", width, _GPT2_TOKENS),
            linear(f"{part}.mlp.c_fc", width, 4 * width, _GPT2_TOKENS, transposed=True),
            linear(f"{part}.mlp.c_proj", 4 * width, width, _GPT2_TOKENS, transposed=True),
        ]
    head = 2.0 * width * _GPT2_VOCABULARY * _GPT2_TOKENS
    layers += [
        layernorm("transformer.ln_f", width, _GPT2_TOKENS),
        matmul("lm_head", "linear", head, _GPT2_VOCABULARY * _GPT2_TOKENS),
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
        layers += [
            layernorm(f"{name}.norm1", width, rows),
            linear(f"{name}.attn.qkv", width, 3 * width, rows),
            matmul(f"{name}.attn", "attention", 4.0 * rows * rows * width, rows * width),
            linear(f"{name}.attn.proj", width, width, rows),
            layernorm(f"{name}.norm2", width, rows),
            linear(f"{name}.mlp.fc1", width, 4 * width, rows),
            linear(f"{name}.mlp.fc2", 4 * width, width, rows),
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
"""Name of each network -> the function of no arguments that returns its layers."""
