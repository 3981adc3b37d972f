"""Figures of the benchmarks as they were recorded, and which of them got worse beyond noise.

A line of ``history.jsonl`` is one figure of one run: date, commit, machine, Python, versions of
packages, load, what was measured, its value and unit. A figure is compared with those before it of
the same machine and Python; what was recorded beside other work is shown and never compared with.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Entry", "append", "is_worse", "read", "report"]

MAX_LOAD = 1.5
"""Load up to which a run counts: its own, and a little. No source: chosen for 2 CPUs."""
MIN_CHANGE = 0.1
"""Share by which a figure must get worse to be named: least CPU times repeat within 5 to 8 %."""
SPREADS = 4.0
"""Median absolute deviations of the earlier figures by which it must get worse, too."""
SHOWN = 5
"""Values of a figure that are shown, the newest last."""


@dataclass(frozen=True)
class Entry:
    """One figure of one run; ``least`` says that more is better."""

    date: str
    commit: str
    machine: str
    python: str
    versions: dict[str, str]
    load: float
    what: str
    value: float
    unit: str
    least: bool = False

    @property
    def quiet(self) -> bool:
        """Whether the machine did little else."""
        return self.load <= MAX_LOAD


def append(path: Path, entries: Iterable[Entry]) -> None:
    """Add figures to a history."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(entry)) + "\n" for entry in entries)


def read(path: Path) -> list[Entry]:
    """Return the figures of a history, oldest first; none where there is no file.

    Raises
    ------
    ValueError
        If a line is no figure; names the line.
    """
    found = []
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Entry(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: no figure ({error})") from None
    return found


def is_worse(entry: Entry, before: Iterable[Entry]) -> bool:
    """Say whether a figure is worse than the earlier ones of its kind, beyond their noise.

    Worse is both `MIN_CHANGE` and `SPREADS` median absolute deviations away from their median.
    """
    earlier = [one.value for one in before if one.quiet and _alike(one, entry)]
    if not earlier or not entry.quiet:
        return False
    usual = statistics.median(earlier)
    spread = statistics.median(abs(value - usual) for value in earlier)
    change = usual - entry.value if entry.least else entry.value - usual
    return change > max(MIN_CHANGE * usual, SPREADS * spread)


def _alike(one: Entry, other: Entry) -> bool:
    return (one.what, one.unit, one.machine, one.python) == (
        other.what,
        other.unit,
        other.machine,
        other.python,
    )


def report(entries: list[Entry]) -> list[str]:
    """Return a line a figure with its last values, then one that names what got worse."""
    kinds: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        key = (entry.what, entry.unit, entry.machine, entry.python)
        kinds.setdefault(key, []).append(entry)
    lines, worse = [], []
    for (what, unit, _, _), found in kinds.items():
        values = " ".join(f"{one.value:.4g}{'' if one.quiet else '~'}" for one in found[-SHOWN:])
        flag = is_worse(found[-1], found[:-1])
        worse += [f"{what} (since {found[-1].commit})"] if flag else []
        lines.append(f"{what[:70]:72}{values:40} {unit}{'  WORSE' if flag else ''}")
    lines.append(f"~: beside a load of more than {MAX_LOAD:g}, compared with nothing")
    lines.append(f"worse beyond noise: {'; '.join(worse) or 'none'}")
    return lines
