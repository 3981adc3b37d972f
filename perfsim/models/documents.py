"""Packed samples: several documents in one, each of which attends to its own tokens alone.

A kernel of sequences of any length does it (FlashAttention's ``flash_attn_varlen_func``, the thd
layout of Transformer Engine, a block mask of FlexAttention), as NeMo's packed fine-tuning, trl with
``padding_free`` and torchtune's ``PackedDataset`` use them. Products, normalisations, positions and
the loss do not know of documents.

Of documents of d_i tokens, scores are sum(d_i^2), where they are sum(d_i)^2 without: as many as for
documents all alike of D = sum(d_i^2) / sum(d_i) tokens. That is the length of the document that a
token is in, on the mean of all tokens; it is longer than the mean document where lengths differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfsim.errors import RequestError
from perfsim.models.layers import ModelLayer

__all__ = ["within_documents"]


def within_documents(layers: Sequence[ModelLayer], tokens: int) -> tuple[ModelLayer, ...]:
    """Return the layers of a model with attention that stays within documents of ``tokens``.

    Documents as long as their sample change nothing.

    Raises
    ------
    RequestError
        If the model has no attention, attention between two texts, or shorter samples.

    Examples
    --------
    >>> from perfsim.models import build_model
    >>> work = lambda layers: sum(layer.flops for layer in layers if layer.kind == "attention")
    >>> whole = build_model("llama3-8b", 8192)
    >>> work(within_documents(whole, 512)) / work(whole) == 512 / 8192
    True
    """
    rows = {layer.rows for layer in layers if layer.kind == "attention"}
    if len(rows) != 1:
        why = (
            "is for transformers over one text a sample, whose attention stays in each document;"
            " leave it out."
        )
        raise RequestError("document_tokens", why, value=tokens)
    sample = rows.pop()
    if tokens > sample:
        why = f"{tokens:,} is above the {sample:,} tokens of a sample (`seq`) that documents are in"
        raise RequestError("document_tokens", f"{why}; give fewer.", value=tokens)
    if tokens == sample:
        return tuple(layers)
    return tuple(_within(layer, tokens) if layer.kind == "attention" else layer for layer in layers)


def _within(layer: ModelLayer, tokens: int) -> ModelLayer:
    """Return attention of a sample as that of its documents.

    Its window, a share of the sample, becomes one of a document.
    """
    part = tokens / layer.rows
    window = min(1.0, layer.window / part)
    share = _window_share(layer.causal, window) / _window_share(layer.causal, layer.window)
    return layer._replace(flops=layer.flops * part * share, window=window, document=tokens)


def _window_share(causal: bool, window: float) -> float:
    """Return which share of all scores a window leaves, masked or not (see `language`)."""
    return 2.0 * window - window**2 if causal else window
