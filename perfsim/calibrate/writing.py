"""Writing measured curves as perfsim's own table, which `reading.own_csv` reads back."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from perfsim.calibrate.reading.own_csv import SCHEMA
from perfsim.cluster.measured import Curve
from perfsim.errors import DataError
from perfsim.files import write_text

__all__ = ["as_csv", "write_csv"]

FIELDS = (
    "source", "kind", "series", "gpu", "fabric", "library", "version", "algorithm", "protocol",
    "spread",
)  # fmt: skip
DEFAULTS = {"algorithm": "", "protocol": "", "version": "", "gpu": "", "fabric": "", "spread": None}
BASE = ("collective", "ranks", "nodes", "gpus_per_node", "size_bytes", "time_us")


def as_csv(curves: Sequence[Curve]) -> str:
    """Return the table: what all curves share in the header, what differs in columns.

    Raises
    ------
    DataError
        If there is no curve, or a text holds a line break.

    Examples
    --------
    >>> curve = Curve("reduce", 2, 2, 1, (8.0,), (1.25e-05,), "measured", "here", series="two")
    >>> print(as_csv([curve]), end="")
    # schema: perfsim/curves/1
    # source: here
    # kind: measured
    # series: two
    # library: nccl
    collective,ranks,nodes,gpus_per_node,size_bytes,time_us
    reduce,2,2,1,8,12.5
    """
    if not curves:
        raise DataError("there is no curve to write")
    values = {field: [_text(getattr(curve, field)) for curve in curves] for field in FIELDS}
    shared = {field: told[0] for field, told in values.items() if len(set(told)) == 1}
    differing = [field for field in FIELDS if field not in shared]
    out = io.StringIO()
    out.write(f"# schema: {SCHEMA}\n")
    for field, told in shared.items():
        if told or field not in DEFAULTS:
            out.write(f"# {field}: {told}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*BASE, *differing])
    for place, curve in enumerate(curves):
        fixed = [curve.collective, curve.ranks, curve.nodes, curve.gpus_per_node]
        rest = [values[field][place] for field in differing]
        for size, seconds in zip(curve.size_bytes, curve.seconds, strict=True):
            writer.writerow([*fixed, _size(size), _microseconds(seconds), *rest])
    return out.getvalue()


def write_csv(curves: Sequence[Curve], path: Path | str) -> None:
    """Write the table to a file, whole or not at all.

    Raises
    ------
    RequestError
        If the file cannot be written.
    """
    write_text(Path(path), as_csv(curves))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value).strip()
    if len(text.splitlines()) > 1:
        raise DataError(f"{text.splitlines()[0]!r}...: a text with a line break has no cell")
    return text


def _size(size: float) -> str:
    return str(int(size)) if size == int(size) and size < 2**53 else repr(size)


def _microseconds(seconds: float) -> str:
    """Return the microseconds to the last digit, so that reading gives the same seconds."""
    return format(Decimal(repr(seconds)).scaleb(6).normalize(), "f")
