"""README.md: its generated parts are what the code says now, and its commands run."""

from __future__ import annotations

import re

import pytest
import readme

from perfsim.cli.main import code
from perfsim.whatif import BOTTLENECKS

TEXT = readme.README.read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("perfsim ")
    for part in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in part.splitlines()
    if line.startswith("perfsim ")
]


def test_generated_parts_have_not_drifted() -> None:
    assert readme.generated() == TEXT, "run python tests/readme.py"


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(command.split()) == 0
    assert capsys.readouterr().out


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "'backward'" in printed
    assert printed.split()[1] in BOTTLENECKS
