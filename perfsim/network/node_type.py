"""Node types: the GPUs of a node, the links among them and its NICs, as data sheets state them.

A node type is a TOML file of ``nodes/``, such as ``dgx-h100.toml``; each of its tables has its
source. `node_network` makes a network of one, for which collectives cost what `NodeLaw` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from perfsim.data.catalog import Catalog
from perfsim.data.files import is_there, near_file
from perfsim.data.toml import (
    Text,
    Texts,
    WrongValue,
    YesOrNo,
    check_of,
    in_unit,
    one_of,
    read_checked,
    table_check,
    whole_number,
)
from perfsim.errors import (
    DataError,
    MissingFileError,
    RequestError,
    UnknownNameError,
    nearest,
    plain_name,
    shown,
)
from perfsim.libraries import DEFAULT_LIBRARY
from perfsim.network.node_law import GENERATIONS, NodeFacts
from perfsim.quantity import RATE_LIMIT, NumberLimit
from perfsim.units import format_bit_rate, format_rate, parse_rate

__all__ = [
    "INSIDE_LINKS",
    "NODE_SCHEMA",
    "STAND_IN_GENERATION",
    "TRANSPORTS",
    "InsideLink",
    "Nics",
    "NodeType",
    "by_vendor",
    "generation_of",
    "load_node_type",
    "read_node_type",
]

NODE_SCHEMA = "perfsim/node/1"

INSIDE_LINKS = (
    *(f"nvlink{generation}" for generation in range(1, 6)),
    *("xgmi", *(f"pcie{generation}" for generation in range(3, 6)), "none"),
)
"""What may join the GPUs of a node."""
TRANSPORTS = ("infiniband", "roce", "efa", "slingshot", "tcp", "tcpx")
"""How NICs may talk: tcpx is Google's GPUDirect-TCPX and TCPXO."""

NODE_LIBRARIES = (DEFAULT_LIBRARY, "rccl")
"""Libraries that drive the GPUs of a node."""

_RATE = NumberLimit(0.0, RATE_LIMIT.most, f"0 or {RATE_LIMIT.words}")
_MAX_NICS = 1024
"""NICs of a node, above any rack of today. No source: chosen."""


class InsideLink(NamedTuple):
    """What joins the GPUs of a node.

    Parameters
    ----------
    link : one of `INSIDE_LINKS`
    rate : of one GPU to all others, one way, by the data sheet [B/s]
    switch : whether a switch joins all GPUs
    peer_access : whether GPUs read each other's memory; else the host copies
    source : where this is stated
    gpus_per_switch : GPUs behind one PCIe switch, which share its link into the host; without peer
        access their copies do
    pairs : whether every pair of GPUs has links of its own, as many as any other
    """

    link: str
    rate: float
    switch: bool
    peer_access: bool
    source: str
    gpus_per_switch: int = 1
    pairs: bool = False


class Nics(NamedTuple):
    """The NICs of a node that serve its GPUs.

    Parameters
    ----------
    number : of a node
    rate : of each, one way, by the data sheet [B/s]
    transport : one of `TRANSPORTS`
    gpudirect : whether they read the GPUs' memory
    source : where this is stated
    virtual : whether they are a cloud's virtual NICs (AWS ENA, Google gVNIC)
    in_ring : of how many NCCL's rings over all GPUs of a node make use, 0 for all
    """

    number: int
    rate: float
    transport: str
    gpudirect: bool
    source: str
    virtual: bool = False
    in_ring: int = 0

    def count_words(self) -> str:
        """Say how many there are, of which rate and transport."""
        return f"{self.number} x {format_bit_rate(self.rate)} {self.transport}"


class NodeType(NamedTuple):
    """A node as its file states it.

    Parameters
    ----------
    gpu : its GPU by the name of a device file, "" where it is sold with any
    gpus : of a node; of a rack that is one NVLink domain, all of the rack's
    library : nccl or rccl
    inside, nics : links inside; NICs, None for a node without a network
    usual_gpu : of a node that is sold with any, the GPU that is taken where a scenario names none
    """

    name: str
    title: str
    gpu: str
    gpus: int
    library: str
    inside: InsideLink
    nics: Nics | None
    source: str
    notes: tuple[str, ...] = ()
    path: str = ""
    usual_gpu: str = ""

    def facts(self, generation: str, version: tuple[int, ...] = ()) -> NodeFacts:
        """Return what the law needs of this node.

        Parameters
        ----------
        generation : of its GPUs (see `generation_of`)
        version : of the library, () where it is not known
        """
        nics = self.nics
        return NodeFacts(
            generation=generation,
            inside=_inside_class(self.inside),
            inside_rate=self.inside.rate,
            switch=self.inside.switch,
            gpus=self.gpus,
            nics=nics.number if nics else 0,
            nic_rate=nics.rate if nics else 0.0,
            transport=nics.transport if nics else "",
            gpudirect=nics.gpudirect if nics else True,
            rccl=self.library == "rccl",
            version=version,
            gpus_per_switch=self.inside.gpus_per_switch,
            pairs=self.inside.pairs,
            virtual=nics.virtual if nics else False,
            in_ring=nics.in_ring if nics else 0,
        )

    @property
    def driven_nics(self) -> int:
        """How many NICs the GPUs of a node drive; several of one GPU count as one."""
        return min(self.nics.number if self.nics else 0, self.gpus) or 1

    def with_nics(self, count: int | None, rate: float | None) -> NodeType:
        """Return the node with another number of NICs, or NICs of another rate [B/s].

        Raises
        ------
        RequestError
            If the node has no NICs.
        """
        if count is None and rate is None:
            return self
        if self.nics is None:
            field = "nics_per_node" if rate is None else "nic"
            raise RequestError(field, f"{self.name} has no NICs: it is a single node.")
        stated = f"{self.nics.number} x {format_rate(self.nics.rate)}"
        nics = self.nics._replace(
            number=count or self.nics.number,
            rate=rate or self.nics.rate,
            in_ring=0 if count else self.nics.in_ring,
            source=f"given by the user, in place of {stated}: {self.nics.source}",
        )
        return self._replace(nics=nics)


def _inside_class(inside: InsideLink) -> str:
    """Return the word that the law has for a link inside a node."""
    if inside.link == "none":
        return ""
    if inside.link.startswith("pcie"):
        return "pcie" if inside.peer_access else "host"
    return {"nvlink1": "nvlink2"}.get(inside.link, inside.link)


_WORDS = {"ada lovelace": "ada", "rtx blackwell": "blackwell"}

STAND_IN_GENERATION = "ampere"
"""What a GPU counts as whose architecture the law has no numbers of.

No source: chosen as neither the fastest to start nor one whose switches add."""


def generation_of(architecture: str) -> str:
    """Return the word that the law has for a GPU's architecture, "" where it has no numbers of it.

    Examples
    --------
    >>> [generation_of(name) for name in ("Ada Lovelace", "Hopper", "CDNA 3", "Template")]
    ['ada', 'hopper', 'cdna3', '']
    """
    small = architecture.lower()
    word = small.replace(" ", "") if small.startswith("cdna") else _WORDS.get(small, small)
    return word if word in GENERATIONS else ""


def _gpu_name(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue(f"found {shown(value)}, allowed is the name of a GPU, or none")
    return value


def _nic_count(value: object) -> int:
    count = whole_number(value)
    if count > _MAX_NICS:
        raise WrongValue(f"found {count}, allowed is 1 to {_MAX_NICS}")
    return count


_check_inside = table_check(
    {
        "link": check_of(Annotated[Text, one_of(INSIDE_LINKS)]),
        "rate": in_unit(parse_rate, _RATE).func,  # type: ignore[dict-item]
        "switch": check_of(YesOrNo),
        "peer_access": check_of(YesOrNo),
        "source": check_of(Text),
        "gpus_per_switch": whole_number,
        "pairs": check_of(YesOrNo),
    },
    optional=("gpus_per_switch", "pairs"),
)
_check_nics = table_check(
    {
        "count": _nic_count,
        "rate": in_unit(parse_rate, RATE_LIMIT).func,  # type: ignore[dict-item]
        "transport": check_of(Annotated[Text, one_of(TRANSPORTS)]),
        "gpudirect": check_of(YesOrNo),
        "source": check_of(Text),
        "virtual": check_of(YesOrNo),
        "in_ring": whole_number,
    },
    optional=("virtual", "in_ring"),
)


def _check_node_inside(values: object) -> InsideLink:
    inside = InsideLink(**_check_inside(values))
    if inside.link != "none" and inside.rate <= 0:
        raise WrongValue(f"found 0 with link {inside.link!r}, allowed is a rate above 0", "rate")
    return inside


def _check_node_nics(values: object) -> Nics:
    table = dict(_check_nics(values))
    return Nics(table.pop("count"), **table)


_check_tables = table_check(
    {
        "name": check_of(Text),
        "title": check_of(Text),
        "gpu": _gpu_name,
        "usual_gpu": _gpu_name,
        "gpus": whole_number,
        "library": check_of(Annotated[Text, one_of(NODE_LIBRARIES)]),
        "source": check_of(Text),
        "notes": check_of(Texts),
        "inside": _check_node_inside,
        "nics": _check_node_nics,
    },
    optional=("library", "notes", "nics", "usual_gpu"),
)


def _check_node(values: object) -> dict[str, Any]:
    table = dict(_check_tables(values))
    if table["gpus"] > 1 and table["inside"].link == "none":
        why = f"found 'none' for {table['gpus']} GPUs, allowed is what joins them"
        raise WrongValue(why, "inside", "link")
    if table["gpu"] and table.get("usual_gpu"):
        found, gpu = shown(table["usual_gpu"]), shown(table["gpu"])
        raise WrongValue(f"found {found}, allowed is none where gpu is {gpu}", "usual_gpu")
    return table


def read_node_type(path: Path) -> NodeType:
    """Read and check one file of a node type.

    Raises
    ------
    DataError
        If it cannot be read or breaks the format: file, line, key, what was found, what is
        allowed.
    """
    table: Mapping[str, Any]
    table, _ = read_checked(path, NODE_SCHEMA, _check_node)
    return NodeType(
        name=table["name"],
        title=table["title"],
        gpu=table["gpu"],
        gpus=table["gpus"],
        library=table.get("library", DEFAULT_LIBRARY),
        inside=table["inside"],
        nics=table.get("nics"),
        source=table["source"],
        notes=table.get("notes", ()),
        path=str(path),
        usual_gpu=table.get("usual_gpu", ""),
    )


_OTHER_WAYS = (
    "give a TOML file of your own (profiles/nodes/README.md), or `gpu`, `gpus_per_node` and `net`."
)


def load_node_type(text: str, catalog: Catalog, field: str) -> NodeType:
    """Return the node type of a name, or of a file's path, which ends in ``.toml``.

    What its vendor or cloud calls it will do for a name (`by_vendor`).

    Raises
    ------
    RequestError
        If there is no such node type or file.
    DataError
        If the file is damaged.

    Examples
    --------
    >>> dgx = load_node_type("dgx-h100", Catalog(), "node")
    >>> dgx.gpu, dgx.gpus, dgx.nics.number, dgx.nics.rate
    ('h100', 8, 8, 50000000000.0)
    """
    if text.endswith(".toml"):
        if not is_there(text):
            near = near_file(Path(text), (".toml",))
            why = f"there is no file {shown(text)}{near}; {_OTHER_WAYS}"
            raise MissingFileError(field, why, value=text)
        return read_node_type(Path(text))
    try:
        path = catalog.path("nodes", text, field, "nodes")
    except RequestError as error:
        if known := by_vendor(text, catalog):
            return load_node_type(known, catalog, field)
        raise _by_title(error, text, catalog).or_else(_OTHER_WAYS) from None
    return read_node_type(path)


def by_vendor(text: str, catalog: Catalog) -> str:
    """Return the node type that its vendor or cloud calls so; "" for none.

    Azure's names may have their Standard_.

    Examples
    --------
    >>> by_vendor("p5.48xlarge", Catalog()), by_vendor("Standard_ND96isr_H100_v5", Catalog())
    ('p5', 'ndv5-h100')
    """
    asked = plain_name(text).removeprefix("standard")
    return _products(catalog).get(asked, ("", ""))[0]


def _products(catalog: Catalog) -> dict[str, tuple[str, str]]:
    """Return node types and titles by what vendors call them.

    Titles begin with the vendor and its name of the product, such as AWS p5.48xlarge.
    """
    found = {}
    for name, path in catalog.files("nodes").items():
        try:
            title = read_node_type(path).title
        except DataError:  # it is no node type that one could mean
            continue
        if product := plain_name(title.partition(":")[0].partition(" ")[2]):
            found[product] = name, title
    return found


def _by_title(error: RequestError, text: str, catalog: Catalog) -> RequestError:
    """Return the error for an unknown name; where it is like a vendor's, it offers that type."""
    given, products = plain_name(text).removeprefix("standard"), _products(catalog)
    within = [product for product in products if product in given]
    like = max(within, key=len) if within else nearest(given, products)
    name, title = products.get(like, ("", ""))
    if not like or name == error.nearest or (error.nearest and not within):
        return error
    allowed = error.why.partition(" Allowed")[2]
    why = f"no {shown(text)}; did you mean {name!r}: {title}? Allowed{allowed}"
    return UnknownNameError(error.field, why, value=text, nearest=name)
