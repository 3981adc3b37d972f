"""``perfsim tune``: the search, the curves, what is advised, and what the command prints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.memory import memory_use
from perfsim.planning.tune import (
    FLAT_SHARE,
    TUNABLES,
    SearchCurve,
    Tuning,
    edge,
    log_grid,
    refine,
    tune,
    value_words,
)
from perfsim.prediction import predict
from perfsim.report.planning import tuned_verdict
from perfsim.resolve import resolve
from perfsim.scenario import Scenario, make_scenario
from support.commands import answer, run
from support.what_ships import SHIPPED


def asked(**fields: Any) -> Scenario:
    """Return a scenario."""
    return make_scenario({"model": "resnet50", "gpus": 16, "net": "10gbe"} | fields)


def tuned(*over: str, **fields: Any) -> Tuning:
    """Return what is found for a scenario."""
    return tune(asked(**fields), over, SHIPPED)


def test_a_bucket_that_does_not_fit_into_memory_is_no_choice() -> None:
    """ZeRO keeps two buffers as large as the bucket: the fastest here is larger than the GPU."""
    fields: dict[str, Any] = {
        **{"model": "gpt3-6.7b", "gpus": 8, "gpu": "a100-40gb", "gpus_per_node": 8, "batch": 4},
        **{"method": "zero", "options": {"stage": 2}, "recompute": "full", "bucket": "50MB"},
    }
    any_size, fitting = (
        tune(make_scenario(fields), "bucket", SHIPPED, ignore_memory=ignore).tuned[0]
        for ignore in (True, False)
    )
    assert fitting.fastest < any_size.fastest and fitting.fastest_s >= any_size.fastest_s
    for one, holds in ((any_size, False), (fitting, True)):
        setup = resolve(make_scenario(fields | {"bucket": f"{float(one.fastest):.0f}B"}), SHIPPED)
        assert memory_use(setup).fits is holds


@pytest.mark.parametrize("over", ["density, bucket", ["density", "bucket"]])
def test_names_may_be_a_text_with_commas(over: str | list[str]) -> None:
    found = tune(asked(method="topk"), over, SHIPPED)
    assert {one.tunable.name for one in found.tuned} == {"bucket", "density"}


@given(st.floats(1.5, 900.0))
def test_golden_section_finds_the_dip(place: float) -> None:
    def value(x: float) -> float:
        return x + place**2 / x  # least at place: latency that falls, waiting that grows

    curve: SearchCurve = {x: value(x) for x in log_grid(1.0, 1000.0, 2.0)}
    refine(curve, value, 16)
    least = min(curve, key=lambda x: curve[x] or 0.0)
    assert least == pytest.approx(place, rel=0.01)


@given(st.integers(1, 256))
def test_whole_numbers_are_tried_whole(place: int) -> None:
    curve: SearchCurve = {x: (x - place) ** 2 for x in log_grid(1.0, 256.0, 2.0)}
    refine(curve, lambda x: (x - place) ** 2, 24, round)
    assert all(x == round(x) for x in curve)
    assert min(curve, key=lambda x: curve[x] or 0.0) == pytest.approx(place, abs=1)


@given(st.floats(1.1, 900.0), st.booleans())
def test_the_edge_of_what_is_good_enough(place: float, rising: bool) -> None:
    def value(x: float) -> float:
        return max(1.0, x / place) if rising else max(1.0, place / x)

    curve: SearchCurve = {x: value(x) for x in log_grid(1.0, 1000.0, 2.0)}
    found = edge(curve, value, sorted(curve), 1.0, rising=rising, steps=30)
    assert found == pytest.approx(place, rel=1e-4)


def test_a_curve_of_steps_is_not_searched_for_ever() -> None:
    fields = {"model": "bert-large", "gpus": 16, "net": "100gbe", "gpu": "a100"}
    [bucket] = tune(make_scenario(fields), ["bucket"], SHIPPED).tuned
    assert len(bucket.curve) < 200


@pytest.mark.parametrize(
    ("method", "over"),
    [("ssgd", "bucket"), ("topk", "density"), ("powersgd", "rank"), ("localsgd", "interval")],
)
def test_the_curve_is_what_predict_says(method: str, over: str) -> None:
    (one,) = tuned(over, method=method).tuned
    place, seconds = one.curve[len(one.curve) // 2]
    if over == "bucket":
        first = {"first_bucket": f"{min(float(place), 2.0**20):.0f}B"}
        scenario = asked(method=method, bucket=f"{place!r}B", fusion_options=first)
    else:
        value = place if over == "density" else int(float(place))
        scenario = asked(method=method, options={over: value})
    assert predict(scenario, SHIPPED).iteration_s == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize(("method", "net"), [("ssgd", "10gbe"), ("topk", "1gbe")])
def test_what_is_shown_can_be_asked_for(method: str, net: str) -> None:
    """A size that was cut to fewer digits could close a bucket one tensor earlier."""
    fields = {"model": "resnet50", "gpus": 64, "net": net, "method": method}
    (one,) = tune(make_scenario(fields), ["bucket"], SHIPPED).tuned
    for value, seconds in one.curve:
        size = value_words(one, value).replace(" ", "")
        first = f"{min(float(value), 2.0**20):.0f}B"
        again = make_scenario({**fields, "bucket": size, "fusion_options": {"first_bucket": first}})
        assert predict(again, SHIPPED).iteration_s == pytest.approx(seconds, rel=1e-9)
    assert one.beside == "fusion.first_bucket=1MiB"
    advice = tuned_verdict(one, brief=True)[-1]
    assert (one.beside in advice) == (one.gain >= 0.01) == (method == "topk")


@pytest.mark.parametrize("method", ["ssgd", "topk", "powersgd", "localsgd", "cpsgd", "acpsgd"])
def test_the_fastest_is_no_slower_than_anything_tried(method: str) -> None:
    found = tuned(method=method)
    said = predict(asked(method=method), SHIPPED).iteration_s
    assert found.iteration_s == pytest.approx(said, rel=1e-12)
    for one in found.tuned:
        at_hand = [seconds for value, seconds in one.curve if str(value) not in one.needs]
        # Of values that are the same but for rounding, the smallest one counts.
        assert one.fastest_s == pytest.approx(min(at_hand), rel=1e-9)
        assert one.fastest_s <= one.asked_s * (1 + 1e-9)
        assert one.asked_s == found.iteration_s


@pytest.mark.parametrize(
    ("method", "over", "gentle"),
    [("topk", "density", max), ("powersgd", "rank", max)],
)
def test_what_changes_convergence_is_never_called_best(method: str, over: str, gentle: Any) -> None:
    (one,) = tuned(over, method=method).tuned
    said = tuned_verdict(one)
    assert TUNABLES[over].why in said and "changes convergence" in TUNABLES[over].why
    assert not any(sentence.startswith("Take") for sentence in said)
    assert one.advised_s <= one.fastest_s * (1 + FLAT_SHARE)
    # Every place tried that is as fast and gentler would have been advised.
    assert one.advised == gentle(one.advised, one.fastest)
    run_of_good = [value for value, _ in one.curve if one.low <= value <= one.high]  # type: ignore
    assert one.advised == gentle(run_of_good)
    assert set(run_of_good) <= set(one.as_good)


def test_an_algorithm_that_needs_more_is_shown_and_not_advised() -> None:
    (one,) = tuned("algorithm", gpus=64).tuned
    elsewhere, seconds = one.faster_elsewhere[0]
    assert "SHARP" in one.needs[str(elsewhere)] and seconds < one.fastest_s
    assert any(
        str(elsewhere) in sentence and "SHARP" in sentence for sentence in tuned_verdict(one)
    )
    assert one.fastest not in one.needs and one.advised not in one.needs
    assert not set(map(str, one.as_good)) & set(one.needs)
    assert "nvls" in one.refused  # runs inside one node


def test_a_slow_choice_is_replaced() -> None:
    (one,) = tuned("algorithm", gpus=64, algorithm="tree").tuned
    assert one.advised == "auto" and one.gain > 0.1
    assert any(sentence.startswith("Take auto") for sentence in tuned_verdict(one))


def test_where_it_makes_no_difference_it_says_so() -> None:
    (one,) = tuned("algorithm", method="topk").tuned
    assert one.idle
    assert tuned_verdict(one)[0].startswith("It makes no difference")


def test_a_flat_optimum_is_called_flat() -> None:
    (one,) = tuned("density", method="topk", gpus=4).tuned
    assert one.flat and any("Flat optimum" in sentence for sentence in tuned_verdict(one))
    (steep,) = tuned("rank", method="powersgd", net="1gbe").tuned
    assert not steep.flat
    assert not any("Flat optimum" in sentence for sentence in tuned_verdict(steep))


def test_mgwfbp_is_compared_with_the_best_bucket_size() -> None:
    (one,) = tuned("bucket").tuned
    said = predict(asked(fusion="mgwfbp"), SHIPPED).iteration_s
    assert one.other_fusion["mgwfbp"] == pytest.approx(said, rel=1e-12)
    assert any("`fusion` mgwfbp" in sentence for sentence in tuned_verdict(one))


def test_the_object_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    text = "tune --model resnet50 --gpus 64 --net 10gbe --method topk"
    found = answer(text, capsys)
    assert list(found) == ["schema", "scenario", "iteration_s", "tuned", "notes"]
    assert found["schema"] == "perfsim/tune/1"
    assert [one["name"] for one in found["tuned"]] == ["bucket", "density", "algorithm"]
    bucket, density, _ = found["tuned"]
    assert bucket["value_unit"] == "bytes" and bucket["asked"]["value"] == 25 * 2**20
    assert density["changes_convergence"] and density["caution"]
    assert {"value", "iteration_s"} == set(density["curve"][0])
    low, high = density["within_1_percent"]
    assert low <= density["fastest"]["value"] <= density["advised"]["value"] <= high
    (only,) = answer(f"{text} --over bucket", capsys)["tuned"]
    assert only == bucket


@pytest.mark.parametrize("method", ["ssgd", "topk", "powersgd", "localsgd"])
def test_the_screen_is_readable(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    left, out, err = run(f"tune --model resnet50 --gpus 16 --method {method}", capsys)
    assert (left, err) == (0, "")
    assert "all-reduce algorithm" in out and "\x1b" not in out
    assert [line for line in out.splitlines() if len(line) > 80 and "/" not in line] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--gpus 16 --over densty --method topk", "did you mean 'density'?"),
        ("--gpus 16 --over rank", "'ssgd' has no rank; it has bucket, algorithm"),
        ("--gpus 16 --over bucket --method p3", "which sizes buckets"),
        ("--gpus 1", "nothing to tune"),
        ("--gpus 16 --method auto", "auto is no method to tune"),
        ("", "--gpus is needed"),
    ],
)
def test_wrong_input_is_one_sentence(
    text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    left, out, err = run(f"tune --model resnet50 {text}", capsys)
    assert (left, out) == (2, "")
    assert words in err and len(err.splitlines()) == 1


def test_every_flag_taken_over_from_predict_is_a_field_of_a_scenario() -> None:
    import inspect

    from perfsim.cli.explain import explain_command
    from perfsim.cli.predict import predict_command
    from perfsim.cli.scenario_flags import SHARED_FLAGS

    taken = inspect.signature(explain_command).parameters
    files = {"html", "trace", "png"}
    others = {*SHARED_FLAGS, *files, "epochs_of", "verbose"}
    assert set(taken) - others <= set(Scenario.model_fields)
    asked_there = inspect.signature(predict_command).parameters
    assert {name for name in asked_there if name in Scenario.model_fields} <= set(taken)
    assert files <= set(asked_there)


def test_a_range_within_one_per_cent_has_no_step_in_it() -> None:
    fields = {"model": "resnet18", "gpus": 16, "gpus_per_node": 1, "net": "ib100"}
    asked = make_scenario(fields | {"method": "dgc", "library": "gloo"})
    [bucket] = tune(asked, ["bucket"], SHIPPED).tuned
    for value in np.geomspace(bucket.low, bucket.high, 6):
        sizes = {"bucket": f"{value:.0f}B", "fusion_options": {"first_bucket": "1MiB"}}
        there = predict(asked.model_copy(update=sizes), SHIPPED)
        assert there.iteration_s <= bucket.fastest_s * 1.0101


@pytest.mark.parametrize("over", ["bucket", "parallelism"])
def test_a_screen_names_the_network_that_the_gpus_use(
    over: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the GPUs of one node that is the link inside it, not the default between nodes."""
    flags = f"tune --model gpt2 --gpu h100 --gpus 8 --method ssgd --over {over}"
    first = run(flags, capsys)[1].splitlines()[0]
    assert "dgx-h100 inside:" in first and "10gbe" not in first
