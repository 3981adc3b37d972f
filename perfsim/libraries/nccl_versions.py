"""The figures of NCCL's tuning model by version, and the names that NCCL has for its choices.

The figures stand in ``profiles/libraries/nccl_tuner.toml``, which also says what each of them is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from perfsim.data.catalog import shipped
from perfsim.errors import MAX_QUOTED, RequestError, shown

__all__ = [
    "ARCHITECTURES",
    "PROTOCOLS",
    "TUNED_ALGORITHMS",
    "FigureRows",
    "Triple",
    "VersionFigures",
    "all_figures",
    "parse_version",
    "version_figures",
    "version_number",
]

PROTOCOLS = ("ll", "ll128", "simple")

TUNED_ALGORITHMS = (
    "tree",
    "ring",
    "collnet_direct",
    "collnet_chain",
    "nvls",
    "nvls_tree",
    "pat",
)
"""In the order in which NCCL compares them: of two equal times the first wins."""

ARCHITECTURES = {
    "kepler": 35,
    "maxwell": 50,
    "pascal": 60,
    "volta": 70,
    "turing": 75,
    "ampere": 80,
    "ampere_rtx": 86,
    "ada": 89,
    "hopper": 90,
    "blackwell": 100,
}
"""Compute capability of a GPU generation (ampere: A100; ampere_rtx: RTX 30, A40)."""

_GENERATIONS = ("volta", "ampere", "hopper", "blackwell")
"""Rows of the tables: Volta and older, Ampere, Hopper, Blackwell."""

Triple = tuple[float, float, float]
"""LL, LL128, Simple; or one node, two nodes, more."""

FigureRows = tuple[Triple, ...]
"""By GPU generation (`_GENERATIONS`), each by number of nodes."""


class VersionFigures(NamedTuple):
    """The tuning model's numbers from one version on; the fields follow its formulas.

    Parameters
    ----------
    since, tag : first version that has them; where they were read
    base_us : latency of a call by algorithm
    hop_us : latency of a hop by link (nvlink, pci, net) and algorithm
    ring_ll : share of bus bandwidth, across nodes or reducing, and else
    ring_ll128 : share with one GPU a node, and else
    tree, tree_ll, tree_ll128 : shares of a tree; tree_ll128 on one node, and else
    tree_factor : correction of the tree's bandwidth for 64 B, 128 B, ... by protocol
    bus_cap : highest bus bandwidth, by row of the tables that follow
    ll_cap : highest LL bandwidth: one node by generation, more by CPU (Intel, AMD)
    ring_ll128_cap, tree_ll128_cap, tree_cap, nvls_tree_cap : highest bandwidth a channel
    tree_total_cap, tree_total_ll128_ampere : highest bandwidth of all channels, before 2.8
    ll128_by_collective, ll128_per_channel, tree_ll128_scale : LL128 caps before 2.10
    nvls_efficiency : share of the bus bandwidth that NVLS reaches, by generation
    pat_share : share of the bus bandwidth that PAT reaches
    """

    since: tuple[int, int]
    tag: str
    base_us: Mapping[str, Triple]
    hop_us: Mapping[str, Mapping[str, Triple]]
    ring_ll: tuple[float, float]
    ring_ll128: tuple[float, float]
    tree: float
    tree_ll: float
    tree_ll128: tuple[float, float]
    tree_factor: tuple[tuple[float, ...], ...]
    bus_cap: Mapping[int, float] = {}
    ll_cap: FigureRows | None = None
    ring_ll128_cap: FigureRows | None = None
    tree_ll128_cap: FigureRows | None = None
    tree_cap: FigureRows | None = None
    nvls_tree_cap: FigureRows | None = None
    tree_total_cap: Triple | None = None
    tree_total_ll128_ampere: Triple | None = None
    ll128_by_collective: Mapping[str, float] = {}
    ll128_per_channel: bool = True
    tree_ll128_scale: float | None = None
    nvls_efficiency: tuple[float, float, float, float] | None = None
    pat_share: float | None = None


@cache
def all_figures() -> tuple[VersionFigures, ...]:
    """Return the figures of all versions that changed them, the oldest first."""
    path = shipped() / "libraries" / "nccl_tuner.toml"
    versions: list[VersionFigures] = []
    fields: dict[str, Any] = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["version"]:
        for name in entry.pop("dropped", ()):
            del fields[name]
        fields |= {name: _read(name, value, fields) for name, value in entry.items()}
        versions.append(VersionFigures(**fields))
    return tuple(versions)


def _read(name: str, value: Any, before: Mapping[str, Any]) -> Any:
    """Return one figure of a version as its field holds it."""
    if name == "since":
        return parse_version(value)
    if name == "bus_cap":
        return {_GENERATIONS.index(generation): cap for generation, cap in value.items()}
    if name == "hop_us":
        return {**before.get(name, {}), **_tuples(value)}
    return _tuples(value)


def _tuples(value: Any) -> Any:
    """Return lists, also within tables, as tuples."""
    if isinstance(value, dict):
        return {key: _tuples(inner) for key, inner in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def version_figures(version: str) -> VersionFigures:
    """Return the figures of one version, those of the last tag that changed them.

    Raises
    ------
    RequestError
        If it is no version, or one before 2.5.

    Examples
    --------
    >>> version_figures("2.22.3").tag
    'v2.21.5-1'
    """
    number = parse_version(version)
    if number < all_figures()[0].since:
        raise RequestError(
            "version",
            "NCCL 2.4 chooses by a threshold, not by a time for each algorithm and protocol.",
            value=version,
        )
    return next(entry for entry in reversed(all_figures()) if entry.since <= number)


def version_number(text: str) -> tuple[int, ...]:
    """Return major and minor of a version, () where the text has none.

    Examples
    --------
    >>> version_number("v2.18.3-1"), version_number("not stated")
    ((2, 18), ())
    """
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", text)
    return (int(found[1]), int(found[2])) if found else ()


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of a version such as 2.18.3 (2.30 for every later one too).

    Raises
    ------
    RequestError
        If it is no version, or one before 2.4, which had only rings and no model.

    Examples
    --------
    >>> parse_version("2.18.3"), parse_version("2.4")
    ((2, 18), (2, 4))
    """
    parts = text.strip().removeprefix("v").split(".")
    numbers = [part for part in parts[:2] if part.isdecimal() and len(part) <= MAX_QUOTED]
    if len(numbers) < 2:
        raise RequestError(
            "version", f"{shown(text)} is not a version of NCCL such as 2.18.3.", value=text
        )
    version = int(parts[0]), int(parts[1])
    if version < (2, 4):
        raise RequestError(
            "version", f"NCCL {shown(text)} has no tuning model; 2.4 and later have.", value=text
        )
    return version
