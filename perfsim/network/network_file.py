"""Network files: links between and inside nodes, measured curves, NCCL's tuner and the fabric.

A network file is TOML. The models below list the keys of each of its tables; `read_network`
checks a file against them and returns a `Network`. Measured curves lie in a CSV beside the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from perfsim.data.catalog import Catalog
from perfsim.data.toml import (
    FileName,
    HopSeconds,
    KindOfNumber,
    MessageBytes,
    RelativeSpread,
    Tables,
    Text,
    Texts,
    TomlModel,
    WholeNumber,
    WrongValue,
    check_toml,
    in_unit,
    one_of,
    parse_toml,
)
from perfsim.errors import RequestError, shown
from perfsim.libraries import DEFAULT_LIBRARY
from perfsim.libraries.nccl_versions import PROTOCOLS
from perfsim.network.link import Latency, Link, ProtocolFigures, custom_link
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
from perfsim.units import parse_bytes, parse_rate, parse_seconds, parse_seconds_per_byte

if TYPE_CHECKING:
    from perfsim.network.fabrics.slowdown import Fabric, NodeFabric
    from perfsim.network.known import MeasuredCollectives
    from perfsim.network.tuner_fit import TunedChoice

__all__ = ["NETWORK_SCHEMA", "Network", "load_network", "read_network"]

NETWORK_SCHEMA = "perfsim/network/1"

_SUFFIX = ".toml"
_CURVES_SUFFIX = ".curves.csv"
"""Measured curves lie beside the network's file, under its name."""

_LINK_CLASSES = ("inter", "intra")
_LATENCY_CURVES = ("ring", "tree")
"""What latencies are stated for: the hop of a ring, and the hop of a tree."""
_BOTH = "any"
"""What a segment says whose curve holds for ring and tree."""

_MAX_MEASURED_RANKS = 65_536
"""GPUs that a link may have been measured on: their flows are routed through the fabric.

No source: chosen, above any published measurement."""
_ERROR = NumberLimit(0.0, math.inf, "zero or above")
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


class _Sourced(TomlModel):
    """Where a number comes from; its error is stated in its unit or as a residual."""

    range: Annotated[tuple[float, float], PlainValidator(_size_range)] | None = None
    residual: RelativeSpread | None = None
    kind: KindOfNumber
    source: Text

    def origin(
        self, number: float, error: float | None
    ) -> tuple[Kind, str, float | None, float | None, float | None]:
        """Return kind, source, spread, lowest and highest message, in the order of `Quantity`.

        Parameters
        ----------
        number : the value, or the first of several
        error : of the number, in its unit, where the file states one
        """
        spread = self.residual
        if error is not None and number:
            share = error / number
            if not SPREAD_LIMIT.holds(share):
                why = f"found an error of {share:.0%} of the value, allowed is {SPREAD_LIMIT.words}"
                raise WrongValue(why, "error")
            spread = share if spread is None else spread
        low, high = self.range or (None, None)
        return self.kind, self.source, spread, low, high


class NumberTable(_Sourced):
    """A table such as ``rate = { value = "1GB/s", kind = "measured", source = "..." }``.

    One model serves all units, since each model costs every start of perfsim half a millisecond.
    """

    value: Any
    error: Any = None


def _number_in(
    unit: str, parse: Callable[[object, str], float], limit: NumberLimit
) -> PlainValidator:
    """Return the check of a table of a number with its origin; its value is a `Quantity`."""
    parts = {"value": in_unit(parse, limit).func, "error": in_unit(parse, _ERROR).func}

    def check(values: object) -> Quantity:
        table = NumberTable.model_validate(values)
        given = {"value": table.value, "error": table.error}
        numbers: dict[str, float | None] = {"error": None}
        for key, value in given.items():
            if key == "value" or value is not None:
                try:
                    numbers[key] = parts[key](value)  # type: ignore[call-arg]
                except WrongValue as wrong:
                    raise WrongValue(wrong.why, key) from None
        number = numbers["value"]
        assert number is not None
        return Quantity(number, unit, *table.origin(number, numbers["error"]))

    return PlainValidator(check)


Rate = Annotated[Quantity, _number_in("B/s", parse_rate, RATE_LIMIT)]
HopLatency = Annotated[Quantity, _number_in("s/hop", parse_seconds, LATENCY_LIMIT)]
ReductionTime = Annotated[Quantity, _number_in("s/B", parse_seconds_per_byte, REDUCTION_LIMIT)]


# [[link]]


class LatencyKnot(TomlModel):
    """The latency of a hop for one size of message."""

    size: MessageBytes
    alpha: HopSeconds


class SegmentTable(_Sourced):
    """The latency of a ring's hop, a tree's, or of both, by message size."""

    algorithm: Annotated[Text, one_of((*_LATENCY_CURVES, _BOTH))]
    knots: Tables[LatencyKnot]
    error: Annotated[float, in_unit(parse_seconds, _ERROR)] | None = None

    @model_validator(mode="after")
    def _is_a_latency(self) -> Self:
        for index, (before, after) in enumerate(pairwise(self.knots), 1):
            if after.size <= before.size:
                raise WrongValue("sizes rise from knot to knot", "knots", index, "size")
        self.origin(self.knots[0].alpha, self.error)
        return self

    @property
    def latency(self) -> Latency:
        """The curve of these knots."""
        alphas = tuple(knot.alpha for knot in self.knots)
        sizes = tuple(knot.size for knot in self.knots)
        return Latency(sizes, alphas, *self.origin(alphas[0], self.error))


class ProtocolTable(TomlModel):
    """What was measured with NCCL held to one protocol."""

    protocol: Annotated[Text, one_of(PROTOCOLS)]
    rate: Rate
    alpha: HopLatency


class LinkTable(TomlModel):
    """The link between nodes (inter) or between the GPUs of a node (intra)."""

    link_class: Annotated[Text, one_of(_LINK_CLASSES)] = Field(alias="class")
    ranks: Annotated[tuple[int, int], PlainValidator(_rank_range)] | None = None
    rate: Rate
    tree_rate: Rate | None = None
    gamma: ReductionTime
    alpha: HopLatency | None = None
    segments: Tables[SegmentTable] | None = None
    protocol: Tables[ProtocolTable] | None = None

    @model_validator(mode="after")
    def _one_latency_for_each(self) -> Self:
        if (self.alpha is None) == (self.segments is None):
            raise WrongValue("a link has either alpha (one value) or segments (by size)", "alpha")
        served: set[str] = set()
        for index, segment in enumerate(self.segments or []):
            named = set(_LATENCY_CURVES if segment.algorithm == _BOTH else [segment.algorithm])
            if served & named:
                why = f"{segment.algorithm!r} has segments already"
                raise WrongValue(why, "segments", index, "algorithm")
            served |= named
        for name in _LATENCY_CURVES:
            if self.segments is not None and name not in served:
                raise WrongValue(f"none has algorithm = {name!r}", "segments")
        return self

    @model_validator(mode="after")
    def _each_protocol_once(self) -> Self:
        named: set[str] = set()
        for index, table in enumerate(self.protocol or []):
            if table.protocol in named:
                why = f"{table.protocol!r} stands in an earlier [[link.protocol]]"
                raise WrongValue(why, "protocol", index, "protocol")
            named.add(table.protocol)
        return self

    def link(self, network: str) -> Link:
        """Return the link of a network of this name."""
        curves: dict[str, Latency] = {}
        if self.alpha is not None:
            curves = dict.fromkeys(_LATENCY_CURVES, Latency.constant(self.alpha))
        for segment in self.segments or []:
            both = segment.algorithm == _BOTH
            curves |= dict.fromkeys(
                _LATENCY_CURVES if both else [segment.algorithm], segment.latency
            )
        rate, ring = self.rate, curves["ring"]
        return Link(
            name=network,
            rate=rate,
            tree_rate=rate if self.tree_rate is None else self.tree_rate,
            gamma=self.gamma,
            ring=ring,
            tree=curves["tree"],
            ranks=self.ranks,
            protocols={
                table.protocol: ProtocolFigures(
                    table.rate,
                    table.alpha,
                    share=table.rate.value / rate.value,
                    more_s=table.alpha.value - ring.alpha_s[0],
                )
                for table in self.protocol or []
            },
        )


# The whole file


def _each_class_once(links: list[LinkTable]) -> list[LinkTable]:
    classes = [link.link_class for link in links]
    for index, name in enumerate(classes):
        if name in classes[:index]:
            why = f"{name!r} stands in an earlier [[link]]; one of each class"
            raise WrongValue(why, index, "class")
    return links


class NetworkFile(TomlModel):
    """The keys of a network file.

    Tables that few files have are checked elsewhere: ``curve`` and ``tuner`` by
    `network.fitted_curves`, ``fabric`` and ``node`` by `fabrics.tables`.
    """

    SCHEMA = NETWORK_SCHEMA
    name: FileName
    title: Text
    transport: Text
    gpus_per_node: WholeNumber | None = None
    nics_per_node: WholeNumber = 1
    inside: Text = ""
    library: Annotated[Text, one_of(CURVE_LIBRARIES)] = DEFAULT_LIBRARY
    notes: Texts = ()
    link: Annotated[Tables[LinkTable], AfterValidator(_each_class_once)]
    curve: Any = None
    tuner: Any = None
    fabric: Any = None
    node: Any = None


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
        raise RequestError(
            field,
            f"{self.name!r} has no link {where[link_class]} (class {link_class!r}), only"
            f" {', '.join(map(repr, self.links))}; `perfsim list networks` shows which have.",
        )


def read_network(path: Path) -> Network:
    """Read and check one network file.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, line, key, what was found, what is
        allowed.
    """
    values, text = parse_toml(path)
    file = check_toml(NetworkFile, values, path, text=text)
    fabric = node = None
    if file.fabric is not None:
        from perfsim.network.fabrics.tables import read_fabric

        fabric = read_fabric(file.fabric, path, text)
    if file.node is not None:
        from perfsim.network.fabrics.tables import read_node

        node = read_node(file.node, path, text, file.gpus_per_node)
    return Network(
        name=file.name,
        title=file.title,
        transport=file.transport,
        gpus_per_node=file.gpus_per_node,
        nics_per_node=file.nics_per_node,
        links={table.link_class: table.link(file.name) for table in file.link},
        notes=file.notes,
        path=str(path),
        inside=file.inside,
        known=_measured(file, path, text),
        library=file.library,
        fabric=fabric,
        node=node,
    )


def _measured(file: NetworkFile, path: Path, text: str) -> MeasuredCollectives | None:
    """Return the curves of a network: measured ones in the file beside, fitted ones inside."""
    beside = path.with_name(f"{file.name}{_CURVES_SUFFIX}")
    curves: list[CollectiveCurve] = []
    choice: TunedChoice | None = None
    if file.curve is not None or file.tuner is not None:
        from perfsim.network.fitted_curves import read_fitted_curves

        curves, choice = read_fitted_curves(file.curve, file.tuner, file.name, path, text)
    if file.curve is None and not beside.is_file():
        return None
    from perfsim.network.known import MeasuredCollectives
    from perfsim.network.measured import read_curves

    measured = read_curves(beside) if beside.is_file() else []
    return MeasuredCollectives((*measured, *curves), choice)


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
    if text.endswith(_SUFFIX):
        if not _there(text):
            raise RequestError(field, f"there is no file {shown(text)}.")
        return read_network(Path(text))
    if "," in text or "/" in text or _BARE_NUMBER.fullmatch(text.strip()):
        link = custom_link(text, field)
        return Network(text, text, "custom", None, 1, dict.fromkeys(_LINK_CLASSES, link))
    return read_network(catalog.path("networks", text, field, "networks"))


def _there(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False
