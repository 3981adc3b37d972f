"""Models of a config.json: each kind is the published model, and wrong files are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.data.files import files_changed, noting
from perfsim.errors import DataError
from perfsim.models import build_model
from perfsim.models.config_file import MODEL_TYPES, read_config
from perfsim.models.language import Architecture, architecture_layers
from perfsim.models.named import NAMED
from perfsim.models.specification import (
    architecture_of,
    canonical_model,
    is_specified,
    specification_takes_tokens,
    specified_layers,
)

Config = dict[str, Any]


def _llama(layers: int, hidden: int, heads: int, ffn: int, vocab: int, **more: Any) -> Config:
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
    } | more


def _gpt2(layers: int, width: int, heads: int, **more: Any) -> Config:
    made = {"model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads}
    return made | {"vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024} | more


def _opt(layers: int, hidden: int, heads: int, **more: Any) -> Config:
    made = _llama(layers, hidden, heads, 0, 50272, model_type="opt", ffn_dim=4 * hidden)
    del made["intermediate_size"]
    return made | {"max_position_embeddings": 2048, "word_embed_proj_dim": hidden} | more


def _t5(layers: int, width: int, heads: int, ffn: int, **more: Any) -> Config:
    made = {"model_type": "t5", "num_layers": layers, "d_model": width, "num_heads": heads}
    return made | {"d_ff": ffn, "d_kv": 64, "vocab_size": 32128, "n_positions": 512} | more


def _mpt(layers: int, width: int, heads: int, **more: Any) -> Config:
    made = {"model_type": "mpt", "n_layers": layers, "d_model": width, "n_heads": heads}
    return made | {"vocab_size": 50368, "expansion_ratio": 4, "max_seq_len": 2048} | more


MISTRAL = _llama(
    *(32, 4096, 32, 14336, 32000),
    model_type="mistral",
    num_key_value_heads=8,
    max_position_embeddings=32768,
    sliding_window=4096,
    tie_word_embeddings=False,
)
MIXTRAL = MISTRAL | {"model_type": "mixtral", "sliding_window": None, "num_local_experts": 8}
QWEN2 = {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 131072}
GEMMA2 = {"model_type": "gemma2", "head_dim": 256, "sliding_window": 4096}
DEEPSEEK = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_layer_freq": 1,
    "max_position_embeddings": 163840,
}
V2_LITE = _llama(27, 2048, 16, 10944, 102400, model_type="deepseek_v2", **DEEPSEEK) | {
    "q_lora_rank": None,
    "n_routed_experts": 64,
    "num_experts_per_tok": 6,
    "n_shared_experts": 2,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
}
V3 = _llama(61, 7168, 128, 18432, 129280, model_type="deepseek_v3", **DEEPSEEK) | {
    "q_lora_rank": 1536,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
}
LEARNED = {"learned_pos_emb": True, "no_bias": False, "attn_config": {"alibi": False}}
BERT = _llama(12, 768, 12, 3072, 30522, model_type="bert", max_position_embeddings=512)
NEOX = _llama(44, 6144, 64, 24576, 50432, model_type="gpt_neox", max_position_embeddings=2048)
GPTJ = {"model_type": "gptj", "vocab_size": 50400, "n_positions": 2048, "n_inner": None}
CLASSES = {"id2label": {str(number): f"class {number}" for number in range(1000)}}
VIT = _llama(12, 768, 12, 3072, 0, model_type="vit", image_size=224, patch_size=16) | CLASSES

QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128}
QWEN3_MOE = QWEN3 | {
    "model_type": "qwen3_moe",
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "num_experts_per_tok": 4,
    "attention_bias": True,
}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "sliding_window": 512}
GLM4_5 = {
    "model_type": "glm4_moe",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "attention_bias": True,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1,
}
MINIMAX_M2 = {
    "model_type": "minimax_m2",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
    "use_qk_norm": True,
    "qk_norm_type": "per_layer",
}
# Their keys and values differ in width; what is absent is as in transformers.
GLM_FLASH = {"model_type": "glm4_moe_lite", "num_key_value_heads": 20, "n_group": 1}
MISTRAL_SMALL_4 = {"model_type": "mistral4", "num_key_value_heads": 32, "n_group": 1}

# As published at huggingface.co/<model>/config.json.
AS_NAMED: dict[str, Config] = {
    "llama-7b": _llama(32, 4096, 32, 11008, 32000, max_position_embeddings=2048),
    "llama2-70b": _llama(
        80, 8192, 64, 28672, 32000, num_key_value_heads=8, max_position_embeddings=4096
    ),
    "llama3-8b": _llama(
        32, 4096, 32, 14336, 128256, num_key_value_heads=8, max_position_embeddings=8192
    ),
    "llama3-405b": _llama(
        126, 16384, 128, 53248, 128256, num_key_value_heads=8, max_position_embeddings=131072
    ),
    "mistral-7b": MISTRAL,
    "mixtral-8x7b": MIXTRAL | {"num_experts_per_tok": 2},
    "qwen2.5-7b": _llama(28, 3584, 28, 18944, 152064, num_key_value_heads=4) | QWEN2,
    "qwen2.5-72b": _llama(80, 8192, 64, 29568, 152064, num_key_value_heads=8) | QWEN2,
    "gemma2-9b": _llama(42, 3584, 16, 14336, 256000, num_key_value_heads=8) | GEMMA2,
    "deepseek-v2-lite": V2_LITE,
    "deepseek-v3": V3,
    "opt-125m": _opt(12, 768, 12),
    "opt-66b": _opt(64, 9216, 72),
    "t5-small": _t5(6, 512, 8, 2048, num_decoder_layers=6, feed_forward_proj="relu"),
    "t5-3b": _t5(24, 1024, 32, 16384, d_kv=128),
    "mpt-7b": _mpt(32, 4096, 32, **LEARNED),
    "llama3.2-1b": _llama(
        16, 2048, 32, 8192, 128256, num_key_value_heads=8, head_dim=64, tie_word_embeddings=True
    ),
    "mistral-small-24b": MISTRAL
    | _llama(40, 5120, 32, 32768, 131072, model_type="mistral", head_dim=128, sliding_window=None),
    "qwen3-0.6b": _llama(28, 1024, 16, 3072, 151936) | QWEN3 | {"tie_word_embeddings": True},
    "qwen3-1.7b": _llama(28, 2048, 16, 6144, 151936) | QWEN3 | {"tie_word_embeddings": True},
    "qwen3-4b": _llama(36, 2560, 32, 9728, 151936) | QWEN3 | {"tie_word_embeddings": True},
    "qwen3-8b": _llama(36, 4096, 32, 12288, 151936) | QWEN3,
    "qwen3-14b": _llama(40, 5120, 40, 17408, 151936) | QWEN3,
    "qwen3-32b": _llama(64, 5120, 64, 25600, 151936) | QWEN3,
    "qwen3-30b-a3b": _llama(48, 2048, 32, 6144, 151936, moe_intermediate_size=768) | QWEN3_MOE,
    "gpt-oss-20b": _llama(24, 2880, 64, 2880, 201088, num_local_experts=32) | GPT_OSS,
    "gpt-oss-120b": _llama(36, 2880, 64, 2880, 201088, num_local_experts=128) | GPT_OSS,
    "gemma3-1b": _llama(26, 1152, 4, 6912, 262144, num_key_value_heads=1) | GEMMA3,
    "phi-4": _llama(
        40, 5120, 40, 17920, 100352, model_type="phi3", num_key_value_heads=10, sliding_window=None
    ),
    "olmo2-7b": _llama(32, 4096, 32, 11008, 100352, model_type="olmo2"),
    "olmo2-32b": _llama(64, 5120, 40, 27648, 100352, model_type="olmo2", num_key_value_heads=8),
    "smollm3-3b": _llama(36, 2048, 16, 11008, 128256, model_type="smollm3", num_key_value_heads=4),
    "glm4.5-air": _llama(46, 4096, 96, 10944, 151552, moe_intermediate_size=1408)
    | GLM4_5
    | {"n_routed_experts": 128, "first_k_dense_replace": 1, "use_qk_norm": False},
    "glm4.5": _llama(92, 5120, 96, 12288, 151552, moe_intermediate_size=1536)
    | GLM4_5
    | {"n_routed_experts": 160, "first_k_dense_replace": 3, "use_qk_norm": True},
    "minimax-m2": _llama(62, 3072, 48, 1536, 200064) | MINIMAX_M2,
    "kimi-k2": V3
    | _llama(61, 7168, 64, 18432, 163840, model_type="kimi_k2", n_group=1, topk_group=1)
    | {"n_routed_experts": 384, "first_k_dense_replace": 1},
    "nemotron4-340b": _llama(
        96, 18432, 96, 73728, 256000, model_type="nemotron", num_key_value_heads=8, head_dim=192
    ),
}
# Parameters of the published weights (their pages on huggingface.co); transformers 5.24.0 builds
# as many from the same numbers, but for what perfsim leaves out (against_transformers.py).
PARAMETERS: dict[str, tuple[Config, int]] = {
    "gpt2": (_gpt2(12, 768, 12), 124_439_808),
    "gpt2-xl": (_gpt2(48, 1600, 25), 1_557_611_200),
    "gpt-neox-20b": (NEOX, 20_554_567_680),
    "gpt-j-6b": (_gpt2(28, 4096, 16) | GPTJ, 6_050_882_784),
    "bert-base": (BERT, 110_106_428),
    "roberta-base": (
        BERT
        | {"model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514}
        | {"type_vocab_size": 1},
        124_697_433,
    ),
    "vit-b16": (VIT, 86_567_656),
    "phi-3-mini": (
        _llama(32, 3072, 32, 8192, 32064, model_type="phi3", num_key_value_heads=32),
        3_821_079_552,
    ),
    "gemma-7b": (
        _llama(28, 3072, 16, 24576, 256000, model_type="gemma", head_dim=256),
        8_537_680_896,
    ),
    "gemma-2-2b": (
        _llama(26, 2304, 8, 9216, 256000, num_key_value_heads=4) | GEMMA2,
        2_614_341_888,
    ),
    "apertus-8b": (
        _llama(32, 4096, 32, 21504, 131072, model_type="apertus", num_key_value_heads=8),
        8_053_338_176 - 32 * 2,  # what the activation of each block learns
    ),
    "afm-4.5b": (
        _llama(36, 2560, 20, 18432, 128004, model_type="arcee", num_key_value_heads=4)
        | {"head_dim": 128},
        4_619_184_640,
    ),
    "command-r": (_llama(40, 8192, 64, 22528, 256000, model_type="cohere"), 34_980_831_232),
    "command-r7b": (
        _llama(32, 4096, 32, 14336, 256000, model_type="cohere2", num_key_value_heads=8),
        8_028_033_024,
    ),
    "dots.llm1": (
        _llama(62, 4096, 32, 10944, 152064, model_type="dots1", moe_intermediate_size=1408)
        | {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6}
        | {"first_k_dense_replace": 1},
        142_774_373_888,
    ),
    "ernie-4.5-0.3b": (
        _llama(18, 1024, 16, 3072, 103424, model_type="ernie4_5", num_key_value_heads=2),
        360_748_032,
    ),
    "exaone-4.0-32b": (
        _llama(64, 5120, 40, 27392, 102400, model_type="exaone4", num_key_value_heads=8)
        | {"sliding_window_pattern": "LLLG", "sliding_window": 4096}
        | {"layer_types": [*["sliding_attention"] * 3, "full_attention"] * 16},
        32_003_216_384,
    ),
    "falcon-7b": (
        _llama(32, 4544, 71, 0, 65024, model_type="falcon", multi_query=True),
        6_921_720_704,
    ),
    "falcon-40b": (
        _llama(60, 8192, 128, 0, 65024, model_type="falcon", num_kv_heads=8)
        | {"new_decoder_architecture": True},
        41_303_293_952,
    ),
    "glm-4-9b": (
        _llama(40, 4096, 32, 13696, 151552, model_type="glm", num_key_value_heads=2),
        9_399_951_360,
    ),
    "glm-4-32b": (
        _llama(61, 6144, 48, 23040, 151552, model_type="glm4", num_key_value_heads=8)
        | {"attention_bias": False},
        33_141_749_760,
    ),
    "glm-4.7-flash": (_llama(47, 2048, 20, 10240, 154880) | GLM_FLASH, 29_943_390_976),
    "granite-3.1-8b": (
        _llama(40, 4096, 32, 12800, 49155, model_type="granite", num_key_value_heads=8)
        | {"tie_word_embeddings": True},
        8_170_848_256,
    ),
    "granite-3.1-3b-a800m": (
        _llama(32, 1536, 24, 512, 49155, model_type="granitemoe", num_key_value_heads=8)
        | {"num_local_experts": 40, "num_experts_per_tok": 8, "tie_word_embeddings": True},
        3_298_793_472,
    ),
    "hunyuan-7b": (
        _llama(32, 4096, 32, 14336, 128167, model_type="hunyuan_v1_dense", num_key_value_heads=8)
        | {"tie_word_embeddings": True},
        7_504_568_320,
    ),
    "ministral-8b": (
        _llama(36, 4096, 32, 12288, 131072, model_type="ministral", sliding_window=32768),
        8_019_808_256,
    ),
    "ministral-3-8b": (
        _llama(34, 4096, 32, 14336, 131072, model_type="ministral3"),
        8_489_553_920,
    ),
    "mistral-small-4": (
        _llama(36, 4096, 32, 12288, 131072) | MISTRAL_SMALL_4,
        118_972_826_624,
    ),
    "olmo-3-7b": (_llama(32, 4096, 32, 11008, 100278, model_type="olmo3"), 7_298_011_136),
    "olmoe-1b-7b": (_llama(16, 2048, 16, 1024, 50304, model_type="olmoe"), 6_919_161_856),
    "phi-2": (_llama(32, 2560, 32, 10240, 51200, model_type="phi"), 2_779_683_840),
    "seed-oss-36b": (
        _llama(64, 5120, 80, 27648, 155136, model_type="seed_oss", num_key_value_heads=8),
        36_151_104_512,
    ),
    "stablelm-2-1.6b": (
        _llama(24, 2048, 32, 5632, 100352, model_type="stablelm", use_qkv_bias=True),
        1_644_515_328,
    ),
    "starcoder2-3b": (
        _llama(30, 3072, 24, 12288, 49152, model_type="starcoder2", num_key_value_heads=2)
        | {"sliding_window": 4096},
        3_030_371_328,
    ),
    "xlm-roberta-base": (
        BERT
        | {"model_type": "xlm-roberta", "vocab_size": 250002, "max_position_embeddings": 514}
        | {"type_vocab_size": 1},
        278_295_186,
    ),
    "qwen1.5-moe-a2.7b": (
        _llama(24, 2048, 16, 5632, 151936, model_type="qwen2_moe", num_key_value_heads=16)
        | {"num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408}
        | {"shared_expert_intermediate_size": 5632, "max_window_layers": 21},
        14_315_784_192,
    ),
    "bloom-176b": (
        {"model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "n_head": 112}
        | {"vocab_size": 250880, "apply_residual_connection_post_layernorm": False},
        176_247_271_424,
    ),
    "starcoder-15.5b": (
        _gpt2(40, 6144, 48, model_type="gpt_bigcode", n_inner=24576, multi_query=True)
        | {"vocab_size": 49152, "n_positions": 8192},
        15_517_456_384,
    ),
    "codegen-6b": (
        _gpt2(33, 4096, 16, model_type="codegen", vocab_size=51200, n_positions=2048),
        7_064_213_504,
    ),
    "mpt-7b with ALiBi": (
        _mpt(32, 4096, 32, vocab_size=50432, no_bias=True, attn_config={"alibi": True}),
        6_649_286_656,
    ),
    "t5-v1.1-base": (
        _t5(12, 768, 12, 2048, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
        247_577_856,
    ),
    # Their sizes are the defaults of transformers 5.24.0, which name these files as their origin;
    # Hunyuan's and nanochat's make the 80 billion and the 1.88 billion of their pages.
    "olmo-7b": (_llama(32, 4096, 32, 11008, 50304, model_type="olmo"), 6_888_095_744),
    "phi-3.5-moe": (
        _llama(32, 4096, 32, 6400, 32064, model_type="phimoe", num_key_value_heads=8)
        | {"num_local_experts": 16, "attention_bias": True, "lm_head_bias": True},
        41_873_153_344,
    ),
    "ernie-4.5-21b-a3b": (  # less what balances its routers, 64 numbers in 27 layers
        _llama(28, 2560, 20, 12288, 103424, model_type="ernie4_5_moe", num_key_value_heads=4)
        | {"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536}
        | {"moe_num_shared_experts": 2, "moe_layer_start_index": 1, "tie_word_embeddings": True},
        21_825_437_888 - 27 * 64,
    ),
    "hunyuan-a13b": (
        _llama(32, 4096, 32, 3072, 128167, model_type="hunyuan_v1_moe", num_key_value_heads=8)
        | {"num_experts": 64, "moe_topk": [8] * 32, "head_dim": 128, "tie_word_embeddings": True},
        80_393_183_232,
    ),
    "helium-1-preview": (
        _llama(24, 2560, 20, 7040, 48000, model_type="helium", head_dim=128),
        2_172_643_840,
    ),
    "nanochat-d32": (
        _llama(32, 2048, 16, 8192, 65536, model_type="nanochat", num_key_value_heads=16),
        1_879_048_192,
    ),
    "distilbert-base": (
        {"model_type": "distilbert", "n_layers": 6, "n_heads": 12, "dim": 768, "hidden_dim": 3072}
        | {"vocab_size": 30522},
        66_985_530,
    ),
    "electra-small": (
        BERT
        | {"model_type": "electra", "hidden_size": 256, "num_attention_heads": 4}
        | {"intermediate_size": 1024, "embedding_size": 128},
        13_549_057,
    ),
    "modernbert-base": (
        _llama(22, 768, 12, 1152, 50368, model_type="modernbert", local_attention=128),
        149_655_232,
    ),
    "camembert-base": (
        BERT
        | {"model_type": "camembert", "vocab_size": 32005, "max_position_embeddings": 514}
        | {"type_vocab_size": 1},
        110_655_493,
    ),
    "deit-base-distilled": (VIT | {"model_type": "deit"}, 86_569_192),
    "mt5-small": (
        _t5(8, 512, 6, 1024, model_type="mt5", vocab_size=250112, tie_word_embeddings=False),
        300_176_768,
    ),
}
NAMED_SO = {
    **{name: name for name in ("gpt-neox-20b", "gpt-j-6b", "gemma-7b", "apertus-8b", "command-r")},
    **{name: name for name in ("falcon-7b", "falcon-40b", "olmoe-1b-7b", "phi-2", "seed-oss-36b")},
    **{"phi3-mini": "phi-3-mini", "gemma2-2b": "gemma-2-2b", "olmo3-7b": "olmo-3-7b"},
    **{"glm4-9b": "glm-4-9b", "glm4-32b": "glm-4-32b", "granite3.1-8b": "granite-3.1-8b"},
    "starcoder2-3b": "starcoder2-3b",
}
"""Names of perfsim's own, and those of `PARAMETERS` whose file each is."""
SAMPLES = {f"{config['model_type']} {name}": config for name, config in AS_NAMED.items()} | {
    f"{config['model_type']} {name}": config for name, (config, _) in PARAMETERS.items()
}


@pytest.fixture
def stated(tmp_path: Path) -> Callable[[object], Architecture]:
    """Return what reads a value that was written to a config.json."""

    def read(value: object) -> Architecture:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        return read_config(path)

    return read


def _parameters(shape: Architecture) -> int:
    return sum(layer.elements for layer in architecture_layers(shape))


def test_each_kind_has_a_published_model() -> None:
    assert {name.split()[0] for name in SAMPLES} == set(MODEL_TYPES)


@pytest.mark.parametrize(
    ("more", "groups"),
    [
        ({}, (8, 4)),  # the defaults of DeepseekV3Config
        ({"n_group": 16, "topk_group": 2}, (16, 2)),
        ({"n_group": 1, "topk_group": 1}, (0, 0)),  # Kimi K2
        ({"n_group": None, "topk_group": None}, (0, 0)),
    ],
)
def test_groups_of_experts(
    stated: Callable[[object], Architecture], more: Config, groups: tuple[int, int]
) -> None:
    found = stated(V3 | more)
    assert (found.groups, found.topk_groups) == groups


@pytest.mark.parametrize("name", NAMED_SO)
def test_a_file_whose_parameters_are_counted_is_the_named_model(
    name: str, stated: Callable[[object], Architecture]
) -> None:
    found = stated(PARAMETERS[NAMED_SO[name]][0])
    assert found._replace(seq=0) == NAMED[name]._replace(seq=0)
    assert NAMED[name].seq <= 8192


@pytest.mark.parametrize("name", AS_NAMED)
def test_a_published_file_is_the_named_model(
    name: str, stated: Callable[[object], Architecture]
) -> None:
    found = stated(AS_NAMED[name])
    assert found._replace(seq=0, positions=0) == NAMED[name]._replace(seq=0, positions=0)
    tokens = NAMED[name].seq
    if name.startswith("mpt"):  # its positions are as many as its file says
        assert found.positions == 2048 and NAMED[name].positions == -1
    else:
        assert found.positions == NAMED[name].positions
    assert architecture_layers(found, tokens) == architecture_layers(NAMED[name], tokens)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_published_file_has_the_published_parameters(
    name: str, stated: Callable[[object], Architecture]
) -> None:
    config, count = PARAMETERS[name]
    assert _parameters(stated(config)) == count


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "bert-base", "vit-b16"])
def test_a_published_file_has_the_work_of_the_public_definition(
    name: str, stated: Callable[[object], Architecture]
) -> None:
    shape = stated(PARAMETERS[name][0])
    text = name != "vit-b16"
    found = architecture_layers(shape, 384 if text else None)
    public = build_model(name, 384) if text else build_model(name)
    assert sum(layer.elements for layer in found) == sum(layer.elements for layer in public)
    assert sum(layer.flops for layer in found) == pytest.approx(
        sum(layer.flops for layer in public), rel=1e-12
    )


@pytest.mark.parametrize(
    ("config", "kind", "count"),
    [
        (BERT, "BertForSequenceClassification", 109_482_240 + 2 * 769),
        (_gpt2(12, 768, 12), "GPT2ForSequenceClassification", 124_439_808 + 2 * 768),
    ],
)
def test_a_class_that_classifies_has_its_output_layer(
    config: Config, kind: str, count: int, stated: Callable[[object], Architecture]
) -> None:
    """2 classes where the file names none, as in transformers; another class changes nothing."""
    assert _parameters(stated(config | {"architectures": [kind]})) == count
    named = config | {"architectures": [kind], "id2label": {"0": "a", "1": "b", "2": "c"}}
    assert stated(named).classes == 3
    other = kind.replace("SequenceClassification", "TokenClassification")
    assert stated(config | {"architectures": [other]}) == stated(config)


def test_bert_without_the_heads_of_pre_training_is_the_published_one(
    stated: Callable[[object], Architecture],
) -> None:
    layers = architecture_layers(stated(BERT))
    assert sum(layer.elements for layer in layers if layer.name[:5] == "bert.") == 109_482_240


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        (_llama(1, 64, 1, 64, 9), 2048),
        (_llama(1, 64, 1, 64, 9, max_position_embeddings=4096), 4096),
        (_llama(1, 64, 1, 64, 9, max_position_embeddings=131072), 8192),
        (_llama(1, 64, 1, 64, 9, model_type="qwen2", num_key_value_heads=1), 8192),
        (_gpt2(1, 64, 1), 1024),
        (_gpt2(1, 64, 1, n_positions=16384), 8192),
        (_opt(1, 64, 1), 2048),
        (BERT, 512),
        (PARAMETERS["roberta-base"][0], 512),
        (_t5(1, 64, 1, 64), 512),
    ],
)
def test_tokens_of_a_sample_are_the_positions_to_8192(
    config: Config, tokens: int, stated: Callable[[object], Architecture]
) -> None:
    assert stated(config).seq == tokens


def test_an_absent_key_has_the_default_of_its_kind(
    stated: Callable[[object], Architecture],
) -> None:
    plain = _llama(32, 4096, 32, 11008, 32000)

    def of(kind: str, **more: Any) -> Architecture:
        return stated(plain | {"model_type": kind} | more)

    assert of("llama").kv == of("phi3").kv == of("qwen2").kv == 32
    assert of("mistral").kv == 8 and of("mistral", num_key_value_heads=None).kv == 32
    assert of("mistral").window == 4096 and of("mistral", sliding_window=None).window == 0
    assert of("phi3").window == 0 and of("phi3", sliding_window=2047).window == 2047
    assert not of("llama").tied and of("gemma").tied
    assert (of("qwen3").head, of("qwen3", head_dim=None).head) == (128, 128)
    assert of("qwen3", hidden_size=2048, num_attention_heads=32).head == 128
    assert of("llama", hidden_size=2048).head == 64
    assert of("gemma", num_attention_heads=16).head == 256
    assert of("qwen2").bias == "qkv" and of("llama").bias == "none"
    assert of("llama", attention_bias=True).bias == "attention"
    assert of("llama", attention_bias=True, mlp_bias=True).bias == "all"
    assert of("llama", mlp_bias=True).bias == "ffn"
    assert of("gpt_neox").bias == "all" and of("gpt_neox", attention_bias=False).bias == "ffn"
    assert stated(_gpt2(2, 64, 2)).ffn == 256 and stated(_gpt2(2, 64, 2, n_inner=99)).ffn == 99
    assert stated(_opt(2, 64, 2, enable_bias=False)).bias == "none"
    assert stated({**VIT, "id2label": None}).vocab == 2
    assert stated({**VIT, "id2label": None, "num_labels": 7}).vocab == 7


@pytest.mark.parametrize(
    ("more", "window"),
    [
        ({}, (0, 1)),
        ({"use_sliding_window": True}, (0, 1)),  # from the 28th layer on, of 24
        ({"use_sliding_window": True, "max_window_layers": 12}, (4096, 2)),
        ({"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 99}, (99, 1)),
        ({"use_sliding_window": True, "max_window_layers": 8}, (4096, 1)),
        ({"use_sliding_window": True, "max_window_layers": 11}, None),
    ],
)
def test_windows_are_those_of_the_layers(
    more: Config, window: tuple[int, int] | None, stated: Callable[[object], Architecture]
) -> None:
    config = _llama(24, 64, 4, 64, 99, model_type="qwen2", num_key_value_heads=4) | more
    if window is None:
        said = r"max_window_layers gives 13 of 24 layers a window; perfsim knows one in n, or all"
        with pytest.raises(DataError, match=said):
            stated(config)
    else:
        shape = stated(config)
        assert (shape.window, shape.window_every) == window
        assert shape.full_every == (3 if more.get("max_window_layers") == 8 else 0)


def _reached(shape: Architecture, tokens: int) -> list[float]:
    """Return what each layer's attention costs, as a share of attention to all tokens."""
    layers = architecture_layers(shape, tokens)
    whole = 4.0 * tokens**2 * shape.heads * shape.head
    return [layer.flops / whole for layer in layers if layer.kind == "attention"]


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [("gemma3_text", "SSSSSF" * 4), ("cohere2", "SSSF" * 6), ("olmo3", "SSSF" * 6)],
)
def test_all_layers_but_one_in_n_have_a_window(
    kind: str, pattern: str, stated: Callable[[object], Architecture]
) -> None:
    config = _llama(24, 64, 4, 64, 99, model_type=kind, num_key_value_heads=4, sliding_window=100)
    # A token of 400 reaches those before it: 200 on average, of a window of 100 87.5.
    share = [87.5 / 200 if letter == "S" else 1.0 for letter in pattern]
    assert _reached(stated(config), 400) == pytest.approx(share)
    words = {"S": "sliding_attention", "F": "full_attention"}
    named = config | {"layer_types": [words[letter] for letter in pattern]}
    assert stated(named) == stated(config)
    if kind != "olmo3":
        every_other = stated(config | {"sliding_window_pattern": 2})
        assert _reached(every_other, 400)[:2] == pytest.approx([1.0, 87.5 / 200])


def test_keys_and_values_of_latent_attention_may_differ_in_width(
    stated: Callable[[object], Architecture],
) -> None:
    made = stated(_llama(2, 64, 4, 64, 99) | GLM_FLASH | {"n_routed_experts": 4})
    by_name = {layer.name: layer for layer in architecture_layers(made, 16)}
    attention = by_name["model.layers.1.self_attn.attn"]
    # Scores are 192 + 64 wide, values 256: 2 operations each for 16 x 16 pairs of 4 heads.
    assert attention.flops == 2.0 * 16 * 16 * 4 * (192 + 64 + 256)
    assert by_name["model.layers.1.self_attn.kv_b_proj"].tensors[0][1] == (4 * (192 + 256), 512)
    assert by_name["model.layers.1.self_attn.o_proj"].tensors[0][1] == (64, 4 * 256)


@pytest.mark.parametrize(
    ("more", "activation"),
    [
        ({}, "relu"),
        ({"activation_function": "gelu"}, "one-kernel"),
        ({"activation_function": "gelu_fast"}, "gelu_fast"),
        ({"model_type": "t5"}, "relu"),
        ({"model_type": "t5", "feed_forward_proj": "gated-gelu"}, "gelu_new"),
        ({"model_type": "t5", "feed_forward_proj": "gated-silu"}, "one-kernel"),
        ({"model_type": "llama", "hidden_act": "silu"}, "one-kernel"),
        ({"model_type": "llama", "hidden_act": "quick_gelu"}, "quick_gelu"),
        ({"model_type": "arcee"}, "relu2"),
        ({"model_type": "apertus"}, "xielu"),
        ({"model_type": "gemma3_text", "hidden_activation": "gelu_new"}, "gelu_new"),
        ({"model_type": "phi"}, "gelu_new"),
        ({"model_type": "vit", "hidden_act": "quick_gelu"}, "quick_gelu"),
    ],
)
def test_a_file_says_what_its_activation_is(
    more: dict[str, Any], activation: str, tmp_path: Path
) -> None:
    config = {"model_type": "opt", "vocab_size": 99, "hidden_size": 64, "ffn_dim": 99}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 1, "num_layers": 1, "num_heads": 1}
    config |= {"d_model": 64, "d_ff": 99, "intermediate_size": 99, "num_key_value_heads": 1}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | more))
    assert read_config(path).activation == activation


@pytest.mark.parametrize(
    ("more", "both", "stream"),
    [
        ({"model_type": "gpt2"}, True, False),
        ({"model_type": "gpt2", "resid_pdrop": 0}, False, False),
        ({"model_type": "gpt2", "attn_pdrop": 0.0}, False, True),
        ({"model_type": "gptj"}, False, False),
        ({"model_type": "opt"}, False, True),
        ({"model_type": "opt", "dropout": None}, False, False),
        ({"model_type": "seed_oss"}, True, False),
        ({"model_type": "t5"}, True, False),
        ({"model_type": "t5", "dropout_rate": 0.0}, False, False),
        ({"model_type": "starcoder2"}, False, False),
        ({"model_type": "starcoder2", "residual_dropout": 0.1}, False, True),
        ({"model_type": "phi3", "resid_pdrop": 0.1, "attention_dropout": 0.1}, True, False),
    ],
)
def test_a_file_says_what_it_drops(
    more: dict[str, Any], both: bool, stream: bool, tmp_path: Path
) -> None:
    made = read_config(_file(more, tmp_path))
    assert (made.dropout, made.residual_dropout) == (both, stream)


def _file(more: dict[str, Any], folder: Path) -> Path:
    """Write a config.json of one block that has the keys of all kinds."""
    config = dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer"), 1)
    config |= dict.fromkeys(("hidden_size", "d_model", "n_embd", "head_dim", "d_kv"), 64)
    config |= dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "vocab_size"), 99)
    config |= dict.fromkeys(("num_attention_heads", "num_heads", "n_head"), 1)
    path = folder / "config.json"
    path.write_text(json.dumps(config | {"num_key_value_heads": 1} | more))
    return path


def test_starcoder_has_keys_of_its_own_for_each_head_where_the_file_says_so(
    tmp_path: Path,
) -> None:
    config = {"model_type": "gpt_bigcode", "n_head": 4, "n_positions": 64}
    assert read_config(_file(config, tmp_path)).kv == 1
    assert read_config(_file(config | {"multi_query": False}, tmp_path)).kv == 4


@pytest.mark.parametrize("share", [-0.1, 1.5, True, "0.1"])
def test_a_dropout_that_is_no_share_is_refused(share: object, tmp_path: Path) -> None:
    path = _file({"model_type": "gpt2", "resid_pdrop": share}, tmp_path)
    with pytest.raises(DataError, match=r"resid_pdrop is .*, not a number from 0 to 1"):
        read_config(path)


@pytest.mark.parametrize(
    ("more", "stated"),
    [
        ({"model_type": "llama"}, {"norm": "rms"}),
        ({"model_type": "gemma"}, {"norm": "rms-fp32"}),
        ({"model_type": "gemma2"}, {"norm": "rms-fp32", "softcap": True}),
        ({"model_type": "gemma2", "attn_logit_softcapping": None}, {"softcap": False}),
        ({"model_type": "gemma3_text"}, {"norm": "rms-fp32", "softcap": False}),
        ({"model_type": "olmo2"}, {"norm": "rms-fp32"}),
        ({"model_type": "gpt_oss"}, {"norm": "rms-fp32", "sinks": True}),
        ({"model_type": "t5"}, {"norm": "rms-fp32"}),
        ({"model_type": "cohere"}, {"norm": "layer-fp32"}),
        ({"model_type": "cohere2"}, {"norm": "layer-fp32"}),
        ({"model_type": "deepseek_v3", "n_routed_experts": 16}, {"router_fp32": True}),
        ({"model_type": "glm4_moe"}, {"router_fp32": True, "partial_rotary": True}),
        ({"model_type": "qwen3_moe"}, {"router_fp32": False}),
        ({"model_type": "phi3"}, {"fused_qkv": True, "partial_rotary": True}),
        ({"model_type": "gpt_neox"}, {"fused_qkv": True, "parallel": True}),
        ({"model_type": "gpt_neox", "use_parallel_residual": False}, {"parallel": False}),
        ({"model_type": "falcon", "new_decoder_architecture": True}, {"parallel": True}),
        ({"model_type": "falcon"}, {"parallel": False}),
    ],
)
def test_a_kind_says_how_its_code_is_written(
    more: dict[str, Any], stated: dict[str, object], tmp_path: Path
) -> None:
    made = read_config(_file(LATENT | more, tmp_path))._asdict()
    assert {name: made[name] for name in stated} == stated


LATENT = {
    **{"kv_lora_rank": 16, "qk_rope_head_dim": 16, "qk_nope_head_dim": 64, "v_head_dim": 64},
    **{"moe_intermediate_size": 32, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    **{"n_group": 1, "topk_group": 1},
}
"""Keys of latent attention and of experts, which other kinds pass over."""


def test_a_model_of_more_than_texts_names_the_part_that_perfsim_knows(
    stated: Callable[[object], Architecture],
) -> None:
    within = _llama(2, 64, 4, 64, 99) | GEMMA3 | {"num_key_value_heads": 1}
    with pytest.raises(
        DataError, match=r"'gemma3' is of more than texts.* is the gemma3_text with"
    ):
        stated({"model_type": "gemma3", "text_config": within, "vision_config": {}})
    stated(within)


@pytest.mark.parametrize(
    ("attention", "single"),
    [
        ({}, True),
        ({"attn_impl": "torch"}, True),
        ({"attn_impl": "flash"}, False),  # llm-foundry's
        ({"alibi": False, "rope": True}, False),
    ],
)
def test_alibi_is_no_kernel_of_its_own_unless_one_is_named(
    attention: dict[str, object], single: bool, stated: Callable[[object], Architecture]
) -> None:
    assert stated(_mpt(2, 64, 4, attn_config=attention)).alibi == single


def test_gemma_2_may_name_the_kinds_of_its_layers(
    stated: Callable[[object], Architecture],
) -> None:
    config, _ = PARAMETERS["gemma-2-2b"]
    named = config | {"layer_types": ["sliding_attention", "full_attention"] * 13}
    assert stated(named) == stated(config)
    assert stated(config | {"layer_types": ["full_attention"] * 26}).window == 0


def test_mpt_has_the_layers_that_llm_foundry_builds(
    stated: Callable[[object], Architecture],
) -> None:
    def of(**attention: Any) -> Architecture:
        return stated(_mpt(2, 64, 4, attn_config=attention))

    assert of(attn_type="grouped_query_attention", kv_n_heads=2).kv == 2
    assert of(attn_type="multiquery_attention").kv == 1 and of().kv == 4
    assert of(alibi=False).positions == 2048 and of(alibi=False, rope=True).positions == 0
    assert stated(_mpt(2, 64, 4)).norm == "layer-without-bias"
    assert stated(_mpt(2, 64, 4, norm_type="rmsnorm")).norm == "rms"
    assert stated(_mpt(2, 64, 4, no_bias=False)).norm == "layer"
    assert stated(_mpt(2, 64, 4, ffn_config={"ffn_type": "mptglu"})).gated


def test_modernbert_attends_to_all_tokens_in_every_third_layer_from_the_first(
    stated: Callable[[object], Architecture],
) -> None:
    shape = stated(PARAMETERS["modernbert-base"][0])
    layers = architecture_layers(shape, 1024)
    work = [layer.flops for layer in layers if layer.kind == "attention"]
    near = sum(abs(one - other) <= 64 for one in range(1024) for other in range(1024)) / 1024**2
    assert work[:7] == pytest.approx([work[0] * (1.0, near, near)[at % 3] for at in range(7)])
    assert work[0] == 4.0 * 1024**2 * 768
    # Two a block, of which the embeddings' is the first's; one behind all, and the head's.
    assert sum(layer.kind == "layernorm" for layer in layers) == 22 * 2 + 2


def test_modernbert_in_layers_that_perfsim_does_not_know_is_refused(
    stated: Callable[[object], Architecture],
) -> None:
    asked = PARAMETERS["modernbert-base"][0] | {"num_hidden_layers": 4}
    full, near = "full_attention", "sliding_attention"
    assert stated(asked | {"layer_types": [full, near, full, near]}).full_every == 2
    with pytest.raises(DataError, match="layer_types needs full_attention for every n-th layer"):
        stated(asked | {"layer_types": [near, full, near, full]})
    with pytest.raises(DataError, match="mlp_dropout is above 0; perfsim knows ModernBERT without"):
        stated(asked | {"mlp_dropout": 0.1})


def test_a_discriminator_has_one_number_a_token_and_a_generator_a_word(
    stated: Callable[[object], Architecture],
) -> None:
    electra = PARAMETERS["electra-small"][0]
    told = architecture_layers(stated(electra), 128)[-1]
    written = architecture_layers(stated(electra | {"architectures": ["ElectraForMaskedLM"]}), 128)
    assert (told.outputs, told.flops) == (128, 2.0 * 256 * 128)
    assert written[-1].flops == 2.0 * 128 * 30522 * 128
    assert any(layer.name == "bert.embeddings_project" for layer in written)


def test_a_number_of_each_layer_is_the_same_for_all(
    stated: Callable[[object], Architecture],
) -> None:
    hunyuan = PARAMETERS["hunyuan-a13b"][0]
    assert stated(hunyuan).topk == stated(hunyuan | {"moe_topk": 8}).topk == 8
    with pytest.raises(DataError, match="knows the same number for each layer only"):
        stated(hunyuan | {"moe_topk": [8] * 31 + [4]})
    with pytest.raises(DataError, match="moe_topk is"):
        stated(hunyuan | {"moe_topk": []})


def test_normalisations_without_a_weight_have_no_parameters(
    stated: Callable[[object], Architecture],
) -> None:
    for name in ("olmo-7b", "nanochat-d32"):
        layers = architecture_layers(stated(PARAMETERS[name][0]), 64)
        norms = [one for one in layers if one.kind in ("layernorm", "rmsnorm")]
        assert norms and not any(one.tensors for one in norms), name


SMALL = _llama(2, 64, 4, 64, 100)
SMALL_MOE = SMALL | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "is not a JSON table such as {...} of a config.json"),
        (3, "is not a JSON table"),
        ({}, "model_type is needed; allowed: apertus, arcee, "),
        ({"model_type": None}, "model_type is needed; allowed: apertus"),
        ({"model_type": ["llama"]}, "model_type is ['llama']; allowed: apertus"),
        (
            {"model_type": "lama"},
            f"model_type: no 'lama'; did you mean 'llama'? Allowed are {len(MODEL_TYPES)} names",
        ),
        (
            {"model_type": "zzz"},
            f"model_type: no 'zzz'. Allowed are {len(MODEL_TYPES)} names, such as apertus, arcee,"
            " bert (profiles/README.md shows them)",
        ),
        ({"model_type": "qwen3_next"}, "model_type: 'qwen3_next' has layers of linear attention: "),
        (
            {"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}},
            "model_type: 'qwen3_5' has layers of linear attention: perfsim does not know",
        ),
        ({"model_type": "qwen3_6", "text_config": [1]}, "model_type: no 'qwen3_6'; did you"),
        ({"model_type": "gemma3", "text_config": {"model_type": {}}}, "model_type: no 'gemma3'; "),
        ({"model_type": "\ud800" * 99}, "model_type: no '\\ud800"),
        ({"model_type": "llama"}, "num_hidden_layers is needed: a whole number from 1 to 10000"),
        (SMALL | {"model_type": "olmo", "clip_qkv": 8.0}, "clip_qkv"),
        (
            SMALL | {"model_type": "helium", "num_key_value_heads": 4, "head_dim": 32},
            "head_dim is 32: 4 heads are not as",
        ),
        (
            SMALL | {"model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_layer_end_index": 0},
            "moe_layer_end_index needs to be -1 or the last layer, 1",
        ),
        (SMALL | {"vocab_size": None}, "vocab_size is needed: a whole number from 1 to 100"),
        (SMALL | {"hidden_size": "64"}, "hidden_size is '64', not a whole number from 1 to "),
        (SMALL | {"hidden_size": 64.0}, "hidden_size is 64.0, not a whole number from 1"),
        (SMALL | {"hidden_size": True}, "hidden_size is true, not a whole number"),
        (SMALL | {"hidden_size": [64]}, "hidden_size is [64], not a whole number"),
        (SMALL | {"hidden_size": -64}, "hidden_size is -64, not a whole number from 1 to 10000"),
        (SMALL | {"hidden_size": 0}, "hidden_size is 0, not a whole number from 1"),
        (SMALL | {"hidden_size": 10**10}, "hidden_size is 10000000000, not a whole number"),
        (SMALL | {"hidden_size": float("nan")}, "hidden_size is nan, not a whole number"),
        (SMALL | {"hidden_size": float("inf")}, "hidden_size is inf, not a whole number"),
        (
            SMALL | {"num_hidden_layers": 10001},
            "num_hidden_layers is 10001, not a whole number from 1",
        ),
        (
            SMALL | {"num_attention_heads": 5},
            "num_attention_heads is 5, which does not divide hidden_size 64; give head_dim",
        ),
        (
            SMALL | {"num_key_value_heads": 3},
            "num_key_value_heads is 3, which does not divide num_attention_heads 4",
        ),
        (SMALL | {"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', not true or false"),
        (SMALL | {"attention_bias": 1}, "attention_bias is 1, not true or false"),
        (
            SMALL | {"hidden_size": 10**9, "intermediate_size": 10**9},
            "such a model has more than 1e14 parameters",
        ),
        (
            SMALL
            | {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}
            | {"num_key_value_heads": 4},
            "num_experts_per_tok is 3, not a whole number from 1 to 2",
        ),
        (
            SMALL_MOE | {"model_type": "qwen3_moe", "mlp_only_layers": [1]},
            "mlp_only_layers is [1]; perfsim knows the first layers only",
        ),
        (
            SMALL_MOE | {"model_type": "qwen3_moe", "mlp_only_layers": 3},
            "mlp_only_layers is 3, not a list",
        ),
        (
            SMALL_MOE | {"model_type": "qwen3_moe", "decoder_sparse_step": 2},
            "decoder_sparse_step is 2; perfsim knows 1 only",
        ),
        (
            SMALL_MOE
            | {"model_type": "qwen2_moe", "num_key_value_heads": 4}
            | {"shared_expert_intermediate_size": 24},
            "shared_expert_intermediate_size is 24, which moe_intermediate_size 16 does not divide",
        ),
        (
            SMALL | {"model_type": "gemma2", "num_key_value_heads": 4, "layer_types": ["mamba"]},
            "layer_types needs one of full_attention, sliding_attention for each layer",
        ),
        (V3 | {"v_head_dim": 0}, "v_head_dim is 0, not a whole number from 1"),
        (V3 | {"attention_bias": True}, "attention_bias is true; perfsim knows false only"),
        (V3 | {"moe_layer_freq": True}, "moe_layer_freq is true; perfsim knows 1 only"),
        (V3 | {"n_routed_experts": None}, "n_routed_experts is needed: a whole number"),
        (_gpt2(2, 64, 5), "n_head is 5, which does not divide n_embd 64"),
        (_gpt2(2, 64, 4, add_cross_attention=True), "add_cross_attention is true; perfsim knows"),
        (
            _opt(24, 1024, 16, word_embed_proj_dim=512),
            "word_embed_proj_dim is 512; perfsim knows hidden_size 1024 only",
        ),
        (
            _opt(2, 64, 4, do_layer_norm_before=False),
            "do_layer_norm_before is false; perfsim knows",
        ),
        (_mpt(2, 64, 4, attn_config=[]), "attn_config is [], not a table of names and values"),
        (_mpt(2, 64, 4, attn_config={"qk_ln": True}), "attn_config.qk_ln is true; perfsim knows"),
        (
            _mpt(2, 64, 4, attn_config={"attn_type": "linear"}),
            "attn_config.attn_type is 'linear'; perfsim knows multihead_attention, multiquery",
        ),
        (
            _mpt(2, 64, 4, attn_config={"attn_type": "grouped_query_attention", "kv_n_heads": 3}),
            "attn_config.kv_n_heads is 3, which does not divide n_heads 4",
        ),
        (_mpt(2, 64, 4, norm_type="batch"), "norm_type is 'batch'; perfsim knows low_precision_"),
        (BERT | {"type_vocab_size": 3}, "type_vocab_size is 3; perfsim knows 2 only"),
        (BERT | {"is_decoder": True}, "is_decoder is true; perfsim knows false only"),
        (
            BERT | {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'; perfsim knows absolute",
        ),
        (_t5(2, 64, 4, 64, feed_forward_proj="swish"), "feed_forward_proj is 'swish'; perfsim"),
        (
            _t5(2, 64, 4, 64, num_decoder_layers=3),
            "num_decoder_layers is 3; perfsim knows num_layers 2 only",
        ),
        (VIT | {"patch_size": 15}, "patch_size is 15, which does not divide image_size 224"),
        (VIT | {"image_size": [224, 216]}, "patch_size is 16, which does not divide image_size"),
        (VIT | {"image_size": [224] * 3}, "image_size is [224, 224, 224], not a number or a list"),
        (VIT | {"image_size": [224, 0]}, "image_size is 0, not a whole number from 1"),
        (VIT | {"num_channels": 0}, "num_channels is 0, not a whole number from 1"),
        (
            _t5(2, 64, 4, 128) | {"architectures": ["T5ForSequenceClassification"]},
            "architectures has 'T5ForSequenceClassification': perfsim knows T5 that writes text",
        ),
        (VIT | {"id2label": ["cat"]}, "id2label is ['cat'], not a table of names and values"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(
    value: object, said: str, tmp_path: Path, stated: Callable[[object], Architecture]
) -> None:
    with pytest.raises(DataError) as refused:
        stated(value)
    assert str(refused.value).startswith(f"{tmp_path / 'config.json'}: {said}")
    assert "\n" not in str(refused.value) and refused.value.exit_code == 3


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ", line 1: is not JSON: expecting value at character 1"),
        (b'{"model_type":\n "llama",}', ", line 2: is not JSON: "),
        (b"hidden_size: 64", ", line 1: is not JSON: expecting value"),
        (b"\x80\x02}q\x00", ": is not text in UTF-8: byte 1 of 5 is wrong"),
        (b"[" * 10_000, ": has tables in tables in tables, which no config.json has"),
        (b'{"a":' * 10_000, ": has tables in tables in tables"),
        (
            json.dumps(SMALL).replace("64", "9" * 5000, 1).encode(),
            f": hidden_size is {'9' * 60}..., not a whole number from 1",
        ),
        (
            json.dumps(SMALL).replace("64", "1e999", 1).encode(),
            ": hidden_size is inf, not a whole number from 1",
        ),
        (
            json.dumps(SMALL).replace("64", "[" * 300 + "]" * 300, 1).encode(),
            f": hidden_size is {'[' * 60}..., not a whole number from 1",
        ),
    ],
    ids=["empty", "comma", "yaml", "pickle", "lists", "tables", "digits", "infinite", "nested"],
)
def test_a_file_that_is_no_config_is_refused_in_one_sentence(
    data: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(DataError) as refused:
        read_config(path)
    assert str(refused.value).startswith(f"{path}{said}")
    assert "\n" not in str(refused.value)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)  # a sparse file: it takes no room
    with pytest.raises(DataError, match=r"config\.json: is larger than 1 MiB$"):
        read_config(path)
    path.write_text(json.dumps(SMALL).ljust(2**20), encoding="utf-8")
    assert read_config(path).hidden == 64


@pytest.mark.parametrize(
    ("name", "why"),
    [("none.json", "No such file or directory"), (".", "Is a directory"), ("\0", "embedded null")],
)
def test_a_file_that_cannot_be_read_is_named(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        read_config(tmp_path / name)
    said = str(refused.value)
    assert said.startswith(f"{tmp_path / name}: cannot be read: ") and why in said


def test_a_model_is_named_by_its_file_or_folder(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(AS_NAMED["llama3-8b"]), encoding="utf-8")
    for model in (str(path), str(tmp_path)):
        assert is_specified(model) and specification_takes_tokens(model)
        assert architecture_of(model) == NAMED["llama3-8b"]
        assert specified_layers(canonical_model(model)) == specified_layers("llama3-8b")


def test_a_changed_file_is_another_model_and_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL), encoding="utf-8")
    noted: dict[str, Any] = {}
    with noting(noted):
        before = canonical_model(str(path))
    assert list(noted) == [str(path)] and not files_changed(noted)
    path.write_text(json.dumps(SMALL | {"num_hidden_layers": 12}), encoding="utf-8")
    assert files_changed(noted)
    assert canonical_model(str(path)) == before.replace("layers=2,", "layers=12,") != before


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_has_a_canonical_name_with_the_same_layers(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SAMPLES[name]), encoding="utf-8")
    canonical = canonical_model(str(path))
    assert canonical_model(canonical) == canonical
    assert architecture_of(canonical) == architecture_of(str(path))
    layers = specified_layers(canonical)
    assert len({layer.name for layer in layers}) == len(layers)
    assert all(layer.flops >= 0 and layer.activation_bytes > 0 for layer in layers)


KEYS = sorted({key for config in SAMPLES.values() for key in config} - {"model_type"})
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
CHANGED = st.tuples(
    st.sampled_from(sorted(SAMPLES)), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)
).map(lambda drawn: SAMPLES[drawn[0]] | drawn[1])
CUT = st.tuples(st.sampled_from(sorted(SAMPLES)), st.sampled_from(KEYS)).map(
    lambda drawn: {key: value for key, value in SAMPLES[drawn[0]].items() if key != drawn[1]}
)


@given(value=VALUES | CHANGED | CUT)
def test_any_json_is_an_architecture_or_is_refused(
    value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    try:
        shape = read_config(path)
    except DataError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
        return
    assert isinstance(shape, Architecture)
    assert architecture_of(canonical_model(str(path))) == shape
