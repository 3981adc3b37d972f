"""Build the shipped networks of measured clusters from the collected measurements.

    python profiles/build/build_networks.py --data ../shared/data/nccl
    python profiles/build/build_networks.py --data ../shared/data/nccl --curves-only

``clusters.csv`` holds one row a cluster, software version and transport setting; ``sources.csv``
one row a repository or page, with the licence that it states itself. Every cluster is fitted and
written as ``<network>.toml``. Where its source's licence lets measured curves ship, they stand,
thinned, in ``<network>.curves.csv`` beside it; of other sources the network's file holds the
fitted knots of each curve.
"""

from __future__ import annotations

import math
import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfsim.calibrate.fit import Unidentified
from perfsim.calibrate.formats import read_log
from perfsim.calibrate.link_fit import inside_link
from perfsim.calibrate.network_fit import fit_network
from perfsim.calibrate.network_report import network_toml
from perfsim.data.catalog import Catalog
from perfsim.data.files import named_file, write_text
from perfsim.data.tables import cell_number, check_word, read_table
from perfsim.errors import DataError, PerfsimError, shown
from perfsim.network.measured import CURVE_LIBRARIES, CollectiveCurve, merge, write_curves
from perfsim.quantity import COUNT_LIMIT

__all__ = [
    "Source",
    "SourceCluster",
    "cluster_curves",
    "condense",
    "main",
    "read_clusters",
    "read_sources",
    "thin",
    "write_condensed",
    "write_networks",
]

NETWORKS = Path(__file__).resolve().parents[1] / "networks"

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


# The two tables


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
    """Read ``sources.csv``: name -> source.

    Raises
    ------
    DataError
        If the file breaks its form, a name stands twice, or what ships is not what the licence
        allows.
    """
    sources: dict[str, Source] = {}
    for row, cells in read_table(path, "perfsim/sources/1", SOURCE_COLUMNS):
        check_new_name(cells, "source_id", sources, path, row)
        check_word(cells["permissive"], tuple(SHIPS), "permissive", path, row)
        check_word(cells["ships"], (SHIPS[cells["permissive"]],), "ships", path, row)
        for column in ("licence", "licence_evidence", "path_or_page", "date_read"):
            if not cells[column]:
                raise DataError("is empty; say what was read", path=path, row=row, column=column)
        if cells["permissive"] == "yes" and cells["licence"] == "none stated":
            why = "'yes' where no licence is stated; allowed: no"
            raise DataError(why, path=path, row=row, column="permissive")
        sources[cells["source_id"]] = Source(
            **{name: cells[name] for name in SOURCE_TEXTS},
            permissive=cells["permissive"] == "yes",
            date_read=cells["date_read"],
        )
    return sources


def read_clusters(path: Path) -> dict[str, SourceCluster]:
    """Read ``clusters.csv``: network -> cluster.

    Raises
    ------
    DataError
        If the file breaks its form, or a network or a data file stands twice.
    """
    clusters: dict[str, SourceCluster] = {}
    owners: dict[str, str] = {}
    for row, cells in read_table(path, "perfsim/clusters/1", CLUSTER_COLUMNS):
        network = cells["network"]
        check_new_name(cells, "network", clusters, path, row)
        check_word(cells["transport"], TRANSPORTS, "transport", path, row)
        check_word(cells["library"], CURVE_LIBRARIES, "library", path, row)
        stems = tuple(cells["data_files"].split())
        for stem in stems or ("",):
            if stem in owners or not stem:
                why = f"{shown(stem)} belongs to {owners[stem]}" if stem else "names no file"
                raise DataError(why, path=path, row=row, column="data_files")
            owners[stem] = network
        counts: dict[str, int] = {}
        for column in ("gpus_per_node", "nics_per_node"):
            if cells[column] or column == "gpus_per_node":
                value = cell_number(
                    cells[column], column, path, row, positive=True, whole=True, within=COUNT_LIMIT
                )
                counts[column] = int(value)
        if bool(cells["nics_source"]) != bool(cells["nics_per_node"]):
            why = "stands with nics_per_node or not at all"
            raise DataError(why, path=path, row=row, column="nics_source")
        clusters[network] = SourceCluster(
            **{text: cells[text] for text in CLUSTER_TEXTS},
            data_files=stems,
            gpus_per_node=counts["gpus_per_node"],
            nics_per_node=counts.get("nics_per_node"),
        )
    return clusters


def check_new_name(
    cells: Mapping[str, str], column: str, taken: Mapping[str, object], path: Path, row: int
) -> None:
    """Refuse a name that is taken, or is not lower case with hyphens."""
    name = cells[column]
    if name in taken:
        raise DataError(f"{shown(name)} stands twice", path=path, row=row, column=column)
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        why = f"{shown(name)} is no name; allowed: lower case, digits and hyphens"
        raise DataError(why, path=path, row=row, column=column)


# Curves that may ship


def thin(sizes: Sequence[float]) -> list[float]:
    """Return at most two sizes an octave: the measured ones nearest to each power of sqrt(2).

    Sizes are in bytes. Powers of two, and any grid with one size an octave, are kept whole; so are
    both ends.

    Examples
    --------
    >>> thin([8, 16, 32, 64])
    [8, 16, 32, 64]
    >>> thin([100, 110, 120, 130, 140, 150, 160, 170, 180, 190])
    [100, 130, 180, 190]
    """
    nearest: dict[int, float] = {}
    for size in sizes:
        exponent = 2 * math.log2(size)
        step = round(exponent)
        kept = nearest.get(step)
        if kept is None or abs(exponent - step) < abs(2 * math.log2(kept) - step):
            nearest[step] = size
    return sorted({*nearest.values(), sizes[0], sizes[-1]})


def condense(curves: Sequence[CollectiveCurve]) -> list[CollectiveCurve]:
    """Return one thinned curve a measurement: repeats as their median, sizes as `thin` keeps them.

    In place and out of place, several runs and several files of one setting are repeats.

    Examples
    --------
    >>> def run(time_s):
    ...     return CollectiveCurve("reduce", 2, 2, 1, (8.0,), (time_s,), "measured", "here")
    >>> condense([run(1.0), run(2.0)])[0].seconds
    (1.5,)
    """
    thinned = []
    for curve in merge(curves):
        kept = set(thin(curve.size_bytes))
        points = [
            point for point in zip(curve.size_bytes, curve.seconds, strict=True) if point[0] in kept
        ]
        sizes, seconds = zip(*points, strict=True)
        thinned.append(replace(curve, size_bytes=tuple(sizes), seconds=tuple(seconds)))
    order = ("collective", "nodes", "ranks", "algorithm", "protocol")
    return sorted(thinned, key=lambda curve: tuple(getattr(curve, name) for name in order))


def cluster_curves(data: Path, cluster: SourceCluster, source: Source) -> list[CollectiveCurve]:
    """Return the curves of a cluster's collected files, as its row describes them.

    Raises
    ------
    DataError
        If a file is missing or damaged.
    """
    return [
        replace(
            curve,
            source=source.citation,
            series=cluster.network,
            library=cluster.library,
            version=cluster.version,
            gpu=cluster.gpu,
            fabric=f"{cluster.intra}; {cluster.inter}",
        )
        for stem in cluster.data_files
        for curve in read_log(data / f"{stem}.csv").curves
    ]


def write_condensed(data: Path, out: Path) -> dict[str, Path]:
    """Write the condensed curves of every cluster whose source is permissive: network -> file.

    Files of networks that no longer ship are removed.

    Raises
    ------
    DataError
        If one of the tables or files is missing or damaged.
    """
    sources = read_sources(out / "sources.csv")
    written: dict[str, Path] = {}
    for cluster in read_clusters(out / "clusters.csv").values():
        if cluster.source_id not in sources:
            why = f"{cluster.network}: source {shown(cluster.source_id)} is not in sources.csv"
            raise DataError(why, path=out / "clusters.csv")
        source = sources[cluster.source_id]
        if not source.permissive:
            continue
        head = {
            "network": cluster.network,
            "title": cluster.title,
            "gpu": cluster.gpu,
            "intra": cluster.intra,
            "inter": cluster.inter,
            "library": cluster.library,
            "version": cluster.version,
            "source": source.citation,
            "licence": source.licence,
            "date": source.date_read,
            "notes": cluster.notes,
        }
        path = named_file(out, cluster.network, ".curves.csv")
        write_curves(path, condense(cluster_curves(data, cluster, source)), head, source.source_id)
        written[cluster.network] = path
    for path in out.glob("*.curves.csv"):
        if path not in written.values():
            path.unlink()
    return written


# Networks


def write_networks(data: Path, out: Path) -> tuple[list[Path], dict[str, str]]:
    """Write the file of every cluster that its curves determine: paths, and why others have none.

    Raises
    ------
    DataError
        If a table or data file is missing or damaged.
    """
    sources = read_sources(out / "sources.csv")
    written: list[Path] = []
    refused: dict[str, str] = {}
    inside = inside_link(Catalog(out.parent))
    for cluster in read_clusters(out / "clusters.csv").values():
        source = sources[cluster.source_id]
        curves = merge(cluster_curves(data, cluster, source))
        try:
            fit = fit_network(curves, cluster.nics_per_node or 1, inside)
        except Unidentified as error:
            refused[cluster.network] = str(error)
            continue
        head = network_head(cluster, source, across="inter" in fit.links)
        path = named_file(out, cluster.network, ".toml")
        write_text(path, network_toml(fit, head, knots=not source.permissive))
        written.append(path)
    return written, refused


def network_head(cluster: SourceCluster, source: Source, *, across: bool) -> dict[str, Any]:
    """Return the head of a network's file; ``across`` says that it has a link between nodes."""
    notes = [cluster.notes] if cluster.notes else []
    nics = cluster.nics_per_node
    if nics and nics > 1:
        notes.append(f"NICs a node: {cluster.nics_source}.")
    if nics is None and cluster.gpus_per_node > 1 and across:
        notes.append("NICs a node are not stated: the rate between nodes is that of a whole node.")
    return {
        "name": cluster.network,
        "title": cluster.title,
        "transport": cluster.transport,
        "gpus_per_node": cluster.gpus_per_node,
        "nics_per_node": nics,
        "notes": [*notes, f"Source: {source.citation}; licence: {source.licence}."],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write what the command line asks for, and list it."""
    parser = ArgumentParser(description="Build the shipped networks from collected measurements.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the collected files")
    parser.add_argument("--out", type=Path, default=NETWORKS, help="folder of clusters.csv")
    parser.add_argument(
        "--curves-only", action="store_true", help="write the condensed curves, fit nothing"
    )
    given = parser.parse_args(arguments)
    refused: dict[str, str] = {}
    try:
        paths = list(write_condensed(given.data, given.out).values())
        if not given.curves_only:
            networks, refused = write_networks(given.data, given.out)
            paths += networks
    except PerfsimError as error:
        raise SystemExit(f"build_networks: {error}") from None
    for path in paths:
        print(f"{path.stat().st_size:7d} B  {path.name}")
    for network, why in refused.items():
        print(f"  no file  {network}: {why}")


if __name__ == "__main__":
    main()
