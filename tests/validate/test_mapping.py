"""From a case to scenarios: roles by rules, three ways of asking, and what each of them knows."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfsim.compute.node_load import node_load
from perfsim.data.catalog import shipped
from perfsim.errors import DataError, RequestError
from perfsim.network.network_file import load_network
from perfsim.network.node_type import read_node_type
from perfsim.validate.cases import Case, parse_fields, read_cases
from perfsim.validate.mapping import (
    MappedCase,
    MappingRule,
    SourceCases,
    is_single_gpu,
    map_case,
    read_rules,
    role_of,
)
from support.collected import COLLECTED, needs_data
from support.what_ships import SHIPPED

MAP = shipped() / "measurements" / "map.toml"
OWN_NETWORKS = {
    *("hkbu-v100-10gbe", "hkbu-v100-ib100", "hkbu-v100-100gbe-ip", "hkbu-2080ti-10gbe"),
    *("hkbu-2080ti-ib100", "pollux-g4dn-t4", "sia-2080ti", "sia-dgx-a100", "sia-azure-nd40-v100"),
    *("aws-p2-k80-tcp", "v100-pcie-host-8", "bcaffe-cpu-10gbe-mpi"),
}
"""Network files of clusters whose training is judged."""

FITTED = {
    "pollux-g4dn-t4": {"adl-aws"},
    "sia-2080ti": {"adl-rtx"},
    "hkbu-v100-10gbe": {"ddlb"},
    "hkbu-v100-ib100": {"ddlb"},
    "aws-p2-k80-tcp": {"vin"},
    "bcaffe-cpu-10gbe-mpi": {"mgw"},
}
"""Clusters' own networks -> the sources whose rows they are fitted on."""

CASE = Case(
    "t-1", "DDP", "resnet50", "v100", "8", "4", "wire", "64", "", "", "iteration_s", 0.5, ""
)
WORDS = {"model": "resnet50", "gpu": "v100", "method": "ssgd", "net": "10gbe", "intra_net": "pcie3"}


def rule(when: dict[str, str] | None = None, **keys: Any) -> MappingRule:
    """Return a rule; ``fields`` are what a newcomer knows."""
    return MappingRule(when or {}, keys.pop("fields", {}), {}, **keys)


KNOWN = rule(fields=WORDS)


def mapped(cases: list[Case], rules: list[MappingRule]) -> list[MappedCase]:
    """Return the scenarios of cases."""
    source = SourceCases(cases, rules, SHIPPED)
    return [map_case(case, source) for case in cases]


def test_each_way_knows_what_the_one_before_knows_and_more() -> None:
    own = rule(rated={"single_gpu": "0.2s"}, calibrated={"net": "hkbu-v100-10gbe", "intra_net": ""})
    [found] = mapped([CASE], [KNOWN, own])
    blind, rated, calibrated = found.scenarios.values()
    assert [*found.scenarios] == ["blind", "rated", "calibrated"]
    assert (blind.net, blind.intra_net, blind.single_gpu) == ("10gbe", "pcie3", None)
    assert (rated.net, rated.intra_net, rated.single_gpu) == ("10gbe", "pcie3", "0.2s")
    assert (calibrated.net, calibrated.intra_net) == ("hkbu-v100-10gbe", None)
    assert calibrated.single_gpu == "0.2s" and found.scenario == calibrated


def test_a_way_that_knows_no_more_is_not_asked() -> None:
    [found] = mapped([CASE], [KNOWN])
    assert [*found.scenarios] == ["blind"]
    own_network = rule(calibrated={"net": "hkbu-v100-10gbe"})
    [found] = mapped([CASE], [KNOWN, own_network])
    assert [*found.scenarios] == ["blind", "calibrated"]
    single = replace(CASE, id="t-2", gpus="1", gpus_per_node="1", value=0.3)
    found, alone = mapped([CASE, single], [KNOWN, own_network])
    assert [*found.scenarios] == ["blind", "rated", "calibrated"]
    assert found.scenarios["rated"].single_gpu == "0.3s"
    assert (alone.role, alone.scenarios) == ("calibration", {})


@pytest.mark.parametrize(
    ("calibrates", "ways"),
    [("computation (one node)", ["blind"]), ("the network (one buffer)", ["blind", "rated"])],
)
def test_what_calibrates_is_asked_without_itself(calibrates: str, ways: list[str]) -> None:
    single = replace(CASE, id="t-2", gpus="1", gpus_per_node="1", value=0.3)
    rules = [KNOWN, rule({"gpus": "8"}, calibrates=calibrates, calibrated={"net": "1gbe"})]
    found, _ = mapped([CASE, single], rules)
    assert found.role == "calibration" and found.reason == f"calibrates {calibrates}"
    assert [*found.scenarios] == ways


def test_a_step_that_gives_computation_is_asked_blind_only() -> None:
    """Marked for the network, with its exposed communication, it rates its own configuration."""
    exposed = replace(CASE, id="t-2", metric="exposed_comm_s", value=0.2)
    rules = [KNOWN, rule(calibrates="the network (two nodes)")]
    for found in mapped([CASE, exposed], rules):
        assert [*found.scenarios] == ["blind"], found.case.id


def test_a_run_that_waits_calibrates_and_is_not_asked() -> None:
    runs = [
        replace(CASE, id=f"t-{batch} {metric}", batch_per_gpu=batch, metric=metric, value=value)
        for batch, step_s, exposed_s in (("20", 0.2, 0.02), ("40", 0.3, 0.04), ("80", 0.6, 0.2))
        for metric, value in (("iteration_s", step_s), ("exposed_comm_s", exposed_s))
    ]
    for found in mapped(runs, [KNOWN]):
        waits = found.case.batch_per_gpu == "80"
        assert found.role == ("excluded" if waits else "test")
        assert found.reason.startswith("waits for input: " if waits else "")
    for found in mapped(runs, [KNOWN, rule(calibrates="computation")]):
        asked = [] if found.case.batch_per_gpu == "80" else ["blind"]
        assert (found.role, [*found.scenarios]) == ("calibration", asked)
    # A row that says what it is for keeps its role.
    for found in mapped([replace(case, role="test") for case in runs], [KNOWN]):
        assert found.role == "test" and found.scenarios


def test_without_a_batch_only_its_own_computation_tells() -> None:
    unknown = replace(CASE, batch_per_gpu="")
    [found] = mapped([unknown], [KNOWN])
    assert (found.role, found.reason, found.scenarios) == ("excluded", "batch not stated", {})
    passes = [
        replace(unknown, id="t-2", metric="forward_s", value=0.1),
        replace(unknown, id="t-3", metric="backward_s", value=0.2),
    ]
    found, forward, backward = mapped([unknown, *passes], [KNOWN, rule(calibrated={"net": "1gbe"})])
    assert [*found.scenarios] == ["rated", "calibrated"]
    given = found.scenarios["rated"].single_gpu
    # The passes were measured on GPUs of a full node, which slow each other.
    alone_s = 0.3 / node_load("storage", 4)
    assert given is not None and alone_s <= float(given.removesuffix("s")) < alone_s + 0.02
    assert (forward.role, backward.role) == ("calibration", "calibration")
    assert all(map(is_single_gpu, passes))


def test_a_rule_says_why_a_case_is_no_test() -> None:
    missing = rule({"system": "DDP"}, missing="a schedule")
    exclude = rule({"gpu": "v100"}, exclude="GPU not stated: a server")
    calibrates = rule(calibrates="the network")
    for rules, role, reason in (
        ([KNOWN, missing], "missing", "a schedule"),
        ([KNOWN, missing, exclude], "excluded", "GPU not stated: a server"),
        ([KNOWN, exclude, missing, calibrates], "excluded", "GPU not stated: a server"),
        ([KNOWN, missing, calibrates], "missing", "a schedule"),
        ([KNOWN, missing, exclude, rule(exclude="")], "missing", "a schedule"),
        ([KNOWN, missing, exclude, rule(exclude="", missing="")], "test", ""),
        ([KNOWN, calibrates, rule(calibrates="")], "test", ""),
    ):
        [found] = mapped([CASE], rules)
        assert (found.role, found.reason) == (role, reason)
        assert bool(found.scenarios) == (role == "test")


def test_what_a_case_says_of_itself_excludes_it_before_anything_is_missing() -> None:
    epoch = replace(CASE, metric="epoch_s")
    assert role_of(epoch, [KNOWN, rule(missing="a schedule")])[:2] == (
        "excluded",
        "epoch or whole training: epoch_s",
    )
    recalled = replace(CASE, gpus="1", seen_or_memory="MEMORY")
    assert role_of(recalled, [KNOWN])[:2] == ("excluded", "recalled, never verified")
    # A user who lifts an exclusion, or says that a row is a test, is believed.
    lifted = role_of(replace(CASE, gpu="not stated"), [KNOWN, rule(exclude="")])
    assert lifted.role == "test"
    assert role_of(replace(CASE, gpu="not stated", role="test"), [KNOWN]).role == "test"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"metric": "comm_s"}, "metric comm_s is not one that a prediction states"),
        (
            {"metric": "iteration_ms"},
            "not one that a prediction states; did you mean 'iteration_s'?",
        ),
        ({"metric": "iteration_ms"}, "Allowed: iteration_s, throughput, throughput_per_gpu"),
        ({"gpus": "some"}, "gpus 'some' is not a whole number above zero"),
    ],
)
def test_what_perfsim_cannot_predict_is_missing(cells: dict[str, Any], reason: str) -> None:
    [found] = mapped([replace(CASE, **cells)], [KNOWN])
    assert (found.role, found.scenarios) == ("missing", {}) and reason in found.reason


def test_words_without_a_rule_are_missing() -> None:
    unknown = replace(CASE, model="ResNet-50", gpu="Volta", system="PyTorch's")
    [found] = mapped([unknown], [])
    assert found.role == "missing"
    assert found.reason == "no rule for model 'ResNet-50', gpu 'Volta', method \"PyTorch's\""
    [found] = mapped([CASE], [])
    assert (found.role, found.reason) == ("missing", "no rule for network 'wire'")


@pytest.mark.parametrize(
    ("cells", "fields"),
    [
        ({"network": "10gbe"}, {"net": "10gbe", "method": "ssgd"}),
        ({"network": "dgx-1"}, {"node": "dgx-1", "method": "ssgd"}),
        (
            {"system": "PowerSGD", "rank_or_density": "4"},
            {"method": "powersgd", "options.rank": "4"},
        ),
        (
            {"system": "topk", "rank_or_density": "density 1%"},
            {"method": "topk", "options.density": "1%"},
        ),
        ({"system": "topk", "rank_or_density": "k=3"}, {}),
        ({"system": "topk", "rank_or_density": "one in ten"}, {}),
        ({"system": "ssgd", "rank_or_density": "4"}, {}),
        ({"model": "VGG16, 138M"}, {"model": "vgg16", "method": "ssgd"}),
        (
            {"model": "bert-large, 336M, 512 tokens"},
            {"model": "bert-large", "seq": 512, "method": "ssgd"},
        ),
    ],
)
def test_names_of_perfsims_own_need_no_rule(cells: dict[str, str], fields: dict[str, str]) -> None:
    case = replace(CASE, **cells)  # type: ignore[arg-type]
    own = {"model": "resnet50", "gpu": "v100"}
    assert role_of(case, [], SHIPPED).fields == own | fields
    # A model over text needs its tokens, as training runs state them.
    if "seq" in fields:
        untold = replace(case, model=case.model.rpartition(",")[0])
        assert "model" not in role_of(untold, [], SHIPPED).fields
    # A rule comes first.
    told = role_of(case, [rule(fields={"model": "gpt2", "method": "dear"})], SHIPPED).fields
    assert (told["model"], told["method"], told["gpu"]) == ("gpt2", "dear", "v100")


def test_a_setting_that_no_rule_reads_is_named() -> None:
    case = replace(CASE, system="topk", rank_or_density="k=3", network="10gbe")
    assert mapped([case], [])[0].reason == "no rule for method 'topk' with 'k=3'"
    [found] = mapped([replace(case, rank_or_density="1%")], [])
    assert found.scenarios["blind"].options == {"density": "1%"}


def test_a_microbenchmark_calibrates_and_is_not_asked() -> None:
    alone = replace(CASE, metric="allreduce_s")
    assert mapped([alone], [KNOWN])[0].reason == "no time of training: allreduce_s"
    [found] = mapped([alone], [KNOWN, rule(calibrates="the network (microbenchmark)")])
    assert (found.role, found.scenarios) == ("calibration", {})
    assert found.reason == "calibrates the network (microbenchmark)"


@pytest.mark.parametrize("role", ["excluded", "missing", "calibration"])
def test_a_row_says_what_it_is_for(role: str) -> None:
    told = role_of(replace(CASE, role=role, reason="why"), [KNOWN])
    assert (told.role, told.reason) == (role, "why")
    assert role_of(replace(CASE, role=role), [KNOWN]).reason == "its row says so"
    assert role_of(replace(CASE, missing="tensor parallelism"), [KNOWN])[:2] == (
        "missing",
        "tensor parallelism",
    )


def test_a_row_states_what_each_way_knows() -> None:
    cells = "model=resnet50; gpu=v100; method=ssgd; net=10gbe; intra_net=pcie3"
    calibrated = "net=hkbu-v100-10gbe; intra_net="
    row = replace(CASE, scenario=cells, rated="single_gpu=0.2s", calibrated=calibrated)
    own = rule(rated={"single_gpu": "0.2s"}, calibrated={"net": "hkbu-v100-10gbe", "intra_net": ""})
    [by_row], [by_rules] = mapped([row], []), mapped([CASE], [KNOWN, own])
    assert by_row.scenarios == by_rules.scenarios
    with pytest.raises(RequestError, match="'net=' is not field=value"):
        parse_fields("net=", "t-1")


def test_a_field_is_taken_away_by_an_empty_value(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    path.write_text(
        'schema = "perfsim/measurement-map/1"\n'
        '[[rule]]\nset = { method = "topk", "options.density" = 0.01 }\n'
        '[[rule]]\nset = { method = "ssgd", "options.density" = "" }\nmissing = "a thing"\n'
    )
    rules = read_rules(path)
    assert role_of(CASE, rules).fields == {"method": "ssgd"}
    assert (rules[0].exclude, rules[0].missing, rules[1].missing) == (None, None, "a thing")
    path.write_text('schema = "perfsim/measurement-map/1"\n[[rule]]\nmising = "a thing"\n')
    with pytest.raises(DataError, match="did you mean 'missing'"):
        read_rules(path)


def test_the_shipped_rules_name_networks_as_a_newcomer_would() -> None:
    """A cluster's own file is known to the calibrated way only, and every name is a file."""
    known = {stem.split(".")[0] for stem in SHIPPED.files("networks")}
    nodes = set(SHIPPED.files("nodes"))
    own = set()
    for one in tomllib.loads(MAP.read_text())["rule"]:
        for field in ("net", "intra_net"):
            name = one.get("set", {}).get(field)
            link = name is not None and "," in name  # a rate and a latency of one's own
            newcomers = (known | nodes) - OWN_NETWORKS
            assert name is None or link or name in newcomers, one
            assert field not in one.get("rated", {}), one
            if one.get("calibrated", {}).get(field):
                own.add(one["calibrated"][field])
        assert not {"single_gpu", "single_gpu_kernels"} & set(one.get("set", {})), one
    assert own and own <= OWN_NETWORKS & known


def fields_of(**cells: str) -> dict[str, Any]:
    """Return what the rules of the shipped map set for a row, later rules over earlier ones."""
    role = role_of(replace(CASE, **cells), read_rules(MAP))  # type: ignore[arg-type]
    assert role.role == "test"
    return role.fields


@pytest.mark.parametrize(
    ("id", "system", "nodes"), [("mgw-1", "S-SGD WFBP", "4"), ("gtk-1", "S-SGD dense", "8")]
)
def test_what_goes_through_the_host_by_mpi_is_asked_so(id: str, system: str, nodes: str) -> None:
    """Their code calls MPI on buffers of the host; NCCL's presets are of another library."""
    found = fields_of(id=id, system=system, gpus=nodes, gpus_per_node="1", fusion="one buffer")
    assert load_network(found["net"], SHIPPED, "net").library == "mpi"


@pytest.mark.parametrize("network", ["10GbE TCP", "100Gb IB RDMA", "100GbE TCP/IP"])
def test_boards_without_peer_access_go_through_the_host_in_one_node(network: str) -> None:
    """Across nodes the presets were measured on such nodes, whatever is inside."""
    one, two = (
        fields_of(id="ddlb-1", system="S-SGD WFBP-A2A", network=network, gpus=gpus)["intra_net"]
        for gpus in ("4", "8")
    )
    node = read_node_type(SHIPPED.files("nodes")[one])
    assert not node.inside.peer_access and two == "pcie3"


def test_a_figure_of_a_best_algorithm_is_asked_as_that_algorithm() -> None:
    cells = {"id": "bag-1", "network": "NVLink in node, 100 Gb/s TCP"}
    best = fields_of(system="Bagua gradient all-reduce", **cells)
    assert best == fields_of(system="ByteGrad", **cells) and best["method"] == "eightbit"


@needs_data
def test_the_rows_that_a_network_is_fitted_on_calibrate() -> None:
    cases = read_cases(COLLECTED / "measurements" / "cases.csv")
    rules = read_rules(MAP)
    marked: dict[str, set[str]] = {}
    for case in cases:
        role = role_of(case, rules)
        if role.reason.startswith("calibrates the network"):
            for field in ("net", "intra_net"):
                if role.calibrated.get(field):
                    marked.setdefault(role.calibrated[field], set()).add(case.group)
    assert marked and all(groups == FITTED[name] for name, groups in marked.items())
    bert = [case for case in cases if case.system == "S-SGD BSP-A2A" and "BERT" in case.model]
    assert bert and {role_of(case, rules).role for case in bert} == {"calibration"}
    both = replace(bert[0], model="BERT-Base")
    assert role_of(both, rules).reason == "calibrates the network (one buffer)"
