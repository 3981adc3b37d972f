"""Screens name parts, tasks and buckets as a reader knows them; the JSON keeps the names."""

from __future__ import annotations

import json
import re

import pytest

from perfsim.cli.main import code
from perfsim.planning.explain import Exposed, PathStep
from perfsim.report.task_names import bucket_words, task_words
from support.paths import ROOT

SCENARIOS = ROOT / "scenarios"
TINY = "--model resnet50 --gpus 4 --net 10gbe --gpu v100"


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert code(command.split()) == 0
    return capsys.readouterr().out


def test_a_method_that_compresses_nothing_has_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed(f"predict {TINY} --method fsdp", capsys)
    assert "method's kernels " in screen and "compression" not in screen
    assert "\ncompression " in printed(f"predict {TINY} --method topk", capsys)
    found = json.loads(printed(f"predict {TINY} --method fsdp --json", capsys))
    assert found["breakdown_s"]["compression"] > 0


def test_explain_names_units_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed(f"explain {TINY} --method fsdp -v", capsys)
    assert "all-gather of unit 0" in screen and "reduce-scatter of unit " in screen
    assert "the speed of the method's kernels" in screen
    for internal in ("compress", "0.unit", "0.sum", "e+0"):
        assert internal not in screen.partition("\nNotes")[0]


def test_explain_names_local_iterations(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed(f"explain {TINY} --method localsgd --set interval=8", capsys)
    assert "critical path of the local iterations (7 of 8)\n" in screen
    assert "critical path of the iteration that exchanges (1 of 8)\n" in screen
    assert "round" not in screen


@pytest.mark.parametrize(
    ("name", "kind", "method", "words"),
    [
        ("all_reduce 0.12", "communicate", "ssgd", "all-reduce of bucket 12"),
        ("all_reduce 0.inner 3", "communicate", "diloco", "all-reduce, inner bucket 3"),
        ("broadcast 0.broadcast fc A", "communicate", "spd_kfac", "broadcast, fc A"),
        ("decompress 0.unit 3", "decompress", "zeropp", "decompress, unit 3"),
        ("forward 0", "forward", "ssgd", "forward"),
        ("backward 0.end", "backward", "ssgd", "backward, to its end"),
        ("update 0.unit 2", "update", "fsdp", "update, unit 2"),
        ("second_order 0.unpacked", "second_order", "spd_kfac", "second order, unpacked"),
        ("waiting", "waiting", "ssgd", "waiting"),
    ],
)
def test_words_of_a_task(name: str, kind: str, method: str, words: str) -> None:
    assert task_words(PathStep(name, "compute", kind, 0.0, 1.0), method) == words


def test_one_gpu_has_no_network(capsys: pytest.CaptureFixture[str]) -> None:
    screen = printed("predict --model resnet50 --gpus 1 --net 10gbe --bucket 30MB", capsys)
    first, second, *_ = screen.splitlines()
    assert first.endswith("fusion size 30 MB") and second == "1 x v100"


def test_a_count_of_methods_stands_where_they_are_left_out() -> None:
    stored = (SCENARIOS / "outputs" / "which_method_1gbe.txt").read_text(encoding="utf-8")
    lines = [line for line in stored.splitlines() if re.match(r"\d+  |    and ", line)]
    rank = 0
    for line in lines[: next(i for i, line in enumerate(lines) if "16 more" in line)]:
        more = re.fullmatch(r"    and (\d+) more", line)
        rank += int(more[1]) if more else 1
        assert more or line.startswith(f"{rank}  ")


def test_messages_of_a_divided_model_have_a_pass_and_no_iteration() -> None:
    step = PathStep("all_gather tp backward 0.0", "communication", "communicate", 0.0, 1.0)
    assert task_words(step, "ssgd") == "all-gather, tp backward"
    tied = Exposed(0, "gradients of the tied embedding", "all_reduce", 1.0, 1.0, 1.0)
    assert bucket_words(tied, several=True) == "gradients of the tied embedding"
