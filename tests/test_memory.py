"""What a prediction says of memory: its parts, the warning, the largest batch; plan and tune."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perfsim.compute.device import usable_bytes
from perfsim.errors import RequestError
from perfsim.memory import (
    UNFIT,
    MemoryUse,
    check_fits,
    fitting_batch,
    memory_note,
    memory_use,
    one_gpu_holds,
)
from perfsim.planning.capacity import Prices, Target, plan
from perfsim.planning.tune import tune
from perfsim.prediction import Prediction, predict
from perfsim.resolve import Setup, resolve
from perfsim.scenario import Scenario, make_scenario
from support.commands import answer, run
from support.what_ships import SHIPPED

PARTS = [
    *("parameters", "gradients", "optimizer", "activations", "logits"),
    *("copies", "method", "messages", "step", "overhead"),
]
NODE = {"gpus": 8, "gpus_per_node": 8, "gpu": "h100", "net": "100gbe"}


def asked(model: str = "gpt3-1.3b", **fields: Any) -> Scenario:
    """Return a scenario on a node of H100."""
    return make_scenario(NODE | {"model": model} | fields)


def setup(model: str = "gpt3-1.3b", **fields: Any) -> Setup:
    """Return it with all that it names."""
    return resolve(asked(model, **fields), SHIPPED)


def ask(model: str = "gpt3-1.3b", **fields: Any) -> Prediction:
    """Return its prediction."""
    return predict(asked(model, **fields), SHIPPED)


# Parts

QUESTIONS: list[dict[str, Any]] = [
    {"model": "gpt3-1.3b"},
    {"model": "gpt3-1.3b", "method": "fsdp", "recompute": "full"},
    {"model": "llama3-8b", "method": "zero"},
    {"model": "resnet50", "method": "dgc", "batch": 64},
    {"model": "bert-large", "method": "powersgd"},
    {"model": "gpt2", "gpu": "v100", "method": "topk"},
    {"model": "generic:params=350M,layers=48,flops=12GFLOP"},
]


@pytest.mark.parametrize("fields", QUESTIONS, ids=lambda fields: str(fields["model"]))
def test_a_prediction_has_every_part(fields: dict[str, Any]) -> None:
    found = ask(**fields)
    assert list(found.memory_bytes) == PARTS
    assert all(part >= 0 for part in found.memory_bytes.values())
    assert found.to_dict()["memory_bytes"] == found.memory_bytes
    # An exchange of compressed messages holds what it gathers; nothing else is known later.
    use = memory_use(setup(**fields))
    assert use.total == pytest.approx(sum(use.parts.values()))
    differing = {name for name in PARTS if use.parts[name] != found.memory_bytes[name]}
    assert differing <= {"messages", "overhead"}


def test_state_is_what_the_optimizer_and_the_method_keep() -> None:
    n = setup().profile.elements
    # fp32 AdamW: 4 bytes a weight, 8 of moments; shared by 8 where FSDP or ZeRO share them.
    for method, parameters, optimizer in (("ssgd", 4, 8), ("zero", 4, 1), ("fsdp", 0.5, 1)):
        found = ask(method=method, precision="fp32").memory_bytes
        assert found["parameters"] == pytest.approx(parameters * n, rel=1e-6), method
        assert found["optimizer"] == pytest.approx(optimizer * n, rel=1e-6), method
    for optimizer, moments in (("sgd", 0), ("momentum", 4), ("adam", 8), ("adamw", 8)):
        held = ask(precision="fp32", optimizer=optimizer).memory_bytes["optimizer"]
        assert held == moments * n, optimizer


def test_a_larger_batch_holds_more_and_recomputation_less() -> None:
    def total(**fields: Any) -> float:
        return memory_use(setup(**fields)).total

    totals = [total(batch=batch) for batch in (1, 2, 8, 32)]
    assert totals == sorted(totals)
    again = [total(batch=8, recompute=word) for word in ("none", "selective", "full")]
    assert again == sorted(again, reverse=True) and again[0] > 1.2 * again[2]
    # Micro-batches are held one after the other, but their gradients stay.
    held = ask(batch=8, accumulate=4).memory_bytes
    assert held["activations"] == ask(batch=8).memory_bytes["activations"]
    assert held["gradients"] == 4 * setup().profile.elements
    assert total(batch=32) > total(batch=8, accumulate=4)


@pytest.mark.parametrize("options", [{}, {"sharded": False}], ids=str)
def test_megatrons_gradient_buffer_stays_with_one_micro_batch(options: dict[str, Any]) -> None:
    # It is filled with zeros for the next iteration, never freed: 4 bytes a parameter throughout.
    sums = []
    for count in (1, 2):
        fields = {"method": "distributed_optimizer", "options": options, "accumulate": count}
        use = memory_use(setup("gpt3-1.3b", batch=8, precision="amp-bf16", **fields))
        assert use.parts["gradients"] == 4 * setup().profile.elements
        sums.append(use.total)
    assert sums[0] == sums[1]
    # PyTorch frees gradients between iterations: they come as activations go.
    one = memory_use(setup("gpt3-1.3b", batch=8)).parts
    assert one["activations"] > 0 and one["gradients"] == 0


@pytest.mark.parametrize(
    ("method", "options", "kept"),
    [
        ("ssgd", {}, True),
        ("fp16", {}, True),
        ("fp16", {"library": "horovod"}, False),
        ("bf16", {}, True),
        ("powersgd", {}, True),
        ("powersgd", {"variant": "package"}, False),
        ("postlocalsgd", {}, True),
        ("hierarchical", {}, True),
        ("torus2d", {}, True),
        ("omnireduce", {}, True),
        ("coccl", {}, True),
        ("cgx", {}, True),
        ("gzccl", {}, True),
        ("mstopk", {}, True),
        ("distributed_muon", {}, True),
        ("kaisa", {}, True),
        ("localsgd", {}, True),  # Accelerate's model is DDP's, inside no_sync
        ("d_kfac", {}, False),  # Horovod's
        ("diloco", {}, True),
        ("diloco", {"inner": "fsdp"}, False),
        ("diloco", {"worker": "rank"}, False),
        ("distributed_optimizer", {}, False),
    ],
    ids=str,
)
def test_what_runs_in_ddp_keeps_buckets_beside_the_gradients(
    method: str, options: dict[str, Any], kept: bool
) -> None:
    # gradient_as_bucket_view is off: 4 bytes a parameter in buckets, 4 in the gradients.
    fields = NODE | {"gpus": 16, "method": method, "options": options}
    use = memory_use(setup("gpt2", **fields))
    size = 4.0 * setup("gpt2").profile.elements
    assert (use.parts["messages"] == size) is kept


def test_buckets_are_ddps_and_of_several_gpus() -> None:
    for fields in ({"gpus": 1, "gpus_per_node": 1}, {"tp": 2}, {"autocast": False}):
        # One GPU sends nothing; Megatron-LM's gradients are its buffer.
        asked = {"precision": "amp-bf16"} | fields
        assert memory_use(setup("gpt2", **asked)).parts["messages"] == 0.0, fields


def test_one_gpu_alone_needs_no_buckets() -> None:
    alone = setup("gpt2", gpus=1, gpus_per_node=1)
    limit = memory_use(alone).total
    for more, holds in ((1.0, True), (-1.0, False)):
        memory_bytes = (limit + more) * alone.device.memory_bytes / memory_use(alone).usable
        one = setup("gpt2")
        one = replace(one, device=replace(one.device, memory_bytes=memory_bytes))
        assert one_gpu_holds(one) is holds
        assert not memory_use(one).fits


@pytest.mark.parametrize(
    ("fields", "buffers"),
    [
        ({"method": "zero", "options": {"stage": 2}}, 1),
        ({"method": "zero", "options": {"stage": 2}, "tp": 2}, 1),
        ({"method": "zero", "options": {"stage": 2, "overlap_comm": True}}, 2),
        ({"method": "zero", "options": {"stage": 3}}, 1),
        ({"method": "zeropp"}, 1),
        ({"method": "loco"}, 1),
        ({"method": "hybrid_zero"}, 2),
    ],
)
def test_buffers_of_gradients_are_as_large_as_the_bucket(
    fields: dict[str, Any], buffers: int
) -> None:
    """400 MB of fp32 are 1e8 values, which have 2 bytes each in half precision."""
    usual = "2GiB" if fields["method"] == "hybrid_zero" else "2GB"
    small, double, large, default = (
        memory_use(setup(**fields, precision="amp-bf16", **bucket)).parts["method"]
        for bucket in ({"bucket": "400MB"}, {"bucket": "800MB"}, {"bucket": usual}, {})
    )
    assert double - small == pytest.approx(buffers * 1e8 * 2)
    assert large == default


def test_a_bucket_may_be_too_large_for_the_memory() -> None:
    """DeepSpeed makes the whole buffer, however small the model: 160 GB of fp32, 80 GB in bf16."""
    fields = {"method": "zero", "options": {"stage": 2}, "precision": "amp-bf16", "batch": 1}
    assert memory_use(setup(**fields, bucket="2GB")).fits
    assert not memory_use(setup(**fields, bucket="160GB")).fits


def test_what_may_be_used_is_less_than_the_gpu_has() -> None:
    use = memory_use(setup())
    memory = setup().device.memory_bytes
    assert use.usable == usable_bytes(memory) < memory
    assert MemoryUse({"a": 3.0, "b": 2.0}, 5.0, True).fits
    assert not MemoryUse({"a": 3.0, "b": 2.5}, 5.0, True).fits


def test_of_several_types_the_one_with_the_least_memory_counts() -> None:
    # The RTX 3090, with 24 GB, is faster than the V100 with 32.
    types = {"gpu": "v100:4,rtx3090:4", "gpus_per_node": 4, "precision": "fp32"}
    found = memory_use(setup("gpt2", **types))
    sizes = {gpu: setup("gpt2", gpu=gpu).device.memory_bytes for gpu in ("v100", "rtx3090")}
    assert sizes["rtx3090"] < sizes["v100"]
    assert found.usable == usable_bytes(sizes["rtx3090"])
    note = memory_note(setup("gpt2", **types, batch=256), found._replace(parts={"a": 1e12}))
    assert ", rtx3090 has " in note


# The largest batch


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"method": "fsdp"},
        {"recompute": "full"},
        {"method": "fsdp", "model": "llama3-8b", "seq": 2048, "recompute": "full"},
        {"model": "resnet50", "gpu": "v100"},
        {"model": "bert-large", "gpu": "a100-40gb", "method": "zero"},
    ],
)
def test_the_largest_batch_fits_and_one_more_does_not(fields: dict[str, Any]) -> None:
    found = fitting_batch(setup(**fields))
    assert found
    assert memory_use(setup(**fields | {"batch": found})).fits
    assert not memory_use(setup(**fields | {"batch": found + 1})).fits
    assert (
        memory_note(setup(**fields | {"batch": found}), memory_use(setup(**fields), (), found))
        == ""
    )


def test_no_batch_fits_where_the_state_does_not() -> None:
    assert fitting_batch(setup("llama3-70b")) == 0
    assert fitting_batch(setup("lstm", gpu="v100", batch=1)) != 0


# The warning


def test_what_does_not_fit_is_warned_of_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(batch=64)
    best = fitting_batch(setup())
    first, *others = found.notes
    assert first.startswith(f"{UNFIT}: ")
    assert first.endswith(f"The largest `batch` that fits is {best}.")
    assert not any(note.startswith(UNFIT) for note in others)
    flags = "predict --model gpt3-1.3b --gpus 8 --gpus-per-node 8 --gpu h100 --net 100gbe"
    left, out, _ = run(f"{flags} --batch 64", capsys)
    lines = out.splitlines()
    assert left == 0
    warning = next(number for number, line in enumerate(lines) if line.startswith("warning "))
    assert lines[warning].startswith(f"warning         {UNFIT}: ")
    assert warning < next(n for n, line in enumerate(lines) if line.startswith("iteration "))
    assert f"--batch that fits is {best}." in " ".join(line.strip() for line in lines)
    assert answer(f"{flags} --batch 64", capsys)["notes"][0].startswith(UNFIT)
    _, fits, _ = run(f"{flags} --batch {best}", capsys)
    assert UNFIT not in fits


@pytest.mark.parametrize(
    ("fields", "words", "change"),
    [
        (
            {"gpus": 64},
            "`method` fsdp with `recompute` selective",
            {"method": "fsdp", "recompute": "selective"},
        ),
        (
            {"gpus": 16, "method": "fsdp", "recompute": "full", "seq": 65536},
            "`cp` 4",
            {"cp": 4},
        ),
        (  # One sample at a time, in as many micro-batches.
            {"gpus": 64, "method": "fsdp", "batch": 8},
            "`batch` 1, `accumulate` 8 with `recompute` selective",
            {"batch": 1, "accumulate": 8, "recompute": "selective"},
        ),
        (  # Only scenarios that are allowed: no block is computed again beside another micro-batch.
            {"model": "qwen3-30b-a3b", "seq": 4096, "gpus": 64, "ep": 16, "accumulate": 8}
            | {"ep_overlap": True, "recompute": "layernorm", "node": "dgx-h100", "net": "dgx-h100"},
            "`recompute` selective",
            {"recompute": "selective"},
        ),
    ],
)
def test_where_no_batch_fits_it_says_the_least_change_that_does(
    fields: dict[str, Any], words: str, change: dict[str, Any]
) -> None:
    asked = {"model": "llama3-70b", "node": "dgx-h200", "net": "dgx-h200", "seq": 8192} | fields
    note = predict(Scenario(**asked)).notes[0]
    assert note.startswith(UNFIT)
    assert note.endswith(f" No batch does; {words} would fit.")
    assert not predict(Scenario(**(asked | change))).notes[0].startswith(UNFIT)


@pytest.mark.parametrize(
    ("model", "gpus", "ways"),
    [
        ("llama3-405b", 1, "`method` fsdp on more GPUs"),
        ("llama3-405b", 2, "`method` fsdp"),
        ("gpt2-xl", 2, "`method` fsdp or `recompute` full"),
    ],
)
def test_where_no_batch_fits_it_says_what_needs_less(model: str, gpus: int, ways: str) -> None:
    """Computing activations again is named only where the state alone fits."""
    asked = resolve(Scenario(model=model, gpus=gpus, gpu="v100", net="ib100"), SHIPPED)
    note = memory_note(asked, memory_use(asked))
    assert note.endswith(f" No batch does; {ways} would need less.")


def test_a_model_without_layers_is_warned_of_by_its_state() -> None:
    note = memory_note(setup(), MemoryUse({"parameters": 1e12}, 8e10, False))
    assert note.startswith(f"{UNFIT}: 1 TB without activations, h100 has 80 GB for it.")


def test_what_does_not_fit_can_be_refused() -> None:
    unfit = setup(batch=64)
    with pytest.raises(RequestError) as caught:
        check_fits(unfit, memory_use(unfit))
    assert str(caught.value).startswith(UNFIT) and "ignore_memory" in str(caught.value)
    check_fits(setup(batch=1), memory_use(setup(batch=1)))


# Plan and tune


def test_plan_leaves_out_what_does_not_fit_unless_asked() -> None:
    both = [asked(batch=batch, gpus=8) for batch in (4, 64)]
    target, prices = Target(1_000_000, 1), Prices("", (), Path())
    made = plan(both, target, prices, SHIPPED)
    assert [one.prediction.scenario.batch for one in made.choices] == [4]
    [reason] = made.left_out.values()
    assert "(ignore_memory takes it nevertheless)" in reason
    whole = plan(both, target, prices, SHIPPED, ignore_memory=True)
    assert [one.prediction.scenario.batch for one in whole.choices] == [4, 64]
    assert not whole.left_out


def test_the_plan_command_takes_what_does_not_fit_when_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = (
        "plan --model gpt3-1.3b --gpu h100 --gpus 8 --net 100gbe --batch 64 --method ssgd"
        " --dataset 1000000samples --epochs 1"
    )
    left, out, err = run(flags, capsys)
    assert (left, out) == (2, "")
    assert "does not fit into memory" in err and "the GPU has 84.44 GB for it" in err
    assert "--ignore-memory" in err
    found = answer(f"{flags} --ignore-memory", capsys)
    assert [(row["gpus"], row["method"]) for row in found["rows"]] == [(8, "ssgd")]


def test_tune_refuses_what_does_not_fit_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    unfit = asked(batch=64)
    with pytest.raises(RequestError, match=UNFIT):
        tune(unfit, ["bucket"], SHIPPED)
    assert tune(unfit, ["bucket"], SHIPPED, ignore_memory=True).tuned
    flags = "tune --model gpt3-1.3b --gpus 8 --gpu h100 --net 100gbe --batch 64 --over bucket"
    left, out, err = run(flags, capsys)
    assert (left, out) == (2, "")
    assert err.startswith(f"perfsim: {UNFIT}: ")
    left, _, err = run(f"{flags} --ignore-memory", capsys)
    assert (left, err) == (0, "")


def test_activations_grow_in_a_straight_line_with_the_imbalance_of_experts() -> None:
    fields = {"gpus": 64, "node": "dgx-h100", "ep": 8, "batch": 1, "seq": 2048, "accumulate": 4}

    def kept(imbalance: float) -> float:
        return memory_use(setup("mixtral-8x7b", imbalance=imbalance, **fields)).parts["activations"]

    even, double = kept(1.0), kept(2.0)
    for ratio in (1.05, 1.1, 1.95):
        line = even + (ratio - 1.0) * (double - even)
        assert kept(ratio) == pytest.approx(line, rel=1e-3)


@pytest.mark.parametrize("software", ["torch1.12", "torch2", "torch2-compiled"])
def test_a_time_that_is_given_changes_no_byte(software: str) -> None:
    """Software of before 2023 keeps gradients from one iteration to the next, timed or not."""
    asked = {"model": "resnet50", "gpus": 16, "software": software}
    own = predict(make_scenario(asked)).memory_bytes
    assert predict(make_scenario(asked | {"single_gpu": "200ms"})).memory_bytes == own


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"model": "llama3-8b", "gpus": 8, "node": "dgx-h100", "method": "fsdp"}, 8192 * 4096),
        ({"model": "llama3-8b", "gpus": 8, "node": "dgx-h100", "tp": 2}, 8192 * 4096),
        ({"model": "gpt2-xl", "gpus": 1, "gpu": "a100"}, 1024 * 1600),
    ],
)
def test_a_chunked_loss_never_holds_the_outputs_of_all_tokens(
    fields: dict[str, Any], values: int
) -> None:
    """What is left are two 16-bit values for each that the output layer reads; times stay."""
    asked = fields | {"batch": 4, "precision": "bf16"}
    whole, chunked = (
        predict(make_scenario(asked | {"chunked_loss": chunks}), SHIPPED)
        for chunks in (False, True)
    )
    assert whole.iteration_s == chunked.iteration_s
    assert chunked.memory_bytes["logits"] == pytest.approx(2 * 2 * 4 * values)
    assert chunked.memory_bytes["logits"] < 0.2 * whole.memory_bytes["logits"]
    assert sum(chunked.memory_bytes.values()) < sum(whole.memory_bytes.values())


def test_fp8_of_transformer_engine_takes_as_much_more_as_was_measured() -> None:
    """Megatron-LM with 4 blocks of 1.55 billion parameters, 4 tensor-parallel ranks, two replicas.

    NVIDIA/TransformerEngine pull request 2043, fp8 by tensor: max allocated 7,842.1 MiB in bf16 and
    7,974.2 in fp8, of which a rank's copies of its weights are 370.5. Width, heads and tokens are
    not stated: 6,144, 48 with 8 of keys and a feedforward of 4 widths have these parameters, and of
    8,192 tokens activations are as much less. That fp8 has a byte a weight and 1.25 less a token
    and value of the width / 4 is all that the comparison tests.
    """
    model = "transformer:layers=4,hidden=6144,heads=48,kv=8,ffn=24576,vocab=32768,gated=no"
    place = {"gpus": 8, "gpu": "b200", "gpus_per_node": 8, "tp": 4, "accumulate": 4}
    place |= {"batch": 1, "seq": 8192, "software": "megatron", "method": "distributed_optimizer"}
    narrow, wide = (
        memory_use(setup(f"{model},norm=layer", precision=word, **place)).parts
        for word in ("fp8", "bf16")
    )
    assert narrow["copies"] / 2**20 == pytest.approx(370.5, rel=0.01)
    tensors = [sum(parts.values()) - parts["overhead"] for parts in (narrow, wide)]
    assert (tensors[0] - tensors[1]) / 2**20 == pytest.approx(7974.2 - 7842.1, abs=4)
    assert [one / 2**20 for one in tensors] == pytest.approx([7974.2, 7842.1], rel=0.08)
