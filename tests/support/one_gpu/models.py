"""Language models of Hugging Face with random weights and fake tokens, for ``calibrate compute``.

``perfsim calibrate compute --model support.one_gpu.models:gpt2_medium --batch 8 --sequence 1024``
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["gpt2_medium", "gpt2_xl", "llama_1b", "opt_1_3b"]

Made = tuple[Any, Callable[[], Any]]


def _causal(config: Any, batch: int, device: str, sequence: int) -> Made:
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config)
    tokens = torch.randint(config.vocab_size, (batch, sequence), device=device)
    return model, lambda of=model: of(tokens, labels=tokens, use_cache=False).loss


def gpt2_medium(batch: int, device: str, sequence: int = 1024) -> Made:
    """Return GPT-2 medium (Radford et al. 2019, table 2)."""
    from transformers import GPT2Config

    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16)
    return _causal(config, batch, device, sequence)


def gpt2_xl(batch: int, device: str, sequence: int = 1024) -> Made:
    """Return GPT-2 XL (Radford et al. 2019, table 2)."""
    from transformers import GPT2Config

    config = GPT2Config(n_embd=1600, n_layer=48, n_head=25)
    return _causal(config, batch, device, sequence)


def opt_1_3b(batch: int, device: str, sequence: int = 2048) -> Made:
    """Return OPT-1.3B (Zhang et al., arXiv 2205.01068, table 1)."""
    from transformers import OPTConfig

    config = OPTConfig(
        hidden_size=2048,
        num_hidden_layers=24,
        num_attention_heads=32,
        ffn_dim=8192,
        word_embed_proj_dim=2048,
    )
    return _causal(config, batch, device, sequence)


def llama_1b(batch: int, device: str, sequence: int = 2048) -> Made:
    """Return Llama 3.2 1B (its model card; meta-llama/llama-models)."""
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=2048,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=8192,
        vocab_size=128256,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
    )
    return _causal(config, batch, device, sequence)
