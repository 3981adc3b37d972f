"""A session: a catalog that keeps what it has read, for questions of many predictions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

from perfsim.catalog import Catalog, Made
from perfsim.kept_jobs import KeptJobs

__all__ = ["Session"]

MOST = 4096
"""So many things are kept (a cluster with its costs is the largest); then all are dropped."""


class Session(Catalog):
    """A catalog that reads each file once, and keeps profiles, devices, networks and clusters.

    Predictions with it are those of a plain catalog. Files that change meanwhile are not seen.

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

    def once(self, key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
        """Return what ``make`` made the first time that ``key`` was asked for."""
        if key in self._kept:
            kept: Made = self._kept[key]
            return kept
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
