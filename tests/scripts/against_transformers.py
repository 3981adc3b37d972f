"""Hold models of random config.json files against those that Hugging Face transformers builds.

``python tests/scripts/against_transformers.py [--files N] [--seed S] [--types A,B]`` prints a line
a ``model_type``: the files, how many of them have as many parameters in both, and how many the
same work in a forward pass of `TOKENS` tokens or of an image (PyTorch's FlopCounterMode). It needs
``pip install torch 'transformers>=5.24,<6'``. Models are small. What perfsim leaves out by
intention is taken off (`LEFT_OUT`). `against_transformers.txt` has what it printed last.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

from perfsim.errors import DataError
from perfsim.models.config_file import read_config
from perfsim.models.language import architecture_layers
from perfsim.models.layers import ModelLayer
from perfsim.models.model_types import MODEL_TYPES

Config = dict[str, Any]

LEFT_OUT: dict[str, Callable[[str], bool]] = {
    "apertus": lambda name: ".act_fn." in name,
    "ernie4_5_moe": lambda name: name.endswith("e_score_correction_bias"),
    "gpt_oss": lambda name: name.endswith((".sinks", "_proj_bias", "router.bias")),
}
"""Parameters that perfsim leaves out: activations, biases that choose experts, biases, sinks."""

TOKENS = 48
"""Tokens of the forward pass; no window is shorter."""

_ROTARY = 2e-3
"""Share of the work of so small a model that is the angles of rotary positions, worked out once."""

ABSENT = {"kimi_k2": "code of its own, DeepSeek-V3's", "mpt": "checked against llm-foundry"}
"""Kinds that transformers does not build."""


CLASSES = {
    "bert": "BertForPreTraining",
    "camembert": "CamembertForMaskedLM",
    "deit": "DeiTForImageClassification",
    "distilbert": "DistilBertForMaskedLM",
    "electra": "ElectraForPreTraining",
    "modernbert": "ModernBertForMaskedLM",
    "mt5": "MT5ForConditionalGeneration",
    "roberta": "RobertaForMaskedLM",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTForImageClassification",
    "xlm-roberta": "XLMRobertaForMaskedLM",
}
"""Classes of kinds that are no decoders, where a file names no other."""
IMAGES, PAIRS = ("deit", "vit"), ("mt5", "t5")
"""Kinds over images, and those of an encoder with a decoder."""


def a_config(kind: str, chance: random.Random) -> Config:
    """Return a random config of a kind, with the keys that such files have."""
    head, kv = chance.choice((16, 32, 64)), chance.choice((1, 2, 4))
    heads, layers = kv * chance.choice((1, 2, 3)), chance.randint(2, 9)
    config: Config = {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": head * heads,
        "num_attention_heads": heads,
        "intermediate_size": chance.randint(3, 40) * 8,
        "vocab_size": chance.randint(50, 400),
        "max_position_embeddings": 256,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
    }
    if kind in _CLASSIC:
        return _CLASSIC[kind](config, chance)
    config |= {"num_key_value_heads": kv, "tie_word_embeddings": chance.random() < 0.5}
    if kind not in _OWN_HEADS:
        config["head_dim"] = head if kind in _SHARED_HEADS else chance.choice((head, 2 * head))
    config |= {key: chance.random() < 0.5 for key in _SWITCHES.get(kind, ())}
    config |= _experts(kind, chance)
    return _LATER.get(kind, lambda config, chance: config)(config, chance)


_OWN_HEADS = ("falcon", "stablelm", "phi", "starcoder2", "cohere2")
"""Kinds without ``head_dim``."""
_SHARED_HEADS = (
    *("olmo2", "olmo3", "olmoe", "exaone4", "granite", "granitemoe", "smollm3", "apertus"),
    *("cohere", "phi3", "gpt_oss", "hunyuan_v1_dense", "hunyuan_v1_moe", "olmo", "phimoe"),
    *("helium", "nanochat"),
)
"""Kinds whose heads are shares of the width, as files of them say."""
_SWITCHES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("llama", "granite", "arcee", "nemotron", "smollm3"), ("attention_bias", "mlp_bias")
    ),
    **dict.fromkeys(
        ("apertus", "cohere2", "dots1", "gemma", "gemma2", "gemma3_text", "glm", "glm4"),
        ("attention_bias",),
    ),
    **dict.fromkeys(
        ("granitemoe", "hunyuan_v1_dense", "olmo2", "olmo3", "olmoe", "qwen3", "qwen3_moe"),
        ("attention_bias",),
    ),
    **dict.fromkeys(("helium", "hunyuan_v1_moe", "nanochat", "olmo"), ("attention_bias",)),
    "phimoe": ("attention_bias", "lm_head_bias"),
    **dict.fromkeys(("cohere", "glm4_moe"), ("attention_bias", "use_qk_norm")),
    "ernie4_5": ("use_bias",),
    "falcon": ("new_decoder_architecture", "multi_query", "parallel_attn", "bias"),
    "qwen2_moe": ("qkv_bias",),
    "stablelm": ("use_qkv_bias", "use_parallel_residual"),
    "starcoder2": ("use_bias",),
}
_LATENT = ("glm4_moe_lite", "mistral4", "deepseek_v2", "deepseek_v3")
_ROUTED = ("dots1", "glm4_moe", *_LATENT)


def _experts(kind: str, chance: random.Random) -> Config:
    """Return the keys of a kind's experts; none for dense kinds."""
    count, width = chance.choice((4, 8, 16)), chance.randint(1, 9) * 8
    if kind in _ROUTED:
        return {
            "n_routed_experts": count,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": width,
            "n_shared_experts": chance.randint(1, 2),
            "first_k_dense_replace": chance.randint(0, 2),
            **dict.fromkeys(("n_group", "topk_group"), 1),
        }
    if kind in ("gpt_oss", "minimax_m2", "granitemoe", "mixtral", "phimoe"):
        return {"num_local_experts": count, "num_experts_per_tok": 2}
    shared = chance.randint(0, 2)
    of_qwen = {"num_experts": count, "num_experts_per_tok": 3, "moe_intermediate_size": width}
    of_qwen |= {"shared_expert_intermediate_size": 2 * width}
    of_ernie = {"moe_num_experts": count, "moe_k": 3, "moe_intermediate_size": width}
    of_ernie |= {"moe_num_shared_experts": shared, "moe_layer_start_index": shared}
    made: dict[str, Config] = {
        "olmoe": {"num_experts": count, "num_experts_per_tok": 3},
        "qwen2_moe": of_qwen,
        "qwen3_moe": of_qwen,
        "hunyuan_v1_moe": {"num_experts": count, "moe_topk": 3},
        "ernie4_5_moe": of_ernie,
    }
    return made.get(kind, {})


def _latent(config: Config, chance: random.Random) -> Config:
    del config["head_dim"]
    return config | {
        "kv_lora_rank": 24,
        "q_lora_rank": chance.choice((None, 40)),
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": chance.choice((16, 32)),
        "num_key_value_heads": config["num_attention_heads"],
    }


def _flash(config: Config, chance: random.Random) -> Config:
    dense = config.pop("first_k_dense_replace")
    kinds = ["dense"] * dense + ["sparse"] * (config["num_hidden_layers"] - dense)
    return _latent(config, chance) | {"mlp_layer_types": kinds}


def _seed(config: Config, chance: random.Random) -> Config:
    inputs, outputs, forward = chance.choice(
        ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 0, 1), (1, 1, 1))
    )
    biases = {"attention_bias": bool(inputs), "attention_out_bias": bool(outputs)}
    return config | biases | {"mlp_bias": bool(forward)}


def _falcon(config: Config, chance: random.Random) -> Config:
    kv = config.pop("num_key_value_heads")
    config["num_kv_heads"] = kv
    if config["new_decoder_architecture"]:
        config["parallel_attn"] = True  # the other does not run
    else:
        config["num_kv_heads"] = config["num_attention_heads"]
    return config | {"ffn_hidden_size": config.pop("intermediate_size")}


def _hunyuan_moe(config: Config, chance: random.Random) -> Config:
    every = [config["moe_topk"]] * config["num_hidden_layers"]
    return config | {"moe_topk": chance.choice((config["moe_topk"], every))}


Changed = Callable[[Config, random.Random], Config]
_LATER: dict[str, Changed] = {
    **dict.fromkeys(("mistral4", "deepseek_v2", "deepseek_v3"), _latent),
    "glm4_moe_lite": _flash,
    "seed_oss": _seed,
    "falcon": _falcon,
    "hunyuan_v1_moe": _hunyuan_moe,
}
"""What a kind's file has beside the keys of most."""


def _gpt2(config: Config, chance: random.Random) -> Config:
    return {
        "model_type": config["model_type"],
        "vocab_size": config["vocab_size"],
        "n_layer": config["num_hidden_layers"],
        "n_embd": config["hidden_size"],
        "n_head": config["num_attention_heads"],
        "n_positions": 128,
        "rotary_dim": 8,
        "n_inner": chance.choice((None, 96)),
    }


def _t5(config: Config, chance: random.Random) -> Config:
    # Version 1.1 has an output layer of its own, which transformers 5 ties all the same.
    return {
        "model_type": config["model_type"],
        "vocab_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "d_model": config["hidden_size"],
        "num_heads": config["num_attention_heads"],
        "d_kv": 24,
        "d_ff": config["intermediate_size"],
        "feed_forward_proj": chance.choice(("relu", "gated-gelu")),
        "pad_token_id": 0,
    }


def _opt(config: Config, chance: random.Random) -> Config:
    config["ffn_dim"] = config.pop("intermediate_size")
    return config | {"word_embed_proj_dim": config["hidden_size"]}


def _vit(config: Config, chance: random.Random) -> Config:
    labels = {str(number): f"class {number}" for number in range(chance.randint(2, 9))}
    return config | {"image_size": 32, "patch_size": 8, "id2label": labels}


def _bigcode(config: Config, chance: random.Random) -> Config:
    return _gpt2(config, chance) | {"multi_query": chance.random() < 0.5}


def _bloom(config: Config, chance: random.Random) -> Config:
    return {
        "model_type": "bloom",
        "vocab_size": config["vocab_size"],
        "n_layer": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "n_head": config["num_attention_heads"],
        "pad_token_id": 0,
    }


def _distilbert(config: Config, chance: random.Random) -> Config:
    return {
        "model_type": "distilbert",
        "vocab_size": config["vocab_size"],
        "n_layers": config["num_hidden_layers"],
        "dim": config["hidden_size"],
        "n_heads": config["num_attention_heads"],
        "hidden_dim": config["intermediate_size"],
        "max_position_embeddings": config["max_position_embeddings"],
    }


def _electra(config: Config, chance: random.Random) -> Config:
    made = chance.choice(("ElectraForPreTraining", "ElectraForMaskedLM"))
    width = chance.choice((config["hidden_size"], 24))
    return config | {"embedding_size": width, "architectures": [made]}


def _modernbert(config: Config, chance: random.Random) -> Config:
    config |= {
        key: chance.random() < 0.5
        for key in ("attention_bias", "mlp_bias", "norm_bias", "decoder_bias")
    }
    every = chance.randint(1, 4)
    return config | {"global_attn_every_n_layers": every, "local_attention": 128}


_CLASSIC: dict[str, Changed] = {
    "bert": lambda config, chance: config,
    "bloom": _bloom,
    "gpt_bigcode": _bigcode,
    **dict.fromkeys(
        ("camembert", "roberta", "xlm-roberta"),
        lambda config, chance: config | {"type_vocab_size": 1, "pad_token_id": 1},
    ),
    **dict.fromkeys(("gpt2", "gptj", "codegen"), _gpt2),
    "gpt_neox": lambda config, chance: config | {"tie_word_embeddings": chance.random() < 0.5},
    "opt": _opt,
    **dict.fromkeys(("mt5", "t5"), _t5),
    **dict.fromkeys(("deit", "vit"), _vit),
    "distilbert": _distilbert,
    "electra": _electra,
    "modernbert": _modernbert,
}
"""The older kinds, which have keys of their own."""


class Counted(NamedTuple):
    """Parameters of a model and the operations of a forward pass."""

    parameters: int
    flops: float


def by_transformers(config: Config) -> Counted:
    """Return what transformers gives the model, without what is left out."""
    import torch
    import transformers
    from torch.utils.flop_counter import FlopCounterMode

    transformers.logging.set_verbosity_error()
    kind = config["model_type"]
    made = transformers.AutoConfig.for_model(**config)
    # Operations of fused attention and of grouped products are not counted on a CPU.
    plain = {"attn_implementation": "eager", "experts_implementation": "eager"}
    make = transformers.AutoModelForCausalLM.from_config
    if kind == "mistral4":  # not among the automatic ones
        make = transformers.models.mistral4.Mistral4ForCausalLM._from_config
    elif kind in CLASSES:
        stated = config.get("architectures", [CLASSES[kind]])[0]
        make = getattr(transformers, stated)._from_config
    model = make(made, **plain)
    left_out = LEFT_OUT.get(kind, lambda name: False)
    count = sum(one.numel() for name, one in model.named_parameters() if not left_out(name))
    words = torch.zeros(1, TOKENS, dtype=torch.long)
    given: dict[str, Any] = {"input_ids": words}
    if kind in IMAGES:
        given = {"pixel_values": torch.zeros(1, 3, config["image_size"], config["image_size"])}
    elif kind in PAIRS:
        given |= {"decoder_input_ids": words[:, : round(TOKENS * 114 / 512)]}
    if kind not in CLASSES or kind in PAIRS:
        given |= {"use_cache": False}
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(**given)
    return Counted(count, float(counter.get_total_flops()))


def layers_of(config: Config, tokens: int) -> tuple[ModelLayer, ...]:
    """Return the layers that perfsim makes of a config.json; an image has no tokens to state."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        shape = read_config(path)
    return architecture_layers(shape, None if shape.over_images else tokens)


def by_perfsim(config: Config) -> Counted:
    """Return what perfsim gives the model."""
    layers = layers_of(config, TOKENS)
    return Counted(sum(layer.elements for layer in layers), sum(layer.flops for layer in layers))


def main() -> None:
    """Print a line a kind; exit with 1 where a file has other parameters than in transformers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--files", type=int, default=20, help="files of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--types", help="only these, separated by commas")
    given = parser.parse_args()
    kinds = given.types.split(",") if given.types else list(MODEL_TYPES)
    wrong = 0
    import torch
    import transformers

    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}")
    print(f"{'model_type':18}{'files':>6}{'parameters':>11}{'flops':>7}")
    for kind in kinds:
        if kind in ABSENT:
            print(f"{kind:18}{'-':>6}{'-':>11}{'-':>7}  {ABSENT[kind]}")
            continue
        chance = random.Random(f"{given.seed} {kind}")
        same, work = 0, 0
        for _ in range(given.files):
            config = a_config(kind, chance)
            theirs = by_transformers(config)
            try:
                ours = by_perfsim(config)
            except DataError as error:
                print(f"  {kind}: {error}: {json.dumps(config)}")
                continue
            same += ours.parameters == theirs.parameters
            alike = isclose(theirs.flops, ours.flops, rel_tol=_ROTARY)
            work += alike
            if ours.parameters != theirs.parameters or not alike:
                print(f"  {kind}: perfsim {ours}, transformers {theirs}: {json.dumps(config)}")
        wrong += 2 * given.files - same - work
        print(f"{kind:18}{given.files:6}{same:11}{work:>7}", flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
