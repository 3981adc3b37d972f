"""Jobs kept for other scenarios of the same model, method and ranks, where costs had no say."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

from perfsim.kernel import Kernel
from perfsim.stage import Group, Job
from perfsim.world import World

__all__ = ["Asked", "KeptJobs"]

MOST = 512
"""So many are kept; then all are dropped."""


class Asked:
    """Whether what things cost was asked for while jobs were made."""

    def __init__(self) -> None:
        self.yes = False

    def told(self, world: World) -> World:
        """Return the world with its costs noted when they are asked for."""

        def collective_s(collective: str, size_bytes: float, group: Group = "all") -> float:
            self.yes = True
            return world.collective_s(collective, size_bytes, group)

        def kernel_s(kernel: Kernel) -> float:
            self.yes = True
            return world.kernel_s(kernel)

        return replace(world, collective_s=collective_s, kernel_s=kernel_s)


class KeptJobs:
    """Jobs by all that they depend on besides costs; those that costs decided are made anew.

    Examples
    --------
    >>> kept, asked = KeptJobs(), Asked()
    >>> kept.of(("ssgd", 8), None, asked, list) is kept.of(("ssgd", 8), None, asked, list)
    True
    >>> asked.yes = True
    >>> kept.of(("bsp", 8), None, asked, list) is kept.of(("bsp", 8), None, asked, list)
    False
    """

    def __init__(self) -> None:
        self._jobs: dict[tuple[Hashable, ...], tuple[Any, list[Job]]] = {}

    def of(
        self, key: tuple[Hashable, ...], alive: Any, asked: Asked, make: Callable[[], list[Job]]
    ) -> list[Job]:
        """Return the jobs of a key; ``alive`` is what the key names by identity."""
        found = self._jobs.get(key)
        if found is not None:
            return found[1]
        jobs = make()
        if not asked.yes:
            if len(self._jobs) >= MOST:
                self._jobs.clear()
            self._jobs[key] = alive, jobs
        return jobs
