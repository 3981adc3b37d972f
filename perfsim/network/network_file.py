"""The tables ``[fabric]`` and ``[node]`` of a network file: which fabric, with which options."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast, get_args

from perfsim.collectives import COLLECTIVES
from perfsim.data.catalog import Catalog
from perfsim.data.toml import TomlTable, read_toml
from perfsim.errors import DataError, RequestError, shown
from perfsim.libraries import DEFAULT_LIBRARY
from perfsim.libraries.nccl_figures import ARCHITECTURES, parse_version
from perfsim.network.fabrics.inter import Fabric
from perfsim.network.fabrics.intra import NodeFabric
from perfsim.network.fabrics.kinds import FabricKind, FabricPlace, FabricValue, fabrics
from perfsim.network.fabrics.option import Option
from perfsim.network.link import Held, Latency, Link, custom_link
from perfsim.network.measured import GROUNDS, LIBRARIES, CollectiveCurve
from perfsim.network.routing import TIES, Ties
from perfsim.network.tuner_fit import Communicator, TunedChoice
from perfsim.quantity import (
    KINDS,
    LATENCY_LIMIT,
    MESSAGE_LIMIT,
    RATE_LIMIT,
    REDUCTION_LIMIT,
    SPREAD_LIMIT,
    TIME_LIMIT,
    Kind,
    NumberLimit,
    Quantity,
)
from perfsim.units import (
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
    parse_seconds_per_byte,
)

if TYPE_CHECKING:
    from perfsim.network.known import MeasuredCollectives

__all__ = [
    "NETWORK_SCHEMA",
    "Network",
    "load_network",
    "read_curve",
    "read_fabric",
    "read_link",
    "read_network",
    "read_node",
    "read_tuner",
]

COUNTS = ("ranks", "nodes", "gpus_per_node")
WORDS = ("algorithm", "protocol", "version", "gpu", "fabric")
CURVE_TABLE_KEYS = ("collective", *COUNTS, *WORDS, "library", "kind", "source", "residual", "knots")


def read_curve(table: TomlTable, network: str) -> CollectiveCurve:
    """Return the curve of one ``[[curve]]`` table.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.
    """
    table.only(CURVE_TABLE_KEYS)
    sizes: list[float] = []
    seconds: list[float] = []
    for knot in table.tables("knots"):
        knot.only(("size", "time"))
        sizes.append(knot.number("size", knot.get("size"), parse_bytes, MESSAGE_LIMIT))
        seconds.append(knot.number("time", knot.get("time"), parse_seconds, TIME_LIMIT))
    spread = None
    if "residual" in table.values:
        spread = table.number("residual", table.values["residual"], parse_fraction, SPREAD_LIMIT)
    library = table.choice("library", LIBRARIES) if "library" in table.values else "nccl"
    words = {word: table.text(word) for word in WORDS if word in table.values}
    ranks, nodes, gpus_per_node = (table.whole(count, table.get(count)) for count in COUNTS)
    collective, kind = table.choice("collective", COLLECTIVES), table.choice("kind", GROUNDS)
    source = table.text("source")
    if not nodes <= ranks <= nodes * gpus_per_node:
        told = f"{ranks} ranks on {nodes} nodes of {gpus_per_node} GPUs cannot be"
        raise table.wrong("ranks", f"{told}; every node holds 1 to gpus_per_node ranks")
    try:
        return CollectiveCurve(
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


OVERSUBSCRIPTION_LIMIT = NumberLimit(1.0, 1000.0, "a number from 1 to 1000")
SHARE = NumberLimit(1e-3, 1000.0, "a number from 0.001 to 1000")
MOST_GPUS = 128
MOST_DIMS = 6


def read_fabric(table: TomlTable) -> Fabric:
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
    >>> read_fabric(TomlTable(told, Path("net.toml"), "fabric.")).words()
    'leaf-spine, 16 nodes a leaf'
    """
    name, kind = _kind(table, "inter", "kind")
    table.only(("kind", "hop_latency", "spread", "ties", "source", *kind.options))
    hop_latency_s = 0.0
    if "hop_latency" in table.values:
        hop_latency_s = table.number(
            "hop_latency", table.values["hop_latency"], parse_seconds, LATENCY_LIMIT
        )
    ties = table.choice("ties", TIES) if "ties" in table.values else TIES[0]
    return Fabric(
        kind=name,
        options=_options(table, kind.options),
        hop_latency_s=hop_latency_s,
        spread=_fabric_flag(table, "spread") if "spread" in table.values else False,
        ties=next(one for one in get_args(Ties) if one == ties),
        source=table.text("source"),
    )


def read_node(table: TomlTable) -> NodeFabric:
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
    >>> read_node(TomlTable(told, Path("net.toml"), "node.")).slowdown(2, of=8)
    1.0
    """
    name, kind = _kind(table, "intra", "fabric")
    table.only(("fabric", "gpus", "nics", "source", *kind.options))
    gpus = _fabric_count(table, "gpus", table.get("gpus"))
    if gpus > MOST_GPUS:
        raise table.wrong("gpus", f"found {gpus}, allowed are at most {MOST_GPUS}")
    return NodeFabric(
        kind=name,
        gpus=gpus,
        nics=_fabric_count(table, "nics", table.values["nics"]) if "nics" in table.values else 1,
        options=_options(table, kind.options),
        source=table.text("source"),
    )


def _kind(table: TomlTable, place: FabricPlace, key: str) -> tuple[str, FabricKind]:
    known = fabrics(place)
    name = table.choice(key, tuple(known))
    return name, known[name]


def _options(
    table: TomlTable, options: Mapping[str, Option]
) -> tuple[tuple[str, FabricValue], ...]:
    found: list[tuple[str, FabricValue]] = []
    for key, option in options.items():
        if key in table.values:
            found.append((key, FORMS[option.form](table, key, option)))
        elif option.needed:
            raise table.wrong(key, f"is missing: {option.meaning}")
    return tuple(found)


def _fabric_count(table: TomlTable, key: str, value: object) -> int:
    return table.whole(key, value)


def _fabric_flag(table: TomlTable, key: str) -> bool:
    value = table.get(key)
    if not isinstance(value, bool):
        raise table.wrong(key, f"found {shown(value)}, allowed are true and false")
    return value


def _plain(table: TomlTable, key: str, value: object, limit: NumberLimit) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not limit.holds(float(str(value))):
        raise table.wrong(key, f"found {shown(value)}, allowed is {limit.words}")
    return float(str(value))


def _ratios(table: TomlTable, key: str) -> tuple[float, ...]:
    value = table.get(key)
    several = value if isinstance(value, list) else [value]
    if not 1 <= len(several) <= 2:
        raise table.wrong(key, f"found {shown(value)}, allowed are one number or [leaf, pod]")
    return tuple(_plain(table, key, one, OVERSUBSCRIPTION_LIMIT) for one in several)


def _counts(table: TomlTable, key: str) -> tuple[int, ...]:
    value = table.get(key)
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_DIMS:
        told = f"found {shown(value)}, allowed is a list of 1 to {MOST_DIMS} whole numbers"
        raise table.wrong(key, told)
    return tuple(table.whole(key, one) for one in value)


FORMS: Mapping[str, Callable[[TomlTable, str, Option], FabricValue]] = {
    "count": lambda table, key, _: table.whole(key, table.get(key)),
    "counts": lambda table, key, _: _counts(table, key),
    "ratio": lambda table, key, _: _plain(table, key, table.get(key), OVERSUBSCRIPTION_LIMIT),
    "ratios": lambda table, key, _: _ratios(table, key),
    "share": lambda table, key, _: _plain(table, key, table.get(key), SHARE),
    "rate": lambda table, key, _: table.number(key, table.get(key), parse_rate, RATE_LIMIT),
    "flag": lambda table, key, _: _fabric_flag(table, key),
    "word": lambda table, key, option: table.choice(key, option.allowed),
    "words": lambda table, key, _: table.texts(key),
    "file": lambda table, key, _: _beside(table, key),
}
"""How each form of an option is read."""


def _beside(table: TomlTable, key: str) -> str:
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


LINK_KEYS = ("class", "ranks", "rate", "tree_rate", "gamma", "alpha", "segments", "protocol")
VALUE_KEYS = ("value", "error", "range", "residual", "kind", "source")
SEGMENT_KEYS = ("algorithm", "knots", "error", "range", "residual", "kind", "source")
PROTOCOL_KEYS = ("protocol", "rate", "alpha")
ALGORITHMS = ("ring", "tree")
MOST_RANKS = 65_536
"""Ranks that a link may have been measured on: their flows are routed to tell what the wires do."""
ANY = "any"
"""A segment's algorithm where ring and tree share one curve."""
ERROR = NumberLimit(0.0, math.inf, "zero or above")
OF_THE_VALUE = SPREAD_LIMIT._replace(words=f"{SPREAD_LIMIT.words} of the value")


def read_link(table: TomlTable, name: str) -> Link:
    """Return the link of one ``[[link]]`` table.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.
    """
    table.only(LINK_KEYS)
    rate = tree = _quantity(table, "rate", parse_rate, "B/s", RATE_LIMIT)
    if "tree_rate" in table.values:
        tree = _quantity(table, "tree_rate", parse_rate, "B/s", RATE_LIMIT)
    curves = _curves(table)
    protocols = _protocols(table, rate, curves["ring"])
    return Link(
        name=name,
        rate=rate,
        tree_rate=tree,
        gamma=_quantity(table, "gamma", parse_seconds_per_byte, "s/B", REDUCTION_LIMIT),
        ring=curves["ring"],
        tree=curves["tree"],
        ranks=_ranks(table),
        protocols=protocols,
    )


def _protocols(table: TomlTable, rate: Quantity, ring: Latency) -> dict[str, Held]:
    """Return what was measured with NCCL held to a protocol, beside the link's own numbers."""
    if "protocol" not in table.values:
        return {}
    from perfsim.libraries.nccl_figures import PROTOCOLS

    found: dict[str, Held] = {}
    for part in table.tables("protocol"):
        part.only(PROTOCOL_KEYS)
        name = part.choice("protocol", PROTOCOLS)
        if name in found:
            raise part.wrong("protocol", f"{name!r} stands in an earlier [[link.protocol]]")
        own = _quantity(part, "rate", parse_rate, "B/s", RATE_LIMIT)
        alpha = _quantity(part, "alpha", parse_seconds, "s/hop", LATENCY_LIMIT)
        share, more_s = own.value / rate.value, alpha.value - ring.alpha_s[0]
        found[name] = Held(own, alpha, share, more_s)
    return found


def _ranks(table: TomlTable) -> tuple[int, int] | None:
    if "ranks" not in table.values:
        return None
    low, high = table.pair("ranks")
    fewest, most = table.whole("ranks", low), table.whole("ranks", high)
    if fewest > most:
        raise table.wrong("ranks", f"found {[low, high]!r}, allowed are whole numbers, low to high")
    if most > MOST_RANKS:
        raise table.wrong("ranks", f"found {most}, nothing was measured on more than {MOST_RANKS}")
    return fewest, most


def _origin(
    table: TomlTable, value: float, parse: Callable[[object, str], float]
) -> tuple[Kind, str, float | None, float | None, float | None]:
    spread = low = high = None
    if "error" in table.values:
        found = table.values["error"]
        error = table.number("error", found, parse, ERROR)
        spread = table.limited("error", found, error / value, OF_THE_VALUE) if value else None
    if "residual" in table.values:
        spread = table.number("residual", table.values["residual"], parse_fraction, SPREAD_LIMIT)
    if "range" in table.values:
        low, high = (
            table.number("range", end, parse_bytes, MESSAGE_LIMIT) for end in table.pair("range")
        )
        if low > high:
            raise table.wrong("range", "the lowest size is above the highest")
    kind = cast(Kind, table.choice("kind", KINDS))
    return kind, table.text("source"), spread, low, high


def _quantity(
    table: TomlTable, key: str, parse: Callable[[object, str], float], unit: str, limit: NumberLimit
) -> Quantity:
    inside = table.inside(key)
    inside.only(VALUE_KEYS)
    value = inside.number("value", inside.get("value"), parse, limit)
    return Quantity(value, unit, *_origin(inside, value, parse))


def _curves(table: TomlTable) -> dict[str, Latency]:
    if ("alpha" in table.values) == ("segments" in table.values):
        raise table.wrong("alpha", "a link has either alpha (one value) or segments (by size)")
    if "alpha" in table.values:
        alpha = _quantity(table, "alpha", parse_seconds, "s/hop", LATENCY_LIMIT)
        return dict.fromkeys(ALGORITHMS, Latency.constant(alpha))
    curves: dict[str, Latency] = {}
    for segment in table.tables("segments"):
        segment.only(SEGMENT_KEYS)
        algorithm = segment.choice("algorithm", (*ALGORITHMS, ANY))
        served = ALGORITHMS if algorithm == ANY else (algorithm,)
        if not curves.keys().isdisjoint(served):
            raise segment.wrong("algorithm", f"{algorithm!r} has segments already")
        curves.update(dict.fromkeys(served, _curve(segment)))
    for algorithm in ALGORITHMS:
        if algorithm not in curves:
            raise table.wrong("segments", f"none has algorithm = {algorithm!r}")
    return curves


def _curve(segment: TomlTable) -> Latency:
    sizes: list[float] = []
    alphas: list[float] = []
    for knot in segment.tables("knots"):
        knot.only(("size", "alpha"))
        sizes.append(knot.number("size", knot.get("size"), parse_bytes, MESSAGE_LIMIT))
        alphas.append(knot.number("alpha", knot.get("alpha"), parse_seconds, LATENCY_LIMIT))
        if sizes[-1] <= (sizes[-2] if len(sizes) > 1 else 0.0):
            raise knot.wrong("size", "sizes rise from knot to knot")
    return Latency(tuple(sizes), tuple(alphas), *_origin(segment, alphas[0], parse_seconds))


NETWORK_SCHEMA = "perfsim/network/1"
NETWORK_KEYS = (
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
    known: MeasuredCollectives | None = None
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
            field,
            f"{self.name!r} has no link {place[of]} (class {of!r}), only"
            f" {', '.join(map(repr, self.links))}; `perfsim list networks` shows which have.",
        )


def read_network(path: Path) -> Network:
    """Read and check one network file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, key, what was found, what is allowed.
    """
    table = read_toml(path)
    table.check_schema(NETWORK_SCHEMA)
    table.only(NETWORK_KEYS)
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


def _library(table: TomlTable) -> str:
    if "library" not in table.values:
        return DEFAULT_LIBRARY
    return table.choice("library", LIBRARIES)


def _fabric(table: TomlTable) -> Fabric | None:
    if "fabric" not in table.values:
        return None

    return read_fabric(table.inside("fabric"))


def _node(table: TomlTable) -> NodeFabric | None:
    if "node" not in table.values:
        return None

    node = read_node(table.inside("node"))
    stated = _count(table, "gpus_per_node")
    if stated is not None and stated > node.gpus:
        raise table.wrong("node.gpus", f"found {node.gpus}, gpus_per_node says {stated}")
    return node


def _known(table: TomlTable, name: str) -> MeasuredCollectives | None:
    """Return the curves of a network: measured ones in the file beside, fitted ones inside."""
    beside = table.path.with_name(f"{name}{CURVES}")
    if not {"curve", "tuner"} & table.values.keys() and not beside.is_file():
        return None
    from perfsim.network.known import MeasuredCollectives
    from perfsim.network.measured import read_curves

    measured = read_curves(beside) if beside.is_file() else []
    fitted = []
    if "curve" in table.values:
        fitted = [read_curve(part, name) for part in table.tables("curve")]
    tuner = read_tuner(table.inside("tuner")) if "tuner" in table.values else None
    return MeasuredCollectives((*measured, *fitted), tuner) if measured or fitted else None


def _count(table: TomlTable, key: str) -> int | None:
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
            raise RequestError(field, f"there is no file {shown(text)}.")
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


TUNER_KEYS = (
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
TUNER_RATIO_LIMIT = NumberLimit(0.1, 10.0, "0.1 to 10")


def read_tuner(table: TomlTable) -> TunedChoice:
    """Return NCCL's tuner of a ``[tuner]`` table.

    Raises
    ------
    DataError
        If a key is missing, unknown or wrong.
    """
    table.only(TUNER_KEYS)
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
    rate = table.number("bus_bandwidth", table.get("bus_bandwidth"), parse_rate, RATE_LIMIT)
    ratio = table.get("two_nodes")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float):
        raise table.wrong(
            "two_nodes", f"found {shown(ratio)}, allowed is a number, {TUNER_RATIO_LIMIT.words}"
        )
    two_nodes = table.limited("two_nodes", ratio, ratio, TUNER_RATIO_LIMIT)
    return TunedChoice(
        of, rate / 1e9, two_nodes, _flag(table, "plain_tree"), _flag(table, "near_nic")
    )


def _flag(table: TomlTable, key: str) -> bool:
    value = table.get(key)
    if not isinstance(value, bool):
        raise table.wrong(key, f"found {shown(value)}, allowed: true, false")
    return value
