"""Hold activations against what PyTorch keeps for the backward pass of transformers' models.

``python tests/scripts/memory_against_pytorch.py [--types A,B]`` prints a line a ``model_type``, in
bf16 (16-bit parameters) and fp32: the bytes that perfsim counts for the eager software of today
over those that PyTorch's saved-tensor hooks see in one forward pass of `BATCH` x `TOKENS` tokens on
the CPU, for the network without its output layer. No cache of keys and values is filled, as the
Trainer of transformers trains (``use_cache`` of TrainingArguments, False). It needs
``pip install torch 'transformers>=5.24,<6'``. `memory_against_pytorch.txt` has what it printed
last.

Attention and dropout keep on a CPU what they do not keep on a GPU. Both are replaced by operations
that keep what the kernels for GPUs do: queries, keys, values, the output and a log-sum-exp a row
(PyTorch, ATen/native/transformers/cuda/attention.cu); a boolean mask. Autocast is not asked, as
the operations that it runs in fp32 are others on a CPU. Attention is what transformers runs by
default: for gemma2 and gpt_oss single operations, as PyTorch's one kernel neither caps scores nor
has sinks. T5's is that of transformers up to 5.0, which perfsim counts: single operations with a
softmax in fp32. Later ones hand PyTorch's kernel the bias as a mask.

``mask`` is bf16 with padded samples, as ``torch2+efficient`` says: transformers hands PyTorch's
kernel a mask, which is kept too, as numbers that are made of its booleans where it has these
(ATen/native/transformers/attention.cpp, convert_boolean_attn_mask); T5's is that of today. Kinds
that run single operations whatever the mask, and ViT, which takes none, have no such share.
Falcon's code makes a mask whether samples are padded or not, and so keeps it in each column.

Then come a few kinds whose dense layers (mlp) or experts (moe) are computed again, by PyTorch's
checkpoint of the module in each block. Megatron-LM's other parts discard what they write, which
PyTorch's checkpoint does not.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

from against_transformers import ABSENT, CLASSES, IMAGES, PAIRS, Config, a_config, layers_of

from perfsim.compute.execution import execution_of
from perfsim.compute.memory import activation_bytes
from perfsim.models.model_types import MODEL_TYPES

BATCH, TOKENS = 2, 512
PRECISIONS = ("bf16", "fp32")
SOFTWARE, WITH_A_MASK = "torch2", "torch2+efficient"
OUTPUT = ("lm_head", "cls.", "head", "discriminator_predictions")
"""How the names of output layers begin."""

AGAIN = {
    "mlp": ("llama", "gemma2", "cohere", "gpt2", "deepseek_v3"),
    "moe": ("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3"),
}
"""Parts that are computed again, and the kinds that are asked with each."""

_SIZES: Config = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim", "dim"), 512),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 8),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers"), 3),
    **dict.fromkeys(
        ("intermediate_size", "d_ff", "ffn_dim", "ffn_hidden_size", "hidden_dim"), 1536
    ),
    **dict.fromkeys(("head_dim", "d_kv", "v_head_dim", "qk_nope_head_dim"), 64),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 1024),
    "num_key_value_heads": 2,
    "num_kv_heads": 2,
    "kv_lora_rank": 128,
    "qk_rope_head_dim": 32,
    "rotary_dim": 32,
    "moe_intermediate_size": 256,
    "shared_expert_intermediate_size": 512,
    "embedding_size": 128,
    "moe_topk": 3,
    "first_k_dense_replace": 1,
    "moe_layer_start_index": 1,
    "global_attn_every_n_layers": 3,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "n_inner": None,
    "vocab_size": 512,
    "image_size": 128,
}
"""Sizes in the proportions of models that are trained, which the random files do not have."""


def proportioned(kind: str) -> Config:
    """Return a config.json of a kind whose widths stand to each other as in models of today."""
    config = a_config(kind, random.Random(f"0 {kind}"))
    own_heads = "kv_lora_rank" in config or config.get("num_kv_heads") == config.get(
        "num_attention_heads"
    )
    config |= {key: value for key, value in _SIZES.items() if key in config}
    if config.get("q_lora_rank"):
        config["q_lora_rank"] = 384
    if own_heads:
        config |= {key: 8 for key in ("num_key_value_heads", "num_kv_heads") if key in config}
    return config


def as_on_a_gpu() -> None:
    """Replace attention and dropout by operations that keep what the kernels for GPUs keep."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Any) -> Any:
            queries, _, values, *_ = tensors
            if queries.shape[-1] == values.shape[-1]:
                output = torch.empty_like(queries)
            else:
                batch, heads, tokens, _ = queries.shape
                output = queries.new_empty(batch, tokens, heads, values.shape[-1]).transpose(1, 2)
            ctx.save_for_backward(*tensors, output)
            return output

        @staticmethod
        def backward(ctx: Any, *_: Any) -> Any:
            return *(torch.zeros_like(one) for one in ctx.saved_tensors[:3]), None, None

    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Any, mask: Any) -> Any:
            ctx.save_for_backward(mask)
            return values.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0], None

    def attention(queries: Any, keys: Any, values: Any, attn_mask: Any = None, **_: Any) -> Any:
        sums = torch.zeros(queries.shape[:-1])
        if attn_mask is None:
            attn_mask = sums[..., :0]
        elif attn_mask.dtype == torch.bool:
            attn_mask = torch.where(attn_mask, 0.0, -torch.inf).to(queries.dtype)
        return Attention.apply(queries, keys, values, sums, attn_mask)

    def dropout(values: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        kept = torch.ones(values.shape, dtype=torch.bool)
        return Dropout.apply(values, kept) if training and p > 0 else values

    torch.nn.functional.scaled_dot_product_attention = attention
    torch.nn.functional.dropout = dropout


def biased_attention(
    module: Any, queries: Any, keys: Any, values: Any, mask: Any, **given: Any
) -> tuple[Any, Any]:
    """Return what T5's attention writes in transformers up to 5.0, and its weights."""
    import torch

    bias = given["position_bias"] if mask is None else given["position_bias"] + mask
    scores = queries @ keys.transpose(2, 3) + bias
    weights = scores.float().softmax(-1).type_as(scores)
    weights = torch.nn.functional.dropout(weights, given["dropout"], module.training)
    return (weights @ values).transpose(1, 2).contiguous(), weights


def compute_again(model: Any, part: str, config: Config) -> None:
    """Let the backward pass compute the dense layers or the experts of each block again."""
    from torch.utils.checkpoint import checkpoint

    dense = set(range(config.get("first_k_dense_replace") or 0))
    experts = any(key in config for key in ("num_local_experts", "num_experts", "n_routed_experts"))
    blocks = getattr(model, "layers", None) or model.h
    for index, block in enumerate(blocks):
        if (part == "moe") == (experts and index not in dense):
            inner = getattr(block, "mlp", None) or block.block_sparse_moe
            forward = inner.forward
            inner.forward = lambda *given, _run=forward: checkpoint(
                _run, *given, use_reentrant=True
            )


def by_pytorch(config: Config, precision: str, again: str = "none", *, padded: bool = False) -> int:
    """Return the bytes of all tensors that the backward pass of the body waits for."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    kind = config["model_type"]
    made = transformers.AutoConfig.for_model(**config)
    if kind == "mistral4":  # not among the automatic ones
        model = transformers.models.mistral4.Mistral4ForCausalLM._from_config(made).model
    else:
        transformers.AttentionInterface.register("biased", biased_attention)
        biased = kind in PAIRS and not padded
        own_attention = {"attn_implementation": "biased"} if biased else {}
        model = transformers.AutoModel.from_config(made, **own_attention)
    model = model.to(torch.bfloat16 if precision == "bf16" else torch.float32).train()
    if again != "none":
        compute_again(model, again, config)
    own = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}
    kept: dict[int, Any] = {}

    def keep(tensor: Any) -> None:
        # The graph gets nothing: an output that it saves would hold itself for ever.
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage

    words = torch.randint(0, 512, (BATCH, TOKENS))
    given: dict[str, Any] = {"input_ids": words}
    if kind in IMAGES:
        side = config["image_size"]
        given = {"pixel_values": torch.randn(BATCH, 3, side, side, dtype=model.dtype)}
    elif kind in PAIRS:  # the length of targets that perfsim takes (perfsim/models/language.py)
        given["decoder_input_ids"] = words[:, : TOKENS * 114 // 512]
    if kind not in CLASSES or kind in PAIRS:
        given["use_cache"] = False
    if padded:
        given["attention_mask"] = torch.ones(BATCH, TOKENS, dtype=torch.long)
        given["attention_mask"][0, -TOKENS // 4 :] = 0
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda nothing: nothing):
        model(**given)
    return sum(storage.nbytes() for storage in kept.values())


def masked_share(config: Config) -> float | None:
    """Return perfsim's bytes over PyTorch's where padding makes a mask; None where it makes none.

    None too where scores need single operations whatever the mask.
    """
    scores = {one.scores for one in layers_of(config, TOKENS) if one.kind == "attention"}
    one_kernel = all(execution_of(WITH_A_MASK).in_one_kernel(one) for one in scores)
    if config["model_type"] in IMAGES or not one_kernel or "alibi" in scores:
        return None
    mine = by_perfsim(config, PRECISIONS[0], software=WITH_A_MASK)
    return mine / by_pytorch(config, PRECISIONS[0], padded=True)


def by_perfsim(
    config: Config, precision: str, again: str = "none", *, software: str = SOFTWARE
) -> float:
    """Return what perfsim counts for the same layers."""
    layers = [one for one in layers_of(config, TOKENS) if not one.name.startswith(OUTPUT)]
    execution = execution_of(software)
    return activation_bytes(layers, BATCH, precision, execution, again, loss=False).kept


def main() -> None:
    """Print a line a kind: perfsim's bytes over PyTorch's, by precision."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--types", help="only these, separated by commas")
    given = parser.parse_args()
    as_on_a_gpu()
    import torch
    import transformers

    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    print(f"{'model_type':18}" + "".join(f"{one:>7}" for one in (*PRECISIONS, "mask")))
    for kind in given.types.split(",") if given.types else MODEL_TYPES:
        if kind in ABSENT:
            continue
        config = proportioned(kind)
        shares = [by_perfsim(config, one) / by_pytorch(config, one) for one in PRECISIONS]
        masked = masked_share(config)
        more = "" if masked is None else f"{masked:7.3f}"
        print(f"{kind:18}" + "".join(f"{share:7.3f}" for share in shares) + more, flush=True)
    for part, kinds in AGAIN.items():
        print(f"with --recompute {part}")
        for kind in kinds:
            config = proportioned(kind)
            shares = [
                by_perfsim(config, one, part) / by_pytorch(config, one, part) for one in PRECISIONS
            ]
            print(f"{kind:18}" + "".join(f"{share:7.3f}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
