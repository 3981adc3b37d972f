"""Sharded data parallelism beside a table derived from the systems' code: bytes, calls, state.

One step of Llama-3 8B (8.030 G parameters, 291 tensors, 8192 tokens, bf16) on 64 GPUs of 8 a node
with four micro-batches and each system's defaults. The table was worked out by hand from the code
of PyTorch 2.13, DeepSpeed, Megatron-LM and InternEvo; the order and the sizes of FSDP2 were run on
a fake process group. Wire bytes are what a rank sends in a ring.
"""

from __future__ import annotations

from typing import Any

import pytest

from perfsim.memory import memory_use
from perfsim.methods.base import MethodContext
from perfsim.prediction import predict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import make_scenario
from support.what_ships import SHIPPED

STEP: dict[str, Any] = {
    "model": "llama3-8b",
    "gpus": 64,
    "gpus_per_node": 8,
    "gpu": "h100",
    "net": "dgx-h100",
    "seq": 8192,
    "batch": 1,
    "precision": "bf16",
    "accumulate": 4,
    "optimizer": "adamw",
}
ROWS: dict[str, tuple[dict[str, Any], float, int]] = {
    "DDP, no_sync": ({"method": "ssgd", "exchange_each": False}, 63.2, 194),
    "FSDP2": ({"method": "fsdp"}, 248.8, 404),
    "FSDP2, last": ({"method": "fsdp", "exchange_each": False}, 154.0, 302),
    "FSDP2, kept": ({"method": "fsdp", "options": {"shard": "grad"}}, 189.7, 272),
    "HSDP": ({"method": "fsdp", "options": {"shard": "hybrid"}}, 221.2 + 28.1, 404 + 136),
    "ZeRO-1": ({"method": "zero"}, 47.4, 17 + 1),
    "ZeRO-2": ({"method": "zero", "options": {"stage": 2}}, 142.3, 68 + 1),
    "Megatron-LM": ({"method": "distributed_optimizer"}, 47.4, 2),
}
"""What is asked -> GB that a rank sends, and collectives."""


def setup_of(fields: dict[str, Any]) -> Setup:
    """Return the step with a method, resolved."""
    return resolve(make_scenario(STEP | fields), SHIPPED)


def sent(fields: dict[str, Any]) -> tuple[float, float]:
    """Return the GB that a rank sends in the step, and its collectives."""
    found = predict(make_scenario(STEP | fields), SHIPPED).communication
    return float(found["bytes_per_gpu"]) / 1e9, float(found["calls"])


@pytest.mark.parametrize("name", ROWS)
def test_bytes_and_collectives_are_those_of_the_table(name: str) -> None:
    fields, gigabytes, calls = ROWS[name]
    found, counted = sent(fields)
    assert found == pytest.approx(gigabytes, rel=0.002)
    assert counted == calls


def test_zero_3_sends_less_than_the_table_by_what_stays_gathered() -> None:
    # The table takes two gathers and a scatter of all parameters, 189.7 GB. The head and two layers
    # before it stay gathered from forward to backward: they are used again within 1e9 values, or a
    # gather ahead has passed over their second use. That is 0.96 of 8.03 G, in 4 micro-batches.
    found, _ = sent({"method": "zero", "options": {"stage": 3}})
    assert found == pytest.approx(189.7 - 4 * 2 * 63 / 64 * 0.962, rel=0.002)
    # With nothing near, nothing is kept but what gathers ahead pass over.
    far = {"stage": 3, "max_reuse_distance": 0, "prefetch_bucket": 0}
    found, _ = sent({"method": "zero", "options": far})
    assert found == pytest.approx(189.7, rel=0.002)


def test_megatron_closes_buckets_with_the_tensor_that_reaches_the_limit() -> None:
    # The table divides 8.03 G by 64e6: 126 buckets each way. A bucket that closes with a tensor of
    # 59 or 525 M values is larger: 66.
    options = {"overlap_grad_reduce": True, "overlap_param_gather": True}
    found, calls = sent({"method": "distributed_optimizer", "options": options})
    assert found == pytest.approx(47.4, rel=0.002)
    assert calls == 2 * 66


def test_internevo_fills_buckets_with_whole_tensors() -> None:
    # The table divides 8.03 G by 512 Mi: 15 all-reduces. Whole tensors fill 16. Owners receive 14.1
    # GB of broadcasts; what all send together is as much.
    found, calls = sent({"method": "hybrid_zero", "options": {"shards": 8}})
    assert found == pytest.approx(31.6 + 14.1, rel=0.002)
    assert calls == 16 + 8


@pytest.mark.parametrize(
    ("fields", "gigabytes"),
    [
        ({"method": "ssgd"}, 128.5),
        ({"method": "fsdp"}, 2.0),
        ({"method": "fsdp", "exchange_each": False}, 2.0 + 32.1),
        ({"method": "fsdp", "options": {"shard": "grad"}}, 2.0 + 16.1),
        ({"method": "fsdp", "options": {"shard": "hybrid"}}, 16.1),
        ({"method": "zero"}, 33.6),
        ({"method": "zero", "options": {"stage": 2}}, 17.8),
        ({"method": "zero", "options": {"stage": 3}}, 2.0),
        ({"method": "distributed_optimizer"}, 49.7),
        ({"method": "distributed_optimizer", "options": {"sharded": False}}, 18 * 8.03),
        ({"method": "hybrid_zero", "options": {"shards": 8}}, 44.2),
    ],
)
def test_state_is_that_of_the_table(fields: dict[str, Any], gigabytes: float) -> None:
    setup = setup_of(fields)
    use = memory_use(setup).parts
    static = use["parameters"] + use["gradients"] + use["optimizer"]
    kept = setup.method.state(MethodContext(64), each=True).gathered
    # What stays gathered stands with the copies, in 16 bits.
    assert use["copies"] >= 2 * kept * setup.profile.elements
    static += 2 * kept * setup.profile.elements
    assert static / 1e9 == pytest.approx(gigabytes, rel=0.005, abs=0.05)


@pytest.mark.parametrize(
    ("fields", "gigabytes"),
    [
        ({"method": "zero"}, 1.0),
        ({"method": "zero", "options": {"overlap_comm": True}}, 2.0),
        ({"method": "zero", "options": {"stage": 3}}, 1.0 + 2.0),
        ({"method": "hybrid_zero"}, 2 * 512 * 2**20 * 2 / 1e9),
        ({"method": "distributed_optimizer"}, 0.0),
    ],
)
def test_buffers_are_those_of_the_code(fields: dict[str, Any], gigabytes: float) -> None:
    assert memory_use(setup_of(fields)).parts["method"] / 1e9 == pytest.approx(gigabytes)
