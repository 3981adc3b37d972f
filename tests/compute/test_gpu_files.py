"""The shipped GPUs: laws between their rates, what their data sheets print, and their links."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from perfsim.compute.device import Device, device_named, load_device
from perfsim.compute.profile import PRECISIONS
from perfsim.data.catalog import Catalog
from perfsim.errors import DataError, RequestError
from perfsim.inventory import describe_thing, list_rows
from perfsim.network.node_network import load_any_network
from perfsim.network.node_type import read_node_type
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

GPUS = {name: load_device(name, SHIPPED) for name in SHIPPED.files("devices")}

AMPERE = ("a100", "a100-40gb", "a100-pcie", "a100-pcie-40gb", "a30", "a40", "a10", "a10g")
AMPERE += ("rtx3090",)
WORKSTATION = ("a5000", "a6000", "rtx6000ada", "rtx5000ada", "rtx5090", "rtx4500ada")
WORKSTATION += ("rtx4000ada", "rtx2000ada")
HOPPER = ("h100", "h100-pcie", "h100-nvl", "h200", "h200-nvl", "h800", "h20", "h20-3e", "gh200")
NEWER = ("b200", "b300", "gb200", "gb10", "rtxpro6000", "rtxpro6000-maxq", "rtxpro5000")
ADA_AND_OLDER = ("l4", "l40", "l40s", "rtx4090", "rtx6000", "t4", "rtx2080ti", "v100", "p100")
GEFORCE = ("gtx1080", "gtx1080ti", "titan-x-pascal", "rtx2080", "rtx3060", "rtx3070", "rtx3080")
NEWER_GEFORCE = ("rtx3060ti", "rtx3070ti", "rtx3080ti", "rtx3090ti", "rtx4070", "rtx4080")
NEWER_GEFORCE += ("rtx4070ti", "rtx5070", "rtx5070ti", "rtx5080")
SUPER = ("rtx4070super", "rtx4070tisuper", "rtx4080super")
EIGHT_LANES = ("rtx4060ti", "rtx5060ti")
NO_PEERS = {*GEFORCE[3:], *NEWER_GEFORCE, "rtx2070-super", "rtx2080ti"}
NO_PEERS |= {"rtx3090", "rtx4090", "rtx5090", *SUPER, *EIGHT_LANES}
"""GeForce boards that name hosts without peer access: they pass no messages to each other."""
OLDER_BOARDS = ("m40", "p40", "p6000", "titan-v", "titan-rtx", "rtx8000", "v100s")
OTHER_BOARDS = ("a4000", "a4500", "l20")
AMD = ("mi100", "mi210", "mi250", "mi250x", "mi300x", "mi325x", "mi350x", "mi355x")
FLAGSHIPS = ("v100", "a100", "h100", "h200", "b200")
"""From old to new; H100 and H200 have the same chip."""
NO_POWER = {"b300", "gh200", "gh200-144gb"}
"""GPUs whose power sources disagree about, or state with the processor beside them."""


def rates(gpu: Device) -> dict[str, float]:
    return {precision: rate.value for precision, rate in gpu.rates.items()}


def test_every_gpu_that_was_asked_for_ships() -> None:
    assert {*AMPERE, *WORKSTATION, *HOPPER, *NEWER, *ADA_AND_OLDER, *AMD} <= set(GPUS)
    assert {*GEFORCE, *NEWER_GEFORCE, *OLDER_BOARDS, *OTHER_BOARDS} <= set(GPUS)
    assert {*SUPER, *EIGHT_LANES, "rtxpro4500", "rtxpro4000", "gh200-144gb"} <= set(GPUS)


@pytest.mark.parametrize("name", GPUS)
def test_a_lower_precision_is_never_slower(name: str) -> None:
    """On tensor or matrix cores: fp32 <= tf32 <= half precision <= fp8 <= nvfp4."""
    known = rates(GPUS[name])
    for half in known.keys() & {"amp-fp16", "amp-bf16"}:
        assert known[half] >= known.get("tf32", 0.0)
        assert known[half] > known["fp32"]
        assert known.get("fp8", known[half]) >= known[half]
    assert known.get("nvfp4", known.get("fp8", 0.0)) >= known.get("fp8", 0.0)
    assert known.get("tf32", known["fp32"]) >= known["fp32"]


@pytest.mark.parametrize("name", GPUS)
def test_half_precisions_of_one_share_slow_down_alike(name: str) -> None:
    """Where fp16 has the share of bf16, both run at the clocks of a loaded GPU, or neither does."""
    known, slowed = GPUS[name].rates, GPUS[name].sustained
    if "amp-bf16" in known and "the fraction that bf16 reaches" in known["amp-fp16"].source:
        assert slowed["amp-fp16"] < 1.0 or slowed["amp-bf16"] == 1.0


@pytest.mark.parametrize(("older", "newer"), list(pairwise(FLAGSHIPS)))
def test_a_newer_flagship_is_faster_in_every_precision_that_both_have(
    older: str, newer: str
) -> None:
    before, after = GPUS[older], GPUS[newer]
    same_chip = (older, newer) == ("h100", "h200")
    for precision in rates(before).keys() & rates(after).keys():
        ratio = rates(after)[precision] / rates(before)[precision]
        assert ratio == 1.0 if same_chip else ratio > 1.0
    assert after.memory_bandwidth.value > before.memory_bandwidth.value
    assert after.memory_bytes >= before.memory_bytes
    assert set(before.rates) <= set(after.rates)


@pytest.mark.parametrize(
    ("sxm", "pcie"),
    [
        *(("a100", "a100-pcie"), ("h100", "h100-pcie"), ("h100", "h100-nvl")),
        *(("h200", "h200-nvl"), ("rtxpro6000", "rtxpro6000-maxq")),
    ],
)
def test_a_pcie_board_does_not_compute_faster_than_the_sxm_board(sxm: str, pcie: str) -> None:
    for precision, rate in rates(GPUS[pcie]).items():
        assert rate <= rates(GPUS[sxm])[precision]


@pytest.mark.parametrize(
    ("name", "precision", "peak_tflops"),
    [
        ("a100", "amp-bf16", 312),
        ("h100", "fp8", 1978.9),
        ("h100-pcie", "amp-bf16", 756.5),
        ("b200", "amp-bf16", 2250),
        ("gb200", "fp8", 5000),
        ("b200", "nvfp4", 9000),
        ("l40s", "amp-bf16", 362.05),
        ("rtx3090", "amp-fp16", 71),  # summed in fp32; twice that in fp16
        ("rtx4090", "amp-fp16", 165.2),
        ("a10g", "tf32", 35),
        ("a10", "tf32", 62.5),
        ("mi100", "fp32", 46.1),  # matrix cores, as rocBLAS uses
        ("mi300x", "amp-bf16", 1307.4),
        ("mi355x", "amp-bf16", 2516.6),
        ("h20", "amp-bf16", 148),
        ("a6000", "amp-bf16", 154.8),
        ("rtx5090", "amp-fp16", 209.5),
        ("gtx1080ti", "fp32", 11.34),
        ("p40", "fp32", 11.76),
        ("titan-v", "amp-fp16", 110),
        ("rtx3060", "amp-fp16", 25.5),
        ("rtx3080", "amp-bf16", 59.5),
        ("rtx8000", "amp-fp16", 130.5),
        ("a4000", "amp-bf16", 76.7),
        ("h200-nvl", "amp-bf16", 835.5),
        ("h20-3e", "amp-bf16", 148),
        ("gb10", "amp-bf16", 118.8),
        ("rtx5070ti", "amp-fp16", 87.88),
        ("rtx4070ti", "amp-bf16", 80.18),
        ("rtx3090ti", "amp-fp16", 80),
        ("rtxpro6000-maxq", "amp-bf16", 438.8),
        ("rtx5000ada", "amp-bf16", 261.1),
        ("rtx4500ada", "amp-bf16", 158.5),
        ("rtx4000ada", "fp8", 213.8),
        ("rtx2000ada", "amp-fp16", 48),
    ],
)
def test_a_rate_is_a_share_of_the_dense_peak_that_the_data_sheet_prints(
    name: str, precision: str, peak_tflops: float
) -> None:
    rate = GPUS[name].rates[precision]
    stated = re.search(r": ([\d.]+) TFLOP/s x ([\d.]+),", rate.source)
    assert stated is not None
    assert float(stated[1]) == peak_tflops
    assert rate.value == pytest.approx(peak_tflops * 1e12 * float(stated[2]))
    assert 0.3 < float(stated[2]) < 1.2  # some boards run at more than the sheet's clock


@pytest.mark.parametrize(
    ("name", "sheet_gb_per_s"),
    [
        *(("a100", 2039), ("a100-40gb", 1555), ("h100", 3350), ("h200", 4800), ("b200", 8000)),
        *(("h20", 4000), ("mi355x", 8000), ("a6000", 768), ("rtx6000ada", 960), ("rtx5090", 1792)),
        *(("l4", 300), ("l40s", 864), ("rtx4090", 1008), ("mi300x", 5300), ("v100", 900)),
        *(("gtx1080ti", 484), ("p40", 347), ("rtx3080", 760), ("titan-v", 653), ("rtx8000", 672)),
        *(("h200-nvl", 4800), ("h20-3e", 4800), ("gb10", 273), ("rtx5070ti", 896)),
        *(("rtxpro6000-maxq", 1792), ("rtxpro5000", 1344), ("rtx4060ti", 288)),
    ],
)
def test_kernels_reach_less_than_the_data_sheets_bandwidth(
    name: str, sheet_gb_per_s: float
) -> None:
    share = GPUS[name].memory_bandwidth.value / 1e9 / sheet_gb_per_s
    assert 0.7 < share < 0.95


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_states_its_board_and_the_network_inside_a_node(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.architecture and gpu.board and gpu.link
    assert (gpu.power_w is None) == (name in NO_POWER)
    inside = load_any_network(gpu.intra_net, SHIPPED, "intra_net")
    alone = inside.node_type is not None and inside.node_type.gpus == 1
    assert alone == (name == "gb10")
    assert alone or inside.link("intra", "intra_net").rate.value > 0
    if gpu.board.startswith("SXM"):
        node = inside.node_type
        assert (node.inside.link if node else inside.transport).startswith("nvlink")
        assert node is None or node.gpu in (name, "h100", "h20")  # h100-96gb is one, h20-3e too
    if gpu.board == "PCIe" and gpu.pcie:
        no_peers = name in NO_PEERS
        as_wide = gpu.pcie - (gpu.pcie_lanes == 8)  # as many bytes a second as 16 lanes of it
        usual = f"{'geforce-' * no_peers}pcie{as_wide}{'-8' * no_peers}"
        assert gpu.intra_net == ("g5" if name == "a10g" else usual)  # AWS alone has the A10G
    of_own_node = inside.node_type is not None and inside.node_type.gpu == name
    stands_in = not re.search(r"NVLink|PCIe(?!.* x8)", gpu.link) and not of_own_node
    assert bool(gpu.intra_net_why) == stands_in


def test_a_gpu_of_a_fabric_that_a_shipped_node_type_has_names_it() -> None:
    """What its file says of a link that stands in is true only where no node type has its own."""
    nodes = [read_node_type(path) for path in SHIPPED.files("nodes").values()]
    shipped = {node.gpu for node in nodes if node.inside.link == "xgmi"}
    assert shipped >= {"mi250x", "mi300x", "mi325x", "mi355x"}
    for name, gpu in GPUS.items():
        joined = next((node for node in nodes if node.name == gpu.intra_net), None)
        if name in shipped:
            assert joined is not None and joined.gpu == name, name
        if gpu.intra_net_why:
            assert name not in {node.gpu for node in nodes}, name
            assert "Infinity Fabric" not in gpu.link or joined in nodes, name


def test_no_two_gpus_share_a_name() -> None:
    names = [name for gpu in GPUS.values() for name in (gpu.name, *gpu.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("A100-SXM4-40GB", "a100-40gb"),
        ("A100 80GB", "a100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("H100 80GB HBM3", "h100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("h100-sxm5-80gb", "h100"),
        ("NVIDIA H100 Tensor Core GPU", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 80GB HBM2e", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200"),
        ("B200-SXM-180GB", "b200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", "l40"),
        ("Tesla T4", "t4"),
        ("GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("GeForce GTX 1080", "gtx1080"),
        ("Tesla P40", "p40"),
        ("NVIDIA TITAN V", "titan-v"),
        ("NVIDIA TITAN RTX", "titan-rtx"),
        ("NVIDIA GeForce RTX 3060", "rtx3060"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"),
        ("Quadro RTX 8000", "rtx8000"),
        ("Tesla V100S-PCIE-32GB", "v100s"),
        ("NVIDIA RTX A4000", "a4000"),
        ("NVIDIA L20", "l20"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("Quadro RTX 6000", "rtx6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA RTX A6000", "a6000"),
        ("Tesla V100-SXM3-32GB", "v100"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100-PCIE-16GB", "v100-pcie-16gb"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI355X 288GB HBM3e", "mi355x"),
        ("GH200 120GB", "gh200"),  # Grace's memory, as the driver says it
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("nvidia_a100-sxm4-80gb", "a100"),
        ("V100SXM2", "v100"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),  # a seventh of one
        ("NVIDIA A100X", None),
        ("NVIDIA A800-SXM4-80GB", "a800"),  # less NVLink
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA H800 PCIe", None),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H20-3e", "h20-3e"),  # more memory
        ("NVIDIA H20 141GB", "h20-3e"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA H200-NVL-141GB", "h200-nvl"),
        ("NVIDIA H200 NVL 96GB", None),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtxpro6000-maxq"),
        ("NVIDIA RTX Pro 6000 SE PCIe 96GB", "rtxpro6000"),
        ("NVIDIA RTX PRO 5000 Blackwell", "rtxpro5000"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", None),  # more memory
        ("NVIDIA RTX PRO 4500 Blackwell", "rtxpro4500"),
        ("NVIDIA RTX PRO 4000 Blackwell", "rtxpro4000"),
        ("NVIDIA RTX 5000 Ada Generation", "rtx5000ada"),
        ("NVIDIA RTX 4500 Ada Generation", "rtx4500ada"),
        ("NVIDIA RTX 4000 Ada Generation", "rtx4000ada"),
        ("NVIDIA RTX 4000 SFF Ada Generation", None),  # less power
        ("NVIDIA RTX 2000 Ada Generation", "rtx2000ada"),
        ("NVIDIA RTX 2000E Ada Generation", None),  # less power
        ("NVIDIA RTX 3500 Ada Generation Laptop GPU", None),
        ("Quadro RTX 5000", None),  # Turing
        ("NVIDIA GB10", "gb10"),
        ("NVIDIA GeForce RTX 3060 Ti", "rtx3060ti"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx3090ti"),
        ("NVIDIA GeForce RTX 4060 Ti", "rtx4060ti"),
        ("NVIDIA GeForce RTX 4060 Ti 8GB", None),
        ("NVIDIA GeForce RTX 4070", "rtx4070"),
        ("NVIDIA GeForce RTX 4070 Ti", "rtx4070ti"),
        ("NVIDIA GeForce RTX 4070 SUPER", "rtx4070super"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper"),
        ("NVIDIA GeForce RTX 4080 SUPER", "rtx4080super"),
        ("NVIDIA GeForce RTX 5070", "rtx5070"),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx5070ti"),
        ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", None),
        ("Tesla P100-PCIE-12GB", None),
        ("A100-PCIE-96GB", None),
        ("NVIDIA", None),
        ("CPU buffers", None),
        ("H200 or B200 class (not stated)", None),
    ],
)
def test_the_words_of_drivers_and_data_sheets_name_a_gpu(words: str, name: str | None) -> None:
    assert device_named(words, SHIPPED) == name


@pytest.mark.parametrize("name", [name for name, gpu in GPUS.items() if gpu.measured_as])
def test_a_board_measured_as_another_computes_as_that_one(name: str) -> None:
    asked = {"model": "resnet50", "gpus": 8, "net": "10gbe", "method": "dgc", "batch": 256}
    asked["intra_net"] = GPUS[GPUS[name].measured_as].intra_net
    small, large = (
        predict(make_scenario(asked | {"gpu": gpu}), SHIPPED)
        for gpu in (name, GPUS[name].measured_as)
    )
    assert small.iteration_s == large.iteration_s
    assert small.breakdown_s == large.breakdown_s
    warned = [
        any("does not fit into memory" in note for note in one.notes) for one in (small, large)
    ]
    assert warned == [GPUS[name].memory_bytes < GPUS[GPUS[name].measured_as].memory_bytes, False]
    assert small.to_dict()["scenario"]["gpu"] == name


def test_a_board_measured_as_one_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "devices").mkdir()
    shipped = SHIPPED.files("devices")["v100-16gb"].read_text()
    text = shipped.replace('measured_as = "v100"', 'measured_as = "v101"')
    (tmp_path / "devices" / "v100-16gb.toml").write_text(text)
    with pytest.raises(DataError, match="measured_as: no 'v101'; did you mean 'v100'"):
        load_device("v100-16gb", Catalog(tmp_path))


@pytest.mark.parametrize("name", GPUS)
def test_each_gpu_is_found_by_its_own_words(name: str) -> None:
    """Its name and aliases find it, also behind a maker's name and without dashes."""
    gpu = GPUS[name]
    for spelled in (name, *gpu.aliases):
        maker = "AMD Instinct" if gpu.architecture.startswith("CDNA") else "NVIDIA"
        for words in (f"{maker} {spelled.upper()}", spelled.replace("-", " ")):
            assert device_named(words, SHIPPED) == name, words


def test_a_refused_gpu_has_a_nearest_match_by_what_is_not_its_maker() -> None:
    for words, near in (
        ("NVIDIA A100-SXM-64GB", "a100"),
        ("NVIDIA GeForce RTX 4090 Ti", "rtx4090"),
        ("NVIDIA RTX PRO 6000 Laptop", "rtxpro6000"),
        ("Tesla V100-SXM2-8GB", "v100"),
        ("AMD Instinct MI300A", "mi300x"),
    ):
        with pytest.raises(RequestError, match="did you mean") as caught:
            load_device(words, SHIPPED)
        assert caught.value.nearest == near


def test_a_gpu_without_fp8_refuses_it() -> None:
    with pytest.raises(RequestError, match="a100 has no 'fp8' rate"):
        GPUS["a100"].matrix_rate("fp8")
    assert "fp8" in PRECISIONS and "fp8" in GPUS["l4"].rates


def test_list_and_show_tell_what_is_derived() -> None:
    rows = {row.to_dict()["gpu"]: row.to_dict() for row in list_rows("gpus", SHIPPED)}
    assert rows["b200"]["derived"] == "memory bandwidth, launch, tf32, amp-fp16"
    assert rows["v100"]["power"] == "300 W" and rows["b300"]["power"] == ""
    shown = describe_thing("gpu", "b200", SHIPPED).to_dict()
    assert shown["architecture"] == "Blackwell"
    assert shown["network inside a node"] == "dgx-b200"
    assert shown["network between nodes"].startswith("dgx-b200, its usual node's")
    assert shown["derived"] == rows["b200"]["derived"]
    assert rows["v100"]["power_w"] == 300 and rows["b300"]["power_w"] is None
    assert rows["b200"]["memory_bytes"] == shown["memory_bytes"] == GPUS["b200"].memory_bytes
    bandwidth = GPUS["b200"].memory_bandwidth.value
    assert shown["memory_bandwidth_bytes_per_s"] == bandwidth
    assert shown["matrix_rates_flop_per_s"]["amp-bf16"] == GPUS["b200"].rates["amp-bf16"].value
    words = describe_thing("gpu", "b200", SHIPPED).to_dict(numbers=False)
    assert shown.keys() - words.keys() == {
        *("memory_bytes", "memory_bandwidth_bytes_per_s", "power_w"),
        *("kernel_launch_s", "matrix_rates_flop_per_s"),
    }


def test_claims_of_a_scenario_are_plain_data() -> None:
    shown = describe_thing("scenario", "Lin2018_dgc_resnet50_bytes", SHIPPED).to_dict()
    assert shown["claims"] and all(isinstance(one, dict) for one in shown["claims"])


def test_numbers_of_a_network_stand_beside_its_words() -> None:
    found = describe_thing("net", "10gbe", SHIPPED)
    rate = next(one for one in found.to_dict()["values"] if one["what"] == "rate")
    assert rate["unit"] == "B/s" and rate["value"].startswith(f"{rate['number'] / 1e9:.4g} GB/s")
    assert all("number" not in one for one in found.to_dict(numbers=False)["values"])
