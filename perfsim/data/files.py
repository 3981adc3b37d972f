"""Reading and writing files: checked texts, whole files or none, and stamps that tell of changes.

A data file is a text of a size that a person can have written. A file that is written is there as a
whole or not at all.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TypeVar

from perfsim.errors import DataError, RequestError, nearest, shown

__all__ = [
    "Stamp",
    "cell",
    "check_writable",
    "decoded",
    "escaped",
    "files_changed",
    "forbidden",
    "is_there",
    "missing_file",
    "named_file",
    "near_file",
    "note",
    "noting",
    "printable",
    "read_text",
    "stamp",
    "write_bytes",
    "write_text",
    "writing",
]

Stamp = tuple[int, int, int] | None
"""When a file or folder was written, its size and its inode; None where there is none."""

_NOTED: ContextVar[dict[str, Stamp] | None] = ContextVar("_NOTED", default=None)


def stamp(path: str) -> Stamp:
    """Return the stamp of a file or folder as it is now."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # also a name with a zero byte
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def files_changed(noted: Mapping[str, Stamp]) -> bool:
    """Tell whether one of the files has changed since it was noted."""
    return any(stamp(path) != before for path, before in noted.items())


@contextmanager
def noting(into: dict[str, Stamp]) -> Iterator[None]:
    """Note the data files that are read meanwhile, with their stamps before that."""
    token = _NOTED.set(into)
    try:
        yield
    finally:
        _NOTED.reset(token)


def note(path: Path) -> None:
    """Note a data file that is about to be read, inside `noting`."""
    noted = _NOTED.get()
    if noted is not None:
        noted.setdefault(str(path), stamp(str(path)))


_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_MAX_BYTES = 32 * 2**20
"""Bytes of a data file. No source: chosen, a hundred times the largest that ships."""


def read_text(path: Path, most: int | None = None) -> str:
    """Return a data file's text, UTF-8 with or without a byte-order mark.

    Raises
    ------
    DataError
        If it cannot be read, is no text or has more than ``most`` bytes (None: any data file's).
    """
    note(path)
    most = _MAX_BYTES if most is None else most
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise DataError(f"is larger than {most >> 20} MiB", path=path)
    except (OSError, ValueError) as error:  # also a name with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read: {reason}", path=path) from None
    text = decoded(data, path)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def decoded(data: bytes, path: Path, then: str = "") -> str:
    """Return the bytes of a file as text, UTF-8 with or without a byte-order mark.

    ``then`` ends the message of the error.

    Raises
    ------
    DataError
        If they are no such text; the message counts bytes from 1.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The decoder counts from behind a byte-order mark.
        wrong = len(data) - len(error.object) + error.start + 1
        why = f"is not text in UTF-8: byte {wrong:,} of {len(data):,} is wrong{then}"
        raise DataError(why, path=path) from None


def write_text(path: Path, text: str, field: str = "out") -> None:
    """Write ``text`` to ``path`` as `write_bytes` does, in UTF-8."""
    write_bytes(path, text.encode(), field)


def write_bytes(path: Path, data: bytes, field: str = "out") -> None:
    """Write ``data`` to ``path`` as `writing` does."""
    with writing(path, field) as file:
        file.write(data)


@contextmanager
def writing(path: Path, field: str = "out") -> Iterator[IO[bytes]]:
    """Give a file to write: a temporary one beside ``path``, which takes its place at the end.

    A link is followed; what is no regular file (a device, a pipe) is written to as it is. An
    existing file keeps its mode, and stays as it is if anything goes wrong meanwhile. ``field`` is
    the one that named it.

    Raises
    ------
    RequestError
        If the folder does not exist or cannot be written.
    """
    # Not at the top: all that reads a file imports this module, and few write one.
    import tempfile

    temporary = None
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                yield file
            return
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
        with tempfile.NamedTemporaryFile(
            "wb", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a crash could leave the new name and nothing in it
        temporary.chmod(mode)
        temporary.replace(target)
        temporary = None
    except (OSError, ValueError) as error:  # also a name with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise RequestError(field, f"{str(path)!r} cannot be written: {reason}.") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def named_file(folder: Path, name: str, suffix: str) -> Path:
    """Return the path in ``folder`` of a name that a data file states.

    Raises
    ------
    DataError
        If the name leads elsewhere.

    Examples
    --------
    >>> named_file(Path("out"), "10gbe", ".toml").as_posix()
    'out/10gbe.toml'
    """
    if not _FILE_NAME.fullmatch(name):
        raise DataError(f"{shown(name)} is no name; letters, digits, '.', '_' and '-'", path=folder)
    return folder / f"{name}{suffix}"


def check_writable(path: Path, field: str = "out") -> None:
    """Refuse a file that could not be written, before any work.

    Raises
    ------
    RequestError
        If its folder does not exist or may not be written, or it is a folder.
    """
    try:
        reason = _unwritable(path.resolve())
    except (OSError, ValueError) as error:  # a name that is too long, or has a zero byte
        reason = str(getattr(error, "strerror", None) or error)
    if reason:
        raise RequestError(field, f"{str(path)!r} cannot be written: {reason}.")


def _unwritable(target: Path) -> str:
    """Return why a file could not be written, as far as is known; else ""."""
    if target.is_dir():
        return "it is a folder"
    if target.exists():
        if not os.access(target, os.W_OK):
            return "permission denied"
        if not target.is_file():
            return ""  # a device or a pipe is written to as it is
    if not target.parent.is_dir():
        return "its folder does not exist"
    return "" if os.access(target.parent, os.W_OK) else "permission denied"


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)  # Unicode's controls but tab and line end, its own line ends, bidirectional ones, surrogates
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]|-[a-z])")
"""How a formula begins; numbers and the names of flags do not."""
_T = TypeVar("_T")
_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
"""What colours text or moves the cursor."""


def forbidden(text: str) -> re.Match[str] | None:
    r"""Return the first control character of a text, which no data file may hold.

    Examples
    --------
    >>> forbidden("25 µs\n"), forbidden("a\x1b[31m")[0]
    (None, '\x1b')
    """
    # Nearly every text is printable, which is quicker to see than what is not.
    return None if text.replace("\n", "").isprintable() else _CONTROL.search(text)


def printable(text: str) -> str:
    r"""Return a text without colours and control characters.

    Examples
    --------
    >>> printable("\x1b[32mTesla\x1b[0m V100\x07")
    'Tesla V100'
    """
    return _CONTROL.sub("", _TERMINAL_CODE.sub("", text)) if _CONTROL.search(text) else text


def cell(value: _T) -> _T | str:
    """Return a value as a cell of a table; a text that a spreadsheet takes for a formula is quoted.

    Examples
    --------
    >>> cell("=1+1"), cell("-0.5"), cell(-0.5), cell("--net: no 'x'")
    ("'=1+1", '-0.5', -0.5, "--net: no 'x'")
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def escaped(text: str) -> str:
    r"""Return a text with its control characters written as escapes; its lines stay.

    Examples
    --------
    >>> print(escaped("no \x1b[2J"))
    no \x1b[2J
    """
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def is_there(text: str) -> bool:
    """Tell whether a text is the path of a file.

    Examples
    --------
    >>> is_there("no such file"), is_there("zero" + chr(0))
    (False, False)
    """
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


_MAX_LOOKED_AT = 10_000
"""Files of a folder among which the nearest name is looked for. No source: chosen."""


def missing_file(path: Path, suffixes: Sequence[str]) -> DataError:
    """Return the error for a file that is not there, with the nearest name in its folder.

    Parameters
    ----------
    suffixes : endings of the files that it could be

    Examples
    --------
    >>> print(missing_file(Path("nowhere/mine.csv"), (".csv",)))
    nowhere/mine.csv: there is no such file, nor a folder 'nowhere'
    """
    return DataError(f"there is no such file{near_file(path, suffixes)}", path=path)


def near_file(path: Path, suffixes: Sequence[str]) -> str:
    """Return what a message adds on a file that is not there: its nearest neighbour, or no folder.

    Examples
    --------
    >>> near_file(Path("a file that nobody has.csv"), (".none",))
    ''
    """
    try:
        if not path.parent.is_dir():
            return f", nor a folder {shown(str(path.parent))}"
        with os.scandir(path.parent) as entries:
            names = [one.name for one, _ in zip(entries, range(_MAX_LOOKED_AT), strict=False)]
    except (OSError, ValueError):  # a folder that may not be read, a name with a zero byte
        return ""
    # Endings are alike and would count.
    ends = tuple(suffixes)
    stems = {one[: one.rfind(".")]: one for one in sorted(names) if one.endswith(ends)}
    alike = stems.get(nearest(path.stem, stems), "")
    return f" (did you mean {shown(str(path.parent / alike))}?)" if alike else ""
