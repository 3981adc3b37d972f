"""The command line: what it prints, and one clear sentence for every wrong input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perfsim import __version__
from perfsim.data.catalog import shipped
from perfsim.fusion import policy_names
from perfsim.inventory import DESCRIBED_KINDS, LISTED_KINDS
from perfsim.methods import method_names
from support.commands import MAIN, answer, run


def test_the_main_command_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(MAIN, capsys)
    assert list(found) == [
        "schema",
        "scenario",
        "iteration_s",
        "iteration_s_interval",
        "samples_per_s",
        "scaling_efficiency",
        "throughput",
        "baseline",
        "breakdown_s",
        "communication",
        "memory_bytes",
        "bottleneck",
        "notes",
        "memory_usable_bytes",
        "warnings",
        "assumptions",
        "provenance",
    ]
    assert found["schema"] == "perfsim/prediction/1"
    low, high = found["iteration_s_interval"]
    assert 0 < low <= found["iteration_s"] <= high
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["iteration_s"], rel=1e-9)
    assert set(found["breakdown_s"]) == {
        "forward",
        "backward",
        "compression",
        "second_order",
        "communication_exposed",
        "update",
        "other",
    }
    assert set(found["communication"]) == {"bytes_per_gpu", "calls", "busy_s", "hidden_s"}
    assert found["baseline"]["method"] == "ssgd"
    assert found["bottleneck"] in ("compute", "bandwidth", "latency", "compression", "second_order")
    for row in found["provenance"]:
        assert {"term", "value", "unit", "kind", "source", "range", "extrapolated"} <= set(row)
        assert row["kind"] in ("measured", "published", "fitted", "derived") and row["source"]


def test_the_first_screen_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run(MAIN, capsys)
    assert (left, err) == (0, "")
    for word in ("iteration", "90 % interval", "samples/s", "scaling efficiency", "against S-SGD"):
        assert word in out
    for word in ("held back by", "exposed communication", "warning", "assumed", "next"):
        assert word in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80 and len(out.splitlines()) <= 24
    left, more, err = run(f"{MAIN} -v", capsys)
    assert (left, err) == (0, "") and "Sources" in more and "Notes" in more
    assert max(map(len, more.splitlines())) <= 110


@pytest.mark.parametrize("method", method_names())
def test_every_method_predicts(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(f"predict --model resnet50 --gpus 8 --net 10gbe --method {method}", capsys)
    assert found["iteration_s"] > 0


@pytest.mark.parametrize("policy", policy_names())
def test_every_fusion_policy_predicts(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(f"predict --model resnet50 --gpus 8 --net 10gbe --fusion {policy}", capsys)
    assert found["scenario"]["fusion"] == policy


def test_list_and_show_offer_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    for command, kinds in (("list", LISTED_KINDS), ("show", DESCRIBED_KINDS)):
        _, out, _ = run(f"{command} --help", capsys)
        assert f": {', '.join(kinds)}." in " ".join(out.split())


@pytest.mark.parametrize("kind", LISTED_KINDS)
def test_lists(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(f"list {kind}", capsys)
    assert found["schema"] == "perfsim/list/1" and found["rows"]
    left, out, _ = run(f"list {kind}", capsys)
    assert left == 0 and len(out.splitlines()) > len(found["rows"])


@pytest.mark.parametrize(
    "what",
    ["model resnet50", "gpu v100", "net 1gbe", "method dgc", "scenario what_if_dgc_1gbe"],
)
def test_shows(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(f"show {what}", capsys)["schema"] == "perfsim/show/1"
    left, out, _ = run(f"show {what}", capsys)
    assert left == 0 and what.split()[1] in out


def test_show_net_gives_every_value_a_source(capsys: pytest.CaptureFixture[str]) -> None:
    values = answer("show net 1gbe", capsys)["values"]
    assert values and all(row["source"] and row["kind"] for row in values)


@pytest.mark.parametrize(  # those of the gallery are asked in test_gallery.py
    "path", sorted(shipped("scenarios").glob("[A-Z]*.toml")), ids=lambda p: p.stem
)
def test_every_shipped_scenario_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(f"predict --scenario {path.stem}", capsys)["iteration_s"] > 0


def test_flags_override_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("predict --scenario what_if_dgc_1gbe --gpus 16 --set density=0.01", capsys)
    assert found["scenario"]["gpus"] == 16
    assert found["scenario"]["options"]["density"] == 0.01


@pytest.mark.parametrize("given", ["250ms", "128samples/s", "128images/s"])
def test_the_iteration_on_one_gpu_may_be_given(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # A batch of 32 at 128 samples/s takes 250 ms.
    command = f"predict --model resnet50 --gpus 1 --batch 32 --single-gpu {given}"
    found = answer(command, capsys)
    assert found["iteration_s"] == pytest.approx(0.25)
    assert found["scenario"]["single_gpu_s"] == 0.25


def test_only_options_in_effect_are_echoed(capsys: pytest.CaptureFixture[str]) -> None:
    command = "predict --model resnet50 --gpus 8 --method adpsgd"
    assert run(command, capsys)[1].startswith("resnet50, adpsgd (interval 8);")
    given = f"{command} --set schedule=4x1000,8x500"
    assert run(given, capsys)[1].startswith("resnet50, adpsgd (schedule 4x1000,8x500);")
    assert answer(given, capsys)["scenario"]["options"] == {"schedule": "4x1000,8x500"}


@pytest.mark.parametrize("method", method_names())
def test_a_method_is_shown_in_80_columns(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    left, out, _ = run(f"show method {method}", capsys)
    assert left == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "`" not in out and "\x1b" not in out
    titles = [line for line in out.splitlines() if line and not line.startswith(" ")]
    for title in ("what is sent", "bytes a rank", "memory", "left out", "accuracy record"):
        assert title in titles
    found = answer(f"show method {method}", capsys)
    assert found["method"] == method and found["what_is_sent"] and found["left_out"]


def test_bare_perfsim_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run("", capsys)
    assert (left, err) == (0, "")
    assert "Usage" in out and "predict" in out and len(out.splitlines()) > 10


def test_same_question_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{MAIN} --json", capsys) == run(f"{MAIN} --json", capsys)


WRONG = [
    ("predict --model resnet5 --gpus 4", ["--model", "'resnet5'", "did you mean 'resnet50'"]),
    ("predict --model resnet50 --gpus 4 --net 1gbee", ["--net", "did you mean '1gbe'"]),
    ("predict --model resnet50 --gpus 4 --method dcg", ["--method", "did you mean 'dgc'"]),
    ("predict --model resnet50 --gpus 4 --gpu v10", ["--gpu", "did you mean 'v100'"]),
    ("predict --model resnet50 --gpus 0", ["--gpus", "'0'", "1 or more"]),
    ("predict --model resnet50 --gpus 1.5", ["--gpus", "'1.5'", "whole number"]),
    ("predict --model resnet50", ["--gpus is needed"]),
    ("predict --gpus 4", ["--model is needed"]),
    ("predict --model resnet50 --gpus 10 --gpus-per-node 4", ["--gpus-per-node", "1, 2, 5, 10"]),
    ("predict --model resnet50 --gpus 8 --placement 3,4", ["--placement", "7", "8"]),
    ("predict --model resnet50 --gpus 8 --placement 3,x", ["--placement", "3,5"]),
    ("predict --model resnet50 --gpus 4 --method dgc --set density=0", ["density", "'0'"]),
    ("predict --model resnet50 --gpus 4 --method dgc --set density=2", ["density", "'2'"]),
    ("predict --model resnet50 --gpus 4 --method powersgd --set rank=0", ["rank", "'0'"]),
    ("predict --model resnet50 --gpus 4 --set density", ["--set", "name=value"]),
    ("predict --model resnet50 --gpus 4 --method ssgd --set density=1", ["no 'density'"]),
    ("predict --model resnet50 --gpus 4 --net 10,50us", ["--net", "'10'", "unit"]),
    ("predict --model resnet50 --gpus 4 --net 10Gbit/s", ["--net", "latency"]),
    ("predict --model resnet50 --gpus 4 --bucket 25", ["--bucket", "unit", "25MiB"]),
    ("predict --model resnet50 --gpus 4 --bucket 0MiB", ["--bucket", "above 0"]),
    ("predict --model resnet50 --gpus 4 --bucket 1MiB --fusion whole", ["--bucket", "whole"]),
    ("predict --model resnet50 --gpus 4 --fusion sizes", ["--fusion", "did you mean 'size'"]),
    (
        "predict --model resnet50 --gpus 4 --set fusion.cycle=1ms",
        ["fusion policy 'size'", "first_bucket"],
    ),
    ("predict --model resnet50 --gpus 4 --precision fp6", ["--precision", "amp-bf16"]),
    ("predict --model resnet50 --gpus 4 --gpu v100 --precision fp8", ["--precision", "amp-fp16"]),
    ("predict --model resnet50 --gpus 4 --batch 0", ["--batch", "'0'"]),
    ("predict --model resnet50 --gpus 4 --algorithm rings", ["--algorithm", "ring"]),
    ("predict --model resnet50 --gpus 4 --scenario nothing", ["--scenario", "'nothing'"]),
    ("predict --model resnet50 --gpus 4 --net 1e-99999999999999999999B/s,50us", ["--net"]),
    ("predict --model resnet50 --gpus 4 --net 1e-300B/s,50us", ["--net", "1 B/s"]),
    ("predict --model resnet50 --gpus 4 --net 10Gbit/s,100s", ["--net", "10 s"]),
    ("predict --modl resnet50", ["--modl", "--model"]),
    ("predict --model resnet50 --gpus 4 --single-gpu 253", ["--single-gpu", "a bare number"]),
    (
        "predict --model resnet50 --gpus 4 --method cpsgd --set bits=4",
        ["--set bits: 4", "compress=qsgd"],
    ),
    ("predict --model resnet50 --gpus 4 --method dgc --set density=nan", ["a finite number"]),
    ("predict --model resnet50 --gpus 4 --method auto --set rank=4", ["rank", "one method"]),
    ("predict --model resnet50 --gpus 4 --method auto --fusion sizes", ["did you mean 'size'"]),
    ("show method auto", ["auto is no method"]),
    ("pipeline", ["FILE", "is needed"]),
    ("show net 1gbee", ["did you mean '1gbe'"]),
    ("show modl resnet50", ["'modl'", "did you mean 'model'"]),
    ("list mehtods", ["'mehtods'", "did you mean 'methods'"]),
    ("predcit", ["predcit"]),
    ("predict --gpus 4 --model " + "x" * 5000, ["--model", "xxx...'"]),
]


def test_a_group_of_commands_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run("calibrate", capsys)
    assert (left, err) == (0, "")
    assert out.startswith("Usage: perfsim calibrate") and out.count("\n") > 10


@pytest.mark.parametrize(("text", "words"), WRONG, ids=[text[:70] for text, _ in WRONG])
def test_wrong_input_is_one_sentence(
    text: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(text, capsys)
    assert (left, out) == (2, "")
    assert err.startswith("perfsim: ") and err.count("\n") == 1
    for word in words:
        assert word in err


def test_ctrl_c_is_one_word(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perfsim.cli.show.list_rows", pressed)
    assert run("list models", capsys) == (130, "", "perfsim: stopped.\n")


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(flag, capsys)[:2] == (0, f"perfsim {__version__}\n")
