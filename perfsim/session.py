"""A session: a catalog that keeps what it has read, for questions of many predictions."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from perfsim.catalog import SUFFIXES, Catalog, Made
from perfsim.kept_jobs import KeptJobs
from perfsim.seen import changed, noting, stamp

__all__ = ["Session", "jobs_of", "standing"]

MOST = 512
"""So many things are kept (a cluster with its costs is the largest); then all are dropped."""


class Session(Catalog):
    """A catalog that reads each file once, and keeps profiles, devices, networks and clusters.

    Predictions with it are those of a plain catalog. Files that change meanwhile are not seen,
    unless `outdated` is asked.

    Examples
    --------
    >>> from perfsim.prediction import predict
    >>> from perfsim.scenario import make_scenario
    >>> asked, session = make_scenario({"model": "resnet50", "gpus": 16}), Session()
    >>> predict(asked, session).iteration_s == predict(asked).iteration_s
    True
    """

    def __init__(self, profiles: str | Path | None = None) -> None:
        super().__init__(profiles)
        self._kept: dict[tuple[Hashable, ...], Any] = {}
        self._files: dict[str, dict[str, Path]] = {}
        self.jobs = KeptJobs()
        looked = [Path("profiles"), *(one / kind for one in self.folders for kind in SUFFIXES)]
        self._read = {str(path): stamp(str(path)) for path in looked}

    def once(self, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        """Return what ``make`` made the first time that ``key`` was asked for."""
        if key in self._kept:
            kept: Made = self._kept[key]
            return kept
        with noting(self._read):
            made = make()
        if len(self._kept) >= MOST:
            self._kept.clear()
        self._kept[key] = made
        return made

    def files(self, kind: str) -> dict[str, Path]:
        """Return file stem -> path for one kind, as found the first time."""
        if kind not in self._files:
            self._files[kind] = super().files(kind)
        return self._files[kind]

    def outdated(self) -> bool:
        """Tell whether a file that was read, or what a folder holds, is another now."""
        return changed(self._read)


_STANDING: dict[tuple[str, str], Session] = {}


def standing() -> Session:
    """Return the session of this process, a new one where files have changed.

    It is what ``predict()`` takes where it is given no catalog. Another folder or ``PERFSIM_PATH``
    has a session of its own.

    Examples
    --------
    >>> standing() is standing()
    True
    """
    here = os.getcwd() if os.path.exists(".") else "", os.environ.get("PERFSIM_PATH", "")
    found = _STANDING.get(here)
    if found is None or found.outdated():
        _STANDING.clear()
        found = _STANDING[here] = Session()
    return found


def jobs_of(catalog: Catalog) -> KeptJobs | None:
    """Return the jobs that a session keeps for other scenarios; a plain catalog keeps none."""
    return catalog.jobs if isinstance(catalog, Session) else None
