"""Files that are whole or not there; texts of a size that a person can have written."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from perfsim.errors import DataError, RequestError, shown

__all__ = [
    "Stamp",
    "cell",
    "check_writable",
    "escaped",
    "files_changed",
    "forbidden",
    "named_file",
    "note",
    "noting",
    "printable",
    "read_text",
    "stamp",
    "write_bytes",
    "write_text",
]

Stamp = tuple[int, int, int] | None
"""When a file or folder was written, its size and its number on the disk; None: not there."""

_NOTED: ContextVar[dict[str, Stamp] | None] = ContextVar("_NOTED", default=None)


def stamp(path: str) -> Stamp:
    """Return the stamp of a file or folder as it is now."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # also a name with a zero byte
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def files_changed(noted: Mapping[str, Stamp]) -> bool:
    """Tell whether one of the files is another now than when it was noted."""
    return any(stamp(path) != before for path, before in noted.items())


@contextmanager
def noting(into: dict[str, Stamp]) -> Iterator[None]:
    """Note the data files that are read meanwhile, as they were before that."""
    token = _NOTED.set(into)
    try:
        yield
    finally:
        _NOTED.reset(token)


def note(path: Path) -> None:
    """Note a data file that is about to be read, if it is asked which ones are."""
    noted = _NOTED.get()
    if noted is not None:
        noted.setdefault(str(path), stamp(str(path)))


_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_MAX_BYTES = 32 * 2**20
"""Bytes of a data file: a hundred times the largest that ships, and less memory than 1 GB."""


def read_text(path: Path) -> str:
    """Return a data file's text, UTF-8 with or without a byte-order mark.

    Raises
    ------
    DataError
        If it cannot be read, is no text or larger than any data file.
    """
    note(path)
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise DataError(f"is larger than {_MAX_BYTES >> 20} MiB", path=path)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # also a name with a zero byte
        told = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read: {told}", path=path) from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def write_text(path: Path, text: str, flag: str = "out") -> None:
    """Write ``text`` to ``path`` as `write_bytes` does, in UTF-8."""
    write_bytes(path, text.encode(), flag)


def write_bytes(path: Path, data: bytes, flag: str = "out") -> None:
    """Write ``data`` to ``path``: to a temporary file beside it first, then renamed.

    A link is followed; what is no regular file (a device, a pipe) is written to as it is. An
    existing file keeps its mode. ``flag`` is the option that named it.

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
            target.write_bytes(data)
            return
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
        with tempfile.NamedTemporaryFile(
            "wb", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # or a crash could leave the new name and nothing in it
        temporary.chmod(mode)
        temporary.replace(target)
        temporary = None
    except (OSError, ValueError) as error:  # also a name with a zero byte
        told = getattr(error, "strerror", None) or error
        raise RequestError(flag, f"{str(path)!r} cannot be written: {told}.") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def named_file(folder: Path, name: str, suffix: str) -> Path:
    """Return the file of a name that stands in a data file: in ``folder``, and nowhere else.

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


def check_writable(path: Path, flag: str = "out") -> None:
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
        raise RequestError(flag, f"{str(path)!r} cannot be written: {reason}.")


def _unwritable(target: Path) -> str:
    """Return why a file could not be written, as far as can be told; else ""."""
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
    r"""Return the first letter that no data file may hold.

    Examples
    --------
    >>> forbidden("25 µs\n"), forbidden("a\x1b[31m")[0]
    (None, '\x1b')
    """
    # Nearly every text is printable, which is quicker to see than what is not.
    return None if text.replace("\n", "").isprintable() else _CONTROL.search(text)


def printable(text: str) -> str:
    r"""Return a text without what is not printed: colours and control characters.

    Examples
    --------
    >>> printable("\x1b[32mTesla\x1b[0m V100\x07")
    'Tesla V100'
    """
    return _CONTROL.sub("", _TERMINAL_CODE.sub("", text)) if _CONTROL.search(text) else text


def cell(value: _T) -> _T | str:
    """Return a value as a cell of a table that a spreadsheet may open: no text is a formula there.

    Examples
    --------
    >>> cell("=1+1"), cell("-0.5"), cell(-0.5), cell("--net: no 'x'")
    ("'=1+1", '-0.5', -0.5, "--net: no 'x'")
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def escaped(text: str) -> str:
    r"""Return a text with control characters as escapes, on as many lines as it had.

    Examples
    --------
    >>> print(escaped("no \x1b[2J"))
    no \x1b[2J
    """
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)
