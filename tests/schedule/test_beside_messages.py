"""Computation beside messages: the law against what others measured, passes by hand and by law."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.device import load_device
from perfsim.methods import load_method
from perfsim.methods.base import Job, PassPoint, Send
from perfsim.prediction import predict
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.beside_messages import (
    UNSLOWED,
    lost_share,
    rate_left,
    slowed_backward,
    slowed_forward,
)
from perfsim.schedule.costs import Costs
from support.builders import hand_device, ring_cluster
from support.what_ships import SHIPPED

H100 = load_device("h100", SHIPPED)


@pytest.mark.parametrize(
    ("gpu", "rate", "least", "most"),
    [
        ("v100", 130e9, 2.24, 2.64),  # parasailteam/coconet issue 6: GEMM beside an all-reduce
        ("a100", 230e9, 1.76, 2.5),  # NVIDIA/nccl issue 1428: GEMM, attention, element-wise
        ("h100", 360e9, 1.6, 2.0),  # NVIDIA developer forum 337991: 80 to 47 % of the peak
    ],
)
def test_kernels_beside_nvlink_take_as_long_as_was_measured(
    gpu: str, rate: float, least: float, most: float
) -> None:
    assert least <= 1 / rate_left(load_device(gpu, SHIPPED), rate) <= most


def test_nothing_on_the_links_still_takes_multiprocessors() -> None:
    assert rate_left(H100, 0.0) == pytest.approx(1 - 24 / 132)


@pytest.mark.parametrize(
    ("gpus", "nics", "intra", "channels"),
    [
        (8, 8, "nvlink-h100", 24),
        (16, 8, "nvlink-h100", 16),  # two channels a NIC
        (16, 2, "nvlink-h100", 4),
        (16, 1, "nvlink-h100", 0),
        (8, 8, "pcie5", 0),  # what joins the GPUs decides, not what joins other H100s
    ],
)
def test_what_a_collective_takes_from_computation(
    gpus: int, nics: int, intra: str, channels: int
) -> None:
    fields = {"model": "resnet50", "gpu": "h100", "gpus_per_node": 8, "net": "ib400"}
    asked = {"gpus": gpus, "nics_per_node": nics, "intra_net": intra}
    cluster = resolve(make_scenario(fields | asked), SHIPPED).cluster
    assert lost_share(H100, cluster, 0.0) == pytest.approx(channels / 132)


@pytest.mark.parametrize(
    ("node", "gpus", "channels"),
    [
        ("mi300x-8", 8, 56),
        ("mi300x-8", 4, 24),
        ("mi300x-8", 2, 32),
        ("mi300x-8", 16, 56),
        ("mi355x-8", 8, 56),
        ("frontier", 8, 0),
    ],
)
def test_what_rccl_takes_from_computation(node: str, gpus: int, channels: int) -> None:
    asked = {"model": "resnet50", "gpus": gpus, "gpus_per_node": min(gpus, 8), "node": node}
    scenario = resolve(make_scenario(asked), SHIPPED)
    device = scenario.device
    lost = lost_share(device, scenario.cluster, 0.0)
    assert lost == pytest.approx(channels / device.multiprocessors)


def test_products_on_an_mi300x_beside_a_collective_take_half_as_long_again() -> None:
    """AMD's products and collectives that take as long alone take 1.65 times it at once."""
    mi300x = load_device("mi300x", SHIPPED)
    assert 1.2 < 1 / rate_left(mi300x, 310e9, 56) < 1.65


NODE = resolve(make_scenario({"model": "resnet50", "gpus": 8, "node": "dgx-h100"}), SHIPPED).cluster


@pytest.mark.parametrize(
    ("gpus", "collective", "channels"),
    [(8, "all_gather", 4), (8, "reduce_scatter", 5), (8, "all_reduce", 24), (16, "all_gather", 16)],
)
def test_registered_buffers_take_fewer_multiprocessors(
    gpus: int, collective: str, channels: int
) -> None:
    """Of an H100's 132, and 2 bytes of its memory's rate for one on the links, not 2.5."""
    fields = {"model": "resnet50", "gpus": gpus, "node": "dgx-h100"}
    cluster = resolve(make_scenario(fields), SHIPPED).cluster
    traffic = 2.5 if collective == "all_reduce" else 2.0
    left = (1 - traffic * 300e9 / H100.memory_bandwidth.value) * (1 - channels / 132)
    assert lost_share(H100, cluster, 300e9, collective) == pytest.approx(1 - left)


def test_megatrons_fsdp_registers_its_buffers_and_ddp_does_not() -> None:
    found = {
        (method, software): load_method(method, {}).registers_buffers(software)
        for method in ("fsdp", "ssgd")
        for software in ("torch2", "megatron", "megatron+flash2", "mlperf")
    }
    assert [asked for asked, registers in found.items() if registers] == [
        ("fsdp", "megatron"),
        ("fsdp", "megatron+flash2"),
        ("fsdp", "mlperf"),
    ]


COSTS = Costs(hand_device(), ring_cluster(4, "1GB/s,1ms"), "ring")
"""An all-reduce of 1 MB takes 7.5 ms there, an all-gather of 1 MB 3.75."""


def bucket(ready_s: float) -> Job:
    """Return a job that sends 1 MB when the backward pass has come so far."""
    return Job(f"{ready_s}", (Send("all_reduce", 1e6),), PassPoint("backward", ready_s))


def test_a_backward_pass_of_35_ms_by_hand() -> None:
    """Beside messages computation takes 1.25 times as long: a fifth of their time is lost."""
    slowed = partial(
        slowed_backward, backward_s=0.035, costs=COSTS, slowdown=lambda send, timing: 1.25
    )
    # From 10 ms on 25 are left, which lose a fifth of 7.5.
    assert slowed([bucket(0.010)]) == pytest.approx((0.010, 1 + 1.5 / 25))
    # The second has 1.25 x 4 = 5 of its 7.5 ms beside the pass.
    assert slowed([bucket(0.010), bucket(0.031)]) == pytest.approx((0.010, 1 + 2.5 / 25))
    # Five of 7.5 ms outlast the 25 ms that are left: all of these are slowed.
    assert slowed([bucket(0.010)] * 5) == pytest.approx((0.010, 1.25))
    assert slowed([bucket(0.035)]) == slowed([]) == UNSLOWED


def test_messages_of_two_kinds_slow_a_pass_each_by_its_own() -> None:
    """One loses half of its 7.5 ms, one a fifth of 3.75: 4.5 ms of 30."""
    gather = Job("gather", (Send("all_gather", 1e6),), PassPoint("backward", 0.005))
    factors = {"all_reduce": 2.0, "all_gather": 1.25}
    found = slowed_backward(
        [bucket(0.010), gather], 0.035, COSTS, lambda send, timing: factors[send.collective]
    )
    assert found == pytest.approx((0.005, 1 + 4.5 / 30))


def test_a_forward_pass_of_20_ms_by_hand() -> None:
    """It is slowed by what is gathered for it, and by gathers that it waits for later."""
    slowed = partial(
        slowed_forward, forward_s=0.020, costs=COSTS, slowdown=lambda send, timing: 1.5
    )
    gather = Send("all_gather", 1e6)
    begins, holds = PassPoint("forward", 0.005), PassPoint("forward", 0.010)
    unit = Job("unit", (gather,), begins, holds)
    assert slowed([unit], []) == pytest.approx((0.005, 1 + 1.25 / 15))
    # Its reduce-scatter runs in the backward pass; 1.5 x 2 of the 3.75 ms go before the hold.
    stages = (Send("reduce_scatter", 1e6), gather._replace(earliest="backward"))
    group = Job("group", stages, PassPoint("backward"), PassPoint("next", 0.002))
    assert slowed([], [group]) == pytest.approx((0.0, 1 + 1.0 / 20))
    # The first group's all-gather ends before the pass begins, and so does what has no place in it.
    first = Job("first", stages, PassPoint("backward"), PassPoint("next", 0.0))
    assert slowed([bucket(0.0)], [first]) == UNSLOWED


def iteration_s(**fields: Any) -> float:
    """Predict 8 billion parameters on 8 H100."""
    asked = {"model": "llama3-8b", "gpus": 8, "node": "dgx-h100", "batch": 1, "precision": "bf16"}
    return predict(make_scenario(asked | fields), SHIPPED).iteration_s


@pytest.mark.parametrize("method", ["ssgd", "fsdp", "dear"])
def test_messages_beside_computation_cost_time_but_less_than_their_own(method: str) -> None:
    """Between free messages and messages one after computation."""
    least_s = iteration_s(method=method, overlap_slowdown=1.0 + 1e-9)
    slowed_s = iteration_s(method=method)
    assert least_s * 1.005 < slowed_s < iteration_s(method=method, overlap=False)


def test_a_factor_of_ones_own_takes_the_place_of_the_law() -> None:
    law_s = iteration_s(method="ssgd")
    assert iteration_s(method="ssgd", overlap_slowdown=1.01) < law_s
    assert iteration_s(method="ssgd", overlap_slowdown=3.0) > law_s


def test_no_message_slows_a_host_that_launches() -> None:
    """Experts that the host launches one by one take it four times as long as the GPU."""
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "software": "megatron", "method": "fsdp"}
    asked |= {"gpus": 16, "node": "dgx-h200"}
    by_law, free = (
        predict(make_scenario(asked | {"overlap_slowdown": factor}), SHIPPED).breakdown_s
        for factor in (1.0, 1.0 + 1e-12)
    )
    for part in ("forward", "backward"):
        assert by_law[part] == pytest.approx(free[part], rel=1e-9)


@given(st.floats(1e9, 1e13), st.floats(1.01, 100.0))
def test_a_faster_link_never_costs_computation_more(rate: float, times: float) -> None:
    """What is lost beside a message falls with its rate, to what its memory traffic takes."""

    def lost_s(bytes_per_s: float) -> float:
        share = min(lost_share(H100, NODE, bytes_per_s), 0.9)
        return share * 1e9 / bytes_per_s

    assert lost_s(rate * times) <= lost_s(rate) * (1 + 1e-12)
