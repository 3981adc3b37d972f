"""Networks: files of measured links (``profiles/networks/<name>.toml``), or a link of one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perfsim.catalog import Catalog
from perfsim.cluster.link import Link, custom_link
from perfsim.cluster.measured import LIBRARIES
from perfsim.cluster.network_file import read_link
from perfsim.errors import RequestError
from perfsim.library import DEFAULT_LIBRARY
from perfsim.limits import shown
from perfsim.toml_file import Table, read_toml

if TYPE_CHECKING:
    from perfsim.cluster.fabric.inter import Fabric
    from perfsim.cluster.fabric.intra import NodeFabric
    from perfsim.cluster.known import Known

__all__ = ["SCHEMA", "Network", "load_network", "read_network"]

SCHEMA = "perfsim/network/1"
KEYS = (
    "schema",
    "name",
    "title",
    "transport",
    "gpus_per_node",
    "nics_per_node",
    "inside",
    "library",
    "notes",
    "link",
    "curve",
    "tuner",
    "fabric",
    "node",
)
CLASSES = ("inter", "intra")
SUFFIX = ".toml"
CURVES = ".curves.csv"
"""Measured curves lie beside the network's file, under its name."""
NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?", re.IGNORECASE)


class Network(NamedTuple):
    """A network as its file states it: links by class (``inter``, ``intra``) and its shape.

    ``gpus_per_node`` is None where the file leaves it open; ``nics_per_node`` counts the NICs
    that the GPUs of a node share. ``inside`` names the network whose intra link stands for the
    nodes' own where the file has none; ``library`` is the one that it was measured with.
    ``known`` holds the curves measured on the network, ``fabric`` the switches between nodes and
    ``node`` the links inside one, where the file says.
    """

    name: str
    title: str
    transport: str
    gpus_per_node: int | None
    nics_per_node: int
    links: Mapping[str, Link]
    notes: tuple[str, ...] = ()
    path: str = ""
    inside: str = ""
    known: Known | None = None
    library: str = DEFAULT_LIBRARY
    fabric: Fabric | None = None
    node: NodeFabric | None = None

    def link(self, of: str, field: str) -> Link:
        """Return the link of a class.

        Raises
        ------
        RequestError
            If the network has none; says what it has.
        """
        if of in self.links:
            return self.links[of]
        place = {"inter": "between nodes", "intra": "between the GPUs of a node"}
        raise RequestError(
            f"{field}: {self.name!r} has no link {place[of]} (class {of!r}), only"
            f" {', '.join(map(repr, self.links))}; `perfsim list networks` shows which have."
        )


def read_network(path: Path) -> Network:
    """Read and check one network file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, key, what was found, what is allowed.
    """
    table = read_toml(path)
    table.check_schema(SCHEMA)
    table.only(KEYS)
    name = table.name()
    links: dict[str, Link] = {}
    for part in table.tables("link"):
        of = part.choice("class", CLASSES)
        if of in links:
            raise part.wrong("class", f"{of!r} stands in an earlier [[link]]; one of each class")
        links[of] = read_link(part, name)
    return Network(
        name=name,
        title=table.text("title"),
        transport=table.text("transport"),
        gpus_per_node=_count(table, "gpus_per_node"),
        nics_per_node=_count(table, "nics_per_node") or 1,
        links=links,
        notes=table.texts("notes"),
        path=str(path),
        inside=table.text("inside") if "inside" in table.values else "",
        known=_known(table, name),
        library=_library(table),
        fabric=_fabric(table),
        node=_node(table),
    )


def _library(table: Table) -> str:
    if "library" not in table.values:
        return DEFAULT_LIBRARY
    return table.choice("library", LIBRARIES)


def _fabric(table: Table) -> Fabric | None:
    if "fabric" not in table.values:
        return None
    from perfsim.cluster.fabric_file import read_fabric

    return read_fabric(table.inside("fabric"))


def _node(table: Table) -> NodeFabric | None:
    if "node" not in table.values:
        return None
    from perfsim.cluster.fabric_file import read_node

    node = read_node(table.inside("node"))
    stated = _count(table, "gpus_per_node")
    if stated is not None and stated > node.gpus:
        raise table.wrong("node.gpus", f"found {node.gpus}, gpus_per_node says {stated}")
    return node


def _known(table: Table, name: str) -> Known | None:
    """Return the curves of a network: measured ones in the file beside, fitted ones inside."""
    beside = table.path.with_name(f"{name}{CURVES}")
    if not {"curve", "tuner"} & table.values.keys() and not beside.is_file():
        return None
    from perfsim.cluster.curve_table import read_curve
    from perfsim.cluster.curves_file import read_curves
    from perfsim.cluster.known import Known
    from perfsim.cluster.tuner_table import read_tuner

    measured = read_curves(beside) if beside.is_file() else []
    fitted = []
    if "curve" in table.values:
        fitted = [read_curve(part, name) for part in table.tables("curve")]
    tuner = read_tuner(table.inside("tuner")) if "tuner" in table.values else None
    return Known((*measured, *fitted), tuner) if measured or fitted else None


def _count(table: Table, key: str) -> int | None:
    return table.whole(key, table.values[key]) if key in table.values else None


def load_network(text: str, catalog: Catalog, field: str) -> Network:
    """Return the network of a name, of a file's path, or a link of one's own as ``rate,latency``.

    A text that ends in ``.toml`` is a path; measured curves are found beside it.

    Raises
    ------
    RequestError
        If there is no such network or file, or the rate or latency is wrong.
    DataError
        If the file is damaged.

    Examples
    --------
    >>> load_network("10Gbit/s,50us", Catalog(), "--net").transport
    'custom'
    """
    if text.endswith(SUFFIX):
        if not _there(text):
            raise RequestError(f"{field}: there is no file {shown(text)}.")
        return read_network(Path(text))
    if "," in text or "/" in text or NUMBER.fullmatch(text.strip()):
        link = custom_link(text, field)
        return Network(text, text, "custom", None, 1, {of: link for of in CLASSES})
    return read_network(catalog.path("networks", text, field, "networks"))


def _there(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False
