"""The law of collectives on node types: by hand, by law and against published rates."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.hardware.nodes import node_facts
from perfsim.network.cluster import make_cluster
from perfsim.network.node_law import NodeFacts, NodeLaw, node_error, node_law
from perfsim.network.node_network import node_network
from perfsim.network.node_type import load_node_type
from support.what_ships import SHIPPED

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast"),
    *("all_to_all", "send_recv"),
)
NODES = {name: load_node_type(name, SHIPPED, "node") for name in SHIPPED.files("nodes")}
JOINED = sorted(name for name, node in NODES.items() if node.nics is not None)


def facts(name: str, generation: str = "") -> NodeFacts:
    own = node_facts(NODES[name], SHIPPED)
    return own._replace(generation=generation) if generation else own


def bus(name: str, collective: str, nodes: int, size: float, held: str = "") -> float:
    """Return the bus bandwidth that the law gives full nodes [B/s]."""
    of = facts(name)
    ranks = nodes * of.gpus
    call = node_law().call(of, collective, ranks, nodes, size, held)
    assert call is not None
    volume = (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks * size
    return volume / call.seconds


# By hand


@pytest.mark.parametrize("name", JOINED)
def test_links_and_law_send_over_the_nics_of_one_rank(name: str) -> None:
    """By law: 1 GB from rank to rank of two nodes, by the links' formula and by the law."""
    of = facts(name)
    cluster = make_cluster(2 * of.gpus, of.gpus, None, node_network(NODES[name]))
    by_law = node_law().call(of, "send_recv", 2 * of.gpus, 2, 1e9)
    assert by_law is not None
    assert cluster.cost("send_recv", 1e9).seconds == pytest.approx(by_law.seconds, rel=0.02)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_one_rank_s_nic_over_tcp_is_as_fast_beside_idle_ones(count: int) -> None:
    """By the law and by the links' formula: what other NICs could carry takes nothing from it."""
    node = NODES["geforce-pcie4-8"].with_nics(count, None)
    alone = node_law().call(node_facts(NODES[node.name], SHIPPED), "send_recv", 16, 2, 1e9)
    by_law = node_law().call(node_facts(node, SHIPPED), "send_recv", 16, 2, 1e9)
    assert by_law == alone is not None
    cluster = make_cluster(16, 8, None, node_network(node))
    assert cluster.cost("send_recv", 1e9).seconds == pytest.approx(alone.seconds, rel=0.02)


def test_all_nics_over_tcp_reach_what_the_law_says_of_a_node() -> None:
    for count in (1, 2, 8):
        node = NODES["geforce-pcie4-8"].with_nics(count, None)
        cluster = make_cluster(16, 8, None, node_network(node))
        by_law = node_law().call(node_facts(node, SHIPPED), "all_gather", 16, 2, 1e10)
        assert by_law is not None
        own = cluster.cost("all_gather", 1e10, "ring").seconds
        assert own == pytest.approx(by_law.seconds, rel=0.02)


@pytest.mark.parametrize(("node", "gpus"), [("alps", 4), ("mi300x-8", 8)])
def test_a_part_of_a_mesh_has_the_links_between_its_gpus(node: str, gpus: int) -> None:
    """A third, or a seventh, of a GPU's links lead to one other; a switch leaves all to any."""
    facts, large = node_facts(NODES[node], SHIPPED), 1e10

    def rate(ranks: int, collective: str, of: NodeFacts = facts) -> float:
        call = node_law().call(of, collective, ranks, 1, large)
        assert call is not None
        return large * (1.0 if collective == "send_recv" else (ranks - 1) / ranks) / call.seconds

    whole = rate(gpus, "all_gather")
    for ranks in range(2, gpus):
        share = (ranks - 1) / (gpus - 1)
        assert rate(ranks, "all_gather") == pytest.approx(share * whole, rel=0.01)
        assert rate(ranks, "all_to_all") == pytest.approx(
            share * rate(gpus, "all_to_all"), rel=0.01
        )
    assert rate(2, "send_recv") == pytest.approx(rate(2, "all_gather"), rel=0.01)
    switched = facts._replace(pairs=False)
    assert rate(2, "all_gather", switched) == pytest.approx(whole, rel=0.01)


def test_a_gathering_ring_by_hand() -> None:
    """Eight GPUs on two nodes: 6 steps inside, 1 hop, 7/8 of the bytes at the NICs' rate."""
    ones = dict.fromkeys(node_law().constants, 1.0)
    ones |= {"nic_share.rdma": 0.5, "low_latency.nvlink": 0.1, "low_latency.net": 0.1}
    law = NodeLaw(ones | {"hop_growth.rdma": 0.0, "congestion": 0.0, "simple_step": 2.0})
    four = NodeFacts("ampere", "nvlink3", 300e9, False, 4, 4, 25e9, "infiniband")
    large = law.call(four, "all_gather", 8, 2, 8e9)
    # Simple: three starts, 6 steps and a hop of 1 us each; the NICs reach 50 of 100 GB/s.
    assert large is not None
    assert large.latency_s == pytest.approx((3 + 6 + 1) * 1e-6)
    assert large.seconds == pytest.approx(10e-6 + 7e9 / 50e9)
    small = law.call(four, "all_gather", 8, 2, 8.0)
    assert small is not None
    assert small.seconds == pytest.approx((1 + 6 + 1) * 1e-6, rel=1e-3)  # LL: one start


def test_a_rank_owns_the_nics_of_its_gpu() -> None:
    """One GPU a node of eight with eight NICs has one of them, two share four as two."""
    law, of = node_law(), facts("dgx-h100")
    all_of = law.call(of, "all_reduce", 16, 2, 1e10, "ring")
    one = law.call(of, "all_reduce", 2, 2, 1e10, "ring")
    assert all_of is not None and one is not None
    wire_one, wire_all = 1e10, 2 * 15 / 16 * 1e10
    assert wire_all / all_of.seconds / (wire_one / one.seconds) == pytest.approx(342 / 44, rel=0.05)


def test_send_recv_between_nodes_is_one_rank_s_nics() -> None:
    assert bus("dgx-h100", "send_recv", 2, 1e10) * 16 / 15 == pytest.approx(44e9, rel=0.05)


def test_low_latency_has_a_rate_of_its_own_on_each_link() -> None:
    """A gather over TCP held to LL: 7/8 of the bytes at half of 1 GB/s, whatever NVLink does."""
    ones = dict.fromkeys(node_law().constants, 1.0)
    ones |= {"tcp_most": 1.0, "low_latency.nvlink": 0.01, "low_latency.net": 0.5, "congestion": 0}
    four = NodeFacts("ampere", "nvlink3", 300e9, False, 4, 1, 1e12, "tcp", gpudirect=False)
    call = NodeLaw(ones).call(four, "all_gather", 8, 2, 8e9, protocol="ll")
    assert call is not None
    assert call.seconds == pytest.approx(7e9 / 0.5e9, rel=1e-4)


def test_a_hop_of_a_ring_grows_with_what_it_carries() -> None:
    """64 blocks of 64 B are no large message, though 4 KiB in all; one of 4 KiB is half grown."""
    law = NodeLaw(dict.fromkeys(node_law().constants, 1.0) | {"hop_growth.slingshot": 3.0})
    one = NodeFacts("ampere", "", 0.0, False, 1, 1, 25e9, "slingshot")
    gathered = law.call(one, "all_gather", 64, 64, 4096.0, protocol="ll")
    assert gathered is not None
    assert gathered.latency_s == pytest.approx((1 + 63) * 1e-6, rel=0.01)
    cast = law.call(one, "broadcast", 64, 64, 4096.0, protocol="ll")
    assert cast is not None
    assert cast.latency_s == pytest.approx((1 + 63 * (1 + 3 / 2)) * 1e-6)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@pytest.mark.parametrize(
    ("size_bytes", "step_bytes"),
    [(1e9, 2**19), (2.0**19, 2**17)],  # whole steps of four NICs, or all that there is
)
def test_a_chain_s_first_step_takes_its_time_at_each_hop_between_nodes(
    collective: str, size_bytes: float, step_bytes: float
) -> None:
    """32 nodes of four NICs of 10 GB/s: 30 times a step at one NIC, and the bytes; no start."""
    numbers = dict.fromkeys(node_law().constants, 1e-9) | {"nic_share.rdma": 1.0}
    of = NodeFacts("ampere", "nvlink3", 1e15, False, 8, 4, 10e9, "infiniband")
    numbers |= {key: 1.0 for key in numbers if key.startswith(("inside", "nic_share"))}
    call = NodeLaw(numbers).call(of, collective, 256, 32, size_bytes, protocol="simple")
    assert call is not None
    by_hand = 30 * step_bytes / 10e9 + size_bytes / 40e9
    assert call.seconds == pytest.approx(by_hand, rel=1e-3)
    two = NodeLaw(numbers).call(of, collective, 16, 2, size_bytes, protocol="simple")
    assert two is not None and two.seconds == pytest.approx(size_bytes / 40e9, rel=1e-3)


@pytest.mark.parametrize(
    ("shared", "gpus", "reduced", "cast"),
    [
        (1, 8, 1.0, 1.0),  # a root port each
        (2, 8, 2.0, 2.0),  # the middle of a chain still has two that send
        (8, 8, 8.0, 7.0),  # the last of a chain sends nothing
        (8, 2, 2.0, 1.0),  # two of eight GPUs take part
    ],
)
def test_gpus_behind_one_switch_share_its_link_into_the_host(
    shared: int, gpus: int, reduced: float, cast: float
) -> None:
    law = node_law()
    own = NodeFacts("ada", "host", 30e9, False, 8)
    behind = own._replace(gpus_per_switch=shared)

    def longer(collective: str) -> float:
        alone, together = (law.call(of, collective, gpus, 1, 1e12) for of in (own, behind))
        assert alone is not None and together is not None
        return together.seconds / alone.seconds

    assert longer("all_reduce") == pytest.approx(reduced, rel=1e-3)
    assert longer("broadcast") == pytest.approx(cast, rel=1e-3)
    joined = behind._replace(inside="pcie")  # peers read each other below the switch
    direct = law.call(joined, "all_reduce", gpus, 1, 1e12)
    alone = law.call(own._replace(inside="pcie"), "all_reduce", gpus, 1, 1e12)
    assert direct == alone


@pytest.mark.parametrize(
    ("collective", "ranks", "longer"),
    # Three calls for each two blocks that one of two sends; a chain's calls are not in turn.
    [
        ("all_reduce", 2, 3 / 2),
        ("all_reduce", 8, 15 / 14),
        ("all_gather", 2, 2),
        ("reduce_scatter", 4, 4 / 3),
        ("broadcast", 4, 1),
    ],
)
def test_a_ring_through_the_host_ends_with_a_receipt_that_nothing_hides(
    collective: str, ranks: int, longer: float
) -> None:
    law = NodeLaw(dict.fromkeys(node_law().constants, 1.0))
    host = NodeFacts("ada", "host", 1e9, False, 8)
    through, direct = (
        law.call(facts, collective, ranks, 1, 1e12, "ring", "simple")
        for facts in (host, host._replace(inside="pcie"))
    )
    assert through is not None and direct is not None
    assert through.seconds / direct.seconds == pytest.approx(longer, rel=1e-3)


@pytest.mark.parametrize(
    ("ranks", "size", "seconds"),
    [(8, 2**24, 1972.8e-6), (8, 2**27, 16253e-6)],
)
def test_eight_boards_with_a_root_port_each_take_what_they_were_measured_to(
    ranks: int, size: float, seconds: float
) -> None:
    """8 RTX 4090 (blog.chlc.cc/p/rtx4090-gpudirect-p2p-unlocked), which nothing was fitted to."""
    call = node_law().call(NodeFacts("ada", "host", 31.5e9, False, 8), "all_reduce", ranks, 1, size)
    assert call is not None and call.seconds == pytest.approx(seconds, rel=0.2)


def test_each_process_of_an_all_to_all_has_sockets_of_its_own() -> None:
    """Four senders under a power of 1/2 carry twice what one does; a ring does not gain."""
    ones = dict.fromkeys(node_law().constants, 1.0) | {"tcp_senders": 0.5, "congestion": 0.0}
    law = NodeLaw(ones)
    four = NodeFacts("ampere", "nvlink3", 1e15, False, 4, 1, 1e12, "tcp", gpudirect=False)
    pairs = law.call(four, "all_to_all", 8, 2, 1e12)
    gather = law.call(four, "all_gather", 8, 2, 1e12)
    assert pairs is not None and gather is not None
    assert pairs.seconds == pytest.approx(4 * 0.5e12 / 2e9, rel=1e-3)  # 4 of 8 blocks leave, by 4
    assert gather.seconds == pytest.approx(7 / 8 * 1e12 / 1e9, rel=1e-3)


def test_a_ring_over_a_node_has_the_rate_of_the_nics_that_nccl_finds_it() -> None:
    """Jean Zay's all-reduces of 4 GB on 4 nodes (bigscience's all_reduce_bench-*-n4.txt)."""
    law = node_law()
    for name, gpus, measured in (("jean-zay-a100", 8, 40.5e9), ("jean-zay-v100", 4, 84.6e9)):
        of = facts(name, "ampere")
        call = law.call(of, "all_reduce", 4 * gpus, 4, 4e9)
        assert call is not None
        ranks = 4 * gpus
        bus_bits = 8 * 4e9 / call.seconds * 2 * (ranks - 1) / ranks
        assert bus_bits == pytest.approx(measured, rel=0.07)
        # One GPU a node takes its nearest NIC, and an all-to-all all of them.
        every = of._replace(in_ring=0)
        assert law.call(of, "all_reduce", 4, 4, 4e9) == law.call(every, "all_reduce", 4, 4, 4e9)
        assert law.call(of, "all_to_all", 32, 4, 4e9) == law.call(every, "all_to_all", 32, 4, 4e9)


def test_a_virtual_nic_costs_tcp_alone() -> None:
    law = node_law()
    for name, dearer in (("eth-100g", True), ("dgx-h100", False)):
        plain = facts(name, "turing")
        one, cloud = (
            law.call(of, "all_reduce", 2 * of.gpus, 2, 8.0)
            for of in (plain, plain._replace(virtual=True))
        )
        assert one is not None and cloud is not None
        assert (cloud.seconds > 1.2 * one.seconds) is dearer
        assert dearer or cloud == one


# By law


@given(
    st.sampled_from(JOINED),
    st.sampled_from(COLLECTIVES),
    st.sampled_from([1, 2, 3, 4, 8, 64, 1024]),
    st.floats(3, 32),
    st.floats(1.0, 8.0),
)
def test_more_bytes_never_take_less(
    name: str, collective: str, nodes: int, power: float, factor: float
) -> None:
    of, law = facts(name), node_law()
    ranks = nodes * of.gpus
    if ranks < 2:
        return
    less, more = (
        law.call(of, collective, ranks, nodes, size) for size in (2**power, factor * 2**power)
    )
    assert less is not None and more is not None
    assert 0 < less.latency_s <= less.seconds <= more.seconds * (1 + 1e-12)


@given(
    st.sampled_from(JOINED),
    st.sampled_from(COLLECTIVES),
    st.sampled_from([2, 3, 8, 128]),
    st.floats(3, 34),
    st.sampled_from(["nic_rate", "inside_rate"]),
)
def test_a_faster_wire_never_takes_longer(
    name: str, collective: str, nodes: int, power: float, what: str
) -> None:
    of, law = facts(name), node_law()
    fast = of._replace(**{what: 2.0 * getattr(of, what)})
    if of.wire != fast.wire:  # EFA of 100 GB/s a node is another generation
        return
    ranks = nodes * of.gpus
    slow_s, fast_s = (law.call(one, collective, ranks, nodes, 2**power) for one in (of, fast))
    assert slow_s is not None and fast_s is not None
    assert fast_s.seconds <= slow_s.seconds * (1 + 1e-12)


@given(
    st.sampled_from(JOINED),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast"]),
    st.sampled_from([3, 4, 16, 256]),
    st.floats(10, 34),
)
def test_beyond_two_nodes_nothing_beats_the_nics_data_sheet(
    name: str, collective: str, nodes: int, power: float
) -> None:
    of = facts(name)
    ranks, size = nodes * of.gpus, 2**power
    call = node_law().call(of, collective, ranks, nodes, size)
    assert call is not None
    passes = {"all_reduce": 2.0, "broadcast": ranks / (ranks - 1)}.get(collective, 1.0)
    volume = passes * (ranks - 1) / ranks * size
    assert call.seconds >= volume / (of.nics * of.nic_rate) * (1 - 1e-12)


@given(st.sampled_from(JOINED), st.sampled_from([2, 4, 16, 64]), st.floats(20, 34))
def test_more_nodes_never_gather_faster(name: str, nodes: int, power: float) -> None:
    of, law = facts(name), node_law()
    few, many = (
        law.call(of, "all_gather", count * of.gpus, count, 2**power) for count in (nodes, 2 * nodes)
    )
    assert few is not None and many is not None
    assert many.seconds >= few.seconds * (1 - 1e-12)


@given(st.floats(3, 32), st.sampled_from([2, 4, 8, 32]))
def test_the_ladder_of_ethernet_is_monotone(power: float, nodes: int) -> None:
    """1, 10, 25, 40, 50 and 100 GbE: a faster line is never slower, at any size."""
    times = []
    for name in ("eth-1g", "eth-10g", "eth-25g", "eth-40g", "eth-50g", "eth-100g"):
        call = node_law().call(facts(name), "all_reduce", nodes, nodes, 2**power)
        assert call is not None
        times.append(call.seconds)
    assert times == sorted(times, reverse=True)


# What NCCL does


def test_nvls_adds_inside_nvswitches_of_hopper_and_later_alone() -> None:
    law, hopper = node_law(), facts("dgx-h100")
    taken = law.call(hopper, "all_reduce", 8, 1, 1e9)
    assert taken is not None and taken.algorithm == "nvls"
    for other in (
        facts("dgx-a100"),
        hopper._replace(switch=False),
        hopper._replace(version=(2, 15)),
        hopper._replace(rccl=True),
    ):
        call = law.call(other, "all_reduce", 8, 1, 1e9)
        assert call is not None and call.algorithm in ("ring", "tree")
    part = law.call(hopper, "all_reduce", 4, 1, 1e9)  # 4 of 8 GPUs run at the ring's rate
    assert part is not None and part.algorithm == "ring"
    for collective in ("all_gather", "reduce_scatter"):
        call = law.call(hopper, collective, 8, 1, 1e9)
        assert call is not None and call.algorithm == "ring"


def test_nvls_came_with_nccl_2_17_and_joined_nodes_with_2_18() -> None:
    law, h100 = node_law(), facts("dgx-h100")
    for version, inside, between in (
        ((2, 16), False, False),
        ((2, 17), True, False),
        ((2, 18), True, True),
    ):
        of = h100._replace(version=version)
        one = law.call(of, "all_reduce", 8, 1, 1e9)
        many = law.call(of, "all_reduce", 64, 8, 1e9, "nvls_tree")
        assert one is not None and (one.algorithm == "nvls") is inside
        assert (many is not None) is between


def test_old_efa_has_no_low_latency_protocol() -> None:
    """It delivers out of order: a small message costs the start of Simple too."""
    law, p4d = node_law(), facts("p4d")
    direct = law.call(p4d, "all_gather", 16, 2, 8.0)
    through = law.call(p4d._replace(gpudirect=False), "all_gather", 16, 2, 8.0)
    assert direct is not None and through is not None
    assert direct.latency_s > through.latency_s / law.constants["hop_no_gpudirect"]
    started = law.constants["simple.ampere"] + law.constants["net_simple.other"]
    assert direct.latency_s > started * 1e-6


def test_an_algorithm_may_be_held() -> None:
    law, of = node_law(), facts("dgx-h100")
    for held in ("ring", "tree", "nvls_tree", "collnet_direct"):
        call = law.call(of, "all_reduce", 64, 8, 1e9, held)
        assert call is not None and call.algorithm == held
    assert law.call(facts("dgx-a100"), "all_reduce", 64, 8, 1e9, "nvls_tree") is None
    gathered = law.call(of, "all_gather", 64, 8, 1e9, "tree")
    assert gathered is not None and gathered.algorithm == "ring"  # NCCL has no other


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "broadcast", "send_recv"])
def test_a_protocol_may_be_held(collective: str) -> None:
    law, of = node_law(), facts("dgx-a100")
    for size in (8.0, 1e9):
        both = [law.call(of, collective, 16, 2, size, protocol=name) for name in ("ll", "simple")]
        free = law.call(of, collective, 16, 2, size)
        assert free in both and both[0] != both[1]
        assert law.call(of, collective, 16, 2, size, protocol="ll128") == both[0]
    assert law.call(of, collective, 16, 2, 8.0, protocol="lll") is None


def test_rccl_has_all_pairs_on_eight_joined_gpus() -> None:
    """Two steps in place of fourteen, up to 16 MiB (MSCCL's files in ROCm/rccl)."""
    law, of = node_law(), facts("mi300x-8")
    small = law.call(of, "all_reduce", 8, 1, 8.0)
    assert small is not None and small.algorithm == "all_pairs"
    steps = law.constants["start.cdna"] + 2 * law.constants["step.nvlink"]
    assert small.latency_s == pytest.approx(steps * 1e-6)
    for other, ranks, nodes, size in (
        (of, 8, 1, 2.0**24 + 1),
        (of, 4, 1, 8.0),
        (of, 16, 2, 8.0),
        (of._replace(rccl=False), 8, 1, 8.0),
        (facts("frontier"), 8, 1, 8.0),  # CDNA 2: not every pair is joined
    ):
        call = law.call(other, "all_reduce", ranks, nodes, size)
        assert call is not None and call.algorithm in ("ring", "tree")


# Published rates that the law was not tuned to the digit for


@pytest.mark.parametrize(
    ("name", "collective", "nodes", "size", "published"),
    [
        # xxrjun/nccl-tests-cluster @455de4f8dee2, 8 H100 of one node
        ("dgx-h100", "all_reduce", 1, 16e9, 481.5e9),
        ("dgx-h100", "all_gather", 1, 16e9, 362.0e9),
        # togethercomputer/together-nccl-tests @0492bede4ebf, 8 B200 a node, 16 GiB
        ("dgx-b200", "all_reduce", 1, 17.18e9, 840.8e9),
        ("dgx-b200", "all_reduce", 2, 17.18e9, 717.2e9),
        ("dgx-b200", "all_gather", 16, 17.18e9, 304.9e9),
        # oracle-quickstart/oci-hpc @b5285a68fa0a, 2 nodes of 8 H100
        ("oci-h100", "all_reduce", 2, 16e9, 470.8e9),
    ],
)
def test_a_published_bus_bandwidth(
    name: str, collective: str, nodes: int, size: float, published: float
) -> None:
    assert bus(name, collective, nodes, size) == pytest.approx(published, rel=0.15)


@pytest.mark.parametrize("published", [3.10e9, 3.22e9])
def test_gpus_of_g5_share_their_way_through_the_host(published: float) -> None:
    """4 of its 8 A10G, 29 MB (pytorch issue 127077) and 1 MB to 1 GB (k0rdent-ai-training)."""
    call = node_law().call(facts("g5"), "all_reduce", 4, 1, 29.4e6)
    assert call is not None
    assert 1.5 * 29.4e6 / call.seconds == pytest.approx(published, rel=0.35)


@pytest.mark.parametrize(
    ("size", "published"), [(8, 40e-6), (2**16, 59.5e-6), (2**20, 82e-6), (2**30, 5525e-6)]
)
def test_rccl_between_nodes_starts_as_it_does_on_nodes_that_nothing_was_fitted_on(
    size: float, published: float
) -> None:
    """2 x 8 MI355X, RCCL 2.26.6, 8 x 400 Gbit/s (hisohara/ai-scripts @0780bb3c, AAC14).

    The 2 x 8 MI300X of the same page take 219 us at 16 B: that machine's state, not RCCL's start.
    """
    call = node_law().call(facts("mi300x-8"), "all_reduce", 16, 2, size)
    assert call is not None
    assert abs(log(call.seconds / published)) < log(1.6)


def test_every_class_of_network_has_an_error() -> None:
    for name in JOINED:
        of = facts(name)
        for nodes in (1, 2, 64):
            for size in (8.0, 1e6, 1e9):
                if nodes > 1 or of.inside:
                    assert 0.1 < node_error(of, nodes, size) < log(5)
