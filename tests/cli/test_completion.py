"""Shell completion of names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from perfsim import fusion
from perfsim.cli.completion import COMPLETIONS, complete_shown_name
from perfsim.cli.main import application, code
from perfsim.data.catalog import Catalog
from perfsim.inventory import list_rows
from perfsim.methods import method_names
from perfsim.scenario import SCENARIO_FIELDS

NAMES: dict[str, set[str]] = {
    "models": {row.model for row in list_rows("models", Catalog())},
    "gpus": set(Catalog().files("devices")),
    "networks": {*Catalog().files("networks"), *Catalog().files("nodes")},
    "nodes": set(Catalog().files("nodes")),
    "methods": set(method_names()),
    "fusions": set(fusion.policy_names()),
    "scenarios": set(Catalog().scenarios()),
}


def test_every_kind_that_a_field_is_completed_with_is_there() -> None:
    completed = {field.complete for field in SCENARIO_FIELDS.values()} - {""}
    assert set(NAMES) == set(COMPLETIONS) and completed <= set(COMPLETIONS)


@pytest.mark.parametrize("kind", NAMES)
def test_all_names_that_begin_so_are_offered_in_order(kind: str) -> None:
    offered, known = COMPLETIONS[kind], NAMES[kind]
    assert offered("") == sorted(known)
    assert offered("no such name") == []
    for name in known:
        for length in (1, len(name)):
            begun = name[:length]
            assert offered(begun) == sorted(one for one in known if one[:length] == begun)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("model", "models"),
        ("gpu", "gpus"),
        ("net", "networks"),
        ("node", "nodes"),
        ("method", "methods"),
        ("scenario", "scenarios"),
    ],
)
def test_show_offers_names_of_the_kind_that_stands_before(kind: str, names: str) -> None:
    context: Any = SimpleNamespace(params={"kind": kind})
    assert complete_shown_name(context, "") == COMPLETIONS[names]("") != []
    for other in ({"kind": None}, {"kind": "nothing"}, {}):
        context.params = other
        assert complete_shown_name(context, "") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("perfsim predict --model resnet15", ["resnet152"]),
        ("perfsim predict --model qwen3-8", ["qwen3-8b"]),
        ("perfsim predict --model resnet3", ["resnet32-cifar", "resnet34"]),
        ("perfsim predict --net 40", ["40gbe", "40gbe-mpi"]),
        ("perfsim predict --net dgx-h1", ["dgx-h100"]),
        ("perfsim show node dgx-h1", ["dgx-h100"]),
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
    found = CliRunner().invoke(application(), [], prog_name="perfsim", env=asked)
    assert found.stdout.split() == expected


def test_the_command_is_perfsim_however_it_is_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell completes a command by one word, which `python -m perfsim` is not."""
    assert code(["predict", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: perfsim predict ")
    asked = {"_PERFSIM_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    for name, value in (asked | {"COMP_WORDS": "perfsim predict --model resnet15"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        code([])
    assert capsys.readouterr().out.split() == ["resnet152"]
