"""Which figures of NCCL's tuning model hold for a version, and the names they go by."""

from __future__ import annotations

from perfsim.errors import MAX_QUOTED, RequestError, shown
from perfsim.libraries.nccl_record import FigureRows, Triple, VersionFigures
from perfsim.libraries.nccl_tables import ALL

__all__ = [
    "ALGORITHMS",
    "ARCHITECTURES",
    "PROTOCOLS",
    "FigureRows",
    "Triple",
    "VersionFigures",
    "figures",
    "parse_version",
]

PROTOCOLS = ("ll", "ll128", "simple")

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
"""In the order in which NCCL compares them: of two equal times the first wins."""

ARCHITECTURES = {
    "kepler": 35,
    "maxwell": 50,
    "pascal": 60,
    "volta": 70,
    "turing": 75,
    "ampere": 80,
    "ampere_rtx": 86,
    "ada": 89,
    "hopper": 90,
    "blackwell": 100,
}
"""Compute capability of a GPU generation (ampere: A100; ampere_rtx: RTX 30, A40)."""


def parse_version(text: str) -> tuple[int, int]:
    """Return major and minor of a version such as 2.18.3 (2.30 for every later one too).

    Raises
    ------
    RequestError
        If it is no version, or one before 2.4, which had only rings and no model.

    Examples
    --------
    >>> parse_version("2.18.3"), parse_version("2.4")
    ((2, 18), (2, 4))
    """
    parts = text.strip().removeprefix("v").split(".")
    numbers = [part for part in parts[:2] if part.isdecimal() and len(part) <= MAX_QUOTED]
    if len(numbers) < 2:
        raise RequestError(f"version: {shown(text)} is not a version of NCCL such as 2.18.3.")
    version = int(parts[0]), int(parts[1])
    if version < (2, 4):
        raise RequestError(
            f"version: NCCL {shown(text)} has no tuning model; it has one from 2.4 on."
        )
    return version


def figures(version: str) -> VersionFigures:
    """Return the figures of one version, those of the last tag that changed them.

    Examples
    --------
    >>> figures("2.22.3").tag
    'v2.21.5-1'
    """
    number = parse_version(version)
    if number < ALL[0].since:
        raise RequestError("version: NCCL 2.4 chooses by a threshold, not by a time a pair.")
    return next(entry for entry in reversed(ALL) if entry.since <= number)
