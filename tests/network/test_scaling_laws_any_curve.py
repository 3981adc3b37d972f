"""Growth of measured collectives by law: on drawn curves, and on every network that ships."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.data.catalog import shipped
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import read_network
from perfsim.network.scaling_laws import MIN_STEP_S, ScalingLaw, extrapolate, longer_ring
from support.growth_curves import SIZES, counts

times = st.lists(st.floats(1e-5, 1e-3), min_size=4, max_size=12)
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
        CollectiveCurve(
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
    growth = ScalingLaw(made)
    for one in made:
        assert growth.seconds(one.ranks, one.nodes, size) == extrapolate(one, size)


@given(counts, counts, st.floats(1e8, 1e11), st.floats(0.0, 1e-4), st.floats(0.0, 1e-5))
def test_a_ring_keeps_the_bus_bandwidth_of_large_messages(
    ranks: int, more: int, rate: float, alpha_s: float, call_s: float
) -> None:
    """By closed form: steps of alpha + m / rate grow to themselves, so 2 (P-1)/P n / T -> rate."""

    def exact(size: float, count: int) -> float:
        return call_s + 2 * (count - 1) * (alpha_s + MIN_STEP_S + size / count / rate)

    sizes = tuple(1e3 * 4.0**place for place in range(16))
    seconds = tuple(exact(size, ranks) for size in sizes)
    made = CollectiveCurve("all_reduce", ranks, ranks, 1, sizes, seconds, "measured", "drawn")
    longer = ranks * more
    for size in sizes:
        told = longer_ring(made, size * longer / ranks, longer, call_s)
        assert told == pytest.approx(exact(size * longer / ranks, longer), rel=1e-6)
    beyond = 1e15
    bus = 2 * (longer - 1) / longer * beyond / longer_ring(made, beyond, longer, call_s)
    assert bus == pytest.approx(rate, rel=1e-3)


@given(times, counts, st.floats(8.0, 1e9), st.floats(0.0, 1e-5))
def test_a_ring_twice_as_long_costs_at_least_as_much(
    found: list[float], ranks: int, size: float, call_s: float
) -> None:
    """Where a step grows with size and its time a byte falls, as latency and wire make it."""
    sizes = [8.0 * 16**place for place in range(len(found))]
    steps_s = [found[0]]
    for place in range(1, len(found)):
        grown = steps_s[-1] * min(sizes[place] / sizes[place - 1], 1 + found[place] / found[0])
        steps_s.append(grown)
    seconds = tuple(call_s + step_s for step_s in steps_s)
    made = CollectiveCurve(
        "all_reduce", ranks, ranks, 1, tuple(sizes), seconds, "measured", "drawn"
    )
    twice, four = (longer_ring(made, size, count * ranks, call_s) for count in (2, 4))
    assert longer_ring(made, size, ranks, call_s) <= twice * (1 + 1e-9)
    assert twice <= four * (1 + 1e-9)


# On every shipped network

NODES = (*range(2, 21), *range(31, 35), *range(62, 67), *range(126, 129))
LARGEST_STEP = {2: 4.0, 8: 2.0, 16: 1.6}
"""Number of nodes -> how many times as long, or short, one node more may take from there on, where
NCCL's tuner stays: n / P moves by a half at 2 nodes, an eighth at 8, over steps that the measured
curves themselves make between two sizes."""


def carrying() -> list[tuple[str, ScalingLaw, list[CollectiveCurve]]]:
    """Return (network, law, curves) of every collective measured between nodes."""
    found = []
    for path in sorted((shipped() / "networks").glob("*.toml")):
        known = read_network(path).known
        groups: dict[tuple[object, ...], list[CollectiveCurve]] = {}
        for one in known.curves if known else ():
            if one.nodes > 1 and one.ranks == one.nodes * one.gpus_per_node:
                held = (one.library, one.algorithm, one.protocol)
                groups.setdefault((one.collective, one.gpus_per_node, *held), []).append(one)
        for same in groups.values():
            assert known is not None
            found.append((f"{path.stem} {same[0].collective}", ScalingLaw(same, known.tuner), same))
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
                taken = tuned and tuned.choice.label(gpus * nodes, nodes, size)
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
                    if tuned and tuned.choice.label(
                        gpus * nodes, nodes, size
                    ) != tuned.choice.label(one.ranks, one.nodes, size):
                        continue
                    asked += 1
                    step_up = growth.seconds(gpus * nodes, nodes, size) / extrapolate(one, size)
                    assert 1 / 1.5 <= step_up <= 1.5, (name, size, nodes)
    assert asked > 300


def test_three_nodes_of_sirius_lie_between_two_and_four() -> None:
    """256 MiB of A100 over Slingshot 11: a step of 22 MB costs no more than its wire."""
    told = {name: growth for name, growth, _ in carrying()}
    growth = told["sirius-a100-slingshot11-nccl218 all_reduce"]
    two, three, four = (growth.seconds(4 * nodes, nodes, 2.0**28) for nodes in (2, 3, 4))
    assert two < three < four < 1.2 * two
