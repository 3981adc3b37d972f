"""The picture of a network, as text and as a page."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from perfsim.network.fabrics.slowdown import Fabric
from perfsim.report.network_drawing import DrawnLink, Picture, draw_text, network_page

KINDS = ("NVSwitch", "PCIe tree, 2 GPUs a switch, no peer access")

FABRICS = (
    Fabric("single-switch"),
    Fabric("leaf-spine", (("nodes_per_leaf", 3), ("spines", 2), ("oversubscription", 2.0))),
    Fabric("fat-tree", (("k", 8),)),
    Fabric("torus", (("dims", (8, 16)),)),
)


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    """Draw a picture with or without each of its parts."""
    fabric = draw(st.sampled_from(FABRICS))
    nodes = draw(st.integers(1, 100))
    wire = st.one_of(st.none(), st.just(DrawnLink("12.5 GB/s", "5.25 us a hop")))
    return Picture(
        title=draw(st.text(max_size=120)),
        inter=draw(wire),
        intra=draw(wire),
        nodes=nodes,
        gpus_per_node=draw(st.one_of(st.none(), st.integers(1, 72))),
        nics_per_node=draw(st.integers(1, 16)),
        inter_kind=fabric.words(),
        intra_kind=draw(
            st.sampled_from(["NVSwitch", "PCIe tree, 2 GPUs a switch, no peer access"])
        ),
        graph=draw(st.sampled_from([None, fabric.graph(nodes, 2, 12.5e9)])),
        notes=tuple(draw(st.lists(st.text(max_size=200), max_size=2))),
    )


def two_leaves() -> Picture:
    """Return the picture of four nodes on two leaves."""
    fabric = Fabric("leaf-spine", (("nodes_per_leaf", 2), ("oversubscription", 2.0)))
    graph = fabric.graph(4, 1, 1.25e9)
    wires = (DrawnLink("1.25 GB/s", "25 us a hop"), DrawnLink("10 GB/s"))
    return Picture("a", *wires, 4, 2, 1, fabric.words(), "NVSwitch", graph)


def test_two_leaves_by_hand() -> None:
    # A leaf of two nodes at 1.25 GB/s, 2:1: one uplink of 1.25 GB/s.
    assert draw_text(two_leaves()).splitlines() == [
        "a",
        "",
        "between nodes: leaf-spine, 2 nodes a leaf, 2:1 oversubscribed; a NIC 1.25 GB/s,",
        "  25 us a hop",
        "",
        "spine     [spine 0]",
        "          |  1 uplink of 1.25 GB/s each",
        "leaf      [leaf 0] [leaf 1]",
        "          |",
        "  +----------------------+ +----------------------+ +----------------------+",
        "  | node 0               | | node 1               | | node 2               |",
        "  | [NIC]                | | [NIC]                | | [NIC]                |",
        "  | ======NVSwitch====== | | ======NVSwitch====== | | ======NVSwitch====== |",
        "  | GPU 0 1              | | GPU 0 1              | | GPU 0 1              |",
        "  +----------------------+ +----------------------+ +----------------------+",
        "  ... 1 more",
        "",
        "in a node: NVSwitch; 10 GB/s",
    ]


def test_a_network_inside_a_node_only_has_one_box_and_no_nic() -> None:
    text = draw_text(Picture("p", None, DrawnLink("10 GB/s"), gpus_per_node=16))
    assert text.count("| node ") == 1
    assert "NIC" not in text and "more" not in text
    assert "GPU 0 to 15" in text


@given(pictures())
def test_text_is_ascii_and_at_most_80_wide(picture: Picture) -> None:
    lines = draw_text(picture).split("\n")
    assert all(len(line) <= 80 for line in lines)
    assert "\n".join(lines).isascii()
    drawn = sum(line.count("| node ") for line in lines)
    shown = 1 if picture.inter is None else min(3, picture.nodes)
    assert drawn == shown


@given(pictures())
def test_the_page_is_well_formed_and_carries_nothing_from_elsewhere(picture: Picture) -> None:
    text = network_page(picture)
    assert (
        "<script" not in text
        and "http:" not in (own := text.replace(picture.title, ""))
        and "https:" not in own
    )
    svg = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for box in svg.iter("rect"):
        x, y, wide, high = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert x >= 0 and x + wide <= width and y >= 0 and y + high <= height


def test_the_page_draws_a_wire_for_each_link_between_what_it_shows() -> None:
    text = network_page(two_leaves())
    assert text.count('class="wire"') == 4 + 2
    assert text.count('class="node"') == 4 and text.count('class="switch"') == 3
    assert text.count('class="gpu"') == 8
