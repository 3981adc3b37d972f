"""Libraries: what each has and takes, what a hop costs it, and what a fixed protocol costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.collectives import COLLECTIVES, Hops, algorithms, find_algorithm
from perfsim.errors import RequestError
from perfsim.libraries import libraries, library
from perfsim.libraries.mpi import choose
from perfsim.libraries.nccl import protocol_factors
from perfsim.libraries.nccl_versions import PROTOCOLS
from perfsim.network.cluster import Cluster, custom_link, make_cluster
from perfsim.network.known import MeasuredCollectives
from perfsim.network.link import under_protocol
from perfsim.network.measured import CollectiveCurve
from perfsim.network.network_file import load_network
from perfsim.planning.break_even import scaled_network
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

FAST = custom_link("10GB/s,2us", "test")
SLOW = custom_link("1GB/s,50us", "test")
LIBRARIES = libraries()


def cluster(library_name: str, nodes: int = 8, inside: int = 4) -> Cluster:
    """Return equal nodes on a slow and a fast link, run by a library."""
    return Cluster(nodes * inside, (inside,) * nodes, SLOW, FAST, 1, library_name)


# What there is


def test_the_files_are_the_list() -> None:
    assert LIBRARIES == ("gloo", "mpi", "nccl", "rccl")
    with pytest.raises(RequestError, match=r"^library: no 'glo'; did you mean 'gloo'"):
        library("glo")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_knows_every_collective_by_algorithms_that_exist(name: str) -> None:
    for collective in COLLECTIVES:
        names = library(name).names(collective)
        assert names
        assert set(names) <= set(algorithms()[collective])
        assert set(library(name).considered(collective)) <= set(names)


@given(
    st.sampled_from(LIBRARIES),
    st.sampled_from(COLLECTIVES),
    st.floats(0, 1e10),
    st.integers(1, 5000),
)
def test_what_a_library_takes_it_has_and_the_ranks_can_use(
    name: str, collective: str, size_bytes: float, ranks: int
) -> None:
    taken = library(name).choose(collective, size_bytes, ranks)
    if library(name).compares_times:
        assert taken is None
        return
    assert taken in library(name).names(collective)
    assert find_algorithm(collective, taken).refusal(Hops.flat(ranks, 0.0, 0.0)) == ""


# RCCL, a port of NCCL


def test_rccl_chooses_and_costs_as_nccl() -> None:
    """By definition; its own links say so where a network was measured with it."""
    theirs, ours = cluster("rccl"), cluster("nccl")
    for collective in COLLECTIVES:
        for size_bytes in (8.0, 1e5, 1e8):
            choice = theirs.choice(collective, size_bytes)
            assert choice == ours.choice(collective, size_bytes)
            assert theirs.seconds(collective, size_bytes) == ours.seconds(collective, size_bytes)
    assert theirs.seconds("all_reduce", 1e6, protocol="ll") == ours.seconds(
        "all_reduce", 1e6, protocol="ll"
    )
    net = load_network("efa400", SHIPPED, "net")
    inner = load_network("nvlink-a100", SHIPPED, "intra_net")
    over = make_cluster(16, 8, None, net, inner, "rccl").cost("all_reduce", 1e8)
    assert all(term.quantity.kind == "derived" for term in over.terms)
    assert any("taken over for rccl from nccl" in term.quantity.source for term in over.terms)


def test_a_network_of_rccl_is_its_own() -> None:
    net = load_network("mi300x-roce400", SHIPPED, "net")
    assert net.library == "rccl"
    there = make_cluster(16, 8, None, net, load_network("mi300x-infinity-fabric", SHIPPED, "net"))
    cost = there.cost("all_reduce", 2.0**30)
    assert (there.library, cost.grade) == ("rccl", "measured")

    # MI325X, the same NICs, 4 GiB on 4 and 8 nodes: 23.9 and 24.6 ms (same page, AAC11).
    for nodes, measured_s in ((4, 23.9e-3), (8, 24.6e-3)):
        inside = load_network("mi300x-infinity-fabric", SHIPPED, "net")
        longer = make_cluster(8 * nodes, 8, None, net, inside)
        assert longer.seconds("all_reduce", 2.0**32) == pytest.approx(measured_s, rel=0.05)
        assert longer.seconds("all_reduce", 2.0**34) > there.seconds("all_reduce", 2.0**34)


# gloo, by hand


def test_a_step_of_gloos_ring_costs_a_round_trip() -> None:
    """Two nodes of four GPUs: NCCL 2 x (50 + 6 x 2) us, gloo 14 round trips of 100 us.

    The link between nodes waits for a notice in each step; the bytes move as fast.
    """
    by = {name: cluster(name, 2).cost("all_reduce", 1e6, "ring") for name in ("nccl", "gloo")}
    assert by["nccl"].latency_s == pytest.approx(124e-6)
    assert by["gloo"].latency_s == pytest.approx(1400e-6)
    assert by["gloo"].seconds - by["gloo"].latency_s == pytest.approx(1750e-6)
    assert cluster("gloo", 2).cost("all_gather", 0.0).seconds == pytest.approx(700e-6)


@pytest.mark.parametrize(("nodes", "inside"), [(4, 4), (2, 8), (3, 2), (8, 1), (1, 8)])
def test_segments_of_gloos_ring_wait_for_notices(nodes: int, inside: int) -> None:
    """By walking: segment k comes once its sender has k - 2, and its receiver said so of k - 2."""
    ranks = nodes * inside
    hop_s = [
        2.0 if rank // inside == (rank - 1) % ranks // inside else 50.0 for rank in range(ranks)
    ]
    has: list[list[float]] = [[0.0] * ranks] * 2
    for _ in range(2 * 2 * (ranks - 1)):
        took = has[-2]
        has.append(
            [max(took[rank - 1], took[rank] + hop_s[rank]) + hop_s[rank] for rank in range(ranks)]
        )
    hops = Hops(ranks, nodes, inside, 2.0, 50.0, 0.0, 0.0, 0.0, 0.0)
    ring = library("gloo").algorithm("all_reduce", "ring")
    assert ring.formula(0.0, hops).latency_s == pytest.approx(max(has[-1]))


def test_gloo_takes_the_same_at_every_size() -> None:
    of = cluster("gloo")
    assert {of.choice("all_reduce", size) for size in (1.0, 1e3, 1e6, 1e9)} == {"ring"}
    assert {of.choice("broadcast", size) for size in (1.0, 1e9)} == {"binomial"}
    whole = of.cost("broadcast", 1e9)
    assert whole.seconds == pytest.approx(154e-6 + 3 * 1.0 + 2 * 0.1), "never cut into chunks"


def test_pytorch_all_reduces_for_a_reduce_scatter_on_gloo() -> None:
    # Twice the bytes and the round trips of a ring reduce-scatter.
    of = cluster("gloo")
    assert of.cost("reduce_scatter", 1e8) == of.cost("all_reduce", 1e8)
    assert of.seconds("reduce_scatter", 1e8) == of.seconds("all_reduce", 1e8)
    assert of.of("across", "reduce_scatter", 1e8) == of.of("across", "all_reduce", 1e8)
    own = of.cost("reduce_scatter", 1e8, "halving")
    assert own.sent_bytes < 0.6 * of.cost("reduce_scatter", 1e8).sent_bytes


def test_a_measured_reduce_scatter_of_gloo_comes_before_its_all_reduce() -> None:
    def curve(collective: str, seconds: float) -> CollectiveCurve:
        sizes = (1e3, 1e6)
        return CollectiveCurve(
            *(collective, 2, 2, 1, sizes, (seconds, 10 * seconds), "measured", "test"),
            library="gloo",
        )

    whole, gathers = curve("all_reduce", 4e-3), curve("all_gather", 2e-3)
    two = Cluster(2, (1, 1), SLOW, None, library="gloo", fitted_on="gloo")
    known = replace(two, known=MeasuredCollectives((whole, gathers)))
    assert known.seconds("reduce_scatter", 1e3) == pytest.approx(4e-3)
    assert known.seconds("all_gather", 1e3) == pytest.approx(2e-3)
    faster = scaled_network(known, 2.0)
    assert faster.cost("reduce_scatter", 1e6) == faster.cost("all_reduce", 1e6)
    own = replace(two, known=MeasuredCollectives((whole, gathers, curve("reduce_scatter", 3e-3))))
    assert own.seconds("reduce_scatter", 1e3) == pytest.approx(3e-3)


def test_a_library_refuses_what_it_lacks() -> None:
    with pytest.raises(RequestError) as error:
        cluster("gloo").cost("all_reduce", 1e6, "tree")
    assert str(error.value) == (
        "algorithm: all_reduce of gloo has no 'tree'. Allowed: auto, halving_doubling, ring."
    )
    cluster("nccl").cost("all_reduce", 1e6, "halving-doubling")  # what if NCCL had it


# Open MPI: thresholds of coll_tuned_decision_fixed.c, v4.0.5


@pytest.mark.parametrize(
    ("collective", "size_bytes", "ranks", "taken"),
    [
        ("all_reduce", 9999, 8, "doubling"),
        ("all_reduce", 10000, 8, "ring"),
        ("all_reduce", 1e9, 8, "ring"),
        ("all_gather", 49999, 8, "doubling"),
        ("all_gather", 49999, 6, "bruck"),
        ("all_gather", 50000, 6, "neighbor"),
        ("all_gather", 50000, 7, "ring"),
        ("all_gather", 1e3, 2, "ring"),
        ("broadcast", 2047, 8, "binomial"),
        ("broadcast", 2048, 8, "split_binary"),
        # 8 ranks against 1.6134e-6 x 400e3 + 2.1102 = 2.8, then against 1.6134e-6 x 4e6 + 2.1 = 8.6
        ("broadcast", 400e3, 8, "split_binary"),
        ("broadcast", 4e6, 8, "chain"),
        ("broadcast", 400e3, 13, "chain"),
        ("reduce", 20479, 7, "binomial"),
        ("reduce", 20480, 7, "chain"),
        # 32 ranks against 0.6016/1024 x 51200 + 1.3496 = 31.4 and x 53248 = 32.6
        ("reduce", 51200, 32, "binomial"),
        ("reduce", 53248, 32, "chain"),
        ("reduce_scatter", 12288, 6, "halving"),
        ("reduce_scatter", 12289, 6, "ring"),
        ("reduce_scatter", 262144, 8, "halving"),
        ("reduce_scatter", 262145, 8, "ring"),
        # 0.0012 x 20000 + 8 = 32 ranks
        ("reduce_scatter", 20000, 33, "halving"),
        ("reduce_scatter", 20000, 31, "ring"),
        ("all_to_all", 199 * 13, 13, "bruck"),
        ("all_to_all", 200 * 13, 13, "pairwise"),
        ("all_to_all", 100, 12, "pairwise"),
    ],
)
def test_open_mpi_picks_by_size_and_ranks(
    collective: str, size_bytes: float, ranks: int, taken: str
) -> None:
    assert choose(collective, size_bytes, ranks) == taken


def test_open_mpi_keeps_its_rule_where_another_would_be_faster() -> None:
    of = cluster("mpi", 8, 1)
    assert of.choice("all_reduce", 20e3) == "ring"
    assert of.cost("all_reduce", 20e3).seconds > of.cost("all_reduce", 20e3, "doubling").seconds


# What the ranks cannot use


def test_an_algorithm_that_the_ranks_cannot_use_is_refused() -> None:
    with pytest.raises(RequestError) as error:
        cluster("nccl").cost("all_gather", 1e6, "pat")
    assert str(error.value) == (
        "algorithm: all_gather pat is NCCL's for one GPU a node; take ring; here are 32 GPUs on"
        " 8 nodes."
    )
    assert cluster("nccl", 8, 1).cost("all_gather", 1e6, "pat").seconds > 0
    with pytest.raises(RequestError, match="take nvls; here are 8 GPUs on 1 node"):
        cluster("nccl", 1, 8).cost("all_reduce", 1e6, "nvls_tree")
    assert Cluster(1, (1,), None, None).cost("all_reduce", 1e6, "nvls").seconds == 0


# Protocols


def test_factors_are_the_ratios_of_the_tuners_hops() -> None:
    """By hand from the table of 2.21.5 and 2.6.4, net and NVLink, ring and tree."""
    assert protocol_factors("simple", "2.21.5", "net") == (pytest.approx(14.0 / 2.7), 1.0)
    assert protocol_factors("ll128", "2.21.5", "nvlink") == (pytest.approx(1.9 / 0.6), 0.92)
    assert protocol_factors("simple", "2.6.4", "net") == (pytest.approx(6.6 / 0.9), 1.0)
    assert protocol_factors("simple", "2.6.4", "pci", "tree") == (pytest.approx(28.0), 1.0)
    assert protocol_factors("ll", "2.4.7", "net") == (1.0, 0.5)
    with pytest.raises(RequestError, match="did you mean 'simple'"):
        protocol_factors("simpel")
    with pytest.raises(RequestError, match="link class"):
        protocol_factors("ll", "2.21.5", "ib")


def test_a_fixed_protocol_by_hand() -> None:
    """Flat ring of 4 at 50 us, 1 GB/s: LL halves the rate, Simple takes 14/2.7 of the latency.

    Of 1 MB NCCL sends Simple by itself, so that Simple held fixed changes nothing.
    """
    of = cluster("nccl", 4, 1)
    small = {p: of.cost("all_reduce", 1e4, "ring", p).seconds for p in ("auto", *PROTOCOLS)}
    assert small == pytest.approx(
        {
            "auto": 300e-6 + 15e-6,
            "ll": 300e-6 + 30e-6,
            "ll128": 300e-6 * 4.0 / 2.7 + 15e-6 / 0.92,
            "simple": 300e-6 * 14 / 2.7 + 15e-6,
        }
    )
    large = {p: of.cost("all_reduce", 1e6, "ring", p).seconds for p in ("auto", *PROTOCOLS)}
    assert large["simple"] == large["auto"] == pytest.approx(300e-6 + 1500e-6)
    assert large["ll"] == pytest.approx(300e-6 + 3000e-6)


@given(st.sampled_from(PROTOCOLS), st.floats(0, 1e9), st.sampled_from(["10gbe", "ib100"]))
def test_no_fixed_protocol_beats_nccls_choice(protocol: str, size_bytes: float, name: str) -> None:
    of = make_cluster(32, 4, None, load_network(name, SHIPPED, "--net"), INTRA)
    for collective, one in (("all_reduce", "ring"), ("all_gather", "ring")):
        free, held = (of.cost(collective, size_bytes, one, p) for p in ("auto", protocol))
        assert held.seconds >= free.seconds * (1 - 1e-12)


INTRA = load_network("pcie3", SHIPPED, "--intra-net")


def test_a_fixed_protocols_numbers_are_derived() -> None:
    link = load_network("10gbe", SHIPPED, "--net").links["inter"]
    held = under_protocol(link, "ll", "inter")
    assert (link.rate.kind, held.rate.kind, held.ring.kind) == ("fitted", "derived", "derived")
    assert held.rate.value == link.rate.value / 2
    assert under_protocol(link, "auto", "inter") is link


def test_protocols_are_nccls() -> None:
    for name in ("gloo", "mpi"):
        with pytest.raises(RequestError) as error:
            cluster(name).cost("all_reduce", 1e6, protocol="ll")
        assert str(error.value) == (
            f"protocol: 'll' is a protocol of NCCL, and {name} has none; leave it out, or take"
            " library nccl."
        )
    with pytest.raises(RequestError, match="did you mean 'simple'"):
        cluster("nccl").cost("all_reduce", 1e6, protocol="simpel")


# In a scenario and a prediction


def test_open_mpi_is_priced_where_a_file_says_how_and_refused_elsewhere() -> None:
    asked = {"model": "resnet50", "gpus": 32, "gpu": "rtx2080ti"}

    def busy_s(net: str, **more: str) -> float:
        return predict(make_scenario(asked | {"net": net, **more})).communication["busy_s"]

    for net in ("hkbu-2080ti-10gbe", "hkbu-2080ti-ib100"):
        assert busy_s(f"{net}-mpi", library="mpi") == busy_s(f"{net}-mpi") > 1.2 * busy_s(net)
        assert busy_s(net, library="mpi") == busy_s(f"{net}-mpi")  # the same machines
    for net in ("25gbe", "100gbe", "ib100"):
        assert busy_s(net, library="mpi") == busy_s(f"{net}-mpi") > 1.2 * busy_s(net)
    with pytest.raises(RequestError) as error:
        busy_s("p3dn-v100-tcp100", library="mpi", gpu="v100")
    assert (error.value.field, error.value.value) == ("library", "mpi")
    assert "'p3dn-v100-tcp100' was measured with nccl, which says nothing of mpi; take a" in str(
        error.value
    )
    assert "100gbe-mpi" in str(error.value)
    # A rate and latency that the user gives are the user's, and Open MPI's rules choose on them.
    assert busy_s("10Gbit/s,50us", library="mpi") > busy_s("10Gbit/s,50us", library="nccl")
    assert busy_s("10gbe", library="gloo") > 0


def test_a_prediction_says_that_it_took_the_links_under_another_library() -> None:
    asked = {"model": "resnet50", "gpus": 16, "gpus_per_node": 4, "net": "100gbe", "gpu": "v100"}
    told = predict(make_scenario(asked | {"library": "mpi"}))
    assert any("100gbe-mpi: 100gbe under mpi" in note for note in told.assumptions)
    assert not any("-mpi" in note for note in predict(make_scenario(asked)).notes)
    low, high = told.iteration_s_interval
    assert high / low > 2


def test_horovod_on_cpus_that_nothing_was_fitted_to_is_in_the_interval() -> None:
    """4 and 16 servers of 4 Pascal GPUs, 25 Gbit/s, TCP (horovod/horovod pull requests 44, 19)."""
    for model, gpus, alone, together in (
        ("vgg16", 16, 130.9, 616.8),
        ("resnet101", 16, 119.4, 1338.3),
        ("vgg16", 64, 149.6, 1462.6),
        ("resnet101", 64, 136.0, 3761.6),
    ):
        asked = {"model": model, "gpus": gpus, "gpus_per_node": 4, "gpu": "p100", "batch": 64}
        asked |= {"net": "25gbe", "library": "mpi", "single_gpu": f"{64 / alone * 1e3}ms"}
        told = predict(make_scenario(asked))
        low, high = told.iteration_s_interval
        assert low < 64 * gpus / together < high
        if gpus == 16:
            assert told.iteration_s == pytest.approx(64 * gpus / together, rel=0.25)


@pytest.mark.parametrize(
    ("net", "library", "warned"),
    [
        ("21Gbit/s,30us", "mpi", True),
        ("10Gbit/s,30us", "mpi", False),  # 1.25 GB/s: what was measured
        ("21Gbit/s,30us", "nccl", False),
        ("hkbu-2080ti-ib100-mpi", "mpi", False),
    ],
)
def test_a_stated_rate_that_open_mpi_was_never_seen_at_is_a_warning(
    net: str, library: str, warned: bool
) -> None:
    asked = {"model": "resnet50", "gpus": 16, "net": net, "library": library, "gpus_per_node": 1}
    notes = predict(make_scenario(asked), SHIPPED).notes
    said = "Open MPI reached 1.34 GB/s at most on the clusters that were measured"
    assert any(note.startswith(said) for note in notes) == warned


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"library": "nccll"}, "library: no 'nccll'; did you mean 'nccl'?"),
        ({"protocol": "LLL"}, "protocol: no 'LLL'; did you mean 'll'?"),
        ({"library": "mpi", "protocol": "ll"}, "protocol: 'll' is a protocol of NCCL"),
        ({"library": "mpi", "algorithm": "tree"}, "algorithm: all_reduce of mpi has no 'tree'."),
        ({"algorithm": "rings"}, "algorithm: no 'rings'; did you mean 'ring'?"),
    ],
)
def test_a_scenario_names_what_is_wrong(fields: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError) as error:
        make_scenario({"model": "resnet50", "gpus": 8, **fields})
    assert str(error.value).startswith(message)


def test_a_prediction_says_what_was_taken_over_from_nccl() -> None:
    asked = {"model": "resnet50", "gpus": 16, "net": "10gbe"}
    plain, other, held = (
        predict(make_scenario({**asked, **more}))
        for more in ({}, {"library": "gloo"}, {"protocol": "simple"})
    )
    assert plain.scenario.library == "nccl"
    assert plain.scenario.protocol == "auto"
    assert not [note for note in plain.notes if "derived" in note and "NCCL" in note]
    assert "10gbe and pcie3 were fitted on nccl; for gloo they are derived" in " ".join(other.notes)
    assert "those of simple are derived" in " ".join(held.notes)
    links = [term for term in other.terms if "rate" in term.term or "latency" in term.term]
    assert links
    assert {term.quantity.kind for term in links} == {"derived"}
    assert held.iteration_s >= plain.iteration_s


def test_a_link_of_ones_own_is_not_said_to_be_fitted() -> None:
    found = predict(
        make_scenario(
            {
                "model": "resnet50",
                "gpus": 4,
                "gpus_per_node": 1,
                "net": "10Gbit/s,50us",
                "library": "gloo",
            }
        )
    )
    assert "fitted on NCCL" not in " ".join(found.notes)


def test_the_library_does_not_change_a_users_link() -> None:
    """By hand: the same rate and latency, read the same way, whatever runs over it."""
    one = cluster("gloo").cost("send_recv", 1e6)
    assert one == cluster("nccl").cost("send_recv", 1e6)._replace(terms=one.terms)
