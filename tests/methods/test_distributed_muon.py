"""Distributed Muon by hand: who owns what, the gathers, the update's share and the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.kernel import Kernel
from perfsim.compute.profile import Gradient, Layer, Profile
from perfsim.methods import load_method
from perfsim.methods.base import MethodContext
from perfsim.methods.distributed_muon import DistributedMuon, muon_groups
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.builders import profile, ring_cluster
from support.layered import milliseconds, names, plan, start_ms
from support.stages import kernels, sends

SIDE = 64
BESIDE = ("distributed_muon", "ssgd")


def transformer(*hidden: tuple[int, ...], optimizer_s: float = 0.002) -> Profile:
    """Return an embedding, hidden layers with a vector each, and a head; passes of 40 ms."""
    shapes = [(1000, SIDE), *hidden, (1000, SIDE)]
    kinds = ["embedding", *["linear"] * len(hidden), "linear"]
    layers = tuple(
        Layer(f"l{place}", kind, 0.010 / len(kinds), 0.030 / len(kinds))
        for place, kind in enumerate(kinds)
    )
    gradients = []
    for place, shape in enumerate(shapes):
        ready_s = 0.030 * (len(shapes) - place) / len(shapes)
        gradients.append(Gradient(f"l{place}.weight", shape, ready_s, place))
        if kinds[place] == "linear":
            gradients.append(Gradient(f"l{place}.bias", shape[:1], ready_s, place))
    made = profile([1], [1.0])
    return replace(
        made,
        layers=layers,
        gradients=tuple(gradients),
        iteration_s=0.040 + optimizer_s,
        optimizer_s=optimizer_s,
    )


def muon() -> DistributedMuon:
    """Return the method."""
    made = load_method("distributed_muon", {})
    assert isinstance(made, DistributedMuon)
    return made


def test_hidden_matrices_are_dealt_out_by_shape() -> None:
    """Embedding, head and vectors are not; the largest first axis goes first."""
    of = transformer((64, 64), (64, 256), (256, 64), (64, 64), (64, 64, 3, 3))
    shapes = [
        [gradient.shape for gradient in group]
        for group in muon_groups(MethodContext(2, profile=of))
    ]
    assert shapes == [[(256, 64), (64, 256)], [(64, 64, 3, 3), (64, 64)], [(64, 64)]]


def test_a_model_of_one_layer_is_hidden() -> None:
    one = profile([(8, 4)], [0.01])
    assert [len(group) for group in muon_groups(MethodContext(2, profile=one))] == [1]


def test_each_group_is_gathered_after_the_one_before() -> None:
    """On 2 ranks: two of 64 x 64 (16 kB each); then 64 x 32 and as much of padding.

    The list of a gather is copied: 2 passes over both tensors, 2 launches.
    """
    of = transformer((64, 64), (64, 64), (64, 32))
    [*_, gathers] = muon().jobs([], MethodContext(2, profile=of), 0)
    assert sends(list(gathers.stages)) == [("all_gather", 2 * 16384.0), ("all_gather", 2 * 8192.0)]
    copies = kernels(list(gathers.stages), "decompress")
    assert [(one.moved_bytes, one.launches) for one in copies] == [(65536.0, 2), (32768.0, 2)]
    assert {stage.earliest for stage in gathers.stages} == {"update"}


def test_unlike_shapes_go_without_copies() -> None:
    """256 x 64 and 64 x 64 (64 + 16 kB) as broadcasts, priced as one gather of 80 kB."""
    of = transformer((64, 64), (256, 64))
    [*_, gathers] = muon().jobs([], MethodContext(2, profile=of), 0)
    assert sends(list(gathers.stages)) == [("all_gather", 81920.0)]
    assert not kernels(list(gathers.stages), "decompress")


@given(st.integers(2, 16), st.integers(1, 40))
def test_gathers_bring_all_matrices_and_padding(ranks: int, count: int) -> None:
    """Beside the ring's gradients: ceil(count / P) full groups of P matrices of 16 kB."""
    of = transformer(*[(64, 64)] * count)
    cluster = ring_cluster(ranks, "1GB/s,1us")
    sent = [plan(load_method(name, {}), of, cluster).sent_bytes for name in BESIDE]
    more = sent[0] - sent[1]
    assert more == pytest.approx(-(-count // ranks) * (ranks - 1) * 16384)


def test_the_next_forward_pass_waits_for_the_gathers() -> None:
    """2 ranks of 1 GB/s and 1 ms: 1 ms + 16 us a gather; copies of 65,536 B: 20 us and 66 ns.

    Passes of 5 x 4 bytes a parameter at 1 TB/s are part of the update's 2 ms.
    """
    of = transformer((64, 64), (64, 64))
    cluster = ring_cluster(2, "1GB/s,1ms")
    found, dense = (plan(load_method(name, {}), of, cluster) for name in BESIDE)
    world = MethodContext(2, kernel_s=lambda kernel: kernel.moved_bytes / 1e12, profile=of)
    update_ms = 2.0 * muon().update_share(world)
    gather_ms = 1.016384 + 0.02 + 6.5536e-5
    assert milliseconds(found) == pytest.approx(milliseconds(dense) - 2.0 + update_ms + gather_ms)
    gather = next(name for name in names(found, "all_gather"))
    assert start_ms(found, gather) > start_ms(found, "update 0")


def test_the_update_takes_the_slowest_of_each_group() -> None:
    """Hidden: 64 x 64 three times and 128 x 64 once, on 2 ranks: two groups.

    Newton-Schulz on a x b with a <= b costs 4 a^2 b + 2 a^3: 6 and 10 times 64^3. Of 28 the slowest
    take 10 + 6. Passes: 1000 x 64 twice, 1000 and vectors of 64, 64, 64 and 128 by every rank, and
    128 x 64 + 64 x 64 of the hidden ones. Of 2 ms the passes take 0.5 here.
    """
    of = transformer((64, 64), (64, 64), (64, 64), (128, 64))

    def seconds(kernel: Kernel) -> float:
        assert kernel.moved_bytes == 5 * 4 * of.elements and kernel.launches == 0
        return 0.0005

    every = 2 * 1000 * 64 + 1000 + 3 * 64 + 128
    passes = (every + 3 * 64 * 64) / (every + 5 * 64 * 64)
    share = muon().update_share(MethodContext(2, kernel_s=seconds, profile=of))
    assert share == pytest.approx((0.5 * passes + 1.5 * 16 / 28) / 2)


def test_memory_is_of_what_the_rank_with_most_owns() -> None:
    """As above: the first rank owns 128 x 64 and 64 x 64, three fifths of the hidden values."""
    of = transformer((64, 64), (64, 64), (64, 64), (128, 64))
    every = 2 * 1000 * 64 + 1000 + 3 * 64 + 128
    share = muon().kept_share(MethodContext(2, profile=of))
    assert share == {
        "parameters": 1.0,
        "gradients": 1.0,
        "optimizer": (every + 3 * 64 * 64) / (every + 5 * 64 * 64),
    }


@given(st.integers(1, 64))
def test_more_ranks_never_update_more(ranks: int) -> None:
    of = transformer(*[(64, 64), (64, 256), (256, 64)] * 7)
    shares = [
        muon().update_share(MethodContext(count, kernel_s=lambda _: 0.0005, profile=of))
        for count in (ranks, 2 * ranks)
    ]
    assert shares[1] <= shares[0] <= 1.0
    alone = muon().update_share(MethodContext(1, kernel_s=lambda _: 0.0005, profile=of))
    assert alone == pytest.approx(1.0)


def test_newton_schulz_is_divided_among_the_ranks() -> None:
    """GPT-2's 48 hidden matrices on 16 GPUs: an update of Muon takes a third or less of ssgd's."""
    asked = {"model": "gpt2", "gpu": "a100", "gpus": 16, "net": "ib100", "optimizer": "muon"}
    shared, whole = (predict(make_scenario(asked | {"method": name})) for name in BESIDE)
    assert shared.breakdown_s["update"] < whole.breakdown_s["update"] / 3


@pytest.mark.parametrize(("optimizer", "said"), [(None, True), ("adamw", True), ("muon", False)])
def test_an_update_that_is_not_muons_is_named(optimizer: str | None, said: bool) -> None:
    asked = {"model": "gpt2", "gpu": "a100", "gpus": 16, "net": "ib100", "optimizer": optimizer}
    found = predict(make_scenario(asked | {"method": "distributed_muon"}))
    name = optimizer or "adam"
    sentence = f"this update is that of {name}; give `optimizer` muon"
    assert any(sentence in note for note in found.notes) == said
    plain = predict(make_scenario(asked | {"method": "ssgd"}))
    assert not any("Muon" in note for note in plain.notes)


@pytest.mark.parametrize(
    ("method", "fields", "said"),
    [
        *((name, {}, True) for name in ("fsdp", "zero", "zeropp", "distributed_optimizer")),
        *((name, {}, False) for name in ("ssgd", "hybrid_zero", "distributed_muon")),
        ("zero", {"tp": 2, "gpus_per_node": 2}, True),
        ("zero", {"tp": 16, "gpus_per_node": 16, "model": "gpt3-1.3b"}, False),
        ("fsdp", {"optimizer": "adamw"}, False),
        ("fsdp", {"gpus": 1}, False),
    ],
)
def test_gathers_of_divided_matrices_are_said_to_be_left_out(
    method: str, fields: dict[str, Any], said: bool
) -> None:
    """hybrid_zero deals out whole tensors, ssgd has all, and so has a rank without data ranks."""
    asked = {"model": "gpt2", "gpu": "a100", "gpus": 16, "net": "ib100", "optimizer": "muon"}
    notes = predict(make_scenario(asked | {"method": method} | fields)).notes
    assert any("Muon orthogonalises whole ones" in note for note in notes) == said


def test_other_methods_update_what_they_keep() -> None:
    """The share of time is that of the state where a method says nothing else."""
    of = transformer((64, 64), (64, 64))
    for name, share in (("ssgd", 1.0), ("zero", 0.25)):
        method = load_method(name, {})
        assert method.update_share(MethodContext(4, profile=of)) == share
