"""A network's file and the measured curves beside it, written together or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from perfsim.cluster.curves_file import write_curves
from perfsim.cluster.measured import Curve
from perfsim.cluster.network import CURVES, read_network
from perfsim.errors import DataError, RequestError

__all__ = ["write_network"]


def write_network(
    folder: Path,
    text: str,
    curves: Sequence[Curve],
    about: Mapping[str, str],
    *,
    replaces: bool = False,
) -> tuple[Path, Path]:
    """Write both files, read them back, and only then put them in their place.

    Parameters
    ----------
    folder : made if it is not there
    text : of the network's file
    curves, about : measured curves, and the head of their file, which names the network
    replaces : whether files of that name may be replaced

    Raises
    ------
    RequestError
        If the folder cannot be written, or the network is there already.
    DataError
        If what would be written could not be read.
    """
    name = about["network"]
    paths = folder / f"{name}.toml", folder / f"{name}{CURVES}"
    for path in paths:
        if path.exists() and not path.is_file():
            raise RequestError(f"--out: {str(path)!r} is there and is no file.")
        if path.exists() and not replaces:
            raise RequestError(f"--name: {str(path)!r} is there already; --force replaces it.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=f".{name}.") as work:
            parts = [Path(work) / path.name for path in paths]
            parts[0].write_text(text, encoding="utf-8")
            write_curves(parts[1], curves, about, "own")
            _read_back(parts[0])
            for part, path in zip(parts, paths, strict=True):
                part.replace(path)
    except OSError as error:
        told = f"--out: {str(folder)!r} cannot be written: {error.strerror}."
        raise RequestError(told) from None
    return paths


def _read_back(path: Path) -> None:
    try:
        read_network(path)
    except DataError as error:
        told = str(error).partition(f"{path.name}: ")[2] or str(error)
        raise DataError(
            f"what was measured makes no network ({told}); is a time or size in another unit?"
        ) from None
