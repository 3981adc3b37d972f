"""Laws by which measured collectives grow, one after the other, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

from perfsim.network.known import growth_error, interpolation_error
from perfsim.network.scaling_laws import (
    MIN_STEP_S,
    ScalingLaw,
    call_seconds,
    extrapolate,
    inside_share,
    least_seconds,
    longer_chain,
    longer_ring,
    more_binomial_rounds,
    more_doubling_rounds,
    more_peers,
    open_mpi_all_reduce,
    peers_call_seconds,
    read_lines_at,
    ring_step,
    simple_call_seconds,
    simple_seconds,
    small_message_seconds,
    tree_nic_bytes,
    without_spikes,
)
from support.growth_curves import curve, us


def test_reach_keeps_the_floor_below_and_the_last_slope_above() -> None:
    straight = curve("all_reduce", 2, 2, {1e3: 10, 1e6: 110, 2e6: 210})
    assert extrapolate(straight, 1.0) == straight.seconds[0]
    assert us(extrapolate(straight, 3e6)) == 310  # 100 us a megabyte more
    flat = curve("all_reduce", 2, 2, {1e3: 10, 1e6: 200, 2e6: 200})
    assert (
        us(extrapolate(flat, 4e6)) == 300
    )  # a flat end is no free wire: half of 100 us a megabyte
    steep = curve("all_reduce", 2, 2, {1e3: 10, 1e6: 50, 2e6: 200})
    assert us(extrapolate(steep, 4e6)) == 400  # never more than the whole time a byte
    assert us(extrapolate(curve("all_reduce", 2, 2, {1e6: 10}), 3e6)) == 30


def test_a_spike_counts_as_the_larger_neighbour_and_all_else_as_measured() -> None:
    """Spikes of one size are cut; ends, valleys, humps of two sizes and fitted knots stay."""
    spiky = curve("all_gather", 4, 4, {1: 9, 2: 3, 4: 50, 8: 7, 16: 2, 32: 8, 64: 8, 128: 4})
    cut = without_spikes(spiky)
    assert [us(one) for one in cut.seconds] == [9, 3, 7, 7, 2, 8, 8, 4]
    assert without_spikes(cut) is cut
    knots = replace(spiky, kind="fitted")
    assert without_spikes(knots) is knots
    for few in ({8: 5}, {8: 5, 16: 2}, {8: 2, 16: 5, 32: 9}, {8: 9, 16: 5, 32: 2}):
        one = curve("all_gather", 4, 4, few)
        assert without_spikes(one) is one


def test_a_spike_is_shown_where_it_was_measured_and_carried_nowhere() -> None:
    """By hand, gloo's ring: 3 steps become 7, of a size twice as large for all ranks."""
    points = {1e3: 30, 2e3: 33, 4e3: 36, 8e3: 42}
    clean = ScalingLaw([curve("all_gather", 4, 4, points, library="gloo")])
    spiky = ScalingLaw([curve("all_gather", 4, 4, points | {4e3: 400}, library="gloo")])
    assert us(spiky.seconds(4, 4, 4e3)) == 400
    assert us(clean.seconds(8, 8, 8e3)) == 7 * 36 / 3
    assert us(spiky.seconds(8, 8, 8e3)) == 7 * 42 / 3  # the larger neighbour
    assert spiky.seconds(8, 8, 4e3) == clean.seconds(8, 8, 4e3)
    assert spiky.seconds(8, 8, 16e3) == clean.seconds(8, 8, 16e3)
    pair = curve("send_recv", 2, 2, points | {4e3: 400}, library="gloo")
    assert us(ScalingLaw([pair]).seconds(4, 4, 4e3)) == 42
    tree = curve("all_reduce", 4, 4, points | {4e3: 400}, library="gloo", algorithm="tree")
    assert us(ScalingLaw([tree]).seconds(16, 16, 4e3)) == 21 + 2 * (42 - 21)  # wire of 42 / 8 kB


def test_ring_by_hand() -> None:
    """4 ranks: 6 steps of 250 kB in 602 us, 2 of them call, so 100 us each; 8 ranks: 14 steps."""
    four = curve("all_reduce", 4, 4, {8: 20, 1e6: 602})
    assert us(ring_step(four, 1e6, 2e-6)) == 100
    assert us(longer_ring(four, 2e6, 8, 2e-6)) == 2 + 14 * 100
    gather = curve("all_gather", 4, 4, {8: 20, 1e6: 302})
    assert us(longer_ring(gather, 2e6, 8, 2e-6)) == 2 + 7 * 100
    assert (
        ring_step(four, 8.0, 1.0) == MIN_STEP_S
    )  # a call longer than the curve leaves no step below 0


def test_exchange_by_hand() -> None:
    """2 nodes of 2 have 2 peers elsewhere, 40 us each beside 10 us of call; 4 nodes have 6."""
    four = curve("all_to_all", 4, 2, {8: 10, 1e6: 90})
    assert us(more_peers(four, 2e6, 8, 2, 10e-6)) == 10 + 6 * 40
    inside = curve("all_to_all", 4, 1, {8: 10, 1e6: 90})
    assert us(more_peers(inside, 2e6, 8, 8, 0.0)) == 90 * 7 / 3


def test_chain_and_binomial_by_hand() -> None:
    three = curve("broadcast", 3, 3, {8: 25, 1e6: 1000})
    assert us(longer_chain(three, 1e6, 5, 5e-6)) == 1000 + 2 * 10  # hops of (25 - 5) / 2
    assert us(more_binomial_rounds(curve("reduce", 4, 4, {8: 20, 1e6: 800}), 1e6, 2, 5)) == 2000


def test_doubling_and_open_mpi_by_hand() -> None:
    """Rounds 0.5 + 2 on four ranks, 0.5 + 4 on sixteen; a ring from 10 kB on."""
    four = curve("all_reduce", 4, 4, {8: 25, 8e3: 50, 1e6: 600}, library="mpi")
    assert us(more_doubling_rounds(four, 8.0, 16, 16)) == 45
    assert open_mpi_all_reduce(four, 8e3, 16, 16) == more_doubling_rounds(four, 8e3, 16, 16)
    assert us(open_mpi_all_reduce(four, 4e6, 16, 16)) == 30 * 100
    # 20 kB over 16 are 30 steps of 1250 B, each at most a round of doubling: T(1250 B) / 2.5.
    assert us(open_mpi_all_reduce(four, 2e4, 16, 16)) == us(30 * extrapolate(four, 1250.0) / 2.5)


def test_small_message_by_hand() -> None:
    """The median of the times up to 1 KiB."""
    assert (
        us(small_message_seconds(curve("all_reduce", 8, 2, {8: 30, 256: 20, 1024: 20, 1e8: 10020})))
        == 20
    )


def line(*points: tuple[float, float]) -> list[tuple[float, float]]:
    """Return (bytes, us) as logs of bytes and seconds."""
    return [(math.log(size), math.log(cost * 1e-6)) for size, cost in points]


def looked(own: dict, other: dict, size: float, wire_s_per_byte: float = 0.0) -> float:
    """Return the seconds that lines say for a size."""
    found = read_lines_at(own, other, math.log(size), 1.0, wire_s_per_byte)
    assert found is not None
    return math.exp(found)


def test_lines_of_steps_by_hand() -> None:
    few, many = line((1e3, 10), (1e5, 1000)), line((1e4, 400), (1e5, 4000))
    assert us(looked({2: few, 8: many}, {}, 1e4)) == 400  # of the most nodes that have it
    assert us(looked({2: few, 8: many}, {}, 2e3)) == 20  # a doubling and more outside: the others
    # Half a doubling outside, in logs: half of the edge, half of the line that takes over.
    half = looked({2: few, 8: many}, {}, 1e4 / math.sqrt(2))
    assert us(half) == math.sqrt(400 * 100 / math.sqrt(2))
    assert us(looked({}, {2: few}, 1e4)) == 100  # none of its own: the other protocols'
    assert us(looked({2: few}, {}, 1e6)) == 10000  # beyond, with the slope
    assert us(looked({2: few}, {}, 10.0)) == 10  # below, with what it starts with
    assert us(looked({2: line((1e5, 1000))}, {}, 1e4, 1e-8)) == 100  # 900 us are the wire's
    assert read_lines_at({}, {}, 1.0, 1.0, 0.0) is None


def test_between_two_protocols_by_hand() -> None:
    slow, fast = {2: line((1e2, 10), (1e4, 100))}, {2: line((1e6, 1000))}
    assert us(looked(fast, slow, 2e5)) == 10 ** (3 - math.log10(5) / 2)  # on the joined line
    assert us(looked(fast, slow, 4e4)) == 400  # nearer the low end: that one's, by the slope
    # Ninefold from the low end is more than the larger message costs: that bounds it.
    cheap = {2: line((1e6, 150))}
    assert us(looked(cheap, slow, 9e4)) == 150


def test_beside_measured_nodes_the_law_bears_what_it_misses_there() -> None:
    """By hand: 8 nodes say 7 s(n/8) and 1 s(n/2) for 2, s = 1 ms a MB; 2 nodes took twice that."""
    words = {"library": "gloo"}
    eight = curve("all_gather", 8, 8, {1e3: 0.875, 64e6: 56000}, **words)
    two = curve("all_gather", 2, 2, {1e3: 1, 64e6: 64000}, **words)
    found = ScalingLaw([two, eight])
    assert us(found.seconds(2, 2, 1e6)) == 1000
    share = 1 - math.log2(1.5)
    assert us(found.seconds(3, 3, 1e6)) == 2 / 3 * 1000 * 2**share
    assert us(found.seconds(4, 4, 1e6)) == 750  # twice the ranks: the law alone
    assert us(found.seconds(7, 7, 1e6)) == 6 / 7 * 1000  # at 8 it misses nothing


def test_a_tree_carries_n_on_two_nodes_and_two_n_on_more() -> None:
    assert [tree_nic_bytes(nodes, 1e6) for nodes in (2, 3, 64)] == [1e6, 2e6, 2e6]


def test_a_curve_of_large_messages_shows_no_latency_but_nccls_figures_do() -> None:
    """By hand, 2.18 and NVLink: 4 x 4 GPUs; the line of the first two points would reach zero."""
    words = {"version": "2.18.3", "gpu": "A100", "fabric": "NVLink"}
    large = curve("all_reduce", 16, 4, {1e6: 100, 2e6: 200}, **words)
    tree = 6.8 + 6 * 0.6 + 4 * 5.0
    assert us(extrapolate(large, 8.0)) == tree == us(least_seconds(large))
    assert us(extrapolate(large, 5e5)) == 50
    around = curve("all_gather", 16, 4, {1e6: 100, 2e6: 200}, **words)
    assert us(extrapolate(around, 8.0)) == 6.6 + 3 * 2.7 + 12 * 0.6
    assert extrapolate(replace(large, library="gloo"), 8.0) < 1e-8
    quick = curve("all_reduce", 16, 4, {1e6: 20, 2e6: 40}, **words)
    assert us(extrapolate(quick, 8.0)) == 20  # never more than the smallest message measured


def test_no_time_from_large_messages_alone_is_below_nccls_figures() -> None:
    """By hand, 2.18 and NVLink: 64 nodes of four are 6 levels; a curve with latency is its own."""
    words = {"version": "2.18.3", "gpu": "A100", "fabric": "NVLink"}
    large = curve("all_reduce", 16, 4, {1e9: 10000, 2e9: 20000}, **words)
    least = 6.8 + 6 * 0.6 + 2 * 6 * 5.0
    assert us(ScalingLaw([large]).seconds(256, 64, 8.0)) == least
    assert us(least_seconds(large, 256, 64)) == least
    shown = curve("all_reduce", 16, 4, {8: 12, 1e9: 10000}, **words)
    assert ScalingLaw([shown]).seconds(256, 64, 8.0) < 0.9 * least_seconds(large, 256, 64)


def test_a_tree_of_more_than_two_nodes_runs_at_a_share_of_the_rings_rate() -> None:
    """By hand: rings of 4 nodes show 20 GB/s; 2 x 1 MB of a tree's NIC at 14.6 GB/s are 137 us."""
    words = {"version": "2.18.3", "gpu": "A100", "fabric": "NVLink"}
    points = {8: 40, 1e6: 100 / 0.73, 64e6: 64e6 * 2 * 15 / 16 / 20e3}
    tuned = ScalingLaw([curve("all_reduce", 16, 4, points, **words)]).tuned
    assert tuned is not None and us(tuned.wire_s_per_byte) == 1 / 20e3
    assert us(tuned._wire_s(8, 1e6)) == 100 / 0.73
    assert us(tuned._wire_s(2, 1e6)) == 50
    words["gpu"], eight = "H100", {8: 40, 64e6: 64e6 * 2 * 31 / 32 / 20e3}
    adding = ScalingLaw([replace(curve("all_reduce", 32, 4, eight, **words))]).tuned
    assert adding is not None and us(adding._wire_s(8, 1e6)) == 100  # NVLS: no tree's share


def test_call_of_nccl_by_its_own_figures() -> None:
    """2.18 and NVLink: LL tree base 6.8 us, and 2 x 3 hops of 0.6 us inside a node of four."""
    two = curve("all_reduce", 8, 2, {8: 50}, version="2.18.3", gpu="A100", fabric="NVLink")
    one = curve("all_reduce", 4, 1, {8: 50}, version="2.18.3", gpu="A100", fabric="NVLink")
    assert us(call_seconds(two) - call_seconds(one)) == 6 * 0.6
    assert us(call_seconds(one)) == 6.8
    assert call_seconds(replace(two, library="gloo")) == 0.0
    assert 0 < inside_share(two) < 1


def test_simple_costs_more_to_call_by_nccls_figures_for_a_ring() -> None:
    """2.18 and NVLink: 8.4 - 6.6 us, and six hops of 3.4 - 0.6; PCIe: of 5.7 - 1.0."""
    words = {"version": "2.18.3", "gpu": "A100", "fabric": "NVLink"}
    four = curve("all_reduce", 8, 2, {8: 50}, **words)
    assert us(simple_call_seconds(four)) == 1.8 + 6 * 2.8
    assert us(simple_call_seconds(replace(four, gpu="T4", fabric="PCIe"))) == 1.8 + 6 * 4.7
    assert us(simple_call_seconds(replace(four, ranks=2, gpus_per_node=1))) == 1.8
    assert simple_call_seconds(replace(four, version="2.21.5")) == simple_call_seconds(four)
    assert simple_call_seconds(replace(four, library="gloo")) == 0.0


def test_what_simple_costs_inside_a_node_is_no_level_between_nodes() -> None:
    """By hand: a level of two nodes without call and wire, and no shorter than a small message."""
    words = {"version": "2.18.3", "gpu": "A100", "fabric": "NVLink"}
    points = {8: 30, 1e6: 200, 64e6: 64e6 / 20e3}
    two, simple = curve("all_reduce", 8, 2, points, **words), ("tree", "simple")
    tuned = ScalingLaw([two]).tuned
    assert tuned is not None and us(tuned.simple_call_s) == 10.4 + 18.6
    wire = tuned.wire_s_per_byte * 1e6
    assert us(tuned._level(("tree", "low_latency"), two, 1e6)) == 200 - 10.4 - 1e6 * wire
    assert us(tuned._level(simple, two, 1e6)) == 200 - 29 - 1e6 * wire
    quick = curve("all_reduce", 8, 2, points | {1e6: 35}, **words)
    assert us(tuned._level(simple, quick, 1e6)) == 30 - 10.4


def test_peers_inside_a_node_cost_a_hop_of_simple_and_no_more_than_peers_elsewhere() -> None:
    """By hand, 2.18 and NVLink: 8.4 us and three hops of 3.4; or 3 of 7 peers' (T - 8.4)."""
    words = {"version": "2.18.3", "gpu": "A100", "fabric": "NVLink"}
    slow = curve("all_to_all", 8, 2, {8: 60, 1e6: 400}, **words)
    figures = simple_seconds(slow)
    assert [us(one) for one in figures] == [8.4, 3.4]
    assert us(peers_call_seconds(slow, 8.0, *figures)) == 8.4 + 3 * 3.4
    assert us(ScalingLaw([slow]).seconds(32, 8, 8.0)) == 18.6 + 28 / 4 * (60 - 18.6)
    quick = curve("all_to_all", 8, 2, {8: 15.4, 1e6: 400}, **words)
    assert us(peers_call_seconds(quick, 8.0, *figures)) == 8.4 + 3 * 1
    assert us(ScalingLaw([quick]).seconds(32, 8, 8.0)) == 8.4 + 31 * 1
    inside = curve("all_to_all", 4, 1, {8: 36.8}, **words)
    assert us(ScalingLaw([inside]).seconds(8, 1, 8.0)) == 6.8 + 7 * 10  # on one node all are peers
    assert simple_seconds(replace(slow, library="gloo")) == (0.0, 0.0)


def test_the_call_is_taken_off_and_put_back() -> None:
    """By hand: a second call as long again adds its own length, and steps do not grow with it."""
    four = curve("all_gather", 4, 4, {8: 20, 1e6: 302})
    longer = replace(four, seconds=tuple(one + 50e-6 for one in four.seconds))
    assert us(longer_ring(longer, 4e6, 16, 52e-6) - longer_ring(four, 4e6, 16, 2e-6)) == 50
    peers = curve("all_to_all", 4, 4, {8: 20, 1e6: 302})
    longer = replace(peers, seconds=tuple(one + 50e-6 for one in peers.seconds))
    assert us(more_peers(longer, 4e6, 16, 1, 52e-6) - more_peers(peers, 4e6, 16, 1, 2e-6)) == 50


def test_each_collective_and_library_has_its_law() -> None:
    points = {8.0: 50.0, 1e6: 1000.0}
    cases = (
        ("send_recv", "nccl", "", lambda one, call: extrapolate(one, 3e5)),
        ("all_to_all", "gloo", "", lambda one, call: more_peers(one, 3e5, 8, 1, call)),
        ("broadcast", "nccl", "", lambda one, call: longer_chain(one, 3e5, 8, call)),
        ("broadcast", "gloo", "", lambda one, call: more_binomial_rounds(one, 3e5, 2, 3)),
        ("all_reduce", "mpi", "", lambda one, call: open_mpi_all_reduce(one, 3e5, 8, 8)),
        (
            "all_reduce",
            "mpi",
            "halving_doubling",
            lambda one, call: open_mpi_all_reduce(one, 3e5, 8, 8),
        ),
        ("all_reduce", "mpi", "doubling", lambda one, call: more_doubling_rounds(one, 3e5, 8, 8)),
        ("all_reduce", "mpi", "ring", lambda one, call: longer_ring(one, 3e5, 8, 0.0)),
        ("all_gather", "mpi", "", lambda one, call: longer_ring(one, 3e5, 8, call)),
        ("all_reduce", "gloo", "", lambda one, call: longer_ring(one, 3e5, 8, call)),
        ("all_reduce", "nccl", "ring", lambda one, call: longer_ring(one, 3e5, 8, call)),
    )
    for collective, library, held, law in cases:
        one = curve(collective, 4, 4, points, library=library, algorithm=held)
        assert ScalingLaw([one]).seconds(8, 8, 3e5) == law(one, call_seconds(one)), collective


def test_a_tree_held_fixed_adds_levels_and_no_bytes() -> None:
    """A call of gloo is 0: 1000 us a megabyte on the wire; at 8 B all 50 us are two levels."""
    four = curve("all_reduce", 4, 4, {8: 50, 1e6: 1000}, library="gloo", algorithm="tree")
    found = ScalingLaw([four])
    assert us(found.seconds(16, 16, 1e6)) == 1000
    assert us(found.seconds(16, 16, 8.0)) == 2 * (50 - 0.008) + 0.008


def test_errors_of_carried_times_grow_with_the_way() -> None:
    assert growth_error(0.5) == growth_error(2.0)
    assert growth_error(1.0) <= growth_error(2.0) <= growth_error(4.0) <= growth_error(16.0)
    assert growth_error(1e9) == growth_error(16.0)
    assert 0 < interpolation_error() < growth_error(1.0)
