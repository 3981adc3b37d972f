"""Network files: links between and inside nodes, measured curves, NCCL's tuner and the fabric.

A network file is TOML. The checks below list the keys of each of its tables; `read_network`
checks a file by them and returns a `Network`. Measured curves lie in a CSV beside the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.data.files import is_there, near_file
from perfsim.data.toml import (
    Check,
    HopSeconds,
    KindOfNumber,
    MessageBytes,
    RelativeSpread,
    Text,
    Texts,
    WrongValue,
    check_of,
    in_unit,
    one_of,
    read_checked,
    table_check,
    tables_check,
    whole_number,
)
from perfsim.errors import DataError, MissingFileError, RequestError, UnknownNameError, shown
from perfsim.libraries import DEFAULT_LIBRARY
from perfsim.libraries.nccl_versions import PROTOCOLS
from perfsim.network.link import Latency, Link, NodeExponent, ProtocolFigures, custom_link
from perfsim.network.measured import CURVE_LIBRARIES, CollectiveCurve
from perfsim.quantity import (
    COUNT_LIMIT,
    LATENCY_LIMIT,
    MESSAGE_LIMIT,
    RATE_LIMIT,
    REDUCTION_LIMIT,
    SPREAD_LIMIT,
    Kind,
    NumberLimit,
    Quantity,
)
from perfsim.units import (
    parse_bytes,
    parse_rate,
    parse_seconds,
    parse_seconds_per_byte,
    size_for_rate,
)

if TYPE_CHECKING:
    from perfsim.network.fabrics.slowdown import Fabric, NodeFabric
    from perfsim.network.known import MeasuredCollectives
    from perfsim.network.node_type import NodeType
    from perfsim.network.tuner_fit import TunedChoice

__all__ = [
    "CURVES_SUFFIX",
    "CUSTOM",
    "NETWORK_SCHEMA",
    "NETWORK_SUFFIX",
    "NOTICED",
    "Network",
    "Noticed",
    "load_network",
    "noticed_by_kind",
    "read_network",
]

NETWORK_SCHEMA = "perfsim/network/1"

NETWORK_SUFFIX = ".toml"
CURVES_SUFFIX = ".curves.csv"
"""Measured curves lie beside the network's file, under its name."""

_LINK_CLASSES = ("inter", "intra")
_LATENCY_CURVES = ("ring", "tree")
"""What latencies are stated for: the hop of a ring, and the hop of a tree."""
_BOTH = "any"
"""What a segment says whose curve holds for ring and tree."""

_MAX_MEASURED_RANKS = 65_536
"""GPUs that a link may have been measured on: their flows are routed through the fabric.

No source: chosen, above any published measurement."""
_ERROR = NumberLimit(0.0, math.inf, "0 or more")
_BARE_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?", re.IGNORECASE)


# A number of a link: its value and where it comes from


def _two(value: object) -> tuple[object, object]:
    if not isinstance(value, list) or len(value) != 2:
        raise WrongValue(f"found {shown(value)}, allowed is [lowest, highest]")
    return value[0], value[1]


def _size_range(value: object) -> tuple[float, float]:
    low, high = (in_unit(parse_bytes, MESSAGE_LIMIT).func(end) for end in _two(value))  # type: ignore[call-arg]
    if low > high:
        raise WrongValue("the lowest size is above the highest")
    return low, high


def _rank_range(value: object) -> tuple[int, int]:
    fewest, most = _two(value)
    for end in (fewest, most):
        if not isinstance(end, int) or isinstance(end, bool) or not COUNT_LIMIT.holds(end):
            raise WrongValue(f"found {shown(end)}, allowed is a whole number, {COUNT_LIMIT.words}")
    assert isinstance(fewest, int) and isinstance(most, int)
    if fewest > most:
        raise WrongValue(f"found {value!r}, allowed are whole numbers, low to high")
    if most > _MAX_MEASURED_RANKS:
        raise WrongValue(f"found {most}, nothing was measured on more than {_MAX_MEASURED_RANKS}")
    return fewest, most


_ORIGIN: dict[str, Check] = {
    "range": _size_range,
    "residual": check_of(RelativeSpread),
    "kind": check_of(KindOfNumber),
    "source": check_of(Text),
}
"""Where a number comes from; its error is stated in its unit (``error``) or as a residual."""
_OPTIONAL = ("error", "range", "residual")


def _origin(
    table: Mapping[str, Any], number: float
) -> tuple[Kind, str, float | None, float | None, float | None]:
    """Return kind, source, spread, lowest and highest message, in the order of `Quantity`.

    ``number`` is the value, or the first of several.
    """
    spread = table.get("residual")
    if "error" in table and number:
        share = table["error"] / number
        if not SPREAD_LIMIT.holds(share):
            why = f"found an error of {share:.0%} of the value, allowed is {SPREAD_LIMIT.words}"
            raise WrongValue(why, "error")
        spread = share if spread is None else spread
    low, high = table.get("range", (None, None))
    return table["kind"], table["source"], spread, low, high


def _number(unit: str, parse: Callable[[object, str], float], limit: NumberLimit) -> Check:
    """Return the check of a table such as ``rate = { value = "1GB/s", kind = "measured", ... }``.

    Its value is a `Quantity`.
    """
    value, error = in_unit(parse, limit).func, in_unit(parse, _ERROR).func
    check_table = table_check({"value": value, "error": error, **_ORIGIN}, _OPTIONAL)  # type: ignore[dict-item]

    def check(values: object) -> Quantity:
        table = check_table(values)
        return Quantity(table["value"], unit, *_origin(table, table["value"]))

    return check


_check_rate = _number("B/s", parse_rate, RATE_LIMIT)
_check_alpha = _number("s/hop", parse_seconds, LATENCY_LIMIT)
_check_gamma = _number("s/B", parse_seconds_per_byte, REDUCTION_LIMIT)


def _exponent(value: object) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not 0.0 <= value <= 1.0:  # type: ignore[operator]
        raise WrongValue(f"found {shown(value)}, allowed is a number, 0 to 1")
    return float(value)  # type: ignore[arg-type]


_check_exponent = table_check(
    {
        "value": _exponent,
        "error": _exponent,
        "nodes": whole_number,
        "kind": check_of(KindOfNumber),
        "source": check_of(Text),
    }
)


def _check_falls(values: object) -> NodeExponent:
    """Return how a rate falls with nodes: ``{ value = 0.1, error = 0.05, nodes = 2, ... }``."""
    table = _check_exponent(values)
    value = table["value"]
    spread = table["error"] / value if value else 0.0
    exponent = Quantity(value, "", table["kind"], table["source"], spread)
    return NodeExponent(exponent, table["nodes"])


# [[link]]: the link between nodes (inter) or between the GPUs of a node (intra)


_check_knot = table_check({"size": check_of(MessageBytes), "alpha": check_of(HopSeconds)})
_check_segment_keys = table_check(
    {
        "algorithm": check_of(Annotated[Text, one_of((*_LATENCY_CURVES, _BOTH))]),
        "knots": tables_check(_check_knot, "knots"),
        "error": in_unit(parse_seconds, _ERROR).func,  # type: ignore[dict-item]
        **_ORIGIN,
    },
    _OPTIONAL,
)


def _check_segment(values: object) -> tuple[str, Latency]:
    """Return the algorithm of a segment (ring, tree or any) and its latency by message size."""
    table = _check_segment_keys(values)
    sizes = tuple(knot["size"] for knot in table["knots"])
    alphas = tuple(knot["alpha"] for knot in table["knots"])
    for index, (before, after) in enumerate(pairwise(sizes), 1):
        if after <= before:
            raise WrongValue("sizes rise from knot to knot", "knots", index, "size")
    return table["algorithm"], Latency(sizes, alphas, *_origin(table, alphas[0]))


_check_protocol = table_check(
    {
        "protocol": check_of(Annotated[Text, one_of(PROTOCOLS)]),
        "rate": _check_rate,
        "alpha": _check_alpha,
    }
)
"""What was measured with NCCL held to one protocol."""

_check_link_keys = table_check(
    {
        "class": check_of(Annotated[Text, one_of(_LINK_CLASSES)]),
        "ranks": _rank_range,
        "rate": _check_rate,
        "tree_rate": _check_rate,
        "gamma": _check_gamma,
        "alpha": _check_alpha,
        "segments": tables_check(_check_segment, "segments"),
        "protocol": tables_check(_check_protocol, "protocol"),
        "falls_with_nodes": _check_falls,
    },
    optional=("ranks", "tree_rate", "alpha", "segments", "protocol", "falls_with_nodes"),
)


def _check_link(values: object) -> tuple[str, Link]:
    """Return the class of a link, and the link; its name is given later."""
    table = _check_link_keys(values)
    curves = _latencies(table)
    rate, ring = table["rate"], curves["ring"]
    protocols: dict[str, ProtocolFigures] = {}
    for index, held in enumerate(table.get("protocol", ())):
        name = held["protocol"]
        if name in protocols:
            why = f"{name!r} stands in an earlier [[link.protocol]]"
            raise WrongValue(why, "protocol", index, "protocol")
        protocols[name] = ProtocolFigures(
            held["rate"],
            held["alpha"],
            share=held["rate"].value / rate.value,
            more_s=held["alpha"].value - ring.alpha_s[0],
        )
    return table["class"], Link(
        name="",
        rate=rate,
        tree_rate=table.get("tree_rate", rate),
        gamma=table["gamma"],
        ring=ring,
        tree=curves["tree"],
        ranks=table.get("ranks"),
        protocols=protocols,
        falls=table.get("falls_with_nodes"),
    )


def _latencies(table: Mapping[str, Any]) -> dict[str, Latency]:
    """Return the latency of a link for rings and for trees: one value, or segments by size."""
    if ("alpha" in table) == ("segments" in table):
        raise WrongValue("a link has either alpha (one value) or segments (by size)", "alpha")
    if "alpha" in table:
        return dict.fromkeys(_LATENCY_CURVES, Latency.constant(table["alpha"]))
    curves: dict[str, Latency] = {}
    for index, (algorithm, latency) in enumerate(table["segments"]):
        named = _LATENCY_CURVES if algorithm == _BOTH else (algorithm,)
        if not curves.keys().isdisjoint(named):
            why = f"{algorithm!r} has segments already"
            raise WrongValue(why, "segments", index, "algorithm")
        curves |= dict.fromkeys(named, latency)
    for name in _LATENCY_CURVES:
        if name not in curves:
            raise WrongValue(f"none has algorithm = {name!r}", "segments")
    return curves


_check_link_list = tables_check(_check_link, "link")


def _check_links(values: object) -> dict[str, Link]:
    """Return the links by class; each class stands once."""
    links: dict[str, Link] = {}
    for index, (link_class, link) in enumerate(_check_link_list(values)):
        if link_class in links:
            why = f"{link_class!r} stands in an earlier [[link]]; one of each class"
            raise WrongValue(why, index, "class")
        links[link_class] = link
    return links


# [[noticed]]: what calibration noticed of the network while it measured it


NOTICED = {
    "change": "its times changed while it was measured",
    "drift": "its times drifted while it was measured",
    "slow_host": "one host is slower than the others",
    "unsteady": "repeats of one message differ widely",
    "stalls": "calls stalled",
    "poor_fit": "the fit misses what was measured",
}
"""What can be noticed, and what that is in a few words."""


class Noticed(NamedTuple):
    """Something that makes a calibrated network doubtful: a word of `NOTICED`, and a sentence."""

    what: str
    text: str

    @property
    def brief(self) -> str:
        """The same in a few words."""
        return NOTICED[self.what]


def noticed_by_kind(noticed: Iterable[Noticed]) -> list[Noticed]:
    """Return one of each kind: the first, with how many more like it there are.

    Examples
    --------
    >>> twice = [Noticed("stalls", "2 calls stalled."), Noticed("stalls", "3 calls stalled.")]
    >>> [one.text for one in noticed_by_kind(twice)]
    ['2 calls stalled (and 1 more like this).']
    """
    kinds: dict[str, list[str]] = {}
    for one in noticed:
        kinds.setdefault(one.what, []).append(one.text)
    return [
        Noticed(what, f"{texts[0].rstrip('.')} (and {len(texts) - 1} more like this).")
        if len(texts) > 1
        else Noticed(what, texts[0])
        for what, texts in kinds.items()
    ]


_check_noticed_keys = table_check(
    {"what": check_of(Annotated[Text, one_of(tuple(NOTICED))]), "text": check_of(Text)}
)


def _check_noticed(values: object) -> Noticed:
    """Return one thing that calibration noticed."""
    return Noticed(**_check_noticed_keys(values))


# The whole file


_check_network = table_check(
    {
        "name": check_of(Text),
        "title": check_of(Text),
        "transport": check_of(Text),
        "gpus_per_node": whole_number,
        "nics_per_node": whole_number,
        "inside": check_of(Text),
        "node_type": check_of(Text),
        "library": check_of(Annotated[Text, one_of(CURVE_LIBRARIES)]),
        "notes": check_of(Texts),
        "noticed": tables_check(_check_noticed, "noticed"),
        "link": _check_links,
        # Few files have the following tables: `fitted_curves` and `fabrics.tables` check them.
        **dict.fromkeys(("curve", "tuner", "fabric", "node"), lambda value: value),
    },
    optional=(
        *("gpus_per_node", "nics_per_node", "inside", "node_type", "library", "notes"),
        *("noticed", "curve", "tuner", "fabric", "node"),
    ),
)


CUSTOM = "custom"
"""The transport of a network that the user gives as rate and latency."""


class Network(NamedTuple):
    """A network as its file states it: its links by class, and its shape.

    Parameters
    ----------
    name, title, transport : as stated
    gpus_per_node : None where the file leaves it open
    nics_per_node : NICs that the GPUs of a node share
    links : by class, ``inter`` between nodes and ``intra`` inside them
    notes, path : as stated; the file
    inside : the network whose intra link the nodes have, where the file has none
    known : curves measured on the network
    library : the one that it was measured with
    fabric, node : switches between the nodes; links inside one
    node_type : the data sheet of its nodes, where it was made of one
    stated_node : the name of the node type that its file says it has
    noticed : what makes it doubtful, as calibration noticed it
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
    node_type: NodeType | None = None
    stated_node: str = ""
    noticed: tuple[Noticed, ...] = ()

    def link(self, link_class: str, field: str) -> Link:
        """Return the link of a class, ``inter`` or ``intra``.

        Raises
        ------
        RequestError
            If the network has none; says what it has.
        """
        if link_class in self.links:
            return self.links[link_class]
        where = {"inter": "between nodes", "intra": "between the GPUs of a node"}
        has, other = map(repr, self.links), "intra_net" if link_class == "inter" else "net"
        raise RequestError(
            field,
            f"{self.name!r} has no link {where[link_class]} (class {link_class!r}), only"
            f" {', '.join(has)} (that is for `{other}`); `perfsim list networks` shows which have.",
        )


def read_network(path: Path) -> Network:
    """Read and check one network file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, line, key, what was found, what is
        allowed.
    """
    table, text = read_checked(path, NETWORK_SCHEMA, _check_network)
    name, fabric, node = table["name"], None, None
    if "fabric" in table:
        from perfsim.network.fabrics.tables import read_fabric

        fabric = read_fabric(table["fabric"], path, text)
    if "node" in table:
        from perfsim.network.fabrics.tables import read_node

        node = read_node(table["node"], path, text, table.get("gpus_per_node"))
    return Network(
        name=name,
        title=table["title"],
        transport=table["transport"],
        gpus_per_node=table.get("gpus_per_node"),
        nics_per_node=table.get("nics_per_node", 1),
        links={
            key: replace(link, name=name, transport=_transport_of(key, table["transport"]))
            for key, link in table["link"].items()
        },
        notes=table.get("notes", ()),
        path=str(path),
        inside=table.get("inside", ""),
        known=_measured(table, path, text),
        library=table.get("library", DEFAULT_LIBRARY),
        fabric=fabric,
        node=node,
        stated_node=table.get("node_type", ""),
        noticed=tuple(table.get("noticed", ())),
    )


_BETWEEN_GPUS = ("nvlink", "pcie", "xgmi")
"""Transports between the GPUs of a node; a network of another one says how nodes are joined."""


def _transport_of(link_class: str, transport: str) -> str:
    """Return what a link of a network is, "" where the network's transport does not say."""
    known = link_class == "inter" or transport.startswith(_BETWEEN_GPUS)
    return transport if known else ""


def _with_stated_node(network: Network, catalog: Catalog) -> Network:
    """Return a network with the link inside its nodes named as the node type that it states."""
    intra = network.links.get("intra")
    if intra is None or intra.transport or not network.stated_node:
        return network
    from perfsim.network.node_type import load_node_type

    inside = load_node_type(network.stated_node, catalog, "node").inside.link
    return network._replace(links={**network.links, "intra": replace(intra, transport=inside)})


def _measured(table: Mapping[str, Any], path: Path, text: str) -> MeasuredCollectives | None:
    """Return the curves of a network: measured ones in the file beside, fitted ones inside."""
    beside = path.with_name(f"{table['name']}{CURVES_SUFFIX}")
    curves: list[CollectiveCurve] = []
    choice: TunedChoice | None = None
    if "curve" in table or "tuner" in table:
        from perfsim.network.fitted_curves import read_fitted_curves

        curves, choice = read_fitted_curves(table, path, text)
    if not curves and not beside.is_file():
        return None
    from perfsim.network.known import MeasuredCollectives
    from perfsim.network.measured import read_curves

    measured = read_curves(beside) if beside.is_file() else []
    return MeasuredCollectives((*measured, *curves), choice)


_OTHER_WAYS = (
    "give rate,latency such as 25Gbit/s,30us, or make one of nccl-tests' logs (`perfsim"
    " calibrate import`)."
)


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
    >>> load_network("10Gbit/s,50us", Catalog(), "net").transport
    'custom'
    """
    if text.endswith(NETWORK_SUFFIX):
        if not is_there(text):
            near = near_file(Path(text), (NETWORK_SUFFIX,))
            why = f"there is no file {shown(text)}{near}; {_OTHER_WAYS}"
            raise MissingFileError(field, why, value=text)
        return _with_stated_node(read_network(Path(text)), catalog)
    if "," in text or "/" in text or _BARE_NUMBER.fullmatch(text.strip()):
        link = custom_link(text, field)
        return Network(text, text, CUSTOM, None, 1, dict.fromkeys(_LINK_CLASSES, link))
    try:
        path = catalog.path("networks", text, field, "networks")
    except RequestError as error:
        if size := _SIZE_GIVEN.fullmatch(text.strip()):
            why = f"no {shown(text)} ({size_for_rate(size[1])}); {_OTHER_WAYS}"
            raise UnknownNameError(field, why, value=text) from None
        if rate := _BIT_RATE.fullmatch(text.strip()):
            raise _no_latency(text, field, rate[1], rate[2], catalog) from None
        error = _by_title(error, text, field, catalog)
        raise _of_other_place(error, text, field, catalog).or_else(_OTHER_WAYS) from None
    return _with_stated_node(read_network(path), catalog)


_BIT_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtKMGT])(?:b|bps|[bB]its?|(?i:b?e)|)")
"""A rate in bits as people say it, such as 10Gbps or 400GbE; its unit is Gbit/s."""

_SIZE_GIVEN = re.compile(r"\d++(?:\.\d++)?\s*+([kKMGT]i?B)(?:ps)?")


def _no_latency(text: str, field: str, number: str, scale: str, catalog: Catalog) -> RequestError:
    """Return the error for a rate without a latency in a unit that is none."""
    unit = "kbit/s" if scale in "kK" else f"{scale.upper()}bit/s"
    ethernet = f"{number}gbe" if scale in "gG" and field == "net" else ""
    known = ethernet in catalog.files("networks")
    name = f"did you mean {ethernet!r}? A" if known else "a"
    return UnknownNameError(
        field,
        f"no {shown(text)}; {name} link of your own is rate,latency such as {number}{unit},20us.",
        value=text,
        nearest=ethernet if known else "",
    )


_WORD = re.compile(r"[a-z]{3,}")
"""What says something of a network by itself, such as ndr; ib stands in too many names."""


def _by_title(error: RequestError, text: str, field: str, catalog: Catalog) -> RequestError:
    """Return the error for an unknown name; where titles have its words, it offers such a network.

    Of several it is the one with the shortest name: a class of networks, not one cluster's.
    """
    files = catalog.files("networks")
    words = set(_WORD.findall(text.lower()))
    named = any(words.issubset(_WORD.findall(name)) for name in files)
    if field != "net" or not words or named:
        return error
    titles: dict[str, str] = {}
    for name, path in files.items():
        try:
            network = read_network(path)
        except DataError:  # it is no network that one could mean
            continue
        between = _PLACES[field][0] in network.links
        if between and words.issubset(_WORD.findall(network.title.lower())):
            titles[name] = network.title
    if not titles:
        return error
    name = min(titles, key=lambda name: (len(name), name))
    allowed = error.why.partition(" Allowed")[2]
    why = f"no {shown(text)}; did you mean {name!r}: {titles[name]}? Allowed{allowed}"
    return UnknownNameError(field, why, value=text, nearest=name)


_PLACES = {"net": ("inter", "between nodes"), "intra_net": ("intra", "inside a node")}
"""What a field's links are called in network files and in a sentence."""


def _of_other_place(error: RequestError, text: str, field: str, catalog: Catalog) -> RequestError:
    """Return the error for an unknown name; it does not offer a link that the field cannot take."""
    if not error.nearest or field not in _PLACES:
        return error
    near = read_network(catalog.files("networks")[error.nearest])
    if _PLACES[field][0] in near.links:
        return error
    other = next(name for name in _PLACES if name != field)
    return UnknownNameError(
        field,
        f"no {shown(text)} {_PLACES[field][1]}; links {_PLACES[other][1]}, such as"
        f" {near.name!r}, are for `{other}`.",
        value=text,
    )
