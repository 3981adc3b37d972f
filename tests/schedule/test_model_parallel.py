"""Kernels beside a collective over NVLink: the law against what others measured."""

from __future__ import annotations

import pytest

from perfsim.compute.device import load_device
from perfsim.methods.base import Send
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.model_parallel import (
    _lost_share,
    laid_out_pipeline,
    rate_left,
    stage_costs,
)
from support.what_ships import SHIPPED


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
    assert rate_left(load_device("h100", SHIPPED), 0.0) == pytest.approx(1 - 24 / 132)


@pytest.mark.parametrize(("intra", "lost"), [("nvlink-h100", True), ("pcie5", False)])
def test_kernels_lose_nothing_beside_a_collective_over_pcie(intra: str, lost: bool) -> None:
    """What joins the GPUs decides, not what joins those of another H100 node."""
    fields = {"model": "llama3-8b", "gpus": 8, "node": "dgx-h100", "intra_net": intra, "tp": 8}
    setup = resolve(make_scenario(fields | {"tp_overlap": True}), SHIPPED)
    assert setup.split is not None
    costs = stage_costs(setup, setup.split)
    cost = costs.collective(Send("all_gather", 1e8, group="tp"))
    assert (_lost_share(cost, "tp", costs) > 0.0) is lost


@pytest.mark.parametrize(
    ("software", "schedule", "waits"),
    [("megatron", "1f1b", True), ("torch2", "1f1b", False), ("megatron", "interleaved", False)],
)
def test_a_stage_of_megatrons_plain_1f1b_waits_for_its_messages(
    software: str, schedule: str, waits: bool
) -> None:
    """Each of 32 micro-batches waits for an exchange, and the first through 7 stages more.

    Elsewhere they hide but on the way of the first micro-batch there and of the last one back.
    """
    fields = {"model": "gpt2-xl", "gpus": 8, "node": "dgx-h100", "pp": 8, "batch": 4}
    more = {"accumulate": 32, "software": software, "schedule": schedule}
    setup = resolve(make_scenario(fields | more), SHIPPED)
    assert setup.split is not None
    found = laid_out_pipeline(setup, setup.split)
    more_s = found.run.total_s - found.free.total_s
    assert (more_s > (32 + 7) * found.send_s) is waits
    assert waits or more_s < (2 * 7 + 7) * found.send_s
