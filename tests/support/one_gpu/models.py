"""Language models of Hugging Face with random weights and fake tokens, for ``calibrate compute``.

``perfsim calibrate compute --model support.one_gpu.models:gpt2_medium --batch 8 --sequence 1024``
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

__all__ = ["gpt2_medium", "gpt2_xl", "llama_1b", "opt_1_3b"]


def _causal(
    config: str, sizes: dict[str, Any], batch: int, device: str, sequence: int
) -> tuple[Any, Callable[[], Any]]:
    """Return a model by its class of configuration and its sizes, and its loss."""
    import torch
    import transformers

    made = getattr(transformers, config)(**sizes)
    torch.manual_seed(1)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(made)
    tokens = torch.randint(made.vocab_size, (batch, sequence), device=device)
    return model, lambda of=model: of(tokens, labels=tokens, use_cache=False).loss


# Radford et al. 2019, table 2.
gpt2_medium = partial(_causal, "GPT2Config", {"n_embd": 1024, "n_layer": 24, "n_head": 16})
gpt2_xl = partial(_causal, "GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25})
# Zhang et al., arXiv 2205.01068, table 1.
opt_1_3b = partial(
    _causal,
    "OPTConfig",
    {
        "hidden_size": 2048,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "ffn_dim": 8192,
        "word_embed_proj_dim": 2048,
    },
)
# Llama 3.2 1B: its model card, meta-llama/llama-models.
llama_1b = partial(
    _causal,
    "LlamaConfig",
    {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
)
