"""Where the measured curves come from: a folder of whole curves, or what ships with perfsim."""

from __future__ import annotations

from pathlib import Path

from perfsim.catalog import Catalog
from perfsim.cluster.measured import Curve

__all__ = ["from_folder", "shipped_curves"]


def from_folder(folder: Path) -> list[tuple[str, Curve]]:
    """Return (cluster, curve) of every file of measurements in a folder, in any known form.

    The cluster is the series that a file names, else the file itself.

    Raises
    ------
    DataError
        If the folder holds none, or a file is damaged.
    """
    from perfsim.calibrate.reading import read_folder

    return [
        (curve.series or path.stem, curve)
        for path, reading in read_folder(folder).items()
        for curve in reading.curves
    ]


def shipped_curves(catalog: Catalog) -> list[tuple[str, Curve]]:
    """Return (network, curve) of all networks that ship or are the user's.

    Measured curves where a network has them, else the knots of the fitted ones: single measured
    points, few a curve, as fitting chose them.
    """
    from perfsim.cluster.network import read_network

    found: list[tuple[str, Curve]] = []
    for name, path in catalog.files("networks").items():
        known = read_network(path).known
        if known is not None:
            found += [(name, curve) for curve in known.curves]
    return found
