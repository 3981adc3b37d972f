"""A network's file and the measured curves beside it, written together or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from perfsim.cluster.curves_file import write_curves
from perfsim.cluster.measured import Curve
from perfsim.cluster.network import CURVES, read_network
from perfsim.errors import RequestError

__all__ = ["write_network"]


def write_network(
    folder: Path, text: str, curves: Sequence[Curve], about: Mapping[str, str]
) -> tuple[Path, Path]:
    """Write both files, read them back, and only then put them in their place.

    Parameters
    ----------
    folder : made if it is not there
    text : of the network's file
    curves, about : measured curves, and the head of their file, which names the network

    Raises
    ------
    RequestError
        If the folder cannot be written.
    DataError
        If what would be written could not be read.
    """
    name = about["network"]
    paths = folder / f"{name}.toml", folder / f"{name}{CURVES}"
    for path in paths:
        if path.exists() and not path.is_file():
            raise RequestError(f"--out: {str(path)!r} is there and is no file.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=f".{name}.") as work:
            parts = [Path(work) / path.name for path in paths]
            parts[0].write_text(text, encoding="utf-8")
            write_curves(parts[1], curves, about, "own")
            read_network(parts[0])
            for part, path in zip(parts, paths, strict=True):
                part.replace(path)
    except OSError as error:
        told = f"--out: {str(folder)!r} cannot be written: {error.strerror}."
        raise RequestError(told) from None
    return paths
