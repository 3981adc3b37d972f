"""``--help``: a page of 80 columns for everything, and examples that run as they stand."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from perfsim.cli.grouped_help import HELP_GROUPS
from perfsim.cli.help import EXAMPLES, HELP_REFERENCE
from perfsim.cli.main import application, code
from perfsim.scenario import SCENARIO_FIELDS
from support.workplace import furnish

COMMAND = typer.main.get_command(application())
OVERVIEW_EXAMPLES = [
    line.strip()
    for line in HELP_REFERENCE.splitlines()
    if line.startswith("  perfsim ") and " --" in line
]
SEARCHES = ("--over parallelism", "--global-batch 1024")
"""Examples that search divisions of large models, as `test_parallelism.py` does: only parsed."""
NOT_RUN = (
    *("calibrate network", "calibrate compute", "calibrate kernels", "validate claims"),
    "app",
)
"""They measure this machine, run in `test_claims.py`, or serve until they are stopped: their
examples are only parsed."""


def commands(of: Any = COMMAND, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its words, groups before what is in them."""
    yield path, of
    for name, one in getattr(of, "commands", {}).items():
        yield from commands(one, f"{path} {name}".strip())


def words(example: str) -> list[str]:
    """Return what stands behind ``perfsim`` in an example."""
    split = shlex.split(example.replace("\\\n", " "))
    return split[split.index("perfsim") + 1 :]


def shown() -> list[tuple[str, str]]:
    """Return (command, example): those of every page, each once."""
    found = {example: command for command, all_ in EXAMPLES.items() for example in all_}
    found |= {example: words(example)[0] for example in OVERVIEW_EXAMPLES}
    return [(command, example) for example, command in found.items()]


def test_every_command_has_examples_of_itself() -> None:
    assert set(EXAMPLES) == {path for path, _ in commands() if path}
    for command, example in shown():
        assert words(example)[: len(command.split())] == command.split()
    assert len(OVERVIEW_EXAMPLES) == 5


@pytest.mark.parametrize("command", [path for path, _ in commands()])
def test_a_page_is_80_columns_wide_and_ends_with_its_examples(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert code([*command.split(), "--help"]) == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert "..." not in page.partition("Commands:")[2].partition("Example")[0].replace(", ...", "")
    if not command:
        for title in ("Examples:", "Files and environment:", "Units", "Exit codes:"):
            assert f"\n  {title}" in page
        return
    below = page[page.index("\n  Example") :].replace("\n  ", "\n").partition(":\n")[2]
    assert [line.strip() for line in below.splitlines()] == [
        line.strip() for example in EXAMPLES[command] for line in example.splitlines()
    ]


@pytest.mark.parametrize(("command", "example"), shown(), ids=[one for _, one in shown()])
def test_an_example_runs(
    command: str,
    example: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    searches = any(one in example for one in SEARCHES)
    if command in NOT_RUN or searches or words(example)[:2] == ["calibrate", "compute"]:
        of = COMMAND
        given = words(example)
        while hasattr(of, "commands"):
            of = of.commands[given.pop(0)]
        assert of.make_context(command, given).params  # a usage error would be raised
        return
    monkeypatch.chdir(furnish(tmp_path))
    left = code(words(example))
    said = capsys.readouterr()
    assert said.out and (left == 0 or (left == 4 and command.startswith("validate"))), said.err


def test_every_field_is_in_one_group_of_the_help() -> None:
    grouped = [name for names in HELP_GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    flags = {
        "set_" if name == "options" else name for name, one in SCENARIO_FIELDS.items() if one.flag
    }
    assert flags <= set(grouped)


def test_all_options_stand_in_groups_and_h_shows_the_common_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert code(["predict", "--help"]) == 0
    page = capsys.readouterr().out
    assert ["Arguments:", *(f"{title}:" for title in HELP_GROUPS)] == [
        line for line in page.splitlines() if line.endswith(":") and not line.startswith(" ")
    ]
    assert all(page.count(f"\n  --{name} ") == 1 for name in ("model", "tp", "straggler"))
    assert "[default: (" not in page
    assert code(["predict", "-h"]) == 0
    brief = capsys.readouterr().out
    assert len(brief.splitlines()) < 45 and "--model" in brief and "--stage-layers" not in brief
    assert " predict --help shows all" in brief
    assert code(["compare", "-h"]) == 0
    assert "--methods" in capsys.readouterr().out
    assert code(["list", "-h"]) == 0  # few options: all, with the examples
    assert "Examples:" in capsys.readouterr().out
