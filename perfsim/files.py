"""Files that are whole or not there; texts of a size that a person can have written."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from perfsim.errors import DataError, RequestError
from perfsim.limits import shown
from perfsim.seen import note

__all__ = ["check_writable", "named_file", "read_text", "write_bytes", "write_text"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
LARGEST = 32 * 2**20
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
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise DataError(f"is larger than {LARGEST >> 20} MiB", path=path)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # also a name with a zero byte
        told = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read: {told}", path=path) from None
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def write_text(path: Path, text: str, flag: str = "--out") -> None:
    """Write ``text`` to ``path`` as `write_bytes` does, in UTF-8."""
    write_bytes(path, text.encode(), flag)


def write_bytes(path: Path, data: bytes, flag: str = "--out") -> None:
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
        raise RequestError(f"{flag}: {str(path)!r} cannot be written: {told}.") from None
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
    if not NAME.fullmatch(name):
        raise DataError(f"{shown(name)} is no name; letters, digits, '.', '_' and '-'", path=folder)
    return folder / f"{name}{suffix}"


def check_writable(path: Path, flag: str = "--out") -> None:
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
        raise RequestError(f"{flag}: {str(path)!r} cannot be written: {reason}.")


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
