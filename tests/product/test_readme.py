"""README.md and what it links to: generated parts are what the code says now, commands run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.what_if import BOTTLENECKS
from scripts import readme
from support.workplace import furnish

TEXT = readme.README.read_text(encoding="utf-8")
COMMANDS = [
    line.removeprefix("perfsim ")
    for part in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in part.splitlines()
    if line.startswith("perfsim ")
]


@pytest.mark.parametrize("document", readme.DOCUMENTS)
def test_generated_parts_have_not_drifted(document: str) -> None:
    written = (readme.ROOT / document).read_text(encoding="utf-8")
    assert readme.generated(document) == written, "run python tests/scripts/readme.py"


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) >= 5 and len(readme.ANSWERS) == 5


def test_a_newcomer_reads_it_in_one_go() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert TEXT.index("pip install .") < TEXT.index("python -m pytest") < 2500


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the README's commands read."""
    return furnish(tmp_path_factory.mktemp("readme"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_runs(
    command: str,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workplace)
    assert code(command.split()) == 0
    assert capsys.readouterr().out


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "'backward'" in printed and "is first at the same accuracy" in printed
    assert printed.split()[1] in BOTTLENECKS
