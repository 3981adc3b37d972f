"""The picture of a node type, as text and as a page."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from functools import cache
from math import exp
from pathlib import Path

import pytest

from perfsim.cli.main import code
from perfsim.hardware.nodes import node_facts
from perfsim.network.node_law import node_error, node_law
from perfsim.network.node_type import load_node_type
from perfsim.pictures import network_picture, node_picture
from perfsim.report.html.node_page import node_figures, node_page
from perfsim.report.network_drawing import draw_text
from perfsim.report.node_drawing import NodePicture, node_drawing, node_text
from support.what_ships import SHIPPED

NODES = tuple(SHIPPED.files("nodes"))
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv"),
)
OWN = """
schema = "perfsim/node/1"
name = "ours"
title = "Our server: 4 of <any> GPU & one NIC"
gpu = ""
gpus = 4
source = "the order of 2026"
notes = ["not looked up: the switch between the sockets"]

[inside]
link = "pcie4"
rate = "31.5GB/s"
switch = false
peer_access = false
source = "derived: 16 lanes of 16 GT/s"

[nics]
count = 1
rate = "25Gbit/s"
transport = "tcp"
gpudirect = false
source = "the order of 2026"
"""


@cache
def picture(name: str) -> NodePicture:
    return node_picture(name, SHIPPED)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "ours.toml"
    path.write_text(OWN)
    return path


@pytest.mark.parametrize("name", NODES)
def test_text_is_ascii_and_at_most_80_wide(name: str) -> None:
    text = node_text(picture(name))
    assert text.isascii() and all(len(line) <= 80 for line in text.split("\n"))
    assert text.count("| node ") == 1


@pytest.mark.parametrize("name", NODES)
def test_the_drawing_holds_every_gpu_and_nic(name: str) -> None:
    """By hand: up to 16 GPUs or NICs are drawn one by one, more are one box."""
    of, drawing = picture(name), node_drawing(picture(name))
    kinds = [shape.kind for shape in drawing.shapes if shape.shape == "box"]
    assert kinds.count("gpu") == (of.gpus if of.gpus <= 16 else 1)
    assert kinds.count("nic") == (of.nics if of.nics <= 16 else 1)
    for box in (shape for shape in drawing.shapes if shape.shape == "box"):
        assert box.x >= 0 and box.x + box.width <= drawing.width
        assert box.y >= 0 and box.y + box.height <= drawing.height


@pytest.mark.parametrize(
    ("name", "kind", "style", "nics"),
    [
        ("dgx-h100", "NVSwitch, NVLink 4", "switch", "8 x 400 Gbit/s one way"),
        ("dgx-1", "NVLink 2 mesh, no switch", "mesh", "4 x 100 Gbit/s one way"),
        ("mi300x-8", "xGMI mesh", "mesh", "RDMA over Ethernet (RoCE), GPUDirect"),
        ("geforce-pcie4-8", "PCIe 4 via host, no peer access", "host", "TCP sockets"),
        ("pcie4-8", "PCIe 4, peer access", "mesh", "through the host's memory"),
        ("p5", "NVSwitch, NVLink 4", "switch", "32 x 100 Gbit/s one way, AWS EFA (SRD)"),
        ("eth-10g", "", "mesh", "1 x 10 Gbit/s one way, TCP sockets"),
    ],
)
def test_what_joins_gpus_and_nodes_is_said(name: str, kind: str, style: str, nics: str) -> None:
    found = picture(name)
    assert (found.inside_kind, found.inside_style) == (kind, style)
    assert nics in found.nic_words


@pytest.mark.parametrize("name", ["dgx-h100", "p3dn", "mi300x-8", "geforce-pcie4-8", "eth-10g"])
def test_curves_are_the_laws_with_its_own_errors(name: str) -> None:
    found, node = picture(name), load_node_type(name, SHIPPED, "node")
    facts = node_facts(node, SHIPPED)
    shapes = {(curve.collective, curve.nodes) for curve in found.curves}
    nodes = (2, 4, 16, 64) if node.gpus == 1 else (1, 2, 4, 16, 64)
    assert shapes == {(collective, count) for collective in COLLECTIVES for count in nodes}
    for curve in found.curves:
        for point in curve.points[::7]:
            size = point.size_bytes
            call = node_law().call(facts, curve.collective, curve.gpus, curve.nodes, size)
            assert call is not None
            times = exp(node_error(facts, curve.nodes, size))
            asked = (call.seconds, call.seconds / times, call.seconds * times)
            assert (point.seconds, point.low_s, point.high_s) == pytest.approx(asked)
            assert point.algorithm == call.algorithm


def test_rates_of_the_data_sheet_by_hand() -> None:
    """p5: 450 GB/s inside; 32 NICs of 12.5 GB/s, four of a GPU; p3dn: one NIC for eight GPUs."""

    def last(name: str, collective: str) -> float:
        return picture(name).line_rates[collective][-1].rate

    assert [line.rate for line in picture("p5").line_rates["all_reduce"]] == [450e9, 400e9]
    assert (last("p5", "send_recv"), last("p5", "all_to_all")) == (50e9, 50e9)
    assert (last("p3dn", "send_recv"), last("p3dn", "all_to_all")) == (12.5e9, 12.5e9 / 8)


def test_facts_say_what_is_stated_derived_and_not_looked_up(own: Path) -> None:
    facts = {fact.what: fact for fact in node_picture(str(own), SHIPPED).facts}
    assert facts["GPUs of a node"][1:] == ("4", "stated", "the order of 2026")
    assert facts["rate inside, of a GPU, one way"][1:] == (
        *("31.5 GB/s", "derived"),
        "16 lanes of 16 GT/s",
    )
    assert facts["rate of a NIC, one way"].value == "25 Gbit/s, 3.125 GB/s"
    assert facts["what carries messages"].value == "TCP sockets"
    assert facts["the switch between the sockets"].origin == "not looked up"


@pytest.mark.parametrize("name", NODES)
def test_every_fact_has_an_origin_and_a_source(name: str) -> None:
    for fact in picture(name).facts:
        assert fact.origin in ("stated", "derived", "not looked up")
        assert fact.source if fact.origin != "not looked up" else fact.value == "-"


def test_figures_hold_rate_and_time_and_a_table_of_both() -> None:
    figures = node_figures(picture("dgx-h100"))
    assert [figure.name for figure in figures] == list(COLLECTIVES)
    for figure, curves in zip(figures, (5,) * 6, strict=True):
        seen = [trace.get("visible", True) for trace in figure.data]
        rate, timed = (
            one["args"][0]["visible"] for one in figure.layout["updatemenus"][0]["buttons"]
        )
        assert seen == rate and timed == [not one for one in rate]
        assert timed.count(True) == 2 * curves and rate.count(True) == 2 * curves + 2
        per_second = {"time [ms]": 1e3, "time [µs]": 1e6}[figure.head[3]]
        for nodes, gpus, size, time, low, high, bus, *_ in figure.rows:
            assert gpus == 8 * nodes and low < time < high
            if figure.name == "all_reduce":
                assert bus == pytest.approx(2 * (gpus - 1) / gpus * size / time * per_second / 1e9)


def test_the_page_is_whole_and_opens_offline(own: Path, tmp_path: Path) -> None:
    path = tmp_path / "node.html"
    assert code(["show", "node", str(own), "--html", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "Our server: 4 of &lt;any&gt; GPU &amp; one NIC" in text and "<any>" not in text
    svg = ET.fromstring(text[text.index("<svg class") : text.index("</svg>") + len("</svg>")])
    assert len([box for box in svg.iter("rect") if box.attrib["class"] == "gpu"]) == 4
    assert "src=" not in text[: text.index("<script>")]
    held = text.partition('<script type="application/json" id="node">')[2].partition("</script>")[0]
    result = json.loads(held)
    assert (result["schema"], result["node"]) == ("perfsim/show/1", "ours")
    assert len(result["curves"]) == 30 and result["facts"][0]["what"] == "GPU"
    assert sorted(tmp_path.iterdir()) == [path, own]


@pytest.mark.parametrize(
    ("asked", "left", "said"),
    [
        ("node dgx-h10 --html page.html", 2, "no 'dgx-h10'; did you mean 'dgx-h100'?"),
        (
            "node none.toml --html page.html",
            3,
            "there is no file 'none.toml'; give",
        ),
        ("node dgx-h100 --html none/page.html", 2, "'none/page.html' cannot be written"),
        ("gpu a100 --html page.html", 2, "only networks and nodes have a picture, not a gpu"),
        ("node damaged.toml --html page.html", 3, "damaged.toml"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_writes_nothing(
    asked: str,
    left: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    damaged = tmp_path / "damaged.toml"
    damaged.write_text(OWN.replace('"tcp"', '"pigeons"'))
    assert code(["show", *asked.split()]) == left
    out, err = capsys.readouterr()
    assert out == "" and said in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [damaged]


def test_a_network_with_a_node_type_draws_its_nics_and_rates() -> None:
    """By hand: p5 has 32 NICs, four of a GPU; Alps four of 200 Gbit/s."""
    text = draw_text(network_picture("p5-h100-efa3200", SHIPPED))
    assert "[NIC] x 32" in text and "4 NICs together 57.89 GB/s" in text
    assert "=NVSwitch=" in text and "450 GB/s a GPU one way by data sheet" in " ".join(text.split())
    assert "its nodes are p5, whose data sheet says" in text and "32 x" in text
    alps = draw_text(network_picture("alps-gh200-slingshot11", SHIPPED))
    assert "[NIC] x 4" in alps and "a NIC 23.08 GB/s" in alps and "200 Gbit/s" in alps
    assert "data sheet" not in draw_text(network_picture("10gbe", SHIPPED))


def test_a_page_of_72_gpus_is_drawn() -> None:
    text = node_page(picture("gb200-nvl72"))
    assert "72 GPUs" in text and "72 NICs" in text
