"""The tables [[curve]] and [tuner] of a network file."""

from __future__ import annotations

import pytest

from perfsim.errors import DataError
from perfsim.network.network_file import read_network
from support.known_curves import told

HEAD = """\
schema = "perfsim/network/1"
name = "made-up"
title = "two curves"
transport = "tcp"
"""
LINK = """
[[link]]
class = "inter"
rate = { value = "10GB/s", kind = "derived", source = "made up" }
tree_rate = { value = "10GB/s", kind = "derived", source = "made up" }
gamma = { value = "0s/B", kind = "derived", source = "made up" }
[[link.segments]]
algorithm = "ring"
kind = "derived"
source = "made up"
knots = [{ size = "8B", alpha = "10us" }]
[[link.segments]]
algorithm = "tree"
kind = "derived"
source = "made up"
knots = [{ size = "8B", alpha = "10us" }]
"""
CURVE = """
[[curve]]
collective = "all_reduce"
ranks = 8
nodes = 2
gpus_per_node = 4
kind = "fitted"
residual = "3%"
source = "made up"
knots = [{ size = "1kB", time = "20us" }, { size = "100MB", time = "20ms" }]
"""
TUNER = """
[tuner]
version = "2.18.3"
architecture = "ampere"
intra = "nvlink"
bus_bandwidth = "10GB/s"
two_nodes = 2.0
plain_tree = false
near_nic = true
kind = "fitted"
source = "made up"
"""


def test_curves_and_tuner_of_a_file(tmp_path) -> None:
    path = tmp_path / "made-up.toml"
    path.write_text(HEAD + TUNER + LINK + CURVE)
    known = read_network(path).known
    assert known is not None and known.tuner is not None
    assert (known.tuner.bus_bandwidth, known.tuner.two_nodes) == (10.0, 2.0)
    assert (known.tuner.plain_tree, known.tuner.near_nic) == (False, True)
    cost = told(known, "all_reduce", 1e3, (4, 4))
    assert cost.seconds == pytest.approx(20e-6) and cost.spread == 0.03
    assert cost.terms[0].quantity.kind == "fitted"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('collective = "all_reduce"', 'collective = "all_reduse"', "all_reduse"),
        ("ranks = 8", "ranks = 0", "ranks"),
        ('size = "100MB"', 'size = "1B"', "rise"),
        ('time = "20us"', 'time = "20"', "time"),
        ('kind = "fitted"\nresidual', 'kind = "guessed"\nresidual', "guessed"),
        ("knots = [{ size", "nots = [{ size", "nots"),
        ('version = "2.18.3"', 'version = "two"', "version"),
        ('architecture = "ampere"', 'architecture = "ampere2"', "ampere2"),
        ("two_nodes = 2.0", 'two_nodes = "2"', "two_nodes"),
        ("two_nodes = 2.0", "two_nodes = 2000.0", "0.1 to 10"),
        ("plain_tree = false", "plain_tree = 0", "allowed are true and false"),
        ('bus_bandwidth = "10GB/s"', 'bus_bandwidth = "10GB"', "bus_bandwidth"),
        ("near_nic = true\n", "", "near_nic"),
        ("[[curve]]", "[curve]", "one or more tables [[curve]]"),
        ("ranks = 8", "ranks = 9", "curve[1].ranks: 9 ranks on 2 nodes of 4 GPUs cannot be"),
    ],
)
def test_damaged_tables_are_named(tmp_path, old: str, new: str, message: str) -> None:
    text = HEAD + TUNER + LINK + CURVE
    assert old in text
    path = tmp_path / "made-up.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError) as error:
        read_network(path)
    assert message in str(error.value) and "made-up.toml" in str(error.value)
