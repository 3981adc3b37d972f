"""Divided models: bytes by the papers' formulas, time by laws, memory by shares.

The figures of Llama 3 8B, 64 GPUs (8 x 8), 4 micro-batches of 8192 tokens are derived by hand:
M = s b h x 2 bytes = 67.1 MB.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim import Scenario, predict
from perfsim.errors import RequestError
from perfsim.prediction import Prediction
from perfsim.resolve import resolve
from support.what_ships import SHIPPED

ASKED: dict[str, Any] = {
    "model": "llama3-8b",
    "gpus": 64,
    "node": "dgx-h100",
    "net": "dgx-h100",
    "batch": 1,
    "seq": 8192,
}
M_BYTES = 8192 * 4096 * 2.0
LAYERS, MICRO_BATCHES = 32, 4


def ask(**more: Any) -> Prediction:
    return predict(Scenario(**(ASKED | more)))


def sent(found: Prediction) -> float:
    return found.communication["bytes_per_gpu"]


def passes_s(found: Prediction) -> float:
    return found.breakdown_s["forward"] + found.breakdown_s["backward"]


def test_degrees_of_one_change_nothing() -> None:
    plain = ask(method="fsdp")
    same = ask(method="fsdp", tp=1, pp=1, cp=1, ep=1, schedule="gpipe", layout="tp-pp-dp")
    assert same.iteration_s == plain.iteration_s
    assert same.breakdown_s == plain.breakdown_s
    assert same.parallel is None


@pytest.mark.parametrize(
    ("field", "value", "degree"),
    [
        ("stage_layers", (6, 6), "pp"),
        ("schedule", "gpipe", "pp"),
        ("virtual_stages", 2, "pp"),
        ("tp_overlap", True, "tp"),
        ("sequence_parallel", False, "tp"),
        ("layout", "dp-tp-cp-ep-pp", "tp`, `pp`, `cp` or `ep"),
        ("exchange_each", True, "accumulate"),
        ("dispatcher", "deepep", ""),
        ("ep_overlap", True, ""),
        ("imbalance", 2.0, ""),
    ],
)
@pytest.mark.parametrize("method", ["ssgd", "fsdp"])
def test_what_says_nothing_without_a_degree_is_told(
    field: str, value: Any, degree: str, method: str
) -> None:
    plain: dict[str, Any] = {"model": "gpt2", "gpus": 8, "gpu": "a100", "net": "10gbe"}
    plain["method"] = method
    without, found = predict(Scenario(**plain)), predict(Scenario(**plain, **{field: value}))
    assert found.iteration_s == without.iteration_s
    words = f"`{field}` has no effect without `{degree}`."
    words = words if degree else f"`{field}` has no effect: gpt2 has no experts."
    assert [note for note in found.notes if words in note] and words not in " ".join(without.notes)


def test_experts_on_every_rank_have_no_use_for_a_dispatcher() -> None:
    fields = {"model": "mixtral-8x7b", "gpus": 8, "node": "dgx-h100", "ep_overlap": True}
    found = predict(Scenario(**fields, dispatcher="deepep"))
    words = [f"`{field}` has no effect without `ep`." for field in ("dispatcher", "ep_overlap")]
    assert [note for note in found.warnings if note in words] == words
    assert not [
        note
        for note in predict(Scenario(**fields | {"accumulate": 2}, ep=8)).warnings
        if "no effect" in note
    ]


def test_bytes_of_tensor_parallelism_with_sequences() -> None:
    """10 (t-1)/t M a layer and micro-batch; embedding two of these messages, output layer three."""
    alone = ask(tp=8, gpus=8, accumulate=MICRO_BATCHES)
    a_message = 7 / 8 * M_BYTES * MICRO_BATCHES
    norms = 2 * 7 / 8 * (2 * LAYERS + 1) * 4096 * 4
    assert sent(alone) == pytest.approx((10 * LAYERS + 5) * a_message + norms, rel=1e-6)
    assert alone.communication["calls"] == (10 * LAYERS + 5) * MICRO_BATCHES + 1


def test_bytes_of_plain_tensor_parallelism() -> None:
    """8 (t-1)/t M a layer and micro-batch: two all-reduces in each pass."""
    alone = ask(tp=8, gpus=8, accumulate=MICRO_BATCHES, sequence_parallel=False)
    a_message = 2 * 7 / 8 * M_BYTES * MICRO_BATCHES
    assert sent(alone) == pytest.approx((4 * LAYERS + 2) * a_message, rel=1e-6)


@pytest.mark.parametrize("node", ["dgx-h100", "pcie5-8"])
def test_user_buffers_hide_messages_and_change_no_bytes(node: str) -> None:
    place: dict[str, Any] = {"node": node, "net": node, "gpus": 8, "tp": 4}
    plain, cut = ask(**place), ask(**place, tp_overlap=True)
    assert sent(cut) == pytest.approx(sent(plain))
    exposed_s = [found.breakdown_s["communication_exposed"] for found in (plain, cut)]
    assert 0.0 < exposed_s[1] < 0.95 * exposed_s[0]
    assert cut.iteration_s < plain.iteration_s


def test_gradients_go_among_the_ranks_with_the_same_weights() -> None:
    """All-reduces of P/8 fp32 gradients among 8 ranks: 2 x 7/8 x 4 P/8."""
    more = sent(ask(tp=8)) - sent(ask(tp=8, gpus=8))
    elements = 8.0303e9 / 8
    assert more == pytest.approx(2 * 7 / 8 * 4 * elements, rel=1e-3)


def test_bytes_of_a_ring_of_contexts() -> None:
    """(c-1) messages of keys and values forward, twice as much backward."""
    pairs = 2 * (8192 / 4) * 8 * 128 * 2
    found = ask(cp=4, gpus=4)
    gradients = 2 * 3 / 4 * 4 * 8.0303e9
    assert sent(found) - gradients == pytest.approx(3 * 3 * pairs * LAYERS, rel=2e-2)


def test_bytes_of_experts() -> None:
    """Four times (e-1)/e T k h x 2 a layer: to the experts and back, in both passes."""
    asked = {"model": "mixtral-8x7b", "seq": 4096, "gpus": 8}
    found = ask(ep=8, **asked)
    experts = 32 * 4 * 7 / 8 * 4096 * 2 * 4096 * 2
    dense = 46.7e9 - 32 * 8 * 3 * 4096 * 14336
    assert sent(found) == pytest.approx(experts + 2 * 7 / 8 * 4 * dense, rel=0.02)


def test_one_copy_of_a_token_goes_to_a_rank() -> None:
    """Of top-8 of 128 experts on 8 ranks 8 (1 - C(112,8)/C(128,8)) of 8 copies are sent."""
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "gpus": 8, "ep": 8}
    plain, once = ask(**asked), ask(**asked, dispatcher="deepep")
    messages = 48 * 4 * 7 / 8 * 4096 * 8 * 2048 * 2
    share = 1 - math.comb(112, 8) / math.comb(128, 8)
    assert sent(plain) - sent(once) == pytest.approx((1 - share) * messages)


def test_one_copy_of_a_token_goes_to_a_node() -> None:
    """Two of 8 experts on two nodes: 2 (1 - C(4,2)/C(8,2)) of 2 copies cross, 0.79."""
    asked = {"model": "mixtral-8x7b", "seq": 4096, "gpus": 8, "gpus_per_node": 4, "ep": 8}
    place = {"node": None, "gpu": "h100", "net": "ib400", "intra_net": "nvlink-h100"}
    plain, once = ask(**asked, **place), ask(**asked, **place, dispatcher="deepep")
    messages = 32 * 4 * 7 / 8 * 4096 * 2 * 4096 * 2
    share = 1 - math.comb(4, 2) / math.comb(8, 2)
    assert sent(plain) - sent(once) == pytest.approx((1 - share) * messages)
    assert once.iteration_s < plain.iteration_s


def test_experts_beside_another_micro_batch_send_as_much() -> None:
    asked = {"model": "mixtral-8x7b", "seq": 4096, "gpus": 8, "ep": 8, "accumulate": 4}
    plain, beside = ask(**asked), ask(**asked, ep_overlap=True)
    assert sent(beside) == pytest.approx(sent(plain))
    exposed_s = [found.breakdown_s["communication_exposed"] for found in (plain, beside)]
    assert exposed_s[1] < 0.7 * exposed_s[0]
    assert beside.iteration_s < plain.iteration_s


@pytest.mark.parametrize(
    ("more", "each"),
    [
        ({"software": "megatron"}, 0.6 * (2 * 4 - 2)),
        ({"software": "megatron", "reduce_dtype": "bf16"}, 0.6 * (2 * 2 - 2)),
        ({"software": "torch2"}, 2 + 2 * 4),
    ],
)
def test_gradients_of_micro_batches_are_added_up(more: dict[str, Any], each: float) -> None:
    """Megatron's products read and write the sum; else a kernel reads both and writes it."""
    asked: dict[str, Any] = {"tp": 8, "gpus": 8, "precision": "amp-bf16"} | more
    one, four = ask(**asked), ask(**asked, accumulate=4)
    elements, rate = 8.0303e9 / 8, 2.928e12 * 0.931
    more_s = passes_s(four) - 4 * passes_s(one)
    assert more_s == pytest.approx(4 * each * elements / rate, rel=0.03)


def test_gradients_that_are_sent_each_time_are_not_added_up() -> None:
    asked: dict[str, Any] = {"tp": 8, "method": "fsdp"}
    one, four = ask(**asked), ask(**asked, accumulate=4)
    assert passes_s(four) == pytest.approx(4 * passes_s(one), rel=1e-6)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
@pytest.mark.parametrize("each", [1, 2, 4, 8])
def test_groups_share_the_nics_that_gpus_share(collective: str, each: int) -> None:
    """Four NICs for eight GPUs give a group what eight of half the rate do, however many groups."""
    seconds = []
    for count, rate in ((4, "100Gbit/s"), (8, "50Gbit/s"), (1, "400Gbit/s")):
        asked = Scenario(model="resnet50", gpus=64, node="dgx-a100", nics_per_node=count, nic=rate)
        cluster = resolve(asked, SHIPPED).cluster
        group = cluster.placed((each,) * 8, 8 // each)
        seconds.append(group.cost(collective, 1e9).seconds)
    assert seconds == [pytest.approx(seconds[0], rel=0.02)] * 3


def test_the_bubble_of_equal_stages() -> None:
    """(p-1)/m of the time that a stage computes, on a model whose ends weigh little."""
    model = "transformer:layers=64,hidden=4096,heads=32,kv=8,ffn=14336,vocab=1024"
    found = ask(model=model, pp=4, gpus=4, accumulate=16, seq=2048)
    assert found.parallel is not None
    assert found.parallel.bubble_s == pytest.approx(3 / 16 * passes_s(found), rel=0.03)


@given(st.sampled_from([2, 4, 8]), st.sampled_from([4, 8, 16]))
@settings(max_examples=6, deadline=None)
def test_more_micro_batches_shrink_the_share_of_the_bubble(stages: int, count: int) -> None:
    few = ask(pp=stages, gpus=stages, accumulate=count, seq=2048)
    many = ask(pp=stages, gpus=stages, accumulate=2 * count, seq=2048)
    assert few.parallel is not None and many.parallel is not None
    assert many.parallel.bubble_s / many.iteration_s < few.parallel.bubble_s / few.iteration_s
    assert many.samples_per_s > few.samples_per_s


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zbv"])
def test_every_schedule_takes_no_less_than_its_computation(schedule: str) -> None:
    found = ask(pp=4, gpus=4, accumulate=8, seq=2048, schedule=schedule)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)
    assert found.parallel is not None
    assert found.parallel.bubble_s >= 0


def test_memory_of_weights_falls_with_tensor_and_pipeline_ranks() -> None:
    names = ("parameters", "gradients", "optimizer")

    def state(**more: Any) -> float:
        memory = ask(**more).memory_bytes
        return sum(memory[name] for name in names)

    two, eight = state(tp=2), state(tp=8)
    assert two / eight == pytest.approx(4.0, rel=0.01)
    # Megatron-LM's mixed precision: 2 + 4 + 12 bytes a parameter.
    assert eight == pytest.approx(18 * 8.03e9 / 8, rel=0.01)


def test_activations_of_the_first_stage_are_those_of_as_many_micro_batches() -> None:
    one = ask(pp=4, accumulate=16, gpus=4, seq=2048, recompute="full")
    gpipe = ask(pp=4, accumulate=16, gpus=4, seq=2048, recompute="full", schedule="gpipe")
    kept = [found.memory_bytes["activations"] for found in (one, gpipe)]
    assert kept[1] > 1.5 * kept[0]


def test_a_slow_gpu_slows_its_stage_and_not_the_bubble_of_others() -> None:
    usual = ask(pp=4, gpus=32, tp=8, accumulate=16)
    slow = ask(pp=4, gpus=32, tp=8, accumulate=16, straggler=("1:1.5",))
    assert usual.iteration_s < slow.iteration_s < 1.5 * usual.iteration_s


def test_a_rank_is_as_late_as_the_slowest_of_its_gpus() -> None:
    """Of 64 normal values the largest is 2.4 deviations above the mean on average, of 8 it is 1.4.

    Computation, which is all that varies, is 71 % of the iteration.
    """
    calm, shaken = (ask(tp=8, accumulate=8, jitter=jitter) for jitter in (0.0, 0.03))
    later = (shaken.iteration_s - calm.iteration_s) / passes_s(calm)
    assert later == pytest.approx(0.03 * 2.4, rel=0.35)


def test_a_divided_job_slows_down_beside_other_traffic() -> None:
    asked = {"tp": 8, "net": "ib100", "node": None, "gpu": "h100", "gpus_per_node": 8}
    assert ask(background=0.5, **asked).iteration_s > ask(**asked).iteration_s


def test_the_prediction_says_how_it_is_divided() -> None:
    found = ask(tp=8, pp=2, accumulate=8)
    block = found.to_dict()["parallelism"]
    assert (block["tp"], block["pp"], block["dp"]) == (8, 2, 4)
    assert block["blocks"] == [16, 16]
    assert set(block["waits_s"]) == {"tp", "pp", "ends"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tp": 3}, "gpus: 64 GPUs do not divide by tp 3"),
        ({"tp": 16}, "tp: 16 ranks do not fit on a node of 8 GPUs; the nearest that do are 8"),
        ({"tp": 64, "layout": "tp-dp-pp"}, "64 does not divide 32 heads"),
        ({"pp": 64, "accumulate": 64}, "64 stages for 32 blocks; at most 34"),
        ({"ep": 2}, "the model has no experts"),
        ({"pp": 2, "stage_layers": (16, 17)}, "must name 2 stages with 32 blocks"),
        ({"model": "resnet50", "tp": 2, "seq": None}, "only transformers"),
        ({"tp": 8, "tp_overlap": True, "sequence_parallel": False}, "tp_overlap: needs"),
        ({"schedule": "1f1c"}, "'1f1c'.*1f1b"),
        ({"dispatcher": "depep"}, "dispatcher: .*'depep'.*deepep"),
        (
            {"ep": 8, "ep_overlap": True, "model": "mixtral-8x7b"},
            "ep_overlap: needs accumulate above 1",
        ),
    ],
)
def test_impossible_layouts_are_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        ask(**more)


def test_a_stage_of_the_output_layer_alone_may_be_asked_for() -> None:
    found = ask(pp=4, accumulate=8, stage_layers=(11, 11, 10, 0))
    assert found.parallel is not None and found.parallel.blocks == (11, 11, 10, 0)


def test_stages_of_embedding_and_output_alone_compute_nothing_again() -> None:
    asked = {"gpus": 34, "gpus_per_node": 2, "node": None, "gpu": "h100", "net": "ib400"}
    found = ask(**asked, pp=34, accumulate=68, recompute="full")
    assert found.parallel is not None and found.parallel.blocks == (0, *[1] * 32, 0)
    plain = ask(**asked, pp=34, accumulate=68)
    assert sum(found.memory_bytes.values()) < sum(plain.memory_bytes.values())
    assert found.iteration_s > plain.iteration_s
