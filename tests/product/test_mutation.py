"""The stored results of `scripts/mutation/run.py`: what survives is told why, and still stands."""

from __future__ import annotations

import re
import tomllib

from support.paths import ROOT, TESTS

HERE = TESTS / "scripts" / "mutation"
RESULTS = (HERE / "results.txt").read_text(encoding="utf-8")
SURVIVORS = tomllib.loads((HERE / "survivors.toml").read_text("utf-8"))["survivor"]

WAIT = 0
"""Changes that wait for a test since 2026-12-01; none may come."""


def test_nine_of_ten_changes_are_noticed() -> None:
    """By stored output: the counts that the command printed last."""
    mutants, killed = (
        int(found.group(1))
        for word in ("mutants", "killed")
        if (found := re.search(rf"^{word}: (\d+)", RESULTS, re.MULTILINE))
    )
    assert mutants > 1000 and killed >= 0.9 * mutants
    assert RESULTS.count("NOT EXPLAINED") <= WAIT


def test_what_survives_is_still_in_its_file() -> None:
    """By documentation: a reason whose line has gone explains nothing."""
    for one in SURVIVORS:
        lines = " ".join((ROOT / one["file"]).read_text("utf-8").split())
        out, into = (" ".join(one[key].split()) for key in ("out", "into"))
        assert out in lines, one
        assert into not in lines and one["why"], one


def test_a_diff_is_read_as_what_goes_and_what_comes() -> None:
    from scripts.mutation import run

    diff = (
        "# a.x_f__mutmut_1: survived\n--- a.py\n+++ a.py\n@@ -1 +1 @@\n f\n-    x = 1\n+    x = 2"
    )
    change = run.changed(diff)
    assert change == ("a.py", "x = 1", "x = 2")
    known = [{"file": "a.py", "out": "x = 1", "into": "x = 2", "why": "nobody reads x"}]
    assert run.reason(change, known) == "nobody reads x"
    assert run.reason(("b.py", *change[1:]), known) == ""
    assert (
        run.shown(change, "") == "a.py\n  - x = 1\n  + x = 2\n  NOT EXPLAINED: a test is missing\n"
    )


def test_registered_functions_are_changed_too() -> None:
    """Mutmut skips what is decorated: the copy registers it by a call."""
    from scripts.mutation import run

    source = '@policy(\n    "none", summary="one"\n)\ndef fuse(a):\n    return a\n\n\nX = 1'
    text = run.undecorated(source)
    assert text.startswith("def fuse(a):\n    return a\n\npolicy('none', summary='one')(fuse)")
    assert text.endswith("\n\nX = 1")
    for path in (*(ROOT / "perfsim" / "fusion").glob("*.py"),):
        assert "@policy" not in run.undecorated(path.read_text("utf-8")).replace("`", "")
