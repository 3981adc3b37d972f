"""The Chakra trace of a prediction: in the schema, acyclic, and what its replay takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfsim.cli.main import code
from perfsim.prediction import Prediction, predict
from perfsim.report.chakra import chakra_of
from perfsim.scenario import make_scenario
from perfsim.session import Session

# Facts of et_def.proto, mlcommons/chakra at 21585d8, as Protocol Buffers write it in JSON.
NODE = {"id", "name", "type", "ctrlDeps", "dataDeps", "startTimeMicros", "durationMicros", "attr"}
VALUES = {"doubleVal": float, "int64Val": str, "boolVal": bool, "stringVal": str, "int64List": dict}
COLLECTIVES = {"all_reduce": 0, "reduce": 1, "all_gather": 2, "broadcast": 5, "all_to_all": 6}
COLLECTIVES["reduce_scatter"] = 7
CATALOG = Session()


def predicted(method: str, **fields: Any) -> Prediction:
    asked = {"model": "resnet18", "gpus": 8, "net": "10gbe", "method": method} | fields
    return predict(make_scenario(asked), CATALOG)


def value(node: dict[str, Any], name: str) -> Any:
    [found] = [one for one in node["attr"] if one["name"] == name]
    return next(found[kind] for kind in VALUES if kind in found)


@pytest.mark.parametrize(
    "method", ["ssgd", "dgc", "localsgd", "hierarchical", "d_kfac", "wfbp", "fsdp", "dear"]
)
def test_nodes_are_in_the_schema_and_wait_for_earlier_ones_only(method: str) -> None:
    trace = json.loads(json.dumps(chakra_of(predicted(method))))
    seen: set[str] = set()
    for node in trace["nodes"]:
        assert set(node) == NODE
        assert {*node["ctrlDeps"], *node["dataDeps"]} <= seen
        assert node["id"] not in seen and node["id"] == str(int(node["id"]))
        assert int(node["durationMicros"]) >= 0 and int(node["startTimeMicros"]) >= 0
        for one in [*node["attr"], *trace["metadata"]["attr"]]:
            [kind] = set(one) - {"name"}
            assert isinstance(one[kind], VALUES[kind])
        sends = value(node, "kind") == "communicate"
        assert node["type"] == ("COMM_COLL_NODE" if sends else "COMP_NODE")
        if sends:
            assert int(value(node, "comm_type")) == COLLECTIVES[node["name"].partition(" ")[0]]
            groups = {one["name"]: one for one in trace["metadata"]["attr"]}
            ranks = groups[f"pg_name {value(node, 'pg_name')}"]["int64List"]["values"]
            assert "0" in ranks and len(set(ranks)) == len(ranks) <= 8
        seen.add(node["id"])


@pytest.mark.parametrize("method", ["ssgd", "dgc", "localsgd", "hierarchical", "d_kfac", "wfbp"])
def test_a_replay_takes_as_long_as_was_predicted(method: str) -> None:
    """Where nothing of one period runs into the next: each node begins when all it needs ended."""
    prediction = predicted(method)
    trace = chakra_of(prediction)
    ends: dict[str, float] = {}
    for node in trace["nodes"]:
        waits = [ends[other] for other in (*node["ctrlDeps"], *node["dataDeps"])]
        ends[node["id"]] = max(waits, default=0.0) + value(node, "duration_s")
    told = {one["name"]: one for one in trace["metadata"]["attr"]}
    iterations = int(told["iterations"]["int64Val"])
    assert max(ends.values()) / iterations == pytest.approx(prediction.iteration_s, rel=1e-9)
    recorded = {
        node["id"]: int(node["startTimeMicros"]) + int(node["durationMicros"])
        for node in trace["nodes"]
    }
    for name, end_us in recorded.items():
        assert end_us == pytest.approx(ends[name] * 1e6, abs=2.0)


def test_lengths_are_the_breakdown_and_messages_hold_every_gradient_once() -> None:
    prediction = predicted("ssgd")
    nodes = chakra_of(prediction)["nodes"]
    for kind in ("forward", "backward", "update"):
        spent = sum(value(node, "duration_s") for node in nodes if value(node, "kind") == kind)
        assert spent == pytest.approx(prediction.breakdown_s[kind], rel=1e-9)
    sent = sum(int(value(n, "comm_size")) for n in nodes if n["type"] == "COMM_COLL_NODE")
    assert sent == 11_689_512 * 4  # ResNet-18's parameters in fp32


def test_an_all_gather_has_the_bytes_of_one_rank_and_groups_their_ranks() -> None:
    """Topk gathers k values and k indexes of 4 bytes each from every rank; here k is n."""
    nodes = chakra_of(predicted("topk", options={"density": 1.0}, fusion="whole"))["nodes"]
    gathered = [int(value(one, "comm_size")) for one in nodes if one["name"].startswith("all_g")]
    assert gathered == [4 * 11_689_512] * 2
    trace = chakra_of(predicted("hierarchical"))
    groups = {one["name"]: one for one in trace["metadata"]["attr"]}
    assert groups["pg_name 4 ranks together"]["int64List"]["values"] == ["0", "1", "2", "3"]
    assert groups["pg_name 2 ranks 4 apart"]["int64List"]["values"] == ["0", "4"]


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("byteps", "byteps sends by push, which Chakra has no name for"),
        ("dpsgd", "dpsgd sends by send_recv, which Chakra has no name for"),
        ("kaisa", "kaisa waits for the computation of other ranks"),
        (
            "postlocalsgd",
            "postlocalsgd does not run its rounds a whole number of times in a period",
        ),
    ],
)
def test_what_the_schema_has_no_word_for_is_said_and_not_written(
    method: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    command = f"predict --model resnet18 --gpus 8 --net 10gbe --method {method} --chakra {path}"
    assert code(command.split()) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"perfsim: --chakra: {said}") and captured.err.count("\n") == 1
    assert (captured.out, path.exists()) == ("", False)


@pytest.mark.parametrize(
    "more",
    ["llama3-8b --tp 2", "llama3-8b --pp 2 --accumulate 2", "qwen3-30b-a3b --ep 8"],
)
def test_a_divided_model_is_refused_in_a_sentence(
    more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.json"
    command = f"predict --gpus 16 --node dgx-h100 --model {more} --chakra {path}"
    assert code(command.split()) == 2
    told = capsys.readouterr().err
    assert "--chakra: " in told and "divided model" in told and told.count("\n") == 1
    assert not path.exists()


def test_the_command_writes_the_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    command = f"predict --model resnet18 --gpus 8 --net 10gbe --chakra {path}"
    assert code(command.split()) == 0
    assert json.loads(path.read_text()) == chakra_of(predicted("ssgd"))
    assert "iteration" in capsys.readouterr().out
