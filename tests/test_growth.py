"""Laws by which measured collectives grow: by hand, by law, and on clusters of known steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.catalog import shipped
from perfsim.cluster.carried import growth_error, interpolation_error
from perfsim.cluster.growth import Growth
from perfsim.cluster.growth.chain import binomial, chain
from perfsim.cluster.growth.choice import LABELS, TunedChoice, bus_bandwidth, tune
from perfsim.cluster.growth.communicator import Communicator, communicator
from perfsim.cluster.growth.doubling import doubling, open_mpi
from perfsim.cluster.growth.exchange import exchange
from perfsim.cluster.growth.grow import call_seconds, inside_share
from perfsim.cluster.growth.lines import look
from perfsim.cluster.growth.reach import reach
from perfsim.cluster.growth.ring import LEAST_S, ring, step
from perfsim.cluster.growth.sibling import floor, gathering_floor, sibling
from perfsim.cluster.growth.tuned import wire_bytes
from perfsim.cluster.measured import Curve
from perfsim.cluster.network import read_network

SIZES = tuple(8.0 * 2**power for power in range(30))


def curve(collective: str, ranks: int, nodes: int, points: dict[float, float], **more) -> Curve:
    """Return a curve of times in microseconds by bytes."""
    sizes = tuple(sorted(points))
    times = tuple(points[size] * 1e-6 for size in sizes)
    return Curve(collective, ranks, nodes, ranks // nodes, sizes, times, "measured", "hand", **more)


def us(seconds: float) -> float:
    return pytest.approx(seconds * 1e6, rel=1e-9)


# By hand, one law after the other


def test_reach_keeps_the_floor_below_and_the_last_slope_above() -> None:
    straight = curve("all_reduce", 2, 2, {1e3: 10, 1e6: 110, 2e6: 210})
    assert reach(straight, 1.0) == straight.seconds[0]
    assert us(reach(straight, 3e6)) == 310  # 100 us a megabyte more
    flat = curve("all_reduce", 2, 2, {1e3: 10, 1e6: 200, 2e6: 200})
    assert us(reach(flat, 4e6)) == 300  # a flat end is no free wire: half of 100 us a megabyte
    steep = curve("all_reduce", 2, 2, {1e3: 10, 1e6: 50, 2e6: 200})
    assert us(reach(steep, 4e6)) == 400  # never more than the whole time a byte
    assert us(reach(curve("all_reduce", 2, 2, {1e6: 10}), 3e6)) == 30


def test_ring_by_hand() -> None:
    """4 ranks: 6 steps of 250 kB in 602 us, 2 of them call, so 100 us each; 8 ranks: 14 steps."""
    four = curve("all_reduce", 4, 4, {8: 20, 1e6: 602})
    assert us(step(four, 1e6, 2e-6)) == 100
    assert us(ring(four, 2e6, 8, 2e-6)) == 2 + 14 * 100
    gather = curve("all_gather", 4, 4, {8: 20, 1e6: 302})
    assert us(ring(gather, 2e6, 8, 2e-6)) == 2 + 7 * 100
    assert step(four, 8.0, 1.0) == LEAST_S  # a call longer than the curve leaves no step below 0


def test_exchange_by_hand() -> None:
    """2 nodes of 2 have 2 peers elsewhere, 40 us each beside 10 us of call; 4 nodes have 6."""
    four = curve("all_to_all", 4, 2, {8: 10, 1e6: 90})
    assert us(exchange(four, 2e6, 8, 2, 10e-6)) == 10 + 6 * 40
    inside = curve("all_to_all", 4, 1, {8: 10, 1e6: 90})
    assert us(exchange(inside, 2e6, 8, 8, 0.0)) == 90 * 7 / 3


def test_chain_and_binomial_by_hand() -> None:
    three = curve("broadcast", 3, 3, {8: 25, 1e6: 1000})
    assert us(chain(three, 1e6, 5, 5e-6)) == 1000 + 2 * 10  # hops of (25 - 5) / 2
    assert us(binomial(curve("reduce", 4, 4, {8: 20, 1e6: 800}), 1e6, 2, 5)) == 2000


def test_doubling_and_open_mpi_by_hand() -> None:
    """Rounds 0.5 + 2 on four ranks, 0.5 + 4 on sixteen; a ring from 10 kB on."""
    four = curve("all_reduce", 4, 4, {8: 25, 8e3: 50, 1e6: 600}, library="mpi")
    assert us(doubling(four, 8.0, 16, 16)) == 45
    assert open_mpi(four, 8e3, 16, 16) == doubling(four, 8e3, 16, 16)
    assert us(open_mpi(four, 4e6, 16, 16)) == 30 * 100
    # 20 kB over 16 are 30 steps of 1250 B, each at most a round of doubling: T(1250 B) / 2.5.
    assert us(open_mpi(four, 2e4, 16, 16)) == us(30 * reach(four, 1250.0) / 2.5)


def test_sibling_by_hand() -> None:
    """Floor 20 us; what stands above it is halved, and the latency is its own."""
    whole = curve("all_reduce", 8, 2, {8: 30, 256: 20, 1024: 20, 1e8: 10020})
    assert us(floor(whole)) == 20
    assert us(sibling(whole, 1e8, 70e-6)) == 70 + 5000
    assert us(sibling(whole, 256, 70e-6)) == 70
    large = curve("all_reduce", 8, 2, {1e6: 1000, 1e8: 10000})
    assert us(sibling(large, 1e6, 70e-6)) == 500  # a curve without small sizes tells no floor


def test_gathering_floor_by_hand() -> None:
    """Call 10 us, 60 us over 2 log2 8 hops: 10 us each; 7 between nodes, 24 inside at a tenth."""
    assert us(gathering_floor(70e-6, 32, 8, 10e-6, 0.1)) == 10 + 70 + 24
    assert gathering_floor(70e-6, 4, 1, 10e-6, 0.1) == 70e-6


def line(*points: tuple[float, float]) -> list[tuple[float, float]]:
    """Return (bytes, us) as logs of bytes and seconds."""
    return [(math.log(size), math.log(cost * 1e-6)) for size, cost in points]


def looked(own: dict, other: dict, size: float, wire_s_per_byte: float = 0.0) -> float:
    found = look(own, other, math.log(size), 1.0, wire_s_per_byte)
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
    assert look({}, {}, 1.0, 1.0, 0.0) is None


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
    found = Growth([two, eight])
    assert us(found.seconds(2, 2, 1e6)) == 1000
    share = 1 - math.log2(1.5)
    assert us(found.seconds(3, 3, 1e6)) == 2 / 3 * 1000 * 2**share
    assert us(found.seconds(4, 4, 1e6)) == 750  # twice the ranks: the law alone
    assert us(found.seconds(7, 7, 1e6)) == 6 / 7 * 1000  # at 8 it misses nothing


def test_one_slow_message_does_not_tell_the_wire() -> None:
    """Bus bandwidth 2 x 3/4 x 1 GB/s from 64 MB on; the largest message took ten times as long."""
    four = curve("all_reduce", 4, 4, {8: 20, 1e6: 1100, 64e6: 64000, 256e6: 2560000})
    assert bus_bandwidth([four], False) == pytest.approx(1.5)


def test_a_tree_carries_n_on_two_nodes_and_two_n_on_more() -> None:
    assert [wire_bytes(nodes, 1e6) for nodes in (2, 3, 64)] == [1e6, 2e6, 2e6]


def test_call_of_nccl_by_its_own_figures() -> None:
    """2.18 and NVLink: LL tree base 6.8 us, and 2 x 3 hops of 0.6 us inside a node of four."""
    two = curve("all_reduce", 8, 2, {8: 50}, version="2.18.3", gpu="A100", fabric="NVLink")
    one = curve("all_reduce", 4, 1, {8: 50}, version="2.18.3", gpu="A100", fabric="NVLink")
    assert us(call_seconds(two) - call_seconds(one)) == 6 * 0.6
    assert us(call_seconds(one)) == 6.8
    assert call_seconds(replace(two, library="gloo")) == 0.0
    assert 0 < inside_share(two) < 1


def test_the_call_is_taken_off_and_put_back() -> None:
    """By hand: a second call as long again adds its own length, and steps do not grow with it."""
    four = curve("all_gather", 4, 4, {8: 20, 1e6: 302})
    longer = replace(four, seconds=tuple(one + 50e-6 for one in four.seconds))
    assert us(ring(longer, 4e6, 16, 52e-6) - ring(four, 4e6, 16, 2e-6)) == 50
    peers = curve("all_to_all", 4, 4, {8: 20, 1e6: 302})
    longer = replace(peers, seconds=tuple(one + 50e-6 for one in peers.seconds))
    assert us(exchange(longer, 4e6, 16, 1, 52e-6) - exchange(peers, 4e6, 16, 1, 2e-6)) == 50


def test_each_collective_and_library_has_its_law() -> None:
    points = {8.0: 50.0, 1e6: 1000.0}
    cases = (
        ("send_recv", "nccl", "", lambda one, call: reach(one, 3e5)),
        ("all_to_all", "gloo", "", lambda one, call: exchange(one, 3e5, 8, 1, call)),
        ("broadcast", "nccl", "", lambda one, call: chain(one, 3e5, 8, call)),
        ("broadcast", "gloo", "", lambda one, call: binomial(one, 3e5, 2, 3)),
        ("all_reduce", "mpi", "", lambda one, call: open_mpi(one, 3e5, 8, 8)),
        ("all_reduce", "mpi", "halving_doubling", lambda one, call: open_mpi(one, 3e5, 8, 8)),
        ("all_reduce", "mpi", "doubling", lambda one, call: doubling(one, 3e5, 8, 8)),
        ("all_reduce", "mpi", "ring", lambda one, call: ring(one, 3e5, 8, 0.0)),
        ("all_gather", "mpi", "", lambda one, call: ring(one, 3e5, 8, call)),
        ("all_reduce", "gloo", "", lambda one, call: ring(one, 3e5, 8, call)),
        ("all_reduce", "nccl", "ring", lambda one, call: ring(one, 3e5, 8, call)),
    )
    for collective, library, held, law in cases:
        one = curve(collective, 4, 4, points, library=library, algorithm=held)
        assert Growth([one]).seconds(8, 8, 3e5) == law(one, call_seconds(one)), collective


def test_a_tree_held_fixed_adds_levels_and_no_bytes() -> None:
    """A call of gloo is 0: 1000 us a megabyte on the wire; at 8 B all 50 us are two levels."""
    four = curve("all_reduce", 4, 4, {8: 50, 1e6: 1000}, library="gloo", algorithm="tree")
    found = Growth([four])
    assert us(found.seconds(16, 16, 1e6)) == 1000
    assert us(found.seconds(16, 16, 8.0)) == 2 * (50 - 0.008) + 0.008


def test_errors_of_carried_times_grow_with_the_way() -> None:
    assert growth_error(0.5) == growth_error(2.0)
    assert growth_error(1.0) <= growth_error(2.0) <= growth_error(4.0) <= growth_error(16.0)
    assert growth_error(1e9) == growth_error(16.0)
    assert 0 < interpolation_error() < growth_error(1.0)


# By law

times = st.lists(st.floats(1e-5, 1e-3), min_size=4, max_size=12)
counts = st.sampled_from([2, 4, 8, 16])
shapes = st.sampled_from(
    [
        (collective, library)
        for collective in ("all_reduce", "all_gather", "all_to_all", "broadcast", "send_recv")
        for library in ("nccl", "gloo", "mpi")
    ]
)


@given(times, counts, shapes, st.floats(8.0, 1e9))
def test_measured_ranks_are_the_curve_itself(
    found: list[float], nodes: int, shape: tuple[str, str], size: float
) -> None:
    collective, library = shape
    made = [
        Curve(
            collective,
            4 * count,
            count,
            4,
            tuple(8.0 * 16**place for place in range(len(found))),
            tuple(one * count for one in found),
            "measured",
            "drawn",
            library=library,
        )
        for count in (nodes, 2 * nodes)
    ]
    growth = Growth(made)
    for one in made:
        assert growth.seconds(one.ranks, one.nodes, size) == reach(one, size)


@given(counts, counts, st.floats(1e8, 1e11), st.floats(0.0, 1e-4), st.floats(0.0, 1e-5))
def test_a_ring_keeps_the_bus_bandwidth_of_large_messages(
    ranks: int, more: int, rate: float, alpha_s: float, call_s: float
) -> None:
    """By closed form: steps of alpha + m / rate grow to themselves, so 2 (P-1)/P n / T -> rate."""

    def exact(size: float, count: int) -> float:
        return call_s + 2 * (count - 1) * (alpha_s + LEAST_S + size / count / rate)

    sizes = tuple(1e3 * 4.0**place for place in range(16))
    seconds = tuple(exact(size, ranks) for size in sizes)
    made = Curve("all_reduce", ranks, ranks, 1, sizes, seconds, "measured", "drawn")
    longer = ranks * more
    for size in sizes:
        told = ring(made, size * longer / ranks, longer, call_s)
        assert told == pytest.approx(exact(size * longer / ranks, longer), rel=1e-6)
    beyond = 1e15
    bus = 2 * (longer - 1) / longer * beyond / ring(made, beyond, longer, call_s)
    assert bus == pytest.approx(rate, rel=1e-3)


@given(times, counts, st.floats(8.0, 1e9), st.floats(0.0, 1e-5))
def test_a_ring_twice_as_long_costs_at_least_as_much(
    found: list[float], ranks: int, size: float, call_s: float
) -> None:
    """Where time grows with size and the time a byte falls, as latency and wire make it."""
    sizes = [8.0 * 16**place for place in range(len(found))]
    seconds = [found[0]]
    for place in range(1, len(found)):
        grown = seconds[-1] * min(sizes[place] / sizes[place - 1], 1 + found[place] / found[0])
        seconds.append(grown)
    made = Curve("all_reduce", ranks, ranks, 1, tuple(sizes), tuple(seconds), "measured", "drawn")
    twice, four = (ring(made, size, count * ranks, call_s) for count in (2, 4))
    assert ring(made, size, ranks, call_s) <= twice * (1 + 1e-9)
    assert twice <= four * (1 + 1e-9)


CHOICES = st.builds(
    TunedChoice,
    st.builds(
        Communicator,
        st.sampled_from(["2.4.8", "2.6.4", "2.12.7", "2.18.3", "2.21.5", "2.27.5"]),
        st.sampled_from(["volta", "ampere", "hopper", "turing"]),
        st.sampled_from(["nvlink", "pci"]),
    ),
    st.floats(0.1, 400.0),
    st.sampled_from([1.0, 2.0]),
    st.booleans(),
    st.booleans(),
)


@given(CHOICES, counts, st.sampled_from([1, 4, 8]), st.floats(8.0, 1e10))
def test_weights_sum_to_one_and_what_the_tuner_takes_weighs_most(
    choice: TunedChoice, nodes: int, gpus: int, size: float
) -> None:
    weights = choice.weights(nodes * gpus, nodes, size)
    assert sum(weights.values()) == pytest.approx(1.0)
    assert set(weights) <= set(LABELS) and all(0 <= weight <= 1 for weight in weights.values())
    taken = choice.label(nodes * gpus, nodes, size)
    assert weights[taken] == pytest.approx(max(weights.values()))


# Clusters made from steps and levels that are known


def made(true: TunedChoice, nodes: int, gpus: int = 4) -> Curve:
    """Return the all-reduce of a cluster whose steps and levels cost what this function says.

    A step of n / P takes 3 us and twice the wire (LL) or 9 us and the wire (Simple); a level of a
    tree 8 us + 20 ns sqrt(n) or 30 us + 10 ns sqrt(n); each where NCCL's tuner takes it.
    """
    ranks, beta = nodes * gpus, true.seconds_per_byte
    words = {"version": true.of.version, "gpu": "A100", "fabric": "NVLink"}
    if true.of.architecture == "hopper":
        words["gpu"] = "H100"
    bare = Curve("all_reduce", ranks, nodes, gpus, (8.0,), (1.0,), "measured", "made", **words)
    call_s = call_seconds(bare)
    seconds = []
    for size in SIZES:
        algorithm, protocol = true.label(ranks, nodes, size)
        fast = protocol == "low_latency"
        if algorithm == "ring":
            block = size / ranks
            cost_s = 3e-6 + 2 * beta * block if fast else 9e-6 + beta * block
            seconds.append(call_s + 2 * (ranks - 1) * cost_s)
        else:
            level_s = 8e-6 + 2e-8 * size**0.5 if fast else 30e-6 + 1e-8 * size**0.5
            seconds.append(call_s + wire_bytes(nodes, size) * beta + math.log2(nodes) * level_s)
    return replace(bare, size_bytes=SIZES, seconds=tuple(seconds))


def cluster(architecture: str, version: str, two_nodes: float) -> TunedChoice:
    of = Communicator(version, architecture, "nvlink")
    return TunedChoice(of, 20.0, two_nodes, plain_tree=False, near_nic=False)


@pytest.mark.parametrize("version", ["2.18.3", "2.21.5"])
@pytest.mark.parametrize("nodes", [16, 32])
def test_fitted_on_few_nodes_it_predicts_many(version: str, nodes: int) -> None:
    """Away from a switch, and where 4 or 8 nodes show the same algorithm: within 5 %."""
    true = cluster("ampere", version, 1.0)
    small = [made(true, count) for count in (4, 8)]
    growth = Growth(small)

    def shown(label: tuple[str, str], size: float) -> bool:
        """Whether a measured curve shows this step (n / P) or level (n)."""
        sizes = {one: size * one.ranks / (4 * nodes) for one in small}
        return any(
            label == true.label(one.ranks, one.nodes, at if label[0] == "ring" else size)
            for one, at in sizes.items()
        )

    asked = 0
    large = made(true, nodes)
    for size, seconds in zip(SIZES, large.seconds, strict=True):
        weights = true.weights(4 * nodes, nodes, size)
        label = max(weights, key=lambda one: weights[one])
        if weights[label] > 0.95 and shown(label, size):
            asked += 1
            assert growth.seconds(4 * nodes, nodes, size) == pytest.approx(seconds, rel=0.05), size
    assert asked >= 12


@pytest.mark.parametrize("version", ["2.18.3", "2.21.5"])
@pytest.mark.parametrize("architecture", ["ampere", "hopper"])
@pytest.mark.parametrize("two_nodes", [1.0, 2.0])
def test_the_tuner_that_made_the_curves_is_found(
    version: str, architecture: str, two_nodes: float
) -> None:
    true = cluster(architecture, version, two_nodes)
    found = tune([made(true, nodes) for nodes in (2, 4, 8)])
    assert found.two_nodes == two_nodes
    assert (found.plain_tree, found.near_nic) == (False, False)
    assert found.bus_bandwidth == pytest.approx(20.0, rel=0.01)
    assert found.of == true.of


@pytest.mark.parametrize(("gpu", "two_nodes", "rate"), [("H100", 2.0, 20.0), ("A100", 1.0, 35.0)])
def test_the_rate_that_two_nodes_alone_tell(gpu: str, two_nodes: float, rate: float) -> None:
    """By hand, 50 ps a byte on 2 x 4: a tree carries n, 20 GB/s; a ring 2 x 7/8 n, 35 GB/s."""
    seconds = tuple(2e-5 + size / 20e9 for size in SIZES)
    words = {"gpu": gpu, "fabric": "NVLink", "version": "2.21.5"}
    found = tune([Curve("all_reduce", 8, 2, 4, SIZES, seconds, "measured", "made", **words)])
    assert found.two_nodes == two_nodes
    assert found.bus_bandwidth == pytest.approx(rate, rel=0.01)


def test_beyond_its_sizes_a_level_grows_with_the_root() -> None:
    """By hand: at 64 KiB a level takes 8 + 5.12 us, so at 128 KiB sqrt 2 times that."""
    true = cluster("ampere", "2.21.5", 1.0)
    whole = made(true, 8)
    small = replace(whole, size_bytes=SIZES[:14], seconds=whole.seconds[:14])
    assert true.weights(128, 32, 2.0**17) == {
        ("tree", "low_latency"): pytest.approx(1, abs=0.02)
    } | {
        label: pytest.approx(0, abs=0.02)
        for label in true.weights(128, 32, 2.0**17)
        if label != ("tree", "low_latency")
    }
    level_s = (8e-6 + 2e-8 * 2**8) * math.sqrt(2)
    wire_s = 2 * 2**17 * true.seconds_per_byte
    told = Growth([small], true).seconds(128, 32, 2.0**17)
    assert told == pytest.approx(call_seconds(whole) + wire_s + 5 * level_s, rel=1e-3)


# On every shipped network

NODES = (*range(2, 21), *range(31, 35), *range(62, 67), *range(126, 129))
LARGEST_STEP = {2: 4.0, 8: 2.0, 16: 1.6}
"""Number of nodes -> how many times as long, or short, one node more may take from there on, where
NCCL's tuner stays: n / P moves by a half at 2 nodes, an eighth at 8, over steps that the measured
curves themselves make between two sizes."""


def carrying() -> list[tuple[str, Growth, list[Curve]]]:
    """Return (network, law, curves) of every collective measured between nodes."""
    found = []
    for path in sorted((shipped() / "networks").glob("*.toml")):
        known = read_network(path).known
        groups: dict[tuple[object, ...], list[Curve]] = {}
        for one in known.curves if known else ():
            if one.nodes > 1 and one.ranks == one.nodes * one.gpus_per_node:
                held = (one.library, one.algorithm, one.protocol)
                groups.setdefault((one.collective, one.gpus_per_node, *held), []).append(one)
        for same in groups.values():
            assert known is not None
            found.append((f"{path.stem} {same[0].collective}", Growth(same, known.tuner), same))
    return found


def test_a_node_more_is_no_leap_on_any_shipped_network() -> None:
    asked = 0
    for name, growth, curves in carrying():
        gpus, there = curves[0].gpus_per_node, {one.nodes for one in curves}
        sizes = [size for size in SIZES[::3] if all(one.inside(size) for one in curves)]
        for size in sizes:
            before: dict[int, tuple[float, object]] = {}
            for nodes in NODES:
                tuned = growth.tuned
                taken = tuned and tuned.choice.weights(gpus * nodes, nodes, size)
                before[nodes] = growth.seconds(gpus * nodes, nodes, size), taken
                less = before.get(nodes - 1)
                if less is None or less[1] != taken or {nodes, nodes - 1} & there:
                    continue
                limit = next(most for at, most in reversed(LARGEST_STEP.items()) if nodes > at)
                asked += 1
                step_up = before[nodes][0] / less[0]
                assert 1 / limit <= step_up <= limit, (name, size, nodes)
    assert asked > 10000


def test_beside_measured_nodes_there_is_no_leap_either() -> None:
    """From eight nodes on: where the tuner stays, the next number costs within a half of it."""
    asked = 0
    for name, growth, curves in carrying():
        for one in curves:
            for size in SIZES if one.nodes > 8 else ():
                for nodes in (one.nodes - 1, one.nodes + 1):
                    gpus, tuned = one.gpus_per_node, growth.tuned
                    if not one.inside(size) or growth.measured(gpus * nodes, nodes):
                        continue
                    if tuned and tuned.choice.weights(
                        gpus * nodes, nodes, size
                    ) != tuned.choice.weights(one.ranks, one.nodes, size):
                        continue
                    asked += 1
                    step_up = growth.seconds(gpus * nodes, nodes, size) / reach(one, size)
                    assert 1 / 1.5 <= step_up <= 1.5, (name, size, nodes)
    assert asked > 300


def test_three_nodes_of_sirius_lie_between_two_and_four() -> None:
    """256 MiB of A100 over Slingshot 11: a step of 22 MB costs no more than its wire."""
    told = {name: growth for name, growth, _ in carrying()}
    growth = told["sirius-a100-slingshot11-nccl218 all_reduce"]
    two, three, four = (growth.seconds(4 * nodes, nodes, 2.0**28) for nodes in (2, 3, 4))
    assert two < three < four < 1.2 * two


# What curves say of themselves, as logs and repositories word it


@pytest.mark.parametrize(
    ("gpu", "fabric", "version", "expected"),
    [
        ("A100-SXM4-40GB", "NVLink 3 mesh; Slingshot 11", "2.18", ("2.18", "ampere", "nvlink")),
        ("GH200 120GB", "NVLink 4 mesh; Slingshot 11", "2.23.4", ("2.23.4", "hopper", "nvlink")),
        ("H800", "NVSwitch; single node", "", ("2.21.5", "hopper", "nvlink")),
        ("B200", "NVSwitch; RoCE", "v2.27.5", ("v2.27.5", "blackwell", "nvlink")),
        ("RTX PRO 6000 Blackwell", "PCIe 5.0 switches", "2.27.5", ("2.27.5", "blackwell", "pci")),
        ("RTX 4090", "PCIe 4.0, no peer access", "", ("2.21.5", "ada", "pci")),
        ("GeForce RTX 2080 Ti", "PCIe 3.0 x16; 10GbE", "2.4.7", ("2.4.7", "turing", "pci")),
        ("Tesla V100-PCIE-32GB", "none; 10GbE", "2.3.7", ("2.4.8", "volta", "pci")),
        ("Tesla V100-SXM2-32GB", "none; EFA 100 Gbit/s", "2.6.4", ("2.6.4", "volta", "nvlink")),
        ("Tesla T4", "none; 50 Gbit/s TCP", "", ("2.21.5", "turing", "pci")),
        ("Tesla K80", "PCIe; single node", "", ("2.21.5", "kepler", "pci")),
        ("RTX 3090", "PCIe 4.0; not stated", "", ("2.21.5", "ampere_rtx", "pci")),
        ("A100-PCIE-40GB", "none; InfiniBand", "2.16.5", ("2.16.5", "ampere", "pci")),
        ("not stated", "not stated; 1GbE TCP", "", ("2.21.5", "ampere", "nvlink")),
        ("A10G", "PCIe", "2.12.7", ("2.12.7", "ampere_rtx", "pci")),
        ("L40S", "", "", ("2.21.5", "ada", "pci")),
    ],
)
def test_communicator_reads_what_curves_state(
    gpu: str, fabric: str, version: str, expected: tuple[str, str, str]
) -> None:
    one = curve("all_reduce", 8, 2, {8: 10}, gpu=gpu, fabric=fabric, version=version)
    assert communicator(one) == Communicator(*expected)
    assert call_seconds(one) > 0  # every version and generation has figures
