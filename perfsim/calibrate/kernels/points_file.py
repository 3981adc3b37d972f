"""The file of kernel points, ``<gpu>.kernels.csv``, from what was measured."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from perfsim.calibrate.kernels.bench import Bench
from perfsim.calibrate.kernels.journal import Journal
from perfsim.curve import ANY, COLUMNS, SCHEMA, read_kernels
from perfsim.device import POINTS
from perfsim.table import read_table

__all__ = ["check_points", "other_rows", "points_text"]


def points_text(benches: Sequence[Bench], journal: Journal, about: Mapping[str, str]) -> str:
    """Return the file's text: a row a point, with the median repeat.

    Parameters
    ----------
    benches : what was measured, in the order of rows
    journal : the points
    about : gpu, software, source, licence, date, and left out if anything is
    """
    text = io.StringIO()
    for key in ("gpu", "licence", "date", "left out"):
        if about.get(key):
            text.write(f"# {key}: {' '.join(about[key].split())}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for bench in benches:
        shapes = {(size.elements, size.width): size.shape for size in bench.sizes(10**18)}
        for point in journal.points:
            if point.kernel != bench.name:
                continue
            shape = shapes.get((point.elements, point.width), (point.elements,))
            note = f"{' x '.join(map(str, shape))}; {bench.does}; {_repeats(point.seconds)}"
            if math.isfinite(point.spread):
                note += f" +-{point.spread:.1%}"
            origin = ("measured", about["software"], about["source"], note)
            time_us = f"{point.median_s * 1e6:.4g}"
            table.writerow((point.kernel, point.elements, point.width, time_us, *origin))
    return f"# schema: {SCHEMA}\n{text.getvalue()}"


def other_rows(path: Path | None, measured: Collection[str]) -> str:
    """Return the rows of a file of kernels for names that were not measured, as they stand.

    The file written is read instead of that one: points that only it has (codecs that are no
    PyTorch kernels, say) would be lost.

    Raises
    ------
    DataError
        If the file breaks the format.
    """
    if path is None:
        return ""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    names = path.name.removesuffix(POINTS), ANY
    for _, cells in read_table(path, SCHEMA, COLUMNS, names):
        if cells["kernel"] not in measured:
            table.writerow([cells[column] for column in COLUMNS])
    return text.getvalue()


def check_points(text: str, gpu: str) -> None:
    """Read a file's text as predictions will.

    Raises
    ------
    DataError
        If it breaks the format: then nothing is written.
    """
    with TemporaryDirectory() as work:
        trial = Path(work) / f"{gpu}.kernels.csv"
        trial.write_text(text, encoding="utf-8")
        read_kernels(trial)


def _repeats(seconds: Sequence[float]) -> str:
    return "1 repeat" if len(seconds) == 1 else f"median of {len(seconds)}"
