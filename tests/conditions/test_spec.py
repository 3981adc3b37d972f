"""Conditions: other traffic on the network, what a prediction says, and wrong input."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.cli.main import code
from perfsim.conditions.spec import Conditions, parse_straggler
from perfsim.errors import RequestError
from perfsim.methods.base import Send
from perfsim.scenario import make_scenario
from perfsim.schedule.sync_scope import sync_scope
from perfsim.simulate.sync import Blocks, Groups, Neighbours, SyncScope
from support.conditions import PLAIN, ask


@given(taken=st.floats(0.0, 0.95), rate=st.sampled_from(["1Gbit/s,50us", "100Gbit/s,2us"]))
@settings(max_examples=25, deadline=None)
def test_a_byte_takes_longer_by_what_other_traffic_leaves(taken: float, rate: str) -> None:
    """One GPU a node, without overlap: latency stays, the rest is over what is left."""
    fields = {"net": rate, "gpus_per_node": 1, "overlap": False, "algorithm": "ring"}
    alone, beside = ask(**fields), ask(**fields, background=taken)
    alpha_s = 14 * (50e-6 if "50us" in rate else 2e-6) * alone.communication["calls"]
    sent_s = alone.communication["busy_s"] - alpha_s
    expected_s = alpha_s + sent_s / (1 - taken)
    assert beside.communication["busy_s"] == pytest.approx(expected_s, rel=1e-9)
    assert beside.communication["bytes_per_gpu"] == alone.communication["bytes_per_gpu"]


@pytest.mark.parametrize("net", ["1gbe", "10gbe", "ib100"])
def test_more_traffic_never_makes_it_faster(net: str) -> None:
    times = [ask(net=net, gpus=32, background=taken).iteration_s for taken in (0, 0.1, 0.5, 0.9)]
    assert all(less < more for less, more in pairwise(times))


def test_traffic_between_nodes_does_not_reach_one_node() -> None:
    found = ask(gpus=4, background=0.5)
    assert found.iteration_s == ask(gpus=4).iteration_s
    assert any("`background` has no effect" in note for note in found.notes)


def test_nothing_asked_is_nothing_said() -> None:
    found = ask()
    names = ("straggler", "jitter", "background", "seed")
    asked = {name: getattr(found.scenario, name) for name in names}
    assert asked == {"straggler": (), "jitter": 0.0, "background": 0.0, "seed": 0}
    assert not any("slower" in note or "varies" in note for note in found.notes)


def test_notes_name_what_was_assumed() -> None:
    notes = " ".join(ask(straggler=["1:1.5", "2:1.2"], jitter="5%", background="30%", seed=7).notes)
    for words in (
        "1 GPU 1.5 times and 2 GPUs 1.2 times",
        "varies by 5%",
        "normal",
        "Giladi",
        "seed 7",
        "standard error",
        "takes 30% of every link",
        "1.43 times as long",
    ):
        assert words in notes
    assert "`seed` has no effect" in " ".join(ask(seed=3).notes)
    assert "no effect on the mean" in " ".join(ask(gpus=1, jitter=0.1).notes)
    assert "exchanges with only" in " ".join(
        ask(model="resnet20-cifar", method="dpsgd", jitter=0.1).notes
    )
    assert "pace of the slowest" in " ".join(ask(method="dpsgd", straggler="1:2").notes)
    assert "drawn together" in " ".join(
        ask(model="resnet20-cifar", method="localsgd", jitter=0.1).notes
    )
    assert "as much as the one that has most" in " ".join(
        ask(model="resnet20-cifar", method="spd_kfac", straggler="1:2").notes
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"straggler": "1.5"}, ["straggler", "'1.5'", "GPUS:FACTOR", "1:1.5"]),
        ({"straggler": "one:2"}, ["straggler", "'one:2'", "GPUS:FACTOR"]),
        ({"straggler": 3}, ["straggler", "3", "GPUS:FACTOR"]),
        ({"straggler": True}, ["straggler", "GPUS:FACTOR"]),
        ({"straggler": "0:2"}, ["straggler", "1 GPU or more"]),
        ({"straggler": "1:0.5"}, ["straggler", "1 to 1000 times"]),
        ({"straggler": "1:nan"}, ["straggler", "1 to 1000 times"]),
        ({"straggler": "9:2"}, ["straggler", "9 slow GPUs of 8"]),
        ({"straggler": ["4:2", "5:2"]}, ["straggler", "9 slow GPUs of 8"]),
        ({"straggler": f"{'9' * 2000}:2"}, ["straggler", "999... slow GPUs of 8 are too many"]),
        ({"jitter": "a lot"}, ["jitter", "'a lot'", "5%"]),
        ({"jitter": "40%"}, ["jitter", "'40%'", "0% to 30%"]),
        ({"jitter": "-1%"}, ["jitter", "0 or more"]),
        ({"jitter": True}, ["jitter", "it must be a number"]),
        ({"jitter": "5%", "gpus": 20000}, ["jitter", "at most 16,384", "20,000"]),
        ({"background": "100%"}, ["background", "'100%'", "0% to 99%"]),
        ({"background": None}, ["background", "None"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"seed": "x"}, ["seed", "'x'"]),
    ],
)
def test_wrong_conditions(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        make_scenario({**PLAIN, **fields})
    for word in words:
        assert word in str(caught.value)


def test_a_scenario_repeats_what_was_asked() -> None:
    given_ = {"straggler": ["1:1.5"], "jitter": 0.05, "background": 0.3, "seed": 4}
    said = json.loads(json.dumps(ask(**given_).scenario.to_dict()))
    assert {name: said[name] for name in given_} == given_
    again = make_scenario({**PLAIN, **{name: said[name] for name in given_}})
    assert again == make_scenario({**PLAIN, **given_})


def test_factors_of_ranks() -> None:
    assert parse_straggler("3:1.25") == (3, 1.25)
    assert Conditions(5, ((1, 2.0), (2, 1.5))).factors().tolist() == [2.0, 1.5, 1.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("send", "expected"),
    [
        (Send("all_reduce", 1.0), None),
        (Send("all_reduce", 1.0, group="leaders"), None),
        (Send("all_reduce", 1.0, group="node"), Groups((4, 2))),
        (Send("all_reduce", 1.0, group="across"), Groups((4, 2), "across")),
        (Send("push", 1.0, group="across"), None),
        (Send("broadcast", 1.0, group=3), Blocks(3)),
        (Send("broadcast", 1.0, group=6), None),
        (Send("broadcast", 1.0, group=(2, 3)), Blocks(2, 3)),
        (Send("send_recv", 1.0, group="leaders", distances=(1,)), Neighbours((1,))),
        (
            Send("send_recv", 1.0, distances=(1, 2), by_turns=True, between="nodes"),
            Neighbours((1, 2), by_turns=True, placement=(4, 2)),
        ),
    ],
)
def test_who_meets_in_what_is_sent(send: Send, expected: SyncScope | None) -> None:
    assert sync_scope(send, (4, 2)) == expected


def test_on_one_node_its_ranks_are_all() -> None:
    assert sync_scope(Send("all_reduce", 1.0, group="node"), (4,)) is None
    assert sync_scope(Send("all_reduce", 1.0, group="across"), (1, 1)) is None


def test_the_command_names_the_conditions(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [
        "--straggler",
        "1:1.5",
        "--straggler",
        "2:1.1",
        "--jitter",
        "5%",
        "--background",
        "30%",
    ]
    command = ["predict", "--model", "resnet20-cifar", "--gpus", "8", *asked]
    assert code(command) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "; 1 GPU 1.5x slower, 2 GPUs 1.1x slower, computation varies by 5%, other traffic"
        " takes 30% between nodes"
    ) in told
    assert code([*command, "--seed", "3", "--json"]) == 0
    scenario = json.loads(capsys.readouterr().out)["scenario"]
    assert scenario["straggler"] == ["1:1.5", "2:1.1"]
    assert (scenario["jitter"], scenario["background"], scenario["seed"]) == (0.05, 0.3, 3)


def test_flags_replace_what_a_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "slow.toml"
    file.write_text(
        'schema = "perfsim/scenario/1"\n[scenario]\nmodel = "resnet20-cifar"\ngpus = 8\n'
        'straggler = "1:1.5"\njitter = "5%"\nbackground = 0.3\nseed = 2\n'
    )
    command = ["predict", "--scenario", str(file), "--straggler", "1:2", "--jitter", "0%", "--json"]
    assert code(command) == 0
    scenario = json.loads(capsys.readouterr().out)["scenario"]
    assert (scenario["straggler"], scenario["jitter"]) == (["1:2"], 0.0)
    assert (scenario["background"], scenario["seed"]) == (0.3, 2)


def test_a_wrong_flag_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert code(["predict", "--model", "resnet20-cifar", "--gpus", "8", "--straggler", "2"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert told.err.startswith("perfsim: --straggler: '2' is not GPUS:FACTOR such as 1:1.5")
