"""Jitter as it was measured: the distributions by hand and by law, and what is drawn of them."""

from __future__ import annotations

import re
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.conditions.draws import drawn_factors
from perfsim.conditions.measured import (
    JITTER_FILE,
    MAX_SCALE,
    TRACE_FILE,
    MeasuredJitter,
    measured_jitter,
    measured_names,
    traces,
)
from perfsim.conditions.spec import Conditions
from perfsim.conditions.words import condition_words
from perfsim.errors import RequestError
from perfsim.prediction import Prediction
from perfsim.scenario import SCENARIO_FIELDS, make_scenario
from perfsim.schedule.run import run
from support.conditions import PLAIN, ask, build_rounds
from support.what_ships import shipped_rows

LENGTHS, STEADY = "sequence-lengths", "steady"
HAND = MeasuredJitter("hand", (0.0, 0.5, 1.0), (0.8, 0.9, 1.4))
"""Half of all values between 0.8 and 0.9, half between 0.9 and 1.4: a mean of 1."""


def test_moments_by_hand() -> None:
    """Of an even piece from a to b: mean (a + b)/2, square (a^2 + ab + b^2)/3."""
    assert HAND.mean == pytest.approx((0.85 + 1.15) / 2)
    square = (0.8**2 + 0.8 * 0.9 + 0.9**2) / 6 + (0.9**2 + 0.9 * 1.4 + 1.4**2) / 6
    assert HAND.spread == pytest.approx(sqrt(square - 1.0))


def test_the_slowest_of_two_by_hand() -> None:
    """The larger of two is in the lower half once in four: then two thirds up, else as below.

    Both in the upper half (1/4): 0.9 + 2/3 x 0.5; one of them (1/2): its mean, 1.15.
    """
    expected = 0.25 * (0.8 + 0.1 * 2 / 3) + 0.25 * (0.9 + 0.5 * 2 / 3) + 0.5 * 1.15
    assert HAND.slowest(2) == pytest.approx(expected)
    assert HAND.slowest(1) == pytest.approx(1.0)


@given(
    steps=st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6),
    rises=st.lists(st.floats(0.0, 0.5), min_size=6, max_size=6),
    count=st.integers(1, 5000),
)
@settings(deadline=None)
def test_the_slowest_lies_between_mean_and_largest(
    steps: list[float], rises: list[float], count: int
) -> None:
    shares = np.concatenate([[0.0], np.cumsum(steps)]) / sum(steps)
    factors = 0.5 + np.concatenate([[0.0], np.cumsum(rises[: len(steps)])])
    one = MeasuredJitter("made", tuple(shares.tolist()), tuple(factors.tolist()))
    assert one.mean - 1e-9 <= one.slowest(count) <= one.slowest(count + 1) + 1e-9
    assert one.slowest(count) <= factors[-1] + 1e-9
    # The largest of several is less than its spread times root (n - 1) above the mean
    # (Hartley & David 1954, Ann. Math. Stat. 25, 85: (n-1)/sqrt(2n-1)).
    most = one.spread * (count - 1) / sqrt(2 * count - 1)
    assert one.slowest(count) <= one.mean + most + 1e-9


@pytest.mark.parametrize("name", measured_names())
def test_shipped_distributions_are_inverses_of_mean_one(name: str) -> None:
    one = measured_jitter(name)
    assert (one.shares[0], one.shares[-1]) == (0.0, 1.0)
    assert all(low < high for low, high in pairwise(one.shares))
    assert all(low <= high for low, high in pairwise(one.factors))
    assert one.mean == pytest.approx(1.0, abs=1e-5)
    assert one.factors[0] > 0.5
    spreads = [
        float(row["spread"]) for row in shipped_rows(TRACE_FILE) if row["distribution"] == name
    ]
    assert 0.98 * min(spreads) <= one.spread <= 1.02 * max(spreads)


def test_the_table_has_the_quantiles_that_are_served() -> None:
    table = {
        (row["distribution"], row["share"]): row["factor"] for row in shipped_rows(JITTER_FILE)
    }
    one = measured_jitter(LENGTHS)
    served = {
        (LENGTHS, f"{share:g}"): f"{factor:.5f}"
        for share, factor in zip(one.shares, one.factors, strict=True)
    }
    assert served.items() <= table.items()
    # 60 % of a replica's steps are within these, in the trace and here.
    assert (table[LENGTHS, "0.2"], table[LENGTHS, "0.8"]) == ("0.89791", "1.08647")


@pytest.mark.parametrize("name", measured_names())
def test_what_is_drawn_has_mean_one_and_the_slowest_of_n(name: str) -> None:
    one, count = measured_jitter(name), 40_000
    for ranks in (1, 2, 32):
        drawn = one.draw(np.random.default_rng(1), (count, ranks))
        assert drawn.mean() == pytest.approx(1.0, abs=4 * one.spread / sqrt(count * ranks))
        slowest = drawn.max(axis=1)
        error = slowest.std() / sqrt(count)
        assert slowest.mean() == pytest.approx(one.slowest(ranks), abs=4 * error)
        assert one.factors[0] <= drawn.min() <= drawn.max() <= one.factors[-1]


@pytest.mark.parametrize("averaged", [1, 4, 32, 100])
def test_the_mean_of_several_iterations_varies_by_the_root_less(averaged: int) -> None:
    one = measured_jitter(LENGTHS)
    drawn = one.draw(np.random.default_rng(2), (20_000,), averaged)
    assert drawn.mean() == pytest.approx(1.0, abs=4 * one.spread / sqrt(20_000 * averaged))
    assert drawn.std() == pytest.approx(one.spread / sqrt(averaged), rel=0.03)


@given(scale=st.floats(0.01, MAX_SCALE), name=st.sampled_from(measured_names()))
@settings(deadline=None, max_examples=30)
def test_so_many_times_a_distribution_is_so_many_times_as_far_from_one(
    scale: float, name: str
) -> None:
    one, plain = measured_jitter(f"{name}:{scale!r}"), measured_jitter(name)
    assert one.mean == pytest.approx(1.0, abs=1e-5 * MAX_SCALE)
    assert one.spread == pytest.approx(scale * plain.spread)
    assert one.slowest(16) - 1 == pytest.approx(scale * (plain.slowest(16) - 1), rel=1e-3)
    assert one.factors[0] > 0


def error_s(**fields: Any) -> float:
    """Return the standard error of the mean iteration of a method with one round [s]."""
    (plan,) = build_rounds(**fields)
    lengths = np.asarray(run(plan).period_s) / plan.iterations
    return float(lengths.std(ddof=1) / sqrt(len(lengths)))


def passes_s(found: Prediction) -> float:
    return found.breakdown_s["forward"] + found.breakdown_s["backward"]


@pytest.mark.parametrize("name", [LENGTHS, f"{LENGTHS}:0.5", STEADY])
@pytest.mark.parametrize("gpus", [2, 256])
def test_the_iteration_waits_for_the_slowest_replica(name: str, gpus: int) -> None:
    """Without overlap it is longer by the passes x (the slowest of P - 1)."""
    fields: dict[str, Any] = {"gpus": gpus, "overlap": False}
    alone, varied = ask(**fields), ask(**fields, jitter=name)
    added_s = passes_s(alone) * (measured_jitter(name).slowest(gpus) - 1.0)
    error = error_s(**fields, jitter=name)
    assert abs(varied.iteration_s - alone.iteration_s - added_s) < 4 * error
    assert error < 0.1 * added_s


@pytest.mark.parametrize("method", ["ssgd", "dgc"])
def test_only_passes_take_longer(method: str) -> None:
    """The slowest of 64 takes 1.36 times the mean; what does not work on samples, no longer."""
    alone, varied = (ask(gpus=64, method=method, jitter=jitter) for jitter in (0.0, LENGTHS))
    assert passes_s(varied) > 1.3 * passes_s(alone)
    for part in ("update", "compression"):
        assert varied.breakdown_s[part] == pytest.approx(alone.breakdown_s[part], rel=0.02)
    assert alone.breakdown_s["compression"] > 0 or method == "ssgd"


DIVIDED: dict[str, Any] = {
    **{"model": "llama3-8b", "gpus": 32, "node": "dgx-h100", "net": "dgx-h100"},
    **{"intra_net": None, "batch": 1, "seq": 4096, "accumulate": 8, "overlap": False},
}


@pytest.mark.parametrize(
    ("degrees", "replicas"),
    [({"tp": 8}, 4), ({"pp": 2}, 16), ({"cp": 2, "tp": 2}, 8), ({"tp": 4, "pp": 2, "cp": 2}, 2)],
)
def test_all_gpus_of_a_replica_share_a_draw(degrees: dict[str, int], replicas: int) -> None:
    """The computation of a divided job is longer by the slowest replica, not by the slowest GPU."""
    alone = ask(**DIVIDED, **degrees)
    varied = ask(**DIVIDED, **degrees, jitter=LENGTHS)
    assert alone.parallel is not None
    computing_s = passes_s(alone) + alone.parallel.bubble_s
    added_s = computing_s * (measured_jitter(LENGTHS).slowest(replicas) - 1.0)
    error = error_s(**DIVIDED, **degrees, jitter=LENGTHS)
    assert abs(varied.iteration_s - alone.iteration_s - added_s) < 4 * error
    # The next larger group is well outside what chance allows.
    more = measured_jitter(LENGTHS).slowest(2 * replicas) - measured_jitter(LENGTHS).slowest(
        replicas
    )
    assert computing_s * more > 4 * error


def test_one_replica_waits_for_nobody() -> None:
    alone, varied = (ask(**DIVIDED, tp=8, pp=4, jitter=jitter) for jitter in (0.0, LENGTHS))
    assert varied.iteration_s == alone.iteration_s
    assert "no effect on the mean iteration of one replica" in " ".join(varied.notes)


def test_context_ranks_are_as_slow_as_each_other() -> None:
    conditions = Conditions(6, (), 0.1, 3, 1, measured_jitter(LENGTHS), alike=2)
    ((factors, always),) = drawn_factors(conditions, np.random.default_rng(3), 5, (1,), 1)
    assert factors.shape == always.shape == (5, 6)
    assert (factors[:, ::2] == factors[:, 1::2]).all() and (always == 1.0).all()
    assert len(np.unique(factors)) == 15
    expected = np.random.default_rng(3).random((5, 3))
    one = measured_jitter(LENGTHS)
    assert factors[:, ::2] == pytest.approx(np.interp(expected, one.shares, one.factors))


def test_a_slow_gpu_updates_slowly_too() -> None:
    conditions = Conditions(3, ((1, 2.0),), 0.1, 0, 1, measured_jitter(STEADY))
    ((factors, always),) = drawn_factors(conditions, np.random.default_rng(0), 4, (1,), 1)
    assert (always == [2.0, 1.0, 1.0]).all()
    assert (factors[:, 0] > 1.9).all() and (factors[:, 1:] < 1.1).all()


@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize("count", [1, 9])
def test_shares_are_drawn_as_ever(each: int, count: int) -> None:
    """To the last digit: normal numbers of the seed, the largest of a rank's GPUs."""
    conditions = Conditions(6, ((2, 1.5),), 0.05, 7, each)
    ((factors,),) = drawn_factors(conditions, np.random.default_rng(7), 5, (count,), 1)
    numbers = np.random.default_rng(7).standard_normal((5, 6, each)).max(axis=-1)
    slower = np.array([1.5, 1.5, 1.0, 1.0, 1.0, 1.0])
    expected = slower * np.maximum(0.0, 1.0 + 0.05 / sqrt(count) * numbers)
    assert factors == pytest.approx(expected, rel=1e-15)


def test_a_seed_repeats_measured_draws_and_another_one_does_not() -> None:
    first = ask(jitter=LENGTHS, seed=1).to_dict()
    assert ask(jitter=LENGTHS, seed=1).to_dict() == first
    other = ask(jitter=LENGTHS, seed=2)
    assert other.iteration_s != first["iteration_s"]
    assert other.iteration_s == pytest.approx(first["iteration_s"], rel=0.02)


def test_longer_intervals_make_unequal_samples_cost_less() -> None:
    costs = []
    for interval in (1, 4, 16):
        fields = {"gpus": 16, "method": "cpsgd", "options": {"interval": interval}}
        costs.append(ask(**fields, jitter=LENGTHS).iteration_s - ask(**fields).iteration_s)
    assert all(long < 0.7 * short for short, long in pairwise(costs))


@pytest.mark.parametrize("method", ["dpsgd", "localsgd", "spd_kfac", "dgc"])
def test_a_prediction_of_measured_draws_adds_up(method: str) -> None:
    fields = {"method": method, "model": "resnet20-cifar"}
    found = ask(**fields, jitter=LENGTHS)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)
    assert found.iteration_s >= ask(**fields).iteration_s * 0.999


@pytest.mark.parametrize(
    ("jitter", "words"),
    [
        ("sequence-lenghts", ["'sequence-lenghts'", "share such as 5%", "'sequence-lengths'?"]),
        ("Steady", ["'Steady'", "did you mean 'steady'?"]),
        ("xyz", ["'xyz'", "measured distribution.", "sequence-lengths, steady"]),
        ("steady:", ["'steady:'", "above 0 and up to 3", "steady:0.5"]),
        ("steady:0", ["'steady:0'", "above 0 and up to 3"]),
        ("steady:3.1", ["'steady:3.1'", "up to 3"]),
        ("steady:nan", ["'steady:nan'", "up to 3"]),
        ("sequence-lengths:half", ["'sequence-lengths:half'", "sequence-lengths:0.5"]),
        (["steady"], ["is not a fraction"]),
    ],
)
def test_wrong_names(jitter: object, words: list[str]) -> None:
    with pytest.raises(RequestError) as caught:
        make_scenario({**PLAIN, "jitter": jitter})
    assert caught.value.field == "jitter"
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("given_", "kept"),
    [(" steady ", "steady"), ("steady:1", "steady"), ("steady: 0.50", "steady:0.5")],
)
def test_a_name_is_kept_as_it_is_written_shortest(given_: str, kept: str) -> None:
    scenario = make_scenario({**PLAIN, "jitter": given_})
    assert scenario.jitter == kept
    said = ask(jitter=given_).scenario.to_dict()
    assert said["jitter"] == kept
    assert make_scenario({**PLAIN, "jitter": said["jitter"]}) == scenario


def test_help_and_notes_name_distributions_and_their_source() -> None:
    told = SCENARIO_FIELDS["jitter"].help
    for name in measured_names():
        spread = 100 * measured_jitter(name).spread
        (shown,) = re.findall(rf"{name} \(([\d.]+)%", told)
        assert float(shown) == pytest.approx(spread, rel=0.1)
    found = ask(jitter=f"{LENGTHS}:0.5")
    notes = " ".join(found.notes)
    (trace,) = traces(LENGTHS)
    for words in (
        "passes vary by 5.8%",
        "0.5 times what was measured in 43 steps of 32 replicas with 8 micro-batches",
        "(trace SE)",
        "ByteDance-Seed/StragglerAnalysis@8efcd7f3:",
        "0.893 to 1.36 times the mean",
        "(`straggler`)",
        "seed 0",
        "standard error",
    ):
        assert words in notes
    assert (trace.steps, trace.replicas, trace.micro_batches) == (43, 32, 8)
    assert "32 steps of 2 replicas" in " ".join(ask(jitter=STEADY).notes)
    assert condition_words(found.scenario) == "passes vary by sequence-lengths:0.5 (5.8%)"


def test_measured_jitter_is_no_less_refused_where_shares_are() -> None:
    for fields in ({"gpus": 20_000}, {"beside": "what_if_dgc_1gbe"}, {"method": "p3"}):
        with pytest.raises(RequestError, match="jitter"):
            ask(**fields, jitter=LENGTHS)
