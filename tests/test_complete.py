"""Shell completion: names that exist, that begin as asked, in order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from perfsim import fusion
from perfsim.cli import options as complete
from perfsim.cli.main import app
from perfsim.data.catalog import Catalog
from perfsim.methods import method_names

NAMES: list[tuple[Callable[[str], list[str]], set[str]]] = [
    (complete.complete_models, {name.split(".")[0] for name in Catalog().files("models")}),
    (complete.complete_gpus, set(Catalog().files("devices"))),
    (complete.complete_networks, set(Catalog().files("networks"))),
    (complete.complete_methods, set(method_names())),
    (complete.complete_fusions, set(fusion.policies())),
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
