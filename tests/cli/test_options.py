"""Shell completion of names, and the bar that says how far a command is."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from perfsim.cli.options import progress
from typer.testing import CliRunner

from perfsim import fusion
from perfsim.cli import options as complete
from perfsim.cli.main import app, code
from perfsim.data.catalog import Catalog
from perfsim.methods import method_names

NAMES: list[tuple[Callable[[str], list[str]], set[str]]] = [
    (complete.complete_models, {name.split(".")[0] for name in Catalog().files("models")}),
    (complete.complete_gpus, set(Catalog().files("devices"))),
    (complete.complete_networks, set(Catalog().files("networks"))),
    (complete.complete_methods, set(method_names())),
    (complete.complete_fusions, set(fusion.policy_names())),
    (complete.complete_scenarios, set(Catalog().scenarios())),
]


@pytest.mark.parametrize(
    ("offered", "known"), NAMES, ids=[offered.__name__ for offered, _ in NAMES]
)
def test_all_names_that_begin_so_are_offered_in_order(
    offered: Callable[[str], list[str]], known: set[str]
) -> None:
    assert offered("") == sorted(known)
    assert offered("no such name") == []
    for name in known:
        for length in (1, len(name)):
            begun = name[:length]
            assert offered(begun) == sorted(one for one in known if one[:length] == begun)


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("model", complete.complete_models),
        ("gpu", complete.complete_gpus),
        ("net", complete.complete_networks),
        ("method", complete.complete_methods),
        ("scenario", complete.complete_scenarios),
    ],
)
def test_show_offers_names_of_the_kind_that_stands_before(kind: str, own: Any) -> None:
    context: Any = SimpleNamespace(params={"kind": kind})
    assert complete.complete_things(context, "") == own("") != []
    for other in ({"kind": None}, {"kind": "nothing"}, {}):
        context.params = other
        assert complete.complete_things(context, "") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("perfsim predict --model resnet15", ["resnet152"]),
        ("perfsim predict --net 40", ["40gbe"]),
        ("perfsim show gpu rtx2070", ["rtx2070-super"]),
        ("perfsim expl", ["explain"]),
    ],
)
def test_bash_is_told_what_may_stand_there(line: str, expected: list[str]) -> None:
    asked = {
        "_PERFSIM_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    found = CliRunner().invoke(app, [], prog_name="perfsim", env=asked)
    assert found.stdout.split() == expected


class Terminal(io.StringIO):
    """Standard error as a terminal has it."""

    def isatty(self) -> bool:
        """Say that a person looks at it."""
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put standard error on a terminal; no fixture, since pytest sets its own after those."""
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def test_a_bar_tells_how_many_and_what(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with progress("rows") as tell:
        tell(0, 40, "[first]")
        tell(40, 40, "last")
    assert "40/40" in terminal.getvalue() and "[first]" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K"), "the bar is gone when the work is done"


def test_nothing_is_shown_before_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with progress():
        pass
    assert not terminal.getvalue()


def test_a_bar_is_gone_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), progress() as tell:
        tell(1, 2)
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith("\x1b[2K")


def test_elsewhere_there_are_lines_where_they_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress() as tell:
        tell(1, 1)
    assert capsys.readouterr().err == ""
    with progress(every=2) as tell:
        for done, what in ((0, "a"), (1, "b"), (2, "c"), (2, "d"), (3, "e")):
            tell(done, 3, what)
    assert capsys.readouterr().err == "perfsim: 2 of 3: c\nperfsim: 3 of 3: e\n"


@pytest.mark.parametrize(
    "asked",
    [
        "sweep --model resnet50 --vary gpus=8,16",
        "compare --model resnet50 --gpus 8 --methods ssgd,dgc",
        "plan --model resnet50 --dataset 1000samples --epochs 1 --gpus 8 --method ssgd --json",
    ],
)
def test_commands_show_it_and_leave_standard_output_alone(
    asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(asked.split()) == 0
    plain = capsys.readouterr()
    assert not plain.err
    terminal = at_terminal(monkeypatch)
    assert code(asked.split()) == 0
    assert "━" in terminal.getvalue()
    assert capsys.readouterr().out == plain.out
