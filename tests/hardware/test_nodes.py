"""Scenarios on node types: what they state, what overrides it, and what contradicts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsim.compute.device import load_device
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError, RequestError
from perfsim.hardware.nodes import node_facts
from perfsim.network.node_law import node_law
from perfsim.network.node_type import load_node_type
from perfsim.note import briefs
from perfsim.prediction import Prediction, predict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from perfsim.session import default_session
from support.paths import TESTS
from support.what_ships import SHIPPED
from tests.network.test_node_type import GOOD


def setup(**fields: Any) -> Setup:
    return resolve(make_scenario({"model": "gpt2", "gpus": 64} | fields), default_session())


def ask(**fields: Any) -> Prediction:
    return predict(make_scenario({"model": "gpt2", "gpus": 64} | fields))


def test_a_node_type_says_gpu_nodes_and_network() -> None:
    made = setup(node="dgx-h100")
    assert made.device.name == "h100"
    assert (made.cluster.nodes, made.cluster.gpus_per_node) == (8, 8)
    assert made.cluster.library == "nccl"
    shown = made.resolved_scenario().to_dict()
    assert (shown["net"], shown["intra_net"], shown["node"]) == ("dgx-h100",) * 3
    facts = load_node_type("dgx-h100", SHIPPED, "node").facts("hopper")
    call = node_law().call(facts, "all_reduce", 64, 8, 1e8)
    assert call is not None
    assert made.cluster.seconds("all_reduce", 1e8) == call.seconds


def test_its_name_is_a_network_too() -> None:
    by_net, by_node = setup(net="dgx-h100"), setup(node="dgx-h100")
    assert by_net.cluster.seconds("all_reduce", 1e8) == by_node.cluster.seconds("all_reduce", 1e8)
    assert by_net.device.name == "h100"


def test_scenarios_without_a_node_type_say_nothing_of_one() -> None:
    assert (
        not {"node", "nic", "nics_per_node"}
        & setup(net="10gbe").resolved_scenario().to_dict().keys()
    )


def test_nics_override_the_data_sheet() -> None:
    def rate(**fields: Any) -> float:
        return 1.0 / setup(node="dgx-h100", **fields).cluster.seconds("all_gather", 1e10)

    assert rate(nics_per_node=4) / rate() == pytest.approx(0.5, rel=0.01)
    assert rate(nic="200Gbit/s") / rate() == pytest.approx(0.5, rel=0.01)
    assert rate(nic="800Gbit/s", nics_per_node=4) == pytest.approx(rate(), rel=0.01)


def test_a_link_inside_overrides_the_data_sheet() -> None:
    slow = setup(node="dgx-h100", gpus=8, intra_net="pcie5").cluster
    assert slow.seconds("all_reduce", 1e9) > 5 * setup(node="dgx-h100", gpus=8).cluster.seconds(
        "all_reduce", 1e9
    )


@pytest.mark.parametrize(
    ("inside", "measured"),
    [(None, True), ("nvlink", True), ("nvlink-a100", True), ("nvlink-h100", False)],
)
def test_measured_curves_hold_for_their_link_inside_by_any_name(
    inside: str | None, measured: bool
) -> None:
    cluster = setup(net="sirius-a100-slingshot11-nccl218", intra_net=inside).cluster
    assert (cluster.known is not None) == measured


def test_a_node_type_named_as_its_own_link_inside_changes_nothing() -> None:
    for fields in ({"node": "p4d"}, {"net": "p4d"}, {"node": "p4d", "net": "ib400"}):
        left_out, named = setup(**fields).cluster, setup(**fields, intra_net="p4d").cluster
        assert named.seconds("all_reduce", 1e9) == left_out.seconds("all_reduce", 1e9)


def test_another_network_joins_such_nodes_by_each_of_their_nics() -> None:
    made = setup(node="dgx-h100", net="ib400")
    assert made.cluster.nics_per_node == 8
    assert (
        made.network.name == "ib400"
        and made.intra_network
        and made.intra_network.name == "dgx-h100"
    )
    one = setup(net="ib400", gpu="h100", gpus_per_node=8)
    assert made.cluster.seconds("all_gather", 1e10) < one.cluster.seconds("all_gather", 1e10) / 6


@pytest.mark.parametrize(
    ("fields", "nics", "said"),
    [
        ({"net": "ib400"}, 8, "8 NICs of ib400 a node (as many as dgx-h100 has)"),
        ({"net": "10gbe"}, 1, "1 NIC of 10gbe a node (beside those of dgx-h100)"),
        ({"net": "10gbe", "nics_per_node": 2}, 2, ""),
        ({"net": "10gbe", "gpus": 8}, 1, ""),
        ({}, 8, ""),
    ],
)
def test_how_many_nics_of_another_network_are_assumed_is_said(
    fields: dict[str, Any], nics: int, said: str
) -> None:
    """Ethernet joins hosts with RDMA NICs by one NIC, as without a node type."""
    made = setup(node="dgx-h100", **fields)
    assert made.cluster.nics_per_node == nics
    told = [note for note in made.notes if " NIC" in note and " a node (" in note]
    assert [note.startswith(said) for note in told] == ([True] if said else [])


@pytest.mark.parametrize(
    ("fields", "grade", "said"),
    [
        (
            {"gpus": 13},
            "warning",
            "1 GPU a node (the largest divisor of 13 up to 8, which dgx-h100 has): 13 nodes where 2"
            " would do; set `placement` 8,5 to fill them, or `gpus_per_node`.",
        ),
        (
            {"gpus": 1001},
            "warning",
            "7 GPUs a node (the largest divisor of 1001 up to 8, which dgx-h100 has): 143 nodes"
            " where 126 would do; set `placement` to fill them, or `gpus_per_node`.",
        ),
        ({"gpus": 12}, "assumption", "6 GPUs a node (the largest divisor of 12 up to 8); set"),
        ({"gpus": 16}, "remark", "8 GPUs a node (as dgx-h100 states); set"),
        (
            {"site": (8, 12), "gpus": 20},
            "assumption",
            "nodes of 8 and 6 GPUs (the largest divisors of 8 and 12 up to 8); set",
        ),
        (
            {"site": (6, 6), "gpus": 12},
            "assumption",
            "6 GPUs a node (the largest divisor of 6 up to 8); set",
        ),
        ({"gpus": 13, "placement": (8, 5)}, "", ""),
    ],
)
def test_how_many_gpus_of_a_node_are_used_is_said(
    fields: dict[str, Any], grade: str, said: str
) -> None:
    wan = {"wan": "1Gbit/s,60ms"} if "site" in fields else {}
    notes = setup(node="dgx-h100", **fields, **wan).notes
    told = [note for note in notes if "a node (" in note or "nodes of" in note]
    assert [(getattr(note, "grade", "remark"), note[: len(said)]) for note in told] == (
        [(grade, said)] if said else []
    )


def test_nics_of_a_network_without_a_node_type() -> None:
    one, eight = (
        setup(net="ib400", gpu="h100", gpus_per_node=8, **more).cluster
        for more in ({}, {"nics_per_node": 8})
    )
    assert eight.seconds("all_gather", 1e10) < one.seconds("all_gather", 1e10) / 6


def test_part_of_a_node_has_part_of_its_nics() -> None:
    half = setup(node="dgx-h100", gpus_per_node=4, gpus=64).cluster
    assert (half.nodes, half.gpus_per_node) == (16, 4)
    whole = setup(node="dgx-h100", gpus=128).cluster
    assert half.seconds("all_gather", 1e10) > 1.8 * whole.seconds("all_gather", 1e10)


@pytest.mark.parametrize(
    "method", ["ssgd", "dgc", "powersgd", "fsdp", "zero", "localsgd", "adpsgd"]
)
def test_methods_run_on_node_types(method: str) -> None:
    for node in ("dgx-h100", "p4d", "eth-10g", "geforce-pcie4-8"):
        more = {} if node in ("dgx-h100", "p4d") else {"gpu": "rtx4090" if "4" in node else "v100"}
        answer = ask(node=node, method=method, gpus=16, **more)
        low, high = answer.iteration_s_interval
        assert 0 < low < answer.iteration_s < high


def test_what_is_asked_of_links_is_asked_of_node_types_too() -> None:
    """With messages behind computation: beside it, slower ones that hide may take less from it."""
    asked = {"node": "dgx-a100", "gpus": 32, "overlap": False}
    quiet = ask(**asked).iteration_s
    for fields in (
        {"background": 0.9},
        {"oversubscription": 8.0},
        {"library": "gloo"},
        {"algorithm": "tree"},
        {"protocol": "simple"},
        {"placement": (8, 8, 8, 4, 4)},
    ):
        assert ask(**asked, **fields).iteration_s >= quiet * 0.999, fields


def test_a_node_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    made = setup(node=str(path), gpus=8)
    assert (made.device.name, made.cluster.nodes, made.network.name) == ("a100", 2, "mine")
    path.write_text(GOOD.replace("100Gbit/s", "10Gbit/s"))
    slow = setup(node=str(path), gpus=8)
    assert slow.cluster.seconds("all_gather", 1e10) > 7 * made.cluster.seconds("all_gather", 1e10)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpus_per_node": 16}, "gpus_per_node: dgx-h100 has 8 GPUs a node, found 16."),
        ({"placement": (16, 48)}, "placement: dgx-h100 has 8 GPUs a node, found 48."),
        (
            {"gpu": "a100"},
            "gpu: dgx-h100 has h100, found 'a100'; leave one of the two out, or join",
        ),
        ({"gpu": "h100:32,a100:32"}, "gpu: dgx-h100 has h100, found 'h100:32,a100:32'"),
        ({"net": "p5"}, "net: p5 is a node type itself"),
        ({"net": "alps-gh200-slingshot11"}, "net: alps-gh200-slingshot11 has nodes of 4 GPUs"),
        ({"nic": "400"}, "nic: '400' is not a rate (a bare number has no unit)"),
        ({"node": "dgx-h10"}, "node: no 'dgx-h10'; did you mean 'dgx-h100'?"),
        ({"node": "p5.48xlarg"}, "no 'p5.48xlarg'; did you mean 'p5': AWS p5.48xlarge: 8 H100"),
        ({"node": "Standard_ND96isr_H100"}, "; did you mean 'ndv5-h100': Azure ND96isr H100 v5"),
        ({"node": "BM.GPU.H100.4"}, "; did you mean 'oci-h100': Oracle BM.GPU.H100.8: 8 H100"),
        ({"node": None, "nic": "400Gbit/s"}, "nic: needs node, whose NICs"),
        ({"nics_per_node": 0}, "nics_per_node: 0 is not allowed"),
    ],
)
def test_a_contradiction_is_refused(fields: dict[str, Any], said: str) -> None:
    asked = {"node": "dgx-h100", "gpus": 64} | fields
    with pytest.raises(RequestError) as caught:
        setup(**{name: value for name, value in asked.items() if value is not None})
    assert said in str(caught.value)


@pytest.mark.parametrize("architecture", ['architecture = "Template"', ""])
def test_an_architecture_that_the_law_has_no_numbers_of_is_said(
    architecture: str, tmp_path: Path
) -> None:
    """It counts as an Ampere, and no switch adds."""
    template = TESTS / "templates" / "mygpu.toml"
    (tmp_path / "devices").mkdir()
    lines = [
        architecture if line.startswith("architecture") else line
        for line in template.read_text().splitlines()
    ]
    (tmp_path / "devices" / "mygpu.toml").write_text("\n".join(lines))
    asked = {"model": "resnet50", "gpus": 4, "node": "eth-10g", "gpu": "mygpu"}
    made = resolve(make_scenario(asked), Catalog(tmp_path))
    assert made.cluster.derived is not None
    assert made.cluster.derived.facts.generation == "ampere"
    notes = " ".join(predict(make_scenario(asked), Catalog(tmp_path)).notes)
    assert "collectives start on mygpu as on Ampere GPUs" in notes
    assert "collectives on eth-10g are derived" in notes
    assert "collectives start" not in " ".join(ask(node="dgx-h100").notes)


def test_a_node_type_with_an_unknown_gpu_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace('gpu = "', 'gpu = "x'))
    with pytest.raises(RequestError) as caught:
        node_facts(load_node_type(str(path), SHIPPED, "node"), SHIPPED)
    assert "mine.toml" in str(caught.value) and "no 'x" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "network"),
    [
        ({"gpus": 16}, "dgx-h100"),
        ({"gpus": 16, "placement": "4,4,8"}, "dgx-h100"),
        ({"gpus": 8}, "10gbe"),
        ({"gpus": 32, "gpus_per_node": 16}, "10gbe"),
        ({"gpus": 16, "net": "1gbe"}, "1gbe"),
        ({"gpus": 16, "gpu": "v100"}, "nd40"),
        ({"gpus": 16, "gpu": "v100-16gb"}, "nd40"),
        ({"gpus": 8, "gpu": "v100", "gpus_per_node": 4}, "nd40"),
        ({"gpus": 32, "gpu": "v100", "gpus_per_node": 16}, "10gbe"),
        ({"gpus": 16, "gpu": "v100-pcie"}, "10gbe"),
        ({"gpus": 16, "gpu": "p100"}, "10gbe"),
        ({"gpus": 16, "library": "gloo"}, "dgx-h100"),
        ({"gpus": 16, "library": "mpi"}, "10gbe-mpi"),
        ({"gpus": 16, "gpu": "rtx4090"}, "10gbe"),
        ({"gpus": 4, "gpu": "a100"}, "10gbe"),
        ({"gpus": 8, "gpu": "a100"}, "dgx-a100"),
        ({"gpus": 16, "gpu": "a100"}, "dgx-a100"),
        ({"gpus": 8, "gpu": "a100", "gpus_per_node": 8}, "10gbe"),
    ],
)
def test_without_a_network_nodes_are_those_that_the_gpu_is_usually_in(
    fields: dict[str, Any], network: str
) -> None:
    made = setup(**{"gpu": "h100"} | fields)
    assert made.network.name == network
    assert ("usually is in" in str(made.notes)) == network.startswith(("dgx", "nd40"))
    said = briefs(made.notes, "assumption")
    assert len(said) == len(set(said))


def test_a_usual_node_that_nobody_knows_names_the_gpus_file(tmp_path: Path) -> None:
    text = SHIPPED.files("devices")["h100"].read_text()
    (tmp_path / "devices").mkdir()
    path = tmp_path / "devices" / "h100.toml"
    path.write_text(text.replace('usual_node = "dgx-h100"', 'usual_node = "dgx-h10"'))
    asked = make_scenario({"model": "resnet50", "gpus": 16, "gpu": "h100"})
    with pytest.raises(DataError, match=r"h100.toml.*no 'dgx-h10'; did you mean 'dgx-h100'"):
        resolve(asked, Catalog(tmp_path))


@pytest.mark.parametrize("gpus", [5, 6, 8, 12, 16])
def test_no_nodes_are_joined_by_ethernet_where_the_gpu_has_usual_ones(gpus: int) -> None:
    """A node of these holds more GPUs than one of no type that is known."""
    for name in SHIPPED.files("devices"):
        if not load_device(name, SHIPPED).usual_node:
            continue
        made = setup(gpu=name, gpus=gpus)
        assert made.cluster.nodes == 1 or made.network.node_type, name


def test_usual_nodes_have_the_gpu_or_its_sibling() -> None:
    devices = [load_device(name, SHIPPED) for name in SHIPPED.files("devices")]
    usual = {one.name: one.usual_node for one in devices if one.usual_node}
    assert len(usual) > 10
    architecture = {one.name: one.architecture for one in devices}
    for name, node in usual.items():
        assert architecture[load_node_type(node, SHIPPED, "net").gpu] == architecture[name]
