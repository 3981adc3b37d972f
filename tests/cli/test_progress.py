"""The bar on standard error that says how far a command is."""

from __future__ import annotations

import io
import sys

import pytest

from perfsim.cli.main import code
from perfsim.cli.progress import progress


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
    with progress("rows") as show:
        show(0, 40, "[first]")
        show(40, 40, "last")
    assert "40/40" in terminal.getvalue() and "[first]" in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K"), "the bar is gone when the work is done"


def test_nothing_is_shown_before_the_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with progress():
        pass
    assert not terminal.getvalue()


def test_a_bar_is_gone_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    with pytest.raises(KeyboardInterrupt), progress() as show:
        show(1, 2)
        raise KeyboardInterrupt
    assert terminal.getvalue().endswith("\x1b[2K")


def test_elsewhere_there_are_lines_where_they_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress() as show:
        show(1, 1)
    assert capsys.readouterr().err == ""
    with progress(every=2) as show:
        for done, what in ((0, "a"), (1, "b"), (2, "c"), (2, "d"), (3, "e")):
            show(done, 3, what)
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
