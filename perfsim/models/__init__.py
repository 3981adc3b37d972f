"""Public network definitions by name.

``layers`` has what they are made of; ``convolutional``, ``recurrent`` and ``transformers`` define
the networks with shipped profiles. A new network is a function there and a line in that file's
table. ``language`` has models by their numbers alone, ``specification`` those that a user states.
``adapters`` has the names of models that are frozen beside trained adapters, ``documents`` packed
samples whose attention stays within documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from perfsim.errors import RequestError, unknown
from perfsim.models.adapters import base_model, with_adapters
from perfsim.models.convolutional import CONVOLUTIONAL
from perfsim.models.documents import within_documents
from perfsim.models.layers import ModelBuilder, ModelLayer, is_expert
from perfsim.models.named import NAMED
from perfsim.models.recurrent import RECURRENT
from perfsim.models.specification import is_specified, specification_takes_tokens, specified_layers
from perfsim.models.transformers import TEXT_MODELS, TRANSFORMERS
from perfsim.sums import sum_in_order

__all__ = [
    "MODELS",
    "NAMED",
    "TEXT_MODELS",
    "ModelLayer",
    "all_models",
    "build_model",
    "data_of",
    "defined_models",
    "has_attention",
    "has_experts",
    "is_defined",
    "model_elements",
    "model_flops",
    "own_tokens",
    "packed_model",
    "takes_tokens",
    "task_of",
]

MODELS: dict[str, ModelBuilder] = CONVOLUTIONAL | RECURRENT | TRANSFORMERS
"""Every network by the name that ``model`` takes."""

_TASKS = {
    "lstm": "language model pretraining",
    "lstm-ptb": "language model pretraining",
    "lstm-an4": "speech recognition",
}
"""What recurrent networks are trained for: words of WikiText-2 and Penn Treebank, speech of AN4."""


def defined_models() -> list[str]:
    """Return the names of all network definitions.

    Examples
    --------
    >>> "resnet50" in defined_models()
    True
    """
    return sorted(MODELS)


def all_models(profiles: Iterable[str]) -> list[str]:
    """Return the names of all models: those of profiles, by their files, and those defined here.

    Examples
    --------
    >>> names = all_models(["ours.h100.amp-bf16.b8"])
    >>> [name in names for name in ("ours", "resnet34", "qwen3-8b")]
    [True, True, True]
    """
    return sorted({*MODELS, *NAMED, *(stem.split(".")[0] for stem in profiles)})


def is_defined(name: str) -> bool:
    """Tell whether perfsim has or can make the layers of a model."""
    name, _ = base_model(name)
    return name in MODELS or is_specified(name)


def takes_tokens(name: str) -> bool:
    """Tell whether a defined model is one over text, whose tokens a sample can be chosen."""
    name, _ = base_model(name)
    return name in TEXT_MODELS if name in MODELS else specification_takes_tokens(name)


@cache
def has_attention(name: str) -> bool:
    """Tell whether a defined model is a transformer: whether a layer of it is attention."""
    return any(layer.kind == "attention" for layer in build_model(name))


@cache
def has_experts(name: str) -> bool:
    """Tell whether a layer of a defined model has several experts, of which a token takes some."""
    return any(is_expert(layer) for layer in build_model(name))


def own_tokens(name: str) -> int:
    """Return the tokens a sample of a defined model over text if nothing else is asked."""
    return next(layer.rows for layer in build_model(name) if layer.kind in ("attention", "lstm"))


def task_of(name: str) -> str | None:
    """Return what a model is trained for, in the words of the evidence of learning; None: unknown.

    Examples
    --------
    >>> [task_of(name) for name in ("resnet50", "bert-large-squad", "llama3-8b", "lstm-an4")]
    ['image classification', 'fine-tuning', 'language model pretraining', 'speech recognition']
    """
    name, adapters = base_model(name)
    if adapters and is_defined(name) and takes_tokens(name):
        return "fine-tuning"
    if name in _TASKS:
        return _TASKS[name]
    if name.startswith("bert"):
        return "fine-tuning" if name.endswith("squad") else "masked language model"
    if name in CONVOLUTIONAL or name.startswith("vit"):
        return "image classification"
    if is_defined(name) and takes_tokens(name):
        return "language model pretraining"
    return None


def data_of(name: str) -> str:
    """Return what a model is trained on: imagenet, cifar, small text, web; "" where not known.

    Examples
    --------
    >>> [data_of(name) for name in ("resnet50", "resnet20-cifar", "lstm-ptb", "llama3-8b")]
    ['imagenet', 'cifar', 'small text', 'web']
    """
    task = task_of(name)
    if task == "image classification":
        return "cifar" if name.endswith("-cifar") else "imagenet"
    if task in ("language model pretraining", "masked language model"):
        return "small text" if name in RECURRENT else "web"
    return ""


@cache
def build_model(name: str, tokens: int | None = None) -> tuple[ModelLayer, ...]:
    """Return the layers of one network in forward order, at its own or at ``tokens`` a sample.

    Raises
    ------
    RequestError
        If there is no such network (the message gives the nearest name), or it takes no tokens.

    Examples
    --------
    >>> sum(layer.elements for layer in build_model("resnet50"))
    25557032
    """
    base, adapters = base_model(name)
    if adapters:
        return with_adapters(build_model(base, tokens), adapters)
    if name not in MODELS:
        if is_specified(name):
            return specified_layers(name, tokens)
        raise unknown("model", name, (*MODELS, *NAMED))
    if tokens is None:
        return MODELS[name]()
    if name not in TEXT_MODELS:
        raise RequestError(
            "seq", f"{name} takes no tokens: it is not over text, as bert-large or llama3-8b are."
        )
    return MODELS[name](tokens=tokens)


def packed_model(
    name: str, tokens: int | None, document_tokens: int | None
) -> tuple[ModelLayer, ...]:
    """Return the layers of one network, with attention that stays within documents if any are.

    Parameters
    ----------
    document_tokens : tokens of a document of a packed sample; None: attention goes over all of it

    Raises
    ------
    RequestError
        As `build_model`, or if samples of the network hold no such documents.
    """
    layers = build_model(name, tokens)
    return layers if document_tokens is None else within_documents(layers, document_tokens)


@cache
def model_elements(model: str, tokens: int | None) -> int:
    """Return the parameters that a defined network trains; learned positions go by its tokens."""
    return sum(layer.trained_elements for layer in build_model(model, tokens))


_PASSES = 3.0
"""A backward pass has two products for each of the forward pass."""
_PASSES_FROZEN = 2.0
"""Passes where weights are frozen: their gradients are not made."""


@cache
def model_flops(
    model: str, tokens: int | None, document_tokens: int | None = None
) -> dict[str, float]:
    """Return a model's operations for one sample, forward and backward, by convention.

    It is empty for a model that perfsim has no layers of. ``document_tokens`` is that of
    `packed_model`; PaLM's formula has the whole sample whatever attends to what.

    Examples
    --------
    >>> {name: round(flops / 2048 / 1e9, 1) for name, flops in model_flops("mpt-7b", 2048).items()}
    {'products': 43.1, 'causal': 41.5, 'palm': 43.2, '6n': 40.0}
    """
    if not is_defined(model):
        return {}
    text = takes_tokens(model)
    layers = packed_model(model, tokens if text else None, document_tokens)
    made = sum_in_order(_passes(layer) * layer.flops for layer in layers)
    masked = sum_in_order(layer.flops for layer in layers if layer.causal)
    found = {"products": made, "causal": made - _PASSES * masked / 2}
    length = tokens or next((layer.rows for layer in layers if layer.kind == "attention"), None)
    if not text or length is None:
        return found
    plain = 2.0 * _passes(layers[-1]) * _working(layers) * length
    attention = [layer for layer in layers if layer.kind == "attention"]
    width = sum_in_order(layer.outputs for layer in attention)  # layers x width x length
    return found | {"palm": plain + 12.0 * width * length, "6n": plain}


def _passes(layer: ModelLayer) -> float:
    """Return how often a layer's product is made in both passes, those for gradients counted."""
    return _PASSES_FROZEN if layer.frozen and layer.kind != "attention" else _PASSES


def _working(layers: tuple[ModelLayer, ...]) -> float:
    """Return the parameters that work for a token: of experts, those that are chosen."""
    found = 0.0
    for layer in layers:
        if is_expert(layer) and layer.kind == "linear":
            _, outputs, inputs = layer.tensors[0][1]
            tokens = next(one.rows for one in layers if one.kind == "attention")
            found += layer.rows / tokens * outputs * inputs
        else:
            found += layer.elements
    return found
