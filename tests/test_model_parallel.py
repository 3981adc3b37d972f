"""Divided models: bytes by the papers' formulas, time by laws, memory by shares.

The figures of Llama 3 8B, 64 GPUs (8 x 8), 4 micro-batches of 8192 tokens are derived by hand:
M = s b h x 2 bytes = 67.1 MB.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim import Scenario, predict
from perfsim.compute.memory import overhead_bytes
from perfsim.compute.stages import Stage
from perfsim.errors import RequestError
from perfsim.memory import communicators, memory_use
from perfsim.model_parallel import ModelSplit
from perfsim.models.split import SCHEDULES
from perfsim.prediction import Prediction
from perfsim.resolve import resolve
from perfsim.schedule.model_parallel import laid_out_pipeline, of_stage
from perfsim.schedule.rounds import _schedule_method, build_rounds
from perfsim.what_if import faster, steady_s
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
        ("cp_comm", "ulysses", "cp"),
        ("exchange_each", True, "accumulate"),
        ("dispatcher", "hybridep", ""),
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


T5: dict[str, Any] = {"model": "t5-large", "seq": 512, "gpus": 8, "tp": 8, "precision": "bf16"}
ENCODED_BYTES, DECODED_BYTES = 512 * 1024 * 2.0, 114 * 1024 * 2.0
"""What a message of the encoder's tokens has, and one of the decoder's: 24 blocks each."""


def test_bytes_of_tensor_parallelism_with_cross_attention() -> None:
    """A decoder's block has 15 messages: 5 each for attention, its queries' part, products.

    The encoder's output is gathered for keys and values of each such block: three messages more.
    The embedding reads both halves' tokens (two messages), the output layer the decoder's (three).
    """
    messages = (10 * 24 + 3 * 24 + 2) * ENCODED_BYTES + (15 * 24 + 2 + 3) * DECODED_BYTES
    norms = 2 * 7 / 8 * (2 * 24 + 1 + 3 * 24 + 1) * 1024 * 4
    assert sent(ask(**T5)) == pytest.approx(7 / 8 * messages + norms, rel=1e-6)


def test_bytes_of_plain_tensor_parallelism_with_cross_attention() -> None:
    """All-reduces: two a part of a block and one for keys and values; one for each end."""
    messages = (4 * 24 + 24 + 1) * ENCODED_BYTES + (6 * 24 + 1 + 1) * DECODED_BYTES
    found = ask(**T5, sequence_parallel=False)
    assert sent(found) == pytest.approx(2 * 7 / 8 * messages, rel=1e-6)


def test_cross_attention_and_the_embedding_of_both_halves_are_divided() -> None:
    split = resolve(Scenario(**(ASKED | T5)), SHIPPED).split
    assert split is not None
    stage = split.parts.stages[0]
    whole = {"norms": (2 * 24 + 1 + 3 * 24 + 1) * 1024, "positions": 2 * 32 * 16}
    rest = 737_668_096 - sum(whole.values())
    assert stage.elements == rest / 8 + sum(whole.values())


def test_gradients_go_among_the_ranks_with_the_same_weights() -> None:
    """All-reduces of P/8 fp32 gradients among 8 ranks: 2 x 7/8 x 4 P/8."""
    more = sent(ask(tp=8)) - sent(ask(tp=8, gpus=8))
    elements = 8.0303e9 / 8
    assert more == pytest.approx(2 * 7 / 8 * 4 * elements, rel=1e-3)


@pytest.mark.parametrize(
    ("more", "ranks"),
    [
        ({}, 1),
        ({"tp": 4}, 4),
        ({"tp": 4, "cp": 2}, 8),
        ({"tp": 4, "sequence_parallel": False}, 1),
    ],
)
def test_bytes_between_stages(more: dict[str, Any], ranks: int) -> None:
    """M to the next stage, of which each rank has the part of its tokens (Korthikanti et al.)."""
    split = resolve(Scenario(**ASKED, pp=2, accumulate=MICRO_BATCHES, **more), SHIPPED).split
    assert split is not None
    assert split.parts.boundary_bytes == M_BYTES / ranks


@pytest.mark.parametrize(
    ("schedule", "more", "each"),
    [
        ("1f1b", {}, 1),  # the first and the last stage send one way, and end last
        ("interleaved", {"virtual_stages": 2}, 3),
        ("dualpipev", {}, 2),
        ("zbv", {}, 2),  # both ways from the two ends of the V; its middle stays on a stage
    ],
)
def test_what_a_stage_sends_to_others_counts(
    schedule: str, more: dict[str, Any], each: int
) -> None:
    place: dict[str, Any] = {"node": None, "gpu": "h100", "net": "1gbe", "gpus_per_node": 1}
    found = ask(
        **place | more, gpus=8, pp=8, accumulate=16, schedule=schedule, recompute="full"
    ).communication
    assert found["calls"] == pytest.approx(16 * each)
    assert found["bytes_per_gpu"] == pytest.approx(16 * each * M_BYTES)
    assert found["hidden_s"] <= found["busy_s"]


@pytest.mark.parametrize(
    "more",
    [
        {"method": "distributed_optimizer", "options": {"instances": 2}, "tp": 8},
        {"method": "p3", "options": {"servers": 1}, "model": "resnet50", "seq": None},
    ],
)
def test_one_rank_or_one_node_is_an_answer(more: dict[str, Any]) -> None:
    assert ask(gpus=8, **more).iteration_s > 0.0


@pytest.mark.parametrize("more", [{"cp": 2}, {"cp": 2, "pp": 2, "method": "zero"}])
def test_messages_beside_a_pass_begin_with_it(more: dict[str, Any]) -> None:
    """Those of the first pass of an iteration wait for the one before."""
    asked = {"model": "opt-1.3b", "gpus": 8, "node": "dgx-a100", "net": "dgx-a100", "seq": None}
    (costed,) = build_rounds(resolve(Scenario(**ASKED | asked | more), SHIPPED))
    beside = [task for task in costed.graph.tasks if task.stream.startswith("beside")]
    assert beside and all(task.after for task in beside)


@pytest.mark.parametrize(("software", "each_way"), [("megatron", 1 + 2), ("torch2", 1 + 3)])
def test_bytes_of_a_ring_of_contexts(software: str, each_way: int) -> None:
    """(c-1) messages of keys and values forward, twice as much backward.

    PyTorch sends the sums of their gradients in fp32, and three times as much.
    """
    pairs = 2 * (8192 / 4) * 8 * 128 * 2
    found = ask(cp=4, gpus=4, software=software)
    gradients = 2 * 3 / 4 * 4 * 8.0303e9
    assert sent(found) - gradients == pytest.approx(3 * each_way * pairs * LAYERS, rel=2e-2)


def context_messages(**more: Any) -> Counter[tuple[str, str, float]]:
    """Return how often each message among context-parallel ranks is sent in a micro-batch."""
    found: Counter[tuple[str, str, float]] = Counter()
    for stage in divided(**more).parts.stages:
        for chunk in stage.messages:
            for message, count in chunk:
                if message.axis == "cp":
                    found[message.phase, message.collective, message.size_bytes] += count
    return found


@pytest.mark.parametrize(("software", "wide"), [("megatron", 1), ("torch2", 2)])
def test_keys_and_values_of_all_ranks_are_gathered(software: str, wide: int) -> None:
    """2 x 8192 tokens of 8 heads of 128 in 16 bits, again in the backward pass, and their sums."""
    size = 2 * 8192 * 8 * 128 * 2.0
    assert context_messages(cp=4, gpus=4, cp_comm="all_gather", software=software) == {
        ("forward", "all_gather", size): LAYERS,
        ("backward", "all_gather", size): LAYERS,
        ("backward", "reduce_scatter", wide * size): LAYERS,
    }


@pytest.mark.parametrize(("cp", "tp", "copies"), [(4, 1, 1), (8, 1, 1), (8, 2, 2), (16, 1, 2)])
def test_heads_and_tokens_are_exchanged(cp: int, tp: int, copies: int) -> None:
    """Queries, keys and values of a rank's tokens one way, what attention wrote the other.

    Eight heads of keys and values go to 16 ranks, or 4 to 8, twice each.
    """
    queries = 8192 / cp * 4096 / tp * 2.0
    pairs = 2 * 8192 / cp * 8 * 128 / tp * 2.0
    found = context_messages(cp=cp, tp=tp, gpus=cp * tp, cp_comm="ulysses")
    assert found == {
        (phase, "all_to_all", size): LAYERS
        for phase in ("forward", "backward")
        for size in (queries + copies * pairs, queries)
    }


def test_queries_of_latent_attention_are_wider_than_what_it_writes() -> None:
    """DeepSeek-V3: 128 heads of 192 for queries and keys, 128 for values and what is written."""
    asked = {"model": "deepseek-v3", "seq": 4096, "cp": 8, "gpus": 8, "cp_comm": "ulysses"}
    into, out = sorted({size for *_, size in context_messages(**asked)}, reverse=True)
    assert into == 512 * 128 * 4096 * 2 / 8 and out == 128 * 128 * 4096 * 2 / 8


def test_bytes_of_experts() -> None:
    """Four times (e-1)/e T k h x 2 a layer: to the experts and back, in both passes."""
    asked = {"model": "mixtral-8x7b", "seq": 4096, "gpus": 8}
    found = ask(ep=8, **asked)
    experts = 32 * 4 * 7 / 8 * 4096 * 2 * 4096 * 2
    dense = 46.7e9 - 32 * 8 * 3 * 4096 * 14336
    assert sent(found) == pytest.approx(experts + 2 * 7 / 8 * 4 * dense, rel=0.02)


def tensor_messages(**more: Any) -> Counter[tuple[str, str, float]]:
    """Return how often each message among tensor-parallel ranks is sent in a micro-batch."""
    split = resolve(Scenario(**ASKED | more), SHIPPED).split
    assert split is not None
    found: Counter[tuple[str, str, float]] = Counter()
    for stage in split.parts.stages:
        for chunk in stage.messages:
            for message, count in chunk:
                if message.axis == "tp":
                    found[message.phase, message.collective, message.size_bytes] += count
    return found


def test_tensor_parallel_ranks_gather_every_copy_of_a_token_for_experts() -> None:
    """T k h x 2 bytes: gathered behind the all-to-all and summed up before the one back.

    The backward pass has what it needs of the gathered copies. Megatron-LM's token_dispatcher.py,
    dispatch_postprocess and combine_preprocess, around its all-to-alls.
    """
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "tp": 4, "ep": 8}
    copies = 4096 * 8 * 2048 * 2.0
    found = tensor_messages(**asked)
    assert {key: count for key, count in found.items() if key[2] == copies} == {
        ("forward", "all_gather", copies): 48,
        ("forward", "reduce_scatter", copies): 48,
        ("backward", "all_gather", copies): 48,
        ("backward", "reduce_scatter", copies): 48,
    }
    # Attention: into its projections, out of them, and again in the backward pass.
    stream = 4096 * 2048 * 2.0
    assert found["backward", "all_gather", stream] == 48 + 48 + 2


def divided(**fields: Any) -> ModelSplit:
    split = resolve(Scenario(**ASKED | fields), SHIPPED).split
    assert split is not None
    return split


def test_ranks_with_whole_experts_send_their_own_tokens_and_gather_none() -> None:
    """T k h x 2 bytes of a tensor-parallel group's tokens, a quarter from each of its ranks."""
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "tp": 4, "ep": 8}
    copies = 4096 * 8 * 2048 * 2.0
    assert max(size for *_, size in tensor_messages(**asked, etp=1)) < copies
    sent = [
        Counter({message.size_bytes: count for message, count in chunk if message.axis == "ep"})
        for etp in (None, 1)
        for stage in divided(**asked, etp=etp).parts.stages
        for chunk in stage.messages
    ]
    assert sent[0] == sent[1] == {copies / 4: 2 * 48}
    none = tensor_messages(**asked | {"ep": 1}, etp=1)
    assert none == tensor_messages(**asked, etp=1)


def test_whole_experts_stand_on_neighbouring_ranks() -> None:
    """Megatron-LM's groups of experts: all ranks of a stage, nearest first.

    Expert parallelism over tensor- and context-parallel ranks stays in a node where over
    data-parallel ranks alone it spans four.
    """
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "tp": 4, "pp": 2, "ep": 8, "accumulate": 4}
    shared, whole = divided(**asked), divided(**asked, etp=1)
    assert (shared.axes["ep"].placement, shared.axes["experts"].gpus) == ((2,) * 4, 1)
    assert (whole.axes["ep"].placement, whole.axes["experts"].gpus) == ((8,), 4)
    assert shared.data.gpus == whole.data.gpus == 8
    with_context = asked | {"cp": 2}
    assert divided(**with_context).axes["ep"].placement == (2,) * 4
    assert divided(**with_context | {"ep": 2}).axes["ep"].placement == (2,)
    assert divided(**with_context, etp=1).axes["experts"].gpus == 4


def test_whole_experts_are_data_parallel_over_tensor_parallel_ranks() -> None:
    """With one expert-parallel rank each of 64 has all experts, and 16 the same attention."""
    split = divided(model="qwen3-30b-a3b", seq=4096, tp=4, ep=1, etp=1)
    assert (split.data.gpus, split.axes["experts"].gpus) == (16, 64)
    found = ask(model="qwen3-30b-a3b", seq=4096, tp=4, ep=32, etp=1)
    assert found.parallel is not None and found.parallel.words() == "tp 4, ep 32, etp 1, dp 16"
    block = found.to_dict()["parallelism"]
    assert (block["tp"], block["ep"], block["etp"], block["dp"]) == (4, 32, 1, 16)


def test_experts_are_whole_without_tensor_parallelism() -> None:
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "ep": 8}
    found = ask(**asked, etp=1)
    assert found.iteration_s == ask(**asked).iteration_s
    assert "`etp` has no effect without `tp`." in found.notes


def test_experts_of_all_ranks_are_sent_each_token_once() -> None:
    """Without expert parallelism tokens are gathered before they are copied for their experts."""
    sizes = {size for _, _, size in tensor_messages(model="mixtral-8x7b", seq=4096, tp=4)}
    assert max(sizes) == 4096 * 4096 * 2.0


def test_one_copy_of_a_token_goes_to_a_rank() -> None:
    """Of top-8 of 128 experts on 8 ranks 8 (1 - C(112,8)/C(128,8)) of 8 copies are sent."""
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "gpus": 8, "ep": 8}
    plain, once = ask(**asked), ask(**asked, dispatcher="deepep")
    messages = 48 * 4 * 7 / 8 * 4096 * 8 * 2048 * 2
    share = 1 - math.comb(112, 8) / math.comb(128, 8)
    assert sent(plain) - sent(once) == pytest.approx((1 - share) * messages)


@pytest.mark.parametrize(
    ("node", "gpus", "ranks", "rate"), [("dgx-b200", 8, 8, 389e9), ("dgx-h100", 16, 16, 143e9)]
)
def test_deepep_brings_no_more_than_its_kernels_carry(
    node: str, gpus: int, ranks: int, rate: float
) -> None:
    """All copies that come to a rank, over what its kernels carry; HybridEP fills the links."""
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "gpus": gpus, "ep": ranks}
    asked |= {"node": node, "net": node}
    by = {word: ask(**asked, dispatcher=word) for word in ("deepep", "hybridep")}
    each = 128 // ranks
    places = ranks * (1 - math.comb(128 - each, 8) / math.comb(128, 8))
    waits_s = {word: found.parallel.waits_s["ep"] for word, found in by.items()}
    assert waits_s["deepep"] == pytest.approx(48 * 4 * places * 4096 * 2048 * 2 / rate)
    assert waits_s["hybridep"] < 0.8 * waits_s["deepep"]


def test_hybridep_sends_what_the_experts_of_a_node_weigh() -> None:
    """128 fp32 weights with each copy to experts and back, and a byte a token and expert of all."""
    asked = {"model": "qwen3-30b-a3b", "seq": 4096, "node": "dgx-h100", "gpus": 8, "ep": 8}
    one, other = (ask(**asked, dispatcher=word) for word in ("deepep", "hybridep"))
    copies = 4096 * 8 * (1 - math.comb(112, 8) / math.comb(128, 8))
    weights, flags = 2 * copies * 128 * 4, 8 * 4096 * 128
    assert sent(other) - sent(one) == pytest.approx(48 * 7 / 8 * (weights + flags))
    nodes = dict(asked, gpus=16, ep=16)
    one, other = (ask(**nodes, dispatcher=word) for word in ("deepep", "hybridep"))
    copies = 4096 * 2 * (1 - math.comb(64, 8) / math.comb(128, 8))
    weights, flags = 2 * copies * 64 * 4, 16 * 4096 * 128
    assert sent(other) - sent(one) == pytest.approx(48 * 15 / 16 * (weights + flags))


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
    ("more", "each", "added"),
    [
        ({"software": "megatron"}, 0.6 * (2 * 4 - 2), (1, 4)),
        ({"software": "megatron", "reduce_dtype": "bf16"}, 0.6 * (2 * 2 - 2), (1, 4)),
        ({"software": "torch2"}, 2 + 2 * 4, (1, 4)),
        ({"software": "torch2", "reduce_dtype": "bf16"}, 2 + 2 * 2, (0, 3)),
        ({"software": "torch2", "precision": "tf32"}, 4 + 2 * 4, (0, 3)),
    ],
)
def test_gradients_of_micro_batches_are_added_up(
    more: dict[str, Any], each: float, added: tuple[int, int]
) -> None:
    """Megatron's products read and write the sum; else a kernel reads both and writes it.

    The first gradient is the sum where both are as wide.
    """
    asked: dict[str, Any] = {"tp": 8, "gpus": 8, "precision": "amp-bf16"} | more
    sent_each = passes_s(ask(**asked, accumulate=4, exchange_each=True)) / 4
    elements, rate = 8.0303e9 / 8, 2.928e12 * 0.931
    for count, times in zip((1, 4), added, strict=True):
        more_s = passes_s(ask(**asked, accumulate=count)) - count * sent_each
        assert more_s == pytest.approx(times * each * elements / rate, rel=0.03, abs=1e-9)


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


@pytest.mark.parametrize(("hidden", "host_binds"), [(4096, False), (512, True)])
def test_the_bubble_of_equal_stages(hidden: int, host_binds: bool) -> None:
    """(p-1)/m of the time that a stage computes, on a model whose ends weigh little."""
    model = f"transformer:layers=64,hidden={hidden},heads=32,kv=8,ffn=14336,vocab=1024"
    found = ask(model=model, pp=4, gpus=4, accumulate=16, seq=2048)
    assert found.parallel is not None
    assert found.parallel.bubble_s == pytest.approx(3 / 16 * passes_s(found), rel=0.03)
    assert (found.worth["host"] > 0) is host_binds


@given(st.sampled_from([2, 4, 8]), st.sampled_from([4, 8, 16]))
@settings(max_examples=6, deadline=None)
def test_more_micro_batches_shrink_the_share_of_the_bubble(stages: int, count: int) -> None:
    few = ask(pp=stages, gpus=stages, accumulate=count, seq=2048)
    many = ask(pp=stages, gpus=stages, accumulate=2 * count, seq=2048)
    assert few.parallel is not None and many.parallel is not None
    assert many.parallel.bubble_s / many.iteration_s < few.parallel.bubble_s / few.iteration_s
    assert many.samples_per_s > few.samples_per_s


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_takes_no_less_than_its_computation(schedule: str) -> None:
    found = ask(pp=4, gpus=4, accumulate=8, seq=2048, schedule=schedule)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)
    assert found.parallel is not None
    assert found.parallel.bubble_s >= 0


@pytest.mark.parametrize("method", ["distributed_optimizer", "zero", "dear", "ssgd", "fsdp"])
def test_each_micro_batch_beyond_the_stages_takes_the_same_time(method: str) -> None:
    """Of equal stages, a stage is busy for m micro-batches and waits for p - 1, whatever m is."""
    place: dict[str, Any] = {"net": "25gbe", "tp": 2, "pp": 4, "method": method}
    times_s = [ask(accumulate=count, **place).iteration_s for count in (4, 8, 16, 32)]
    each_s = [
        (after - before) / more
        for before, after, more in zip(times_s, times_s[1:], (4, 8, 16), strict=False)
    ]
    assert each_s == pytest.approx([each_s[0]] * 3, rel=1e-6)


def test_what_overlaps_is_no_slower_in_a_pipeline() -> None:
    """A gather that nothing overlaps holds up the first forward pass, and so all stages."""
    place: dict[str, Any] = {"net": "25gbe", "tp": 2, "pp": 4, "accumulate": 8}
    times_s = [
        ask(method="distributed_optimizer", options=options, **place).iteration_s
        for options in (
            {},
            {"overlap_grad_reduce": "true"},
            {"overlap_grad_reduce": "true", "overlap_param_gather": "true"},
        )
    ]
    assert times_s == sorted(times_s, reverse=True) and times_s[2] < times_s[0]


def test_a_stage_between_that_exchanges_most_may_end_last() -> None:
    """It has twelve layers' gradients; the stage whose passes end last has two, and more to do."""
    place: dict[str, Any] = {"net": "25gbe", "pp": 4, "accumulate": 4, "method": "ssgd"}
    uneven = {"stage_layers": (2, 12, 12, 6)}
    found = ask(**place, **uneven)
    assert found.parallel is not None and found.parallel.run is not None
    ends_s = found.parallel.run.ends_s
    gradients = 4 * 12 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    to_neighbours = 2 * 4 * M_BYTES
    assert sent(found) == pytest.approx(2 * 15 / 16 * gradients + to_neighbours, rel=1e-3)
    assert ends_s[1] < ends_s[0]


UNEVEN: dict[str, Any] = {
    "model": "deepseek-v3",
    "gpus": 2048,
    "node": "dgx-h100",
    "seq": 4096,
    "pp": 16,
    "ep": 64,
    "accumulate": 120,
    "precision": "fp8",
    "software": "megatron",
    "method": "distributed_optimizer",
}
"""Its first stage has three dense blocks and sends to no expert, but ends last."""


def test_the_parts_of_an_iteration_are_those_of_the_busiest_stage() -> None:
    found = ask(**UNEVEN)
    assert found.parallel is not None and found.parallel.run is not None
    run = found.parallel.run
    busiest, last = int(run.busy_s.argmax()), int(run.ends_s.argmax())
    assert (last, busiest) == (0, 1)
    busy_s = passes_s(found) + found.parallel.waits_s["ep"]
    assert busy_s >= float(run.busy_s[busiest]) > 2 * float(run.busy_s[last])
    assert found.parallel.bubble_s < 0.1 * found.iteration_s
    # It takes as long as the stage that ends last, whose gradients of embeddings come on top.
    assert 1.0 < found.iteration_s / float(run.ends_s[last]) < 1.02


def test_a_bandwidth_twice_as_high_saves_what_a_pipelines_what_if_says() -> None:
    """The links between nodes alone are faster in the one; those inside nodes too in the other."""
    setup = resolve(Scenario(**(ASKED | UNEVEN)), SHIPPED)
    told_s = steady_s(build_rounds(setup), faster(2.0, "bandwidth"))
    found_s = ask(**UNEVEN, nic="800Gbit/s").iteration_s
    assert told_s == pytest.approx(found_s, rel=0.01)
    assert told_s < 0.75 * ask(**UNEVEN).iteration_s


@pytest.mark.parametrize("jitter", [0.0, 0.05])
def test_the_busiest_stage_waits_for_the_one_that_ends_last(jitter: float) -> None:
    """Where GPUs vary its wait varies too, and the iteration still is the other stage's."""
    more: dict[str, Any] = {"model": "llama3-70b", "pp": 4, "tp": 8, "accumulate": 16}
    setup = resolve(Scenario(**(ASKED | more), jitter=jitter), SHIPPED)
    split = setup.split
    assert split is not None
    usual = partial(_schedule_method, setup, setup.policy.fuse)
    each_s = [steady_s(usual(**of_stage(setup, split, stage))) for stage in range(4)]
    busy_s = laid_out_pipeline(setup, split).run.busy_s
    assert busy_s.argmax() == 3 and max(each_s) > 1.005 * each_s[3]
    assert steady_s(build_rounds(setup)) == pytest.approx(max(each_s), rel=1e-9)


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
    assert set(block["waits_s"]) == {"tp", "pp"}


def test_tensor_parallel_ranks_may_go_over_nodes_and_are_told_so() -> None:
    """The usual order of ranks is asked by name, or not at all: one answer, with a warning."""
    asked = {"tp": 16, "method": "distributed_optimizer"}
    usual, named = ask(**asked), ask(**asked, layout="tp-cp-ep-dp-pp")
    assert usual.iteration_s == named.iteration_s
    words = "goes over nodes of 8 GPUs"
    assert [any(words in note for note in found.notes) for found in (usual, named)] == [True, False]


INTERLEAVED = (0, 0, 16, 0, 16, 0, 0, 0)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tp": 3}, "gpus: 64 GPUs do not divide by tp 3"),
        ({"tp": 64, "layout": "tp-dp-pp"}, "64 does not divide 32 heads"),
        ({"pp": 64, "accumulate": 64}, "64 stages for 32 blocks; at most 34"),
        ({"ep": 2}, "the model has no experts"),
        ({"pp": 2, "stage_layers": (16, 17)}, "must name 2 stages with 32 blocks"),
        *(
            (
                {"pp": 4, "accumulate": 8, "stage_layers": blocks},
                f"^stage_layers: .*,.* leaves stage {at} of 4 without a layer; .* in 8,8,8,8.$",
            )
            for blocks, at in [
                ((0, 0, 32, 0), 2),
                ((0, 0, 16, 16), 2),
                ((16, 0, 16, 0), 2),
                ((16, 16, 0, 0), 3),
                ((32, 0, 0, 0), 2),
            ]
        ),
        (
            {"pp": 4, "accumulate": 8, "schedule": "interleaved", "stage_layers": INTERLEAVED},
            "leaves stage 2 of 4 without a layer",
        ),
        (
            {"pp": 2, "accumulate": 8, "schedule": "zbv", "stage_layers": (16, 0, 0, 16)},
            "leaves stage 2 of 2 without a layer",
        ),
        ({"model": "resnet50", "tp": 2, "seq": None}, "only transformers"),
        ({"tp": 8, "tp_overlap": True, "sequence_parallel": False}, "tp_overlap: needs"),
        ({"schedule": "1f1c"}, "'1f1c'.*1f1b"),
        ({"dispatcher": "depep"}, "dispatcher: .*'depep'.*deepep"),
        ({"tp": 4, "etp": 2}, "etp: 2 is neither 1 nor tp 4"),
        ({"cp_comm": "uly"}, "cp_comm: no 'uly'.*ring.*ulysses"),
        (
            {"cp": 16, "tp": 4, "cp_comm": "ulysses"},
            r"cp: 16 does not divide 8 heads of attention \(cp_comm ulysses\); .* is 8",
        ),
        ({"tp": 4, "etp": 1}, "etp: the model has no experts"),
        ({"tp": 4, "etp": 1, "sequence_parallel": False}, "etp: 1 needs sequence parallelism"),
        (
            {"model": "mixtral-8x7b", "tp": 2, "pp": 2, "etp": 1, "layout": "tp-pp-dp"},
            "layout: .* need pp last",
        ),
        (
            {"model": "mixtral-8x7b", "tp": 8, "pp": 4, "ep": 8, "accumulate": 4},
            r"ep: 8 does not divide the 2 data-parallel ranks; .* is 2 \(with etp 1 8 does too\)",
        ),
        (
            {"model": "mixtral-8x7b", "tp": 2, "cp": 2, "pp": 2, "ep": 3, "etp": 1},
            "ep: 3 does not divide the 32 tensor and context and data-parallel ranks",
        ),
        (
            {"model": "mixtral-8x7b", "cp": 2, "pp": 2, "ep": 8, "layout": "tp-cp-ep-pp-dp"},
            "layout: .* need pp last",
        ),
        (
            {"ep": 8, "ep_overlap": True, "model": "mixtral-8x7b"},
            "ep_overlap: needs accumulate above 1",
        ),
        (
            {"ep": 8, "ep_overlap": True, "model": "mixtral-8x7b", "pp": 2, "accumulate": 4},
            "ep_overlap: needs schedule interleaved or dualpipev where pp is above 1",
        ),
        *(
            (
                {"ep": 8, "ep_overlap": True, "accumulate": 4, "model": "mixtral-8x7b"}
                | {"recompute": again},
                "ep_overlap: not with recompute full or moe",
            )
            for again in ("full", "moe+layernorm")
        ),
    ],
)
def test_impossible_layouts_are_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        ask(**more)


def test_a_chunk_may_be_empty_where_its_stage_is_not() -> None:
    found = ask(pp=2, accumulate=8, schedule="interleaved", stage_layers=(8, 8, 0, 16))
    assert found.parallel is not None and found.parallel.blocks == (8, 8, 0, 16)


def test_a_model_of_one_block_has_two_stages() -> None:
    """The block with the embedding, and the output layer with its normalisation."""
    one = "transformer:layers=1,hidden=512,heads=8,vocab=1000"
    stages = stages_of(one, tp=1, seq=512)
    assert [len(stage.layers) for stage in stages] == [11, 2]
    assert stages[1].elements == 512 + 512 * 1000
    assert ask(model=one, seq=512, gpus=8, pp=2, accumulate=4).iteration_s > 0


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


# An embedding that is the output layer too

GEMMA = "transformer:layers=8,hidden=512,heads=8,vocab=64000,seq=1024,tied="


def stages_of(model: str, **more: Any) -> tuple[Stage, ...]:
    fields: dict[str, Any] = {"gpus": 16, "tp": 2, "pp": 2, "accumulate": 8, "model": model}
    split = resolve(Scenario(**(ASKED | {"seq": None} | fields | more)), SHIPPED).split
    assert split is not None
    return split.parts.stages


@pytest.mark.parametrize("pp", [2, 4])
def test_the_last_stage_has_a_copy_of_a_tied_embedding(pp: int) -> None:
    """V h / t parameters, with gradient and state, as where the output layer has its own."""
    tied, own = (stages_of(GEMMA + word, pp=pp) for word in ("yes", "no"))
    for a_stage, other in zip(tied, own, strict=True):
        assert a_stage.elements == other.elements == a_stage.profile.elements
        assert [layer.elements for layer in a_stage.layers] == [
            layer.elements for layer in other.layers
        ]
        assert a_stage.profile.optimizer_s > 0
    assert [stage.copied_elements for stage in tied] == [0] * (pp - 1) + [64000 * 512 // 2]
    assert [stage.copied_elements for stage in own] == [0] * pp
    # It is ready first, with the output layer: it is at the end in the order of the model.
    gradients = tied[-1].profile.gradients
    assert gradients[-1].shape == (32000, 512)
    assert gradients[-1].ready_s == min(one.ready_s for one in gradients)


@pytest.mark.parametrize("method", ["ssgd", "distributed_optimizer", "fsdp"])
def test_memory_of_a_tied_embedding_on_two_stages(method: str) -> None:
    fields = {"gpus": 16, "seq": None, "tp": 2, "pp": 2, "accumulate": 8, "method": method}
    parts = [ask(model=GEMMA + word, **fields).memory_bytes for word in ("yes", "no")]
    for name in ("parameters", "gradients", "optimizer", "copies", "messages"):
        assert parts[0][name] == pytest.approx(parts[1][name], rel=1e-12), name


def test_a_bias_of_the_output_layer_is_no_matrix() -> None:
    stages = stages_of("bert-large", pp=2)
    assert [stage.copied_elements for stage in stages] == [0, 30522 // 2 * 1024]


@pytest.mark.parametrize(
    ("schedule", "apart"), [("1f1b", True), ("zbv", False), ("dualpipev", False)]
)
def test_gradients_of_a_tied_embedding_go_between_its_stages(schedule: str, apart: bool) -> None:
    """Both ends of the model are on the first stage of a V: there is one matrix, and no sum."""
    fields = {"gpus": 4, "seq": None, "tp": 2, "pp": 2, "accumulate": 8, "schedule": schedule}
    tied, own = (ask(model=GEMMA + word, **fields) for word in ("yes", "no"))
    assert tied.parallel is not None
    assert (tied.parallel.waits_s.get("ends", 0.0) > 0) is apart
    copies = [stage.copied_elements for stage in stages_of(GEMMA + "yes", schedule=schedule)]
    assert any(copies) is apart
    # An all-reduce between two ranks sends what it adds up.
    more = 4 * 64000 * 512 / 2 if apart else 0.0
    assert sent(tied) - sent(own) == pytest.approx(more, abs=1.0)


@pytest.mark.parametrize(
    ("fields", "groups"),
    [
        ({"gpus": 8, "tp": 8}, 1),  # tensor
        ({"gpus": 16, "tp": 8}, 2),  # tensor, data
        ({"gpus": 8, "pp": 8}, 1),  # stages
        ({"gpus": 16, "pp": 8}, 2),  # stages, data
        ({"gpus": 16, "pp": 2, "tp": 2, "cp": 2}, 4),  # stages, tensor, context, data with context
        ({"model": "mixtral-8x7b", "gpus": 8, "ep": 8}, 2),  # experts, data; alike experts: one
        ({"model": "mixtral-8x7b", "gpus": 16, "ep": 8}, 3),
        ({"model": GEMMA + "yes", "gpus": 16, "pp": 2}, 3),  # stages, both ends, data
        ({"model": GEMMA + "yes", "gpus": 16, "pp": 2, "schedule": "zbv"}, 2),
        ({"model": GEMMA + "no", "gpus": 16, "pp": 2}, 2),
    ],
    ids=str,
)
def test_groups_of_one_rank_open_no_communicator(fields: dict[str, Any], groups: int) -> None:
    setup = resolve(Scenario(**(ASKED | {"seq": None, "accumulate": 8} | fields)), SHIPPED)
    parts = memory_use(setup).parts
    tensors = sum(parts.values()) - parts["overhead"]
    found = overhead_bytes("megatron", setup.scenario.gpus)
    beside = parts["overhead"] - (found.reserve - 1) * tensors - found.context
    assert beside / found.communicator == pytest.approx(groups)


def test_only_the_ends_share_a_tied_embedding() -> None:
    fields = {"gpus": 16, "pp": 4, "accumulate": 8, "seq": None, "model": GEMMA + "yes"}
    setup = resolve(Scenario(**(ASKED | fields)), SHIPPED)
    assert setup.split is not None
    assert [communicators(setup.split, stage) for stage in range(4)] == [3, 2, 2, 3]
