"""Build the shipped networks of measured clusters from the collected measurements.

    python profiles/build/build_networks.py --data ../shared/data/nccl \
        --data ../shared/data/nccl_modern
    python profiles/build/build_networks.py --data ../shared/data/nccl \
        --data ../shared/data/nccl_modern --curves-only
    python profiles/build/build_networks.py --data ../shared/data/nccl_modern \
        --only mi300x-roce400 oci-h100-roce200

``clusters.csv`` holds one row a cluster, software version and transport setting; ``sources.csv``
one row a repository or page, with the licence that it states itself. Every cluster is fitted and
written as ``<network>.toml``. Where its source's licence lets measured curves ship, they stand,
thinned, in ``<network>.curves.csv`` beside it; of other sources the network's file holds the
fitted knots of each curve. A cluster whose curves determine no link has no file, and the command
says why. ``--curves-only`` fits nothing: it writes the curves of networks that have a file.
"""

from __future__ import annotations

import math
import re
from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from perfsim.errors import DataError, PerfsimError, RequestError, shown, unknown
from perfsim.network.measured import CURVE_LIBRARIES, CollectiveCurve, merge, write_curves
from perfsim.quantity import COUNT_LIMIT
from perfsim.validate.node_clusters import CLUSTERS_COLUMNS, CLUSTERS_SCHEMA

__all__ = [
    "Source",
    "SourceCluster",
    "cluster_curves",
    "condense",
    "data_files",
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
TRANSPORTS = ("tcp", "ib", "roce", "efa", "slingshot", "nvlink", "xgmi", "pcie", "unknown")


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
    ``domains`` holds how many GPUs make one node of a data file that counts smaller ones: an NVLink
    domain over several trays.
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
    domains: Mapping[str, int] = field(default_factory=dict)


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
        files = [name.partition("@") for name in cells["data_files"].split()]
        stems = tuple(stem for stem, _, _ in files)
        domains = {
            stem: int(
                cell_number(
                    gpus, "data_files", path, row, positive=True, whole=True, within=COUNT_LIMIT
                )
            )
            for stem, at, gpus in files
            if at
        }
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
            domains=domains,
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


def data_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the collected tables of several folders: stem -> file.

    Raises
    ------
    RequestError
        If one of the folders is missing, or two of them hold a table of one name.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RequestError("data", f"{str(folder)!r} is no folder.", value=folder)
        for path in sorted(folder.glob("*.csv")):
            if path.stem in found:
                other = found[path.stem].parent
                why = f"{path.name!r} is in {str(other)!r} and in {str(folder)!r}; keep one."
                raise RequestError("data", why, value=path)
            found[path.stem] = path
    return found


def cluster_curves(
    data: Mapping[str, Path], cluster: SourceCluster, source: Source
) -> list[CollectiveCurve]:
    """Return the curves of a cluster's collected files, as its row describes them.

    Raises
    ------
    DataError
        If a file is missing or damaged, or the ranks do not fill whole nodes of a domain.
    """
    for stem in cluster.data_files:
        if stem not in data:
            raise DataError(f"{cluster.network}: no {stem}.csv in the folders of the data")
    return [
        replace(
            in_domains(curve, cluster.domains.get(stem)),
            source=source.citation,
            series=cluster.network,
            library=cluster.library,
            version=cluster.version,
            gpu=cluster.gpu,
            fabric=f"{cluster.intra}; {cluster.inter}",
        )
        for stem in cluster.data_files
        for curve in read_log(data[stem]).curves
    ]


def in_domains(curve: CollectiveCurve, gpus: int | None) -> CollectiveCurve:
    """Return a curve with ``gpus`` GPUs of one NVLink domain as a node; None: as it is.

    Raises
    ------
    DataError
        If they do not fill whole domains.

    Examples
    --------
    >>> trays = CollectiveCurve("reduce", 144, 36, 4, (8.0,), (1.0,), "measured", "here")
    >>> in_domains(trays, 72).name
    'reduce on 144 GPUs (2 x 72)'
    """
    if gpus is None:
        return curve
    if curve.ranks % gpus or gpus % curve.gpus_per_node:
        raise DataError(f"{curve.name} does not fill domains of {gpus} GPUs")
    return replace(curve, nodes=curve.ranks // gpus, gpus_per_node=gpus)


def chosen(
    clusters: Mapping[str, SourceCluster], only: Collection[str]
) -> dict[str, SourceCluster]:
    """Return the clusters that are named, all of them where none is.

    Raises
    ------
    RequestError
        If there is no cluster of a name.
    """
    for name in only:
        if name not in clusters:
            raise unknown("only", name, clusters)
    return {name: one for name, one in clusters.items() if not only or name in only}


def write_condensed(
    data: Mapping[str, Path], out: Path, only: Collection[str] = (), without: Collection[str] = ()
) -> dict[str, Path]:
    """Write the condensed curves of every cluster whose source is permissive: network -> file.

    Files of networks that no longer ship are removed, unless only some networks are written.

    Parameters
    ----------
    data : stem -> collected table
    out : folder of the two tables, and of what is written
    only : networks to write; all if empty
    without : networks whose curves determine no link, and so have no file

    Raises
    ------
    DataError
        If one of the tables or files is missing or damaged.
    """
    sources = read_sources(out / "sources.csv")
    written: dict[str, Path] = {}
    for cluster in chosen(read_clusters(out / "clusters.csv"), only).values():
        source = source_of(cluster, sources, out)
        if not source.permissive or cluster.network in without:
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
        if not only and path not in written.values():
            path.unlink()
    return written


def source_of(cluster: SourceCluster, sources: Mapping[str, Source], out: Path) -> Source:
    """Return the source of a cluster, which ``sources.csv`` must have."""
    if cluster.source_id not in sources:
        why = f"{cluster.network}: source {shown(cluster.source_id)} is not in sources.csv"
        raise DataError(why, path=out / "clusters.csv")
    return sources[cluster.source_id]


# Networks


def write_networks(
    data: Mapping[str, Path], out: Path, only: Collection[str] = ()
) -> tuple[list[Path], dict[str, str]]:
    """Write the file of every cluster that its curves determine: paths, and why others have none.

    A file of a network that they determine no longer is removed.

    Parameters
    ----------
    data : stem -> collected table
    out : folder of the two tables, and of what is written
    only : networks to write; all if empty

    Raises
    ------
    DataError
        If a table or data file is missing or damaged.
    """
    sources = read_sources(out / "sources.csv")
    clusters = chosen(read_clusters(out / "clusters.csv"), only)
    of = {name: source_of(cluster, sources, out) for name, cluster in clusters.items()}
    written: list[Path] = []
    refused: dict[str, str] = {}
    inside = inside_link(Catalog(out.parent))
    for cluster in clusters.values():
        source = of[cluster.network]
        curves = merge(cluster_curves(data, cluster, source))
        path = named_file(out, cluster.network, ".toml")
        try:
            fit = fit_network(curves, cluster.nics_per_node, inside)
        except Unidentified as error:
            refused[cluster.network] = str(error)
            path.unlink(missing_ok=True)
            continue
        head = network_head(cluster, source, across="inter" in fit.links)
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
        "node_type": node_of(cluster.network),
        "notes": [*notes, f"Source: {source.citation}; licence: {source.licence}."],
    }


def node_of(network: str) -> str:
    """Return the node type that a measured network's nodes are as its data sheet says, or ""."""
    path = NETWORKS.parent / "nodes" / "clusters.csv"
    differ = ("generation", "gpus", "inside_rate", "switch", "peer_access", "nics", "nic_rate")
    differ += ("transport", "gpudirect", "in_network")
    for _, cells in read_table(path, CLUSTERS_SCHEMA, CLUSTERS_COLUMNS):
        if cells["network"] == network and cells["stated"] == "yes":
            return "" if any(cells[column] for column in differ) else cells["node"]
    return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write what the command line asks for, and list it."""
    parser = ArgumentParser(description="Build the shipped networks from collected measurements.")
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        action="append",
        help="folder of collected files; give it again for another folder",
    )
    parser.add_argument("--out", type=Path, default=NETWORKS, help="folder of clusters.csv")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="networks to build")
    parser.add_argument(
        "--curves-only",
        action="store_true",
        help="write the condensed curves of networks that have a file, fit nothing",
    )
    given = parser.parse_args(arguments)
    refused: dict[str, str] = {}
    try:
        data = data_files(given.data)
        paths: list[Path] = []
        if given.curves_only:
            clusters = read_clusters(given.out / "clusters.csv")
            without = {name for name in clusters if not (given.out / f"{name}.toml").is_file()}
        else:
            paths, refused = write_networks(data, given.out, given.only)
            without = set(refused)
        paths += write_condensed(data, given.out, given.only, without).values()
    except PerfsimError as error:
        raise SystemExit(f"build_networks: {error}") from None
    for path in paths:
        print(f"{path.stat().st_size:7d} B  {path.name}")
    for network, why in refused.items():
        print(f"  no file  {network}: {why}")


if __name__ == "__main__":
    main()
