"""The tables ``[fabric]`` and ``[node]`` of a network file: which fabric, with which options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

from perfsim.cluster.fabric.inter import Fabric
from perfsim.cluster.fabric.intra import NodeFabric
from perfsim.cluster.fabric.kinds import Kind, Place, Value, fabrics
from perfsim.cluster.fabric.option import Option
from perfsim.cluster.routing import TIES, Ties
from perfsim.limits import LATENCY, RATE, Limit, shown
from perfsim.toml_file import Table
from perfsim.units import parse_rate, parse_seconds

__all__ = ["read_fabric", "read_node"]

RATIO = Limit(1.0, 1000.0, "a number from 1 to 1000")
SHARE = Limit(1e-3, 1000.0, "a number from 0.001 to 1000")
MOST_GPUS = 128
MOST_DIMS = 6


def read_fabric(table: Table) -> Fabric:
    """Return the fabric between nodes that a ``[fabric]`` table describes.

    Keys: ``kind``, ``source``, ``hop_latency`` ("0.5us"), ``spread`` (true or false), ``ties``
    ("even" or "first"), and those of the fabric's file.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.

    Examples
    --------
    >>> from pathlib import Path
    >>> told = {"kind": "leaf-spine", "nodes_per_leaf": 16, "source": "an example"}
    >>> read_fabric(Table(told, Path("net.toml"), "fabric.")).words()
    'leaf-spine, 16 nodes a leaf'
    """
    name, kind = _kind(table, "inter", "kind")
    table.only(("kind", "hop_latency", "spread", "ties", "source", *kind.options))
    hop_latency_s = 0.0
    if "hop_latency" in table.values:
        hop_latency_s = table.number(
            "hop_latency", table.values["hop_latency"], parse_seconds, LATENCY
        )
    ties = table.choice("ties", TIES) if "ties" in table.values else TIES[0]
    return Fabric(
        kind=name,
        options=_options(table, kind.options),
        hop_latency_s=hop_latency_s,
        spread=_flag(table, "spread") if "spread" in table.values else False,
        ties=next(one for one in get_args(Ties) if one == ties),
        source=table.text("source"),
    )


def read_node(table: Table) -> NodeFabric:
    """Return the fabric inside a node that a ``[node]`` table describes.

    Keys: ``fabric``, ``gpus``, ``nics`` (1 by default), ``source``, and those of the fabric's file.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.

    Examples
    --------
    >>> from pathlib import Path
    >>> told = {"fabric": "nvswitch", "gpus": 8, "nics": 4, "source": "an example"}
    >>> read_node(Table(told, Path("net.toml"), "node.")).slowdown(2, of=8)
    1.0
    """
    name, kind = _kind(table, "intra", "fabric")
    table.only(("fabric", "gpus", "nics", "source", *kind.options))
    gpus = _count(table, "gpus", table.get("gpus"))
    if gpus > MOST_GPUS:
        raise table.wrong("gpus", f"found {gpus}, allowed are at most {MOST_GPUS}")
    return NodeFabric(
        kind=name,
        gpus=gpus,
        nics=_count(table, "nics", table.values["nics"]) if "nics" in table.values else 1,
        options=_options(table, kind.options),
        source=table.text("source"),
    )


def _kind(table: Table, place: Place, key: str) -> tuple[str, Kind]:
    known = fabrics(place)
    name = table.choice(key, tuple(known))
    return name, known[name]


def _options(table: Table, options: Mapping[str, Option]) -> tuple[tuple[str, Value], ...]:
    found: list[tuple[str, Value]] = []
    for key, option in options.items():
        if key in table.values:
            found.append((key, FORMS[option.form](table, key, option)))
        elif option.needed:
            raise table.wrong(key, f"is missing: {option.meaning}")
    return tuple(found)


def _count(table: Table, key: str, value: object) -> int:
    return table.whole(key, value)


def _flag(table: Table, key: str) -> bool:
    value = table.get(key)
    if not isinstance(value, bool):
        raise table.wrong(key, f"found {shown(value)}, allowed are true and false")
    return value


def _plain(table: Table, key: str, value: object, limit: Limit) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not limit.holds(float(str(value))):
        raise table.wrong(key, f"found {shown(value)}, allowed is {limit.words}")
    return float(str(value))


def _ratios(table: Table, key: str) -> tuple[float, ...]:
    value = table.get(key)
    several = value if isinstance(value, list) else [value]
    if not 1 <= len(several) <= 2:
        raise table.wrong(key, f"found {shown(value)}, allowed are one number or [leaf, pod]")
    return tuple(_plain(table, key, one, RATIO) for one in several)


def _counts(table: Table, key: str) -> tuple[int, ...]:
    value = table.get(key)
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_DIMS:
        told = f"found {shown(value)}, allowed is a list of 1 to {MOST_DIMS} whole numbers"
        raise table.wrong(key, told)
    return tuple(table.whole(key, one) for one in value)


FORMS: Mapping[str, Callable[[Table, str, Option], Value]] = {
    "count": lambda table, key, _: table.whole(key, table.get(key)),
    "counts": lambda table, key, _: _counts(table, key),
    "ratio": lambda table, key, _: _plain(table, key, table.get(key), RATIO),
    "ratios": lambda table, key, _: _ratios(table, key),
    "share": lambda table, key, _: _plain(table, key, table.get(key), SHARE),
    "rate": lambda table, key, _: table.number(key, table.get(key), parse_rate, RATE),
    "flag": lambda table, key, _: _flag(table, key),
    "word": lambda table, key, option: table.choice(key, option.allowed),
    "words": lambda table, key, _: table.texts(key),
    "file": lambda table, key, _: _beside(table, key),
}
"""How each form of an option is read."""


def _beside(table: Table, key: str) -> str:
    """Return the path of a file beside the network's; refuses one that is not there."""
    name = Path(table.text(key))
    if name.is_absolute() or ".." in name.parts:
        raise table.wrong(key, f"found {shown(str(name))}, allowed is a file of the same folder")
    path = table.path.parent / name
    try:
        there = path.is_file()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        there = False
    if not there:
        raise table.wrong(key, f"found {shown(table.text(key))}, no such file in {path.parent}")
    return str(path)
