"""Collectives: the formulas by hand, by law, and the folder that lists itself."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import Algorithm, Hops, algorithm, algorithms
from perfsim.collectives.all_gather_ring import all_gather_ring
from perfsim.collectives.all_reduce_hierarchical import all_reduce_hierarchical
from perfsim.collectives.all_reduce_ring import all_reduce_ring
from perfsim.collectives.all_reduce_tree import all_reduce_tree
from perfsim.collectives.broadcast_binomial import broadcast_binomial
from perfsim.collectives.broadcast_chain import broadcast_chain
from perfsim.collectives.reduce_binomial import reduce_binomial
from perfsim.collectives.reduce_scatter_ring import reduce_scatter_ring
from perfsim.collectives.send_recv_direct import send_recv_direct
from perfsim.errors import RequestError

EVERY = [
    algorithm(collective, name) for collective, names in algorithms().items() for name in names
]
NUMBERS = [field.name for field in fields(Hops) if field.name.startswith(("alpha", "beta"))]
NUMBERS += ["tree_beta_s_per_byte", "gamma_s_per_byte"]

# Eight nodes of four GPUs at 2 and 50 us, 10 GB/s inside a node and 1 GB/s through its NIC.
UNEQUAL = Hops(32, 8, 4, 2e-6, 50e-6, 1e-9, 2e-9, 1e-10, 1e-9, 1e-11)


@st.composite
def some_hops(draw: st.DrawFn) -> Hops:
    """Draw nodes of equal size on any links."""
    nodes, inside = draw(st.integers(1, 9)), draw(st.integers(1, 8))
    alphas = [draw(st.floats(0, 1e-2)) for _ in range(2)]
    betas = [draw(st.floats(0, 1e-6)) for _ in range(5)]
    return Hops(nodes * inside, nodes, inside, *alphas, *betas)


sizes = st.floats(0, 1e9)
any_algorithm = st.sampled_from(EVERY)


def test_the_files_are_the_list() -> None:
    """By hand: what stands in the folder is found, and each under the right collective."""
    assert algorithms() == {
        "all_reduce": ("hierarchical", "ring", "tree"),
        "reduce_scatter": ("ring",),
        "all_gather": ("ring",),
        "broadcast": ("binomial", "chain"),
        "reduce": ("binomial",),
        "send_recv": ("direct",),
    }


def test_equal_hops_by_hand() -> None:
    """P = 4, n = 1 MB, alpha 10 us, beta 1 ns/B, gamma 0.1 ns/B."""
    hops = Hops.flat(4, 10e-6, 1e-9, 1e-10)
    seconds = {
        all_reduce_ring: 60e-6 + 1500e-6 + 75e-6,
        reduce_scatter_ring: 30e-6 + 750e-6 + 75e-6,
        all_gather_ring: 30e-6 + 750e-6,
        all_reduce_tree: 40e-6 + 2000e-6 + 100e-6,
        all_reduce_hierarchical: 60e-6 + 1500e-6 + 75e-6,
        broadcast_binomial: 20e-6 + 2000e-6,
        reduce_binomial: 20e-6 + 2000e-6 + 200e-6,
        send_recv_direct: 10e-6 + 1000e-6,
    }
    for formula, expected_s in seconds.items():
        assert formula(1e6, hops).seconds == pytest.approx(expected_s, rel=1e-12), formula


@pytest.mark.parametrize(
    ("name", "latency_us", "transfer_us"),
    [
        # 14 of the 62 steps cross nodes: 14 x 50 + 48 x 2, and not 62 x 50.
        ("all_reduce_ring", 796, 2 * 31 / 32 * 1000 + 31 / 32 * 10),
        ("reduce_scatter_ring", 398, 31 / 32 * 1010),
        ("all_gather_ring", 398, 31 / 32 * 1000),
        # up and down: three hops inside a node, log2 8 = 3 between nodes.
        ("all_reduce_tree", 2 * (3 * 2 + 3 * 50), 4000 + 10),
        # two rings: 3/4 n inside at 0.1 ns/B, 7/8 n through the NIC that 4 shards share.
        (
            "all_reduce_hierarchical",
            2 * (3 * 2 + 7 * 50),
            150 + 1750 + (0.75 + 0.875 / 4) * 10,
        ),
        ("broadcast_binomial", 3 * 50 + 2 * 2, 3 * 1000 + 2 * 100),
        ("reduce_binomial", 3 * 50 + 2 * 2, 3 * 1000 + 2 * 100 + 5 * 10),
        ("send_recv_direct", 50, 1000),
    ],
)
def test_unequal_hops_by_hand(name: str, latency_us: float, transfer_us: float) -> None:
    one = next(one for one in EVERY if f"{one.collective}_{one.name}" == name)
    latency_s, transfer_s = one.formula(1e6, UNEQUAL)
    assert (latency_s * 1e6, transfer_s * 1e6) == pytest.approx((latency_us, transfer_us))


def test_chain_broadcast_on_unequal_hops_by_hand() -> None:
    """Filling crosses 7 x 50 + 24 x 2 us; nine more chunks follow at 50 us and 100 us each."""
    parts = broadcast_chain(1e6, UNEQUAL, chunks=10)
    assert parts.latency_s == pytest.approx((7 * 50 + 24 * 2 + 9 * 50) * 1e-6)
    assert parts.transfer_s == pytest.approx((30 + 10) * 100e-6)


def test_tree_over_nodes_that_are_no_power_of_two() -> None:
    """By hand: nine nodes need four rounds."""
    assert all_reduce_tree(0.0, Hops.flat(9, 1e-5, 0.0)).latency_s == pytest.approx(8e-5)


@given(st.integers(2, 64), st.floats(1e-7, 1e-3), st.floats(1e-12, 1e-8), st.floats(1, 1e9))
def test_chain_takes_the_best_number_of_chunks(
    ranks: int, alpha_s: float, beta: float, size_bytes: float
) -> None:
    """By closed form: no number of chunks does better, and the best real number does as well."""
    hops = Hops.flat(ranks, alpha_s, beta)
    best_s = broadcast_chain(size_bytes, hops).seconds
    chunks = max(1.0, math.sqrt((ranks - 2) * size_bytes * beta / alpha_s))
    assert best_s == pytest.approx(broadcast_chain(size_bytes, hops, chunks).seconds, rel=1e-9)
    for other in (1, 2, 3, 10, 100, 1000):
        assert best_s <= broadcast_chain(size_bytes, hops, other).seconds * (1 + 1e-9)


@given(any_algorithm, some_hops(), sizes, sizes)
def test_a_larger_message_takes_no_less(
    one: Algorithm, hops: Hops, first: float, second: float
) -> None:
    less, more = sorted((first, second))
    at_less, at_more = one.formula(less, hops), one.formula(more, hops)
    assert at_less.seconds <= at_more.seconds * (1 + 1e-9) + 1e-15
    assert one.sent(less, hops) <= one.sent(more, hops)
    assert min(*at_less, *at_more) >= -1e-12


@given(any_algorithm, some_hops(), sizes, st.sampled_from(NUMBERS), st.floats(1, 10))
def test_a_slower_link_is_never_faster(
    one: Algorithm, hops: Hops, size_bytes: float, number: str, factor: float
) -> None:
    slower = replace(hops, **{number: getattr(hops, number) * factor})
    fast_s, slow_s = (one.formula(size_bytes, h).seconds for h in (hops, slower))
    assert fast_s <= slow_s * (1 + 1e-9) + 1e-15


@given(any_algorithm, sizes, st.floats(0, 1e-2), st.floats(0, 1e-6))
def test_one_rank_costs_nothing(
    one: Algorithm, size_bytes: float, alpha_s: float, beta: float
) -> None:
    hops = Hops.flat(1, alpha_s, beta, beta)
    assert one.formula(size_bytes, hops).seconds == 0
    assert one.sent(size_bytes, hops) == 0


@given(some_hops(), sizes)
def test_all_reduce_is_reduce_scatter_then_all_gather(hops: Hops, size_bytes: float) -> None:
    both = [formula(size_bytes, hops) for formula in (reduce_scatter_ring, all_gather_ring)]
    whole = all_reduce_ring(size_bytes, hops)
    assert whole.latency_s == pytest.approx(sum(part.latency_s for part in both), rel=1e-12)
    assert whole.transfer_s == pytest.approx(sum(part.transfer_s for part in both), rel=1e-12)


@given(some_hops(), sizes)
def test_hierarchical_on_one_node_is_the_ring_inside_it(hops: Hops, size_bytes: float) -> None:
    node = replace(
        hops, ranks=hops.gpus_per_node, nodes=1, beta_s_per_byte=hops.beta_intra_s_per_byte
    )
    one, other = (f(size_bytes, node) for f in (all_reduce_hierarchical, all_reduce_ring))
    assert one.seconds == pytest.approx(other.seconds, rel=1e-12)


@given(any_algorithm, some_hops())
def test_arrays_give_what_floats_give(one: Algorithm, hops: Hops) -> None:
    """A sweep over sizes in one call is the same as one size after the other."""
    swept = np.array([0.0, 1.0, 3e3, 4e7])
    latency_s, transfer_s = one.formula(swept, hops)  # type: ignore[arg-type]
    together = np.broadcast_to(latency_s, swept.shape) + transfer_s
    apart = [one.formula(float(size), hops).seconds for size in swept]
    assert together.tolist() == pytest.approx(apart, rel=1e-12)


def test_every_file_holds_what_the_folder_promises() -> None:
    """By documentation: each names its curve, its bytes, and shows a value."""
    for one in EVERY:
        assert one.latency in ("ring", "tree")
        text = one.formula.__doc__ or ""
        assert "Examples" in text, one
        assert "References" in text, one


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(RequestError) as error:
        algorithm("all_reduce", "rign")
    assert str(error.value) == (
        "all_reduce, --algorithm: no 'rign'; did you mean 'ring'?"
        " Allowed: auto, hierarchical, ring, tree."
    )
    with pytest.raises(RequestError) as error:
        algorithm("allreduce", "ring")
    assert str(error.value).startswith("collective: no 'allreduce'; did you mean 'all_reduce'?")
