"""Which methods are compared, and which options are for which of them."""

from __future__ import annotations

import pytest
from comparisons import FIELDS

from perfsim.errors import RequestError
from perfsim.methods import method_names
from perfsim.planning.compare import chosen_methods, compare, options_of_each, own_method
from perfsim.scenario import make_scenario


@pytest.mark.parametrize(
    ("given", "own", "names"),
    [
        ("SSGD, top-k,,ssgd", None, ["ssgd", "topk"]),
        (["dgc"], "ssgd", ["dgc", "ssgd"]),
        (["dgc"], "dgc", ["dgc"]),
    ],
)
def test_chosen_methods(given: str | list[str], own: str | None, names: list[str]) -> None:
    assert chosen_methods(given, own) == names


def test_all_methods_are_compared_where_none_is_named() -> None:
    assert chosen_methods(None, "dgc") == method_names()


def test_the_own_method_is_one_that_was_stated() -> None:
    assert own_method(make_scenario(FIELDS)) is None
    assert own_method(make_scenario(FIELDS | {"method": "auto"})) is None
    assert own_method(make_scenario(FIELDS | {"method": "ssgd"})) == "ssgd"


def test_options_go_to_those_that_have_them_and_a_methods_own_come_first() -> None:
    asked = make_scenario(FIELDS | {"method": "dgc", "options": {"index_bytes": 4}})
    given = {"dgc.density": "0.1", "density": "0.01"}
    assert options_of_each(asked, "dgc", ["ssgd", "topk", "dgc"], given) == {
        "ssgd": {},
        "topk": {"density": "0.01"},
        "dgc": {"index_bytes": 4, "density": "0.1"},
    }


def test_options_of_a_scenario_without_a_method_are_for_all() -> None:
    asked = make_scenario(FIELDS | {"options": {"density": 0.01}})
    found = options_of_each(asked, None, ["ssgd", "topk"], {})
    assert found == {"ssgd": {}, "topk": {"density": 0.01}}


def test_the_scenarios_own_method_keeps_its_options_and_its_place_is_told() -> None:
    asked = make_scenario(FIELDS | {"method": "powersgd", "options": {"rank": 64}})
    found = compare(asked, ["topk"])
    assert found.ranking.predictions["powersgd"].scenario["options"]["rank"] == 64
    behind = found.standings()[1]["behind_first_ratio"]
    [place] = [line for line in found.verdict() if line.startswith("powersgd, which the scenario")]
    assert f"has rank 2 of 2, {1 + behind:.2f} times as long as topk" in place


def test_a_time_of_kernels_is_for_the_method_that_the_scenario_states() -> None:
    asked = FIELDS | {"single_gpu_kernels": "400ms"}
    found = compare(make_scenario(asked | {"method": "topk"}), ["dgc"])
    times = {one.scenario["method"]: one.scenario["single_gpu_kernels_s"] for one in found.rows}
    assert times == {"topk": 0.4, "dgc": None}
    with pytest.raises(RequestError, match=r"^--single-gpu-kernels: it is for one method; name"):
        compare(make_scenario(asked), ["dgc"])


def test_who_does_not_apply_is_left_out_with_the_reason() -> None:
    one_node = make_scenario({"model": "resnet50", "gpus": 4})
    between = {"efsignsgd.exchange": "between_nodes"}
    found = compare(one_node, ["ssgd", "efsignsgd"], options=between)
    assert [*found.ranking.predictions] == ["ssgd"] and [*found.ranking.refused] == ["efsignsgd"]
    assert found.to_dict()["left_out"] == found.ranking.refused
    with pytest.raises(RequestError, match=r"^--methods: none of them applies: efsignsgd: "):
        compare(one_node, ["efsignsgd"], options=between)


def test_numbers_that_methods_do_not_have_alike_are_told() -> None:
    asked = make_scenario({"model": "resnet18", "gpus": 16, "net": "10gbe"})
    told = " ".join(compare(asked, ["ssgd", "topk", "dgc", "oktopk", "localsgd"]).notes)
    assert "Not set alike (--set makes them so): density 0.001 (dgc, topk), 0.01 (oktopk)." in told
    alike = asked.model_copy(update={"options": {"density": 0.01}})
    assert "Not set alike" not in " ".join(compare(alike, ["ssgd", "topk", "oktopk"]).notes)
