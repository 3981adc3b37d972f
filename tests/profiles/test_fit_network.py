"""Networks fitted on exposed communication: the search, and rates found again."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fit_network
from fit_network import NETWORK_MARK, FittedRow, best_rate, fit_rates, fitted_rows
from perfsim.data.catalog import Catalog
from perfsim.errors import RequestError
from perfsim.network.network_file import read_network
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.validate.cases import Case
from perfsim.validate.mapping import MappingRule

RATES = {"inter": 0.8, "intra": 3.0}
"""Rates of the network that the rows come from [GB/s]."""


def network(rates: dict[str, float]) -> dict[str, Any]:
    """Return a network of two links as TOML has it; a tree is half as fast as a ring."""

    def number(value: str) -> dict[str, str]:
        return {"value": value, "kind": "derived", "source": "made up"}

    links = [
        {
            "class": of,
            "rate": number(f"{rate}GB/s"),
            "tree_rate": number(f"{rate / 2}GB/s"),
            "gamma": number("0s/B"),
            "alpha": number("20us"),
        }
        for of, rate in rates.items()
    ]
    head = {"schema": "perfsim/network/1", "name": "own", "title": "made up", "transport": "tcp"}
    return {**head, "gpus_per_node": 8, "notes": ["kept"], "link": links}


def rows(path: Path) -> list[FittedRow]:
    """Return exposed communication on 2, 4 and 8 GPUs of a node and on two such nodes."""
    path.write_text(tomli_w.dumps(network(RATES)))
    found: list[FittedRow] = []
    for gpus, nodes in ((2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (16, 2)):
        fields = {"model": "alexnet", "gpus": gpus, "gpus_per_node": gpus // nodes}
        scenario = make_scenario(fields | {"net": str(path)})
        measured_s = predict(scenario).breakdown_s["communication_exposed"]
        found.append(FittedRow(f"x-{len(found)}", scenario, measured_s))
    return found


def test_rates_are_found_again(tmp_path: Path) -> None:
    told = rows(tmp_path / "own.toml")
    found = fit_rates(network({"inter": 9.0, "intra": 9.0}), told, "a paper")
    path = tmp_path / "own.toml"
    path.write_text(tomli_w.dumps(found))
    made = read_network(path)
    for of, rate in RATES.items():
        assert made.links[of].rate.value == pytest.approx(rate * 1e9, rel=0.01)
        assert made.links[of].tree_rate.value == pytest.approx(rate * 0.5e9, rel=0.01)
        assert made.links[of].rate.kind == "fitted"
    assert made.links["intra"].ranks == (2, 8)
    assert made.links["inter"].ranks == (2, 16)
    assert made.notes == ("kept",)
    for row in told:
        predicted = predict(row.at(path)).breakdown_s["communication_exposed"]
        assert predicted == pytest.approx(row.measured_s, rel=0.02)


def test_what_no_row_tells_of_stays(tmp_path: Path) -> None:
    inside = [row for row in rows(tmp_path / "own.toml") if row.link_class == "intra"]
    start = network({"inter": 9.0, "intra": 9.0})
    found = fit_rates(start, inside, "a paper")
    assert tomllib.loads(tomli_w.dumps(found))["link"][0] == start["link"][0]


def test_the_search_stays_in_its_limits() -> None:
    assert best_rate(lambda rate: rate, 1.0, 100.0) == pytest.approx(1.0, rel=0.01)
    assert best_rate(lambda rate: -rate, 1.0, 100.0) == pytest.approx(100.0, rel=0.01)
    # Of two valleys the deeper one.
    assert best_rate(lambda rate: min((rate - 2) ** 2 + 1, abs(rate - 50) / 10), 1.0, 100.0) == (
        pytest.approx(50.0, rel=0.01)
    )


def test_only_marked_exposed_communication_calibrates() -> None:
    def case(name: str, metric: str, batch: str) -> Case:
        words = ("S-SGD", "resnet50", "v100", "4", "2", "wire", batch, "", "", metric)
        return Case(name, *words, 0.1, "")

    fields = {"model": "resnet50", "gpu": "v100", "method": "ssgd", "net": "10gbe"}
    what = NETWORK_MARK.removeprefix("calibrates ")
    rules = [
        MappingRule({}, fields, {}),
        MappingRule({"batch_per_gpu": "16"}, {}, {}, None, f"{what} (two nodes)"),
    ]
    cases = [
        case("g-1", "exposed_comm_s", "16"),
        case("g-2", "iteration_s", "16"),
        case("g-3", "exposed_comm_s", "32"),
    ]
    found = fitted_rows(cases, rules, "g", Catalog())
    assert [row.name for row in found] == ["g-1"]
    # Its step and exposed communication are both marked, but they leave nothing for computation.
    assert found[0].link_class == "inter"
    with pytest.raises(RequestError, match="no case of 'h'"):
        fitted_rows(cases, rules, "h", Catalog())


def test_the_command_writes_the_network_that_fits_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = rows(tmp_path / "own.toml")[-1:]
    start = tmp_path / "start.toml"
    start.write_text(tomli_w.dumps(network({"inter": 9.0, "intra": 9.0})))
    case = Case("g-1", *[""] * 9, "exposed_comm_s", 0.1, "", provenance="table 3")
    monkeypatch.setattr(fit_network, "read_cases", lambda _: [case])
    monkeypatch.setattr(fit_network, "read_rules", lambda _: [])
    monkeypatch.setattr(fit_network, "fitted_rows", lambda *_: told)
    monkeypatch.setattr(fit_network, "network_cases", lambda *_: [case])
    out = tmp_path / "out"
    out.mkdir()
    words = ["--measurements", "cases.csv", "--group", "g", "--start", start, "--out", out]
    monkeypatch.setattr(sys, "argv", ["command", *map(str, words)])
    fit_network.main()
    [path] = out.iterdir()
    assert path.name == "own.toml"
    made = read_network(path)
    assert made.links["inter"].rate.value == pytest.approx(RATES["inter"] * 1e9, rel=0.01)
    assert made.links["intra"].rate.value == pytest.approx(9e9)
    assert "exposed communication of table 3, rows x-5" in str(made.links["inter"].rate.source)
