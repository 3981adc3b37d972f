"""GPUs of several types in one job: by law, by hand, and as a user asks for it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from perfsim.cli.main import application
from perfsim.compute.gpu_types import alone_s
from perfsim.errors import PerfsimError
from perfsim.planning.explain import explain
from perfsim.resolve import resolve
from perfsim.scenario import make_scenario
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.rounds import build_rounds
from perfsim.schedule.run import run
from perfsim.simulate.array import simulate
from perfsim.simulate.graph import TaskGraph, by_kind
from perfsim.simulate.sync import Groups
from perfsim.simulate.task import COMPUTE
from perfsim.what_if import faster, steady_s
from support.conditions import PLAIN, ask
from support.strategies import graphs
from support.what_ships import SHIPPED

BOTH = "v100:4,p100:4"
METHODS = (
    "ssgd",
    "powersgd",
    "dgc",
    "localsgd",
    "adpsgd",
    "hierarchical",
    "asc_wfbp",
    "p3",
    "horovod",
    "fsdp",
    "d_kfac",
)


def small(**fields: Any) -> dict[str, Any]:
    return {**PLAIN, "model": "resnet20-cifar", **fields}


def plans(**fields: Any) -> list[CostedGraph]:
    return build_rounds(resolve(make_scenario({**PLAIN, **fields}), SHIPPED))


@pytest.mark.parametrize("method", METHODS)
def test_a_mixed_iteration_lies_between_those_of_each_type_alone(method: str) -> None:
    fast, slow, mixed, twice = (
        steady_s(plans(**small(method=method, gpu=gpu)))
        for gpu in ("v100", "p100", BOTH, "p100:4,p100:4")
    )
    assert min(fast, slow) * (1 - 1e-9) <= mixed <= max(fast, slow) * (1 + 1e-9)
    assert twice == pytest.approx(slow, rel=1e-9)


def test_where_computation_decides_it_takes_what_the_slowest_type_takes() -> None:
    slow, mixed = (ask(gpu=gpu, net="100Gbit/s,1us", overlap=False) for gpu in ("p100", BOTH))
    assert mixed.iteration_s == pytest.approx(slow.iteration_s, rel=1e-9)
    assert mixed.breakdown_s == pytest.approx(slow.breakdown_s, rel=1e-9)


def test_the_order_of_types_does_not_matter() -> None:
    one, other = (ask(gpu=gpu) for gpu in (BOTH, "p100:4+v100:4"))
    assert one.iteration_s == other.iteration_s
    assert other.scenario.gpu == "p100:4,v100:4"


def test_one_type_with_its_count_is_that_type() -> None:
    assert ask(gpu="p100:8").to_dict() == ask(gpu="p100").to_dict()


def test_scaling_efficiency_is_over_what_all_gpus_train_alone() -> None:
    rates = {gpu: ask(gpus=1, gpu=gpu).samples_per_s for gpu in ("v100", "p100")}
    found = ask(gpu=BOTH)
    together = 4 * rates["v100"] + 4 * rates["p100"]
    assert found.scaling_efficiency == pytest.approx(found.samples_per_s / together, rel=1e-9)
    assert found.samples_per_s == pytest.approx(8 * found.scenario.batch / found.iteration_s)
    parts = resolve(make_scenario({**PLAIN, "gpu": BOTH}), SHIPPED).parts
    each = [part.alone_s for part in parts]
    assert 8 * found.scenario.batch / alone_s(parts, each) == pytest.approx(together)


def test_small_questions_are_of_all_types() -> None:
    """Computation twice as fast on both is as if both GPUs were."""
    made = plans(gpu=BOTH, overlap=False, net="100Gbit/s,1us")
    parts = ask(gpu=BOTH, overlap=False, net="100Gbit/s,1us").breakdown_s
    computed_s = parts["forward"] + parts["backward"] + parts["update"]
    saved_s = steady_s(made) - steady_s(made, faster(2.0, "compute"))
    assert saved_s == pytest.approx(computed_s / 2, rel=1e-9)


def test_buckets_are_those_of_the_slowest_type() -> None:
    for fusion in ("mgwfbp", "threshold"):
        [mixed], [slow] = (plans(gpu=gpu, fusion=fusion) for gpu in (BOTH, "p100"))
        assert [task.size_bytes for task in mixed.graph.tasks if task.collective] == [
            task.size_bytes for task in slow.graph.tasks if task.collective
        ]


@settings(max_examples=30)
@given(graph=graphs(tasks=6), slower=st.floats(1.0, 3.0), places=st.integers(1, 3))
def test_two_rows_are_what_all_ranks_are(graph: TaskGraph, slower: float, places: int) -> None:
    """Whole nodes of two kinds: all, a node's own, and the same place of every node meet."""
    kinds = [0] * 2 * places + [1] * places
    scopes = [None, Groups((places,) * 3), Groups((places,) * 3, "across")]
    tasks = [
        task._replace(scope=scopes[index % 3]) if task.collective else task
        for index, task in enumerate(graph.tasks)
    ]
    graph = replace(graph, tasks=tasks)

    def spent(kinds: list[int]) -> list[Any]:
        """Each kind is slower in some tasks."""
        return [
            task.duration_s
            if task.collective
            else task.duration_s
            * np.array([slower if kind == index % 2 else 1.0 for kind in kinds])
            for index, task in enumerate(graph.tasks)
        ]

    every = simulate(graph, spent(kinds), ranks=True, periods=6)
    rows = simulate(by_kind(graph, kinds), spent([0, 1]), ranks=True, periods=6)
    assert rows.closes == pytest.approx(every.closes, rel=1e-12)
    for many, few in zip(every.ends[5], rows.ends[5], strict=True):
        wide = np.broadcast_to(np.asarray(many), len(kinds))
        assert wide[[0, -1]] == pytest.approx(np.broadcast_to(np.asarray(few), 2), rel=1e-12)


def test_kinds_that_share_no_node_do_not_meet_on_one() -> None:
    graph = TaskGraph()
    first = graph.add("compute", COMPUTE, "backward", 1.0)
    own = Groups((2, 2))
    graph.add("in", "wire", "communicate", 1.0, [first], collective=True, scope=own)
    [_, ends] = simulate(
        by_kind(graph, [0, 0, 1, 1]), [np.array([1.0, 3.0]), 1.0], ranks=True, periods=1
    ).ends[0]
    assert np.asarray(ends).tolist() == [2.0, 4.0]


def test_a_thousand_gpus_are_two_rows() -> None:
    [plan] = plans(gpu="v100:512,p100:512", gpus=1024)
    assert plan.mixed is not None and len(plan.mixed.kinds) == 1024
    assert run(plan).steady


def test_the_prediction_names_each_type_and_what_is_shown() -> None:
    found = ask(gpu=BOTH)
    notes = " ".join(found.notes)
    for words in ("GPUs of several types", "4 v100", "4 p100", "at its own rate", "whole nodes"):
        assert words in notes
    assert "pace of the slowest" in " ".join(ask(gpu=BOTH, method="dpsgd").notes)
    terms = [term.term for term in found.terms]
    assert "single-GPU iteration on v100" in terms and "single-GPU iteration on p100" in terms
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)


def test_nodes_hold_one_type_each() -> None:
    assert ask(gpu="v100:6,p100:2", net="10gbe").scenario.gpus_per_node == 2
    uneven = ask(gpu="v100:3,p100:5", placement="3,5")
    assert uneven.scenario.placement == (3, 5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"gpu": "v100,p100"}, ["gpu: ", "how many", "v100:16,p100:16"]),
        ({"gpu": "v100:four,p100:4"}, ["gpu: ", "how many"]),
        ({"gpu": "v100:0,p100:8"}, ["gpu: ", "how many"]),
        ({"gpu": "v100:4,p100:8"}, ["gpu: ", "12 GPUs", "gpus says 8"]),
        ({"gpu": "v100:4,p1000:4"}, ["gpu: ", "'p1000'", "did you mean"]),
        ({"gpu": "v100:6,p100:2", "gpus_per_node": 4}, ["gpu: ", "of one type"]),
        ({"gpu": "v100:3,p100:5", "placement": "4,4"}, ["gpu: ", "of one type"]),
        ({"gpu": BOTH, "straggler": "1:2"}, ["straggler: ", "several types"]),
        ({"gpu": BOTH, "jitter": "5%"}, ["jitter: ", "several types"]),
        ({"gpu": BOTH, "single_gpu": "100ms"}, ["single_gpu: ", "several types"]),
        ({"gpu": BOTH, "beside": "x.toml"}, ["beside: ", "several types"]),
        ({"gpu": BOTH, "intra_net": "nvlink"}, ["intra_net: ", "nvlink"]),
        ({"gpu": BOTH, "precision": "amp-fp16"}, ["precision: ", "p100"]),
        ({"gpu": BOTH, "method": "spd_kfac"}, ["gpu: ", "spd_kfac", "v100", "p100"]),
    ],
)
def test_what_is_not_clear_is_refused_in_one_sentence(
    fields: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(PerfsimError) as error:
        ask(**fields)
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def invoke(*words: str) -> str:
    found = CliRunner().invoke(application(), [*words])
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_line_takes_the_number_of_gpus_from_the_types() -> None:
    asked = ["--model", "resnet20-cifar", "--net", "10gbe", "--gpu", BOTH]
    told = json.loads(invoke("predict", *asked, "--json"))
    assert (told["scenario"]["gpu"], told["scenario"]["gpus"]) == (BOTH, 8)
    assert "4 x v100 + 4 x p100" in invoke("predict", *asked)
    assert "4 x v100 + 4 x p100" in invoke("compare", *asked, "--methods", "ssgd,dgc")
    assert "4 x v100 + 4 x p100" in invoke("tune", *asked, "--over", "bucket")


def test_a_sweep_takes_mixed_clusters_as_values() -> None:
    vary = ["--vary", "gpu=v100:4+p100:4,v100:8"]
    told = json.loads(invoke("sweep", "--model", "resnet20-cifar", "--gpus", "8", *vary, "--json"))
    mixed, plain = told["rows"]
    one = ask(model="resnet20-cifar", net="10gbe", intra_net=None, gpu=BOTH)
    assert mixed["iteration_s"] == pytest.approx(one.iteration_s, rel=1e-12)
    assert mixed["scaling_efficiency"] == pytest.approx(one.scaling_efficiency, rel=1e-12)
    assert plain["iteration_s"] < mixed["iteration_s"]


def test_explain_says_what_pays_and_where_it_does_not_look() -> None:
    found = explain(make_scenario(small(gpu=BOTH)), SHIPPED)
    assert found.improvements[0].saved > 0
    assert "several types" in found.gpus.why_not
    assert not found.bandwidth.why_not


def test_a_plan_weighs_one_type_at_a_time() -> None:
    asked = ["plan", "--model", "resnet50", "--dataset", "imagenet", "--epochs", "1"]
    found = CliRunner().invoke(application(), [*asked, "--deadline", "24h", "--gpu", BOTH])
    assert found.exit_code
    assert "gpu_types" in str(found.exception)
