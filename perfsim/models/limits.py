"""What the numbers of a transformer may be, by themselves, together and in each family."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from perfsim.models.language import Architecture

__all__ = ["MAX_LAYERS", "MAX_NUMBER", "MAX_PARAMETERS", "USUAL", "contradiction", "word"]

MAX_NUMBER = 10**9
"""Largest number of an architecture; no source: chosen, above any vocabulary."""
MAX_LAYERS = 10_000
"""Most layers of a model; no source: chosen, a hundred times those of Llama 3 405B."""
MAX_PARAMETERS = 10**14
"""Most parameters of a model; no source: chosen, a hundred times those of the largest known."""
_BERT: dict[str, Any] = {"norm": "layer", "gated": False, "bias": "all"}
_ALONE: dict[str, Any] = {"experts": 0, "window": 0, "norms": 2, "kv_rank": 0, "qk_norm": False}
_IMAGES: dict[str, Any] = {"image_width": 0, "channels": 3, "pool": "token", "learn_sigma": False}
_OF_BERT: dict[str, Any] = {"embedding": 0, "objective": "sentences"}
_AS_DECODERS: dict[str, Any] = dict.fromkeys(
    (
        *("softcap", "sinks", "alibi", "fused_qkv", "partial_rotary", "residual_dropout"),
        *("parallel", "embedding_norm", "full_first"),
    ),
    False,
)
"""What code of decoders alone does."""
USUAL: dict[str, dict[str, Any]] = {
    "decoder": {},
    "encoder": _BERT | {"tied": True, "positions": 512, "seq": 512},
    "pre-norm-encoder": {
        **{"norm": "layer-without-bias", "tied": True, "head_bias": True, "fused_qkv": True},
        "seq": 8192,
    },
    "encoder-decoder": {
        **{"gated": False, "tied": True, "seq": 512, "norm": "rms-fp32", "activation": "relu"},
        "dropout": True,
    },
    "vit": _BERT,
    "dit": _BERT | {"image": 32, "patch": 2, "channels": 4, "learn_sigma": True},
}
"""What each family has where nothing is stated: Llama's (Touvron et al., arXiv 2302.13971), BERT's
(Devlin et al., arXiv 1810.04805), T5's (Raffel et al., arXiv 1910.10683) and ViT's (Dosovitskiy et
al., arXiv 2010.11929), DiT's (Peebles & Xie, arXiv 2212.09748), ModernBERT's (Warner et al., arXiv
2412.13663)."""
_OF_ENCODERS: dict[str, Any] = {"tied": True, "head_bias": False, "targets": 0}
_OF_TEXT_PAIRS: dict[str, Any] = {"positions": 0, "bias": "none", "types": 2, "classes": 0}
_OF_IMAGES: dict[str, Any] = {
    **{"positions": 0, "tied": False, "head_bias": False, "kv_rank": 0, "types": 2},
    **{"classes": 0, "targets": 0},
}
_FIXED: dict[str, dict[str, Any]] = {
    "decoder": _IMAGES | _OF_BERT | {"types": 2, "targets": 0},
    "encoder": _BERT | _ALONE | _AS_DECODERS | _IMAGES | _OF_ENCODERS,
    "pre-norm-encoder": _IMAGES
    | _OF_BERT
    | {**dict.fromkeys(("experts", "kv_rank", "targets"), 0), "types": 2, "embedding_norm": False},
    "encoder-decoder": _ALONE | _AS_DECODERS | _IMAGES | _OF_TEXT_PAIRS | _OF_BERT,
    "vit": _AS_DECODERS | _OF_IMAGES | _OF_BERT | {"learn_sigma": False},
    "dit": _BERT | _ALONE | _AS_DECODERS | _OF_IMAGES | _OF_BERT | {"pool": "token"},
}
"""What the layers of a family take for granted."""
_NEEDS = {
    **dict.fromkeys(("topk", "expert_ffn", "shared", "dense", "groups"), "experts"),
    **dict.fromkeys(("q_rank", "rope", "value"), "kv_rank"),
    "full_every": "window",
    "full_first": "full_every",
    "qk_norm_all": "qk_norm",
    "shared_gate": "shared",
    "router_fp32": "experts",
    "spare": "positions",
    "topk_groups": "groups",
}
"""Numbers that mean nothing without another."""


def contradiction(shape: Architecture) -> str:
    """Return in words how numbers of an architecture contradict each other, or "".

    Examples
    --------
    >>> contradiction(Architecture(2, 64, heads=4, kv=3, head=16, ffn=256, vocab=100))
    'kv=3 does not divide heads=4'
    """
    return next((why for found, why in _contradictions(shape) if found), "")


def _contradictions(shape: Architecture) -> Iterator[tuple[object, str]]:
    """Yield whether numbers contradict each other, and the words for it."""
    family, values = shape.family, shape._asdict()
    for name, fixed in _FIXED[family].items():
        here, there = word(values[name]), word(fixed)
        yield here != there, f"{name}={here} is not for family={family}, which has {name}={there}"
    yield shape.layers > MAX_LAYERS, f"layers={shape.layers} is above {MAX_LAYERS}"
    yield shape.heads % shape.kv, f"kv={shape.kv} does not divide heads={shape.heads}"
    yield (
        shape.kv != shape.heads and family in ("encoder", "encoder-decoder"),
        f"kv={shape.kv} is not heads={shape.heads}, as family={family} needs",
    )
    yield (
        family == "encoder" and shape.heads * shape.head != shape.hidden,
        f"heads={shape.heads} of head={shape.head} are not hidden={shape.hidden} wide,"
        " as family=encoder needs",
    )
    yield (
        shape.experts and not 1 <= shape.topk <= shape.experts,
        f"topk={shape.topk} is not 1 to experts={shape.experts}",
    )
    yield shape.experts and not shape.expert_ffn, "experts need expert_ffn, the width of one"
    for name, owner in _NEEDS.items():
        yield values[name] and not values[owner], f"{name}={word(values[name])} needs {owner}"
    yield (
        shape.groups and shape.experts % shape.groups,
        f"groups={shape.groups} does not divide experts={shape.experts}",
    )
    yield (
        shape.groups and not 1 <= shape.topk_groups <= shape.groups,
        f"topk_groups={shape.topk_groups} is not 1 to groups={shape.groups}",
    )
    yield (
        shape.groups and shape.topk > shape.experts // shape.groups * shape.topk_groups,
        f"topk={shape.topk} is above the experts of topk_groups={shape.topk_groups} groups",
    )
    yield (
        shape.kv_rank
        and (shape.bias, shape.window, shape.qk_norm, shape.kv) != ("none", 0, False, shape.heads),
        "kv_rank goes with bias=none, window=0, qk_norm=no and as many kv as heads",
    )
    yield (
        shape.softcap + shape.sinks + shape.alibi > 1,
        "scores of attention have a softcap, sinks or alibi, one of them",
    )
    yield shape.alibi and shape.positions, "alibi goes without learned positions (positions=0)"
    yield (
        shape.kv_rank and (shape.scores or shape.fused_qkv or shape.partial_rotary),
        "kv_rank goes without softcap, sinks, alibi, fused_qkv and partial_rotary",
    )
    yield (
        shape.dropout and shape.residual_dropout,
        "dropout has residual_dropout within: give one of both",
    )
    yield (
        shape.full_every == 1 or (shape.full_every and shape.window_every > 1),
        f"full_every={shape.full_every} with window_every={shape.window_every}: where every n-th"
        " layer attends to all tokens, n is 2 or more and the others have the window",
    )
    yield shape.parallel and shape.norms != 2, f"norms={shape.norms}: parallel is of 2 in a block"
    yield shape.norms not in (1, 2, 4), f"norms={shape.norms}: a block has 1, 2 or 4"
    yield (
        0 < shape.positions < shape.seq + shape.spare,
        f"seq={shape.seq} is above positions={shape.positions}"
        + (f" less spare={shape.spare}" if shape.spare else ""),
    )
    for name in ("image", "image_width"):
        yield (
            shape.over_images and values[name] % shape.patch,
            f"patch={shape.patch} does not divide {name}={values[name]}",
        )
    yield (
        shape.classes and shape.head_bias,
        f"classes={shape.classes} goes with head_bias=no: the output layer over words has a bias",
    )
    inner = shape.ffn + shape.heads * (shape.head + shape.value)
    inner += shape.kv_rank + shape.q_rank
    inner += (shape.experts + shape.shared) * shape.expert_ffn
    points = shape.positions
    if shape.over_images:
        points = shape.channels * shape.patch**2 + prod(shape.patches)
    size = shape.hidden * (shape.layers * inner + shape.vocab + points)
    yield size > MAX_PARAMETERS, "such a model has more than 1e14 parameters"


def word(value: object) -> str:
    """Return a value as a specification states it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
