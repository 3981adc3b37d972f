"""Fitted curves as a network file holds them: ``[[curve]]`` tables of knots."""

from __future__ import annotations

from typing import cast

from perfsim.cluster.measured import GROUNDS, LIBRARIES, Curve
from perfsim.collectives import COLLECTIVES
from perfsim.errors import DataError
from perfsim.limits import MESSAGE, SPREAD, TIME
from perfsim.quantity import Kind
from perfsim.toml_file import Table
from perfsim.units import parse_bytes, parse_fraction, parse_seconds

__all__ = ["read_curve"]

COUNTS = ("ranks", "nodes", "gpus_per_node")
WORDS = ("algorithm", "protocol", "version", "gpu", "fabric")
KEYS = ("collective", *COUNTS, *WORDS, "library", "kind", "source", "residual", "knots")


def read_curve(table: Table, network: str) -> Curve:
    """Return the curve of one ``[[curve]]`` table.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.
    """
    table.only(KEYS)
    sizes: list[float] = []
    seconds: list[float] = []
    for knot in table.tables("knots"):
        knot.only(("size", "time"))
        sizes.append(knot.number("size", knot.get("size"), parse_bytes, MESSAGE))
        seconds.append(knot.number("time", knot.get("time"), parse_seconds, TIME))
    spread = None
    if "residual" in table.values:
        spread = table.number("residual", table.values["residual"], parse_fraction, SPREAD)
    library = table.choice("library", LIBRARIES) if "library" in table.values else "nccl"
    words = {word: table.text(word) for word in WORDS if word in table.values}
    ranks, nodes, gpus_per_node = (table.whole(count, table.get(count)) for count in COUNTS)
    collective, kind = table.choice("collective", COLLECTIVES), table.choice("kind", GROUNDS)
    source = table.text("source")
    if not nodes <= ranks <= nodes * gpus_per_node:
        told = f"{ranks} ranks on {nodes} nodes of {gpus_per_node} GPUs cannot be"
        raise table.wrong("ranks", f"{told}; every node holds 1 to gpus_per_node ranks")
    try:
        return Curve(
            collective=collective,
            ranks=ranks,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            size_bytes=tuple(sizes),
            seconds=tuple(seconds),
            kind=cast(Kind, kind),
            source=source,
            spread=spread,
            series=network,
            library=library,
            **words,
        )
    except DataError as error:
        raise table.wrong("knots", str(error)) from None
