"""No tracked text holds what an unfinished merge leaves behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.paths import ROOT

MARKERS = r"^(<{7}|>{7}|\|{7}) ."
"""Lines by which git marks where a side of a conflict begins or ends, with that side's name."""


def marked(folder: Path) -> list[str]:
    """Return the tracked texts of a checkout that hold conflict markers."""
    words = ["git", "-C", str(folder), "grep", "-I", "-l", "-E", "-e", MARKERS]
    found = subprocess.run(words, capture_output=True, check=False)
    assert found.returncode in (0, 1), found.stderr.decode()  # 1: nothing is found
    return found.stdout.decode().splitlines()


def test_conflict_markers_are_found_and_headlines_are_not(tmp_path: Path) -> None:
    texts = {
        "ours.md": f"a\n{'<' * 7} HEAD\nb\n",
        "theirs.md": f"b\n{'>' * 7} branch\n",
        "title.rst": f"Title\n{'=' * 7}\n{'<' * 8} x\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    assert marked(tmp_path) == ["ours.md", "theirs.md"]


def test_no_tracked_text_holds_conflict_markers() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: there are no tracked files")
    assert marked(ROOT) == []
