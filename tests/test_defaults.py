"""What a scenario takes where it names no GPU and no link inside a node, and how it is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from perfsim.errors import DataError, RequestError
from perfsim.hardware.networks import intra_network_of_gpus
from perfsim.prediction import predict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from perfsim.session import Session
from support.what_ships import SHIPPED

_TEMPLATE = (Path(__file__).parent / "templates" / "mygpu.toml").read_text(encoding="utf-8")
_BOARD = ("architecture", "board", "pcie", "link", "intra_net")
MYGPU = "\n".join(line for line in _TEMPLATE.splitlines() if not line.startswith(_BOARD))
"""The template without the facts of its board."""


def setup(catalog: Session = SHIPPED, **fields: Any) -> Setup:
    net = {} if "node" in fields else {"net": "10gbe"}
    scenario = make_scenario({"model": "resnet50", "gpus": 8} | net | fields)
    return resolve(scenario, catalog)


def inside(one: Setup) -> str:
    return one.resolved_scenario().intra_net


def own_gpus(folder: Path, **extra: str) -> Session:
    """Return a session with GPUs of one's own, each the template with one more line."""
    devices = folder / "devices"
    devices.mkdir(parents=True)
    for name, line in extra.items():
        text = MYGPU.replace('"mygpu"', f'"{name}"').replace("aliases = []", line)
        (devices / f"{name}.toml").write_text(text, encoding="utf-8")
    return Session(folder)


# The GPUs of a node


@pytest.mark.parametrize(
    ("fields", "placement"),
    [
        ({"gpu": "h100", "gpus": 8}, (8,)),
        ({"gpu": "h100", "gpus": 16, "net": "ib400"}, (8, 8)),
        ({"gpu": "h100", "gpus": 12}, (6, 6)),  # the largest divisor up to 8
        ({"gpu": "gb200", "gpus": 144}, (72, 72)),
        ({"gpu": "v100", "gpus": 8, "intra_net": "dgx-2"}, (8,)),
        ({"gpu": "h100", "gpus": 8, "net": "hkbu-2080ti-10gbe"}, (4, 4)),  # the network states 4
        ({"gpu": "h100", "gpus": 8, "gpus_per_node": 2}, (2, 2, 2, 2)),
        ({"gpu": "a100", "gpus": 8}, (4, 4)),  # links of no node type
        ({"gpu": "rtx4090", "gpus": 8}, (4, 4)),  # a typical server, for any GPU
    ],
)
def test_nodes_have_as_many_gpus_as_the_node_type_inside_states(
    fields: dict[str, Any], placement: tuple[int, ...]
) -> None:
    one = setup(**fields)
    assert one.cluster.placement == placement
    said = "8 GPUs a node (as dgx-h100 states); set `gpus_per_node` to change it."
    assert (said in one.notes) == (
        fields in ({"gpu": "h100", "gpus": 8}, {"gpu": "h100", "gpus": 16, "net": "ib400"})
    )


# The GPU


@pytest.mark.parametrize(
    ("fields", "gpu", "why"),
    [
        ({"net": "sophia-a100-ib200"}, "a100-40gb", "that of sophia-a100-ib200"),
        ({"net": "hkbu-2080ti-10gbe"}, "rtx2080ti", "that of hkbu-2080ti-10gbe"),
        ({"model": "vit-b16"}, "rtx3090", "that of the only profile of vit-b16"),
        ({"model": "bert-large"}, "v100-pcie", "that of the only profile of bert-large"),
        (
            {"model": "resnet101", "net": "10gbe"},
            "v100",
            "that of the only profile of resnet101",
        ),
        ({"net": "10gbe"}, "v100", "an assumption"),
        ({"net": "alps-gh200-slingshot11"}, "gh200", "that of alps-gh200-slingshot11"),
    ],
)
def test_a_gpu_comes_from_the_network_or_the_only_profile(
    fields: dict[str, Any], gpu: str, why: str
) -> None:
    one = setup(**fields)
    assert one.device.name == one.resolved_scenario().gpu == gpu
    assert f"`gpu` {gpu}, {why}; name yours." in one.notes


@pytest.mark.parametrize(
    ("fields", "gpu", "of"),
    [
        ({"node": "geforce-pcie4-8"}, "rtx4090", "geforce-pcie4-8"),
        ({"net": "geforce-pcie5-8"}, "rtx5090", "geforce-pcie5-8"),
        ({"node": "pcie4-8", "model": "bert-large"}, "a100-pcie", "pcie4-8"),
    ],
)
def test_a_node_type_sold_with_any_gpu_has_its_usual_one(
    fields: dict[str, Any], gpu: str, of: str
) -> None:
    one = setup(**fields)
    assert one.device.name == gpu
    assert f"`gpu` {gpu}, usual in {of}, which has any; name yours." in one.notes


def test_a_profile_given_as_the_model_says_the_gpu_before_the_node_type() -> None:
    path = SHIPPED.files("models")["vit-b16.rtx3090.amp-fp16.b192"]
    assert setup(model=str(path), node="geforce-pcie4-8").device.name == "rtx3090"


def test_profiles_of_several_gpus_leave_an_assumption(tmp_path: Path) -> None:
    text = (
        Path(SHIPPED.files("models")["resnet50.v100.fp32.b32"])
        .read_text(encoding="utf-8")
        .replace("# gpu: v100", "# gpu: a100")
    )
    models = tmp_path / "models"
    models.mkdir()
    (models / "resnet50.a100.fp32.b32.csv").write_text(text, encoding="utf-8")
    one = setup(Session(tmp_path))
    assert one.device.name == "v100"
    assert "`gpu` v100, an assumption; name yours." in one.notes


def test_a_gpu_that_is_named_needs_no_note() -> None:
    one = setup(gpu="a100", net="hkbu-2080ti-10gbe")
    assert one.device.name == "a100"
    assert not any(note.startswith("`gpu`") for note in one.notes)


# The network between nodes


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ["`net` nd40, nodes that v100 usually is in; name yours."]),
        ({"gpu": "p100"}, ["`net` 10gbe, the default; name yours."]),
        ({"net": "10gbe"}, []),
        ({"node": "dgx-1"}, []),
        ({"gpus_per_node": 8}, []),
        ({"gpus": 1}, []),
    ],
)
def test_a_network_that_nobody_named_is_an_assumption(
    fields: dict[str, Any], said: list[str]
) -> None:
    """It is one where it is used; it decides more than any other default."""
    asked = make_scenario({"model": "resnet50", "gpus": 8, "gpu": "v100"} | fields)
    notes = [note for note in predict(asked).notes if note.startswith("`net`")]
    assert notes == said
    assert all(note.grade == "assumption" for note in notes)


# The link inside a node


@pytest.mark.parametrize(
    ("gpu", "network"),
    [
        ("v100", "nvlink-v100"),
        ("v100-pcie", "pcie3"),
        ("a100", "nvlink-a100"),
        ("a100-pcie", "pcie4"),
        ("h200", "dgx-h200"),
        ("l40s", "pcie4"),
        ("rtxpro6000", "pcie5"),
        ("b200", "dgx-b200"),
    ],
)
def test_the_link_inside_is_that_of_the_gpu(gpu: str, network: str) -> None:
    one = setup(gpu=gpu)
    assert inside(one) == network
    [note] = [note for note in one.notes if note.startswith("`intra_net`")]
    assert note.startswith(f"`intra_net` {network}, after the GPU: ")
    assert "assumed" not in note
    assert predict(make_scenario({"model": "resnet50", "gpus": 8, "gpu": gpu})).iteration_s > 0


def test_a_network_file_comes_before_the_gpu() -> None:
    assert inside(setup(gpu="v100", net="hkbu-2080ti-10gbe")) == "pcie3"
    assert inside(setup(gpu="v100", net="hkbu-v100-ib100")) == "hkbu-v100-ib100"
    assert not any("after the GPU" in note for note in setup(net="hkbu-2080ti-10gbe").notes)


def test_one_gpu_a_node_has_no_link_inside_to_speak_of() -> None:
    for fields in ({"gpus_per_node": 1}, {"gpus": 1}):
        assert not any("intra_net" in note for note in setup(gpu="v100", **fields).notes)


@pytest.mark.parametrize("net", ["1Mbit/s,1ms", "400Gbit/s,1us"])
def test_a_custom_rate_is_between_nodes_only(net: str) -> None:
    """On one node the network between nodes moves nothing; inside is the GPU's link."""
    one = setup(gpu="v100", gpus=4, gpus_per_node=4, net=net)
    assert inside(one) == "nvlink-v100"
    named = setup(gpu="v100", gpus=4, gpus_per_node=4, net="10gbe", intra_net="nvlink-v100")
    assert one.cluster.cost("all_reduce", 1e8).seconds == pytest.approx(
        named.cluster.cost("all_reduce", 1e8).seconds
    )


@pytest.mark.parametrize(
    ("fields", "grade", "said"),
    [
        ({}, "warning", "where dgx-h100 has 8; set `nics_per_node` 8, or 1 if it is so"),
        ({"gpu": "a100"}, "assumption", "set `nics_per_node`, or name a node type"),
        ({"intra_net": "nvlink-h100"}, "assumption", "set `nics_per_node`, or name a node type"),
        ({"nics_per_node": 1}, None, ""),
        ({"nics_per_node": 8}, None, ""),
        ({"gpus_per_node": 1}, None, ""),
        ({"node": "dgx-h100", "net": "dgx-h100"}, None, ""),
        ({"net": "10gbe"}, None, ""),
        ({"net": "400Gbit/s,5us"}, "assumption", "where dgx-h100 has 8; set `nics_per_node`"),
        ({"net": "400Gbit/s,5us", "gpu": "a100"}, None, ""),
        ({"net": "400Gbit/s,5us", "nics_per_node": 8}, None, ""),
    ],
)
def test_one_nic_that_nobody_stated_is_a_warning_where_such_nodes_have_several(
    fields: dict[str, Any], grade: str | None, said: str
) -> None:
    base = {"gpus": 16, "gpu": "h100", "net": "ib400", "gpus_per_node": 8}
    if "node" in fields:
        del base["gpus_per_node"]
    told = re.compile(r"1 NIC (of \S+ )?for the 8")
    found = [note for note in setup(**base | fields).notes if told.match(note)]
    assert [note.grade for note in found] == ([grade] if grade else [])
    assert all(said in note for note in found)


def test_a_custom_rate_inside_is_that_of_the_link_inside() -> None:
    one = setup(gpu="v100", gpus=4, gpus_per_node=4, intra_net="1GB/s,0us")
    assert one.cluster.cost("all_reduce", 1e9).seconds == pytest.approx(2 * 3 / 4, rel=1e-3)


def test_of_several_types_the_slowest_link_counts() -> None:
    name, why = intra_network_of_gpus("v100:4,p100:4", SHIPPED)
    assert (name, why) == ("pcie3", ", the slowest of nvlink-v100, pcie3")
    assert intra_network_of_gpus("v100:4,a100:4", SHIPPED)[0] == "nvlink-v100"
    assert inside(setup(gpu="v100:4,p100:4")) == "pcie3"


def test_libraries_that_copy_through_the_host_take_pcie() -> None:
    for library in ("gloo", "mpi"):  # shipped networks were measured with NCCL
        for gpu, network in (("v100", "pcie3"), ("h100", "pcie5")):
            assert inside(setup(gpu=gpu, library=library, net="10Gbit/s,30us")) == network
    assert inside(setup(gpu="v100", library="gloo", intra_net="nvlink")) == "nvlink-v100"


def test_nvlink_is_the_gpus_own() -> None:
    assert inside(setup(gpu="h200", intra_net="nvlink")) == "dgx-h200"
    for gpu in ("v100-pcie", "l40s", "v100:4,p100:4"):
        with pytest.raises(RequestError, match="no NVLink") as refused:
            setup(gpu=gpu, intra_net="nvlink")
        assert refused.value.field == "intra_net"


def test_nvlink_is_known_by_the_link_whatever_joins_the_nodes(tmp_path: Path) -> None:
    """A measured network is named after its NICs; the nodes that it states have NVLink."""
    catalog = own_gpus(
        tmp_path,
        measured='intra_net = "alps-gh200-slingshot11"',
        fitted='intra_net = "slingshot"',
        unsaid='intra_net = "hkbu-v100-10gbe"',
    )
    assert inside(setup(catalog, gpu="measured", intra_net="nvlink")) == "alps-gh200-slingshot11"
    assert inside(setup(catalog, gpu="fitted", intra_net="nvlink")) == "slingshot"
    with pytest.raises(RequestError, match="no NVLink"):
        setup(catalog, gpu="unsaid", intra_net="nvlink")


def test_a_gpu_of_ones_own_names_its_link_or_gets_an_assumption(tmp_path: Path) -> None:
    catalog = own_gpus(
        tmp_path, plain="aliases = []", linked='intra_net = "pcie5"', wrong='intra_net = "pcie9"'
    )
    one = setup(catalog, gpu="plain")
    assert inside(one) == "pcie3"
    assert any("file names none: pcie3 is an assumption" in note for note in one.notes)
    assert inside(setup(catalog, gpu="linked")) == "pcie5"
    with pytest.raises(DataError, match=r"wrong\.toml: intra_net: .*'pcie9'"):
        setup(catalog, gpu="wrong")


@pytest.mark.parametrize("line", ["pcie = 0", "pcie = 8", 'pcie = "x"', 'bord = "SXM"', "link = 5"])
def test_wrong_facts_of_a_board_are_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"bad\.toml, line"):
        setup(own_gpus(tmp_path, bad=line), gpu="bad")


# Precisions


def test_todays_words_are_read_as_the_names() -> None:
    for word, name in (("bf16", "amp-bf16"), ("fp16", "amp-fp16"), ("fp8", "fp8")):
        one = setup(gpu="h100", precision=word)
        assert one.scenario.precision == one.resolved_scenario().precision == name


def test_fp8_speeds_up_products_alone() -> None:
    """A whole iteration gains less than the rates of fp8 over bf16, and does not lose."""
    half, quarter = (
        setup(gpu="h100", model="bert-large", batch=64, precision=word) for word in ("bf16", "fp8")
    )
    rates = half.device.rates
    gain = rates["fp8"].value / rates["amp-bf16"].value
    assert half.alone_s / gain < quarter.alone_s < half.alone_s
    said = "No iteration of bert-large on h100 in fp8 is known: its kernels and launches on torch2"
    assert any(note.startswith(said) for note in quarter.transferred.notes)
