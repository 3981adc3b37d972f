"""Slips that a newcomer makes: each is answered by one sentence that says what to type.

Some are allowed and surprising: they are answered, with a warning first.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfsim.cli.main import code
from support.workplace import furnish

REFUSED = [
    ("predict --model resnet50", "--gpus is needed: how many GPUs in all, such as 64."),
    ("predict --gpus 8", "--model is needed: a name such as resnet50 (`perfsim list models`)"),
    ("prdict --model gpt2 --gpus 8", "command: no 'prdict'; did you mean 'predict'? Allowed"),
    ("foo", "command: no 'foo'. Allowed: app, calibrate, compare, "),
    ("calibrate foo", "calibrate: no 'foo'. Allowed: compute, import, kernels, "),
    (
        "predict --modle gpt2 --gpus 8",
        "no option '--modle'; did you mean --model? `perfsim predict",
    ),
    # What other tools call it is spelled like another of ours, or like none.
    ("predict --tensor-parallel 8", "no option '--tensor-parallel'; did you mean --tp? `perf"),
    ("predict --pipeline_model_parallel_size 4", "parallel_size'; did you mean --pp? `perfsim"),
    ("predict --world-size 8", "no option '--world-size'; did you mean --gpus? `perfsim predict"),
    ("predict --pp_size 4", "no option '--pp_size'; did you mean --pp? `perfsim predict"),
    ("predict --gpu v10 --model gpt2 --gpus 8", "no 'v10'; did you mean 'v100'?"),
    ("predict --tokens 4096", "no option '--tokens'; did you mean --seq? `perfsim predict"),
    ("plan --tokens 1e12", "no option '--tokens'; did you mean --dataset? `perfsim plan"),
    ("sweep --vary batch=8,16 --format xml", "--format: 'xml' is not one of 'table', 'csv', 'js"),
    ("sweep --workers 0", "--workers: '0' is not allowed: it must be 1 or more."),
    ("tune --global-batch 0", "--global-batch: '0' is not allowed: it must be 1 or more."),
    ("app --port abc", "--port: 'abc' is not allowed: it must be a whole number."),
    ("app --port 70000", "--port: '70000' is not allowed: it must be 65535 or less."),
    ("calibrate kernels --max 1e99", "--max-values: '1e99' is not allowed: it must be a wh"),
    (
        "calibrate kernels --tolerance 300%",
        "--tolerance: '300%' is not allowed: it must be 0.01% to",
    ),
    ("calibrate kernels --tolerance 1e9", "--tolerance: '1e9' is not allowed"),
    (
        "calibrate kernels --tolerance 0",
        "--tolerance: '0' is not allowed: it must be 0.01% to 50%.",
    ),
    ("calibrate network --out a.toml --tolerance 51%", "--tolerance: '51%' is not allowed"),
    ("calibrate compute --batch 8", "--model is needed: torchvision:resnet50, "),
    ("list", "KIND is needed: "),
    ("predict --model gpt2 --gpus 8 --method foo", "no 'foo'. Allowed are "),
    ("predict --model gpt2 --gpus 8 --method ssgd --set density=1", "'density'. Allowed: buffers"),
    (
        "predict --model gpt2 --gpus 8 --net 10GB",
        "('GB' is a unit of sizes; rates are 'GB/s' or 'Gbit/s')",
    ),
    ("predict --model gpt2 --gpus 8 --net 10GBps", "('GB' is a unit of sizes; rates are 'GB/s'"),
    ("predict --model gtp2 --gpus 8", "did you mean 'gpt2'?"),
    ("predict --model mine.csv --gpus 8", "mine.csv: there is no such file"),
    ("predict --model confg.json --gpus 8", "did you mean 'config.json'?"),
    ("predict --model transformer:layers=24 --gpus 8", "needs hidden, heads, vocab too, such as "),
    ("predict --model generic:params=350M --gpus 8", "needs layers, flops too, such as "),
    (
        "predict --model transformer:layers=2,hidden=1000,heads=16,vocab=100 --gpus 8",
        "heads=16 does not divide hidden=1000; give head, the width of a head.",
    ),
    ("predict --model gpt2 --gpus sixty", "'sixty' is not allowed: it must be a whole number."),
    ("predict --model gpt2 --gpus 10 --gpus-per-node 4", "allowed for 10: 1, 2, 5, 10"),
    ("predict --model gpt2 --gpus 8 --placement 3,4", "places 7 GPUs, --gpus says 8"),
    ("predict --model gpt2 --gpus 8 --net 10", "a bare number has no unit"),
    ("predict --model gpt2 --gpus 8 --net 10gbps", "did you mean '10gbe'?"),
    ("predict --model gpt2 --gpus 8 --net 10Gbit/s", "write rate,latency such as '10Gbit/s,50us'"),
    ("predict --model gpt2 --gpus 8 --node dgx-h1000", "did you mean 'dgx-h100'?"),
    ("predict --model gpt2 --gpus 8 --node p4d --gpu h100", "leave one of the two out, or join"),
    ("predict --model gpt2 --gpus 8 --gpu h1000", "did you mean 'h100'?"),
    ("predict --model gpt2 --gpus 8 --nic 400", "a bare number has no unit"),
    ("predict --model gpt2 --gpus 8 --precision bf18", "did you mean 'bf16'?"),
    ("predict --model gpt2 --gpus 8 --gpu v100 --precision fp8", "allowed on this GPU: fp32, amp"),
    ("predict --model gpt2 --gpus 8 --method dgcc", "did you mean 'dgc'?"),
    ("predict --model gpt2 --gpus 8 --method dgc --set densty=0.1", "did you mean 'density'?"),
    ("predict --model gpt2 --gpus 8 --method dgc --set density=2", "it must be 1.0 or less"),
    ("predict --model gpt2 --gpus 8 --method fsdp --set shard=half", "'full', 'grad' or 'hybrid'"),
    ("predict --model gpt2 --gpus 8 --bucket 25", "give a number and a unit such as '25MiB'"),
    (
        "predict --model gpt2 --gpus 8 --oversubscription nan",
        "'nan' is not allowed: it must be a f",
    ),
    ("predict --model gpt2 --gpus 8 --imbalance inf", "'inf' is not allowed: it must be a finite"),
    ("predict --model gpt2 --gpus 8 --method dgc --set density=-1%", "'-1%' is not allowed for"),
    ("predict --model gpt2 --gpus 8 --method dgc --set density=-1%", "it must be above 0.0."),
    ("predict --model gpt2 --gpus 8 --method dgc --set density=200%", "'200%' is not allowed for"),
    ("predict --model gpt2 --gpus 8 --net -10Gbit/s,50us", "it must be finite and above 0."),
    ("predict --model gpt2 --gpus 8 --bucket -1MiB", "it must be finite and above 0."),
    ("predict --model gpt2 --gpus 8 --single-gpu -3ms", "it must be finite and above 0."),
    ("predict --model gpt2 --gpus 8 --single-gpu-kernels -3ms", "it must be finite and above 0."),
    ("predict --model gpt2 --gpus 8 --straggler 1", "is not GPUS:FACTOR such as 1:1.5"),
    ("predict --model gpt2 --gpus 8 --straggler 9:1.5", "9 slow GPUs of 8 are too many."),
    ("predict --model gpt2 --gpus 8 --single-gpu 107", "a number and a unit such as '253ms'"),
    ("predict --model gpt2 --gpus 8 --site 4,4", "needs --wan, what joins the sites"),
    ("predict --model resnet50 --gpus 8 --seq 128", "resnet50 takes no tokens"),
    ("predict --model llama3-8b --gpus 12 --tp 8 --node dgx-h100", "the nearest that do are 16"),
    ("predict --model gpt2 --gpus 8 --ep 4", "the model has no experts; leave it out."),
    ("predict my-scenaro.toml", "did you mean 'my-scenario.toml'?"),
    ("predict --scenario what_if_dgc_1gb", "did you mean 'what_if_dgc_1gbe'?"),
    ("predict --model gpt2 --gpus 8 --html nowhere/x.html", "its folder does not exist."),
    ("sweep --model gpt2 --gpus 8", "nothing varies; give a field and values such as gpus=8..64."),
    ("tune --model gpt2 --gpus 8 --over buckets", "did you mean 'bucket'?"),
    (
        "plan --model resnet50 --dataset imagenet --epochs 90 --deadline 24",
        "a number and a unit such as '24h'",
    ),
    ("init hurt.json -y --out new.toml", "hurt.json, line 2: is not JSON: "),
    ("calibrate import none.json", "none.json: is an empty trace: it has no events"),
    ("predict --model folder --gpus 8", "--model: 'folder' is a folder. Allowed are "),
    ("predict --model pipe.json --gpus 8", "pipe.json: there is no such file: it is a pipe"),
    ("predict --model my-scenario.toml --gpus 8", "give it as `perfsim predict my-scenario.toml`"),
    ("predict --model gpt2 --gpus 8 --net folder", "--net: 'folder' is a folder. Allowed are "),
    ("predict --model gpt2 --gpus 8 --node folder", "--node: 'folder' is a folder. Allowed are "),
    ("predict folder", "--scenario: 'folder' is a folder. Allowed are "),
    ("list model", "did you mean 'models'?"),
    ("show model gpt5", "did you mean 'gpt2'?"),
]

SURPRISING = [
    ("predict --model resnet50 --gpus 8 --batch 100000", "warning         It does not fit"),
    ("predict --model llama3-70b --gpus 8 --node dgx-h100", "warning         It does not fit"),
    (
        "predict --model resnet50 --gpus 4 --net 1gbe",
        "warning         --net 1gbe is not used: all 4 GPUs are in one node",
    ),
    (
        "predict --model llama3-8b --gpus 8 --node dgx-h100 --net 10gbe --method fsdp",
        "warning         --net 10gbe is not used: all 8 GPUs are in one node",
    ),
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a config.json and a scenario, whose names are misspelt, and damage."""
    folder = furnish(tmp_path_factory.mktemp("slips"))
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe.json")
    (folder / "hurt.json").write_text('{"a":\n')
    (folder / "none.json").write_text('{"traceEvents": []}')
    (folder / "my-scenario.toml").write_text('schema = "perfsim/scenario/1"\n[scenario]\n')
    return folder


@pytest.mark.parametrize(("command", "words"), REFUSED, ids=[one for one, _ in REFUSED])
def test_a_slip_is_one_sentence_that_says_what_to_type(
    command: str,
    words: str,
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workplace)
    before = sorted(workplace.iterdir())
    left = code(command.split())
    said = capsys.readouterr()
    assert left in (2, 3) and said.out == ""
    assert said.err.startswith("perfsim: ") and said.err.count("\n") == 1
    assert words in said.err and "Traceback" not in said.err
    assert sorted(workplace.iterdir()) == before


@pytest.mark.parametrize(("command", "words"), SURPRISING, ids=[one for one, _ in SURPRISING])
def test_what_is_allowed_and_surprising_is_answered_with_a_warning(
    command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(command.split()) == 0
    assert words in capsys.readouterr().out
