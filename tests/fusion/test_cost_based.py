"""Merging by cost: MG-WFBP's rule beside the best partition, by hand and by brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.by_size import TimesBySize, one_by_one
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from perfsim.fusion import cost_based
from perfsim.fusion.buckets import Bucket, FusionContext, SentGradients
from perfsim.fusion.cost_based import _decoupled_s, _groups_to_try, fuse_as_dear_tuned
from perfsim.fusion.policies import dear_groups, layer_bytes
from perfsim.planning.vectorise import BranchTrace
from perfsim.prediction import predict
from perfsim.scenario import make_scenario
from support.tensors import MIB, POLICIES, context, gradient_lists, places, tensors


def end_s(buckets: Sequence[Bucket], ctx: FusionContext) -> float:
    """When the last all-reduce ends, sent in order and one at a time."""
    now_s = 0.0
    for bucket in buckets:
        size_bytes = sum(map(ctx.message_bytes, bucket.gradients))
        now_s = max(now_s, bucket.ready_s) + ctx.by_size("all_reduce").of(size_bytes)
    return now_s


def every_partition(gradients: Sequence[Gradient]) -> list[list[Bucket]]:
    partitions = []
    for cuts in itertools.product((False, True), repeat=len(gradients) - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), len(gradients)]
        partitions.append([Bucket.of(gradients[a:b]) for a, b in itertools.pairwise(edges)])
    return partitions


alpha_beta = st.tuples(st.floats(1e-6, 5e-3), st.floats(0, 1e-8))


@pytest.mark.parametrize(("latency_s", "groups"), [(0.0, 4), (100.0, 1)])
def test_dear_is_tuned_to_the_groups_that_pay(latency_s: float, groups: int) -> None:
    # Four layers of 20 MiB, ready a second apart; 1 s a layer forward, a MiB in 0.01 s. Alone, the
    # first 0.2 s of sums hide in the backward pass; with 100 s a message one is best.
    elements = 5 * 2**20
    gradients = [Gradient(f"{i}", (elements,), 4.0 - i, i) for i in range(4)][::-1]

    def collective_s(collective: str, size_bytes: float) -> float:
        return latency_s + 0.01 * size_bytes / 2**20

    ctx = replace(context(gradients), forward_s=[1.0] * 4, by_size=of_each(collective_s))
    assert len(fusion.load_policy("dear_tuned").fuse(gradients, ctx)) == groups


@pytest.mark.parametrize("net", ["10gbe", "ib100", "1gbe"])
@pytest.mark.parametrize("model", ["resnet50", "densenet201", "bert-base"])
def test_tuned_dear_is_not_slower_than_25_mebibytes(model: str, net: str) -> None:
    asked = {"model": model, "gpus": 32, "net": net, "method": "dear"}
    usual, tuned = (
        predict(make_scenario(asked | more)).iteration_s for more in ({"fusion": "dear"}, {})
    )
    assert tuned <= usual * (1 + 1e-9)


def test_mgwfbp_merges_what_is_ready_before_the_message_could_start() -> None:
    # alpha 1 s, beta 0: the first goes at 0 and ends at 1; the others are all ready before that.
    gradients = tensors((1, 0.0), (1, 1.5), (1, 1.6), (1, 9.0))
    buckets = fusion.load_policy("mgwfbp").fuse(
        gradients, context(gradients, all_reduce_s=lambda _: 1.0)
    )
    assert places(buckets) == [[0], [1, 2], [3]]


@pytest.mark.parametrize(("ready_s", "merged"), [(0.99, True), (1.01, False)])
def test_mgwfbp_waits_for_less_than_alpha(ready_s: float, merged: bool) -> None:
    gradients = tensors((25, 0.0), (25, ready_s))
    ctx = context(gradients, all_reduce_s=lambda size: 1.0 + 0.01 * size)
    buckets = fusion.load_policy("mgwfbp").fuse(gradients, ctx)
    assert places(buckets) == ([[0, 1]] if merged else [[0], [1]])


def test_mgwfbp_can_hold_back_a_large_message_too_long() -> None:
    # alpha 1 s; a message of 10 s, then nine of nothing much every 0.9 s. The rule waits 0.9 < 1
    # each time and sends all at 8.1 (to 19.1); sending the first at once ends at 11 + 1.
    gradients = tensors((10_000_000, 0.0), *[(1, 0.9 * place) for place in range(1, 10)])
    ctx = context(gradients, all_reduce_s=lambda size: 1.0 + 10.0 * size / 40e6)
    greedy = fusion.load_policy("mgwfbp").fuse(gradients, ctx)
    best = fusion.load_policy("optimal").fuse(gradients, ctx)
    assert places(greedy) == [list(range(10))]
    assert end_s(greedy, ctx) == pytest.approx(19.1)
    assert places(best) == [[0], list(range(1, 10))]
    assert end_s(best, ctx) == pytest.approx(12.0)


@given(gradient_lists(most=8), alpha_beta)
def test_mgwfbp_ends_within_one_alpha_a_tensor_of_brute_force(
    gradients: list[Gradient], cost: tuple[float, float]
) -> None:
    alpha_s, beta = cost
    ctx = context(gradients, all_reduce_s=lambda size: alpha_s + beta * size)
    best_s = min(end_s(buckets, ctx) for buckets in every_partition(gradients))
    merged_s = end_s(fusion.load_policy("mgwfbp").fuse(gradients, ctx), ctx)
    assert best_s * (1 - 1e-9) <= merged_s
    assert merged_s <= (best_s + (len(gradients) - 1) * alpha_s) * (1 + 1e-9)
    found_s = end_s(fusion.load_policy("optimal").fuse(gradients, ctx), ctx)
    assert found_s == pytest.approx(best_s, rel=1e-9)


@given(gradient_lists(), alpha_beta)
def test_optimal_is_never_later_than_any_other_policy(
    gradients: list[Gradient], cost: tuple[float, float]
) -> None:
    alpha_s, beta = cost
    ctx = context(gradients, all_reduce_s=lambda size: alpha_s + beta * size)
    best_s = end_s(fusion.load_policy("optimal").fuse(gradients, ctx), ctx)
    for name in POLICIES:
        assert best_s <= end_s(fusion.load_policy(name).fuse(gradients, ctx), ctx) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["mgwfbp", "optimal"])
def test_merge_cost_can_be_the_authors_own(name: str) -> None:
    # 10GbE at 16 workers in the authors' code: 0.9081 ms and 0.7396 ns a byte.
    gradients = tensors((1, 0.0), (1, 0.5e-3), (1, 2e-3))
    fuse = fusion.load_policy(name).fuse
    free = context(gradients, all_reduce_s=lambda _: 0.0, merge_alpha="0.9081ms",
                   merge_beta="0.7396ns/B")  # fmt: skip
    same = context(gradients, all_reduce_s=lambda size: 0.9081e-3 + 0.7396e-9 * size)
    assert places(fuse(gradients, free)) == places(fuse(gradients, same)) == [[0, 1], [2]]


def test_merge_below_takes_small_messages_along_however_long_it_waits() -> None:
    # Each is a second after the one before, alpha is 1 ms: only size makes them merge, and what
    # is merged counts as one: 4 + 4 bytes reach the limit of 8, so that the third starts anew.
    gradients = tensors((1, 0.0), (1, 1.0), (1, 2.0), (9, 3.0), (1, 4.0))
    ctx = context(gradients, all_reduce_s=lambda _: 1e-3, merge_below="8B")
    assert places(fusion.load_policy("mgwfbp").fuse(gradients, ctx)) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge_alpha": "4ms"}, "merge_alpha and merge_beta go together"),
        ({"merge_beta": "1ns/B"}, "merge_alpha and merge_beta go together"),
        (
            {"merge_alpha": "4", "merge_beta": "1ns/B"},
            "fusion_options.merge_alpha: '4' is not a time",
        ),
        (
            {"merge_alpha": "4ms", "merge_beta": "1ns"},
            "fusion_options.merge_beta: '1ns' is not a time a",
        ),
        ({"merge_below": "8192"}, "fusion_options.merge_below: '8192' is not a size"),
    ],
)
def test_a_wrong_merge_cost_is_refused(options: dict[str, str], message: str) -> None:
    gradients = tensors((1, 0.0))
    with pytest.raises(RequestError, match=message):
        fusion.load_policy("mgwfbp").fuse(gradients, context(gradients, **options))


def decoupled(
    price: Callable[[str, float], float], backward_s: float, forward_s: Sequence[float] = ()
) -> FusionContext:
    """Return the context of DeAR's search: both halves cost what ``price`` says."""
    return FusionContext(
        None,
        backward_s,
        lambda gradient: gradient.size_bytes,
        of_each(price),
        forward_s=forward_s,
    )


def of_each(
    price: Callable[[str, float], float],
) -> Callable[[str], TimesBySize]:
    """Return what tells of each collective how its price follows from the size."""
    return lambda collective: one_by_one(partial(price, collective))


def test_what_dear_s_search_reckons_by_hand() -> None:
    """Layers c, b, a of 1, 2 and 3 bytes, ready after 1, 2 and 3 s; c alone, b and a together."""
    groups, alone = [(0, 1.0, 0.4), (1, 3.0, 0.1 + 0.2)], [(0, 1.0, 0.0), (1, 3.0, 0.0)]
    # Scatters of 1 s from 1 s on, of 5 s from 3 s on. Gathers of b and a 50 s, whose passes take
    # 0.3 s; then of c 10 s, whose pass takes 0.4 s.
    slow = [1.0, 5.0], [10.0, 50.0]
    assert _decoupled_s(groups, 3.5, *slow) == pytest.approx(8 + 50 + 10 + 0.4)
    assert _decoupled_s(alone, 3.5, *slow) == pytest.approx(8 + 50 + 10)
    # Messages that take next to nothing: the passes alone.
    quick = [1e-3, 5e-3], [1e-3, 5e-3]
    assert _decoupled_s(groups, 3.5, *quick) == pytest.approx(3.5 + 0.005 + 0.3 + 0.4)
    # The first scatter outlasts the second gradient.
    later = [7.0, 0.0], [7.0, 0.0]
    assert _decoupled_s(alone, 3.5, *later) == pytest.approx(1 + 7 + 7)


@pytest.mark.parametrize("arrays", [lambda: None, lambda: numpy], ids=["one by one", "arrays"])
@given(data=st.data())
def test_dear_s_search_leaves_out_no_size_that_could_be_best(
    arrays: Callable[[], Any], data: st.DataObject
) -> None:
    seconds = st.floats(0.0, 10.0)

    def drawn(values: st.SearchStrategy[float], count: int) -> list[float]:
        return data.draw(st.lists(values, min_size=count, max_size=count))

    count = data.draw(st.integers(1, 12))
    sizes_bytes = tuple(drawn(st.floats(1.0, 100 * MIB), count))
    forward_s, ready_s = tuple(drawn(seconds, count)), tuple(sorted(drawn(seconds, count)))
    layers = tuple(range(count))[::-1]
    tried = _groups_to_try(layers, ready_s, sizes_bytes, forward_s)
    scatter_s, gather_s = (drawn(seconds, len(tried.asked.sizes_bytes)) for _ in range(2))
    backward_s = data.draw(seconds)
    with mock.patch.object(cost_based, "arrays", arrays):
        least_s = tried.least_s(backward_s, scatter_s, gather_s)
    for one, at_least_s in zip(tried.groups, least_s, strict=True):
        assert at_least_s <= _decoupled_s(one.sends, backward_s, scatter_s, gather_s)


def test_dear_s_search_takes_25_mib_where_sizes_are_as_good() -> None:
    """By hand: 3 layers of 20 MiB, messages free: all sizes as good, and each layer alone."""
    gradients = [Gradient(f"{n}", (5 * 2**20,), 0.1, 2 - n) for n in range(3)]
    found = fuse_as_dear_tuned(gradients, decoupled(lambda what, size: 0.0, 1.0))
    assert [one.gradients for one in found] == [(one,) for one in gradients]
    # Where a message costs its count, all in one is best.
    found = fuse_as_dear_tuned(gradients, decoupled(lambda what, size: 1.0, 1.0))
    assert [len(one.gradients) for one in found] == [3]


def in_thirds() -> tuple[list[Gradient], Callable[[str, float], float]]:
    """Three layers of 20 MiB, and messages that take a hundredth of a second for each."""
    gradients = [Gradient(f"{n}", (5 * 2**20,), 0.05, 2 - n) for n in range(3)]
    return gradients, lambda what, size_bytes: 0.01


def test_dear_s_search_reckons_no_size_whose_bound_is_too_late() -> None:
    gradients, price = in_thirds()
    late = lambda self, *asked: [math.inf] * len(self.groups)  # noqa: E731
    with mock.patch.object(cost_based._Tried, "least_s", late):
        found = fuse_as_dear_tuned(gradients, decoupled(price, 0.1))
    assert [len(one.gradients) for one in found] == [1, 1, 1], "25 MiB, without a bound to beat"


def test_dear_s_search_asks_no_bound_of_times_that_stand_for_many() -> None:
    """Where bounds differ and the choice does not, rows of a sweep would part for nothing."""
    gradients, price = in_thirds()
    trace = BranchTrace(2, 0)
    ctx = decoupled(price, trace.number(numpy.array([0.1, 0.2])))
    refused = mock.Mock(side_effect=AssertionError("a bound is asked for"))
    with mock.patch.object(cost_based._Tried, "least_s", refused):
        found = fuse_as_dear_tuned(gradients, ctx)
    assert [len(one.gradients) for one in found] == [3]
    assert trace.agreed().tolist() == [True, True]


def test_dear_s_search_tries_25_mib_then_1_to_256_mib_in_quarters_of_a_doubling() -> None:
    """By hand, layers c, b, a in ready order; the first layer, a, is filled first.

    Of 0.2, 0.55 and 0.55 MiB a and b make 1.1, all three 1.3 MiB. 25 MiB holds all; 1 MiB holds a,
    then b and c (0.75); 2^(1/4) = 1.19 MiB holds a and b; 2^(1/2) = 1.41 MiB holds all again.
    """
    layers, ready_s, forward_s = (2, 1, 0), (1.0, 2.0, 3.0), (0.25, 0.5, 4.0)

    def tried(*sizes_mib: float) -> list[list[tuple[int, int]]]:
        sizes_bytes = tuple(size * MIB for size in sizes_mib)
        few = slice(len(sizes_bytes))
        found = _groups_to_try(layers[few], ready_s[few], sizes_bytes, forward_s)
        for some in found.groups:
            for (first, end), (size, last_s, passes_s) in zip(*some, strict=True):
                assert found.asked.sizes_bytes[size] == sum(sizes_bytes[first:end])
                assert last_s == end  # a layer a second
                assert passes_s == sum(forward_s[layer] for layer in layers[first:end])
        return [list(some.places) for some in found.groups]

    assert tried(0.2, 0.55, 0.55) == [[(0, 3)], [(0, 2), (2, 3)], [(0, 1), (1, 3)]]
    # Two of 127 MiB go together below 256 MiB, two of 128 MiB never; two of 0.4 MiB always.
    assert tried(127.0, 127.0) == [[(0, 1), (1, 2)], [(0, 2)]]
    assert tried(128.0, 128.0) == [[(0, 1), (1, 2)]]
    assert tried(0.4, 0.4) == [[(0, 2)]]


def test_dear_s_groups_stay_below_the_limit() -> None:
    """By hand: layers of 3, 2 and 4 bytes from the front; 5 is no less than 5."""
    layers = [(0, 1), (1, 3), (3, 4)]
    sizes = layer_bytes(layers, [4.0, 1.0, 1.0, 3.0])
    assert sizes == [4.0, 2.0, 3.0]
    assert dear_groups(layers, sizes, 5.0) == layers
    assert dear_groups(layers, sizes, 5.1) == [(0, 1), (1, 4)]
    assert dear_groups(layers, sizes, 9.1) == [(0, 4)]
    assert dear_groups(layers, sizes, 0.0) == layers


def test_a_context_by_itself_has_one_rank_and_no_negotiation() -> None:
    plain = FusionContext(None, 1.0, lambda one: 0.0, lambda collective: one_by_one(float))
    assert (plain.count_ranks(), plain.negotiation_s(8)) == (1, 0.0)


@given(gradient_lists(), st.lists(alpha_beta, min_size=2, max_size=6))
def test_what_is_kept_of_gradients_changes_no_bucket(
    gradients: list[Gradient], networks: list[tuple[float, float]]
) -> None:
    """On one network after another, and on each by itself."""
    sent = SentGradients(gradients, lambda gradient: gradient.size_bytes)
    for alpha_s, beta_s in [*networks, *networks]:
        price = of_each(lambda _, size, alpha_s=alpha_s, beta_s=beta_s: alpha_s + beta_s * size)
        alone = replace(context(gradients), by_size=price)
        for name in ("mgwfbp", "asc", "optimal", "dear_tuned", "dear", "size"):
            fuse = fusion.load_policy(name).fuse
            buckets = fuse(gradients, replace(alone, sent=sent))
            assert buckets == fuse(gradients, alone), name
            assert fuse(gradients, replace(alone, sent=sent)) is buckets, "the same list"


@given(
    gradient_lists(),
    st.lists(st.tuples(st.floats(1e-6, 5e-3), st.floats(0, 1e-6)), min_size=2, max_size=6),
    st.sampled_from([{}, {"merge_below": "1MiB"}]),
)
def test_mgwfbp_decides_as_it_does_where_nothing_is_known_of_networks_alike(
    gradients: list[Gradient], networks: list[tuple[float, float]], options: dict[str, str]
) -> None:
    """Where a message of twice the size takes less than twice as long, by what varies with size."""
    sent = SentGradients(gradients, lambda gradient: gradient.size_bytes)
    asked = replace(context(gradients), options=options)
    fuse = fusion.load_policy("mgwfbp").fuse
    for start_s, rise_s in networks:
        for factor in (1.0, 1.01, 0.5):
            price = of_each(lambda _, n, a=start_s * factor, b=rise_s: a + b * n**0.6)
            alone = replace(asked, by_size=price)
            assert fuse(gradients, replace(alone, sent=sent)) == fuse(gradients, alone)


@pytest.mark.parametrize("options", [{}, {"merge_below": "1B"}])
def test_mgwfbp_goes_on_from_where_it_decides_otherwise(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three networks: the second merges as the first; on the third the latest two join too."""
    gradients = tensors((1, 0.0), (1, 0.1), (1, 1.0), (1, 1.5))
    sent = SentGradients(gradients, lambda gradient: gradient.size_bytes)
    found: list[Any] = []
    check = cost_based._Merged.up_to_another_decision

    def noted(self: Any, *asked: Any) -> Any:
        found.append(check(self, *asked))
        return found[-1]

    monkeypatch.setattr(cost_based._Merged, "up_to_another_decision", noted)
    for start_s, merged in ((0.2, [2, 1, 1]), (0.25, [2, 1, 1]), (0.6, [2, 2])):
        ctx = context(gradients, all_reduce_s=lambda _, s=start_s: s)
        ctx = replace(ctx, sent=sent, options=options)
        buckets = fusion.load_policy("mgwfbp").fuse(gradients, ctx)
        assert [len(bucket.gradients) for bucket in buckets] == merged
    same, other = found
    assert same is None
    assert other[:2] == (3, [0, 2]) and other.start_s == 1.0 and other.taken_s == 0.6


def test_mgwfbp_knows_what_joined_for_its_size_on_a_network_alike() -> None:
    """Three bytes always take the next along: the second network asks for no other decision."""
    gradients = tensors((1, 0.0), (1, 1.0), (1, 2.0), (1, 3.0))
    sent = SentGradients(gradients, lambda gradient: gradient.size_bytes)
    check, noted = cost_based._Merged.up_to_another_decision, list[Any]()

    def checked(self: Any, *asked: Any) -> Any:
        noted.append(check(self, *asked))
        return noted[-1]

    with mock.patch.object(cost_based._Merged, "up_to_another_decision", checked):
        for alpha_s in (0.2, 0.25):
            ctx = context(gradients, all_reduce_s=lambda _, s=alpha_s: s, merge_below="5B")
            buckets = fusion.load_policy("mgwfbp").fuse(gradients, replace(ctx, sent=sent))
            assert [len(bucket.gradients) for bucket in buckets] == [2, 2]
    assert noted == [None]


def test_buckets_of_other_places_are_told_apart() -> None:
    gradients = tensors((1, 0.0), (1, 1.0), (1, 2.0))
    sent = SentGradients(gradients, lambda gradient: gradient.size_bytes)
    one, other = sent.buckets([(0, 1), (1, 3)]), sent.buckets([(0, 2), (2, 3)])
    assert sent.told_apart(one) != sent.told_apart(other)
    assert sent.told_apart(one) == sent.told_apart(sent.buckets([(0, 1), (1, 3)]))
    # Of somebody else's list the names and times tell.
    assert sent.told_apart([*one]) == sent.told_apart([Bucket.of(list(b.gradients)) for b in one])
    assert sent.told_apart([*one]) != sent.told_apart([*other])


@pytest.mark.parametrize("name", fusion.policy_names())
def test_a_policy_asks_what_it_is_said_to_ask(name: str) -> None:
    """Of collectives' times, and of ranks that negotiate: `timed` says whether it asks for any."""
    asked: set[str] = set()

    def by_size(collective: str) -> TimesBySize:
        asked.add(collective)
        return one_by_one(lambda size_bytes: 1e-4 + 1e-9 * size_bytes)

    def negotiation_s(tensors: int) -> float:
        asked.add("negotiation")
        return 1e-4

    gradients = tensors((100_000, 0.001), (200_000, 0.002), (300_000, 0.004))
    ctx = replace(
        context(gradients), by_size=by_size, negotiation_s=negotiation_s, forward_s=[0.001] * 3
    )
    policy = fusion.load_policy(name)
    policy.fuse(gradients, ctx)
    expected = {"dear_tuned": {"reduce_scatter", "all_gather"}}
    expected |= {one: {"all_reduce"} for one in ("mgwfbp", "asc", "optimal")}
    assert asked - {"negotiation"} == expected.get(name, set())
    assert policy.timed == bool(asked)


@pytest.mark.parametrize("options", [{}, {"merge_below": "4B"}])
@pytest.mark.parametrize(
    ("ready_s", "before", "before_merged", "price", "merged"),
    [
        # It saves 0.5 s and waits for 0.5 s.
        ((0.0, 0.5), lambda n: 0.6, [2], lambda n: 0.5, [1, 1]),
        # It is ready before the message that it would join begins, and saves nothing.
        ((0.0, 0.6, 0.6), lambda n: 0.5, [1, 2], lambda n: n / 4, [1, 1, 1]),
    ],
)
def test_mgwfbp_does_not_merge_what_saves_no_more_than_it_waits(
    ready_s: tuple[float, ...],
    before: Callable[[float], float],
    before_merged: list[int],
    price: Callable[[float], float],
    merged: list[int],
    options: dict[str, str],
) -> None:
    """By hand, of 4 bytes each; also where it merged that on a network before."""
    gradients = tensors(*((1, one) for one in ready_s))
    sent = SentGradients(gradients, lambda gradient: gradient.size_bytes)

    def fused(price: Callable[[float], float], **kept: SentGradients) -> list[int]:
        ctx = replace(context(gradients, all_reduce_s=price), options=options, **kept)
        buckets = fusion.load_policy("mgwfbp").fuse(gradients, ctx)
        return [len(bucket.gradients) for bucket in buckets]

    assert fused(price) == merged
    assert fused(before, sent=sent) == before_merged
    assert fused(price, sent=sent) == merged


def test_dear_s_search_knows_passes_of_other_lengths_apart() -> None:
    made = tensors((10_000_000, 0.01), (10_000_000, 0.02), (10_000_000, 0.03))
    gradients = [replace(one, layer=2 - place) for place, one in enumerate(made)]
    sent = SentGradients(gradients, lambda gradient: gradient.size_bytes)
    fuse = fusion.load_policy("dear_tuned").fuse
    found = []
    for forward_s in ([0.0] * 3, [5.0] * 3, [0.0] * 3):
        ctx = decoupled(lambda _, n: 0.01 + n * 1e-9, 0.03, forward_s)
        found.append(fuse(gradients, replace(ctx, sent=sent)))
        assert found[-1] == fuse(gradients, ctx)
    assert found[0] is found[2]
    assert found[0] != found[1]
