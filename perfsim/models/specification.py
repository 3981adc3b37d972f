"""Models that a user states: ``transformer:`` and ``generic:`` with numbers, or a config.json.

A specification's canonical text, with every number in it, names the model inside perfsim, so that
a changed file is another model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple, get_args

from perfsim.errors import RequestError, shown, unknown_option
from perfsim.models.language import NAMED, Architecture, Bias, Family, Norm, architecture_layers
from perfsim.models.layers import ModelLayer, linear

__all__ = [
    "GENERIC",
    "MAX_LAYERS",
    "TRANSFORMER",
    "architecture_of",
    "canonical_model",
    "checked",
    "is_specified",
    "specified_layers",
    "takes_tokens",
]

TRANSFORMER, GENERIC = "transformer:", "generic:"
"""How specifications begin."""

_DEFAULT_TOKENS = Architecture._field_defaults["seq"]
_CONFIG_SUFFIX = ".json"
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kKMBT]?)")
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_FLOPS = re.compile(r"(\d{1,25}(?:\.\d{1,9})?)\s*([kMGTPE]?)FLOPs?")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_MAX_NUMBER = 10**9
"""Largest number of an architecture; no source: chosen, above any vocabulary."""
MAX_LAYERS = 10_000
"""Most layers of a model; no source: chosen, a hundred times those of Llama 3 405B."""
_MAX_ELEMENTS = 10**14
_MAX_FLOPS = 1e24
"""Most forward work of a sample; no source: chosen, above a million tokens of such a model."""
_LEAST_FLOPS = 2e-6
"""Least forward work of a sample a parameter; no source: chosen, a multiply-add of a millionth."""
_WORDS: dict[str, tuple[str, ...]] = {
    "family": get_args(Family),
    "norm": get_args(Norm),
    "bias": get_args(Bias),
}
_SWITCHES = ("gated", "tied", "qk_norm", "head_bias", "shared_gate")
_NEEDED = ("layers", "hidden", "heads", "vocab")
_BERT: dict[str, Any] = {"norm": "layer", "gated": False, "bias": "all"}
_ALONE: dict[str, Any] = {"experts": 0, "window": 0, "norms": 2, "kv_rank": 0, "qk_norm": False}
_USUAL: dict[str, dict[str, Any]] = {
    "decoder": {},
    "encoder": _BERT | {"tied": True, "positions": 512, "seq": 512},
    "encoder-decoder": {"gated": False, "tied": True, "seq": 512},
    "vit": _BERT,
}
"""What each family has where nothing is stated: Llama's (Touvron et al., arXiv 2302.13971), BERT's
(Devlin et al., arXiv 1810.04805), T5's (Raffel et al., arXiv 1910.10683) and ViT's (Dosovitskiy et
al., arXiv 2010.11929)."""
_FIXED: dict[str, dict[str, Any]] = {
    "decoder": {"types": 2},
    "encoder": _BERT | _ALONE | {"tied": True, "head_bias": False},
    "encoder-decoder": _ALONE | {"positions": 0, "bias": "none", "types": 2},
    "vit": {"positions": 0, "tied": False, "head_bias": False, "kv_rank": 0, "types": 2},
}
"""What the layers of a family take for granted."""
_NEEDS = {
    **dict.fromkeys(("topk", "expert_ffn", "shared", "dense"), "experts"),
    **dict.fromkeys(("q_rank", "rope"), "kv_rank"),
    "shared_gate": "shared",
}
"""Numbers that mean nothing without another."""


def is_specified(model: str) -> bool:
    """Tell whether a model is stated by its numbers or a file, or is one of the named ones."""
    return model in NAMED or model.startswith((TRANSFORMER, GENERIC)) or _is_config(model)


def _is_config(model: str) -> bool:
    # os.path answers where pathlib raises: a name too long for a file is none.
    return model.endswith(_CONFIG_SUFFIX) or bool(
        model and os.path.isfile(os.path.join(model, "config.json"))
    )


def takes_tokens(model: str) -> bool:
    """Tell whether a stated or named model is one over text."""
    return not model.startswith(GENERIC) and architecture_of(model).family != "vit"


def architecture_of(model: str) -> Architecture:
    """Return the numbers of a named or stated transformer.

    Raises
    ------
    RequestError
        If a specification lacks a number, or numbers contradict each other.
    DataError
        If a config.json cannot be read or lacks a number.
    """
    if model in NAMED:
        return NAMED[model]
    if model.startswith(TRANSFORMER):
        return _parsed(model)
    from perfsim.models.config_file import read_config

    path = Path(model)
    return read_config(path / "config.json" if path.is_dir() else path)


def canonical_model(model: str) -> str:
    """Return the name by which perfsim knows a model: a stated one by all of its numbers.

    Examples
    --------
    >>> canonical_model("resnet50"), canonical_model("llama3-8b")
    ('resnet50', 'llama3-8b')
    """
    if model in NAMED or not is_specified(model):
        return model
    if model.startswith(GENERIC):
        generic = _generic(model)
        params, layers, flops = generic
        return f"{GENERIC}params={params},layers={layers},flops={flops:.0f}FLOP"
    return _text(architecture_of(model))


def _text(shape: Architecture) -> str:
    """Return the specification of an architecture, in full."""
    return TRANSFORMER + ",".join(
        f"{name}={_word(value)}" for name, value in shape._asdict().items()
    )


@cache
def specified_layers(model: str, tokens: int | None = None) -> tuple[ModelLayer, ...]:
    """Return the layers of a model by its canonical name.

    Raises
    ------
    RequestError
        If the specification is wrong, or it takes no such tokens.

    Examples
    --------
    >>> len(specified_layers("generic:params=350M,layers=48,flops=12GFLOP"))
    48
    """
    if model.startswith(GENERIC):
        if tokens is not None:
            raise RequestError("seq", "a generic model takes no tokens.", value=tokens)
        return tuple(_generic_layers(_generic(model)))
    return architecture_layers(architecture_of(model), tokens)


def _pairs(text: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the numbers that a specification states, by their full names."""
    body = text.partition(":")[2]
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in body.split(","))):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not sign or not value:
            raise RequestError(
                "model", f"{shown(part)} is not NAME=NUMBER, such as layers=32.", value=text
            )
        if name not in known:
            raise unknown_option("a specification", name, known, field="model")
        if known[name] in found:
            raise RequestError("model", f"{name} stands there twice.", value=text)
        found[known[name]] = value
    return found


_ALIASES = {name: name for name in Architecture._fields} | {"qknorm": "qk_norm"}


@cache
def _parsed(text: str) -> Architecture:
    given = _pairs(text, _ALIASES)
    missing = [name for name in _NEEDED if name not in given]
    if missing:
        raise RequestError(
            "model",
            f"transformer: needs {', '.join(missing)} too, such as"
            " transformer:layers=32,hidden=4096,heads=32,kv=8,ffn=14336,vocab=128256.",
            value=text,
        )
    stated = {name: _value(name, value) for name, value in given.items()}
    values = _USUAL[stated.get("family", "decoder")] | stated
    hidden, heads = values["hidden"], values["heads"]
    if values.get("positions", 0) > 0 and "seq" not in stated:
        values["seq"] = min(values["positions"], values.get("seq", _DEFAULT_TOKENS))
    if "head" not in values and hidden % heads:
        raise RequestError(
            "model",
            f"heads={heads} does not divide hidden={hidden}; give head, the width of a head.",
            value=text,
        )
    gated = values.get("gated", True)
    usual = {
        "kv": heads,
        "head": hidden // heads,
        "ffn": values.get("expert_ffn") or (8 * hidden // 3 if gated else 4 * hidden),
    }
    return checked(Architecture(**(usual | values)), text)


def checked(shape: Architecture, text: str) -> Architecture:
    """Return an architecture whose numbers fit together.

    Raises
    ------
    RequestError
        If they contradict each other.
    """
    wrong = next((why for found, why in _contradictions(shape) if found), "")
    if wrong:
        raise RequestError("model", f"{wrong}.", value=text)
    return shape


def _contradictions(shape: Architecture) -> Iterator[tuple[object, str]]:
    """Yield whether numbers contradict each other, and the words for it."""
    family, values = shape.family, shape._asdict()
    for name, fixed in _FIXED[family].items():
        here, there = _word(values[name]), _word(fixed)
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
        yield values[name] and not values[owner], f"{name}={_word(values[name])} needs {owner}"
    yield (
        shape.kv_rank
        and (shape.bias, shape.window, shape.qk_norm, shape.kv) != ("none", 0, False, shape.heads),
        "kv_rank goes with bias=none, window=0, qk_norm=no and as many kv as heads",
    )
    yield shape.norms not in (1, 2, 4), f"norms={shape.norms}: a block has 1, 2 or 4"
    yield (
        0 < shape.positions < shape.seq,
        f"seq={shape.seq} is above positions={shape.positions}",
    )
    vision = family == "vit"
    yield (
        vision and shape.image % shape.patch,
        f"patch={shape.patch} does not divide image={shape.image}",
    )
    inner = shape.ffn + shape.heads * shape.head + shape.kv_rank + shape.q_rank
    inner += (shape.experts + shape.shared) * shape.expert_ffn
    points = shape.patch**2 + (shape.image // shape.patch) ** 2 if vision else shape.positions
    size = shape.hidden * (shape.layers * inner + shape.vocab + points)
    yield size > _MAX_ELEMENTS, "such a model has more than 1e14 parameters"


def _word(value: object) -> str:
    """Return a value as a specification states it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


_MAY_BE_ZERO = (
    *("positions", "experts", "topk", "expert_ffn", "shared", "dense"),
    *("window", "kv_rank", "q_rank", "rope"),
)


def _value(name: str, text: str) -> Any:
    """Return a value of a specification, checked by the kind of its name."""
    if name in _WORDS:
        if text not in _WORDS[name]:
            raise unknown_option(f"{name}=", text, _WORDS[name], field="model")
        return text
    if name in _SWITCHES:
        if text not in ("yes", "no"):
            raise RequestError("model", f"{name}={shown(text)} is not yes or no.", value=text)
        return text == "yes"
    if name == "positions" and text == "-1":
        return -1
    least = 0 if name in _MAY_BE_ZERO else 1
    if not text.isdecimal() or not least <= int(text[:20]) <= _MAX_NUMBER:
        why = f"{name}={shown(text)} is not a whole number from {least} to {_MAX_NUMBER}."
        raise RequestError("model", why, value=text)
    return int(text)


class _Generic(NamedTuple):
    """A model of which only its size is known: parameters, layers, forward work of a sample."""

    params: int
    layers: int
    flops: float


def _generic(text: str) -> _Generic:
    given = _pairs(text, {name: name for name in _Generic._fields})
    missing = [name for name in _Generic._fields if name not in given]
    if missing:
        raise RequestError(
            "model",
            f"generic: needs {', '.join(missing)} too, such as"
            " generic:params=350M,layers=48,flops=12GFLOP (the forward pass of one sample).",
            value=text,
        )
    count, work = _COUNT.fullmatch(given["params"]), _FLOPS.fullmatch(given["flops"])
    if count is None:
        why = f"params={shown(given['params'])} is not a count such as 350M or 7B."
        raise RequestError("model", why, value=text)
    if work is None:
        why = f"flops={shown(given['flops'])} needs a number and a unit such as 12GFLOP."
        raise RequestError("model", why, value=text)
    layers = _value("layers", given["layers"])
    params = round(float(count[1]) * _FACTORS[count[2]])
    flops = float(round(float(work[1]) * _PREFIXES[work[2]]))
    if layers > MAX_LAYERS or not layers <= params <= _MAX_ELEMENTS:
        why = f"{params} parameters in {layers} layers: allowed are 1 to {MAX_LAYERS} layers"
        raise RequestError("model", f"{why} and 1 to 1e14 parameters, one a layer.", value=text)
    least = max(1.0, _LEAST_FLOPS * params)
    if not least <= flops <= _MAX_FLOPS:
        why = f"flops={shown(given['flops'])} is not {least:.3g}FLOP to 1000000EFLOP."
        raise RequestError("model", why, value=text)
    return _Generic(params, layers, flops)


def _generic_layers(generic: _Generic) -> Iterator[ModelLayer]:
    """Yield dense layers, nearly square, with the parameters and the work of the model.

    What a matrix cannot hold of a layer's share is its bias.
    """
    work = generic.flops / generic.layers
    for index in range(generic.layers):
        # Whole numbers whose sum is exact.
        before, after = (generic.params * part // generic.layers for part in (index, index + 1))
        inputs = isqrt(after - before)
        outputs, rest = divmod(after - before, inputs)
        rows = max(1, round(work / (2.0 * inputs * outputs)))
        made = linear(f"layers.{index}", inputs, outputs, rows, bias=False, activated=True)
        bias = ((f"{made.name}.bias", (rest,)),) if rest else ()
        yield replace(made, tensors=made.tensors + bias, flops=work)
