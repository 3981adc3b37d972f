"""RCCL's tuner: worked values of its published formula, what it may choose, and laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.libraries.nccl_versions import PROTOCOLS
from perfsim.libraries.rccl import AMD_GENERATIONS, RcclTuner, rccl_figures


def mi300(nodes: int, bus: float = 350.0) -> RcclTuner:
    return RcclTuner("cdna3", 8 * nodes, nodes, "amd", "nvlink", bus)


def test_a_tree_by_hand() -> None:
    """Two nodes of 8, LL: 12 + 2 (7 x 0.9 + 10.5) us; 350 x 0.06 / 2 GB/s, all of it at 8 KiB."""
    latency_us = 12 + 2 * (7 * 0.9 + 10.5)
    expected = latency_us * 1e-6 + 8192 / (350e9 * 0.06 / 2 * 1.0)
    assert mi300(2).time("all_reduce", "tree", "ll", 8192) == pytest.approx(expected)
    # 64 B is the first figure of the correction: a tenth of the rate.
    first = latency_us * 1e-6 + 64 / (350e9 * 0.06 / 2 * 0.1)
    assert mi300(2).time("all_reduce", "tree", "ll", 64) == pytest.approx(first)


def test_a_ring_by_hand() -> None:
    """Four nodes of 8, Simple, 1 GiB: 8 of 62 steps between nodes; inside 3 x 2 us to post each."""
    latency_us = 17 + (62 - 8) * 6.0 + 8 * 320.0
    rate = 350e9 * 1.0 * 32 / 62 * 1.0
    expected = latency_us * 1e-6 + 2**30 / rate
    assert mi300(4).time("all_reduce", "ring", "simple", 2**30) == pytest.approx(expected)
    # A gather has 31 steps, 3 of them between nodes.
    gathered = (17 + (31 - 3) * 6.0 + 3 * 320.0) * 1e-6 + 2**30 / (350e9 * 32 / 31)
    assert mi300(4).time("all_gather", "ring", "simple", 2**30) == pytest.approx(gathered)


def test_it_goes_from_trees_to_rings_and_the_figures_are_not_nccl_s() -> None:
    """NCCL's figures for an A100 take the ring from 256 KiB on; RCCL's hold the tree to 128 MiB.

    Measured on two nodes of 8 MI300X, the bus bandwidth steps from 174 to 294 GB/s between 128 and
    256 MiB (hisohara/ai-scripts @0780bb3c, training/01_rccl-smoketest/README.md).
    """
    of = mi300(2)
    assert of.choose("all_reduce", 8.0)[:2] == ("tree", "ll")
    assert of.choose("all_reduce", 128 * 2.0**20)[0] == "tree"
    assert of.choose("all_reduce", 2.0**30)[:2] == ("ring", "simple")
    assert of.choose("all_gather", 8.0)[0] == "ring"
    assert of.choose("all_gather", 8.0, algorithm="tree")[0] == "ring"


def test_what_rccl_leaves_out() -> None:
    assert mi300(1).time("all_reduce", "tree", "simple", 1e6) is None  # one node of gfx94x
    assert mi300(2).time("all_reduce", "tree", "ll128", 1e6) is None
    assert mi300(2).time("all_reduce", "nvls", "simple", 1e6) is None
    assert mi300(2).time("broadcast", "tree", "ll", 1e6) is None
    old = RcclTuner("cdna2", 16, 2, "amd", "nvlink", 100.0)
    assert old.choose("all_reduce", 1e6)[1] == "ll128"  # gfx90a alone has it by default
    assert RcclTuner("cdna3", 1, 1, "amd", "nvlink", 1.0).choose("all_reduce", 1e6)[2] == 0.0


def test_a_broadcast_inside_a_node_has_more_of_ll() -> None:
    of = mi300(1)
    cast, gather = (of.time(name, "ring", "ll", 1e9) for name in ("broadcast", "all_gather"))
    assert cast is not None and gather is not None
    # n over 8 steps at 1.65 times the rate, against n over 7.
    assert (1e9 / cast) / (1e9 / gather) == pytest.approx(1.65 * 7 / 8, rel=1e-3)


@given(
    st.sampled_from(AMD_GENERATIONS),
    st.sampled_from([1, 2, 3, 8, 64]),
    st.sampled_from(["ring", "tree"]),
    st.sampled_from(PROTOCOLS),
    st.floats(3, 34),
)
def test_twice_the_rate_halves_what_is_not_latency(
    generation: str, nodes: int, algorithm: str, protocol: str, power: float
) -> None:
    slow, fast = (
        RcclTuner(generation, 8 * nodes, nodes, "amd", "nvlink", bus) for bus in (100.0, 200.0)
    )
    slow_s, fast_s = (of.time("all_reduce", algorithm, protocol, 2**power) for of in (slow, fast))
    if slow_s is None or fast_s is None:
        assert slow_s is fast_s
        return
    index = PROTOCOLS.index(protocol)
    latency_s = slow._latency_us("all_reduce", algorithm, index) * 1e-6
    assert slow_s - latency_s == pytest.approx(2.0 * (fast_s - latency_s), rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("generation", AMD_GENERATIONS)
def test_every_generation_has_whole_figures(generation: str) -> None:
    figures = rccl_figures(generation)
    for algorithm in ("ring", "tree"):
        assert len(figures.base_us[algorithm]) == 3
        assert all(len(figures.hop_us[link][algorithm]) == 3 for link in ("nvlink", "pci", "net"))
        assert [len(row) for row in figures.share[algorithm]] == [3, 3]
        assert [len(row) for row in figures.factor[algorithm]] == [27, 27, 27]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(RequestError, match="did you mean 'cdna3'"):
        rccl_figures("cdna33")
    with pytest.raises(RequestError, match="at least 1 node"):
        RcclTuner("cdna3", 1, 2, "amd", "nvlink", 1.0)
    with pytest.raises(RequestError, match="did you mean 'all_reduce'"):
        mi300(1).choose("allreduce", 1e6)
