"""Models that a user states: ``transformer:`` and ``generic:`` with numbers, or a config.json.

A specification's canonical text, with every number in it, names the model inside perfsim, so that
a changed file is another model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, NamedTuple, get_args

from perfsim.errors import RequestError, shown, unknown_option
from perfsim.models.language import NAMED, Architecture, Bias, Family, Norm, architecture_layers
from perfsim.models.layers import ModelLayer, linear

__all__ = [
    "GENERIC",
    "TRANSFORMER",
    "architecture_of",
    "canonical_model",
    "is_specified",
    "specified_layers",
    "takes_tokens",
]

TRANSFORMER, GENERIC = "transformer:", "generic:"
"""How specifications begin."""

_CONFIG_SUFFIX = ".json"
_COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kKMBT]?)")
_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_FLOPS = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([kMGTPE]?)FLOPs?")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_MAX_NUMBER = 10**9
"""Largest number of an architecture; no source: chosen, above any vocabulary."""
_MAX_LAYERS = 10_000
_MAX_ELEMENTS = 10**14
_WORDS: dict[str, tuple[str, ...]] = {
    "family": get_args(Family),
    "norm": get_args(Norm),
    "bias": get_args(Bias),
}
_SWITCHES = ("gated", "tied", "qk_norm")
_NEEDED = ("layers", "hidden", "heads", "vocab")


def is_specified(model: str) -> bool:
    """Tell whether a model is stated by its numbers or a file, or is one of the named ones."""
    return model in NAMED or model.startswith((TRANSFORMER, GENERIC)) or _is_config(model)


def _is_config(model: str) -> bool:
    if model.endswith(_CONFIG_SUFFIX):
        return True
    try:
        return (Path(model) / "config.json").is_file()
    except (OSError, ValueError):  # a name that is too long, or has a zero byte
        return False


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
        return f"{GENERIC}params={generic.params:.0f},layers={generic.layers},flops={generic.flops!r}FLOP"
    return _text(architecture_of(model))


def _text(shape: Architecture) -> str:
    """Return the specification of an architecture, in full."""
    return TRANSFORMER + ",".join(
        f"{name}={'yes' if value is True else 'no' if value is False else value}"
        for name, value in shape._asdict().items()
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
    values = {name: _value(name, value) for name, value in given.items()}
    hidden, heads = values["hidden"], values["heads"]
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
    wrong = _contradiction(shape)
    if wrong:
        raise RequestError("model", f"{wrong}.", value=text)
    return shape


def _contradiction(shape: Architecture) -> str:
    if shape.layers > _MAX_LAYERS:
        return f"layers={shape.layers} is above {_MAX_LAYERS}"
    if not shape.kv or shape.heads % shape.kv:
        return f"kv={shape.kv} does not divide heads={shape.heads}"
    if shape.experts and not 1 <= shape.topk <= shape.experts:
        return f"topk={shape.topk} is not 1 to experts={shape.experts}"
    if shape.topk and not shape.experts:
        return "topk needs experts"
    if shape.experts and not shape.expert_ffn:
        return "experts need expert_ffn, the width of one"
    if shape.norms not in (2, 4):
        return f"norms={shape.norms}: a block has 2 or 4"
    if shape.family == "vit" and shape.image % shape.patch:
        return f"patch={shape.patch} does not divide image={shape.image}"
    size = shape.layers * shape.hidden * (shape.ffn + shape.heads * shape.head) + shape.vocab
    size *= max(shape.experts, 1)
    return "such a model has more than 1e14 parameters" if size > _MAX_ELEMENTS else ""


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

    params: float
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
    params = float(count[1]) * _FACTORS[count[2]]
    flops = float(work[1]) * _PREFIXES[work[2]]
    if layers > _MAX_LAYERS or not layers <= params <= _MAX_ELEMENTS:
        why = f"{params:.4g} parameters in {layers} layers: allowed are 1 to 1e14 of them, 1 to {_MAX_LAYERS} layers."
        raise RequestError("model", why, value=text)
    if not isfinite(flops) or flops < 2 * params / 1e6:
        raise RequestError("model", f"flops={given['flops']} is too little for them.", value=text)
    return _Generic(params, layers, flops)


def _generic_layers(generic: _Generic) -> list[ModelLayer]:
    """Return square dense layers with the parameters and the work of the model, shared alike."""
    width = max(1, round(sqrt(generic.params / generic.layers)))
    rows = max(1, round(generic.flops / generic.layers / (2.0 * width * width)))
    return [
        linear(f"layers.{index}", width, width, rows, bias=False, activated=True)
        for index in range(generic.layers)
    ]
