"""Measured collectives beside the data sheet of the nodes that they ran on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, log
from typing import Any, NamedTuple

from perfsim.calibrate.formats.rows import busbw_factor
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.hardware.nodes import node_facts
from perfsim.libraries.nccl_versions import version_number
from perfsim.network.measured import CollectiveCurve
from perfsim.network.node_law import NodeFacts, node_error, node_law
from perfsim.network.node_type import NodeType
from perfsim.units import format_bit_rate, format_bytes, format_rate, format_seconds

__all__ = ["RateFinding", "beside_data_sheet", "check_curves_fit", "era_lines", "rate_findings"]

_ABOVE = 1.02
"""Rates above the data sheet's times this are no error of the clock. No source: chosen."""
_ALIKE = 0.1
"""Algorithms whose times, in ln, are this near to the measured one are too close to call.

No source: chosen at the law's median error of 12 % for messages above 4 MiB
(profiles/nodes/errors.csv)."""
_WHOLE_NIC = 0.05
"""A count of NICs so little above a whole one is that one. No source: chosen."""

_ERAS = (
    ((2, 4), "double binary trees for all_reduce", "1450d426"),
    ((2, 5), "LL128, and a choice by predicted times", "299c554d"),
    ((2, 12), "PXN: a NIC reached through another GPU", "3c223c10"),
    ((2, 17), "NVLS: the NVSwitches of a node add", "5d3ab08b"),
    ((2, 18), "NVLSTree between nodes; send_recv over all NICs of a GPU", "d97a32fa"),
    ((2, 23), "PAT for all_gather and reduce_scatter, one rank a node", "68b54236"),
)
"""What NCCL has since which version, and the commit of NVIDIA/nccl that says so."""
_SWITCHES_ADD, _LL128 = (2, 17), (2, 5)


def check_curves_fit(node: NodeType, curves: Sequence[CollectiveCurve]) -> None:
    """Refuse curves of more GPUs a node than a node type has, or between nodes without NICs.

    Raises
    ------
    RequestError
        If the curves cannot have run on such nodes.
    """
    most = max(curve.gpus_per_node for curve in curves)
    if most > node.gpus:
        why = f"{node.name} has {node.gpus} GPUs a node, the files say {most}."
        raise RequestError("node", why, value=node.name)
    if node.nics is None and any(curve.nodes > 1 for curve in curves):
        raise RequestError("node", f"{node.name} has no NICs, the files say several nodes.")


def beside_data_sheet(
    node: NodeType, curves: Sequence[CollectiveCurve], catalog: Catalog
) -> list[str]:
    """Return lines on each curve's smallest and largest message beside what the law says of them.

    The law knows the node type's data sheet alone. What a log reaches far below it hints at NICs,
    transport or settings other than stated.
    """
    facts = node_facts(node, catalog)
    nics = node.nics
    between = f"{nics.count_words()} between nodes" if nics else "one node"
    inside = f"{node.inside.link} {format_rate(node.inside.rate)} inside"
    lines = [f"Beside the data sheet of {node.name} ({between}, {inside})"]
    for curve in curves:
        lines += [f"    {line}" for line in _curve_lines(_facts_of(facts, curve), curve)]
    if nics:
        lines.append(
            f"    a node's NICs: {format_bit_rate(nics.number * nics.rate)}, which is"
            f" {format_rate(nics.number * nics.rate)}"
        )
    lines.append("What its largest messages speak for")
    lines += [f"    {line}" for line in _table(rate_findings(node, curves, catalog))]
    for library, version in dict.fromkeys((curve.library, curve.version) for curve in curves):
        lines += era_lines(facts, library, version)
    return lines


class RateFinding(NamedTuple):
    """What the largest message of a curve says of the nodes that it ran on.

    Parameters
    ----------
    collective, ranks, nodes : of the curve
    size_bytes, seconds, bus_rate : its largest message [B], its time [s] and bus bandwidth [B/s]
    of : the rate of the data sheet that it is held against: links or NICs
    share : of that rate
    algorithm : which the rate speaks for; two where they are as near
    nics : NICs at line rate that its bytes need; None on one node
    nics_stated : those that may carry them by the data sheet
    law : measured time over the law's
    inside : whether that lies within the law's 90 % band
    """

    collective: str
    ranks: int
    nodes: int
    size_bytes: float
    seconds: float
    bus_rate: float
    of: str
    share: float
    algorithm: str
    nics: float | None
    nics_stated: float
    law: float | None
    inside: bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return self._asdict()

    def cells(self) -> tuple[str, ...]:
        """Return it as a row of the table."""
        each, more = divmod(self.ranks, self.nodes)
        nics = "-"
        if self.nics is not None:
            need = max(1, ceil(self.nics - _WHOLE_NIC))
            nics = f"{need} of {self.nics_stated:g}"
        law = "no such algorithm"
        if self.law is not None:
            law = f"{self.law:.2f} times" + ("" if self.inside else ", outside 90 %")
        return (
            self.collective,
            f"{self.ranks} on {self.nodes}" if more else f"{self.nodes} x {each}",
            format_bytes(self.size_bytes, 3),
            format_rate(self.bus_rate, 3),
            f"{self.share:.0%} of {self.of}",
            self.algorithm,
            nics,
            law,
        )


_HEAD = ("collective", "GPUs", "size", "bus rate", "data sheet", "speaks for", "NICs", "law")


def _table(found: Sequence[RateFinding]) -> list[str]:
    rows = [_HEAD, *(one.cells() for one in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def rate_findings(
    node: NodeType, curves: Sequence[CollectiveCurve], catalog: Catalog
) -> list[RateFinding]:
    """Return what the largest message of each curve says of links, NICs and algorithm."""
    facts = node_facts(node, catalog)
    return [_finding(_facts_of(facts, curve), curve) for curve in curves]


def _facts_of(facts: NodeFacts, curve: CollectiveCurve) -> NodeFacts:
    """Return the facts with the version that a curve was measured with."""
    return facts._replace(version=version_number(curve.version))


def _finding(facts: NodeFacts, curve: CollectiveCurve) -> RateFinding:
    size, seconds = curve.size_bytes[-1], curve.seconds[-1]
    bus = busbw_factor(curve.collective, curve.ranks) * size / seconds
    out = _out_rate(curve, size, seconds)
    per_node = curve.ranks / curve.nodes
    used = 0.0
    if curve.nodes > 1:
        of, used = "NICs", max(1.0, facts.nics * min(1.0, per_node / facts.gpus))
        if curve.collective == "send_recv":
            of, used = "a GPU's NICs", max(1.0, facts.nics / facts.gpus)
        line = used * facts.nic_rate
    else:
        of, line = "links", facts.inside_rate
    algorithms = _speaks_for(facts, curve, size, seconds, line)
    trees = {"tree", "nvls_tree"}.issuperset(algorithms)
    if curve.nodes == 2 and curve.collective == _WHOLE and algorithms and trees:
        out = size / seconds  # a tree between two nodes sends each byte once
    call = node_law().call(facts, curve.collective, curve.ranks, curve.nodes, size, curve.algorithm)
    ratio = seconds / call.seconds if call else None
    return RateFinding(
        collective=curve.collective,
        ranks=curve.ranks,
        nodes=curve.nodes,
        size_bytes=size,
        seconds=seconds,
        bus_rate=bus,
        of=of,
        share=(out if curve.collective == "all_to_all" and curve.nodes > 1 else bus) / line,
        algorithm=_algorithm_words(curve, algorithms, of),
        nics=out / facts.nic_rate if curve.nodes > 1 else None,
        nics_stated=used,
        law=ratio,
        inside=ratio is not None and abs(log(ratio)) <= node_error(facts, curve.nodes, size),
    )


_WHOLE = "all_reduce"
_NONE = "none, slower"
"""Said of a rate that lies below what each algorithm reaches, and outside the law's 90 % band."""


def _out_rate(curve: CollectiveCurve, size: float, seconds: float) -> float:
    """Return what leaves a node where ranks stand in a ring, or swap blocks [B/s]."""
    if curve.collective == "all_to_all":
        per_node = curve.ranks / curve.nodes
        return per_node * (curve.ranks - per_node) / curve.ranks * size / seconds
    return busbw_factor(curve.collective, curve.ranks) * size / seconds


def _speaks_for(
    facts: NodeFacts, curve: CollectiveCurve, size: float, seconds: float, line: float
) -> list[str]:
    """Return the algorithms that could have taken this time, the nearest first.

    Those that the data sheet bounds below the measured rate are out. Of the others the law says
    how long each takes; all that are nearly as near as the nearest count.
    """
    if curve.algorithm:
        return [curve.algorithm]
    if curve.collective != _WHOLE:
        call = node_law().call(facts, curve.collective, curve.ranks, curve.nodes, size)
        possible = _out_rate(curve, size, seconds) <= _ABOVE * line
        return [call.algorithm] if call and possible else []
    times = dict(_possible(facts, curve, size, seconds, line))
    away = {name: abs(log(seconds / by_law)) for name, by_law in times.items()}
    nearest = min(away.values(), default=0.0)
    slower = bool(times) and seconds > max(times.values())
    if slower and nearest > node_error(facts, curve.nodes, size):
        return [_NONE]
    return sorted((name for name in away if away[name] <= nearest + _ALIKE), key=away.__getitem__)


def _possible(
    facts: NodeFacts, curve: CollectiveCurve, size: float, seconds: float, line: float
) -> Iterator[tuple[str, float]]:
    """Yield algorithms of an all-reduce that the data sheet allows, with their times by the law."""
    bus = busbw_factor(curve.collective, curve.ranks) * size / seconds
    for held in ("ring", "tree", "nvls"):
        call = node_law().call(facts, curve.collective, curve.ranks, curve.nodes, size, held)
        if call is None:
            continue
        needs = bus
        if held != "ring" and curve.nodes == 2:
            needs = size / seconds
        elif held == "nvls" and curve.nodes == 1:
            needs = 0.0  # each byte goes to the switch and back once: links allow twice the rate
        if needs <= _ABOVE * line:
            yield call.algorithm, call.seconds


def _algorithm_words(curve: CollectiveCurve, algorithms: Sequence[str], of: str) -> str:
    if not algorithms:
        return f"more {of} than stated"
    return " or ".join(algorithms) + (" (held)" if curve.algorithm else "")


def era_lines(facts: NodeFacts, library: str, version: str) -> list[str]:
    """Say what era a library is from, and what that means on such nodes."""
    if library != "nccl":
        return [f"Library: {library} {version}".rstrip() + "; NCCL's eras do not apply"]
    number = version_number(version)
    if not number:
        return [
            "Library: nccl; the files state no version, so that it is not known whether it has"
            f" LL128 (since {_dotted(_LL128)}) or NVLS (since {_dotted(_SWITCHES_ADD)})"
        ]
    lines = [f"Library: nccl {version}, as the files say (what it has: commits of NVIDIA/nccl)"]
    for since, what, commit in _ERAS:
        has = "has" if number >= since else "lacks"
        lines.append(f"    {has} {what} (since {_dotted(since)}, {commit}){_here(since, facts)}")
    return lines


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _here(since: tuple[int, int], facts: NodeFacts) -> str:
    """Say where the nodes' hardware has no use of it."""
    if since == _LL128 and not facts.inside.startswith("nvlink"):
        return "; LL128 is for NVLink, which these nodes lack"
    if since == _SWITCHES_ADD and not facts._replace(version=()).nvls:
        return "; no switch of these nodes adds"
    return ""


def _curve_lines(facts: NodeFacts, curve: CollectiveCurve) -> list[str]:
    version = f", {curve.library} {curve.version}" if curve.version else ""
    lines = [f"{curve.name}{version}"]
    for index in (0, -1):
        size, seconds = curve.size_bytes[index], curve.seconds[index]
        call = node_law().call(
            facts, curve.collective, curve.ranks, curve.nodes, size, curve.algorithm
        )
        if call is None:
            return [f"{curve.name}: the law has no such algorithm"]
        lines.append(
            f"    {format_bytes(size, 3)}: {format_seconds(seconds, 3)}, by data sheet"
            f" {format_seconds(call.seconds, 3)} ({call.algorithm}):"
            f" {seconds / call.seconds:.2f} times"
        )
    return lines
