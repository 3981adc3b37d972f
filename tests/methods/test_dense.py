"""Dense methods: when each sends what, by hand, and what their groupings promise."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.compute.kernel import elementwise
from perfsim.errors import RequestError
from perfsim.fusion.buckets import FusionContext
from perfsim.methods import load_method
from perfsim.methods.base import Compute, MethodContext
from perfsim.network.cluster import Cluster
from perfsim.prediction import predict_iteration
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.simulate.bounds import wait_free_chain
from support.builders import bucket, gradient, hand_device
from support.dense import MS, planned, took_ms


def names(plan: CostedGraph) -> list[str]:
    """Return the task names in issue order."""
    return [task.name for task in plan.graph.tasks]


def test_bsp_sends_one_buffer_after_the_backward_pass() -> None:
    plan = planned("bsp", ready_ms=(10, 30), backward_ms=35)
    assert plan.calls == 1 and plan.sent_bytes == pytest.approx(2 * 3 / 4 * 2e6)
    assert took_ms(plan) == pytest.approx(10 + 35 + 9 + 2)
    # The same buffer, sent when it is ready: 5 ms of it beside what is left of the pass.
    assert took_ms(planned("ssgd", fused="whole", backward_ms=35)) == pytest.approx(51)


def test_bsp_overlaps_nothing_however_it_is_fused() -> None:
    plan = planned("bsp", fused="none")
    assert plan.calls == 2
    assert took_ms(plan) == pytest.approx(10 + 30 + 2 * 7.5 + 2)


def test_bsp_writes_its_buffer_back_while_it_sends() -> None:
    # Six launches and eight views of a second each, of which an all-reduce of 2 s hides 2 / 14.
    world = MethodContext(
        4,
        collective_s=lambda *_: 2.0,
        kernel_s=lambda kernel: float(kernel.elements) if "eager" in kernel.name else 0.0,
    )
    one = bucket(gradient(500), gradient(300))
    pack, _, back = load_method("bsp", {"write_back": True}).stages(one, world, 0)
    assert isinstance(pack, Compute) and isinstance(back, Compute)
    calls = [[(one.name, one.elements) for one in part.kernels] for part in (pack, back)]
    assert calls[0] == [("eager_launch", 1), ("eager_view", 2), ("elementwise", 800)]
    assert calls[1] == [("eager_launch", 5), ("eager_view", 7)]


@pytest.mark.parametrize("mib", [1.0, 48.0])
def test_ddp_broadcasts_buffers_before_the_forward_pass(mib: float) -> None:
    # A chain of 4 ranks in the best number of chunks, (2 + c) (1 ms + m / c) with c = sqrt(2 m), or
    # a tree of two rounds.
    m = mib * 2**20 * 1e-6
    broadcast_ms = min(2 + m + 2 * math.sqrt(2 * m), 2 * (1 + m))
    with_buffers = planned("ssgd", {"buffers_mib": mib}, fused="whole")
    assert took_ms(with_buffers) == pytest.approx(
        took_ms(planned("ssgd", fused="whole")) + broadcast_ms
    )
    assert with_buffers.sent_bytes == pytest.approx(2 * 3 / 4 * 2e6 + 3 / 4 * mib * 2**20)
    assert with_buffers.calls == 2


def test_buffers_are_broadcast_once_an_iteration_of_several_micro_batches() -> None:
    def seconds(**more: Any) -> float:
        asked = {"model": "resnet50", "gpus": 8, "gpus_per_node": 1, "net": "1Gbit/s,50us"}
        return predict_iteration(make_scenario({**asked, "method": "ddp", **more})).iteration_s

    buffers = {"options": {"buffers_mib": 16.0}}
    once = seconds(**buffers) - seconds()
    assert seconds(accumulate=4, **buffers) - seconds(accumulate=4) == pytest.approx(once)


@given(smaller=st.floats(0.01, 1e3), larger=st.floats(0.01, 1e3))
def test_larger_buffers_take_no_less(smaller: float, larger: float) -> None:
    smaller, larger = sorted((smaller, larger))
    took = [took_ms(planned("ssgd", {"buffers_mib": mib})) for mib in (smaller, larger)]
    assert took_ms(planned("ssgd")) < took[0] <= took[1]


@pytest.mark.parametrize("name", ["fp16", "bf16", "powersgd"])
def test_hooks_of_ddp_leave_its_broadcast_as_it_is(name: str) -> None:
    mib = 4.0
    plain = took_ms(planned("ssgd", {"buffers_mib": mib})) - took_ms(planned("ssgd"))
    hooked = took_ms(planned(name, {"buffers_mib": mib})) - took_ms(planned(name))
    assert hooked == pytest.approx(plain)


def test_buffers_go_to_all_ranks_of_ddp_and_no_further() -> None:
    """Post-local SGD's process group is all ranks, that of DiLoCo's inner DDP a node."""

    def more(method: str, **options: Any) -> float:
        asked = {"model": "resnet50", "gpus": 8, "gpus_per_node": 2, "net": "1Gbit/s,50us"}
        asked |= {"method": method}
        seconds = [
            predict_iteration(make_scenario({**asked, "options": options | more})).iteration_s
            for more in ({}, {"buffers_mib": 16.0})
        ]
        return seconds[1] - seconds[0]

    everywhere = more("ssgd")
    assert more("postlocalsgd", dense_share=0, interval=4) == pytest.approx(everywhere)
    assert 0 < more("diloco", interval=4) < everywhere / 10


def test_buffers_are_refused_where_no_ddp_runs() -> None:
    for name, other in (("fp16", {"library": "horovod"}), ("powersgd", {"variant": "package"})):
        with pytest.raises(RequestError, match="buffers_mib"):
            load_method(name, {"buffers_mib": 1.0, **other})
    with pytest.raises(RequestError, match="buffers_mib"):
        load_method("diloco", {"buffers_mib": 1.0, "inner": "fsdp"})


def test_only_ddp_broadcasts_buffers() -> None:
    for name in ("horovod", "wfbp", "hierarchical"):
        with pytest.raises(RequestError, match="buffers_mib"):
            load_method(name, {"buffers_mib": 1.0})
    assert load_method("ssgd", {}).in_effect()["buffers_mib"] == 0.0


def test_wfbp_sends_each_tensor_when_it_is_ready() -> None:
    plan = planned("wfbp", ready_ms=(10, 10.5, 30))
    assert plan.calls == 3
    # Two messages back to back from 10 to 25; the third is exposed.
    assert took_ms(plan) == pytest.approx(10 + 30 + 7.5 + 2)
    order = names(plan)
    assert order.index("all_reduce 0.0") < order.index("all_reduce 0.1") < len(order) - 1


def in_step(name: str, options: dict[str, Any] | None = None, **more: Any) -> CostedGraph:
    """Return a plan in which every hook runs when its gradient is there."""
    return planned(name, options, fusion_options={"hook": "1s"}, **more)


def test_horovod_sends_at_the_ticks_of_its_cycle() -> None:
    # Ready at 10.2 and 10.6, sent at 11 in one buffer; ready at 29.4, sent at 30, when the four
    # nodes have agreed: two messages of 28 us, one after the other.
    plan = in_step("horovod", ready_ms=(10.2, 10.6, 29.4))
    assert plan.calls == 2
    assert took_ms(plan) == pytest.approx(10 + 30 + 0.056 + 7.5 + 2)
    assert took_ms(planned("wfbp", ready_ms=(10.2, 10.6, 29.4))) == pytest.approx(
        10 + 29.4 + 7.5 + 2
    )


def test_horovod_copies_what_it_fuses() -> None:
    # Both sent at 30.056, in a buffer of 500,000 values: read and written before and after.
    copy_ms = hand_device().cost(elementwise(500_000, 2)).seconds / MS
    plan = in_step("horovod", ready_ms=(29.2, 29.4))
    assert took_ms(plan) == pytest.approx(10 + 30.056 + copy_ms + 9 + copy_ms + 2)
    order = [task.name for task in plan.graph.tasks if task.stream == "communication"]
    assert order == ["compress 0.0", "all_reduce 0.0", "decompress 0.0"]


@pytest.mark.parametrize("method", ["ssgd", "wfbp", "horovod", "hierarchical", "torus2d"])
def test_buckets_of_a_size_have_the_stages_that_each_has_by_itself(method: str) -> None:
    """One gradient of 4,000 values, two of 2,000, and one of 4,000 again."""
    a, b, c, d = (gradient(size, 1.0, f"{size}") for size in (4000, 2000, 2000, 4000))
    buckets = [bucket(a), bucket(b, c), bucket(d)]
    made, world = load_method(method, {}), MethodContext(8, 2, 4)
    jobs = made.jobs(buckets, world, 0)
    assert [job.stages for job in jobs] == [tuple(made.stages(one, world, 0)) for one in buckets]


def test_horovod_agrees_while_the_gpu_computes() -> None:
    # Hooks at 0.2 and 0.4 ms, taken at 1 ms; the buffer goes when its last gradient is there.
    copy_ms = hand_device().cost(elementwise(500_000, 2)).seconds / MS
    assert took_ms(planned("horovod")) == pytest.approx(10 + 30 + 2 * copy_ms + 9 + 2)


def test_horovod_keeps_its_fusion_buffer() -> None:
    for name, options in (("horovod", {}), ("fp16", {"library": "horovod"})):
        method = load_method(name, options)
        assert method.memory_in(MethodContext(8)) == 128 * 2**20
        assert method.memory_in(MethodContext(8, bucket_bytes=64e6)) == 64e6
    assert load_method("fp16", {}).memory_in(MethodContext(8)) == 0.0  # DDP's buckets instead


@pytest.mark.parametrize(
    ("options", "waits_us"),
    [
        ({"message_us": 100.0}, 200),
        # A gather, two broadcasts of two messages each, one that takes one; four ranks' requests.
        ({"cache": False}, 7 * 28 + 4 * 0.35),
        ({"cache": False, "message_us": 0.0}, 4 * 0.35),
    ],
)
def test_horovod_agrees_over_the_control_network(options: dict[str, Any], waits_us: float) -> None:
    plan = in_step("horovod", options, ready_ms=(29.4,))
    assert took_ms(plan) == pytest.approx(10 + 30 + waits_us / 1000 + 7.5 + 2)


@pytest.mark.parametrize(("launches", "update_ms"), [(0, 2.0), (150, 2.0), (500, 5.0)])
def test_horovod_launches_its_update_after_the_wait(launches: int, update_ms: float) -> None:
    # One tensor, 10 us a launch; the step of the profile takes 2 ms.
    plan = in_step("horovod", {"update_launches": launches}, ready_ms=(29.4,))
    assert took_ms(plan) == pytest.approx(10 + 30 + 0.056 + 7.5 + update_ms)
    # Alone there is nothing to wait for.
    alone = Cluster(1, (1,), None, None)
    plan = in_step("horovod", {"update_launches": launches}, ready_ms=(30,), cluster=alone)
    assert took_ms(plan) == pytest.approx(10 + 30 + 2)


def test_mgwfbp_waits_for_less_than_a_latency_and_asc_does_not() -> None:
    """A message has 6 ms of latency: the tensor at 13 is worth 3 ms of waiting, that at 30 not."""
    ready_ms = (10.0, 13.0, 30.0)
    merged, apart = (planned(name, ready_ms=ready_ms) for name in ("mgwfbp", "asc_wfbp"))
    assert merged.calls == 2 and apart.calls == 3
    assert took_ms(merged) == pytest.approx(10 + 30 + 7.5 + 2)


def test_asc_merges_what_waits_anyway() -> None:
    """Of 10, 13, 14 and 30: the second could start at 17.5, when the third is long ready."""
    context = FusionContext(
        None,
        30 * MS,
        lambda one: one.size_bytes,
        lambda _: one_by_one(lambda n: 6 * MS + 1.5e-9 * n),
    )
    gradients = [gradient(250_000, ready * MS) for ready in (10, 13, 14, 30)]
    buckets = fusion.load_policy("asc").fuse(gradients, context)
    assert [len(bucket.gradients) for bucket in buckets] == [1, 2, 1]
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([10 * MS, 14 * MS, 30 * MS])
    assert fusion.load_policy("asc").fuse([], context) == []


@pytest.mark.parametrize(
    ("options", "end_ms"),
    [
        # Latencies end at 35 and 36; of 1.5 ms of bytes the first has 0.5 left then, at 2/3 until
        # 36.75; the second has done as much and has 1 left.
        ({"capacity": str(4 / 3)}, 37.75),
        # At half speed until 37, and 1 left.
        ({}, 38.0),
        # No flow slows the other down.
        ({"capacity": "2"}, 37.5),
        # One after the other, from 29.
        ({"streams": "1"}, 29 + 2 * 7.5),
    ],
)
def test_asc_sends_two_at_once_by_hand(options: dict[str, str], end_ms: float) -> None:
    plan = planned("asc_wfbp", options, ready_ms=(29, 30), fused="none")
    assert took_ms(plan) == pytest.approx(10 + end_ms + 2)


def test_asc_without_overlap_sends_two_at_once_after_the_pass() -> None:
    """Together a + 1.5 s b: 6 + 1.5 x 1.5 ms."""
    plan = planned("asc_wfbp", {"capacity": str(4 / 3)}, fused="none", overlap=False)
    assert took_ms(plan) == pytest.approx(10 + 30 + 6 + 2.25 + 2)


def test_asc_takes_streams_in_turn() -> None:
    plan = planned("asc_wfbp", {"streams": "3"}, ready_ms=(10, 11, 12, 13), fused="none")
    streams = [task.stream for task in plan.graph.tasks if task.kind == "communicate"]
    assert [streams.index(stream) for stream in streams] == [0, 1, 2, 0]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 10**6)), min_size=1, max_size=12),
    st.floats(0, 0.1),
    st.floats(0, 1e-6),
)
def test_asc_never_holds_a_message_back(
    tensors: list[tuple[float, int]], alpha_s: float, beta_s_per_byte: float
) -> None:
    """One after the other, its messages end no later than those of the tensors by themselves."""
    gradients = [gradient(size, ready) for ready, size in sorted(tensors)]

    def cost_s(size_bytes: float) -> float:
        return alpha_s + beta_s_per_byte * size_bytes

    context = FusionContext(
        None, 1.0, lambda one: one.size_bytes, lambda collective: one_by_one(cost_s)
    )
    end_s = {}
    for policy in ("asc", "none"):
        buckets = fusion.load_policy(policy).fuse(gradients, context)
        assert [one for bucket in buckets for one in bucket.gradients] == gradients
        end_s[policy] = wait_free_chain(
            [bucket.ready_s for bucket in buckets],
            [cost_s(bucket.size_bytes) for bucket in buckets],
        )
    assert end_s["asc"] <= end_s["none"] * (1 + 1e-9)


def test_the_ddp_hook_casts_a_bucket_and_casts_back_beside_the_backward_pass() -> None:
    """Per MB of fp32 at 1 TB/s: cast 1.5 us and division 1 us, a launch of 10 us each."""
    plan = planned("fp16", fused="none")
    assert plan.sent_bytes == pytest.approx(2 * 3 / 4 * 1e6)
    cast_ms, back_ms = 0.0225, 0.0115
    # Half a MB takes 6 + 0.75; the first tensor's way back is hidden on its own stream.
    assert took_ms(plan) == pytest.approx(10 + 30 + 2 * cast_ms + 6.75 + back_ms + 2)
    streams = [task.stream for task in plan.graph.tasks if task.kind == "decompress"]
    assert streams == ["callback", "callback"]


def test_horovod_casts_each_tensor_and_fuses_what_was_cast() -> None:
    """Two tensors in one buffer: two casts of 11.5 us, 1 MB in 7.5 ms, two casts back."""
    plan = planned("fp16", {"library": "horovod"}, ready_ms=(29.5, 30))
    assert plan.calls == 1
    assert took_ms(plan) == pytest.approx(10 + 30 + 0.023 + 7.5 + 0.023 + 2)
    fp32, fp16 = (
        planned(name, options, ready_ms=(29.5, 30), limit_bytes=1e6, fused="threshold").calls
        for name, options in (("horovod", {}), ("fp16", {"library": "horovod"}))
    )
    assert (fp32, fp16) == (2, 1)
