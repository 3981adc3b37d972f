"""Measured curves that ship: ``networks/<network>.curves.csv``, read and written.

``# key: value`` lines say what the network is and whose figures these are; then one row a point.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

from perfsim.cluster.measured import LIBRARIES, Curve
from perfsim.collectives import COLLECTIVES
from perfsim.errors import DataError
from perfsim.files import write_text
from perfsim.limits import COUNT, MESSAGE, SPREAD, TIME, Limit, shown
from perfsim.table import check_word, number, read_lines, read_table

__all__ = ["COLUMNS", "HEADER", "SCHEMA", "read_curves", "write_curves"]

SCHEMA = "perfsim/curves/1"
HEADER = (
    "network",
    "title",
    "gpu",
    "intra",
    "inter",
    "library",
    "version",
    "source",
    "licence",
    "date",
)
"""Lines that a file of curves has besides ``schema``; only ``version`` may be empty."""

COUNTS = ("ranks", "nodes", "gpus_per_node")
COLUMNS = (
    "collective",
    *COUNTS,
    "algorithm",
    "protocol",
    "size_bytes",
    "time_us",
    "spread",
    "source_id",
)


@dataclass(frozen=True, slots=True)
class _Point:
    """One row: of which curve, and what was measured [B, s]."""

    row: int
    shape: tuple[str, int, int, int, str, str, float | None]
    size_bytes: float
    time_s: float


def read_curves(path: Path) -> list[Curve]:
    """Read the measured curves of one network.

    Returns
    -------
    list of Curve, in the order of the file; ``series`` is the name of the network.

    Raises
    ------
    DataError
        If the file cannot be read, a header line or column lacks, a cell is not what its column
        asks for, or a size does not rise within its curve.
    """
    points = [_point(cells, path, row) for row, cells in read_table(path, SCHEMA, COLUMNS)]
    head = _header(path)
    if not points:
        raise DataError("holds no point; give at least one row", path=path)
    curves = []
    seen: set[object] = set()
    for shape, group in groupby(points, lambda point: point.shape):
        curve = list(group)
        if shape in seen:
            told = "goes back to a curve that ended above; keep the points of a curve together"
            raise DataError(told, path=path, row=curve[0].row)
        seen.add(shape)
        curves.append(_curve(curve, head, path))
    return curves


def write_curves(
    path: Path, curves: Sequence[Curve], head: Mapping[str, str], source_id: str
) -> None:
    """Write measured curves of one network, times to 4 digits.

    Parameters
    ----------
    path : file to write, by custom ``<network>.curves.csv``
    curves : at least one, of one source
    head : value of each key of `HEADER`, and ``notes`` if there are any
    source_id : the source's name in ``sources.csv``
    """
    text = io.StringIO()
    keys = (*HEADER, "notes") if head.get("notes") else HEADER
    for key, value in (("schema", SCHEMA), *((key, head[key]) for key in keys)):
        text.write(f"# {key}: {value}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for curve in curves:
        shape = (curve.collective, curve.ranks, curve.nodes, curve.gpus_per_node)
        spread = "" if curve.spread is None else f"{curve.spread:.3g}"
        for size, time_s in zip(curve.size_bytes, curve.seconds, strict=True):
            point = (f"{size:.17g}", f"{float(f'{time_s * 1e6:.4g}'):.12g}", spread, source_id)
            table.writerow((*shape, curve.algorithm, curve.protocol, *point))
    write_text(path, text.getvalue())


def _header(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for row, line in enumerate(read_lines(path), 1):
        if not line.startswith("#"):
            break
        key, _, value = line[1:].partition(":")
        if key.strip() in found:
            raise DataError(f"'# {key.strip()}:' is there twice", path=path, row=row)
        found[key.strip()] = value.strip()
    for key in HEADER:
        if not found.get(key) and (key != "version" or key not in found):
            shape = "is empty" if key in found else "is missing"
            raise DataError(f"the header's '# {key}:' {shape}", path=path, row=1)
    if path.name != f"{found['network']}.curves.csv":
        told = f"{shown(found['network'])}, the file's name says otherwise; they must agree"
        raise DataError(f"the header's network is {told}", path=path, row=1)
    if found["library"] not in LIBRARIES:
        told = f"{shown(found['library'])}; allowed: {', '.join(LIBRARIES)}"
        raise DataError(f"the header's library is {told}", path=path, row=1)
    return found


def _point(cells: Mapping[str, str], path: Path, row: int) -> _Point:
    check_word(cells["collective"], COLLECTIVES, "collective", path, row)

    def value(column: str, within: Limit, unit: float = 1.0, least: bool = True) -> float:
        whole = column in COUNTS
        text = cells[column]
        found = number(
            text, column, path, row, positive=least, whole=whole, within=within, unit=unit
        )
        return found * unit

    ranks, nodes, gpus = (int(value(column, COUNT)) for column in COUNTS)
    spread = value("spread", SPREAD, least=False) if cells["spread"] else None
    return _Point(
        row=row,
        shape=(
            cells["collective"],
            ranks,
            nodes,
            gpus,
            cells["algorithm"],
            cells["protocol"],
            spread,
        ),
        size_bytes=value("size_bytes", MESSAGE),
        time_s=value("time_us", TIME, 1e-6),
    )


def _curve(points: Sequence[_Point], head: Mapping[str, str], path: Path) -> Curve:
    for before, after in pairwise(points):
        if after.size_bytes <= before.size_bytes:
            told = f"{after.size_bytes:.12g} after {before.size_bytes:.12g}; sizes rise in a curve"
            raise DataError(told, path=path, row=after.row, column="size_bytes")
    collective, ranks, nodes, gpus, algorithm, protocol, spread = points[0].shape
    try:
        return Curve(
            collective=collective,
            ranks=ranks,
            nodes=nodes,
            gpus_per_node=gpus,
            size_bytes=tuple(point.size_bytes for point in points),
            seconds=tuple(point.time_s for point in points),
            kind="measured",
            source=head["source"],
            spread=spread,
            series=head["network"],
            algorithm=algorithm,
            protocol=protocol,
            library=head["library"],
            version=head["version"],
            gpu=head["gpu"],
            fabric=f"{head['intra']}; {head['inter']}",
        )
    except DataError as error:
        raise DataError(str(error), path=path, row=points[0].row) from None
