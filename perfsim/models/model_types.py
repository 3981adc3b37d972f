"""Kinds of models in config.json files of Hugging Face transformers, by their ``model_type``.

Keys, and what holds where a key is absent, are those of transformers 5.24.0
(huggingface/transformers, src/transformers/models/<model_type>/configuration_<model_type>.py).
Numbers that every file has (layers, width, heads, vocabulary) are needed. The layers follow
modeling_<model_type>.py beside it: Falcon's ALiBi costs what rotary positions cost, a router's
correction bias is no parameter, and a module that predicts a second token is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from perfsim.errors import shown
from perfsim.models.config_keys import MAX_TOKENS, ConfigKeys
from perfsim.models.language import Architecture, Bias, Norm
from perfsim.models.layers import Activation
from perfsim.models.limits import MAX_NUMBER

__all__ = ["MODEL_TYPES", "UNPRICED"]


def _llama_like(
    config: ConfigKeys,
    *,
    kv: int | None = None,
    head: int | None = None,
    positions: int = 2048,
    tied: bool = False,
    bias: Bias = "none",
    act: str = "silu",
) -> Architecture:
    """Return a decoder with Llama's keys; ``kv`` to ``act`` hold where a key is absent."""
    by_head = head if head and not config.has("head_dim") else 0
    return Architecture(
        layers=config.layers("num_hidden_layers"),
        hidden=config.count("hidden_size"),
        heads=config.count("num_attention_heads"),
        kv=config.shared_heads("num_key_value_heads", "num_attention_heads", kv),
        head=by_head or config.head("hidden_size", "num_attention_heads", "head_dim"),
        ffn=config.count("intermediate_size"),
        vocab=config.count("vocab_size"),
        seq=config.tokens("max_position_embeddings", positions),
        tied=config.switch("tie_word_embeddings", tied),
        bias=bias,
        activation=_activation(config, "hidden_act", act),
    )


_STATED: tuple[Activation, ...] = tuple(
    name for name in get_args(Activation) if name not in ("one-kernel", "clamped_swiglu")
)
"""Activations that differ from those of one kernel, as a key states them."""


def _activation(config: ConfigKeys, key: str, absent: str) -> Activation:
    """Return the activation that a key names; any that PyTorch has a kernel for is alike."""
    stated = config.text(key, absent)
    return next((name for name in _STATED if name == stated), "one-kernel")


def _with_dropout(
    config: ConfigKeys, made: Architecture, stream: str, scores: str, absent: tuple[float, float]
) -> Architecture:
    """Return the shape with the dropout that keys state.

    ``stream`` is the key of what a block adds, ``scores`` that of attention's scores; ``absent``
    are the shares that they drop where the keys are absent. Dropped scores alone are left out.
    """
    drops = config.share(stream, absent[0]) > 0.0
    both = drops and config.share(scores, absent[1]) > 0.0
    return made._replace(dropout=both, residual_dropout=drops and not both)


def _bias(config: ConfigKeys, which: Bias, key: str, absent: bool = False) -> Bias:
    """Return ``which`` if the key says that there are biases; ``absent`` holds without the key."""
    return which if config.switch(key, absent) else "none"


def _attention_bias(config: ConfigKeys) -> Bias:
    return _bias(config, "attention", "attention_bias")


def _window(config: ConfigKeys, absent: int | None = None) -> int:
    """Return the window of attention; 0 for all tokens, as where the key is null."""
    return config.count("sliding_window", absent, 0, least=0)


def _biases(config: ConfigKeys) -> Bias:
    """Return which products have biases, by the keys ``attention_bias`` and ``mlp_bias``."""
    attention, forward = config.switch("attention_bias", False), config.switch("mlp_bias", False)
    if attention:
        return "all" if forward else "attention"
    return "ffn" if forward else "none"


def _llama(config: ConfigKeys) -> Architecture:
    return _llama_like(config, bias=_biases(config))


def _arcee(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, positions=4096, bias=_biases(config), act="relu2")
    return made._replace(gated=False)


def _nemotron(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, positions=4096, bias=_biases(config), act="relu2")
    return made._replace(norm="layer", gated=False, partial_rotary=True)


def _smollm3(config: ConfigKeys) -> Architecture:
    config.only("use_sliding_window", False)
    return _llama_like(config, kv=4, positions=32768, tied=True, bias=_biases(config))


def _ernie(config: ConfigKeys) -> Architecture:
    bias = _bias(config, "all", "use_bias")
    return _llama_like(config, kv=2, head=128, positions=131072, tied=True, bias=bias)


def _ernie_moe(config: ConfigKeys) -> Architecture:
    config.only("use_bias", False)
    config.only("moe_layer_interval", 1)
    made = _llama_like(config, kv=4, positions=131072, tied=True)._replace(router_fp32=True)
    last = made.layers - 1
    if config.count("moe_layer_end_index", -1, -1, least=-1) not in (-1, last):
        config.wrong("moe_layer_end_index", f"needs to be -1 or the last layer, {last}")
    experts = config.count("moe_num_experts", 64)
    return made._replace(
        experts=experts,
        topk=config.count("moe_k", 6, most=experts),
        expert_ffn=config.count("moe_intermediate_size", 1536),
        shared=config.count("moe_num_shared_experts", 2, least=0),
        dense=config.count("moe_layer_start_index", 1, least=0),
    )


def _seed(config: ConfigKeys) -> Architecture:
    """Return Seed-OSS, whose output projection has a switch of its own for its bias."""
    inputs, output = config.switch("attention_bias", True), "attention_out_bias"
    forward = config.switch("mlp_bias", False)
    # Query, key and value; output; dense layers.
    known: dict[tuple[bool, bool, bool], Bias] = {
        (False, False, False): "none",
        (True, False, False): "qkv",
        (True, True, False): "attention",
        (False, False, True): "ffn",
        (True, True, True): "all",
    }
    bias = known.get((inputs, config.switch(output, False), forward))
    if bias is None:
        config.wrong(output, "goes with attention_bias, and mlp_bias with both or neither")
    made = _llama_like(config, kv=8, head=128, positions=524288, bias=bias)
    return _with_dropout(config, made, "residual_dropout", "attention_dropout", (0.1, 0.1))


def _stablelm(config: ConfigKeys) -> Architecture:
    config.only("qk_layernorm", False)
    bias = _bias(config, "qkv", "use_qkv_bias")
    norms = 1 if config.switch("use_parallel_residual", False) else 2
    made = _llama_like(config, kv=32, positions=4096, bias=bias)
    made = made._replace(norm="layer", norms=norms, partial_rotary=True)
    return _with_dropout(config, made, "hidden_dropout", "attention_dropout", (0.0, 0.0))


def _starcoder2(config: ConfigKeys) -> Architecture:
    bias = _bias(config, "all", "use_bias", True)
    made = _llama_like(config, kv=2, positions=4096, tied=True, bias=bias)
    made = made._replace(norm="layer", gated=False, window=_window(config))
    return _with_dropout(config, made, "residual_dropout", "attention_dropout", (0.0, 0.0))


def _phi(config: ConfigKeys) -> Architecture:
    """Return Phi-1 to Phi-2: attention and the rest of a block work beside each other."""
    config.only("qk_layernorm", False)
    made = _llama_like(config, bias="all", act="gelu_new")
    made = made._replace(norm="layer", norms=1, gated=False, head_bias=True, partial_rotary=True)
    return _with_dropout(config, made, "resid_pdrop", "attention_dropout", (0.0, 0.0))


def _falcon(config: ConfigKeys) -> Architecture:
    width = config.count("ffn_hidden_size", None, 4 * config.count("hidden_size"))
    made = _classic(config, width)
    new = config.switch("new_decoder_architecture", False)
    beside = config.switch("parallel_attn", True)
    one = config.count("num_ln_in_parallel_attn", None, 2 if new else 1) == 1
    kv = made.heads
    if new:
        kv = config.shared_heads("num_kv_heads", "num_attention_heads")
    elif config.switch("multi_query", True):
        kv = 1
    made = _with_dropout(config, made, "hidden_dropout", "attention_dropout", (0.0, 0.0))
    return made._replace(
        kv=kv,
        activation=_activation(config, "activation", "gelu"),
        fused_qkv=True,
        vocab=config.count("vocab_size"),
        seq=config.tokens("max_position_embeddings", 2048),
        norms=1 if beside and one else 2,
        parallel=beside and not one,
        bias=_bias(config, "all", "bias"),
        tied=config.switch("tie_word_embeddings", True),
    )


def _command(config: ConfigKeys) -> Architecture:
    """Return Command R: attention and the rest of a block work beside each other."""
    made = _llama_like(config, positions=8192, tied=True, bias=_attention_bias(config))
    return made._replace(norm="layer-fp32", norms=1)


def _cohere(config: ConfigKeys) -> Architecture:
    """Return Command R: each head's queries and keys have weights of their own to normalise by."""
    normed = config.switch("use_qk_norm", False)
    return _command(config)._replace(qk_norm=normed, qk_norm_all=normed)


def _cohere2(config: ConfigKeys) -> Architecture:
    made = _command(config)
    return _windowed(config, made, _all_but_each(config, made, 4))


def _olmo(config: ConfigKeys) -> Architecture:
    """Return OLMo 1, whose positions are turned in fp32, which is priced as in 16 bits."""
    config.only("clip_qkv", None)
    made = _llama_like(config, bias=_attention_bias(config))
    return made._replace(norm="layer-without-weight")


def _olmo2(config: ConfigKeys) -> Architecture:
    """Return OLMo 2, which normalises behind attention and products: that costs the same."""
    made = _llama_like(config, bias=_attention_bias(config))
    return made._replace(norm="rms-fp32", qk_norm=True, qk_norm_all=True)


def _olmo3(config: ConfigKeys) -> Architecture:
    made = _olmo2(config)
    return _windowed(config, made, made.layers - made.layers // 4)


def _olmoe(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, positions=4096, bias=_attention_bias(config))
    made = made._replace(qk_norm=True, qk_norm_all=True)
    return _local_experts(config, made, 64, 8, key="num_experts")


def _exaone4(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, kv=32)._replace(qk_norm=True)
    if config.has("layer_types"):  # the pattern may be a word such as LLLG there
        return _windowed(config, made, 0)
    return _windowed(config, made, _all_but_each(config, made, 4))


def _apertus(config: ConfigKeys) -> Architecture:
    """Return Apertus, without the two numbers that each block's activation learns."""
    made = _llama_like(config, positions=65536, bias=_attention_bias(config), act="xielu")
    return made._replace(gated=False, qk_norm=True)


def _hunyuan(config: ConfigKeys) -> Architecture:
    return _llama_like(config, bias=_attention_bias(config))._replace(qk_norm=True)


def _hunyuan_moe(config: ConfigKeys) -> Architecture:
    """Return Hunyuan, each block of which has a dense layer as wide as its experts beside them."""
    made = _hunyuan(config)._replace(shared=1)
    experts = config.repeated("num_experts", 1)
    topk = config.repeated("moe_topk", 1, most=experts)
    return made._replace(experts=experts, topk=topk, expert_ffn=made.ffn)


def _helium(config: ConfigKeys) -> Architecture:
    config.only("mlp_bias", False)
    bias = _bias(config, "qkv", "attention_bias")
    made = _llama_like(config, kv=20, head=128, positions=4096, bias=bias)
    if made.heads * made.head != made.hidden:
        why = f"is {made.head}: {made.heads} heads are not as wide as hidden_size {made.hidden}"
        config.wrong("head_dim", why)
    return made._replace(norm="rms-fp32")


def _nanochat(config: ConfigKeys) -> Architecture:
    """Return nanochat: no normalisation has a weight, and embeddings are normalised too."""
    made = _llama_like(config, bias=_attention_bias(config), act="relu2")
    made = made._replace(norm="rms-without-weight", gated=False, qk_norm=True)
    return made._replace(embedding_norm=True)


def _mistral(config: ConfigKeys) -> Architecture:
    return _llama_like(config, kv=8, positions=131072)._replace(window=_window(config, 4096))


def _ministral(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, kv=8, positions=131072)
    return _windowed(config, made, made.layers)


def _ministral3(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, kv=8, head=128, positions=262144)
    return made._replace(window=_window(config))


def _local_experts(
    config: ConfigKeys,
    made: Architecture,
    experts: int,
    topk: int,
    key: str = "num_local_experts",
) -> Architecture:
    """Return the shape with experts as wide as its dense layer would be, in every layer.

    There are ``experts`` where ``key`` is absent, and ``topk`` of them work for a token where
    ``num_experts_per_tok`` is.
    """
    experts = config.count(key, experts)
    return made._replace(
        experts=experts,
        topk=config.count("num_experts_per_tok", topk, most=experts),
        expert_ffn=made.ffn,
    )


def _mixtral(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, kv=8, positions=131072)
    return _local_experts(config, made._replace(window=_window(config)), 8, 2)


def _granitemoe(config: ConfigKeys) -> Architecture:
    return _local_experts(config, _llama_like(config, bias=_attention_bias(config)), 8, 2)


def _phimoe(config: ConfigKeys) -> Architecture:
    """Return Phi-3.5-MoE; how its router draws experts costs what another's softmax does."""
    made = _llama_like(config, kv=8, positions=131072, bias=_attention_bias(config))
    made = made._replace(norm="layer", head_bias=config.switch("lm_head_bias", False))
    return _local_experts(config, made._replace(window=_window(config)), 16, 2)


def _gpt_oss(config: ConfigKeys) -> Architecture:
    """Return gpt-oss, without biases of experts and attention sinks (0.04 % of the parameters)."""
    config.only("attention_bias", True)
    made = _llama_like(config, kv=8, head=64, positions=131072, bias="all")
    made = made._replace(norm="rms-fp32", sinks=True)
    made = _windowed(config, made, (made.layers + 1) // 2, absent=128)
    return _local_experts(config, made, 128, 4)


def _minimax_m2(config: ConfigKeys) -> Architecture:
    config.only("use_qk_norm", True)
    config.only("shared_intermediate_size", 0)
    made = _llama_like(config, kv=8, head=128, positions=196608)
    made = made._replace(partial_rotary=True)
    return _local_experts(config, made._replace(qk_norm=True, qk_norm_all=True), 256, 8)


def _qwen2(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, kv=32, positions=32768, bias="qkv")
    return _qwen_window(config, made)


def _qwen3(config: ConfigKeys) -> Architecture:
    bias = _attention_bias(config)
    made = _llama_like(config, kv=32, head=128, positions=32768, bias=bias)
    return _qwen_window(config, made._replace(qk_norm=True))


def _qwen_window(config: ConfigKeys, made: Architecture) -> Architecture:
    """Return the shape with Qwen's sliding windows, which the last layers have if any."""
    if not config.switch("use_sliding_window", False):
        return made
    full = min(config.count("max_window_layers", 28, least=0), made.layers)
    return _windowed(config, made, made.layers - full)


def _all_but_each(config: ConfigKeys, made: Architecture, pattern: int) -> int:
    """Return how many layers slide: all but every n-th, by ``sliding_window_pattern``."""
    return made.layers - made.layers // config.count("sliding_window_pattern", pattern)


def _windowed(
    config: ConfigKeys, made: Architecture, sliding: int, absent: int = 4096
) -> Architecture:
    """Return the shape with a window in ``sliding`` layers, or in those of ``layer_types``.

    The work depends on how many there are, not on which. ``absent`` is the window where the key is
    absent.
    """
    window = _window(config, absent)
    kinds = config.words("layer_types")
    if kinds:
        known = ("full_attention", "sliding_attention")
        if len(kinds) != made.layers or any(kind not in known for kind in kinds):
            config.wrong("layer_types", f"needs one of {', '.join(known)} for each layer")
        sliding = kinds.count("sliding_attention")
    if not window or not sliding:
        return made
    every, full = made.layers // sliding, made.layers - sliding
    if made.layers // every == sliding:
        return made._replace(window=window, window_every=every)
    if made.layers // (made.layers // full) == full:
        return made._replace(window=window, full_every=made.layers // full)
    key = "layer_types" if kinds else "max_window_layers"
    config.wrong(
        key,
        f"gives {sliding} of {made.layers} layers a window; perfsim knows one in n, or all but"
        " one in n",
    )


def _qwen2_moe(config: ConfigKeys) -> Architecture:
    bias = _bias(config, "qkv", "qkv_bias", True)
    made = _qwen_experts(
        config, _llama_like(config, kv=16, positions=32768, bias=bias), 60, 4, 1408
    )
    wide = config.count("shared_expert_intermediate_size", 5632)
    if wide % made.expert_ffn:
        why = f"is {wide}, which moe_intermediate_size {made.expert_ffn} does not divide"
        config.wrong("shared_expert_intermediate_size", why)
    return made._replace(shared=wide // made.expert_ffn, shared_gate=True)


def _qwen3_moe(config: ConfigKeys) -> Architecture:
    bias = _attention_bias(config)
    made = _llama_like(config, kv=4, positions=32768, bias=bias)._replace(qk_norm=True)
    return _qwen_experts(config, made, 128, 8, 768)


def _qwen_experts(
    config: ConfigKeys, made: Architecture, experts: int, topk: int, width: int
) -> Architecture:
    """Return the shape with Qwen's experts, as many and as wide where keys are absent."""
    config.only("use_sliding_window", False)
    config.only("decoder_sparse_step", 1)
    dense = config.words("mlp_only_layers")
    if dense != list(range(len(dense))):
        config.wrong("mlp_only_layers", f"is {shown(dense)}; perfsim knows the first layers only")
    key = "num_experts" if config.has("num_experts") else "num_local_experts"
    experts = config.count(key, experts)
    return made._replace(
        experts=experts,
        topk=config.count("num_experts_per_tok", topk, most=experts),
        expert_ffn=config.count("moe_intermediate_size", width),
        dense=len(dense),
    )


def _gemma(config: ConfigKeys) -> Architecture:
    bias = _attention_bias(config)
    made = _llama_like(config, kv=16, head=256, positions=8192, tied=True, bias=bias)
    return made._replace(norm="rms-fp32")


def _gemma2(config: ConfigKeys) -> Architecture:
    bias = _attention_bias(config)
    made = _llama_like(config, kv=4, head=256, positions=8192, tied=True, bias=bias)
    softcap = config.share("attn_logit_softcapping", 50.0, most=MAX_NUMBER) > 0.0
    made = made._replace(norm="rms-fp32", norms=4, softcap=softcap)
    made = made._replace(activation=_activation(config, "hidden_activation", "gelu_pytorch_tanh"))
    return _windowed(config, made, (made.layers + 1) // 2)


def _gemma3(config: ConfigKeys) -> Architecture:
    config.only("use_bidirectional_attention", False)
    bias = _attention_bias(config)
    made = _llama_like(config, kv=4, head=256, positions=131072, tied=True, bias=bias)
    made = made._replace(norm="rms-fp32", norms=4, qk_norm=True)
    made = made._replace(activation=_activation(config, "hidden_activation", "gelu_pytorch_tanh"))
    return _windowed(config, made, _all_but_each(config, made, 6))


def _glm(config: ConfigKeys) -> Architecture:
    bias = _bias(config, "qkv", "attention_bias", True)
    made = _llama_like(config, kv=2, head=128, positions=131072, bias=bias)
    return made._replace(partial_rotary=True)


def _glm4(config: ConfigKeys) -> Architecture:
    return _glm(config)._replace(norms=4)


def _glm4_moe(config: ConfigKeys) -> Architecture:
    bias = _bias(config, "qkv", "attention_bias")
    made = _llama_like(config, kv=8, positions=131072, bias=bias)
    normed = config.switch("use_qk_norm", False)
    made = made._replace(qk_norm=normed, router_fp32=True, partial_rotary=True)
    return _routed(config, made, experts=128, topk=8, width=1408, shared=1, dense=1)


def _dots1(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, bias=_attention_bias(config))
    made = made._replace(qk_norm=True, router_fp32=True)
    full = min(config.count("max_window_layers", 62, least=0), made.layers)
    return _routed(config, _windowed(config, made, made.layers - full), width=1408)


def _phi3(config: ConfigKeys) -> Architecture:
    made = _llama_like(config, positions=4096)
    made = made._replace(window=_window(config), fused_qkv=True, partial_rotary=True)
    return _with_dropout(config, made, "resid_pdrop", "attention_dropout", (0.0, 0.0))


def _routed(
    config: ConfigKeys,
    made: Architecture,
    *,
    experts: int | None = None,
    topk: int | None = None,
    width: int | None = None,
    shared: int = 0,
    dense: int = 0,
    groups: tuple[int, int] = (1, 1),
) -> Architecture:
    """Return the shape with experts in DeepSeek's keys.

    ``experts`` to ``groups`` (and how many of them work for a token) hold where keys are absent.
    """
    experts = config.count("n_routed_experts", experts)
    of = config.count("n_group", groups[0], 1)
    some = config.count("topk_group", groups[1], 1, most=of)
    return made._replace(
        experts=experts,
        groups=of if some < of else 0,
        topk_groups=some if some < of else 0,
        topk=config.count("num_experts_per_tok", topk, most=experts),
        expert_ffn=config.count("moe_intermediate_size", width),
        shared=config.count("n_shared_experts", shared, 0, least=0),
        dense=config.count("first_k_dense_replace", dense, 0, least=0),
    )


def _latent(
    config: ConfigKeys,
    *,
    positions: int,
    queries: int = 1536,
    keys: int = 512,
    heads: tuple[int, int] = (128, 128),
) -> Architecture:
    """Return a decoder with DeepSeek's attention.

    ``positions``, the widths of ``queries`` and ``keys``, and of keys and values of ``heads`` hold
    where keys are absent.
    """
    config.only("attention_bias", False)
    number = config.count("num_attention_heads")
    width = config.count("qk_nope_head_dim", heads[0])
    value = config.count("v_head_dim", heads[1])
    return Architecture(
        layers=config.layers("num_hidden_layers"),
        hidden=config.count("hidden_size"),
        heads=number,
        kv=number,
        head=width,
        value=0 if value == width else value,
        ffn=config.count("intermediate_size"),
        vocab=config.count("vocab_size"),
        seq=config.tokens("max_position_embeddings", positions),
        tied=config.switch("tie_word_embeddings", False),
        kv_rank=config.count("kv_lora_rank", keys),
        q_rank=config.count("q_lora_rank", queries, 0, least=0),
        rope=config.count("qk_rope_head_dim", 64),
        activation=_activation(config, "hidden_act", "silu"),
    )


def _deepseek_v2(config: ConfigKeys) -> Architecture:
    config.only("mlp_bias", False)
    config.only("moe_layer_freq", 1)
    made = _latent(config, positions=2048)._replace(router_fp32=True)
    return _routed(config, made, shared=2)


def _deepseek_v3(config: ConfigKeys) -> Architecture:
    config.only("moe_layer_freq", 1)
    made = _latent(config, positions=4096)._replace(router_fp32=True)
    return _routed(config, made, topk=8, shared=1, dense=3, groups=(8, 4))


def _mistral4(config: ConfigKeys) -> Architecture:
    made = _latent(config, positions=1048576, queries=1024, keys=256, heads=(64, 128))
    return _routed(config, made, experts=128, topk=4, width=2048, shared=1)


def _glm4_moe_lite(config: ConfigKeys) -> Architecture:
    kinds = config.words("mlp_layer_types")
    dense = kinds.count("dense") if kinds else 1
    made = _latent(config, positions=202752, queries=768, heads=(192, 256))
    made = made._replace(router_fp32=True)
    if kinds and kinds != ["dense"] * dense + ["sparse"] * (made.layers - dense):
        config.wrong("mlp_layer_types", "needs dense for the first layers, sparse for the others")
    made = _routed(config, made, experts=64, topk=4, width=1536, shared=1)
    return made._replace(dense=dense)


def _as_gpt2(config: ConfigKeys, tied: bool, dropped: float) -> Architecture:
    """Return a decoder with GPT-2's keys; ``dropped`` is what dropouts without a key drop."""
    hidden, heads = config.count("n_embd"), config.count("n_head")
    made = Architecture(
        layers=config.layers("n_layer"),
        hidden=hidden,
        heads=heads,
        kv=heads,
        head=config.head("n_embd", "n_head"),
        ffn=config.count("n_inner", None, 4 * hidden),
        vocab=config.count("vocab_size"),
        norm="layer",
        gated=False,
        tied=config.switch("tie_word_embeddings", tied),
        activation=_activation(config, "activation_function", "gelu_new"),
    )
    return _with_dropout(config, made, "resid_pdrop", "attn_pdrop", (dropped, dropped))


def _gpt2(config: ConfigKeys) -> Architecture:
    config.only("add_cross_attention", False)
    made = _as_gpt2(config, tied=True, dropped=0.1)._replace(bias="all")
    positions = config.count("n_positions", 1024)
    return made._replace(positions=positions, seq=min(positions, MAX_TOKENS))


def _gptj(config: ConfigKeys) -> Architecture:
    """Return GPT-J, or CodeGen, which has one product for queries, keys and values."""
    made = _as_gpt2(config, tied=False, dropped=0.0)._replace(
        seq=config.tokens("n_positions", 2048)
    )
    return made._replace(bias="ffn", norms=1, head_bias=True)


def _gpt_bigcode(config: ConfigKeys) -> Architecture:
    """Return StarCoder and SantaCoder: GPT-2 whose heads share their keys and values."""
    made = _gpt2(config)
    kv = 1 if config.switch("multi_query", True) else made.heads
    return made._replace(kv=kv, activation=_activation(config, "activation_function", "gelu"))


def _bloom(config: ConfigKeys) -> Architecture:
    """Return BLOOM, whose activation keeps its input alone, and is priced as one kernel."""
    config.only("apply_residual_connection_post_layernorm", False)
    hidden, heads = config.count("hidden_size"), config.count("n_head")
    made = Architecture(
        layers=config.layers("n_layer"),
        hidden=hidden,
        heads=heads,
        kv=heads,
        head=config.head("hidden_size", "n_head"),
        ffn=4 * hidden,
        vocab=config.count("vocab_size"),
        seq=config.tokens("seq_length", _BLOOM_TOKENS),
        norm="layer",
        gated=False,
        bias="all",
        tied=config.switch("tie_word_embeddings", True),
        alibi=True,
        embedding_norm=True,
    )
    return _with_dropout(config, made, "hidden_dropout", "attention_dropout", (0.0, 0.0))


_BLOOM_TOKENS = 2048
"""Tokens of a sample in BLOOM's training (bigscience-workshop/bigscience@9e64edec,
train/tr11-176B-ml/README.md)."""


def _classic(config: ConfigKeys, ffn: int | None = None) -> Architecture:
    """Return a transformer with biases and layer normalisation, in the older keys.

    ``ffn`` is the width of its dense layers where ``intermediate_size`` does not state it.
    """
    heads = config.count("num_attention_heads")
    return Architecture(
        layers=config.layers("num_hidden_layers"),
        hidden=config.count("hidden_size"),
        heads=heads,
        kv=heads,
        head=config.head("hidden_size", "num_attention_heads"),
        ffn=config.count("intermediate_size") if ffn is None else ffn,
        vocab=1,
        norm="layer",
        gated=False,
        bias="all",
    )


def _gpt_neox(config: ConfigKeys) -> Architecture:
    made = _classic(config)
    made = _with_dropout(config, made, "hidden_dropout", "attention_dropout", (0.0, 0.0))
    return made._replace(
        vocab=config.count("vocab_size"),
        activation=_activation(config, "hidden_act", "gelu"),
        fused_qkv=True,
        partial_rotary=True,
        parallel=config.switch("use_parallel_residual", True),
        seq=config.tokens("max_position_embeddings", 2048),
        bias="all" if config.switch("attention_bias", True) else "ffn",
        tied=config.switch("tie_word_embeddings", False),
    )


_OPT_SHIFT = 2
"""Positions that OPT learns besides those of tokens (modeling_opt.py)."""


def _opt(config: ConfigKeys) -> Architecture:
    config.only("do_layer_norm_before", True)
    config.only("_remove_final_layer_norm", False)
    config.only("layer_norm_elementwise_affine", True)
    made = _classic(config, config.count("ffn_dim"))
    projected = config.count("word_embed_proj_dim", made.hidden, made.hidden)
    if projected != made.hidden:
        why = f"is {projected}; perfsim knows hidden_size {made.hidden} only"
        config.wrong("word_embed_proj_dim", why)
    positions = config.count("max_position_embeddings", 2048)
    made = _with_dropout(config, made, "dropout", "attention_dropout", (0.1, 0.0))
    return made._replace(
        vocab=config.count("vocab_size"),
        positions=positions + _OPT_SHIFT,
        spare=_OPT_SHIFT,
        seq=min(positions, MAX_TOKENS),
        bias=_bias(config, "all", "enable_bias", True),
        activation=_activation(config, "activation_function", "relu"),
        tied=config.switch("tie_word_embeddings", True),
    )


_MPT_NORMS: dict[str, Norm] = {
    "low_precision_layernorm": "layer",
    "layernorm": "layer",
    "low_precision_rmsnorm": "rms",
    "rmsnorm": "rms",
}


def _mpt(config: ConfigKeys) -> Architecture:
    """Return MPT, as transformers or llm-foundry writes it (configuration_mpt.py of each)."""
    attention, inner = config.table("attn_config"), config.table("ffn_config")
    attention.only("qk_ln", False)
    hidden, heads = config.count("d_model"), config.count("n_heads")
    kinds = ("multihead_attention", "multiquery_attention", "grouped_query_attention")
    kind = attention.word("attn_type", kinds[0], kinds)
    kv = {kinds[0]: heads, kinds[1]: 1}.get(kind) or attention.count("kv_n_heads")
    tokens = config.count("max_seq_len", 2048)
    bare = config.switch("no_bias", True)
    alibi = attention.switch("alibi", True)
    turned = alibi or attention.switch("rope", False)
    # transformers has single operations whatever this says, llm-foundry one kernel for the others.
    kernel = attention.word("attn_impl", "torch", ("torch", "flash", "triton", "flex"))
    learned = config.switch("learned_pos_emb", True) and not turned
    norm = _MPT_NORMS[config.word("norm_type", "low_precision_layernorm", tuple(_MPT_NORMS))]
    if heads % kv:
        attention.wrong("kv_n_heads", f"is {kv}, which does not divide n_heads {heads}")
    return Architecture(
        layers=config.layers("n_layers"),
        hidden=hidden,
        heads=heads,
        kv=kv,
        head=config.head("d_model", "n_heads"),
        ffn=config.count("expansion_ratio", 4) * hidden,
        vocab=config.count("vocab_size"),
        seq=min(tokens, MAX_TOKENS),
        positions=tokens if learned else 0,
        norm="layer-without-bias" if bare and norm == "layer" else norm,
        gated=inner.word("ffn_type", "mptmlp", ("mptmlp", "mptglu")) == "mptglu",
        bias="none" if bare else "all",
        tied=config.switch("tie_word_embeddings", True),
        alibi=alibi and kernel == "torch",
    )


def _encoder(config: ConfigKeys, types: int, shift: int) -> Architecture:
    """Return an encoder that learns ``shift`` positions besides those of tokens."""
    config.only("is_decoder", False)
    config.only("add_cross_attention", False)
    config.only("tie_word_embeddings", True)
    config.only("type_vocab_size", types)
    config.word("position_embedding_type", "absolute", ("absolute",))
    positions = config.count("max_position_embeddings", 512, least=shift + 1)
    return _classic(config)._replace(
        family="encoder",
        vocab=config.count("vocab_size"),
        tied=True,
        positions=positions,
        seq=min(positions - shift, MAX_TOKENS),
        types=types,
        spare=shift,
        activation=_activation(config, "hidden_act", "gelu"),
    )


def _bert(config: ConfigKeys) -> Architecture:
    return _encoder(config, 2, 0)


def _roberta(config: ConfigKeys) -> Architecture:
    return _encoder(config, 1, 2)


def _distilbert(config: ConfigKeys) -> Architecture:
    """Return DistilBERT: BERT without types of tokens and without sentences to tell.

    It drops nothing behind attention, which is priced as BERT's dropout there.
    """
    config.only("sinusoidal_pos_embds", False)
    config.only("tie_word_embeddings", True)
    heads, hidden = config.count("n_heads"), config.count("dim")
    positions = config.count("max_position_embeddings", 512)
    return Architecture(
        layers=config.layers("n_layers"),
        hidden=hidden,
        heads=heads,
        kv=heads,
        head=config.head("dim", "n_heads"),
        ffn=config.count("hidden_dim"),
        vocab=config.count("vocab_size"),
        family="encoder",
        norm="layer",
        gated=False,
        bias="all",
        tied=True,
        positions=positions,
        seq=min(positions, MAX_TOKENS),
        types=0,
        activation=_activation(config, "activation", "gelu"),
        objective="words",
    )


def _electra(config: ConfigKeys) -> Architecture:
    """Return ELECTRA: the discriminator, or the generator where its class is the file's first."""
    made = _encoder(config, 2, 0)
    width = config.count("embedding_size", 128)
    written = config.words("architectures")[:1] == ["ElectraForMaskedLM"]
    return made._replace(
        embedding=0 if width == made.hidden else width,
        objective="words" if written else "replaced",
    )


def _modernbert(config: ConfigKeys) -> Architecture:
    """Return ModernBERT: every n-th layer from the first attends to all tokens.

    Its positions are turned in fp32, which is priced as in 16 bits.
    """
    for key in ("classifier_bias", "sparse_prediction"):
        config.only(key, False)
    for key in ("embedding_dropout", "attention_dropout", "mlp_dropout"):
        if config.share(key, 0.0) > 0.0:
            config.wrong(key, "is above 0; perfsim knows ModernBERT without dropout")
    made = _llama_like(config, positions=8192, tied=True, bias=_biases(config))
    kinds, every = config.words("layer_types"), config.count("global_attn_every_n_layers", 3)
    if kinds:
        later = [at for at, kind in enumerate(kinds) if at and kind == "full_attention"]
        every = later[0] if later else len(kinds)
        first = ["full_attention", *["sliding_attention"] * (every - 1)]
        if kinds != (first * made.layers)[: made.layers]:
            config.wrong("layer_types", "needs full_attention for every n-th layer from the first")
    reach = config.count("local_attention", 128) // 2
    return made._replace(
        family="pre-norm-encoder",
        kv=made.heads,
        norm="layer" if config.switch("norm_bias", False) else "layer-without-bias",
        head_bias=config.switch("decoder_bias", True),
        fused_qkv=True,
        window=2 * reach + 1 if every > 1 else 0,
        full_every=every if every > 1 else 0,
        full_first=every > 1,
        activation=_activation(config, "hidden_activation", "gelu"),
    )


_T5_FORWARD = ("relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-silu", "gated-relu")
_T5_ACTIVATIONS: dict[str, Activation] = {
    **dict.fromkeys(("gelu_new", "gated-gelu"), "gelu_new"),
    **dict.fromkeys(("relu", "gated-relu"), "relu"),
}
"""What a feed_forward_proj means where it is not of one kernel (configuration_t5.py)."""
_T5_TOKENS = 512
"""Tokens of a sample in T5's pre-training (Raffel et al., arXiv 1910.10683, section 3.1.2)."""


def _t5(config: ConfigKeys, absent: str = "relu") -> Architecture:
    """Return T5; version 1.1 is gated, and its output layer a matrix of its own."""
    config.only("relative_attention_num_buckets", 32)
    layers, heads = config.layers("num_layers"), config.count("num_heads")
    decoder = config.count("num_decoder_layers", layers, layers)
    if decoder != layers:
        config.wrong("num_decoder_layers", f"is {decoder}; perfsim knows num_layers {layers} only")
    forward = config.word("feed_forward_proj", absent, _T5_FORWARD)
    return Architecture(
        layers=layers,
        hidden=config.count("d_model"),
        heads=heads,
        kv=heads,
        head=config.count("d_kv", 64),
        ffn=config.count("d_ff"),
        vocab=config.count("vocab_size"),
        family="encoder-decoder",
        seq=config.tokens("n_positions", _T5_TOKENS),
        gated=forward.startswith("gated-"),
        tied=config.switch("tie_word_embeddings", True),
        activation=_T5_ACTIVATIONS.get(forward, "one-kernel"),
        norm="rms-fp32",
        dropout=config.share("dropout_rate", 0.1) > 0.0,
    )


def _mt5(config: ConfigKeys) -> Architecture:
    return _t5(config, "gated-gelu")


def _vit(config: ConfigKeys) -> Architecture:
    """Return ViT with as many classes as the file names, 2 without names as in transformers."""
    config.only("qkv_bias", True)
    (high, wide), patch = config.sides("image_size", 224), config.count("patch_size", 16)
    for image in (high, wide):
        if image % patch:
            config.wrong("patch_size", f"is {patch}, which does not divide image_size {image}")
    classes = config.size("id2label") or config.count("num_labels", 2)
    return _classic(config)._replace(
        family="vit",
        vocab=classes,
        image=high,
        image_width=0 if wide == high else wide,
        channels=config.count("num_channels", 3),
        patch=patch,
        activation=_activation(config, "hidden_act", "gelu"),
    )


def _deit(config: ConfigKeys) -> Architecture:
    """Return DeiT with the output layer of its class token; a teacher's one infers alone."""
    return _vit(config)._replace(pool="distilled")


MODEL_TYPES: dict[str, Callable[[ConfigKeys], Architecture]] = {
    "apertus": _apertus,
    "arcee": _arcee,
    "bert": _bert,
    "bloom": _bloom,
    "camembert": _roberta,
    "codegen": _gptj,
    "cohere": _cohere,
    "cohere2": _cohere2,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "deit": _deit,
    "distilbert": _distilbert,
    "dots1": _dots1,
    "electra": _electra,
    "ernie4_5": _ernie,
    "ernie4_5_moe": _ernie_moe,
    "exaone4": _exaone4,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "glm": _glm,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "glm4_moe_lite": _glm4_moe_lite,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "gptj": _gptj,
    "granite": _llama,
    "granitemoe": _granitemoe,
    "helium": _helium,
    "hunyuan_v1_dense": _hunyuan,
    "hunyuan_v1_moe": _hunyuan_moe,
    "kimi_k2": _deepseek_v3,
    "llama": _llama,
    "minimax_m2": _minimax_m2,
    "ministral": _ministral,
    "ministral3": _ministral3,
    "mistral": _mistral,
    "mistral4": _mistral4,
    "mixtral": _mixtral,
    "modernbert": _modernbert,
    "mpt": _mpt,
    "mt5": _mt5,
    "nanochat": _nanochat,
    "nemotron": _nemotron,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "olmoe": _olmoe,
    "opt": _opt,
    "phi": _phi,
    "phi3": _phi3,
    "phimoe": _phimoe,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "roberta": _roberta,
    "seed_oss": _seed,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
    "t5": _t5,
    "vit": _vit,
    "xlm-roberta": _roberta,
}
"""What reads each ``model_type``."""

_SPARSE = "attention to some of the tokens that an index chooses"
_MAMBA = "Mamba's layers, which keep a state in place of attention"
_LINEAR = "layers of linear attention"
UNPRICED = {
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "glm_moe_dsa"), _SPARSE),
    **dict.fromkeys(("bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid"), _MAMBA),
    **dict.fromkeys(("jamba", "mamba", "mamba2", "nemotron_h", "zamba", "zamba2"), _MAMBA),
    **dict.fromkeys(("kimi_linear", "minimax", "olmo_hybrid", "qwen3_next"), _LINEAR),
    **dict.fromkeys(("qwen3_5_text", "qwen3_5_moe_text"), _LINEAR),
    **dict.fromkeys(("lfm2", "lfm2_moe"), "layers of short convolutions"),
    "gpt_neo": "attention whose scores are in fp32 whatever the precision",
    "llama4_text": "attention in chunks, and experts in every n-th layer",
    **dict.fromkeys(("gemma3n_text", "gemma4_text"), "embeddings for each layer"),
}
"""Kinds with layers that no part of perfsim prices, and which these are (modeling_*.py)."""
