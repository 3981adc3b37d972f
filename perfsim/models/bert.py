"""BERT in the names of Hugging Face transformers (Devlin et al., arXiv 1810.04805).

``bert-base`` and ``bert-large`` carry the two pre-training heads at 64 tokens (the setting of
HKBU's distributed-training benchmark, arXiv 2005.13247); ``-squad`` carries the span head at 384.
"""

from __future__ import annotations

from functools import partial

from perfsim.models.layer import (
    ModelLayer,
    embedding,
    layernorm,
    linear,
    matmul,
)

__all__ = ["MODELS", "bert"]

VOCABULARY = 30522
POSITIONS = 512
SIZES = {"base": (768, 12), "large": (1024, 24)}
"""Width and depth, by size."""
PRETRAINING_TOKENS = 64
SQUAD_TOKENS = 384


def _block(name: str, width: int, tokens: int) -> list[ModelLayer]:
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
    # The decoder's matrix is the word embedding: here stand its bias and its work.
    decoder = ModelLayer(
        "cls.predictions",
        "linear",
        (("cls.predictions.bias", (VOCABULARY,)),),
        2.0 * width * VOCABULARY * tokens,
        4.0 * VOCABULARY * tokens,
    )
    return [
        linear("bert.pooler.dense", width, width),
        linear("cls.predictions.transform.dense", width, width, tokens),
        layernorm("cls.predictions.transform.LayerNorm", width, tokens),
        decoder,
        linear("cls.seq_relationship", width, 2),
    ]


def bert(
    size: str, squad: bool = False, tokens: int = PRETRAINING_TOKENS
) -> tuple[ModelLayer, ...]:
    """Return BERT of one size on ``tokens`` tokens a sample.

    The output layer of pre-training is tied to the word embedding, which stands once, first:
    its gradient is complete when the backward pass ends.
    """
    width, depth = SIZES[size]
    layers = [
        embedding("bert.embeddings.word_embeddings", VOCABULARY, width, tokens),
        embedding("bert.embeddings.position_embeddings", POSITIONS, width, tokens),
        embedding("bert.embeddings.token_type_embeddings", 2, width, tokens),
        layernorm("bert.embeddings.LayerNorm", width, tokens),
    ]
    for block in range(depth):
        layers += _block(f"bert.encoder.layer.{block}", width, tokens)
    if squad:
        layers.append(linear("qa_outputs", width, 2, tokens))
    else:
        layers += _pretraining_heads(width, tokens)
    return tuple(layers)


MODELS = {f"bert-{size}": partial(bert, size) for size in SIZES} | {
    f"bert-{size}-squad": partial(bert, size, squad=True, tokens=SQUAD_TOKENS) for size in SIZES
}
