"""Files of node types: those that ship, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.compute.device import load_device
from perfsim.errors import DataError, RequestError
from perfsim.network.node_network import node_network
from perfsim.network.node_type import load_node_type, read_node_type
from support.what_ships import SHIPPED

GOOD = """\
schema = "perfsim/node/1"
name = "mine"
title = "our server"
gpu = "a100"
gpus = 4
source = "by hand"

[inside]
link = "pcie4"
rate = "31.5GB/s"
switch = false
peer_access = true
source = "PCIe 4.0 x16"

[nics]
count = 2
rate = "100Gbit/s"
transport = "roce"
gpudirect = true
source = "its data sheet"
"""

# DESIGN.md, section 6: names that are fixed.
NAMED = """dgx-1 dgx-2 dgx-a100-40gb dgx-a100 dgx-h100 dgx-h200 dgx-b200 gb200-nvl72 p3dn p4d p4de
p5 p5en p6-b200 p6-b300 a2 a3-high a3-mega a3-ultra a4 nd40 ndv4 ndv5-h100 ndv5-h200 oci-h100
mi300x-8 mi325x-8"""


def test_the_named_node_types_ship() -> None:
    assert set(NAMED.split()) <= set(SHIPPED.files("nodes"))


@pytest.mark.parametrize("name", sorted(SHIPPED.files("nodes")))
def test_a_shipped_node_type_is_whole(name: str) -> None:
    catalog = SHIPPED
    node = load_node_type(name, catalog, "node")
    assert node.name == name and node.title and node.source and node.inside.source
    assert not node.gpu or node.gpu in catalog.files("devices")
    if node.usual_gpu:
        usual = load_device(node.usual_gpu, catalog)
        assert not node.gpu and node.inside.link == f"pcie{usual.pcie}" and usual.board == "PCIe"
    assert name not in catalog.files("networks")  # --net takes both names
    network = node_network(node)
    assert ("intra" in network.links) == (node.gpus > 1)
    assert ("inter" in network.links) == (node.nics is not None)
    if node.nics is not None:
        assert node.nics.source
        # What is reached never exceeds the data sheet.
        reached = network.links["inter"].rate.value * network.nics_per_node
        assert 0.2 < reached / (node.nics.number * node.nics.rate) <= 1.0
    if node.gpus > 1:
        assert 0.1 < network.links["intra"].rate.value / node.inside.rate <= 1.0


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    node = load_node_type(str(path), SHIPPED, "node")
    assert (node.gpus, node.library, node.nics and node.nics.rate) == (4, "nccl", 12.5e9)
    assert node.facts("ampere").inside == "pcie"
    faster = node.with_nics(None, 25e9)
    assert faster.nics is not None and faster.nics[:2] == (2, 25e9)
    assert "given by the user, in place of 2 x 12.5 GB/s" in faster.nics.source


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"pcie4"', '"pci4"', "inside.link: found 'pci4'; did you mean 'pcie4'?"),
        ('"pcie4"', '"none"', "inside.link: found 'none' for 4 GPUs"),
        ('"31.5GB/s"', '"31.5"', "inside.rate: '31.5' is not a rate"),
        ('"31.5GB/s"', '"0GB/s"', "inside.rate: found 0 with link 'pcie4'"),
        ("peer_access = true\n", "", "inside.peer_access: "),
        ("count = 2", "count = 0", "nics.count: found 0, allowed is a whole number"),
        ("count = 2", "count = 4096", "nics.count: found 4096, allowed is 1 to 1024"),
        ('"roce"', '"rocket"', "nics.transport: found 'rocket'; did you mean 'roce'?"),
        ("gpus = 4", "gpu_count = 4", "gpu_count: unknown key"),
        ("gpus = 4", "gpus = -4", "gpus: found -4"),
        (
            "gpus = 4",
            'gpus = 4\nusual_gpu = "a30"',
            "usual_gpu: found 'a30', allowed is none where",
        ),
        ('source = "by hand"\n', "", "source: "),
        ("perfsim/node/1", "perfsim/node/2", "schema"),
        ('"our server"', "3", "title: found 3, allowed is a text"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, before: str, after: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    assert GOOD.count(before) == 1
    path.write_text(GOOD.replace(before, after))
    with pytest.raises(DataError) as caught:
        read_node_type(path)
    assert said in str(caught.value) and "mine.toml" in str(caught.value)


def test_an_unknown_node_type_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'dgx-h100'"):
        load_node_type("dgx-h10", SHIPPED, "node")
    with pytest.raises(RequestError, match=r"node: there is no file 'none\.toml'"):
        load_node_type("none.toml", SHIPPED, "node")


def test_a_single_node_has_no_nics_to_change() -> None:
    node = load_node_type("dgx-h100", SHIPPED, "node")._replace(nics=None)
    assert node_network(node).links.keys() == {"intra"}
    with pytest.raises(RequestError, match="nic: dgx-h100 has no NICs"):
        node.with_nics(None, 1e9)


def test_a_switch_of_several_gpus_and_virtual_nics_are_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = GOOD.replace("peer_access = true\n", "peer_access = false\ngpus_per_switch = 4\n")
    path.write_text(text.replace("gpudirect = true\n", "gpudirect = true\nvirtual = true\n"))
    of = read_node_type(path).facts("ampere")
    assert (of.inside, of.gpus_per_switch, of.virtual) == ("host", 4, True)
    path.write_text(GOOD)
    plain = read_node_type(path).facts("ampere")
    assert (plain.gpus_per_switch, plain.virtual, plain.pairs) == (1, False, False)
    path.write_text(GOOD.replace("peer_access = true\n", "peer_access = true\npairs = true\n"))
    assert read_node_type(path).facts("ampere").pairs
    path.write_text(GOOD.replace("gpudirect = true\n", "gpudirect = true\nin_ring = 1\n"))
    ringed = read_node_type(path)
    assert (
        ringed.facts("ampere").in_ring == ringed.with_nics(None, 1e9).facts("ampere").in_ring == 1
    )
    assert ringed.with_nics(2, None).facts("ampere").in_ring == plain.in_ring == 0
    for line, wrong in (
        ("peer_access = true", "gpus_per_switch = 0"),
        ("count = 2", "virtual = 2"),
        ("count = 2", "in_ring = 0"),
    ):
        path.write_text(GOOD.replace(line, f"{line}\n{wrong}"))
        with pytest.raises(DataError, match=wrong.partition(" ")[0]):
            read_node_type(path)
