"""Flags of a model that is stated, and of how it is trained, with what they cannot mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsim.cli.main import code

FILES = {
    "short.json": '{"model_type": "llama", "hidden_size": 4096}',
    "unknown.json": '{"model_type": "llamaa"}',
    "torn.json": '{"model_type": "llama"',
    "empty.json": "",
}
NAMED = "--model llama3-8b"
STATED = "--model transformer:layers=2,hidden=64,heads=4,vocab=100"


@pytest.mark.parametrize(
    ("flags", "left", "said"),
    [
        (
            "--model short.json",
            3,
            "short.json: num_hidden_layers is needed: a whole number from 1 to 10000",
        ),
        ("--model unknown.json", 3, "unknown.json: model_type: no 'llamaa'; did you mean 'llama'?"),
        ("--model torn.json", 3, "torn.json, line 1: is not JSON: expecting ',' delimiter"),
        ("--model empty.json", 3, "empty.json, line 1: is not JSON: expecting value"),
        ("--model none.json", 3, "none.json: there is no such file"),
        ("--model transformer:layers=2", 2, "--model: transformer: needs hidden, heads, vocab too"),
        (f"{STATED},kv=3", 2, "--model: kv=3 does not divide heads=4."),
        (f"{STATED},experts=8", 2, "--model: topk=0 is not 1 to experts=8."),
        (f"{STATED},hidden=32", 2, "--model: hidden stands there twice."),
        (
            f"{NAMED} --gpu h100 --method fsdp --offload parameters --accumulate 2",
            2,
            "--offload: parameters: PyTorch adds gradients of micro-batches on the CPUs, at a rate"
            " that is not known here; set --no-exchange-each, or leave --accumulate out.",
        ),
        ("--model generic:params=1M,layers=2", 2, "--model: generic: needs flops too"),
        (
            f"{STATED},positions=512 --seq 513",
            2,
            "--seq: the model learns 512 positions, found 513.",
        ),
        ("--model gpt2 --seq 2048", 2, "--seq: gpt2 has 1 to 1024 positions, found 2048."),
        ("--model resnet50 --seq 2048", 2, "--seq: resnet50 takes no tokens"),
        (f"{NAMED} --accumulate 0", 2, "--accumulate: '0' is not allowed: it must be 1 or more."),
        (f"{NAMED} --optimizer adamx", 2, "--optimizer: no 'adamx'; did you mean 'adam'?"),
        (f"{NAMED} --recompute half", 2, "--recompute: no 'half'. Allowed: core_attn, full, "),
        (
            f"{NAMED} --recompute layernrm+mlp",
            2,
            "--recompute: no 'layernrm'; did you mean 'layernorm'?",
        ),
        (
            f"{NAMED} --recompute full+mlp",
            2,
            "--recompute: full stands by itself: it is a word for all, not a part of a block.",
        ),
        (
            f"{NAMED} --recompute moe_act",
            2,
            "--recompute: llama3-8b has no moe_act; of the parts that are computed again it has",
        ),
        (
            "--model resnet50 --recompute full",
            2,
            "--recompute: only transformers have blocks to compute again; leave --recompute out.",
        ),
        (f"{NAMED} --reduce-dtype fp4", 2, "--reduce-dtype: no 'fp4'. Allowed: bf16, fp16"),
        (f"{NAMED} --precision fp4", 2, "--precision: no 'fp4'; did you mean 'nvfp4'?"),
        (f"{NAMED} --gpu v100 --precision fp8", 2, "--precision: v100 has no 'fp8' rate"),
        (
            f"{NAMED} --method dear --accumulate 4 --exchange-each",
            2,
            "--exchange-each: dear uses a result after the update that it belongs to",
        ),
        (
            f"{NAMED} --method zero --set stage=3 --accumulate 4 --no-exchange-each",
            2,
            "--no-exchange-each: zero of stage 3 keeps no whole gradients",
        ),
        (
            f"{NAMED} --method distributed_optimizer --accumulate 4 --exchange-each",
            2,
            "--exchange-each: distributed_optimizer adds gradients up in its buffer",
        ),
        (
            f"{NAMED} --method fsdp --set shard=hybrid --set shards=5",
            2,
            "--method: fsdp needs two or more shards that divide 16 GPUs, not 5.",
        ),
    ],
)
def test_one_sentence_says_what_is_wrong(
    flags: str,
    left: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    gpu = [] if "--gpu " in flags else ["--gpu", "h100"]
    assert code(["predict", "--gpus", "16", *gpu, *flags.split()]) == left
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith(f"perfsim: {said}")
    assert told.err.count("\n") == 1
