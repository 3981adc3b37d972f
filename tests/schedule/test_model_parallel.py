"""Rounds of a divided model: how long its stages wait, by law and by hand."""

from __future__ import annotations

import pytest

from perfsim.prediction import predict
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.model_parallel import laid_out_pipeline
from support.what_ships import SHIPPED


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


def test_the_host_launches_on_while_messages_are_under_way() -> None:
    """A small BERT-Large on two GPUs takes what its host needs, or what its GPU does and waits."""
    fields = {"model": "bert-large", "gpu": "h100", "gpus": 2, "gpus_per_node": 1, "tp": 2}
    small = fields | {"batch": 2, "software": "torch2", "precision": "amp-bf16"}
    found = [
        predict(make_scenario(small | {"net": f"{rate}Gbit/s,1us"}), SHIPPED)
        for rate in (100_000, 1_000, 400, 40, 10, 1)
    ]
    host_s, slowest = found[0].iteration_s, found[-1]
    gpu_s = slowest.iteration_s - slowest.communication["busy_s"]
    assert gpu_s < 0.8 * host_s
    for one in found:
        waits_s = gpu_s + one.communication["busy_s"]
        assert one.iteration_s == pytest.approx(max(host_s, waits_s), rel=1e-2)
    hidden = [one.communication["hidden_s"] > 0.5 * one.communication["busy_s"] for one in found]
    assert hidden == sorted(hidden, reverse=True) and hidden[0] and not hidden[-1]


def test_messages_are_sent_where_their_layers_are_computed() -> None:
    """The output layer, whose backward pass is first, has no keys and values to send around."""
    blocks = "transformer:layers=12,hidden=1024,heads=16,vocab=50257,seq=1024"
    fields = {"model": blocks, "gpu": "b200", "gpus": 8, "gpus_per_node": 1, "net": "10gbe"}
    asked = fields | {"batch": 16, "cp": 2}
    found = predict(make_scenario(asked), SHIPPED)
    (timeline,) = found.timelines
    tasks = list(zip(timeline.graph.tasks, timeline.starts[0], strict=True))
    first_s = min(start for task, start in tasks if task.name.startswith("all_reduce"))
    sent_s = min(start for task, start in tasks if task.name.startswith("send_recv cp backward"))
    assert first_s <= sent_s
    # Blocks that go to the host take longer, and move no messages of others.
    seconds = [
        predict(make_scenario(asked | {"offload": f"activations:{count}"}), SHIPPED).iteration_s
        for count in (1, 2, 4, 8, 11)
    ]
    assert seconds == sorted(seconds) and seconds[0] >= found.iteration_s
    # All are sent, into however many parts gradients cut the pass: these go through rings of 8
    # and of 2 ranks, and all else is alike.
    alone = predict(make_scenario(asked | {"gpus": 2}), SHIPPED)
    more = found.communication["bytes_per_gpu"] - alone.communication["bytes_per_gpu"]
    profile = resolve(make_scenario(asked), SHIPPED).profile
    assert more == pytest.approx((2 * 7 / 8 - 2 * 1 / 2) * 4 * profile.elements, rel=1e-6)
