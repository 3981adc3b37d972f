"""Published transformers by the name that ``model`` takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from perfsim.models.language import Architecture

__all__ = ["NAMED", "without_owner"]


def _llama(
    layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any
) -> Architecture:
    made = Architecture(layers, hidden, heads, kv, hidden // heads, ffn, vocab)
    return made._replace(**more)


def _gpt3(layers: int, hidden: int, heads: int, **more: Any) -> Architecture:
    made = Architecture(layers, hidden, heads, heads, hidden // heads, 4 * hidden, 50257)
    learned = made._replace(positions=2048, norm="layer", gated=False, bias="all", tied=True)
    return learned._replace(**more)


_OPT: dict[str, Any] = {"vocab": 50272, "positions": 2050, "spare": 2}
_OPT |= {"activation": "relu", "residual_dropout": True}


def _dit(layers: int, hidden: int, heads: int) -> Architecture:
    made = Architecture(layers, hidden, heads, heads, hidden // heads, 4 * hidden, 1000)
    made = made._replace(family="dit", norm="layer", gated=False, bias="all")
    return made._replace(image=32, patch=2, channels=4, learn_sigma=True)


def _t5(layers: int, hidden: int, heads: int, head: int, ffn: int) -> Architecture:
    made = Architecture(layers, hidden, heads, heads, head, ffn, 32128, family="encoder-decoder")
    made = made._replace(seq=512, gated=False, tied=True, activation="relu")
    return made._replace(norm="rms-fp32", dropout=True)


def _qwen3(layers: int, hidden: int, heads: int, expert_ffn: int) -> Architecture:
    made = Architecture(layers, hidden, heads, 4, 128, 3 * hidden, 151936, seq=4096, qk_norm=True)
    return made._replace(experts=128, topk=8, expert_ffn=expert_ffn)


def _qwen3_dense(
    layers: int, hidden: int, heads: int, ffn: int, tied: bool = False
) -> Architecture:
    made = Architecture(layers, hidden, heads, 8, 128, ffn, 151936, seq=4096, tied=tied)
    return made._replace(qk_norm=True)


def _olmo2(layers: int, hidden: int, kv: int, ffn: int) -> Architecture:
    made = _llama(layers, hidden, hidden // 128, kv, ffn, 100352, seq=4096, norm="rms-fp32")
    return made._replace(qk_norm=True, qk_norm_all=True)


def _glm4_5(layers: int, hidden: int, ffn: int, experts: int, expert_ffn: int) -> Architecture:
    made = Architecture(layers, hidden, 96, 8, 128, ffn, 151552, seq=4096, bias="qkv")
    made = made._replace(router_fp32=True, partial_rotary=True)
    return made._replace(experts=experts, topk=8, expert_ffn=expert_ffn, shared=1)


def _gpt_oss(layers: int, experts: int) -> Architecture:
    made = Architecture(layers, 2880, 64, 8, 64, 2880, 201088, seq=4096)
    made = made._replace(window=128, window_every=2, bias="all", norm="rms-fp32", sinks=True)
    return made._replace(experts=experts, topk=4, expert_ffn=2880)


def _nemotron(layers: int, hidden: int, heads: int, kv: int, ffn: int) -> Architecture:
    made = _llama(layers, hidden, heads, kv, ffn, 256000, seq=4096, norm="layer", gated=False)
    return made._replace(activation="relu2", partial_rotary=True)


_LAYER: dict[str, Any] = {"norm": "layer", "gated": False}


def _neox(layers: int, hidden: int, heads: int, vocab: int) -> Architecture:
    made = _llama(layers, hidden, heads, heads, 4 * hidden, vocab, **_LAYER)
    return made._replace(bias="all", fused_qkv=True, partial_rotary=True, parallel=True)


def _falcon(layers: int, hidden: int, heads: int, kv: int, **more: Any) -> Architecture:
    made = _llama(layers, hidden, heads, kv, 4 * hidden, 65024, **_LAYER)
    return made._replace(tied=True, fused_qkv=True, **more)


def _gemma(*numbers: int, head: int = 256, **more: Any) -> Architecture:
    made = _llama(*numbers, head=head, seq=8192, tied=True, norm="rms-fp32")
    return made._replace(**more)


def _gemma2(*numbers: int, head: int = 256) -> Architecture:
    made = _gemma(*numbers, 256000, head=head, norms=4)
    return made._replace(window=4096, window_every=2, softcap=True)


def _gemma3(*numbers: int, head: int = 256, window: int = 1024) -> Architecture:
    made = _gemma(*numbers, 262144, head=head, norms=4)
    return made._replace(qk_norm=True, window=window, full_every=6)


def _starcoder2(layers: int, hidden: int, heads: int, kv: int) -> Architecture:
    made = _llama(layers, hidden, heads, kv, 4 * hidden, 49152, seq=4096, tied=True, **_LAYER)
    return made._replace(bias="all", window=4096)


def _phi(*numbers: int, **more: Any) -> Architecture:
    return _llama(*numbers, seq=4096, fused_qkv=True, partial_rotary=True, **more)


def _deepseek(
    layers: int, hidden: int, heads: int, ffn: int, vocab: int, q_rank: int = 0
) -> Architecture:
    made = Architecture(layers, hidden, heads, heads, 128, ffn, vocab, seq=4096, q_rank=q_rank)
    return made._replace(router_fp32=True, kv_rank=512, rope=64)


_LLAMA3 = {
    "8b": _llama(32, 4096, 32, 8, 14336, 128256, seq=8192),
    "70b": _llama(80, 8192, 64, 8, 28672, 128256, seq=8192),
    "405b": _llama(126, 16384, 128, 8, 53248, 128256, seq=8192),
}


NAMED: dict[str, Architecture] = {
    # Brown et al., arXiv 2005.14165, table 2.1; XL with 16 heads, since its 24 do not divide 2048,
    # and 13B with a width of 5120, of which its 40 heads of 128 are.
    "gpt3-125m": _gpt3(12, 768, 12),
    "gpt3-350m": _gpt3(24, 1024, 16),
    "gpt3-760m": _gpt3(24, 1536, 16),
    "gpt3-1.3b": _gpt3(24, 2048, 16),
    "gpt3-2.7b": _gpt3(32, 2560, 32),
    "gpt3-6.7b": _gpt3(32, 4096, 32),
    "gpt3-13b": _gpt3(40, 5120, 40),
    "gpt3-175b": _gpt3(96, 12288, 96),
    # Zhang et al., arXiv 2205.01068, table 1; 50272 words and two more positions: facebook/opt-*
    # config.json. OPT-350M is missing: it alone normalises afterwards and projects its embedding.
    "opt-125m": _gpt3(12, 768, 12, **_OPT),
    "opt-1.3b": _gpt3(24, 2048, 32, head=64, **_OPT),
    "opt-2.7b": _gpt3(32, 2560, 32, **_OPT),
    "opt-6.7b": _gpt3(32, 4096, 32, **_OPT),
    "opt-13b": _gpt3(40, 5120, 40, **_OPT),
    "opt-30b": _gpt3(48, 7168, 56, **_OPT),
    "opt-66b": _gpt3(64, 9216, 72, **_OPT),
    # mosaicml/llm-foundry@8c8dd48 scripts/train/benchmarking/README.md: learned positions, biases.
    **{
        f"mpt-{size}": _gpt3(layers, hidden, heads, vocab=50368, positions=-1)
        for size, layers, hidden, heads in (
            ("125m", 12, 768, 12),
            ("350m", 24, 1024, 16),
            ("760m", 24, 1536, 12),
            ("1b", 24, 2048, 16),
            ("3b", 32, 2560, 20),
            ("7b", 32, 4096, 32),
            ("13b", 40, 5120, 40),
            ("30b", 48, 7168, 56),
            ("70b", 80, 8192, 64),
        )
    },
    # Touvron et al., arXiv 2302.13971 and 2307.09288; Dubey et al., arXiv 2407.21783, table 3.
    # 3.1 and 3.3 have the numbers of 3, and take longer samples.
    "llama-7b": _llama(32, 4096, 32, 32, 11008, 32000),
    "llama-13b": _llama(40, 5120, 40, 40, 13824, 32000),
    "llama-33b": _llama(60, 6656, 52, 52, 17920, 32000),
    "llama-65b": _llama(80, 8192, 64, 64, 22016, 32000),
    "llama2-7b": _llama(32, 4096, 32, 32, 11008, 32000, seq=4096),
    "llama2-13b": _llama(40, 5120, 40, 40, 13824, 32000, seq=4096),
    "llama2-70b": _llama(80, 8192, 64, 8, 28672, 32000, seq=4096),
    **{f"llama3-{size}": made for size, made in _LLAMA3.items()},
    **{f"llama3.1-{size}": made for size, made in _LLAMA3.items()},
    "llama3.3-70b": _LLAMA3["70b"],
    # meta-llama/Llama-3.2-1B and -3B config.json.
    "llama3.2-1b": _llama(16, 2048, 32, 8, 8192, 128256, seq=8192, tied=True),
    "llama3.2-3b": _llama(28, 3072, 24, 8, 8192, 128256, seq=8192, tied=True),
    # The config.json of codellama/CodeLlama-*-hf, TinyLlama/TinyLlama-1.1B-*,
    # HuggingFaceTB/SmolLM2-*, tiiuae/Falcon3-*-Base, as Lightning-AI/litgpt@26857050
    # litgpt/config.py (Apache-2.0) has them.
    "codellama-7b": _llama(32, 4096, 32, 32, 11008, 32016, seq=4096),
    "codellama-13b": _llama(40, 5120, 40, 40, 13824, 32016, seq=4096),
    "codellama-34b": _llama(48, 8192, 64, 8, 22016, 32000, seq=4096),
    "codellama-70b": _llama(80, 8192, 64, 8, 28672, 32016, seq=4096),
    "tinyllama-1.1b": _llama(22, 2048, 32, 4, 5632, 32000),
    "smollm2-135m": _llama(30, 576, 9, 3, 1536, 49152, tied=True),
    "smollm2-360m": _llama(32, 960, 15, 5, 2560, 49152, tied=True),
    "smollm2-1.7b": _llama(24, 2048, 32, 32, 8192, 49152, tied=True),
    "falcon3-1b": _llama(18, 2048, 8, 4, 8192, 131072, seq=4096),
    "falcon3-3b": _llama(22, 3072, 12, 4, 9216, 131072, seq=4096),
    "falcon3-7b": _llama(28, 3072, 12, 4, 23040, 131072, seq=4096),
    "falcon3-10b": _llama(40, 3072, 12, 4, 23040, 131072, seq=4096),
    # tiiuae/falcon-7b and -40b, stabilityai/stablelm-3b-4e1t, EleutherAI/pythia-* config.json (the
    # same file of litgpt); Black et al., arXiv 2204.06745, section 3 (GPT-NeoX); GPT-J:
    # kingoflolz/mesh-transformer-jax README.md.
    "falcon-7b": _falcon(32, 4544, 71, 1, norms=1),
    "falcon-40b": _falcon(60, 8192, 128, 8, parallel=True),
    "stablelm-3b-4e1t": _llama(
        *(32, 2560, 32, 32, 6912, 50304), seq=4096, norm="layer", partial_rotary=True
    ),
    **{
        f"pythia-{size}": _neox(layers, hidden, heads, vocab)
        for size, layers, hidden, heads, vocab in (
            ("70m", 6, 512, 8, 50304),
            ("160m", 12, 768, 12, 50304),
            ("410m", 24, 1024, 16, 50304),
            ("1b", 16, 2048, 8, 50304),
            ("1.4b", 24, 2048, 16, 50304),
            ("2.8b", 32, 2560, 32, 50304),
            ("6.9b", 32, 4096, 32, 50432),
            ("12b", 36, 5120, 40, 50688),
        )
    },
    "gpt-neox-20b": _neox(44, 6144, 64, 50432),
    "gpt-j-6b": _llama(
        *(28, 4096, 16, 16, 16384, 50400), **_LAYER, norms=1, bias="ffn", head_bias=True
    )._replace(activation="gelu_new"),
    # InternLM (InternLM-7B config.json: 103168 words, biases on q, k, v, o).
    "internlm-7b": _llama(32, 4096, 32, 32, 11008, 103168, bias="attention"),
    # Jiang et al., arXiv 2310.06825, table 1; Jiang et al., arXiv 2401.04088, table 1.
    "mistral-7b": _llama(32, 4096, 32, 8, 14336, 32000, seq=8192, window=4096),
    "mixtral-8x7b": _llama(
        32, 4096, 32, 8, 14336, 32000, seq=4096, experts=8, topk=2, expert_ffn=14336
    ),
    # mistralai/Mixtral-8x22B-v0.1 config.json.
    "mixtral-8x22b": _llama(
        56, 6144, 48, 8, 16384, 32000, seq=4096, experts=8, topk=2, expert_ffn=16384
    ),
    # NVIDIA/NeMo@09d2252f nemo/collections/llm/gpt/model/mistral.py; words: config.json of
    # mistralai/Mistral-7B-v0.2 and -v0.3, Mistral-Nemo-Base-2407, Mistral-Large-Instruct-2407.
    "mistral-7b-v0.2": _llama(32, 4096, 32, 8, 14336, 32000, seq=8192),
    "mistral-7b-v0.3": _llama(32, 4096, 32, 8, 14336, 32768, seq=8192),
    "mistral-nemo-12b": _llama(40, 5120, 32, 8, 14336, 131072, seq=4096, head=128),
    "mistral-large-123b": _llama(88, 12288, 96, 8, 28672, 32768, seq=4096),
    # mistralai/Mistral-Small-24B-Base-2501 config.json.
    "mistral-small-24b": _llama(40, 5120, 32, 8, 32768, 131072, seq=8192, head=128),
    # Qwen2.5 technical report, arXiv 2412.15115, table 1; widths: Qwen/Qwen2.5-* config.json.
    "qwen2.5-0.5b": _llama(24, 896, 14, 2, 4864, 151936, seq=4096, bias="qkv", tied=True),
    "qwen2.5-1.5b": _llama(28, 1536, 12, 2, 8960, 151936, seq=4096, bias="qkv", tied=True),
    "qwen2.5-3b": _llama(36, 2048, 16, 2, 11008, 151936, seq=4096, bias="qkv", tied=True),
    "qwen2.5-7b": _llama(28, 3584, 28, 4, 18944, 152064, seq=4096, bias="qkv"),
    "qwen2.5-14b": _llama(48, 5120, 40, 8, 13824, 152064, seq=4096, bias="qkv"),
    "qwen2.5-32b": _llama(64, 5120, 40, 8, 27648, 152064, seq=4096, bias="qkv"),
    "qwen2.5-72b": _llama(80, 8192, 64, 8, 29568, 152064, seq=4096, bias="qkv"),
    # Qwen3 technical report, arXiv 2505.09388, tables 1 and 2; widths: Qwen/Qwen3-* config.json.
    "qwen3-0.6b": _qwen3_dense(28, 1024, 16, 3072, tied=True),
    "qwen3-1.7b": _qwen3_dense(28, 2048, 16, 6144, tied=True),
    "qwen3-4b": _qwen3_dense(36, 2560, 32, 9728, tied=True),
    "qwen3-8b": _qwen3_dense(36, 4096, 32, 12288),
    "qwen3-14b": _qwen3_dense(40, 5120, 40, 17408),
    "qwen3-32b": _qwen3_dense(64, 5120, 64, 25600),
    "qwen3-30b-a3b": _qwen3(48, 2048, 32, 768),
    "qwen3-235b-a22b": _qwen3(94, 4096, 64, 1536),
    # gpt-oss, arXiv 2508.10925, section 2; widths: openai/gpt-oss-* config.json. Biases of experts
    # and attention sinks (0.04 % of the parameters) are left out.
    "gpt-oss-20b": _gpt_oss(24, 32),
    "gpt-oss-120b": _gpt_oss(36, 128),
    # NVIDIA/NeMo@e2de75c1 nemo/collections/llm/gpt/model/nemotron.py; 256000 words: Nemotron-4,
    # arXiv 2402.16819 (15B) and 2406.11704 (340B), tables 1; 8B: nvidia/nemotron-3-8b-base-4k.
    "nemotron3-8b": _nemotron(32, 4096, 32, 32, 16384),
    "nemotron3-22b": _nemotron(40, 6144, 48, 48, 24576),
    "nemotron4-15b": _nemotron(32, 6144, 48, 8, 24576),
    "nemotron4-340b": _nemotron(96, 18432, 96, 8, 73728),
    # BigScience Workshop, arXiv 2211.05100, table 3; 250880 words with padding, no learned
    # positions (ALiBi), a normalised embedding: bigscience/bloom config.json.
    "bloom-176b": Architecture(
        *(70, 14336, 112, 112, 128, 57344, 250880),
        norm="layer",
        gated=False,
        bias="all",
        tied=True,
        alibi=True,
        embedding_norm=True,
    ),
    # Gemma, arXiv 2403.08295, table 1; Gemma 2, arXiv 2408.00118, table 1.
    "gemma-2b": _gemma(18, 2048, 8, 1, 16384, 256000),
    "gemma-7b": _gemma(28, 3072, 16, 16, 24576, 256000),
    "gemma2-2b": _gemma2(26, 2304, 8, 4, 9216),
    "gemma2-9b": _gemma2(42, 3584, 16, 8, 14336),
    "gemma2-27b": _gemma2(46, 4608, 32, 16, 36864, head=128),
    # Gemma 3, arXiv 2503.19786, section 2: five layers with a window for each without; widths:
    # google/gemma-3-*-pt config.json. Of the larger ones the network over text alone.
    "gemma3-1b": _gemma3(26, 1152, 4, 1, 6912, window=512),
    "gemma3-4b": _gemma3(34, 2560, 8, 4, 10240),
    "gemma3-12b": _gemma3(48, 3840, 16, 8, 15360),
    "gemma3-27b": _gemma3(62, 5376, 32, 16, 21504, head=128),
    # microsoft/phi-2, Phi-3-mini-4k-instruct, Phi-4-mini-instruct config.json (litgpt, as above).
    "phi-2": _llama(
        *(32, 2560, 32, 32, 10240, 51200), **_LAYER, norms=1, bias="all", head_bias=True
    )._replace(activation="gelu_new", partial_rotary=True),
    "phi3-mini": _phi(32, 3072, 32, 32, 8192, 32064),
    "phi4-mini": _phi(32, 3072, 24, 8, 8192, 200064, tied=True),
    # Phi-4, arXiv 2412.08905; widths: microsoft/phi-4 config.json.
    "phi-4": _phi(40, 5120, 40, 10, 17920, 100352),
    # OLMo 2, arXiv 2501.00656; widths: allenai/OLMo-2-* config.json. It normalises behind attention
    # and products, which costs the same.
    "olmo2-7b": _olmo2(32, 4096, 32, 11008),
    "olmo2-13b": _olmo2(40, 5120, 40, 13824),
    "olmo2-32b": _olmo2(64, 5120, 8, 27648),
    # NVIDIA/NeMo@06742279 nemo/collections/llm/gpt/model/starcoder2.py; words, window and tied
    # embeddings: bigcode/starcoder2-* config.json.
    "starcoder2-3b": _starcoder2(30, 3072, 24, 2),
    "starcoder2-7b": _starcoder2(32, 4608, 36, 4),
    "starcoder2-15b": _starcoder2(40, 6144, 48, 4),
    # The config.json of allenai/Olmo-3-1025-7B and OLMoE-1B-7B-0924, zai-org/glm-4-9b and
    # GLM-4-32B-0414, ibm-granite/granite-3.1-8b-base, ByteDance-Seed/Seed-OSS-36B-Base,
    # CohereForAI/c4ai-command-r-v01, swiss-ai/Apertus-8B-2509.
    "olmo3-7b": _llama(32, 4096, 32, 32, 11008, 100278, seq=4096, norm="rms-fp32")._replace(
        qk_norm=True, qk_norm_all=True, window=4096, full_every=4
    ),
    "olmoe-1b-7b": _llama(16, 2048, 16, 16, 1024, 50304, seq=4096)._replace(
        qk_norm=True, qk_norm_all=True, experts=64, topk=8, expert_ffn=1024
    ),
    "glm4-9b": _llama(40, 4096, 32, 2, 13696, 151552, seq=4096, bias="qkv", partial_rotary=True),
    "glm4-32b": _llama(61, 6144, 48, 8, 23040, 151552, seq=4096, norms=4, partial_rotary=True),
    "granite3.1-8b": _llama(40, 4096, 32, 8, 12800, 49155, seq=4096, tied=True),
    "seed-oss-36b": _llama(
        64, 5120, 80, 8, 27648, 155136, head=128, seq=4096, bias="qkv", dropout=True
    ),
    "command-r": _llama(
        40, 8192, 64, 64, 22528, 256000, seq=4096, norm="layer-fp32", norms=1, tied=True
    ),
    "apertus-8b": _llama(32, 4096, 32, 8, 21504, 131072, seq=4096)._replace(
        gated=False, qk_norm=True, activation="xielu"
    ),
    # HuggingFaceTB/SmolLM3-3B config.json.
    "smollm3-3b": _llama(36, 2048, 16, 4, 11008, 128256, seq=4096, tied=True),
    # GLM-4.5, arXiv 2508.06471, table 1 (without its layer that predicts a second token); widths:
    # zai-org/GLM-4.5* config.json.
    "glm4.5-air": _glm4_5(46, 4096, 10944, 128, 1408)._replace(dense=1),
    "glm4.5": _glm4_5(92, 5120, 12288, 160, 1536)._replace(dense=3, qk_norm=True),
    # MiniMaxAI/MiniMax-M2 config.json (without its modules that predict further tokens).
    "minimax-m2": Architecture(
        *(62, 3072, 48, 8, 128, 1536, 200064),
        seq=4096,
        qk_norm=True,
        qk_norm_all=True,
        experts=256,
        topk=8,
        expert_ffn=1536,
        partial_rotary=True,
    ),
    # DeepSeek-V2 and -V2-Lite, arXiv 2405.04434, section 3.1.2 and appendix B; DeepSeek-V3, arXiv
    # 2412.19437, section 4.2 (without its module that predicts a second token); Kimi K2, arXiv
    # 2507.20534, table 2: DeepSeek-V3's blocks, moonshotai/Kimi-K2-Base config.json. DeepSeek-R1
    # (arXiv 2501.12948) is DeepSeek-V3, trained further.
    "deepseek-v2-lite": _deepseek(27, 2048, 16, 10944, 102400)._replace(
        experts=64, topk=6, expert_ffn=1408, shared=2, dense=1
    ),
    "deepseek-v2": _deepseek(60, 5120, 128, 12288, 102400, q_rank=1536)._replace(
        experts=160, topk=6, expert_ffn=1536, shared=2, dense=1, groups=8, topk_groups=3
    ),
    "kimi-k2": _deepseek(61, 7168, 64, 18432, 163840, q_rank=1536)._replace(
        experts=384, topk=8, expert_ffn=2048, shared=1, dense=1
    ),
    **dict.fromkeys(
        ("deepseek-v3", "deepseek-r1"),
        _deepseek(61, 7168, 128, 18432, 129280, q_rank=1536)._replace(
            experts=256, topk=8, expert_ffn=2048, shared=1, dense=3, groups=8, topk_groups=4
        ),
    ),
    # Peebles & Xie, arXiv 2212.09748, table 1, on latents of images of 256 x 256 in patches of 2.
    "dit-s2": _dit(12, 384, 6),
    "dit-b2": _dit(12, 768, 12),
    "dit-l2": _dit(24, 1024, 16),
    "dit-xl2": _dit(28, 1152, 16),
    # Raffel et al., arXiv 1910.10683, section 3.7.
    "t5-small": _t5(6, 512, 8, 64, 2048),
    "t5-base": _t5(12, 768, 12, 64, 3072),
    "t5-large": _t5(24, 1024, 16, 64, 4096),
    "t5-3b": _t5(24, 1024, 32, 128, 16384),
    "t5-11b": _t5(24, 1024, 128, 128, 65536),
}
"""Published models by the name that ``model`` takes; their seq is the tokens of a usual sample."""

_TRAINED = re.compile(
    r"[-_](base|pt|hf|instruct|chat|it|deduped|cased|uncased|\d{4})(?=[-_]|$)", re.IGNORECASE
)
"""How weights were trained, their format, or year and month, in their name on huggingface.co."""
_VERSION = re.compile(r"[-_](v\d+(\.\d+)*|\d+k)$", re.IGNORECASE)
"""A version of the weights, or the longest sample that they take."""
_OWNERS = frozenset(
    [
        *("allenai", "bigcode", "bytedance-seed", "codellama", "cohereforai", "deepseek-ai"),
        *("eleutherai", "facebook", "google", "google-bert", "google-t5", "huggingfacetb"),
        *("huggyllama", "ibm-granite", "internlm", "meta-llama", "microsoft", "minimaxai"),
        *("mistralai", "moonshotai", "nvidia", "openai", "openai-community", "qwen"),
        *("stabilityai", "swiss-ai", "tiiuae", "tinyllama", "unsloth", "zai-org"),
    ]
)
"""Whose weights are those of names here; a name with another before it may be a path. MosaicML's
MPT is missing: llm-foundry's benchmarks, which have its names, learn positions and biases."""


def without_owner(name: str) -> Iterator[str]:
    """Yield what a model may be called here, of the name of its weights on huggingface.co.

    Examples
    --------
    >>> list(without_owner("meta-llama/Meta-Llama-3-8B-Instruct"))
    ['Llama-3-8B-Instruct', 'Llama-3-8B']
    >>> list(without_owner("mistralai/Mistral-7B-Instruct-v0.3"))
    ['Mistral-7B-Instruct-v0.3', 'Mistral-7B-v0.3', 'Mistral-7B']
    """
    owner, slash, found = name.rpartition("/")
    if slash and owner.lower() not in _OWNERS:
        return
    found = found[len("meta-") :] if found.lower().startswith("meta-") else found
    yield found
    for words in (_TRAINED, _VERSION):
        if (shorter := words.sub("", found)) != found:
            found = shorter
            yield found
