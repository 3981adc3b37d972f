"""Copies of offloaded parameters and gradients: how wide, how many, and what waits for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfsim.compute.device import load_device
from perfsim.compute.host_link import copied_in, copied_out, host_link
from perfsim.compute.profile import FrozenParameter, Profile
from perfsim.errors import RequestError
from perfsim.fusion.buckets import Bucket
from perfsim.fusion.policies import block_units
from perfsim.methods import load_method
from perfsim.methods.base import Compute, Job, MethodContext, Send
from perfsim.methods.building.host_copies import COPY_IN, gradients_out, shard_in
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

RANKS = 8


def profile(**fields: object) -> Profile:
    """Return GPT-2 on 8 A100, of 124 million parameters in 12 blocks."""
    usual = {"model": "gpt2", "gpus": RANKS, "gpu": "a100", "precision": "amp-bf16"}
    return resolve(make_scenario(usual | fields), SHIPPED).profile


GPT2 = profile()


def jobs(
    method: str, options: dict[str, object], of: Profile = GPT2, ranks: int = RANKS
) -> list[Job]:
    world = MethodContext(ranks, 1, ranks, profile=of)
    return load_method(method, options).jobs(block_units(of.in_ready_order()), world, 0)


def copies(of: list[Job], name: str) -> list[tuple[str, Compute, float]]:
    """Return the copies of a direction: job, stage and bytes."""
    return [
        (job.name, stage, stage.kernels[0].moved_bytes)
        for job in of
        for stage in job.stages
        if isinstance(stage, Compute) and stage.kernels[0].name == name
    ]


def waits(of: list[Job]) -> dict[str, tuple[str, ...]]:
    return {job.name: job.needs for job in of}


# By hand


def test_a_copy_takes_what_the_link_of_the_gpu_takes() -> None:
    """1.29 GB at 25.8 GB/s of PCIe 4, and two calls."""
    device = load_device("a100", SHIPPED)
    cost = device.cost(copied_in(1.29e9, 2))
    assert cost.seconds == pytest.approx(0.05 + 2 * device.launch_s.value)
    assert device.seconds(copied_in(1.29e9, 2)) == cost.seconds
    assert device.cost(copied_out(2.57e9)).seconds == pytest.approx(0.1, rel=1e-3)
    assert cost.terms[0].quantity.value == host_link(device).back
    with pytest.raises(RequestError, match="names no generation of PCIe"):
        load_device("gb10", SHIPPED).cost(copied_in(1.0))
    half = load_device("gb200", SHIPPED).cost(copied_in(1.0)).terms[0].quantity
    assert (half.value, half.kind) == (173e9, "derived")
    assert "NVLink-C2C, shared by 2" in half.source


def test_a_shard_is_as_wide_as_it_is_kept() -> None:
    """Trained parameters 4 bytes, 2 without master weights; frozen ones 2 in half precision."""
    unit = Bucket.of(GPT2.in_ready_order()[:3])
    own = sum(-(-one.elements // RANKS) for one in unit.gradients)
    for kept in (4.0, 2.0):
        of = replace(GPT2, kept_bytes=kept)
        [kernel] = shard_in(unit, RANKS, of, flat=False).kernels
        assert (kernel.moved_bytes, kernel.launches) == (kept * own, 3)
        [kernel] = gradients_out(unit, RANKS, of, "out", flat=True).kernels
        assert kernel.moved_bytes == pytest.approx(kept * own, rel=1e-3)
        assert kernel.launches == 1
    first = unit.gradients[0]
    frozen = replace(GPT2, frozen=(FrozenParameter(first.name, first.shape, first.layer),))
    [kernel] = shard_in(unit, RANKS, frozen, flat=True).kernels
    assert kernel.moved_bytes == 4 * own - 2 * -(-first.elements // RANKS)
    assert profile(master_weights=False, method="fsdp").kept_bytes == 2.0
    assert GPT2.kept_bytes == 4.0


def test_fsdp2_copies_each_shard_in_before_both_passes_and_gradients_out_once() -> None:
    """The last unit of the forward pass stays gathered, as without offloading."""
    plain, moved = jobs("fsdp", {}), jobs("fsdp", {"cpu_offload": True})
    each_pass = 4 * GPT2.elements / RANKS
    kept = max(block_units(GPT2.in_ready_order()), key=lambda unit: unit.gradients[0].layer)
    found = copies(moved, "offload_in")
    assert sum(size for *_, size in found) == pytest.approx(
        2 * each_pass - 4 * kept.elements / RANKS, rel=1e-3
    )
    for job in moved:
        if job.name.startswith(("unit", "again")):
            one = next(other for other in plain if other.name == job.name)
            assert (job.stages[1:], job.begins, job.holds) == (one.stages, one.begins, one.holds)
            assert isinstance(job.stages[0], Compute) and job.stages[0].stream == COPY_IN
            assert one.stages[0].stream == COPY_IN  # the cast follows on the same stream
    out = copies(moved, "offload_out")
    assert sum(size for *_, size in out) == pytest.approx(each_pass, rel=1e-3)
    sent = [
        [stage for job in of for stage in job.stages if isinstance(stage, Send)]
        for of in (plain, moved)
    ]
    assert sent[0] == sent[1]


def test_a_reduce_scatter_follows_the_copy_of_the_unit_before_and_computation_does_not() -> None:
    needs = waits(jobs("fsdp", {"cpu_offload": True}))
    assert needs["pack 3"] == ("sum 2",)
    assert needs["sum 3"] == ("pack 3", "out 2")
    assert needs["out 3"] == ("sum 3",)
    hybrid = waits(jobs("fsdp", {"cpu_offload": True, "shard": "hybrid", "shards": 4}))
    assert hybrid["copies 3"] == ("sum 3", "out 2") and hybrid["out 3"] == ("copies 3",)
    assert hybrid["sum 3"] == ("sum 2",)


def test_what_is_gathered_again_among_a_few_is_on_their_gpus() -> None:
    found = copies(jobs("fsdp", {"cpu_offload": True, "regather": 4}), "offload_in")
    assert all(name.startswith("unit") for name, *_ in found)
    kept = copies(jobs("fsdp", {"cpu_offload": True, "shard": "grad"}), "offload_in")
    assert [size for *_, size in kept] == [size for *_, size in found]


def test_fsdp1_copies_a_unit_at_once_and_gradients_on_the_stream_of_its_divisions() -> None:
    """What is in no block stays gathered: the tables of 50,257 words and 1,024 places, a norm."""
    moved = jobs("fsdp", {"cpu_offload": True, "version": 1})
    found = copies(moved, "offload_in")
    assert {stage.kernels[0].launches for _, stage, _ in found} == {1}
    root = (50_257 + 1_024 + 2) * 768
    copied = 4 * (2 * GPT2.elements - root) / RANKS
    assert sum(size for *_, size in found) == pytest.approx(copied, rel=1e-3)
    assert {stage.stream for _, stage, _ in copies(moved, "offload_out")} == {"post_backward"}


@pytest.mark.parametrize("on_host", [False, True])
def test_zero_copies_what_it_gathers_in_16_bits(on_host: bool) -> None:
    options = {"stage": 3, "offload_param": True, "offload_optimizer": on_host}
    moved = jobs("zero", options)
    gathered = sum(
        stage.size_bytes
        for job in moved
        if job.name.startswith("fetch")
        for stage in job.stages
        if isinstance(stage, Send)
    )
    found = copies(moved, "offload_in")
    assert sum(size for *_, size in found) == pytest.approx(gathered / RANKS)
    back = copies(moved, "offload_out")
    if on_host:  # DeepSpeed's CPUs update them where they are
        assert back == []
    else:
        [(_, stage, size)] = back
        assert size == pytest.approx(2 * GPT2.elements / RANKS, rel=1e-3)
        assert stage.earliest == "update"


def test_on_one_gpu_zero_copies_all_of_it() -> None:
    found = copies(jobs("zero", {"stage": 3, "offload_param": True}, ranks=1), "offload_in")
    large = sum(one.elements for one in GPT2.gradients if one.elements > 100_000)
    assert sum(size for *_, size in found) >= 2 * large
