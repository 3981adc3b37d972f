"""Fusion policies: by hand, by law, and against the partitions that the libraries make."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.errors import RequestError
from perfsim.fusion.bucket import Bucket, FusionContext
from perfsim.profile import Gradient

MIB = 2**20
POLICIES = fusion.policies()
KEEP_MEMBERS_TIME = [name for name in POLICIES if name != "threshold"]


def tensors(*pairs: tuple[int, float]) -> list[Gradient]:
    """Gradients of (elements, ready_s), named by their place."""
    return [Gradient(str(place), (size,), ready, 0) for place, (size, ready) in enumerate(pairs)]


def context(
    gradients: Sequence[Gradient],
    limit_bytes: float | None = None,
    all_reduce_s: Callable[[float], float] = lambda size: 1e-4 + 1e-9 * size,
    shrink: float = 1.0,
    **options: str,
) -> FusionContext:
    backward_s = max((gradient.ready_s for gradient in gradients), default=0.0)
    return FusionContext(
        limit_bytes,
        backward_s,
        lambda gradient: shrink * gradient.size_bytes,
        all_reduce_s,
        options,
    )


def places(buckets: Sequence[Bucket]) -> list[list[int]]:
    return [[int(gradient.name) for gradient in bucket.gradients] for bucket in buckets]


def end_s(buckets: Sequence[Bucket], ctx: FusionContext) -> float:
    """When the last all-reduce ends, sent in order and one at a time."""
    now_s = 0.0
    for bucket in buckets:
        size_bytes = sum(map(ctx.message_bytes, bucket.gradients))
        now_s = max(now_s, bucket.ready_s) + ctx.all_reduce_s(size_bytes)
    return now_s


def every_partition(gradients: Sequence[Gradient]) -> list[list[Bucket]]:
    partitions = []
    for cuts in itertools.product((False, True), repeat=len(gradients) - 1):
        edges = [0, *(place for place, cut in enumerate(cuts, 1) if cut), len(gradients)]
        partitions.append([Bucket.of(gradients[a:b]) for a, b in itertools.pairwise(edges)])
    return partitions


@st.composite
def gradient_lists(draw: st.DrawFn, most: int = 30) -> list[Gradient]:
    sizes = draw(st.lists(st.integers(1, 3_000_000), min_size=1, max_size=most))
    gaps = draw(
        st.lists(st.floats(0, 5e-3), min_size=len(sizes), max_size=len(sizes)).map(
            itertools.accumulate
        )
    )
    return tensors(*zip(sizes, gaps, strict=True))


alpha_beta = st.tuples(st.floats(1e-6, 5e-3), st.floats(0, 1e-8))


# -- discovery ------------------------------------------------------------------------------------


def test_every_policy_file_is_found_and_says_what_it_is() -> None:
    assert {"none", "size", "threshold", "whole", "mgwfbp", "compressed"} <= set(POLICIES)
    for name in POLICIES:
        policy = fusion.load(name)
        assert policy.SUMMARY and "\n" not in policy.SUMMARY
        assert all(option.isidentifier() and text for option, text in policy.OPTIONS.items())


def test_an_unknown_policy_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"--fusion: no 'treshold'; did you mean 'threshold'"):
        fusion.load("treshold")


@pytest.mark.parametrize("name", ["bucket", "__init__", "os", "../fusion", ""])
def test_what_is_no_policy_cannot_be_loaded(name: str) -> None:
    with pytest.raises(RequestError):
        fusion.load(name)


# -- laws that hold for all policies -----------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
@given(
    gradients=gradient_lists(),
    limit=st.none() | st.floats(0, 40 * MIB),
    shrink=st.sampled_from([1.0, 0.5, 0.01]),
)
def test_every_gradient_once_and_in_order(
    name: str, gradients: list[Gradient], limit: float | None, shrink: float
) -> None:
    buckets = fusion.load(name).fuse(gradients, context(gradients, limit, shrink=shrink))
    assert [g for bucket in buckets for g in bucket.gradients] == gradients
    assert all(bucket.gradients for bucket in buckets)
    ready = [bucket.ready_s for bucket in buckets]
    assert ready == sorted(ready)
    for bucket in buckets:
        last_s = max(gradient.ready_s for gradient in bucket.gradients)
        assert bucket.ready_s == last_s or (name == "threshold" and bucket.ready_s > last_s)


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_to_send_makes_no_bucket(name: str) -> None:
    assert fusion.load(name).fuse([], context([])) == []


@given(gradient_lists())
def test_none_and_whole_are_the_two_ends(gradients: list[Gradient]) -> None:
    ctx = context(gradients)
    assert len(fusion.load("none").fuse(gradients, ctx)) == len(gradients)
    (bucket,) = fusion.load("whole").fuse(gradients, ctx)
    assert bucket.size_bytes == sum(gradient.size_bytes for gradient in gradients)
    assert bucket.elements == sum(gradient.elements for gradient in gradients)


# -- PyTorch DDP ----------------------------------------------------------------------------------


def test_size_makes_the_buckets_of_pytorchs_own_test_with_one_limit() -> None:
    # pytorch/pytorch, test/distributed/test_c10d_common.py, ComputeBucketAssignmentTest
    gradients = tensors((100, 0), (200, 0), (100, 0), (50, 0))
    buckets = fusion.load("size").fuse(gradients, context(gradients, 400.0))
    assert places(buckets) == [[0], [1], [2], [3]]


def test_size_makes_the_buckets_of_pytorchs_own_test_with_two_limits() -> None:
    gradients = tensors((10, 0), (10, 0), (10, 0), (10, 0))
    buckets = fusion.load("size").fuse(gradients, context(gradients, 80.0, first_bucket="40B"))
    assert places(buckets) == [[0], [1, 2], [3]]


def test_size_starts_with_one_mebibyte_unless_a_limit_is_given() -> None:
    quarter = MIB // 16  # elements of a quarter of a MiB
    gradients = tensors(*[(quarter, place * 1e-3) for place in range(120)])
    size = fusion.load("size").fuse
    assert [len(b.gradients) for b in size(gradients, context(gradients))] == [4, 100, 16]
    explicit = context(gradients, 25.0 * MIB)
    assert [len(b.gradients) for b in size(gradients, explicit)] == [100, 20]
    older = context(gradients, 25.0 * MIB, first_bucket="1MiB")
    assert [len(b.gradients) for b in size(gradients, older)] == [4, 100, 16]


def test_size_counts_the_gradients_not_what_is_sent() -> None:
    gradients = tensors(*[(MIB, 0.0)] * 10)
    size = fusion.load("size").fuse
    assert size(gradients, context(gradients, 8.0 * MIB)) == size(
        gradients, context(gradients, 8.0 * MIB, shrink=0.01)
    )


@given(gradient_lists(), st.floats(1, 30 * MIB))
def test_size_closes_with_the_gradient_that_crosses(
    gradients: list[Gradient], limit: float
) -> None:
    *closed, last = fusion.load("size").fuse(gradients, context(gradients, limit))
    for bucket in closed:
        assert bucket.size_bytes >= limit
    for bucket in [*closed, last]:
        assert bucket.size_bytes - bucket.gradients[-1].size_bytes < limit


# -- Horovod --------------------------------------------------------------------------------------


def test_threshold_takes_what_is_ready_at_each_tick() -> None:
    gradients = tensors((1, 0.2e-3), (1, 1e-3), (1, 1.1e-3), (1, 3.5e-3))
    buckets = fusion.load("threshold").fuse(gradients, context(gradients, hook="1s"))
    assert places(buckets) == [[0, 1], [2], [3]]
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([1e-3, 2e-3, 4e-3])
    slow = context(gradients, cycle_time="5ms", hook="1s")
    [bucket] = fusion.load("threshold").fuse(gradients, slow)
    assert bucket.ready_s == pytest.approx(5e-3)


def test_threshold_takes_nothing_while_it_waits_for_the_gpu() -> None:
    # Hooks at 0.3, 0.6, ... 1.8 ms. The cycle at 1 ms takes three tensors and waits for the third
    # until 6 ms; by then all other hooks have run.
    gradients = tensors(*[(1, ready * 1e-3) for ready in (2, 4, 6, 8, 10, 12)])
    buckets = fusion.load("threshold").fuse(gradients, context(gradients, hook="0.3ms"))
    assert places(buckets) == [[0, 1, 2], [3, 4, 5]]
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([6e-3, 12e-3])
    # Buffers of two tensors: each goes when its own last gradient is there.
    buckets = fusion.load("threshold").fuse(gradients, context(gradients, 8.0, hook="0.3ms"))
    assert places(buckets) == [[0, 1], [2], [3, 4], [5]]
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([4e-3, 6e-3, 10e-3, 12e-3])


def test_threshold_has_a_hook_every_fifth_of_a_millisecond() -> None:
    gradients = tensors(*[(1, 0.05)] * 6)
    buckets = fusion.load("threshold").fuse(gradients, context(gradients, cycle_time="0.9ms"))
    assert places(buckets) == [[0, 1, 2, 3], [4, 5]]


def test_threshold_may_be_ahead_of_the_gpu() -> None:
    # Hooks at 0.1 and 0.2 ms, taken at 1 ms; 2 ms ahead they run at -1.7 and -1.4, taken at -1.
    gradients = tensors((1, 0.1e-3), (1, 0.2e-3))
    for ahead, sent_s in (("0s", 1e-3), ("2ms", 0.2e-3)):
        ctx = context(gradients, hook="0.3ms", ahead=ahead)
        [bucket] = fusion.load("threshold").fuse(gradients, ctx)
        assert bucket.ready_s == pytest.approx(sent_s)


def test_threshold_never_exceeds_its_limit_and_sends_a_large_tensor_alone() -> None:
    gradients = tensors((10, 0), (10, 0), (30, 0), (10, 0), (11, 0))
    buckets = fusion.load("threshold").fuse(gradients, context(gradients, 80.0))
    assert places(buckets) == [[0, 1], [2], [3], [4]]


def test_threshold_of_zero_turns_fusion_off() -> None:
    gradients = tensors((10, 0), (10, 0))
    buckets = fusion.load("threshold").fuse(gradients, context(gradients, 0.0))
    assert places(buckets) == [[0], [1]]


def test_threshold_holds_128_mebibytes() -> None:
    gradients = tensors(*[(4 * MIB, 0.0)] * 9)  # 16 MiB each
    buckets = fusion.load("threshold").fuse(gradients, context(gradients))
    assert places(buckets) == [[0, 1, 2, 3, 4, 5, 6, 7], [8]]


@given(gradient_lists(), st.sampled_from(["0ms", "1ms", "3.3ms", "20ms"]))
def test_threshold_waits_less_than_a_cycle(gradients: list[Gradient], cycle: str) -> None:
    ctx = context(gradients, cycle_time=cycle, hook="1s")
    buckets = fusion.load("threshold").fuse(gradients, ctx)
    cycle_s = float(cycle.removesuffix("ms")) * 1e-3
    for bucket in buckets:
        first_s = min(gradient.ready_s for gradient in bucket.gradients)
        assert 0 <= bucket.ready_s - first_s <= cycle_s * (1 + 1e-6)


@given(
    gradient_lists(),
    st.sampled_from(["0ms", "1ms", "3.3ms"]),
    st.sampled_from(["0s", "50us", "1ms", "1s"]),
    st.sampled_from(["0s", "3ms", "1s"]),
)
def test_threshold_is_late_by_a_cycle_at_most(
    gradients: list[Gradient], cycle: str, hook: str, ahead: str
) -> None:
    ctx = context(gradients, cycle_time=cycle, hook=hook, ahead=ahead)
    cycle_s = float(cycle.removesuffix("ms")) * 1e-3
    for bucket in fusion.load("threshold").fuse(gradients, ctx):
        late_s = bucket.ready_s - bucket.gradients[-1].ready_s
        assert 0 <= late_s <= cycle_s * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("option", ["hook", "ahead"])
def test_a_hook_time_without_unit_is_refused(option: str) -> None:
    gradients = tensors((1, 0))
    with pytest.raises(RequestError, match=rf"fusion\.{option}: '5' is not a time"):
        fusion.load("threshold").fuse(gradients, context(gradients, **{option: "5"}))


def test_a_cycle_time_without_unit_is_refused() -> None:
    gradients = tensors((1, 0))
    with pytest.raises(RequestError, match=r"fusion\.cycle_time: '5' is not a time"):
        fusion.load("threshold").fuse(gradients, context(gradients, cycle_time="5"))


@pytest.mark.parametrize("cycle", ["1e-320ms", "1e300s", "0.9us", "101s"])
def test_a_cycle_time_outside_its_limits_is_refused(cycle: str) -> None:
    gradients = tensors((1, 1.0))
    with pytest.raises(
        RequestError, match=rf"fusion\.cycle_time: '{cycle}' is outside 1us to 100s, or 0s"
    ):
        fusion.load("threshold").fuse(gradients, context(gradients, cycle_time=cycle))


@pytest.mark.parametrize("cycle", ["1us", "100s"])
def test_a_cycle_time_at_its_limits_is_taken(cycle: str) -> None:
    gradients = tensors((1, 1e-6))
    [bucket] = fusion.load("threshold").fuse(gradients, context(gradients, cycle_time=cycle))
    assert bucket.ready_s == pytest.approx(1e-6 if cycle == "1us" else 100.0)


# -- ACP-SGD --------------------------------------------------------------------------------------


def test_compressed_scales_the_limit_with_what_is_sent() -> None:
    # Three tensors of 10 MiB sent as 1 MiB each: the limit of 25 MiB becomes 2.5 MiB.
    gradients = tensors(*[(10 * MIB // 4, 0.0)] * 3)
    buckets = fusion.load("compressed").fuse(gradients, context(gradients, shrink=0.1))
    assert places(buckets) == [[0, 1], [2]]


@given(gradient_lists(), st.floats(1, 30 * MIB))
def test_compressed_makes_the_same_buckets_however_much_a_uniform_method_shrinks(
    gradients: list[Gradient], limit: float
) -> None:
    compressed = fusion.load("compressed").fuse
    # Powers of two, so that the scaled sums are exact.
    plain = compressed(gradients, context(gradients, limit))
    assert compressed(gradients, context(gradients, limit, shrink=2.0**-7)) == plain
    for bucket in plain:
        assert len(bucket.gradients) == 1 or bucket.size_bytes <= limit * (1 + 1e-12)


# -- MG-WFBP and the best partition ------------------------------------------------------------


def test_mgwfbp_merges_what_is_ready_before_the_message_could_start() -> None:
    # alpha 1 s, beta 0: the first goes at 0 and ends at 1; the others are all ready before that.
    gradients = tensors((1, 0.0), (1, 1.5), (1, 1.6), (1, 9.0))
    buckets = fusion.load("mgwfbp").fuse(gradients, context(gradients, all_reduce_s=lambda _: 1.0))
    assert places(buckets) == [[0], [1, 2], [3]]


@pytest.mark.parametrize(("ready_s", "merged"), [(0.99, True), (1.01, False)])
def test_mgwfbp_waits_for_less_than_alpha(ready_s: float, merged: bool) -> None:
    gradients = tensors((25, 0.0), (25, ready_s))
    ctx = context(gradients, all_reduce_s=lambda size: 1.0 + 0.01 * size)
    buckets = fusion.load("mgwfbp").fuse(gradients, ctx)
    assert places(buckets) == ([[0, 1]] if merged else [[0], [1]])


def test_mgwfbp_can_hold_back_a_large_message_too_long() -> None:
    # alpha 1 s; a message of 10 s, then nine of nothing much every 0.9 s. The rule waits 0.9 < 1
    # each time and sends all at 8.1 (to 19.1); sending the first at once ends at 11 + 1.
    gradients = tensors((10_000_000, 0.0), *[(1, 0.9 * place) for place in range(1, 10)])
    ctx = context(gradients, all_reduce_s=lambda size: 1.0 + 10.0 * size / 40e6)
    greedy = fusion.load("mgwfbp").fuse(gradients, ctx)
    best = fusion.load("optimal").fuse(gradients, ctx)
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
    merged_s = end_s(fusion.load("mgwfbp").fuse(gradients, ctx), ctx)
    assert best_s * (1 - 1e-9) <= merged_s
    assert merged_s <= (best_s + (len(gradients) - 1) * alpha_s) * (1 + 1e-9)
    found_s = end_s(fusion.load("optimal").fuse(gradients, ctx), ctx)
    assert found_s == pytest.approx(best_s, rel=1e-9)


@given(gradient_lists(), alpha_beta)
def test_optimal_is_never_later_than_any_other_policy(
    gradients: list[Gradient], cost: tuple[float, float]
) -> None:
    alpha_s, beta = cost
    ctx = context(gradients, all_reduce_s=lambda size: alpha_s + beta * size)
    best_s = end_s(fusion.load("optimal").fuse(gradients, ctx), ctx)
    for name in POLICIES:
        assert best_s <= end_s(fusion.load(name).fuse(gradients, ctx), ctx) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["mgwfbp", "optimal"])
def test_merge_cost_can_be_the_authors_own(name: str) -> None:
    # 10GbE at 16 workers in the authors' code: 0.9081 ms and 0.7396 ns a byte.
    gradients = tensors((1, 0.0), (1, 0.5e-3), (1, 2e-3))
    fuse = fusion.load(name).fuse
    free = context(gradients, all_reduce_s=lambda _: 0.0, merge_alpha="0.9081ms",
                   merge_beta="0.7396ns/B")  # fmt: skip
    same = context(gradients, all_reduce_s=lambda size: 0.9081e-3 + 0.7396e-9 * size)
    assert places(fuse(gradients, free)) == places(fuse(gradients, same)) == [[0, 1], [2]]


def test_merge_below_takes_small_messages_along_however_long_it_waits() -> None:
    # Each is a second after the one before, alpha is 1 ms: only size makes them merge, and what
    # is merged counts as one: 4 + 4 bytes reach the limit of 8, so that the third starts anew.
    gradients = tensors((1, 0.0), (1, 1.0), (1, 2.0), (9, 3.0), (1, 4.0))
    ctx = context(gradients, all_reduce_s=lambda _: 1e-3, merge_below="8B")
    assert places(fusion.load("mgwfbp").fuse(gradients, ctx)) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge_alpha": "4ms"}, "merge_alpha and merge_beta go together"),
        ({"merge_beta": "1ns/B"}, "merge_alpha and merge_beta go together"),
        ({"merge_alpha": "4", "merge_beta": "1ns/B"}, "fusion.merge_alpha: '4' is not a time"),
        ({"merge_alpha": "4ms", "merge_beta": "1ns"}, "fusion.merge_beta: '1ns' is not a time a"),
        ({"merge_below": "8192"}, "fusion.merge_below: '8192' is not a size"),
    ],
)
def test_a_wrong_merge_cost_is_refused(options: dict[str, str], message: str) -> None:
    gradients = tensors((1, 0.0))
    with pytest.raises(RequestError, match=message):
        fusion.load("mgwfbp").fuse(gradients, context(gradients, **options))
