"""NCCL's tuner on a network, as its file states it: the ``[tuner]`` table."""

from __future__ import annotations

from perfsim.cluster.growth.choice import TunedChoice
from perfsim.cluster.growth.communicator import Communicator
from perfsim.errors import RequestError
from perfsim.library.nccl_figures import ARCHITECTURES, parse_version
from perfsim.limits import RATE, Limit, shown
from perfsim.quantity import KINDS
from perfsim.toml_file import Table
from perfsim.units import parse_rate

__all__ = ["read_tuner"]

KEYS = (
    "version",
    "architecture",
    "intra",
    "bus_bandwidth",
    "two_nodes",
    "plain_tree",
    "near_nic",
    "kind",
    "source",
)
RATIO = Limit(0.1, 10.0, "0.1 to 10")


def read_tuner(table: Table) -> TunedChoice:
    """Return NCCL's tuner of a ``[tuner]`` table.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.
    """
    table.only(KEYS)
    table.choice("kind", KINDS)
    table.text("source")
    version = table.text("version")
    try:
        parse_version(version)
    except RequestError as error:
        raise table.wrong("version", str(error)) from None
    of = Communicator(
        version,
        table.choice("architecture", tuple(ARCHITECTURES)),
        table.choice("intra", ("nvlink", "pci")),
    )
    rate = table.number("bus_bandwidth", table.get("bus_bandwidth"), parse_rate, RATE)
    ratio = table.get("two_nodes")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float):
        raise table.wrong("two_nodes", f"found {shown(ratio)}, allowed is a number, {RATIO.words}")
    two_nodes = table.limited("two_nodes", ratio, ratio, RATIO)
    return TunedChoice(
        of, rate / 1e9, two_nodes, _flag(table, "plain_tree"), _flag(table, "near_nic")
    )


def _flag(table: Table, key: str) -> bool:
    value = table.get(key)
    if not isinstance(value, bool):
        raise table.wrong(key, f"found {shown(value)}, allowed: true, false")
    return value
