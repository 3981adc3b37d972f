"""What methods are told things cost: the same as their stages are charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from perfsim import fusion
from perfsim.compute.kernel import Kernel, KernelLoop, elementwise
from perfsim.fusion.buckets import Bucket
from perfsim.methods.base import Compute, Job, Method, MethodContext, PassPoint, Send
from perfsim.network.cluster import Cluster
from perfsim.network.link import custom_link
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from perfsim.schedule.costs import Costs, likeness, task_work
from perfsim.schedule.rounds import schedule
from perfsim.session import RememberingDevice
from support.builders import hand_device, profile

MODEL = profile([(500, 500)], [0.030], forward_s=0.010, optimizer_s=0.002)


def two_nodes() -> Cluster:
    """Return two nodes of two GPUs, 1 GB/s and 1 ms between them, 10 GB/s and 1 us inside."""
    wire, bus = custom_link("1GB/s,1ms", "test"), custom_link("10GB/s,1us", "test")
    return Cluster(4, (2, 2), wire, bus)


@pytest.mark.parametrize("algorithm", ["auto", "ring", "tree", "hierarchical"])
def test_a_method_is_told_what_the_asked_algorithm_costs(algorithm: str) -> None:
    cluster = two_nodes()
    world = Costs(hand_device(), cluster, algorithm).context(MODEL)
    told_s = world.collective_s("all_reduce", 1e6, "all")
    assert told_s == cluster.cost("all_reduce", 1e6, algorithm).seconds
    # What the user asks for is of all-reduces among all ranks.
    assert world.collective_s("all_gather", 1e6, "all") == cluster.cost("all_gather", 1e6).seconds
    inside_s = cluster.of("node", "all_reduce", 1e6).seconds
    assert world.collective_s("all_reduce", 1e6, "node") == inside_s


def test_the_algorithms_differ_here() -> None:
    costs = [Costs(hand_device(), two_nodes(), name) for name in ("ring", "hierarchical")]
    contexts = [cost.context(MODEL) for cost in costs]
    ring_s, levels_s = (one.collective_s("all_reduce", 1e6, "all") for one in contexts)
    assert ring_s != pytest.approx(levels_s, rel=0.01)


def test_the_function_of_a_size_tells_what_each_costs() -> None:
    """Also beside other traffic, which no formula of a route tells."""
    sizes = [0.0, 1e3, 65536.0, 1e6, 1e9]
    for cluster in (two_nodes(), replace(two_nodes(), background=0.3)):
        costs = Costs(hand_device(), cluster)
        for collective in ("all_reduce", "reduce_scatter", "all_gather"):
            each = [cluster.cost(collective, size).seconds for size in sizes]
            assert [*map(costs.by_size(collective).of, sizes)] == each
    # What the user asks for is of all-reduces among all ranks.
    ring, cluster = Costs(hand_device(), two_nodes(), "ring"), two_nodes()
    ring_s = [cluster.cost("all_reduce", size, "ring").seconds for size in sizes]
    assert [*map(ring.by_size("all_reduce").of, sizes)] == ring_s
    inside_s = [cluster.of("node", "all_reduce", size).seconds for size in sizes]
    assert [*map(ring.by_size("all_reduce", "node").of, sizes)] == inside_s


def test_what_is_told_is_what_is_charged() -> None:
    class Told(Method):
        summary: ClassVar[str] = "toy"
        citation: ClassVar[str] = "by hand"
        family: ClassVar[str] = "dense"
        wire: ClassVar[str] = ""

        def jobs(
            self, buckets: Sequence[Bucket], world: MethodContext, iteration: int
        ) -> list[Job]:
            found.append(world.collective_s("all_reduce", 1e6, "all"))
            return [Job("0", (Send("all_reduce", 1e6),), PassPoint("backward"))]

    found: list[float] = []
    fuse = fusion.load_policy("none").fuse
    [plan] = schedule(MODEL, Told(), fuse, hand_device(), two_nodes(), algorithm="hierarchical")
    [send] = [task for task in plan.graph.tasks if task.kind == "communicate"]
    assert found == [send.duration_s]


def test_a_kernel_is_asked_of_the_device_once() -> None:
    costs = Costs(RememberingDevice.like(hand_device()), two_nodes())
    kernel = elementwise(1_000_000, 2)
    assert costs.kernel(kernel) is costs.kernel(kernel)
    # 8 MB at 1 TB/s and a launch of 10 us.
    assert costs.context(MODEL).kernel_s(kernel) == pytest.approx(18e-6)
    twice = task_work(Compute((kernel, kernel), "compress"))
    assert twice.kernels == ((kernel, 2),)
    assert costs.kernels_s(twice) == 2 * costs.kernel(kernel).seconds
    slower = replace(costs, kernel_factor=1.5)
    assert slower.context(MODEL).kernel_s(kernel) == slower.kernel(kernel).seconds
    assert slower.kernels_s(twice) == pytest.approx(3 * costs.kernel(kernel).seconds)


def test_stages_are_alike_by_what_they_do_however_often_a_kernel_repeats() -> None:
    kernel, other = elementwise(1_000, 2), elementwise(1_001, 2)

    def looped(one: Kernel, times: int) -> Compute:
        return Compute(KernelLoop([((one,), times)]), "decompress")

    often = 10**12  # one by one they would take hours
    alike = {likeness(looped(kernel, often)): "often", likeness(Send("push", 8.0)): "send"}
    assert alike.get(likeness(looped(elementwise(1_000, 2), often))) == "often"
    assert alike.get(likeness(Send("push", 8.0))) == "send"
    for stage in (
        looped(other, often),
        looped(kernel, often - 1),
        looped(kernel, often)._replace(kind="compress"),
        Compute((kernel,), "decompress"),
        Send("pull", 8.0),
    ):
        assert likeness(stage) not in alike


def test_memory_may_depend_on_nodes_and_layers() -> None:
    class Staged(Method):
        summary: ClassVar[str] = "toy"
        citation: ClassVar[str] = "by hand"
        family: ClassVar[str] = "dense"
        wire: ClassVar[str] = ""

        def memory_in(self, world: MethodContext) -> float:
            assert world.profile is not None
            return world.nodes * world.profile.size_bytes

    assert Staged().memory_in(Costs(hand_device(), two_nodes()).context(MODEL)) == 2e6
    assert Staged().memory_bytes(MODEL.gradients, 4) == 0.0


def test_by_default_memory_depends_on_the_gradients_and_ranks() -> None:
    # DeAR keeps a buffer of all 25.557 million parameters of ResNet-50 and a shard of it.
    found = predict(make_scenario({"model": "resnet50", "gpus": 16, "method": "dear"}))
    assert found.memory_bytes["method"] == pytest.approx(4 * 25_557_032 * (1 + 1 / 16))
