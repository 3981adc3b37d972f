"""Models that a user states: ``transformer:`` and ``generic:`` with numbers, or a config.json.

A specification's canonical text, with every number in it, names the model inside perfsim, so that
a changed file is another model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any, NamedTuple, get_args

from perfsim.data.catalog import shipped
from perfsim.data.files import missing_file
from perfsim.errors import RequestError, shown, unknown_option
from perfsim.models.language import (
    Architecture,
    Bias,
    Family,
    Norm,
    Objective,
    Pool,
    architecture_layers,
)
from perfsim.models.layers import Activation, ModelLayer, linear
from perfsim.models.limits import (
    MAX_LAYERS,
    MAX_NUMBER,
    MAX_PARAMETERS,
    USUAL,
    contradiction,
    word,
)
from perfsim.models.named import NAMED

__all__ = [
    "GENERIC",
    "TRANSFORMER",
    "architecture_of",
    "canonical_model",
    "is_specified",
    "specification_takes_tokens",
    "specified_layers",
]

TRANSFORMER, GENERIC = "transformer:", "generic:"
"""How specifications begin."""

_DEFAULT_TOKENS = Architecture._field_defaults["seq"]
_CONFIG_SUFFIX = ".json"
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kKMBT]?)")
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_FLOPS = re.compile(r"(\d{1,25}(?:\.\d{1,9})?)\s*([kMGTPE]?)FLOPs?")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_MAX_FLOPS = 1e24
"""Most forward work of a sample; no source: chosen, above a million tokens of such a model."""
_MIN_FLOPS = 2e-6
"""Least forward work of a sample a parameter; no source: chosen, a multiply-add of a millionth."""
_WORDS: dict[str, tuple[str, ...]] = {
    "family": get_args(Family),
    "norm": get_args(Norm),
    "bias": get_args(Bias),
    "pool": get_args(Pool),
    "objective": get_args(Objective),
    "activation": tuple(name for name in get_args(Activation) if name != "clamped_swiglu"),
}
_LATER_SWITCHES = (
    *("residual_dropout", "router_fp32", "softcap", "sinks", "alibi", "fused_qkv"),
    *("partial_rotary", "parallel"),
)
_SWITCHES = (
    *("gated", "tied", "qk_norm", "qk_norm_all", "head_bias", "shared_gate", "dropout"),
    *_LATER_SWITCHES,
    *("learn_sigma", "embedding_norm", "full_first"),
)
_NEEDED = ("layers", "hidden", "heads", "vocab")


def is_specified(model: str) -> bool:
    """Tell whether a model is stated by its numbers or a file, or is one of the named ones."""
    return model in NAMED or model.startswith((TRANSFORMER, GENERIC)) or _is_config(model)


def _is_config(model: str) -> bool:
    # os.path answers where pathlib raises: a name too long for a file is none.
    return model.endswith(_CONFIG_SUFFIX) or bool(
        model and os.path.isfile(os.path.join(model, "config.json"))
    )


def specification_takes_tokens(model: str) -> bool:
    """Tell whether a stated or named model is one over text."""
    return not model.startswith(GENERIC) and not architecture_of(model).over_images


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
    from perfsim.models.config_file import read_config  # few models come as such a file

    return read_config(_config_file(model))


def _config_file(model: str) -> Path:
    """Return a config.json: the file, that of a folder, else one that ships with scenarios."""
    path = Path(model)
    if os.path.isdir(model):
        return path / "config.json"
    if os.path.isfile(model):
        return path
    ships = shipped("scenarios") / model
    if model == path.name and ships.is_file():
        return ships
    raise missing_file(path, (_CONFIG_SUFFIX,))


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
    """Return the specification of an architecture, in full, but for what most have none of."""
    usual = USUAL[shape.family]
    return TRANSFORMER + ",".join(
        f"{name}={word(value)}"
        for name, value in shape._asdict().items()
        if name not in _LATER or name in usual or value != Architecture._field_defaults[name]
    )


_LATER = (
    *("groups", "topk_groups", "activation", "full_every", "value", "qk_norm_all", "dropout"),
    *_LATER_SWITCHES,
    *("image_width", "channels", "pool", "learn_sigma", "classes", "targets"),
    *("embedding", "embedding_norm", "full_first", "objective"),
)
"""What came after files that name models so: left out where it is as usual."""


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
            raise unknown_option("a specification", name, {*known.values()}, field="model")
        if known[name] in found:
            raise RequestError("model", f"{name} stands there twice.", value=text)
        found[known[name]] = value
    return found


_ALIASES = {name: name for name in Architecture._fields} | {
    "qknorm": "qk_norm",
    "kv_heads": "kv",
    "num_hidden_layers": "layers",
    "hidden_size": "hidden",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv",
    "head_dim": "head",
    "intermediate_size": "ffn",
    "vocab_size": "vocab",
    "num_experts": "experts",
    "num_local_experts": "experts",
    "num_experts_per_tok": "topk",
    "moe_intermediate_size": "expert_ffn",
}
"""Names that a specification may use, those of Hugging Face's config.json among them."""


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
    values = USUAL[stated.get("family", "decoder")] | stated
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
        "ffn": values.get("expert_ffn") or (_gated_width(hidden) if gated else 4 * hidden),
    }
    return _checked(Architecture(**(usual | values)), text)


_MULTIPLE = 256
"""What Llama's widths of gated layers are a multiple of (meta-llama/llama llama/model.py,
FeedForward, with the multiple_of of the 7B and 13B models)."""


def _gated_width(hidden: int) -> int:
    """Return the usual width of a gated layer: 8/3 of the model's, up to the next multiple.

    Examples
    --------
    >>> _gated_width(4096), _gated_width(5120)
    (11008, 13824)
    """
    return -(-(8 * hidden // 3) // _MULTIPLE) * _MULTIPLE


def _checked(shape: Architecture, text: str) -> Architecture:
    """Return an architecture whose numbers fit together, or refuse it."""
    wrong = contradiction(shape)
    if wrong:
        raise RequestError("model", f"{wrong}.", value=text)
    return shape


_MAY_BE_ZERO = (
    *("positions", "experts", "topk", "expert_ffn", "shared", "dense"),
    *("window", "kv_rank", "q_rank", "rope", "spare", "groups", "topk_groups"),
    *("full_every", "value", "image_width", "classes", "targets", "embedding", "types"),
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
    if not text.isdecimal() or not least <= int(text[:20]) <= MAX_NUMBER:
        why = f"{name}={shown(text)} is not a whole number from {least} to {MAX_NUMBER}."
        raise RequestError("model", why, value=text)
    return int(text)


class _Generic(NamedTuple):
    """A model whose size alone is known: parameters, layers, forward work of a sample."""

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
    if layers > MAX_LAYERS or not layers <= params <= MAX_PARAMETERS:
        why = f"{params} parameters in {layers} layers: allowed are 1 to {MAX_LAYERS} layers"
        raise RequestError("model", f"{why} and 1 to 1e14 parameters, one a layer.", value=text)
    least = max(1.0, _MIN_FLOPS * params)
    if not least <= flops <= _MAX_FLOPS:
        why = f"flops={shown(given['flops'])} is not {least:.3g}FLOP to 1000000EFLOP."
        raise RequestError("model", why, value=text)
    return _Generic(params, layers, flops)


def _whole_loads(side: int) -> int:
    """Return the largest multiple of 8 up to a side; a smaller side as it is."""
    return side // 8 * 8 or side


def _generic_layers(generic: _Generic) -> Iterator[ModelLayer]:
    """Yield dense layers, nearly square, with the parameters and the work of the model.

    Sides are multiples of 8, as tensor cores want them. What a matrix cannot hold of a layer's
    share is its bias. The inner side of the product is the matrix's, whatever the work, so that
    more work never takes less time.
    """
    work = generic.flops / generic.layers
    for index in range(generic.layers):
        # Whole numbers whose sum is exact.
        before, after = (generic.params * part // generic.layers for part in (index, index + 1))
        inputs = _whole_loads(isqrt(after - before))
        outputs = _whole_loads((after - before) // inputs)
        rest = after - before - inputs * outputs
        rows = max(1, int(work / (2.0 * inputs * outputs)))
        made = linear(f"layers.{index}", inputs, outputs, rows, bias=False, activated=True)
        bias = ((f"{made.name}.bias", (rest,)),) if rest else ()
        # The last row may be a part of one: what is written follows from the work and the inputs.
        written_bytes = 4.0 * work / (2.0 * inputs)
        yield made._replace(tensors=made.tensors + bias, flops=work, activation_bytes=written_bytes)
