"""GPUs that vary or are slow: by closed form (order statistics), by law, and all ranks together."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfsim.conditions.draws import DrawnRanks, drawn_factors, drawn_ranks, sample
from perfsim.conditions.ranks import drawn_means, factor_numbers, merge_rounds
from perfsim.errors import RequestError
from perfsim.methods import method_names
from perfsim.methods.base import LOCAL_ITERATION, Round
from perfsim.schedule.costed_graph import CostedGraph
from perfsim.schedule.run import run
from perfsim.simulate.array import drawn_closes, simulate, simulate_draws
from perfsim.simulate.chains import NO_FACTOR, chains_of
from perfsim.simulate.events import simulate_events
from perfsim.simulate.graph import TaskGraph
from perfsim.simulate.priority import simulate_priority
from perfsim.simulate.sync import Neighbours, SyncScope
from perfsim.simulate.task import COMPUTE
from support.conditions import ask, build_rounds, computed_s
from support.strategies import graphs


@cache
def largest(ranks: int) -> float:
    """Return the mean of the largest of so many standard normal numbers.

    The integral over x of 1 - F(x)^P above 0, less that of F(x)^P below.
    """
    normal = NormalDist()
    step = 1e-3
    places = [step * (place + 0.5) for place in range(8000)]
    above = sum(1.0 - normal.cdf(x) ** ranks for x in places)
    return step * (above - sum(normal.cdf(-x) ** ranks for x in places))


def test_the_largest_of_two_normal_numbers_is_one_over_the_root_of_pi() -> None:
    assert largest(2) == pytest.approx(np.pi**-0.5, rel=1e-6)
    assert largest(1) == pytest.approx(0.0, abs=1e-9)


def error_s(plans: list[CostedGraph]) -> float:
    """Return the standard error of the mean iteration [s]."""
    total = sum(plan.iterations for plan in plans)
    errors = []
    for plan in plans:
        lengths = np.asarray(run(plan).period_s)
        errors.append(plan.count / total * lengths.std(ddof=1) / len(lengths) ** 0.5)
    return float(np.hypot.reduce(errors))


@pytest.mark.parametrize("gpus", [2, 16, 256])
def test_jitter_adds_the_largest_of_normal_numbers(gpus: int) -> None:
    """Without overlap the iteration is longer by jitter x computation x E[max of P]."""
    fields = {"gpus": gpus, "overlap": False}
    alone, varied = ask(**fields), ask(**fields, jitter="5%")
    expected_s = alone.iteration_s + 0.05 * computed_s(alone) * largest(gpus)
    (plan,) = build_rounds(**fields, jitter=0.05)
    assert abs(varied.iteration_s - expected_s) < 4 * error_s([plan])
    assert error_s([plan]) < 0.1 * (varied.iteration_s - alone.iteration_s)


@pytest.mark.parametrize("interval", [1, 4, 16])
def test_between_averagings_ranks_wait_for_the_largest_sum(interval: int) -> None:
    """The largest of P sums of tau terms is above their mean by root tau x that of one."""
    fields = {"gpus": 16, "method": "cpsgd", "options": {"interval": interval}}
    alone, varied = ask(**fields), ask(**fields, jitter=0.1)
    added_s = 0.1 * computed_s(alone) * largest(16) / interval**0.5
    plans = build_rounds(**fields, jitter=0.1)
    # What else the GPU runs (packing the models) varies too: within 5 % of it.
    assert varied.iteration_s - alone.iteration_s == pytest.approx(
        added_s, abs=4 * error_s(plans) + 0.05 * added_s
    )


def test_longer_intervals_make_jitter_cost_less() -> None:
    costs = []
    for interval in (1, 4, 16, 64):
        fields = {"gpus": 16, "method": "cpsgd", "options": {"interval": interval}}
        costs.append(ask(**fields, jitter=0.1).iteration_s - ask(**fields).iteration_s)
    assert all(long < 0.7 * short for short, long in pairwise(costs))


def test_jitter_beside_stragglers_costs_less_than_both_apart() -> None:
    """A slow GPU hides the others' jitter: only its own, of mean 1, is left."""
    fields = {"overlap": False, "gpus": 64}
    slow, both = ask(**fields, straggler="1:2"), ask(**fields, straggler="1:2", jitter=0.05)
    (plan,) = build_rounds(**fields, straggler="1:2", jitter=0.05)
    assert abs(both.iteration_s - slow.iteration_s) < 4 * error_s([plan])


def test_a_seed_repeats_the_draws_and_another_one_does_not() -> None:
    first = ask(jitter=0.05, seed=1).to_dict()
    assert ask(jitter=0.05, seed=1).to_dict() == first
    other = ask(jitter=0.05, seed=2)
    assert other.iteration_s != first["iteration_s"]
    assert other.iteration_s == pytest.approx(first["iteration_s"], rel=0.01)


def test_more_jitter_takes_longer() -> None:
    times = [ask(jitter=jitter).iteration_s for jitter in (0.0, 0.02, 0.1, 0.3)]
    assert all(less < more for less, more in pairwise(times))


@pytest.mark.parametrize("method", ["dpsgd", "sgp", "postlocalsgd", "dasgd", "lbsgd", "spd_kfac"])
def test_a_prediction_of_draws_adds_up(method: str) -> None:
    fields = {"method": method, "model": "resnet20-cifar"}
    found = ask(**fields, jitter=0.1)
    assert sum(found.breakdown_s.values()) == pytest.approx(found.iteration_s, rel=1e-9)
    assert found.communication["hidden_s"] <= found.communication["busy_s"] + 1e-12
    low, high = found.iteration_s_interval
    assert low <= found.iteration_s <= high
    assert found.iteration_s >= ask(**fields).iteration_s * 0.999


def test_a_ring_of_three_waits_for_all_and_a_long_one_for_less() -> None:
    """A step of 1 s on each rank, then an exchange with both neighbours that takes no time."""

    def added_s(ranks: int, scope: SyncScope | None) -> float:
        graph = TaskGraph()
        step = graph.add("step", COMPUTE, "backward", 1.0, [(2, 1)])
        send = graph.add("send", "wire", "communicate", 0.0, [step], collective=True, scope=scope)
        graph.add("update", COMPUTE, "update", 0.0, [send])
        chance = np.random.default_rng(0)
        timeline = simulate_draws(
            graph,
            [1.0, 0.0, 0.0],
            [0, NO_FACTOR, NO_FACTOR],
            lambda _: [1 + 0.05 * chance.standard_normal((64, ranks))],
            warm_up=40,
            counted=40,
        )
        return timeline.mean_period_s - 1.0

    ring = Neighbours((1,))
    assert added_s(3, ring) == pytest.approx(0.05 * largest(3), rel=0.05)
    assert added_s(3, None) == pytest.approx(0.05 * largest(3), rel=0.05)
    # Each waits for the largest of three at least; over many periods delays spread, to no more
    # than twice that, however many ranks there are.
    few, many = added_s(32, ring), added_s(128, ring)
    assert 0.05 * largest(3) < few < 0.05 * largest(32)
    assert many == pytest.approx(few, rel=0.05)
    assert added_s(128, None) == pytest.approx(0.05 * largest(128), rel=0.05)


def test_draws_that_do_not_vary_are_one_run() -> None:
    (plan,) = build_rounds(jitter=0.05)
    durations = [float(task.duration_s) for task in plan.graph.tasks]
    constant = np.full((3, 8), 1.25)
    drawn = simulate_draws(
        plan.graph, durations, [0] * len(durations), lambda _: [constant], warm_up=3, counted=4
    )
    alone = simulate(plan.graph, [1.25 * seconds for seconds in durations])
    assert np.asarray(drawn.period_s) == pytest.approx(np.full(3, alone.mean_period_s), rel=1e-12)
    assert drawn.select(2).breakdown() == pytest.approx(alone.breakdown(), rel=1e-9, abs=1e-12)


def test_local_rounds_stand_before_the_exchange_that_follows() -> None:
    def exchanging(iteration: int) -> bool:
        return iteration != LOCAL_ITERATION

    def read(rounds: list[Round]) -> list[tuple[tuple[int, ...], tuple[int, ...], float]]:
        return [
            (one.round.iterations, one.repeats, one.round.count)
            for one in merge_rounds(rounds, exchanging)
        ]

    assert read([Round((0,), 1), Round((1,), 4)]) == [((0,), (1,), 1), ((1,), (1,), 4)]
    assert read([Round((LOCAL_ITERATION,), 7), Round((0,), 1)]) == [
        ((LOCAL_ITERATION, 0), (7, 1), 1.0)
    ]
    # 5 local iterations for 2 exchanges: one exchange after 2, one after 3.
    assert read([Round((LOCAL_ITERATION,), 5), Round((0,), 2)]) == [
        ((LOCAL_ITERATION, 0), (2, 1), 1.0),
        ((LOCAL_ITERATION, 0), (3, 1), 1.0),
    ]
    assert read([Round((LOCAL_ITERATION,), 3)]) == [((LOCAL_ITERATION,), (1,), 3)]


def test_iterations_that_send_inside_nodes_only_are_run_one_by_one() -> None:
    rounds = [Round((1,), 6), Round((2,), 2)]
    (one,) = merge_rounds(rounds, lambda iteration: iteration == 2)
    assert (one.round.iterations, one.repeats) == ((1, 1, 1, 2), (1, 1, 1, 1))
    # Of 1000 before each of two exchanges 256 are run with it, 744 by themselves.
    rounds = [Round((1,), 2000), Round((2,), 2)]
    alone, joined = merge_rounds(rounds, lambda iteration: iteration == 2)
    assert (alone.round, alone.repeats) == (Round((1,), 1488), (1,))
    assert joined.round == Round((1,) * 256 + (2,), 2) and set(joined.repeats) == {1}


def test_few_of_many_iterations_before_an_exchange_say_what_all_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 39 before each exchange 20 are run with it: both means differ by less than their error.

    What is waited for at an exchange grows with the root of their number: of 0.2 x 0.7 standard
    deviations a node, which four nodes exceed by about 1, (sqrt(39) - sqrt(20)) / 39 are missing,
    0.6 % of an iteration.
    """
    fields = {"method": "diloco", "model": "resnet20-cifar", "options": {"interval": 40}}
    whole = ask(**fields, jitter=0.2).iteration_s
    for room in ("ranks", "words"):
        monkeypatch.setattr(f"perfsim.conditions.{room}.MAX_APART", 20)
    some = ask(**fields, jitter=0.2)
    assert some.iteration_s == pytest.approx(whole, rel=0.01)
    assert some.iteration_s > ask(**fields).iteration_s * 1.05
    assert any("the others at their mean" in note for note in some.notes)


def test_merged_rounds_are_the_same_without_chance() -> None:
    """Every draw of so little jitter is what the rounds by themselves are."""
    for method in ("localsgd", "cpsgd", "postlocalsgd", "adpsgd", "dasgd"):
        fields = {"method": method, "model": "resnet20-cifar"}
        still, alone = ask(**fields, jitter=1e-9), ask(**fields)
        assert still.iteration_s == pytest.approx(alone.iteration_s, rel=1e-6)
        for part in ("bytes_per_gpu", "calls", "busy_s"):
            assert still.communication[part] == pytest.approx(alone.communication[part], rel=1e-6)


def test_so_many_periods_are_drawn_that_the_mean_is_known_to_a_thousandth() -> None:
    """The largest of P normal numbers varies by pi / sqrt(12 ln P) standard deviations or less."""
    for gpus, jitter in ((8, 0.05), (1024, 0.05), (1024, 0.1), (64, 0.01)):
        (plan,) = build_rounds(gpus=gpus, jitter=jitter)
        used, computed = sample(plan), plan_computed_s(plan)
        assert error_s([plan]) < 0.0015 * computed
        assert used.draws * used.counted <= 512
    few, many = (sample(build_rounds(gpus=gpus, jitter=0.05)[0]).draws for gpus in (8, 1024))
    assert many < few


def plan_computed_s(plan: CostedGraph) -> float:
    """Return what a GPU computes in a round [s]."""
    pairs = zip(plan.graph.tasks, plan.charges, strict=True)
    return sum(float(task.duration_s) for task, charge in pairs if charge.cause == "compute")


def test_the_ranks_that_are_run_decide_as_all_do() -> None:
    """For every method the mean period of few ranks is that of all, with the same chance."""
    gpus, jitter = 32, 0.05
    for method in FOLLOWED:
        if method in UNLIKE_THE_OTHERS:
            continue
        for plan in build_rounds(method=method, model="resnet20-cifar", gpus=gpus, jitter=jitter):
            some, every = drawn_ranks(plan), all_ranks(plan)
            few = some.periods[0][0].shape[-1]
            if few == gpus:
                continue
            few_s, all_s = (mean_period_s(plan, one) for one in (some, every))
            # Of groups that never meet one is run, with draws of its own.
            limit = 0.02 * jitter if few > plan.conditions.ranks // 8 else 0.1 * jitter
            assert few_s == pytest.approx(all_s, rel=limit), method


def all_ranks(plan: CostedGraph) -> DrawnRanks:
    """Draw the factors of all ranks, by the same chance."""
    used, repeats = sample(plan), plan.repeats or (1,) * len(plan.begins)
    chance = np.random.default_rng(plan.conditions.seed)
    periods = used.warm_up + used.counted
    return DrawnRanks(
        used, drawn_factors(plan.conditions, chance, used.draws, repeats, periods), {}
    )


UNLIKE_THE_OTHERS = ("intsgd", "thc")
"""Methods that refuse so many GPUs."""


def mean_period_s(plan: CostedGraph, ranks: DrawnRanks) -> float:
    """Return the mean period of some drawn ranks [s]."""
    used = sample(plan)
    timeline = simulate_draws(
        plan.graph,
        [float(task.duration_s) for task in plan.graph.tasks],
        factor_numbers(plan),
        lambda period: ranks.periods[period % len(ranks.periods)],
        warm_up=used.warm_up,
        counted=used.counted,
        replaced=ranks.replaced,
    )
    return timeline.mean_period_s


def test_what_ifs_of_one_draw_are_the_runs_by_themselves() -> None:
    (plan,) = build_rounds(method="powersgd", model="resnet20-cifar", gpus=16, jitter=0.05)
    durations = [float(task.duration_s) for task in plan.graph.tasks]
    lists = [durations, [2.0 * one for one in durations], durations[::-1]]
    together = drawn_means(plan, lists)
    assert together[1] == pytest.approx(2.0 * together[0], rel=1e-12)
    assert together == pytest.approx([drawn_means(plan, [one])[0] for one in lists], rel=1e-12)


@pytest.mark.parametrize("factor", [1.25, 1.5, 3.0])
def test_one_straggler_slows_computation_by_its_factor(factor: float) -> None:
    """Without overlap an iteration is computation and communication, one after the other."""
    alone = ask(overlap=False)
    slow = ask(overlap=False, straggler=f"1:{factor}")
    assert computed_s(slow) == pytest.approx(factor * computed_s(alone), rel=1e-9)
    added_s = (factor - 1) * computed_s(alone)
    assert slow.iteration_s == pytest.approx(alone.iteration_s + added_s, rel=1e-9)
    assert slow.baseline_s == ask(straggler=f"1:{factor}").iteration_s


def test_one_gpu_that_is_slow_takes_its_factor() -> None:
    assert ask(gpus=1, straggler="1:2").iteration_s == pytest.approx(2 * ask(gpus=1).iteration_s)


def test_a_factor_of_one_changes_nothing() -> None:
    assert ask(straggler="3:1").iteration_s == ask().iteration_s


def test_the_slowest_of_several_stragglers_counts() -> None:
    assert ask(straggler=["2:1.2", "1:1.5"]).iteration_s == ask(straggler="1:1.5").iteration_s
    assert ask(straggler="8:1.5").iteration_s == ask(straggler="1:1.5").iteration_s


FOLLOWED = [
    name for name in method_names() if name not in ("asc_wfbp", "byteps", "bytescheduler", "p3")
]


@pytest.mark.parametrize("method", FOLLOWED)
def test_the_slowest_rank_alone_is_what_all_ranks_together_are(method: str) -> None:
    """Each round on 8 ranks of two nodes, of which one is 1.5 and two are 1.2 times slower."""
    for plan in build_rounds(method=method, model="resnet20-cifar", straggler=["1:1.5", "2:1.2"]):
        assert plan.conditions is not None
        factors = plan.conditions.factors()
        durations = [
            task.duration_s * factors
            if charge.cause in ("compute", "compression", "second_order")
            and not task.stream.startswith("rank ")
            else task.duration_s
            for task, charge in zip(plan.graph.tasks, plan.charges, strict=True)
        ]
        together = simulate(plan.graph, durations, ranks=True)
        alone = run(plan)
        assert together.mean_period_s == pytest.approx(alone.mean_period_s, rel=1e-9)
        assert together.select(rank=0).breakdown() == pytest.approx(
            alone.breakdown(), rel=1e-9, abs=1e-12
        )


@given(data=st.data())
@settings(deadline=None)
def test_a_rank_that_is_slowest_in_everything_decides_alone(data: st.DataObject) -> None:
    """Whoever waits for whom, since every task of it ends last."""
    graph = data.draw(graphs(tasks=6, ranks=3))
    factors = np.array([1.0, data.draw(st.floats(1.0, 3.0)), 3.0])
    durations = [
        task.duration_s if task.collective else task.duration_s * factors for task in graph.tasks
    ]
    alone = [float(np.max(seconds)) for seconds in durations]
    together = simulate(graph, durations, ranks=True, periods=6)
    assert together.closes == pytest.approx(simulate(graph, alone, periods=6).closes, rel=1e-12)
    events = simulate_events(graph, durations, ranks=True, periods=6, max_periods=6)
    assert together.closes == pytest.approx(events.closes, rel=1e-9)


def test_by_priority_the_slowest_rank_decides_alone_too() -> None:
    (plan,) = build_rounds(method="p3", model="resnet20-cifar", straggler="1:1.5")
    durations = [
        task.duration_s * np.array([1.0, 1.5]) if charge.cause == "compute" else task.duration_s
        for task, charge in zip(plan.graph.tasks, plan.charges, strict=True)
    ]
    limit = {"periods": 4, "max_periods": 4}
    together = simulate_events(plan.graph, durations, ranks=True, order="priority", **limit)
    alone = simulate_priority(plan.graph, [float(np.max(one)) for one in durations], **limit)
    assert together.closes == pytest.approx(alone.closes, rel=1e-9)


@pytest.mark.parametrize("method", ["p3", "byteps", "asc_wfbp"])
def test_messages_that_overtake_each_other_are_slowed_by_a_straggler(method: str) -> None:
    fields = {"method": method, "model": "resnet20-cifar"}
    slow, alone = ask(**fields, straggler="1:4"), ask(**fields)
    assert slow.iteration_s > 1.5 * alone.iteration_s
    with pytest.raises(RequestError, match=f"method: {method} sends .* jitter"):
        ask(**fields, jitter=0.05)


@pytest.mark.parametrize("method", ["qsgd", "dgc"])
def test_the_second_period_is_as_long_as_later_ones_where_all_ends_before_it(method: str) -> None:
    # In the first one all ranks begin together; from the second on they differ by their update.
    [costed] = build_rounds(gpus=16, method=method, jitter=0.1)
    assert costed.graph.settled_after(in_order=True) == 1 and sample(costed).warm_up == 1
    which, draws, ranks = factor_numbers(costed), 400, 16
    chance = np.random.default_rng(5)
    drawn = [
        [1.0 + 0.1 * chance.standard_normal((draws, ranks)) for _ in range(1 + max(which))]
        for _ in range(8)
    ]
    seconds = np.array(costed.task_s)[:, None]
    chains = chains_of(costed.graph, which)
    closes = drawn_closes(chains, seconds, drawn.__getitem__, warm_up=1, counted=7)
    lengths = np.diff(np.array([close[0] for close in closes]), axis=0)
    error_s = lengths.std() / draws**0.5
    assert abs(lengths[0].mean() - lengths[1:].mean()) < 3 * error_s
    assert closes[0][0].mean() - lengths.mean() > 3 * error_s
