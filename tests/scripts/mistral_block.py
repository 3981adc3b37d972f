"""A block of Mistral with adapters, as PEFT runs it and as perfsim counts it.

For the scripts that hold one against the other. It needs ``pip install torch
'transformers>=5.24,<6' peft``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import peft
import torch
import transformers
from passes_against_pytorch import ReadsAndWrites

from perfsim.compute.work import LayerWork, work_of
from perfsim.models.adapters import Adapters, with_adapters
from perfsim.models.language import Architecture, architecture_layers

__all__ = ["EACH", "RANK", "counted_block", "mistral", "moved", "run_block", "with_peft"]

HIDDEN, FFN, HEADS, GROUPS, TOKENS, RANK = 1024, 3584, 8, 2, 512, 2
"""Mistral 7B's proportions."""
EACH = TOKENS * HIDDEN
"""Values between two layers."""
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]

Counter = TypeVar("Counter", bound=ReadsAndWrites)


def mistral() -> Any:
    """Return a Mistral of two blocks in bf16."""
    sizes = {"hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "vocab_size": 512}
    config = transformers.MistralConfig(**sizes, head_dim=HIDDEN // HEADS, sliding_window=None)
    return transformers.AutoModel.from_config(config).to(torch.bfloat16)


def with_peft(model: Any, **options: bool) -> Any:
    """Return a model's body with adapters beside its attention, by PEFT, as it trains."""
    adapters = peft.LoraConfig(r=RANK, target_modules=TARGETS, lora_dropout=0.0)
    return peft.get_peft_model(model, adapters, **options).train().base_model.model


def run_block(
    body: Any, dtype: Any, counter: type[Counter], *, autocast: bool = False
) -> tuple[Counter, Counter]:
    """Run the second block forward and backward, and return what counted each.

    ``dtype`` is that of the values that it reads and writes.
    """
    values = torch.randn(1, TOKENS, HIDDEN, dtype=dtype, requires_grad=True)
    places = torch.arange(TOKENS)[None]
    turned = body.rotary_emb(values, places)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), counter() as forward:
        found = body.layers[1](
            values,
            attention_mask=None,
            position_ids=places,
            position_embeddings=turned,
            use_cache=False,
        )
    written = found[0] if isinstance(found, tuple) else found
    assert written.dtype == dtype
    with counter() as backward:
        written.backward(torch.ones_like(written))
    return forward, backward


def counted_block(adapters: Adapters, *, autocast: bool = False) -> list[LayerWork]:
    """Return the work of the layers of the same block, as perfsim counts it."""
    shape = Architecture(
        layers=2, hidden=HIDDEN, heads=HEADS, kv=GROUPS, head=HIDDEN // HEADS, ffn=FFN, vocab=512
    )
    layers = with_adapters(architecture_layers(shape, TOKENS), adapters)
    made = work_of(layers, "torch2", autocast=autocast)
    return [one for one in made.layers if ".1." in one.name]


def moved(block: Sequence[LayerWork], way: str) -> float:
    """Return what element-wise work moves, in bytes for a token and value of the hidden width.

    ``way`` is forward or backward. Factors of eager kernels are left out.
    """
    streams = (one for layer in block for one in getattr(layer, way) if one.kind == "stream")
    return sum((4 if one.wide else 2) * one.values for one in streams) / EACH
