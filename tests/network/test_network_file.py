"""Networks: a link of the user's own, and network files, good and damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfsim.data.catalog import Catalog
from perfsim.errors import DataError, RequestError
from perfsim.network.cluster import load_network, read_network
from perfsim.network.link import nccl_link_class
from perfsim.note import briefs, of_grade
from perfsim.prediction import predict
from perfsim.quantity import Quantity
from perfsim.scenario import make_scenario

GOOD = """\
schema = "perfsim/network/1"
name = "mine"
title = "my switch"
transport = "tcp"
gpus_per_node = 2
nics_per_node = 1
notes = ["by hand"]

[[link]]
class = "inter"
ranks = [4, 8]
rate = { value = "1GB/s", range = ["1KB", "1MB"], residual = "3%", kind = "fitted", source = "s" }
tree_rate = { value = "0.5GB/s", error = "0.05GB/s", kind = "measured", source = "s" }
gamma = { value = "0.001ns/B", kind = "derived", source = "s" }
falls_with_nodes = { value = 0.2, error = 0.1, nodes = 2, kind = "derived", source = "s" }

[[link.segments]]
algorithm = "ring"
kind = "fitted"
source = "s"
range = ["1KB", "1MB"]
residual = "0.1"
knots = [{ size = "1KB", alpha = "50us" }, { size = "100KB", alpha = "70us" }]

[[link.segments]]
algorithm = "tree"
kind = "fitted"
source = "s"
residual = "5%"
knots = [{ size = "1KB", alpha = "40us" }]

[[link]]
class = "intra"
rate = { value = "10GB/s", kind = "measured", source = "s" }
gamma = { value = "0s/B", kind = "derived", source = "s" }
alpha = { value = "2us", kind = "measured", source = "s" }
"""


# Links of one's own


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", "net: '10' is not a rate (a bare number has no unit); give a number"),
        ("10Gbit/s", "net: '10Gbit/s' is a rate without a latency; write rate,latency such as"),
        (
            "10Gbps",
            "net: no '10Gbps'; did you mean '10gbe'? A link of your own is rate,latency such as"
            " 10Gbit/s,20us.",
        ),
        ("400gbe", "net: no '400gbe'; a link of your own is rate,latency such as 400Gbit/s,20us."),
        ("NDR", "net: no 'NDR'; did you mean 'ib400': 400 Gbit/s InfiniBand (NDR), one NIC a node"),
        (
            "ib-hdr",
            "net: no 'ib-hdr'; did you mean 'ib200': 200 Gbit/s InfiniBand (HDR), one NIC a node,"
            " GPUDirect? Allowed are {count} names, such as",
        ),
        ("roce", "net: no 'roce'. Allowed are {count} names, such as gcp-a3ultra-roce,"),
        ("12 gbit", "net: no '12 gbit'; a link of your own is rate,latency such as 12Gbit/s,20us."),
        ("9Gbps,1us", "net: '9Gbps' is not a rate (unit 'Gbps' is not one; write 'Gbit/s');"),
        ("9Mb/s,1us", "net: '9Mb/s' is not a rate (unit 'Mb/s' is not one; write 'Mbit/s');"),
        (
            "nvlink",
            "net: no 'nvlink' between nodes; links inside a node, such as 'nvlink-a100', are for"
            " intra_net; or give rate,latency",
        ),
        ("10Gbit/s,50", "net: '50' is not a time (a bare number has no unit)"),
        ("50us,10Gbit/s", "net: '50us' is not a rate (unit 'us' is not one)"),
        (
            "0GB/s,50us",
            "net: the rate in '0GB/s,50us' is not allowed: it must be 1 B/s to 1e18 B/s.",
        ),
        ("1GB/s,5us,3", "net: '1GB/s,5us,3' has 3 parts; a link of your own is rate,latency"),
        ("10gbe2", "net: no '10gbe2'; did you mean '10gbe'? Allowed are {count} names"),
    ],
)
def test_a_network_that_is_none(text: str, message: str) -> None:
    with pytest.raises(RequestError) as error:
        load_network(text, Catalog(), "net")
    count = len(Catalog().files("networks"))
    assert str(error.value).startswith(message.format(count=count))


def test_a_link_of_ones_own_says_so() -> None:
    network = load_network("8Gbit/s, 50us", Catalog(), "net")
    link = network.link("inter", "net")
    assert (link.rate.value, link.tree.at(1e9)) == (1e9, 5e-5)
    assert (link.rate.kind, link.rate.source) == ("derived", "given by the user")
    assert network.links["intra"] == link


# Network files


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_network_file_by_hand(tmp_path: Path) -> None:
    network = read_network(write(tmp_path, GOOD))
    assert (network.name, network.gpus_per_node, network.notes) == ("mine", 2, ("by hand",))
    inter, intra = network.links["inter"], network.links["intra"]
    assert inter.rate == Quantity(1e9, "B/s", "fitted", "s", 0.03, 1e3, 1e6)
    assert inter.tree_rate.spread == pytest.approx(0.1)  # 0.05 of 0.5 GB/s
    assert inter.gamma.value == pytest.approx(1e-12)
    assert inter.ranks == (4, 8)
    assert inter.ring.at(10e3) == pytest.approx(60e-6)  # half way in log size
    assert (inter.ring.at(1.0), inter.ring.at(1e9)) == (50e-6, 70e-6)
    assert inter.tree.at(1e6) == 40e-6
    assert intra.tree_rate == intra.rate
    assert intra.ring.at(5.0) == intra.tree.at(5e9) == 2e-6


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"1KB", alpha = "50us"', '"0B", alpha = "5us"', "link[1].segments[1].knots[1].size: fou"),
        ("perfsim/network/1", "perfsim/network/2", "schema: found 'perfsim/network/2', this"),
        ('name = "mine"', "", "name: is missing"),
        ("gpus_per_node = 2", "gpus_per_nodes = 2", "gpus_per_nodes: unknown key; did you mean"),
        ("gpus_per_node = 2", "gpus_per_node = 0", "gpus_per_node: found 0, allowed is a whole"),
        ('class = "intra"', 'class = "inter"', "link[2].class: 'inter' stands in an earlier"),
        ('class = "intra"', 'class = "wan"', "link[2].class: found 'wan', allowed: inter, intra"),
        ('value = "1GB/s"', 'value = "1"', "link[1].rate.value: '1' is not a rate (a bare number"),
        ('value = "1GB/s"', 'value = "0GB/s"', "link[1].rate.value: found '0GB/s', allowed is 1"),
        ('value = "1GB/s"', 'value = "1e-300B/s"', "link[1].rate.value: found '1e-300B/s', all"),
        ('value = "0.5GB/s"', 'value = "0GB/s"', "link[1].tree_rate.value: found '0GB/s', allowed"),
        ('"0.05GB/s"', '"5GB/s"', "link[1].tree_rate.error: found an error of 1000%"),
        ('residual = "3%"', "residual = 5", "link[1].rate.residual: found 5, allowed is 0 % to"),
        ('residual = "3%"', "residual = 1e308", "link[1].rate.residual: found 1e+308, allowed is"),
        ('"3%"', "9" * 400, f"link[1].rate.residual: found {'9' * 60}..., allowed is 0 % to 300 %"),
        ('residual = "5%"', 'residual = "301%"', "link[1].segments[2].residual: found '301%',"),
        ('"2us"', '"1h"', "link[2].alpha.value: found '1h', allowed is 0 s to 10 s"),
        ('"0s/B"', '"2s/B"', "link[2].gamma.value: found '2s/B', allowed is 0 s/B to 1 s/B"),
        ('name = "mine"', 'name = "other"', "name: found 'other', the file's name says 'mine'"),
        ("ranks = [4, 8]", "ranks = [true, true]", "link[1].ranks: found true, allowed is a whole"),
        ('"1GB/s"', "0x" + "f" * 9999, "link[1].rate.value: found a number of thousands of digits"),
        ('"1GB/s"', f'"{"9" * 5000}B/s"', f"link[1].rate.value: found '{'9' * 59}..., allowed is"),
        ('"1GB/s"', '"1e-99999999999999999999B/s"', "link[1].rate.value: found '1e-9999"),
        ("nics_per_node = 1", f"nics_per_node = {10**400}", "nics_per_node: found 1000"),
        ('"3%", kind = "fitted"', '"3%", kind = "guessed"', "link[1].rate.kind: found 'guessed'"),
        ('residual = "3%"', 'residuals = "3%"', "link[1].rate.residuals: unknown key; did you"),
        ('["1KB", "1MB"], residual = "3%"', '["1MB", "1KB"]', "link[1].rate.range: the lowest"),
        ('"0.001ns/B"', '"0.001"', "link[1].gamma.value: '0.001' is not a time a byte (a bare"),
        ("ranks = [4, 8]", "ranks = [8, 4]", "link[1].ranks: found [8, 4], allowed are whole"),
        (
            "value = 0.2",
            "value = 1.2",
            "link[1].falls_with_nodes.value: found 1.2, allowed is a num",
        ),
        ("error = 0.1", "error = true", "link[1].falls_with_nodes.error: found true, allowed is a"),
        ("nodes = 2", "nodes = 0", "link[1].falls_with_nodes.nodes: found 0, allowed is a whole"),
        ("nodes = 2", "node = 2", "link[1].falls_with_nodes.node: unknown key; did you mean 'node"),
        ('"100KB"', '"1KB"', "link[1].segments[1].knots[2].size: sizes rise from knot"),
        ('algorithm = "tree"', 'algorithm = "ring"', "link[1].segments[2].algorithm: 'ring' has"),
        ('algorithm = "ring"', 'algorithm = "any"', "link[1].segments[2].algorithm: 'tree' has"),
        ("alpha = { value", "alphas = { value", "link[2].alphas: unknown key; did you mean 'alpha"),
        ("notes = [", "notes = [[", "is not TOML"),
    ],
)
def test_damaged_network_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(DataError) as error:
        read_network(path)
    assert without_line(str(error.value)).startswith(f"{path}: {message}")


def without_line(message: str) -> str:
    """Return a refusal without the line that it names."""
    return re.sub(r", line \d+: ", ": ", message, count=1)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("gpus_per_node = 2", "gpus_per_nodes = 2", "gpus_per_nodes"),
        ('residual = "3%"', "residual = 5", "link[1].rate.residual"),
        ('"1KB", alpha = "50us"', '"0B", alpha = "5us"', "link[1].segments[1].knots[1].size"),
        ('class = "intra"', 'class = "wan"', "link[2].class"),
        ("alpha = { value", "alphas = { value", "link[2].alphas"),
        ('notes = ["by hand"]', 'notes = [\n  "by hand",\n  1,\n]', "notes"),
    ],
)
def test_a_refusal_names_the_line(tmp_path: Path, old: str, new: str, key: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new, 1))
    line = GOOD[: GOOD.index(old)].count("\n") + 1
    with pytest.raises(DataError) as error:
        read_network(path)
    assert str(error.value).startswith(f"{path}, line {line}: {key}: ")


def test_a_missing_file_says_which(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.toml: cannot be read"):
        read_network(tmp_path / "none.toml")


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    assert read_network(write(tmp_path, "\ufeff" + GOOD)) == read_network(write(tmp_path, GOOD))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, len(GOOD)), length=st.integers(0, 12), new=st.text(max_size=6))
def test_any_damage_gives_a_network_or_a_data_error(
    tmp_path: Path, start: int, length: int, new: str
) -> None:
    path = tmp_path / "mine.toml"
    text = GOOD[:start] + new + GOOD[start + length :]
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        assert read_network(path).name == "mine"
    except DataError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)


# What calibration noticed


NOTICED_TABLE = """
[[noticed]]
what = "{what}"
text = "3 calls stalled."
"""


def test_what_calibration_noticed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + NOTICED_TABLE.format(what="stalls"))
    (noticed,) = read_network(path).noticed
    assert noticed == ("stalls", "3 calls stalled.") and noticed.brief == "calls stalled"
    path.write_text(GOOD)
    assert read_network(path).noticed == ()


def test_an_unknown_kind_of_what_was_noticed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + NOTICED_TABLE.format(what="stall"))
    with pytest.raises(DataError, match=r"noticed.*found 'stall'; did you mean 'stalls'\? Allowed"):
        read_network(path)


def test_predict_warns_of_what_calibration_noticed(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    twice = 2 * NOTICED_TABLE.format(what="stalls")
    path.write_text(GOOD + twice + NOTICED_TABLE.format(what="slow_host"))
    asked = {"model": "resnet50", "gpus": 8, "gpus_per_node": 2, "net": str(path)}
    notes = predict(make_scenario(asked)).notes
    warned = [note for note in of_grade(notes, "warning") if "calibrated" in note]
    assert warned == [
        "mine, when it was calibrated: 3 calls stalled (and 1 more like this).",
        "mine, when it was calibrated: 3 calls stalled.",
    ]
    shown = briefs(notes, "warning")
    assert "mine: calls stalled" in shown
    assert "mine: one host is slower than the others" in shown


# What a link is


def test_what_a_link_is_decides_and_not_its_name(tmp_path: Path) -> None:
    """A copy of nvlink-v100 under another name is NVLink too, for NCCL's figures of protocols."""
    shipped_file = Catalog().path("networks", "nvlink-v100", "net", "networks")
    copied = tmp_path / "mywire.toml"
    copied.write_text(shipped_file.read_text().replace('name = "nvlink-v100"', 'name = "mywire"'))
    fields = {"model": "resnet50", "gpus": 16, "gpus_per_node": 16, "gpu": "v100"}
    asked = fields | {"algorithm": "tree", "protocol": "simple"}
    both = [
        predict(make_scenario(asked | {"intra_net": net})).communication["busy_s"]
        for net in ("nvlink-v100", str(copied))
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize(
    ("net", "kind"),
    [
        ("dgx2-v100", "nvlink"),
        ("p5-h100-nvls", "nvlink"),
        ("alps-gh200-slingshot11", "nvlink"),  # by the node type that it states
        ("slingshot", "nvlink"),  # likewise: it was fitted on Alps
        ("pcie4", "pci"),
        ("mi300x-infinity-fabric", "pci"),
        ("hkbu-v100-10gbe", "pci"),  # nobody says
    ],
)
def test_links_between_gpus_are_as_their_networks_say(net: str, kind: str) -> None:
    link = load_network(net, Catalog(), "net").links["intra"]
    assert nccl_link_class(link, "intra") == kind
    assert nccl_link_class(link, "inter") == "net"
