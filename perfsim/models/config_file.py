"""Models that a config.json of Hugging Face transformers states, by its ``model_type``.

Keys, and what holds where a key is absent, are those of transformers 5.23.0
(huggingface/transformers, src/transformers/models/<model_type>/configuration_<model_type>.py).
Numbers that every file has (layers, width, heads, vocabulary) are needed. The layers follow
modeling_<model_type>.py beside it: ALiBi costs what rotary positions cost, a router's correction
bias is no parameter, and a module that predicts a second token is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from perfsim.data.files import read_text
from perfsim.errors import MAX_QUOTED, DataError, shown, unknown
from perfsim.models.language import Architecture, Bias, Norm
from perfsim.models.limits import MAX_LAYERS, MAX_NUMBER, contradiction

__all__ = ["MODEL_TYPES", "read_config"]

_MAX_BYTES = 2**20
"""Bytes of a config.json. No source: chosen, a hundred times a usual one."""
_MAX_TOKENS = 8192
"""Most tokens a sample where nothing is asked: those of Llama 3's pre-training (Dubey et al., arXiv
2407.21783, section 3.4.1). Files that state more positions mean those that a model can be used
with, such as 131072 of Qwen2.5, which was pre-trained with 4096 (arXiv 2412.15115, section 3.3)."""


class _Config:
    """The keys of a config.json, checked as they are read; ``within`` names the table around."""

    def __init__(self, values: Mapping[str, Any], path: Path, within: str = "") -> None:
        self._values, self._path, self._within = values, path, within

    def wrong(self, key: str, why: str) -> NoReturn:
        """Refuse the value of a key."""
        raise DataError(f"{self._within}{key} {why}", path=self._path)

    def has(self, key: str) -> bool:
        """Tell whether a key has a value other than null."""
        return self._values.get(key) is not None

    def count(
        self,
        key: str,
        absent: int | None = None,
        null: int | None = None,
        *,
        least: int = 1,
        most: int = MAX_NUMBER,
    ) -> int:
        """Return a whole number: ``absent`` without its key, ``null`` where that is null."""
        value = self._values.get(key, absent)
        value = null if value is None else value
        allowed = f"a whole number from {least} to {most}"
        if value is None:
            self.wrong(key, f"is needed: {allowed}")
        if type(value) is not int or not least <= value <= most:
            self.wrong(key, f"is {_said(value)}, not {allowed}")
        return value

    def layers(self, key: str) -> int:
        """Return how many layers there are."""
        return self.count(key, most=MAX_LAYERS)

    def switch(self, key: str, absent: bool) -> bool:
        """Return true or false."""
        value = self._values.get(key)
        value = absent if value is None else value
        if type(value) is not bool:
            self.wrong(key, f"is {_said(value)}, not true or false")
        return value

    def word(self, key: str, absent: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed words."""
        value = self._values.get(key)
        value = absent if value is None else value
        if not isinstance(value, str) or value not in allowed:
            self.wrong(key, f"is {_said(value)}; perfsim knows {', '.join(allowed)}")
        return value

    def text(self, key: str, absent: str) -> str:
        """Return a text."""
        value = self._values.get(key)
        value = absent if value is None else value
        if not isinstance(value, str):
            self.wrong(key, f"is {_said(value)}, not a text")
        return value

    def only(self, key: str, known: bool | int | None) -> None:
        """Refuse a key that states another kind of layer than perfsim knows."""
        value = self._values.get(key, known)
        if type(value) is not type(known) or value != known:
            self.wrong(key, f"is {_said(value)}; perfsim knows {json.dumps(known)} only")

    def table(self, key: str) -> _Config:
        """Return the keys of a table; none where it is absent."""
        value = self._values.get(key)
        value = {} if value is None else value
        if not isinstance(value, dict):
            self.wrong(key, f"is {_said(value)}, not a table of names and values")
        return _Config(value, self._path, f"{key}.")

    def words(self, key: str) -> list[Any]:
        """Return a list; an empty one where it is absent."""
        value = self._values.get(key)
        value = [] if value is None else value
        if not isinstance(value, list):
            self.wrong(key, f"is {_said(value)}, not a list")
        return value

    def size(self, key: str) -> int:
        """Return how many names a table has; 0 where it is absent."""
        return len(self.table(key)._values)

    def head(self, hidden: str, heads: str, stated: str = "") -> int:
        """Return the width of a head: the stated one, else the share of ``hidden``."""
        if stated and self.has(stated):
            return self.count(stated)
        width, number = self.count(hidden), self.count(heads)
        if width % number:
            fix = f"; give {stated}" if stated else ""
            self.wrong(heads, f"is {number}, which does not divide {hidden} {width}{fix}")
        return width // number

    def shared_heads(self, key: str, heads: str, absent: int | None = None) -> int:
        """Return the heads of keys and values: as many as there are others where it is null."""
        number = self.count(heads)
        found = self.count(key, absent, number)
        if number % found:
            self.wrong(key, f"is {found}, which does not divide {heads} {number}")
        return found

    def tokens(self, key: str, absent: int) -> int:
        """Return the tokens of a sample: the positions of a key, at most 8192."""
        return min(self.count(key, absent), _MAX_TOKENS)


def read_config(path: Path) -> Architecture:
    """Read the numbers of a transformer from a config.json.

    Raises
    ------
    DataError
        If it cannot be read, is of an unknown kind, or its keys are missing or contradict
        each other.
    """
    values = json_table(path)
    kind = values.get("model_type")
    if not isinstance(kind, str):
        known = ", ".join(MODEL_TYPES)
        found = "is needed" if kind is None else f"is {shown(kind)}"
        raise DataError(f"model_type {found}; allowed: {known}", path=path)
    if kind not in MODEL_TYPES:
        why = unknown("model_type", kind, MODEL_TYPES).why.rstrip(".")
        raise DataError(f"model_type: {why}", path=path)
    shape = MODEL_TYPES[kind](_Config(values, path))
    wrong = contradiction(shape)
    if wrong:
        raise DataError(wrong, path=path)
    return shape


def json_table(path: Path) -> dict[str, Any]:
    """Return the names and values of a JSON file.

    Raises
    ------
    DataError
        If it cannot be read, is no JSON or no table.
    """
    text = read_text(path, _MAX_BYTES)
    try:
        values = json.loads(text, parse_int=_whole)
    except json.JSONDecodeError as error:
        why = f"is not JSON: {error.msg[0].lower()}{error.msg[1:]} at character {error.colno}"
        raise DataError(why, path=path, row=error.lineno) from None
    except RecursionError:
        why = "has tables in tables in tables, which no config.json has"
        raise DataError(why, path=path) from None
    if not isinstance(values, dict):
        raise DataError("is not a JSON table such as {...} of a config.json", path=path)
    return values


def _said(value: object) -> str:
    """Return a wrong value as JSON spells it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else shown(value)


def _whole(digits: str) -> int:
    """Return a whole number, cut behind more digits than a message repeats."""
    return int(digits[: MAX_QUOTED + 1])


def _llama_like(
    config: _Config,
    *,
    kv: int | None = None,
    head: int | None = None,
    positions: int = 2048,
    tied: bool = False,
    bias: Bias = "none",
) -> Architecture:
    """Return a decoder with Llama's keys; ``kv`` to ``tied`` hold where a key is absent."""
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
    )


def _attention_bias(config: _Config) -> Bias:
    return "attention" if config.switch("attention_bias", False) else "none"


def _llama(config: _Config) -> Architecture:
    biases: dict[tuple[bool, bool], Bias] = {
        (False, False): "none",
        (True, False): "attention",
        (False, True): "ffn",
        (True, True): "all",
    }
    found = config.switch("attention_bias", False), config.switch("mlp_bias", False)
    return _llama_like(config, bias=biases[found])


def _mistral(config: _Config) -> Architecture:
    window = config.count("sliding_window", 4096, 0, least=0)
    return _llama_like(config, kv=8, positions=131072)._replace(window=window)


def _mixtral(config: _Config) -> Architecture:
    made = _llama_like(config, kv=8, positions=131072)
    experts = config.count("num_local_experts", 8)
    return made._replace(
        window=config.count("sliding_window", None, 0, least=0),
        experts=experts,
        topk=config.count("num_experts_per_tok", 2, most=experts),
        expert_ffn=made.ffn,
    )


def _qwen2(config: _Config) -> Architecture:
    made = _llama_like(config, kv=32, positions=32768, bias="qkv")
    return _qwen_window(config, made)


def _qwen3(config: _Config) -> Architecture:
    bias = _attention_bias(config)
    made = _llama_like(config, kv=32, head=128, positions=32768, bias=bias)
    return _qwen_window(config, made._replace(qk_norm=True))


def _qwen_window(config: _Config, made: Architecture) -> Architecture:
    """Return the shape with Qwen's sliding windows, which the last layers have if any."""
    if not config.switch("use_sliding_window", False):
        return made
    full = min(config.count("max_window_layers", 28, least=0), made.layers)
    return _windowed(config, made, made.layers - full)


def _windowed(config: _Config, made: Architecture, sliding: int) -> Architecture:
    """Return the shape with a window in ``sliding`` layers, or in those of ``layer_types``.

    The work depends on how many there are, not on which.
    """
    window = config.count("sliding_window", 4096, 0, least=0)
    kinds = config.words("layer_types")
    if kinds:
        known = ("full_attention", "sliding_attention")
        if len(kinds) != made.layers or any(kind not in known for kind in kinds):
            config.wrong("layer_types", f"needs one of {', '.join(known)} for each layer")
        sliding = kinds.count("sliding_attention")
    if not window or not sliding:
        return made
    every = made.layers // sliding
    if made.layers // every != sliding:
        key = "layer_types" if kinds else "max_window_layers"
        config.wrong(
            key, f"gives {sliding} of {made.layers} layers a window; perfsim knows one in n"
        )
    return made._replace(window=window, window_every=every)


def _qwen2_moe(config: _Config) -> Architecture:
    bias: Bias = "qkv" if config.switch("qkv_bias", True) else "none"
    made = _qwen_experts(
        config, _llama_like(config, kv=16, positions=32768, bias=bias), 60, 4, 1408
    )
    wide = config.count("shared_expert_intermediate_size", 5632)
    if wide % made.expert_ffn:
        why = f"is {wide}, which moe_intermediate_size {made.expert_ffn} does not divide"
        config.wrong("shared_expert_intermediate_size", why)
    return made._replace(shared=wide // made.expert_ffn, shared_gate=True)


def _qwen3_moe(config: _Config) -> Architecture:
    bias = _attention_bias(config)
    made = _llama_like(config, kv=4, positions=32768, bias=bias)._replace(qk_norm=True)
    return _qwen_experts(config, made, 128, 8, 768)


def _qwen_experts(
    config: _Config, made: Architecture, experts: int, topk: int, width: int
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


def _gemma(config: _Config) -> Architecture:
    bias = _attention_bias(config)
    return _llama_like(config, kv=16, head=256, positions=8192, tied=True, bias=bias)


def _gemma2(config: _Config) -> Architecture:
    bias = _attention_bias(config)
    made = _llama_like(config, kv=4, head=256, positions=8192, tied=True, bias=bias)
    return _windowed(config, made._replace(norms=4), (made.layers + 1) // 2)


def _phi3(config: _Config) -> Architecture:
    window = config.count("sliding_window", None, 0, least=0)
    return _llama_like(config, positions=4096)._replace(window=window)


def _deepseek(config: _Config, first: int) -> Architecture:
    """Return DeepSeek-V2 or V3; experts begin behind ``first`` layers where the key is absent."""
    config.only("attention_bias", False)
    config.only("moe_layer_freq", 1)
    heads, width = config.count("num_attention_heads"), config.count("qk_nope_head_dim", 128)
    values = config.count("v_head_dim", 128)
    if values != width:
        config.wrong("v_head_dim", f"is {values}; perfsim knows qk_nope_head_dim {width} only")
    made = Architecture(
        layers=config.layers("num_hidden_layers"),
        hidden=config.count("hidden_size"),
        heads=heads,
        kv=heads,
        head=width,
        ffn=config.count("intermediate_size"),
        vocab=config.count("vocab_size"),
        seq=config.tokens("max_position_embeddings", 4096 if first else 2048),
        tied=config.switch("tie_word_embeddings", False),
        kv_rank=config.count("kv_lora_rank", 512),
        q_rank=config.count("q_lora_rank", 1536, 0, least=0),
        rope=config.count("qk_rope_head_dim", 64),
    )
    experts = config.count("n_routed_experts")
    groups = config.count("n_group", 8 if first else 1, 1)
    some = config.count("topk_group", 4 if first else 1, 1, most=groups)
    return made._replace(
        experts=experts,
        groups=groups if some < groups else 0,
        topk_groups=some if some < groups else 0,
        topk=config.count("num_experts_per_tok", 8 if first else None, most=experts),
        expert_ffn=config.count("moe_intermediate_size"),
        shared=config.count("n_shared_experts", 1 if first else 2, 0, least=0),
        dense=config.count("first_k_dense_replace", first, 0, least=0),
    )


def _deepseek_v2(config: _Config) -> Architecture:
    config.only("mlp_bias", False)
    return _deepseek(config, 0)


def _deepseek_v3(config: _Config) -> Architecture:
    return _deepseek(config, 3)


def _as_gpt2(config: _Config, tied: bool) -> Architecture:
    """Return a decoder with GPT-2's keys, which GPT-J has too."""
    hidden, heads = config.count("n_embd"), config.count("n_head")
    return Architecture(
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
        gelu_new=config.text("activation_function", _GELU_NEW) == _GELU_NEW,
    )


_GELU_NEW = "gelu_new"


def _gpt2(config: _Config) -> Architecture:
    config.only("add_cross_attention", False)
    made = _as_gpt2(config, tied=True)._replace(bias="all")
    positions = config.count("n_positions", 1024)
    return made._replace(positions=positions, seq=min(positions, _MAX_TOKENS))


def _gptj(config: _Config) -> Architecture:
    made = _as_gpt2(config, tied=False)._replace(seq=config.tokens("n_positions", 2048))
    return made._replace(bias="ffn", norms=1, head_bias=True)


def _classic(config: _Config, ffn: str = "intermediate_size") -> Architecture:
    """Return a transformer with biases and layer normalisation, in the older keys."""
    heads = config.count("num_attention_heads")
    return Architecture(
        layers=config.layers("num_hidden_layers"),
        hidden=config.count("hidden_size"),
        heads=heads,
        kv=heads,
        head=config.head("hidden_size", "num_attention_heads"),
        ffn=config.count(ffn),
        vocab=1,
        norm="layer",
        gated=False,
        bias="all",
    )


def _gpt_neox(config: _Config) -> Architecture:
    return _classic(config)._replace(
        vocab=config.count("vocab_size"),
        seq=config.tokens("max_position_embeddings", 2048),
        bias="all" if config.switch("attention_bias", True) else "ffn",
        tied=config.switch("tie_word_embeddings", False),
    )


_OPT_SHIFT = 2
"""Positions that OPT learns besides those of tokens (modeling_opt.py)."""


def _opt(config: _Config) -> Architecture:
    config.only("do_layer_norm_before", True)
    config.only("_remove_final_layer_norm", False)
    config.only("layer_norm_elementwise_affine", True)
    made = _classic(config, "ffn_dim")
    projected = config.count("word_embed_proj_dim", made.hidden, made.hidden)
    if projected != made.hidden:
        why = f"is {projected}; perfsim knows hidden_size {made.hidden} only"
        config.wrong("word_embed_proj_dim", why)
    positions = config.count("max_position_embeddings", 2048)
    return made._replace(
        vocab=config.count("vocab_size"),
        positions=positions + _OPT_SHIFT,
        spare=_OPT_SHIFT,
        seq=min(positions, _MAX_TOKENS),
        bias="all" if config.switch("enable_bias", True) else "none",
        tied=config.switch("tie_word_embeddings", True),
    )


_MPT_NORMS: dict[str, Norm] = {
    "low_precision_layernorm": "layer",
    "layernorm": "layer",
    "low_precision_rmsnorm": "rms",
    "rmsnorm": "rms",
}


def _mpt(config: _Config) -> Architecture:
    """Return MPT, as transformers or llm-foundry writes it (configuration_mpt.py of each)."""
    attention, inner = config.table("attn_config"), config.table("ffn_config")
    attention.only("qk_ln", False)
    hidden, heads = config.count("d_model"), config.count("n_heads")
    kinds = ("multihead_attention", "multiquery_attention", "grouped_query_attention")
    kind = attention.word("attn_type", kinds[0], kinds)
    kv = {kinds[0]: heads, kinds[1]: 1}.get(kind) or attention.count("kv_n_heads")
    tokens = config.count("max_seq_len", 2048)
    bare = config.switch("no_bias", True)
    turned = attention.switch("alibi", True) or attention.switch("rope", False)
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
        seq=min(tokens, _MAX_TOKENS),
        positions=tokens if learned else 0,
        norm="layer-without-bias" if bare and norm == "layer" else norm,
        gated=inner.word("ffn_type", "mptmlp", ("mptmlp", "mptglu")) == "mptglu",
        bias="none" if bare else "all",
        tied=config.switch("tie_word_embeddings", True),
    )


def _encoder(config: _Config, types: int, shift: int) -> Architecture:
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
        seq=min(positions - shift, _MAX_TOKENS),
        types=types,
        spare=shift,
        gelu_new=config.text("hidden_act", "gelu") == _GELU_NEW,
    )


def _bert(config: _Config) -> Architecture:
    return _encoder(config, 2, 0)


def _roberta(config: _Config) -> Architecture:
    return _encoder(config, 1, 2)


_T5_FORWARD = ("relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-silu", "gated-relu")
_T5_TOKENS = 512
"""Tokens of a sample in T5's pre-training (Raffel et al., arXiv 1910.10683, section 3.1.2)."""


def _t5(config: _Config) -> Architecture:
    """Return T5; version 1.1 is gated, and its output layer a matrix of its own."""
    config.only("relative_attention_num_buckets", 32)
    layers, heads = config.layers("num_layers"), config.count("num_heads")
    decoder = config.count("num_decoder_layers", layers, layers)
    if decoder != layers:
        config.wrong("num_decoder_layers", f"is {decoder}; perfsim knows num_layers {layers} only")
    forward = config.word("feed_forward_proj", "relu", _T5_FORWARD)
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
        gelu_new=forward in (_GELU_NEW, "gated-gelu"),
    )


def _vit(config: _Config) -> Architecture:
    """Return ViT with as many classes as the file names, 2 without names as in transformers."""
    config.only("num_channels", 3)
    config.only("qkv_bias", True)
    image, patch = config.count("image_size", 224), config.count("patch_size", 16)
    if image % patch:
        config.wrong("patch_size", f"is {patch}, which does not divide image_size {image}")
    classes = config.size("id2label") or config.count("num_labels", 2)
    return _classic(config)._replace(family="vit", vocab=classes, image=image, patch=patch)


MODEL_TYPES: dict[str, Callable[[_Config], Architecture]] = {
    "bert": _bert,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gptj": _gptj,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "mpt": _mpt,
    "opt": _opt,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "roberta": _roberta,
    "t5": _t5,
    "vit": _vit,
}
"""What reads each ``model_type``."""
