"""The tables ``[fabric]`` and ``[node]`` of a network file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, create_model

from perfsim.data.toml import (
    HopSeconds,
    Text,
    TomlModel,
    WholeNumber,
    WrongValue,
    YesOrNo,
    check_toml,
    one_of,
    toml_refusal,
)
from perfsim.network.fabrics.base import FabricPlace, FabricValue
from perfsim.network.fabrics.slowdown import Fabric, NodeFabric, fabric_kind, fabrics
from perfsim.network.routing import TIES, Ties

__all__ = ["read_fabric", "read_node"]

_MAX_GPUS_PER_NODE = 128
"""GPUs of a node. No source: chosen; the largest NVLink domain that is sold has 72."""


def _gpus_of_a_node(value: int) -> int:
    if value > _MAX_GPUS_PER_NODE:
        raise WrongValue(f"found {value}, allowed is a whole number, 1 to {_MAX_GPUS_PER_NODE}")
    return value


class FabricTable(TomlModel):
    """The keys of every ``[fabric]``; those of its kind come on top."""

    kind: Text
    hop_latency: HopSeconds = 0.0
    spread: YesOrNo = False
    ties: Annotated[Ties, PlainValidator(lambda value: value), one_of(TIES)] = TIES[0]
    source: Text


class NodeTable(TomlModel):
    """The keys of every ``[node]``; those of its fabric come on top."""

    fabric: Text
    gpus: Annotated[WholeNumber, AfterValidator(_gpus_of_a_node)]
    nics: WholeNumber = 1
    source: Text


@cache
def _model(place: FabricPlace, name: str) -> type[TomlModel]:
    """Return the table with the keys of one kind of fabric."""
    keys: dict[str, Any] = {
        key: (
            option.type if option.needed else option.type | None,
            Field(... if option.needed else None, description=option.meaning),
        )
        for key, option in fabric_kind(place, name).options.items()
    }
    base = FabricTable if place == "inter" else NodeTable
    return create_model(f"{base.__name__} {name}", __base__=base, **keys)


def _checked(place: FabricPlace, key: str, values: Any, path: Path, text: str) -> Any:
    """Return a table with the keys of the fabric that its ``key`` names."""
    at = ("fabric" if place == "inter" else "node",)
    names = tuple(fabrics(place))
    keys: dict[str, Any] = {key: (Annotated[Text, one_of(names)], ...)}
    named = create_model("Named", __base__=TomlModel, **keys)
    only = values
    if isinstance(values, dict):
        only = {name: value for name, value in values.items() if name == key}
    name = getattr(check_toml(named, only, path, at, text), key)
    return check_toml(_model(place, name), values, path, at, text)


def _options(
    place: FabricPlace, name: str, table: TomlModel
) -> tuple[tuple[str, FabricValue], ...]:
    """Return the options that a table states, as pairs."""
    stated = ((key, getattr(table, key)) for key in fabric_kind(place, name).options)
    return tuple((key, value) for key, value in stated if value is not None)


def read_fabric(values: object, path: Path, text: str = "") -> Fabric:
    """Return the fabric between nodes that a ``[fabric]`` table describes.

    Parameters
    ----------
    values : the table: ``kind``, ``source``, ``hop_latency`` ("0.5us"), ``spread`` (true or false),
        ``ties`` ("even" or "first"), and the options of its kind
    path, text : the file and its text, for messages and for files beside it

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.

    Examples
    --------
    >>> values = {"kind": "leaf-spine", "nodes_per_leaf": 16, "source": "an example"}
    >>> read_fabric(values, Path("net.toml")).words()
    'leaf-spine, 16 nodes a leaf'
    """
    table = _checked("inter", "kind", values, path, text)
    return Fabric(
        kind=table.kind,
        options=_options("inter", table.kind, table),
        hop_latency_s=table.hop_latency,
        spread=table.spread,
        ties=table.ties,
        source=table.source,
    )


def read_node(
    values: object, path: Path, text: str = "", gpus_per_node: int | None = None
) -> NodeFabric:
    """Return the fabric inside a node that a ``[node]`` table describes.

    Parameters
    ----------
    values : the table: ``fabric``, ``gpus``, ``nics`` (1 by default), ``source``, and the options
        of its fabric
    path, text : the file and its text
    gpus_per_node : as the network file states it; a node has at least as many

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.

    Examples
    --------
    >>> values = {"fabric": "nvswitch", "gpus": 8, "nics": 4, "source": "an example"}
    >>> read_node(values, Path("net.toml")).slowdown(2, of=8)
    1.0
    """
    table = _checked("intra", "fabric", values, path, text)
    if gpus_per_node is not None and gpus_per_node > table.gpus:
        why = f"found {table.gpus}, gpus_per_node says {gpus_per_node}"
        raise toml_refusal(why, ("node", "gpus"), path, text)
    return NodeFabric(
        kind=table.fabric,
        gpus=table.gpus,
        nics=table.nics,
        options=_options("intra", table.fabric, table),
        source=table.source,
    )
