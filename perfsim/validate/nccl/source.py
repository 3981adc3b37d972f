"""Where the measured curves come from: a folder of whole curves, or what ships with perfsim."""

from __future__ import annotations

from pathlib import Path

from perfsim.data.catalog import Catalog
from perfsim.network.measured import CollectiveCurve

__all__ = ["from_folder", "shipped_curves"]


def from_folder(
    folder: Path, *, skip_bad: bool = False
) -> tuple[list[tuple[str, CollectiveCurve]], list[str]]:
    """Return (cluster, curve) of every file of measurements in a folder, and what was left out.

    The cluster is the series that a file names, else the file itself. Left out are files of no
    known form, and damaged lines with ``skip_bad``.

    Raises
    ------
    DataError
        If the folder holds none, or a line is damaged.
    """
    from perfsim.calibrate.formats import LOG_SUFFIXES, read_folder

    found = read_folder(folder, skip_bad=skip_bad)
    curves = [
        (curve.series or path.stem, curve)
        for path, reading in found.items()
        for curve in reading.curves
    ]
    left = [line for reading in found.values() for line in reading.skipped]
    files = (one for one in folder.rglob("*") if one.is_file() and one not in found)
    left += [
        f"{path}: no measurements in a form that is known"
        for path in sorted(files)
        if path.suffix.lower() in LOG_SUFFIXES
    ]
    return curves, left


def shipped_curves(catalog: Catalog) -> list[tuple[str, CollectiveCurve]]:
    """Return (network, curve) of all networks that ship or are the user's.

    Measured curves where a network has them, else the knots of the fitted ones: single measured
    points, few a curve, as fitting chose them.
    """
    from perfsim.network.network_file import read_network

    found: list[tuple[str, CollectiveCurve]] = []
    for name, path in catalog.files("networks").items():
        known = read_network(path).known
        if known is not None:
            found += [(name, curve) for curve in known.curves]
    return found
