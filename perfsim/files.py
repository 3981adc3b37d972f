"""Files that are whole or not there."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from perfsim.errors import RequestError

__all__ = ["check_writable", "write_bytes", "write_text"]


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
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise RequestError(f"{flag}: {str(path)!r} cannot be written: {error.strerror}.") from None


def check_writable(path: Path, flag: str = "--out") -> None:
    """Refuse a file that could not be written, before any work.

    Raises
    ------
    RequestError
        If its folder does not exist or may not be written, or it is a folder.
    """
    target = path.resolve()
    folder = target.parent
    reason = ""
    if target.is_dir():
        reason = "it is a folder"
    elif target.exists() and not os.access(target, os.W_OK):
        reason = "permission denied"
    elif target.exists() and not target.is_file():
        pass  # a device or a pipe is written to as it is
    elif not folder.is_dir():
        reason = "its folder does not exist"
    elif not os.access(folder, os.W_OK):
        reason = "permission denied"
    if reason:
        raise RequestError(f"{flag}: {str(path)!r} cannot be written: {reason}.")


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
