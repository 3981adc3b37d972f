"""The shipped networks of measured clusters, fitted anew.

``python -m perfsim.calibrate.assemble --data DIR --out profiles/networks`` fits every row of
``clusters.csv`` and writes ``<network>.toml``. Where the source's licence lets measured curves
ship they stand in ``<network>.curves.csv`` beside it (`perfsim.calibrate.condense`); of other
sources the file holds the fitted knots of each curve.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfsim.calibrate.condense import cluster_curves, write_condensed
from perfsim.calibrate.fit import Unidentified
from perfsim.calibrate.link_fit import inside_link
from perfsim.calibrate.network_fit import fit_network
from perfsim.calibrate.network_report import network_toml
from perfsim.calibrate.sources import Source, SourceCluster, read_clusters, read_sources
from perfsim.data.catalog import Catalog
from perfsim.data.files import named_file, write_text
from perfsim.network.measured import merge

__all__ = ["assemble"]


def assemble(data: Path, out: Path) -> tuple[list[Path], dict[str, str]]:
    """Write the file of every cluster that its curves tell: paths, and why others have none.

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
        path = named_file(out, cluster.network, ".toml")
        text = network_toml(
            fit, _head(cluster, source, "inter" in fit.links), knots=not source.permissive
        )
        write_text(path, text)
        written.append(path)
    return written, refused


def _head(cluster: SourceCluster, source: Source, across: bool) -> dict[str, Any]:
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


def _main() -> None:
    from argparse import ArgumentParser

    from perfsim.errors import PerfsimError

    parser = ArgumentParser(prog="python -m perfsim.calibrate.assemble", description=__doc__)
    parser.add_argument("data", type=Path, required=True, help="folder of the collected files")
    parser.add_argument("out", type=Path, required=True, help="folder of clusters.csv")
    given = parser.parse_args()
    try:
        write_condensed(given.data, given.out)
        written, refused = assemble(given.data, given.out)
    except PerfsimError as error:
        raise SystemExit(f"assemble: {error}") from None
    for path in written:
        print(f"{path.stat().st_size:7d} B  {path.stem}")
    for network, why in refused.items():
        print(f"  no file  {network}: {why}")


if __name__ == "__main__":
    _main()
