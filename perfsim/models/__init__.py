"""Public network definitions by name.

``layers`` has what they are made of; ``convolutional``, ``recurrent`` and ``transformers`` define
the networks. A new network is a function there and a line in that file's table.
"""

from __future__ import annotations

from functools import cache

from perfsim.errors import unknown
from perfsim.models.convolutional import CONVOLUTIONAL
from perfsim.models.layers import ModelBuilder, ModelLayer
from perfsim.models.recurrent import RECURRENT
from perfsim.models.transformers import TRANSFORMERS

__all__ = ["MODELS", "ModelLayer", "build_model", "defined_models"]

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


@cache
def build_model(name: str) -> tuple[ModelLayer, ...]:
    """Return the layers of one network in forward order.

    Raises
    ------
    RequestError
        If there is no such network; the message gives the nearest name.

    Examples
    --------
    >>> sum(layer.elements for layer in build_model("resnet50"))
    25557032
    """
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]()
