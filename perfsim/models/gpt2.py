"""GPT-2 in the names of Hugging Face transformers (Radford et al. 2019), 1024 tokens."""

from __future__ import annotations

from functools import partial

from perfsim.models.layer import ModelLayer, embedding, layernorm, linear, matmul

__all__ = ["MODELS", "gpt2"]

VOCABULARY = 50257
TOKENS = 1024
SIZES = {
    "gpt2": (768, 12),
    "gpt2-medium": (1024, 24),
    "gpt2-large": (1280, 36),
    "gpt2-xl": (1600, 48),
}
"""Width and depth, by name."""


def gpt2(name: str) -> tuple[ModelLayer, ...]:
    """Return GPT-2 of one size; the output layer is tied to the word embedding, which is first."""
    width, depth = SIZES[name]
    layers = [
        embedding("transformer.wte", VOCABULARY, width, TOKENS),
        embedding("transformer.wpe", TOKENS, width, TOKENS),
    ]
    for block in range(depth):
        part = f"transformer.h.{block}"
        scores = 4.0 * TOKENS * TOKENS * width
        layers += [
            layernorm(f"{part}.ln_1", width, TOKENS),
            linear(f"{part}.attn.c_attn", width, 3 * width, TOKENS, transposed=True),
            matmul(f"{part}.attn", "attention", scores, TOKENS * width),
            linear(f"{part}.attn.c_proj", width, width, TOKENS, transposed=True),
            layernorm(f"{part}.ln_2", width, TOKENS),
            linear(f"{part}.mlp.c_fc", width, 4 * width, TOKENS, transposed=True),
            linear(f"{part}.mlp.c_proj", 4 * width, width, TOKENS, transposed=True),
        ]
    head = 2.0 * width * VOCABULARY * TOKENS
    layers += [
        layernorm("transformer.ln_f", width, TOKENS),
        matmul("lm_head", "linear", head, VOCABULARY * TOKENS),
    ]
    return tuple(layers)


MODELS = {name: partial(gpt2, name) for name in SIZES}
