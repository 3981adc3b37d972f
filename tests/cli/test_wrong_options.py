"""Every option of every command with what it cannot mean: exit 2 or 3, one sentence.

Each option once, with a value by turns; ``python tests/scripts/fuzz --options`` asks with all of
them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsim.cli.main import COMMANDS, code
from scripts.fuzz.options import BASES, wrong_answer, wrong_options, wrong_values

EVERY = 37


def test_a_wrong_option_is_refused_in_one_sentence() -> None:
    count, found = wrong_options(EVERY, 11)
    assert found == [] and count > 150


def test_every_command_is_asked_and_every_option_gets_a_turn() -> None:
    questions = list(wrong_values())
    assert {command.split()[0] for command, _, _ in questions} == set(COMMANDS)
    assert set(BASES) == {command for command, _, _ in questions}
    taken = {(command, name) for command, name, _ in questions[11::EVERY]}
    assert len(taken) > 0.5 * len({(command, name) for command, name, _ in questions})


def test_what_a_wrong_answer_looks_like(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(words: list[str]) -> int:
        print("perfsim: internal error (KeyError: 'x')")
        return 1

    monkeypatch.setattr("scripts.fuzz.options.code", fails)
    assert wrong_answer("predict", "--gpus", "x").startswith("exit code 1")


def test_a_name_too_long_and_a_letter_of_no_alphabet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["predict", "--model", "resnet20-cifar", "--gpus", "8", "--out"]
    assert code([*asked, str(tmp_path / ("x" * 300))]) == 2
    assert "cannot be written: File name too long" in capsys.readouterr().err
    assert code(["validate", "nccl", "--data", "x" * 300]) == 2
    assert capsys.readouterr().err.endswith("File name too long.\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter any folder")
def test_a_folder_that_may_not_be_entered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "closed").mkdir(0)
    assert code(["validate", "nccl", "--data", str(tmp_path / "closed" / "x")]) == 3
    assert capsys.readouterr().err.endswith("Permission denied.\n")
