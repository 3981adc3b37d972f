"""Reading and writing files: checked texts, whole files or none, and stamps that tell of changes.

A data file is a text of a size that a person can have written. A file that is written is there as a
whole or not at all.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from typing import IO, BinaryIO, TypeVar

from perfsim.errors import DataError, RequestError, nearest, shown

__all__ = [
    "MAX_LINES",
    "Stamp",
    "as_written",
    "being_read",
    "cell",
    "check_lines",
    "check_not_read",
    "check_writable",
    "decoded_text",
    "escaped",
    "files_changed",
    "forbidden",
    "is_there",
    "missing_file",
    "named_file",
    "near_file",
    "no_file",
    "not_noting",
    "note",
    "noting",
    "printable",
    "read_bytes",
    "read_text",
    "reading",
    "stamp",
    "target_of",
    "today",
    "too_large",
    "write_bytes",
    "write_text",
    "writing",
]

Stamp = tuple[int, int, int] | None
"""When a file or folder was written, its size and its inode; None where there is none."""

_NOTED: ContextVar[tuple[dict[str, Stamp], ...]] = ContextVar("_NOTED", default=())


def today() -> str:
    """Return today's date as data files state it (ISO 8601)."""
    return date.today().isoformat()


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
    """Note the data files that are read meanwhile, with their stamps before that.

    Blocks may stand in one another: each notes what is read inside it.
    """
    token = _NOTED.set((*_NOTED.get(), into))
    try:
        yield
    finally:
        _NOTED.reset(token)


@contextmanager
def not_noting() -> Iterator[None]:
    """Read files of perfsim's own for a while, such as one on trial: no `noting` lists them."""
    token = _NOTED.set(())
    try:
        yield
    finally:
        _NOTED.reset(token)


def note(path: Path) -> None:
    """Note a data file that is about to be read, inside `noting`."""
    name = str(path)
    for noted in _NOTED.get():
        if name not in noted:
            noted[name] = stamp(name)


def check_not_read(path: Path, field: str) -> None:
    """Refuse to replace a data file that was read since the first `noting` began.

    Raises
    ------
    RequestError
        If it is one.
    """
    noted = _NOTED.get()
    if not noted or not path.exists():
        return
    target = target_of(path)
    if any(target_of(Path(name)) == target for name in noted[0] if Path(name).exists()):
        raise being_read(path, field)


def being_read(path: Path, field: str) -> RequestError:
    """Return the refusal of an output that is an input too."""
    why = f"{str(path)!r} is read for this answer; name another file."
    return RequestError(field, why, value=str(path))


_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_MAX_BYTES = 32 * 2**20
"""Bytes of a data file. No source: chosen, a hundred times the largest that ships."""

MAX_LINES = 1_000_000
"""Lines of a table or a log. No source: chosen, three hundred times the longest that ships."""


def read_text(path: Path, most: int | None = None) -> str:
    """Return a data file's text, UTF-8 with or without a byte-order mark.

    Raises
    ------
    DataError
        If it cannot be read, is no text or has more than ``most`` bytes (None: any data file's).
    """
    note(path)
    text = decoded_text(read_bytes(path, most), path)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of a file that has no more than ``most`` (None: any data file's).

    A larger file is refused before it is read.

    Raises
    ------
    DataError
        If it is larger, cannot be read, or is a device, a pipe or a socket.
    """
    most = _MAX_BYTES if most is None else most
    with reading(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise too_large(path, most)
        data = file.read(most + 1)  # a file may grow meanwhile, and those of /proc have no size
    if len(data) > most:
        raise too_large(path, most)
    return data


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read its bytes; what goes wrong meanwhile is an error that names it.

    A pipe without a writer would be waited for, and a device may never end: both are refused
    unopened, as are sockets.

    Raises
    ------
    DataError
        If it cannot be read or is no regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # also a name with a zero byte
        raise _unreadable(path, error) from None
    _check_regular(mode, path)
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            _check_regular(os.fstat(file.fileno()).st_mode, path)
            yield file
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or error
    return DataError(f"cannot be read: {reason}", path=path)


def too_large(path: Path, most: int) -> DataError:
    """Return the error for a file of more than ``most`` bytes."""
    return DataError(f"is larger than {most >> 20} MiB", path=path)


def _without_waiting(name: str, flags: int) -> int:
    """Open a file, without waiting for a writer if it has become a pipe since it was looked at."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def _check_regular(mode: int, path: Path) -> None:
    """Refuse what is no regular file; a folder is left to the system's own refusal."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError(f"is {_kind(mode)}, not a file", path=path)


def _kind(mode: int) -> str:
    """Return in words what is no regular file."""
    names = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")


def check_lines(text: str, path: Path) -> None:
    """Refuse a text of more lines than a table or a log has: each takes a hundred bytes and more.

    Raises
    ------
    DataError
        If it has more than `MAX_LINES`.
    """
    if text.count("\n") > MAX_LINES:
        raise DataError(f"has more than {MAX_LINES:,} lines", path=path)


def decoded_text(data: bytes, path: Path, then: str = "") -> str:
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
        target = target_of(path)
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
        reason = _unwritable(target_of(path))
    except (OSError, ValueError) as error:  # a name that is too long, or has a zero byte
        reason = str(getattr(error, "strerror", None) or error)
    if reason:
        raise RequestError(field, f"{str(path)!r} cannot be written: {reason}.")


def target_of(path: Path) -> Path:
    """Return the file that a path leads to, through all links.

    Raises
    ------
    OSError
        If the links lead in a circle.
    """
    try:
        target = path.resolve()
    except RuntimeError:  # Python 3.12 and before
        target = path
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


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


def as_written(value: object) -> str:
    """Return a value as files and flags write it: "true" or "false" for a boolean.

    Examples
    --------
    >>> as_written(True), as_written(0.5)
    ('true', '0.5')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def cell(value: _T) -> _T | str:
    """Return a value as a cell of a table: "true" or "false" for a boolean.

    A text that a spreadsheet takes for a formula is quoted.

    Examples
    --------
    >>> cell("=1+1"), cell("-0.5"), cell(-0.5), cell("--net: no 'x'"), cell(True)
    ("'=1+1", '-0.5', -0.5, "--net: no 'x'", 'true')
    """
    if isinstance(value, bool):
        return as_written(value)
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
    """Tell whether a text is the path of a file, or of what no reader takes, such as a device.

    Examples
    --------
    >>> is_there("no such file"), is_there("zero" + chr(0))
    (False, False)
    """
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


def no_file(text: str) -> str:
    """Return what stands on disk where a file is looked for, "" where nothing or a file does.

    Examples
    --------
    >>> no_file("/"), no_file("no such file")
    ('a folder', '')
    """
    try:
        mode = os.stat(text).st_mode
    except (OSError, ValueError):  # nothing, a name too long, or with a zero byte
        return ""
    return "" if stat.S_ISREG(mode) else _kind(mode)


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
    >>> near_file(Path("a file that nobody has.csv"), (".none",)), near_file(Path("/"), (".csv",))
    ('', ': it is a folder')
    """
    found = no_file(str(path))
    if found:
        return f": it is {found}"
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
