"""Reading what people have measured: one format a file, found by its file name.

A new file in this folder is a new format; nothing else lists it. It holds
``matches(text, path) -> bool`` and
``read(text, path, *, given, skip_bad) -> (curves, damaged lines left out)``, and a docstring
whose first line names the format.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from perfsim.calibrate.formats.rows import GivenFacts, LogRows, known
from perfsim.data.files import printable
from perfsim.errors import DataError
from perfsim.network.measured import CollectiveCurve, merge

__all__ = ["SUFFIXES", "Reading", "formats", "read_file", "read_folder"]

LARGEST = 128 * 2**20
"""Bytes of a file that is read at all: logs of a day are smaller, and it fits in 1 GB of memory."""
SUFFIXES = (".txt", ".log", ".out", ".csv", ".json", ".dat")
"""Files of a folder that may hold measurements."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Curves read, one for each measurement, and the damaged lines left out (file:line: what)."""

    curves: tuple[CollectiveCurve, ...]
    skipped: tuple[str, ...] = ()
    format: str = ""


@cache
def formats() -> dict[str, ModuleType]:
    """Return name -> module of every format.

    Examples
    --------
    >>> "nccl_text" in formats()
    True
    """
    names = [
        module.name
        for module in pkgutil.iter_modules(__path__)
        if module.name not in ("rows", "csv_tables")
    ]
    return {name: import_module(f"{__name__}.{name}") for name in sorted(names)}


def read_file(
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
    name = _form(text, path)
    if name is None:
        told = "; ".join(_title(module) for module in formats().values())
        raise DataError(f"holds no measurements in a form that is known: {told}", path=path)
    if collective is not None:
        collective = known(collective, LogRows(Path("collective")))
    return _read(name, text, path, GivenFacts(collective, ranks, nodes, gpus_per_node), skip_bad)


def _form(text: str, path: Path) -> str | None:
    return next((name for name, one in formats().items() if one.matches(text, path)), None)


def _read(name: str, text: str, path: Path, given: GivenFacts, skip_bad: bool) -> Reading:
    module = formats()[name]
    curves, skipped = module.read(text, path, given=given, skip_bad=skip_bad)
    if not curves:
        raise DataError(f"{_title(module)}: no row is left", path=path)
    return Reading(tuple(merge(curves)), tuple(skipped), name)


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
    if not path.is_dir():
        raise DataError("is not a folder", path=path)
    wanted = set(names)
    found: dict[Path, Reading] = {}
    for file in sorted(one for one in path.rglob("*") if one.is_file()):
        if wanted and file.name not in wanted:
            continue
        if not wanted and file.suffix.lower() not in SUFFIXES:
            continue
        if wanted:
            found[file] = read_file(file, skip_bad=skip_bad)
            continue
        text = _text(file)
        name = _form(text, file)
        if name is not None:
            found[file] = _read(name, text, file, GivenFacts(), skip_bad)
    if not found:
        raise DataError("holds no file with measurements of collectives", path=path)
    return found


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"is larger than {LARGEST >> 20} MiB", path=path)
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from None
    if b"\0" in data[:4096]:
        return ""
    text = data.decode("utf-8-sig", errors="replace")
    return printable(text.replace("\r\n", "\n").replace("\r", "\n"))


def _title(module: ModuleType) -> str:
    return (module.__doc__ or "").partition("\n")[0].rstrip(".")
