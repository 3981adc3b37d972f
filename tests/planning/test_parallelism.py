"""The search of parallelism: against trying all, by law, and what the commands say."""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.errors import RequestError
from perfsim.memory import memory_use
from perfsim.planning.capacity import Prices, Target, plan
from perfsim.planning.divisions import SEARCHED_FIELDS, Division, division_space
from perfsim.planning.parallelism import (
    FRONT_LIMIT,
    ParallelSearch,
    fastest_division,
    predicted_division,
    search_parallelism,
)
from perfsim.planning.tune import tune_parallelism, with_best
from perfsim.prediction import predict
from perfsim.report.html.pages import tuning_figures
from perfsim.resolve import resolve
from perfsim.scenario import Scenario, given_fields, make_scenario
from perfsim.schedule.rounds import build_rounds
from perfsim.what_if import steady_s
from support.commands import answer, run
from support.what_ships import SHIPPED

H100 = {"node": "dgx-h100", "net": "dgx-h100"}
A100 = {"node": "dgx-a100-40gb", "net": "dgx-a100-40gb"}


def asked(model: str = "llama3-8b", gpus: int = 16, **fields: Any) -> Scenario:
    """Return a scenario on H100 nodes, or on those that are given."""
    return make_scenario(
        {"model": model, "gpus": gpus, **({} if "net" in fields else H100)} | fields
    )


SMALL: dict[str, tuple[Scenario, int]] = {
    "memory bites": (asked("llama3-8b", 16, seq=8192, tp=4), 8),
    "a slow network": (asked("gpt3-2.7b", 8, **A100, recompute="selective"), 24),
    "experts": (asked("mixtral-8x7b", 16, seq=4096, tp=2, recompute="full"), 8),
    "long samples": (asked("llama3-8b", 16, seq=32768, recompute="full", method="fsdp"), 4),
    "a slow GPU": (asked("llama2-7b", 8, seq=2048, straggler=("1:1.5",), recompute="none"), 8),
    "zero bubbles": (asked("llama3-8b", 16, seq=8192, schedule="zb-h1", recompute="none"), 16),
}
"""Scenarios with their global batch that are small enough to try all ways."""


@cache
def searched(name: str) -> ParallelSearch:
    scenario, samples = SMALL[name]
    return search_parallelism(scenario, SHIPPED, global_batch=samples)


Tried = tuple[float, float, Division]


@cache
def all_tried(name: str) -> list[Tried]:
    """Return the iteration and the memory of all divisions that fit, the fastest first."""
    scenario, samples = SMALL[name]
    space = division_space(scenario, SHIPPED, global_batch=samples)
    found = []
    for division in space:
        setup = resolve(space.scenario_of(division), SHIPPED)
        use = memory_use(setup)
        if use.fits:
            found.append((steady_s(build_rounds(setup, SHIPPED.jobs)), use.total, division))
    return sorted(found, key=lambda one: one[:2])


@pytest.mark.parametrize("name", SMALL)
def test_the_best_are_those_of_trying_all(name: str) -> None:
    found, every = searched(name), all_tried(name)
    best: dict[Any, float] = {}
    for iteration_s, _, division in every:
        best.setdefault(division.apart_from_schedule, iteration_s)
    times = [one.tried.iteration_s for one in found.ranked]
    assert times == pytest.approx(list(best.values())[: len(times)], rel=1e-9)
    assert len(times) == min(10, len(best))
    assert found.counts.predicted < len(every) or len(every) <= len(times)


@pytest.mark.parametrize("name", SMALL)
def test_the_front_is_that_of_trying_all(name: str) -> None:
    front: list[Tried] = []
    for one in all_tried(name):
        if not front or one[1] < front[-1][1]:
            front.append(one)
    front = [one for one in front if one[0] <= FRONT_LIMIT * front[0][0]]
    found = searched(name).front
    assert [one.iteration_s for one in found] == pytest.approx([one[0] for one in front], rel=1e-9)
    assert [one.memory_bytes for one in found] == pytest.approx([one[1] for one in front])


@pytest.mark.parametrize("name", SMALL)
def test_every_division_is_counted_once(name: str) -> None:
    scenario, samples = SMALL[name]
    counts = searched(name).counts
    space = division_space(scenario, SHIPPED, global_batch=samples)
    became = counts.predicted, counts.too_large, counts.slower, counts.refused.total()
    assert sum(became) == counts.divisions == len(space) == len(list(space))
    assert min(became) >= 0
    assert counts.too_large <= len(space) - len(all_tried(name))


@pytest.mark.parametrize("name", SMALL)
def test_what_is_found_fits_and_is_ranked(name: str) -> None:
    found = searched(name)
    for one in [*(ranked.tried for ranked in found.ranked), *found.front]:
        assert one.memory_bytes <= one.usable_bytes
        assert one.samples == SMALL[name][1]
        assert one.iteration_s >= found.best.tried.iteration_s
    times = [one.tried.iteration_s for one in found.ranked]
    assert times == sorted(times)
    assert not found.best.close


@pytest.mark.parametrize("name", ["memory bites", "long samples"])
def test_the_best_is_as_predict_says(name: str) -> None:
    best = searched(name).best
    said = predict(best.tried.scenario, SHIPPED)
    assert said.iteration_s == pytest.approx(best.tried.iteration_s, rel=1e-9)
    assert sum(said.memory_bytes.values()) == pytest.approx(best.tried.memory_bytes)
    assert said.iteration_s_interval == pytest.approx(best.prediction.iteration_s_interval)
    assert sum(best.waits_s.values()) == pytest.approx(said.breakdown_s["communication_exposed"])


SIZES = st.sampled_from([1, 2, 3, 4, 8, 16, 24, 32, 64, 96])


@settings(max_examples=25)
@given(SIZES, SIZES, st.sampled_from(["gpt2-xl", "llama3-8b", "mixtral-8x7b"]))
def test_every_division_keeps_samples_and_gpus(nodes: int, samples: int, model: str) -> None:
    gpus = 8 * nodes
    try:
        space = division_space(asked(model, gpus, seq=1024), SHIPPED, global_batch=samples)
    except RequestError as error:
        assert error.field == "global_batch"
        assert division_space(
            asked(model, gpus, seq=1024), SHIPPED, global_batch=int(error.nearest)
        )
        return
    for one in space:
        assert one.replicas * one.batch * one.accumulate == samples
        assert one.gpus == gpus
        assert (one.replicas * one.cp * (one.tp if one.etp else 1)) % one.ep == 0
        assert 8 % one.tp == 0
    assert len(set(map(repr, space))) == len(space)


def test_experts_are_also_tried_whole_beside_tensor_parallelism() -> None:
    fields = {"seq": 1024, "tp": 4, "pp": 1, "recompute": "none", "method": "fsdp"}
    space = division_space(asked("mixtral-8x7b", 16, **fields), SHIPPED, global_batch=16)
    assert {(one.ep, one.etp) for one in space} == {(1, None), (2, None), (4, None), (4, 1), (8, 1)}
    own = division_space(asked("mixtral-8x7b", 16, **fields, etp=1), SHIPPED, global_batch=16)
    assert {(one.ep, one.etp) for one in own} == {(4, 1), (8, 1)}
    dense = division_space(asked("llama3-8b", 16, **fields), SHIPPED, global_batch=16)
    assert {one.etp for one in dense} == {None}
    with pytest.raises(RequestError, match="etp: the model has no experts"):
        division_space(asked("llama3-8b", 16, **fields, etp=1), SHIPPED, global_batch=16)
    # Experts that are divided say of themselves how the rest is.
    said = {"model": "mixtral-8x7b", "gpus": 16, "node": "p5", "seq": 1024, "recompute": "full"}
    found = tune_parallelism(said | {"etp": 4}, SHIPPED).parallelism
    alike = tune_parallelism(said | {"etp": 4, "tp": 4}, SHIPPED).parallelism
    assert found is not None and alike is not None
    assert found.best.tried.division == alike.best.tried.division
    assert {one.tried.division.tp for one in found.ranked} == {4}
    # Samples are counted wherever experts stand: here they can stand but whole.
    few = {"seq": 1024, "tp": 8, "ep": 8, "pp": 1, "batch": 1, "accumulate": 2}
    assert {one.etp for one in division_space(asked("mixtral-8x7b", 16, **few), SHIPPED)} == {1}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("tp", 4), ("pp", 2), ("batch", 2), ("accumulate", 4), ("recompute", "full")),
        *(("method", "zero"), ("schedule", "gpipe"), ("virtual_stages", 4)),
    ],
)
def test_what_the_scenario_sets_stays(name: str, value: Any) -> None:
    assert name in SEARCHED_FIELDS
    scenario = asked(**{name: value})
    space = division_space(scenario, SHIPPED, global_batch=32)
    piped = name in ("schedule", "virtual_stages")
    values = {getattr(space.scenario_of(one), name) for one in space if one.pp > 1 or not piped}
    assert values == {value}
    free = division_space(asked(), SHIPPED, global_batch=32)
    assert len(space) < len(free)


def test_experts_beside_another_micro_batch_have_one_and_are_not_computed_again() -> None:
    beside, plain = (
        [*division_space(asked("mixtral-8x7b", ep_overlap=on), SHIPPED, global_batch=32)]
        for on in (True, False)
    )

    def able(one: Division) -> bool:
        piped = one.pp == 1 or one.schedule == "interleaved"
        return one.ep == 1 or (one.accumulate > 1 and one.recompute != "full" and piped)

    assert beside == [*filter(able, plain)] and not all(map(able, plain))


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "llama3-8b", "gpus": 8, "lora": 16, "lora_base": "nf4"},
        {"model": "mixtral-8x7b", "gpus": 8, "ep_overlap": True},
        {"model": "mixtral-8x7b", "gpus": 8, "ep_overlap": True, "schedule": "dualpipev"},
    ],
)
def test_all_that_is_searched_can_be_asked_for(fields: dict[str, Any]) -> None:
    """A search must not recommend what a prediction refuses."""
    space = division_space(asked(**fields, seq=4096), SHIPPED, global_batch=32)
    divisions = [*space]
    assert {one.ep > 1 for one in divisions} == {"ep_overlap" in fields, False}
    for one in divisions:
        make_scenario(given_fields(space.scenario_of(one)))
    assert any(one.pp > 1 for one in divisions)
    assert {one.tp > 1 for one in divisions} == {"lora" not in fields, False}


def test_the_global_batch_is_what_the_scenario_asks_for() -> None:
    space = division_space(asked(batch=2, accumulate=3, tp=4), SHIPPED)
    assert space.global_batch == 2 * 3 * (16 // 4)
    assert {one.batch for one in space} == {1, 2, 4, 8}  # asked for as a product only
    assert {one.tp for one in space} == {4}


def test_chunks_are_equal_but_for_the_ends() -> None:
    """80 blocks on 4 stages of 5 or 20 chunks; 126 on 16, of 4 (1, 2, ..., 1), of 8 (0, 1, ..., 0).

    Of 2, 4 and 5 chunks the most is tried; 126 blocks divide by no 16 chunks, 128 would.
    """

    def chunks(model: str, gpus: int, pp: int) -> set[int | None]:
        space = division_space(asked(model, gpus, tp=8, pp=pp), SHIPPED, global_batch=64)
        return {one.chunks for one in space}

    assert chunks("llama3-70b", 64, 4) == {None, 5, 20}
    assert chunks("llama3-405b", 128, 16) == {None, 4, 8}


def test_contexts_are_divided_for_long_samples_only() -> None:
    def degrees(tokens: int) -> set[int]:
        return {one.cp for one in division_space(asked(seq=tokens), SHIPPED, global_batch=16)}

    assert degrees(16384) == {1}
    assert degrees(65536) == {1, 2, 4, 8}  # 8192 tokens a rank or more


def test_many_micro_batches_are_told_by_few() -> None:
    """FSDP gathers and scatters in each micro-batch; all of them are predicted for comparison."""
    scenario = asked(method="fsdp", recompute="full", tp=2, pp=1, batch=1)
    best = fastest_division(scenario, SHIPPED, global_batch=16 * 8)
    assert best.division.accumulate == 16
    told, parallel = predicted_division(best, SHIPPED)
    said = predict(best.scenario, SHIPPED)
    assert best.iteration_s == pytest.approx(said.iteration_s, rel=1e-12)
    assert told.breakdown_s == pytest.approx(said.breakdown_s, rel=1e-9, abs=1e-9)
    assert told.communication == pytest.approx(said.communication, rel=1e-9)
    assert told.samples_per_s == pytest.approx(said.samples_per_s)
    assert told.scaling_efficiency == pytest.approx(said.scaling_efficiency)
    # How far off it may be is that of fewer micro-batches, in which other parts weigh more.
    assert told.iteration_s_interval == pytest.approx(said.iteration_s_interval, rel=0.01)
    assert parallel is not None and said.parallel is not None
    assert parallel.waits_s == pytest.approx(said.parallel.waits_s, rel=1e-9)


def test_gpu_hours_take_fewer_gpus_than_time() -> None:
    scenario = asked(gpus=8, seq=4096, tp=2, recompute="none", method="distributed_optimizer")
    both = {
        by: search_parallelism(scenario, SHIPPED, by=by, global_batch=64, gpus_up_to=32)
        for by in ("time", "gpu-hours")
    }
    fast, cheap = both["time"].best.tried, both["gpu-hours"].best.tried
    assert both["time"].gpus == (8, 16, 32)
    assert fast.iteration_s < cheap.iteration_s and cheap.gpu_s < fast.gpu_s
    assert (fast.division.gpus, cheap.division.gpus) == (32, 8)
    front = both["time"].front
    assert front[0] == fast and front[-1].gpu_s == cheap.gpu_s
    assert [one.gpu_s for one in front] == sorted((one.gpu_s for one in front), reverse=True)


def test_what_fits_nowhere_is_said_with_the_least_change() -> None:
    with pytest.raises(RequestError, match=r"needs least, 162\.5 GB.* gpus 16 would fit\."):
        search_parallelism(asked("llama3-70b", 8, seq=8192), SHIPPED)
    with pytest.raises(RequestError, match="Without recompute none it would fit"):
        search_parallelism(
            asked("llama3-8b", 8, seq=65536, tp=1, recompute="none", method="fsdp"), SHIPPED
        )
    whole = asked("llama3-70b", 8, seq=8192, tp=8, recompute="full")
    found = search_parallelism(whole, SHIPPED, ignore_memory=True)
    assert found.best.tried.memory_bytes > found.best.tried.usable_bytes


@pytest.mark.parametrize(
    ("scenario", "more", "field", "words"),
    [
        (asked("resnet50"), {}, "over", "no blocks of attention"),
        (asked(), {"by": "cost"}, "by", "Allowed: gpu-hours, time"),
        (asked(gpus=512), {"global_batch": 7}, "global_batch", "the nearest that do are 8"),
        (asked(tp=3), {}, "gpus", "the nearest that do are 15"),
        (asked(jitter="5%"), {}, "jitter", "leave it out of a search"),
        (asked(batch=3), {"global_batch": 32}, "batch", "3 does not divide the samples"),
        (asked(), {"gpus_up_to": 8}, "gpus_up_to", "below the 16"),
        (asked(ep=2), {}, "", "the model has no experts"),
        (asked(gpu="h100:8,a100:8", net="ib400"), {}, "over", "several types"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    scenario: Scenario, more: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(words)) as caught:
        search_parallelism(scenario, SHIPPED, **more)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


COMMAND = "tune --model llama3-8b --gpus 16 --node dgx-h100 --seq 4096 --over parallelism"


def test_the_command_of_the_best_predicts_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(f"{COMMAND} --global-batch 64 --recompute none", capsys)
    assert list(found) == ["schema", "scenario", "iteration_s", "tuned", "parallelism", "notes"]
    searched = found["parallelism"]
    best = searched["best"]
    assert best == searched["ranked"][0] and searched["front"][0]["memory_bytes"] > 0
    program, *words = shlex.split(searched["command"])
    assert program == "perfsim"
    said = answer(" ".join(words), capsys)
    assert said["iteration_s"] == pytest.approx(best["iteration_s"], rel=1e-9)
    assert said["samples_per_s"] * said["iteration_s"] == pytest.approx(64)


def test_the_screen_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run(f"{COMMAND} --batch 4 --method fsdp --recompute full", capsys)
    assert (left, err) == (0, "")
    lines = out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert "64 samples an iteration" in out and "Predict the best" in out
    assert any(line.startswith("Pareto front") for line in lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{COMMAND} --over bucket", "'parallelism' is searched by itself"),
        ("tune --model resnet50 --gpus 16 --by time", "--by is for --over parallelism"),
        (
            "tune --model llama3-70b --gpus 4 --gpu v100 --over parallelism",
            "nothing fits into memory",
        ),
        ("tune --model resnet50 --gpus 16 --over paralelism", "did you mean 'parallelism'?"),
    ],
)
def test_wrong_flags_are_one_sentence(
    text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(text, capsys)
    assert (left, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1


def test_the_best_has_a_timeline_and_a_figure() -> None:
    scenario = asked(recompute="none", method="fsdp", tp=2)
    tuning = tune_parallelism(scenario, SHIPPED, global_batch=32)
    assert tuning.parallelism is not None and tuning.tuned == []
    best = tuning.parallelism.best.tried
    assert with_best(scenario, tuning, SHIPPED).iteration_s == pytest.approx(best.iteration_s)
    (figure,) = tuning_figures(tuning)
    front, points = figure.data
    assert len(front["x"]) == len(tuning.parallelism.front)
    assert points["y"][0] == pytest.approx(best.iteration_s)
    assert figure.layout["yaxis"]["title"]["text"] == "time of an iteration [s]"
    kept = next(note for note in tuning.notes if "as the scenario says" in note)
    assert "`tp` 2" in kept and "`method` fsdp" in kept


TARGET = Target(samples=1_000_000, epochs=1.0)


def test_the_gpu_and_the_network_that_were_assumed_are_said() -> None:
    """Also by a prediction of the best."""
    narrow = {"model": "gpt2", "tp": 1, "recompute": "none"}
    scenario = make_scenario(narrow | {"gpus": 16, "gpu": "h100"})
    tuning = tune_parallelism(scenario, SHIPPED, global_batch=64)
    for notes in (tuning.notes, with_best(scenario, tuning, SHIPPED).notes):
        assert any("`net` dgx-h100, nodes that h100 usually is in" in note for note in notes)
    unnamed = make_scenario(narrow | {"gpus": 8})
    notes = tune_parallelism(unnamed, SHIPPED, global_batch=16).notes
    assert any(note.startswith("`gpu` v100") for note in notes)


def test_a_plan_searches_what_fits_nowhere_whole() -> None:
    fixed = {"seq": 8192, "recompute": "full"}
    clusters = [asked("llama3-70b", gpus, **fixed) for gpus in (8, 64)]
    found = plan(clusters, TARGET, Prices("", (), SHIPPED.folders[0]), SHIPPED, global_batch=128)
    assert [one.scenario.gpus for one in found.choices] == [64]
    assert "parallelism on 8 h100 over dgx-h100" in found.left_out
    assert any("fits nowhere with the model whole" in note for note in found.notes)
    for one in found.choices:
        best = fastest_division(
            asked("llama3-70b", one.scenario.gpus, **fixed), SHIPPED, global_batch=128
        )
        assert one.prediction.iteration_s == pytest.approx(best.iteration_s, rel=1e-9)
        assert one.row(TARGET)["parallelism"]["tp"] == best.division.tp
        assert one.seconds == pytest.approx(1_000_000 / 128 * best.iteration_s, rel=1e-9)


def test_a_plan_of_what_fits_is_as_it_was() -> None:
    clusters = [asked("gpt2", gpus) for gpus in (8, 16)]
    prices = Prices("", (), SHIPPED.folders[0])
    found = plan(clusters, TARGET, prices, SHIPPED)
    assert not any("parallelism" in row for row in found.to_dict()["rows"])
    assert not any("parallelism" in note for note in found.notes)
    divided = plan(clusters, TARGET, prices, SHIPPED, parallelism=True)
    assert divided.fastest.seconds <= found.fastest.seconds * (1 + 1e-9)
    assert divided.fastest.divided is not None


def test_a_plan_says_why_no_cluster_has_room() -> None:
    prices = Prices("", (), SHIPPED.folders[0])
    with pytest.raises(RequestError, match="parallelism on 8 h100 over dgx-h100 needs least"):
        plan([asked("llama3-70b", 8, seq=8192)], TARGET, prices, SHIPPED)
    with pytest.raises(RequestError, match="ssgd on 64 h100 over dgx-h100 needs least"):
        clusters = [asked("llama3-70b", 64, seq=8192)]
        plan(clusters, TARGET, prices, SHIPPED, parallelism=False)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        # Its shards keep 16 bits, so that they have no casts: they compute faster than S-SGD.
        ({"model": "gpt2-xl", "gpus": 4, "node": "dgx-a100"}, "dp 4, micro-batch 8 x 1"),
        (
            {"model": "gpt3-350m", "gpus": 8, "node": "dgx-h200", "recompute": "full", "batch": 2},
            "dp 8, micro-batch 2 x 2, recompute full",
        ),
    ],
)
def test_the_bound_of_one_way_to_share_state_is_not_that_of_another(
    fields: dict[str, Any], words: str
) -> None:
    found = fastest_division(make_scenario(fields), SHIPPED, global_batch=32)
    assert found.division.words == words
