"""Which measured clusters there are, where their figures come from, and what licence they have.

``networks/clusters.csv`` holds one row a cluster, software version and transport setting;
``networks/sources.csv`` one row a repository or page, with the licence that it states itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.errors import DataError, shown
from perfsim.network.measured import CURVE_LIBRARIES
from perfsim.quantity import COUNT_LIMIT

__all__ = ["Source", "SourceCluster", "read_clusters", "read_sources"]

SHIPS = {"yes": "condensed curve", "no": "fitted parameters only"}
"""What ships of a source whose licence is permissive, and of one whose licence is not."""

SOURCE_TEXTS = ("source_id", "repository", "commit", "path_or_page", "licence", "licence_evidence")
SOURCE_COLUMNS = (*SOURCE_TEXTS, "permissive", "ships", "date_read")
CLUSTER_TEXTS = (
    "network",
    "title",
    "gpu",
    "intra",
    "inter",
    "nics_source",
    "transport",
    "library",
    "version",
    "source_id",
    "notes",
)
CLUSTER_COLUMNS = (*CLUSTER_TEXTS, "data_files", "gpus_per_node", "nics_per_node")
TRANSPORTS = ("tcp", "ib", "roce", "efa", "slingshot", "nvlink", "pcie", "unknown")


@dataclass(frozen=True, slots=True)
class Source:
    """A repository or page with measurements; ``licence`` is an SPDX name or "none stated"."""

    source_id: str
    repository: str
    commit: str
    path_or_page: str
    licence: str
    licence_evidence: str
    permissive: bool
    date_read: str

    @property
    def citation(self) -> str:
        """Where the figures stand: owner/name@commit:path, or the page."""
        place = f"{self.repository}@{self.commit[:8]}" if self.commit else self.repository
        return f"{place}:{self.path_or_page}" if place else self.path_or_page


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """One measured network: what it is, and the stems of the data files that were run on it.

    ``nics_per_node`` is None where no page states it; ``version`` is empty where not stated.
    """

    network: str
    title: str
    gpu: str
    intra: str
    inter: str
    nics_source: str
    transport: str
    library: str
    version: str
    source_id: str
    notes: str
    data_files: tuple[str, ...]
    gpus_per_node: int
    nics_per_node: int | None


def read_sources(path: Path) -> dict[str, Source]:
    """Read ``sources.csv``: a source by its name.

    Raises
    ------
    DataError
        If the file breaks its form, a name stands twice, or what ships is not what the licence
        allows.
    """
    found: dict[str, Source] = {}
    for row, cells in read_table(path, "perfsim/sources/1", SOURCE_COLUMNS):
        _unique(cells, "source_id", found, path, row)
        check_word(cells["permissive"], tuple(SHIPS), "permissive", path, row)
        check_word(cells["ships"], (SHIPS[cells["permissive"]],), "ships", path, row)
        for column in ("licence", "licence_evidence", "path_or_page", "date_read"):
            if not cells[column]:
                raise DataError("is empty; say what was read", path=path, row=row, column=column)
        if cells["permissive"] == "yes" and cells["licence"] == "none stated":
            told = "'yes' where no licence is stated; allowed: no"
            raise DataError(told, path=path, row=row, column="permissive")
        found[cells["source_id"]] = Source(
            **{name: cells[name] for name in SOURCE_TEXTS},
            permissive=cells["permissive"] == "yes",
            date_read=cells["date_read"],
        )
    return found


def read_clusters(path: Path) -> dict[str, SourceCluster]:
    """Read ``clusters.csv``: a cluster by the name of its network.

    Raises
    ------
    DataError
        If the file breaks its form, or a network or a data file stands twice.
    """
    found: dict[str, SourceCluster] = {}
    taken: dict[str, str] = {}
    for row, cells in read_table(path, "perfsim/clusters/1", CLUSTER_COLUMNS):
        name = cells["network"]
        _unique(cells, "network", found, path, row)
        check_word(cells["transport"], TRANSPORTS, "transport", path, row)
        check_word(cells["library"], CURVE_LIBRARIES, "library", path, row)
        stems = tuple(cells["data_files"].split())
        for stem in stems or ("",):
            if stem in taken or not stem:
                told = f"{shown(stem)} belongs to {taken[stem]}" if stem else "names no file"
                raise DataError(told, path=path, row=row, column="data_files")
            taken[stem] = name
        counts: dict[str, int] = {}
        for column in ("gpus_per_node", "nics_per_node"):
            if cells[column] or column == "gpus_per_node":
                value = cell_number(
                    cells[column], column, path, row, positive=True, whole=True, within=COUNT_LIMIT
                )
                counts[column] = int(value)
        if bool(cells["nics_source"]) != bool(cells["nics_per_node"]):
            told = "stands with nics_per_node or not at all"
            raise DataError(told, path=path, row=row, column="nics_source")
        found[name] = SourceCluster(
            **{text: cells[text] for text in CLUSTER_TEXTS},
            data_files=stems,
            gpus_per_node=counts["gpus_per_node"],
            nics_per_node=counts.get("nics_per_node"),
        )
    return found


def _unique(
    cells: Mapping[str, str], column: str, found: Mapping[str, object], path: Path, row: int
) -> None:
    """Refuse a name that is taken, or is not lower case with hyphens."""
    name = cells[column]
    if name in found:
        raise DataError(f"{shown(name)} stands twice", path=path, row=row, column=column)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        told = f"{shown(name)} is no name; allowed: lower case, digits and hyphens"
        raise DataError(told, path=path, row=row, column=column)
