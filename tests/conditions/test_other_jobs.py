"""A job beside others on one network: by closed form, by hand, and as a user asks for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from perfsim.cli.main import application
from perfsim.errors import PerfsimError
from perfsim.network.cluster import link_use
from perfsim.planning.explain import explain
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import pin_messages, run
from perfsim.what_if import steady_s
from support.conditions import PLAIN, ask
from support.what_ships import SHIPPED


def write(folder: Path, name: str = "other", **fields: Any) -> str:
    """Write a scenario file and return its path."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in ({**PLAIN, **fields}).items()]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(['schema = "perfsim/scenario/1"', "[scenario]", *lines]) + "\n")
    return str(path)


def plans(**fields: Any) -> list[CostedGraph]:
    return build_rounds(resolve(make_scenario({**PLAIN, **fields}), SHIPPED))


def test_a_job_that_sends_nothing_between_nodes_changes_nothing(tmp_path: Path) -> None:
    quiet = write(tmp_path, gpus=4)
    alone, found = ask(), ask(beside=quiet)
    assert found.iteration_s == pytest.approx(alone.iteration_s, rel=1e-9)
    assert found.contention is not None and found.contention.own.slowdown == pytest.approx(
        1.0, rel=1e-9
    )
    assert any("sends nothing between nodes" in note for note in found.notes)
    slow = ask(beside=quiet, straggler="1:1.5")
    assert slow.iteration_s == pytest.approx(ask(straggler="1:1.5").iteration_s, rel=1e-9)
    on_one_node = ask(gpus=4, beside=write(tmp_path, "busy"))
    assert any("`beside` has no effect" in note for note in on_one_node.notes)
    assert on_one_node.iteration_s == pytest.approx(ask(gpus=4).iteration_s, rel=1e-9)


def test_the_other_job_is_on_the_network_of_this_one(tmp_path: Path) -> None:
    shared = {"background": "40%", "oversubscription": 4}
    other = write(tmp_path, model="vgg16", net="1gbe")
    found = ask(**shared, model="resnet20-cifar", beside=other)
    assert found.contention is not None
    there = ask(**shared, model="vgg16").iteration_s
    assert found.contention.others[0].alone_s == pytest.approx(there, rel=1e-9)


def test_a_job_of_a_node_type_is_told_off_its_nodes_network(tmp_path: Path) -> None:
    lines = ['schema = "perfsim/scenario/1"', "[scenario]", 'model = "vgg16"', "gpus = 8"]
    other = tmp_path / "other.toml"
    other.write_text("\n".join([*lines, 'node = "dgx-a100"', ""]))
    said = [note for note in ask(beside=str(other)).notes if "is put on the network" in note]
    assert len(said) == 1 and said[0].endswith("in place of dgx-a100 in its file.")


def test_another_job_is_held_in_the_iterations_that_it_runs_most_of(tmp_path: Path) -> None:
    fields = {"model": "resnet20-cifar", "method": "dct"}
    other = write(tmp_path, **fields)
    found = ask(model="resnet20-cifar", beside=other)
    first, rest = plans(**fields)
    assert found.contention is not None and rest.iterations > first.iterations
    assert found.contention.others[0].alone_s == pytest.approx(steady_s([rest]), rel=1e-9)
    assert any("only those that it runs most of" in note for note in found.notes)


@pytest.mark.parametrize("method", ["ssgd", "localsgd", "asc_wfbp", "p3"])
def test_alone_on_the_link_the_two_engines_say_the_same(method: str, tmp_path: Path) -> None:
    """The other job sends nothing, so that each message goes as it does in the array engine."""
    fields = {"model": "resnet20-cifar", "method": method}
    alone = ask(**fields)
    found = ask(**fields, beside=write(tmp_path, gpus=4))
    assert found.iteration_s == pytest.approx(alone.iteration_s, rel=1e-9)
    assert found.breakdown_s == pytest.approx(alone.breakdown_s, rel=1e-6, abs=1e-9)


def test_a_job_that_always_sends_takes_what_background_traffic_of_half_takes() -> None:
    """Each message, with any algorithm: off the link and on it with half of its rate."""
    for fields in (
        {},
        {"algorithm": "tree"},
        {"algorithm": "hierarchical"},
        {"intra_net": "5Gbit/s,5us"},
        {"net": "10gbe", "intra_net": None, "gpus": 32},
    ):
        shared = resolve(make_scenario({**PLAIN, **fields, "beside": "what_if_dgc_1gbe"}), SHIPPED)
        [alone] = build_rounds(shared)
        [half] = plans(**fields, background="50%")
        for index, use in alone.crossings.items():
            task = alone.graph.tasks[index]
            on_link_s = float(task.duration_s) - use.off_s
            expected = use.off_s + on_link_s * max(1.0, use.need / 0.5)
            assert half.graph.tasks[index].duration_s == pytest.approx(expected, rel=1e-6), fields


def test_two_jobs_that_hardly_compute_take_as_long_as_on_half_the_link(tmp_path: Path) -> None:
    slow = {"net": "100Mbit/s,1us", "model": "vgg16", "bucket": "1000MiB"}
    half = ask(**(slow | {"net": "50Mbit/s,1us"}))
    found = ask(**slow, beside=write(tmp_path, **slow))
    assert found.contention is not None
    assert found.contention.own.high_s == pytest.approx(half.iteration_s, rel=1e-2)
    assert found.contention.own.slowdown == pytest.approx(2.0, abs=0.05)
    assert found.contention.others[0].slowdown == pytest.approx(
        found.contention.own.slowdown, rel=1e-6
    )


def test_the_answer_is_the_same_each_time_and_adds_up(tmp_path: Path) -> None:
    other = write(tmp_path, model="resnet20-cifar")
    asked = {"beside": other, "method": "powersgd", "model": "resnet20-cifar"}
    one, again = (ask(**asked).to_dict() for _ in range(2))
    assert one == again
    assert sum(one["breakdown_s"].values()) == pytest.approx(one["iteration_s"], rel=1e-6)
    block = one["beside"]
    assert block["iteration_s"] == pytest.approx(one["iteration_s"])
    low, high = block["iteration_s_range"]
    assert block["alone_s"] <= low <= block["iteration_s"] <= high
    assert [name["scenario"] for name in block["jobs"]] == one["scenario"]["beside"] == [other]
    assert block["jobs"][0]["slowdown"] > 1.0
    assert one["baseline"]["iteration_s"] > ask(model="resnet20-cifar").iteration_s


def test_the_plans_that_small_questions_are_asked_of_stand_for_the_run(tmp_path: Path) -> None:
    beside = plans(beside=write(tmp_path, model="vgg16"))
    timelines = [run(plan) for plan in beside]
    still_s = steady_s(pin_messages(beside, timelines))
    assert still_s == pytest.approx(timelines[0].mean_period_s, rel=0.1)
    assert still_s > steady_s([replace(plan, beside=()) for plan in beside])


def test_explain_says_why_beside_others(tmp_path: Path) -> None:
    other = write(tmp_path, model="resnet20-cifar")
    asked = {**PLAIN, "model": "resnet20-cifar", "beside": other}
    found = explain(make_scenario(asked), SHIPPED)
    assert found.improvements[0].saved > 0
    assert "other jobs" in found.bandwidth.why_not and "other jobs" in found.gpus.why_not
    assert found.to_dict()["critical_path"][0]["steps"]


def test_a_message_that_never_meets_the_link_does_not_cross_it() -> None:
    assert link_use(lambda part: 3.0) is None


@pytest.mark.parametrize(
    ("file", "fields", "words"),
    [
        ({}, {"beside": "no_such"}, ["beside", "no_such"]),
        ({}, {"beside": "gone.toml"}, ["beside", "no file"]),
        ({}, {"beside": [""]}, ["beside", "scenario of the other job"]),
        ({}, {"beside": ["a.toml"] * 5}, ["beside", "at most 4"]),
        ({}, {"jitter": "5%"}, ["beside", "jitter"]),
        ({"jitter": "5%"}, {}, ["beside", "other.toml", "jitter"]),
        ({"beside": ["x"]}, {}, ["beside", "other.toml", "beside"]),
        ({"method": "auto"}, {}, ["beside", "other.toml", "auto"]),
        ({"gpus": 0}, {}, ["beside", "other.toml", "gpus"]),
        ({"model": "resnet"}, {}, ["beside", "other.toml", "model"]),
        ({"gpu": "v100:4,p100:4"}, {}, ["beside", "other.toml", "several types"]),
    ],
)
def test_wrong_jobs_are_refused_in_one_sentence(
    file: dict[str, Any], fields: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    asked = {"beside": write(tmp_path, **file), **fields}
    with pytest.raises(PerfsimError) as error:
        ask(**asked)
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def test_the_command_line_tells_both_jobs_and_the_network_they_are_on(tmp_path: Path) -> None:
    other = write(tmp_path, net="1gbe", model="resnet20-cifar")
    command = ["predict", "--model", "resnet20-cifar", "--gpus", "8", "--net", "10gbe"]
    shown = CliRunner().invoke(application(), [*command, "--beside", other, "-v"])
    assert shown.exit_code == 0, shown.output
    for words in ("beside other jobs", "alone", "in place of 1gbe", "Not modelled"):
        assert words in shown.output


def test_a_scenario_file_names_the_job_beside_it_in_its_own_folder(tmp_path: Path) -> None:
    write(tmp_path, "theirs", model="resnet20-cifar")
    own = write(tmp_path, "mine", model="resnet20-cifar", beside=["theirs.toml"])
    found = CliRunner().invoke(application(), ["predict", "--scenario", own, "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.output)
    assert told["scenario"]["beside"] == [str(tmp_path / "theirs.toml")]
    assert told["beside"]["slowdown"] > 1.0


def test_a_sweep_has_the_rows_that_predict_has(tmp_path: Path) -> None:
    other = write(tmp_path, gpus=8, model="resnet20-cifar")
    command = ["sweep", "--model", "resnet20-cifar", "--gpus", "8", "--beside", other]
    vary = [
        part
        for field, values in (("net", "10gbe,1gbe"), ("method", "ssgd"))
        for part in ("--vary", f"{field}={values}")
    ]
    found = CliRunner().invoke(application(), [*command, *vary, "--json"])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.output)["rows"]
    for row, net in zip(rows, ("10gbe", "1gbe"), strict=True):
        alone = ask(model="resnet20-cifar", net=net, intra_net=None, beside=other)
        assert row["iteration_s"] == pytest.approx(alone.iteration_s, rel=1e-9)
