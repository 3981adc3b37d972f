"""Condensed curves: what ships of measurements whose source has a permissive licence.

``python -m perfsim.calibrate.condense --data DIR --out profiles/networks`` writes every
``<network>.curves.csv`` anew from ``clusters.csv`` and ``sources.csv`` in the folder of ``--out``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfsim.calibrate.formats import read_file
from perfsim.calibrate.sources import Source, SourceCluster, read_clusters, read_sources
from perfsim.data.files import named_file
from perfsim.errors import DataError, shown
from perfsim.network.measured import CollectiveCurve, merge, write_curves

__all__ = ["cluster_curves", "condense", "thin", "write_condensed"]


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
        place = round(2 * math.log2(size))
        kept = nearest.get(place)
        if kept is None or abs(2 * math.log2(size) - place) < abs(2 * math.log2(kept) - place):
            nearest[place] = size
    return sorted({*nearest.values(), sizes[0], sizes[-1]})


def condense(curves: Sequence[CollectiveCurve]) -> list[CollectiveCurve]:
    """Return one thinned curve a measurement: repeats as their median, sizes as `thin` keeps them.

    In place and out of place, several runs and several files of one setting are repeats.

    Examples
    --------
    >>> runs = [CollectiveCurve("reduce", 2, 2, 1, (8.0,), (t,), "measured", "here") for t in (1.0, 2.0)]
    >>> condense(runs)[0].seconds
    (1.5,)
    """
    found = []
    for curve in merge(curves):
        kept = set(thin(curve.size_bytes))
        points = [
            point for point in zip(curve.size_bytes, curve.seconds, strict=True) if point[0] in kept
        ]
        sizes, seconds = zip(*points, strict=True)
        found.append(replace(curve, size_bytes=tuple(sizes), seconds=tuple(seconds)))
    order = ("collective", "nodes", "ranks", "algorithm", "protocol")
    return sorted(found, key=lambda curve: tuple(getattr(curve, name) for name in order))


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
        for curve in read_file(data / f"{stem}.csv").curves
    ]


def write_condensed(data: Path, out: Path) -> dict[str, Path]:
    """Write the condensed curves of every cluster whose source is permissive: file by network.

    Files of networks that no longer ship are removed.

    Raises
    ------
    DataError
        If one of the tables or files is missing or damaged.
    """
    sources = read_sources(out / "sources.csv")
    clusters = read_clusters(out / "clusters.csv")
    written: dict[str, Path] = {}
    for cluster in clusters.values():
        if cluster.source_id not in sources:
            told = f"{cluster.network}: source {shown(cluster.source_id)} is not in sources.csv"
            raise DataError(told, path=out / "clusters.csv")
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


def _main() -> None:
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="python -m perfsim.calibrate.condense", description=__doc__)
    parser.add_argument("data", type=Path, required=True, help="folder of the collected files")
    parser.add_argument("out", type=Path, required=True, help="folder of clusters.csv")
    given = parser.parse_args()
    try:
        for network, path in write_condensed(given.data, given.out).items():
            print(f"{path.stat().st_size:7d} B  {network}")
    except DataError as error:
        raise SystemExit(f"condense: {error}") from None


if __name__ == "__main__":
    _main()
