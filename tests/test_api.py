"""The Python API: names of the package, loaded when they are used."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import perfsim

HEAVY = ("numpy", "pydantic", "networkx", "simpy", "rich", "pandas", "typer")


def test_importing_perfsim_loads_nothing_heavy() -> None:
    code = "import sys, perfsim; perfsim.__version__; print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = told.stdout.split()
    assert "perfsim" in loaded and not set(HEAVY) & set(loaded)
    assert not [name for name in loaded if name.startswith("perfsim.")]


def test_the_names_are_those_of_the_library() -> None:
    from perfsim.planning.compare import compare
    from perfsim.prediction import predict
    from perfsim.scenario import Scenario

    assert perfsim.Scenario is Scenario
    assert perfsim.predict is predict and perfsim.compare is compare


def test_sweep_is_looked_for_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("perfsim.planning.sweep")
    module.sweep = print  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "perfsim.planning.sweep", module)
    assert perfsim.sweep is print


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'perfsim' has no attribute 'forecast'"):
        perfsim.forecast  # noqa: B018
