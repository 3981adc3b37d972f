"""``perfsim doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfsim.cli.flags import JsonFlag, ProfilesFlag
from perfsim.cli.output import print_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfsim.doctor import Diagnosis, Part

__all__ = ["doctor_command"]


def doctor_command(profiles: ProfilesFlag = None, json: JsonFlag = False) -> None:
    """Say which optional parts are installed here, and what this machine could measure."""
    from perfsim.doctor import doctor

    found = doctor(profiles)
    print_answer(found.to_dict, None, json, lambda: _show(found))


def _show(found: Diagnosis) -> None:
    """Print a diagnosis, a line a part."""
    from perfsim.report.terminal import PAGE_COLUMNS, print_lines

    print_lines(
        [f"perfsim {found.perfsim}, Python {found.python}, {found.system}"], most=PAGE_COLUMNS
    )
    _print_parts("optional parts", found.optional)
    _print_parts("for measuring here (perfsim calibrate)", found.measuring)
    print("\nyour own data files")
    files = [path for paths in found.own_files.values() for path in paths]
    print_lines(files or ["none; all that ships is read"], "  ", "    ", PAGE_COLUMNS)


def _print_parts(title: str, parts: Sequence[Part]) -> None:
    from perfsim.report.terminal import PAGE_COLUMNS, print_lines

    print(f"\n{title}")
    for part in parts:
        words = part.found if part.there else f"missing: {part.mend}"
        mark = "ok" if part.there else "--"
        print_lines([f"{mark}  {part.purpose}: {words}"], "  ", "      ", PAGE_COLUMNS)
