"""Read what people have measured: logs and tables of collectives, whatever tool wrote them.

A format is a class with `log_format` above it, in `nccl_tests` (text and JSON of nccl-tests and
PARAM) or `csv_tables` (CSV); nothing else lists it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR

from perfsim.calibrate.formats import csv_tables, nccl_tests
from perfsim.calibrate.formats.rows import (
    LOG_FORMATS,
    DamagedLines,
    GivenFacts,
    LogFormat,
    known_collective,
)
from perfsim.data.files import check_lines, decoded_text, printable, read_bytes
from perfsim.errors import DataError
from perfsim.network.measured import CollectiveCurve, merge

__all__ = [
    "LOG_SUFFIXES",
    "Reading",
    "csv_tables",
    "holds_measurements",
    "log_formats",
    "nccl_tests",
    "read_folder",
    "read_log",
]

LOG_SUFFIXES = (".txt", ".log", ".out", ".csv", ".json", ".dat")
"""Files of a folder that may hold measurements."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Curves read, one for each measurement, and the damaged lines left out (file:line: what)."""

    curves: tuple[CollectiveCurve, ...]
    skipped: tuple[str, ...] = ()
    format: str = ""


def log_formats() -> dict[str, LogFormat]:
    """Return name -> format, in the order of trial, which is that of the names.

    Examples
    --------
    >>> list(log_formats())
    ['nccl_csv', 'nccl_json', 'nccl_text', 'own_csv', 'param_text', 'pytorch_csv']
    """
    return dict(sorted(LOG_FORMATS.items()))


def read_log(
    path: Path | str,
    *,
    collective: str | None = None,
    ranks: int | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    skip_bad: bool = False,
) -> Reading:
    """Read one file of measured collectives; repeats of a size become their median.

    Parameters
    ----------
    path : the file, of any format that this folder knows
    collective, ranks, nodes, gpus_per_node : what the file does not say itself
    skip_bad : leave damaged lines out and list them, instead of refusing the file

    Raises
    ------
    DataError
        If the file cannot be read, is of no known format, contradicts what is given, leaves
        open what is not given, or holds a damaged line (names file, line and what was found).
    """
    path = Path(path)
    text = _text(path)
    name = _format_of(text)
    if name is None:
        decoded_text(read_bytes(path), path)
        titles = "; ".join(one.title for one in log_formats().values())
        raise DataError(f"holds no measurements in a form that is known: {titles}", path=path)
    if collective is not None:
        collective = known_collective(collective, DamagedLines(Path("collective")))
    return _read(name, text, path, GivenFacts(collective, ranks, nodes, gpus_per_node), skip_bad)


def holds_measurements(path: Path) -> bool:
    """Tell whether a file looks like one of measured collectives, damaged or not.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    return _format_of(_text(path)) is not None


def _is_folder(path: Path) -> bool:
    """Tell whether a path is a folder, and leave the errors of the system as they are.

    ``Path.is_dir`` hides them since Python 3.14, such as a name that is too long.
    """
    try:
        return S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def read_folder(
    path: Path | str, *, skip_bad: bool = False, names: Iterable[str] = ()
) -> dict[Path, Reading]:
    """Read every file of measurements in a folder and below it: path -> what was read.

    ``names`` keeps to these file names. Files without a known form are passed over unless a
    name asks for them.

    Raises
    ------
    DataError
        If the folder does not exist or nothing in it can be read.
    """
    path = Path(path)
    if not _is_folder(path):
        raise DataError("is not a folder", path=path)
    wanted = set(names)
    readings: dict[Path, Reading] = {}
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file()):
        if wanted:
            if file.name in wanted:
                readings[file] = read_log(file, skip_bad=skip_bad)
            continue
        if file.suffix.lower() in LOG_SUFFIXES:
            text = _text(file)
            name = _format_of(text)
            if name is not None:
                readings[file] = _read(name, text, file, GivenFacts(), skip_bad)
    if not readings:
        raise DataError("holds no file with measurements of collectives", path=path)
    return readings


def _text(path: Path) -> str:
    """Return a file's text, '' for a binary file; characters that print nothing are replaced."""
    data = read_bytes(path)
    if b"\0" in data[:4096]:
        return ""
    text = data.decode("utf-8-sig", errors="replace")
    text = printable(text.replace("\r\n", "\n").replace("\r", "\n"))
    check_lines(text, path)
    return text


def _format_of(text: str) -> str | None:
    """Return the name of the first format that recognises a text, None where none does."""
    return next((name for name, one in log_formats().items() if one.matches(text)), None)


def _read(name: str, text: str, path: Path, given: GivenFacts, skip_bad: bool) -> Reading:
    log_format = LOG_FORMATS[name]
    curves, skipped = log_format.read(text, path, given=given, skip_bad=skip_bad)
    if not curves:
        raise DataError(f"{log_format.title}: no row is left", path=path)
    return Reading(tuple(merge(curves)), tuple(skipped), name)
