"""Files that state fabrics: a graph of one's own, and the tables of a network file."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import pytest

from perfsim.errors import DataError, RequestError
from perfsim.network.fabrics.slowdown import Fabric, fabrics
from perfsim.network.fabrics.tables import read_fabric, read_node
from support.fabric_tables import node, read

# A graph of one's own

RACKS = """# two racks
from,to,rate,latency
a1,top-a,10Gbit/s,
a2,top-a,10Gbit/s,
b1,top-b,10Gbit/s,
b2,top-b,10Gbit/s,
top-a,top-b,10Gbit/s,3us
"""


@pytest.fixture
def racks(tmp_path: Path) -> Path:
    path = tmp_path / "racks.csv"
    path.write_text(RACKS)
    return path


def test_a_csv_of_links_by_hand(racks: Path) -> None:
    fabric = read(racks.parent, kind="graph", file="racks.csv", hosts=["a*", "b*"])
    assert fabric.slowdown("ring", (4,) * 4, 1) == 1.0  # one flow each way between the racks
    assert fabric.slowdown("all_to_all", (4,) * 4, 1) == pytest.approx(4 / 3)
    # a1-top-a-top-b-b1: 3 us on the wire between, none stated for the rest.
    assert fabric.extra_latency_s("all_to_all", (4,) * 4) == pytest.approx(3e-6)
    with pytest.raises(RequestError, match="graph fabric has 4 nodes, 5 are asked for"):
        fabric.slowdown("ring", (4,) * 5, 1)


def test_a_slow_nic_shows_against_the_fastest_or_the_stated(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("from,to,rate\nx,s,100Gbit/s\ny,s,25Gbit/s\n")
    keys = {"kind": "graph", "file": "n.csv", "hosts": ["x", "y"]}
    assert read(tmp_path, **keys).slowdown("ring", (1, 1), 1) == pytest.approx(4.0)
    stated = read(tmp_path, **keys, node_rate="50Gbit/s")
    assert stated.slowdown("ring", (1, 1), 1) == pytest.approx(2.0)


def test_graphml_and_json_say_the_same_as_csv(racks: Path) -> None:
    graph = nx.Graph()
    for line in RACKS.splitlines()[2:]:
        a, b, rate, latency = line.split(",")
        graph.add_edge(a, b, rate=rate, **({"latency": latency} if latency else {}))
    for vertex in graph:
        graph.nodes[vertex]["kind"] = "switch" if "top" in vertex else "host"
    nx.write_graphml(graph, racks.parent / "racks.graphml")
    import json

    data = nx.node_link_data(graph, edges="links")
    (racks.parent / "racks.json").write_text(json.dumps(data))
    for name in ("racks.graphml", "racks.json"):
        fabric = read(racks.parent, kind="graph", file=name)
        assert fabric.slowdown("all_to_all", (4,) * 4, 1) == pytest.approx(4 / 3)
        assert fabric.extra_latency_s("all_to_all", (4,) * 4) == pytest.approx(3e-6)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("n.csv", "from,to,rate\nx,s,25\n", "line 2: rate: '25' is not a rate"),
        ("n.csv", "from,to,rate\nx,x,1GB/s\n", "line 2: from 'x' to 'x': is no link"),
        ("n.csv", "from,to\nx,s\n", "column 'rate': missing column"),
        ("n.csv", "from,to,rate\nx,s,1GB/s\n", "no vertex has kind host; name some with hosts"),
        ("n.csv", "from,to,rate\nx,s,1GB/s\nx,s,2GB/s\n", "line 3: from 'x' to 's': is no link"),
        ("n.json", '{"nodes": [{"id": 1}], "links": [{}]}', "is not a graph as networkx"),
        ("n.json", "{", "is not a graph as networkx writes .json"),
        ("n.json", "[]", "is not a graph as networkx writes .json"),
        ("n.graphml", "<a", "is not a graph as networkx writes .graphml"),
        ("n.dot", "", "is no graph; allowed: .csv, .graphml, .json"),
    ],
)
def test_a_damaged_graph_is_one_sentence(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    fabric = read(tmp_path, kind="graph", file=name)
    with pytest.raises(DataError) as error:
        fabric.slowdown("ring", (1, 1), 1)
    assert message in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_hosts_that_name_no_vertex_are_refused(racks: Path) -> None:
    fabric = read(racks.parent, kind="graph", file="racks.csv", hosts=["a*", "c*"])
    with pytest.raises(DataError, match=r"no vertex is named like 'c\*' of hosts"):
        fabric.slowdown("ring", (1, 1), 1)


def test_a_graph_that_is_not_there(tmp_path: Path) -> None:
    for name in ("n.csv", "n.json", "n.graphml"):
        with pytest.raises(DataError, match=f"fabric.file: found {name!r}, no such file"):
            read(tmp_path, kind="graph", file=name).slowdown("ring", (1, 1), 1)


# The tables of a network file


def test_tables_are_read(tmp_path: Path) -> None:
    fabric = read(
        tmp_path,
        kind="leaf-spine",
        nodes_per_leaf=16,
        oversubscription=2,
        hop_latency="0.5us",
        spread=True,
        ties="first",
    )
    options = (("nodes_per_leaf", 16), ("oversubscription", 2.0))
    assert fabric == Fabric("leaf-spine", options, 0.5e-6, True, "first", "a test")
    tree = read(tmp_path, kind="fat-tree", k=8, oversubscription=[2.0, 1.5])
    assert dict(tree.options)["oversubscription"] == (2.0, 1.5)
    assert read(tmp_path, kind="torus", dims=[4, 4]).words() == "torus 4 x 4"
    assert node(fabric="nvswitch", gpus=8, nics=4).nics == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "fabric.kind: is missing"),
        (
            {"kind": "ring"},
            "fabric.kind: found 'ring', allowed: fat-tree, graph, leaf-spine, single-switch, torus",
        ),
        ({"kind": "leaf-spine"}, "fabric.nodes_per_leaf: is missing: nodes on one leaf switch"),
        (
            {"kind": "single-switch", "spred": True},
            "fabric.spred: unknown key; did you mean 'spread'? Allowed: kind, hop_latency, spread,"
            " ties, source",
        ),
        (
            {"kind": "leaf-spine", "nodes_per_leaf": 4, "oversubscription": 0.5},
            "fabric.oversubscription: found 0.5, allowed is a number, 1 to 1000",
        ),
        (
            {"kind": "single-switch", "spread": "yes"},
            "fabric.spread: found 'yes', allowed are true and false",
        ),
        (
            {"kind": "single-switch", "ties": "last"},
            "fabric.ties: found 'last', allowed: even, first",
        ),
        ({"kind": "single-switch", "ties": [3]}, "fabric.ties: found [3], allowed: even, first"),
        (
            {"kind": "torus", "dims": 4},
            "fabric.dims: found 4, allowed is a list of 1 to 6 whole numbers",
        ),
        (
            {"kind": "fat-tree", "k": 4, "oversubscription": [1, 1, 1]},
            "fabric.oversubscription: found [1, 1, 1], allowed are one number or [leaf, pod]",
        ),
        (
            {"kind": "single-switch", "hop_latency": 5},
            "fabric.hop_latency: '5' is not a time; give a number and a unit",
        ),
    ],
)
def test_a_wrong_table_is_one_sentence(
    tmp_path: Path, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path, **keys)
    assert f"{tmp_path / 'net.toml'}: {message}" in str(error.value)


def test_a_table_without_a_source_is_refused() -> None:
    for keys, read_table in (
        ({"kind": "single-switch"}, read_fabric),
        ({"fabric": "nvswitch", "gpus": 8}, read_node),
    ):
        with pytest.raises(DataError, match="source: is missing"):
            read_table(keys, Path("net.toml"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fabric": "nvswitch"}, "node.gpus: is missing"),
        ({"fabric": "nvswitch", "gpus": 0}, "node.gpus: found 0"),
        ({"fabric": "nvswitch", "gpus": 99999}, "allowed is a whole number, 1 to 128"),
        (
            {"fabric": "pcie-tree", "gpus": 8, "gpus_per_switch": 2},
            "node.peer_access: is missing: whether",
        ),
        (
            {"fabric": "nvlink-mesh", "gpus": 8, "layout": "dgx-1"},
            "node.layout: found 'dgx-1'; did you mean 'dgx-1-v100'? Allowed: dgx-1-v100,"
            " dgx-1-p100",
        ),
    ],
)
def test_a_wrong_node_is_one_sentence(keys: dict[str, object], message: str) -> None:
    with pytest.raises(DataError) as error:
        node(**keys)
    assert message in str(error.value)


def test_every_option_of_every_fabric_is_an_argument_of_its_builder() -> None:
    import inspect

    for place in ("inter", "intra"):
        for name, kind in fabrics(place).items():  # type: ignore[arg-type]
            taken = inspect.signature(kind.build).parameters
            told = inspect.signature(kind.words).parameters
            assert set(kind.options) <= set(taken), name
            assert set(kind.options) == set(told), name
