"""The same question gives the same bytes in processes of other hash seeds, locales and folders.

Some commands; ``python tests/scripts/determinism.py --full`` runs all of them.
"""

from __future__ import annotations

from pathlib import Path

from scripts import determinism


def test_the_same_bytes_in_other_processes(tmp_path: Path) -> None:
    names = ["predict --json", "predict", "compare", "sweep", "explain", "show", "--trace"]
    one, other = (
        determinism.digests(names, determinism.SETTINGS[place], folder)
        for place, folder in ((1, str(tmp_path)), (2, "/"))
    )
    assert one == other
    assert list(one) == names and not any("exit code" in told for told in one.values())
