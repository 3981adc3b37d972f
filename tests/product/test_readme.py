"""README.md and what it links to: generated parts are what the code says now, commands run."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.methods import method_names
from perfsim.models.model_types import MODEL_TYPES
from perfsim.what_if import BOTTLENECKS
from scripts import readme
from support.what_ships import SHIPPED
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


def measured_clusters() -> list[str]:
    """Return the networks that have measured or fitted curves."""
    return [
        name
        for name, path in SHIPPED.files("networks").items()
        if path.with_suffix(".curves.csv").is_file() or "\n[[curve]]" in path.read_text("utf-8")
    ]


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) >= 5 and len(readme.ANSWERS) == 5


def test_a_newcomer_reads_it_in_one_go() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert TEXT.index("pip install .") < TEXT.index("python -m pytest") < 2500


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("[{} kinds](profiles/README.md", MODEL_TYPES),
        ("one of {} [node types]", SHIPPED.files("nodes")),
        ("one of {} [methods]", method_names()),
        ("one of {} [measured clusters]", measured_clusters()),
    ],
)
def test_it_counts_what_there_is(words: str, names: Collection[str]) -> None:
    assert words.format(len(names)) in " ".join(TEXT.split())


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
