"""Public network definitions by name.

``layers`` has what they are made of; ``convolutional``, ``recurrent`` and ``transformers`` define
the networks with shipped profiles. A new network is a function there and a line in that file's
table. ``language`` has models by their numbers alone, ``specification`` those that a user states.
"""

from __future__ import annotations

from functools import cache

from perfsim.errors import RequestError, unknown
from perfsim.models.convolutional import CONVOLUTIONAL
from perfsim.models.language import NAMED
from perfsim.models.layers import ModelBuilder, ModelLayer
from perfsim.models.recurrent import RECURRENT
from perfsim.models.specification import is_specified, specified_layers
from perfsim.models.specification import takes_tokens as _specified_takes_tokens
from perfsim.models.transformers import TEXT_MODELS, TRANSFORMERS

__all__ = [
    "MODELS",
    "NAMED",
    "TEXT_MODELS",
    "ModelLayer",
    "build_model",
    "defined_models",
    "is_defined",
    "takes_tokens",
]

MODELS: dict[str, ModelBuilder] = CONVOLUTIONAL | RECURRENT | TRANSFORMERS
"""Every network by the name that ``model`` takes."""


def defined_models() -> list[str]:
    """Return the names of all network definitions.

    Examples
    --------
    >>> "resnet50" in defined_models()
    True
    """
    return sorted(MODELS)


def is_defined(name: str) -> bool:
    """Tell whether perfsim has or can make the layers of a model."""
    return name in MODELS or is_specified(name)


def takes_tokens(name: str) -> bool:
    """Tell whether a defined model is one over text, whose tokens a sample can be chosen."""
    return name in TEXT_MODELS if name in MODELS else _specified_takes_tokens(name)


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
    if name not in MODELS:
        if is_specified(name):
            return specified_layers(name, tokens)
        raise unknown("model", name, (*MODELS, *NAMED))
    if tokens is None:
        return MODELS[name]()
    if name not in TEXT_MODELS:
        raise RequestError(
            "seq", f"{name} takes no tokens; models over text: {', '.join(TEXT_MODELS)}."
        )
    return MODELS[name](tokens=tokens)
