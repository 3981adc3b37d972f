"""Pairs added up on the way, their places independent: by hand, by law, by drawing places."""

from __future__ import annotations

import random
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.compute.profile import read_profile
from perfsim.data.catalog import shipped
from perfsim.methods import load_method
from perfsim.methods.base import Compute, JobStage, MethodContext, Send
from perfsim.methods.building.sparsify import doubled, kept
from perfsim.schedule.rounds import schedule
from support.builders import bucket, gradient, hand_device, profile, ring_cluster


def sent_bytes(stages: list[JobStage]) -> list[float]:
    """Return the sizes of the messages, in order."""
    return [stage.size_bytes for stage in stages if isinstance(stage, Send)]


def moved_bytes(stages: list[JobStage]) -> list[float]:
    """Return what each kernel reads and writes, in order."""
    computes = [stage for stage in stages if isinstance(stage, Compute)]
    return [kernel.moved_bytes for stage in computes for kernel in stage.kernels]


def test_a_union_grows_to_dense_by_hand() -> None:
    # 100 of 1000 places, 8 bytes each: 1000 (1 - 0.9^2) = 190, (1 - 0.9^4) 343.9 -> 344,
    # (1 - 0.9^8) 569.5 -> 570: as pairs 800, 1520, 2752 bytes, then more than the 4000 dense.
    stages = doubled(1000, 100, MethodContext(8, nodes=8), union=True)
    assert sent_bytes(stages) == [800, 1520, 2752]
    # Two lists read, their union written: (200 + 190) x 8 and (380 + 344) x 8. Then a zeroed
    # gradient and 688 pairs scattered (16 bytes each); at the end the mean, 2 x 4000.
    assert moved_bytes(stages) == [3120, 5792, 4000, 11008, 8000]


def test_a_union_stays_sparse_by_hand() -> None:
    # 10 of 1000 places: 1000 (1 - 0.99^2) = 19.9 -> 20, (1 - 0.99^4) = 39.4 -> 40.
    stages = doubled(1000, 10, MethodContext(4, nodes=4), union=True)
    assert sent_bytes(stages) == [80, 160]
    # (20 + 20) x 8, (40 + 40) x 8; then zeroed and mean (3 x 4000), 40 pairs scattered.
    assert moved_bytes(stages) == [320, 640, 12000, 640]


def test_one_place_in_each_is_no_more_than_the_worst_case() -> None:
    # Of 4 places 4 are chosen by all: the union stays as it is, 16 bytes dense.
    assert sent_bytes(doubled(4, 4, MethodContext(8, nodes=8), union=True)) == [16, 16, 16]


@given(
    ranks=st.integers(2, 300),
    count=st.integers(1, 500),
    pair_bytes=st.sampled_from([6, 8, 12]),
)
def test_a_union_lies_between_one_rank_and_the_worst_case(
    ranks: int, count: int, pair_bytes: int
) -> None:
    world = MethodContext(ranks, nodes=ranks)
    union = sent_bytes(doubled(500, count, world, pair_bytes, union=True))
    worst = sent_bytes(doubled(500, count, world, pair_bytes))
    assert len(union) == len(worst)
    assert all(a <= b for a, b in zip(union, worst, strict=True))
    assert union == sorted(union) and union[0] == worst[0]


def test_a_union_is_what_drawing_places_gives() -> None:
    draw = random.Random(1)
    covered = [
        len({place for _ in range(8) for place in draw.sample(range(400), 40)}) for _ in range(300)
    ]
    # Eight ranks are joined before the fourth step, which sends them as pairs of one byte.
    *_, eight = sent_bytes(doubled(400, 40, MethodContext(16, nodes=16), 1, union=True))
    assert eight == pytest.approx(sum(covered) / len(covered), rel=0.02)


@pytest.mark.parametrize("density", [0.001, 0.01, 0.2, 1.0])
@pytest.mark.parametrize("ranks", [2, 8, 64])
@pytest.mark.parametrize("exchange", ["all_reduce", "all_reduce_union"])
def test_wire_of_both_sums_of_dgc(exchange: str, density: float, ranks: int) -> None:
    method = load_method("dgc", {"exchange": exchange, "density": density})
    one = bucket(gradient((384, 256)))
    [plan] = schedule(
        profile([(384, 256)], [0.01], forward_s=0.01, optimizer_s=0.001),
        method,
        fusion.load_policy(method.default_fusion()).fuse,
        hand_device(),
        ring_cluster(ranks, "1GB/s,20us"),
        algorithm="ring",
    )
    names = {"P": ranks, "n": one.elements, "k": kept(one.elements, density)}
    functions = {"log2": log2, "ceil": ceil, "min": min, "max": max}
    formula = eval(method.wire, {"__builtins__": {}}, names | method.model_dump() | functions)
    assert plan.sent_bytes == pytest.approx(formula, rel=1e-12)


def test_dgc_sends_less_where_places_coincide() -> None:
    one = bucket(gradient((384, 256)))
    world = MethodContext(64, nodes=64)
    found = {
        exchange: load_method("dgc", {"exchange": exchange, "density": 0.01}).stages(one, world, 0)
        for exchange in ("all_gather", "all_reduce", "all_reduce_union")
    }
    names = {
        name: {stage.collective for stage in stages if isinstance(stage, Send)}
        for name, stages in found.items()
    }
    assert names == {
        "all_gather": {"all_gather"},
        "all_reduce": {"send_recv"},
        "all_reduce_union": {"send_recv"},
    }
    # 984 of 98304 values, 12 bytes a pair. Worst case: 984 x 12 x (1 + 2 + 4 + 8 + 16) = 366048,
    # then the dense 393216. As a union the last step holds 98304 (1 - 0.98999^32) = 27054 places.
    worst, union = sent_bytes(found["all_reduce"]), sent_bytes(found["all_reduce_union"])
    assert sum(worst) == 984 * 12 * 31 + min(984 * 12 * 32, 393216)
    assert union[-1] == pytest.approx(12 * 98304 * (1 - (1 - 984 / 98304) ** 32), abs=12)


def test_dgc_sends_what_the_paper_counts() -> None:
    # Lin et al. 2018, table 3, in MiB: values of 4 bytes, run lengths of 2, density 0.1 %.
    paper = {
        "resnet50.v100.fp32.b32": (97.49, 0.35, 277),
        "alexnet.v100.fp32.b256": (232.56, 0.39, 597),
    }
    method = load_method("dgc", {"index_bytes": 2})
    for name, (dense, compressed, ratio) in paper.items():
        gradients = read_profile(shipped() / "models" / f"{name}.csv").gradients
        size = sum(one.size_bytes for one in gradients)
        sent = sum(method.message_bytes(one, 0) for one in gradients)
        assert size / 2**20 == pytest.approx(dense, rel=0.005)
        assert round(sent / 2**20, 2) == compressed
        assert size / sent == pytest.approx(ratio, rel=0.01)


def test_dgc_in_fp16_halves_vectors_too() -> None:
    method = load_method("dgc", {"value_bytes": 2, "index_bytes": 4})
    both = bucket(gradient((100, 10)), gradient(10))
    stages = method.stages(both, MethodContext(4), 0)
    # One of 1000 values, 4 ranks; the vector's 10 values are cast: read 40 bytes, write 20.
    assert sent_bytes(stages) == [20.0, 8.0, 16.0]
    assert 60.0 in moved_bytes(stages)
    assert [method.message_bytes(one, 0) for one in both.gradients] == [6.0, 20.0]
