"""Fusion policies: what holds for all, and the buckets that PyTorch and ACP-SGD make."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from support.tensors import MIB, POLICIES, context, gradient_lists, places, tensors

# -- discovery ------------------------------------------------------------------------------------


def test_every_policy_file_is_found_and_says_what_it_is() -> None:
    assert {"none", "size", "threshold", "whole", "mgwfbp", "compressed"} <= set(POLICIES)
    for name in POLICIES:
        policy = fusion.load_policy(name)
        assert policy.summary and "\n" not in policy.summary
        assert all(option.isidentifier() and text for option, text in policy.options.items())


def test_an_unknown_policy_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match=r"fusion: no 'treshold'; did you mean 'threshold'"):
        fusion.load_policy("treshold")


@pytest.mark.parametrize("name", ["bucket", "__init__", "os", "../fusion", ""])
def test_what_is_no_policy_cannot_be_loaded(name: str) -> None:
    with pytest.raises(RequestError):
        fusion.load_policy(name)


# -- laws that hold for all policies -----------------------------------------------------------

SENT_LATER = ("threshold", "hybrid_zero")
"""Policies whose buckets go after their last gradient is there: at a cycle, or the next tensor."""


@pytest.mark.parametrize("name", POLICIES)
@given(
    gradients=gradient_lists(),
    limit=st.none() | st.floats(0, 40 * MIB),
    shrink=st.sampled_from([1.0, 0.5, 0.01]),
)
def test_every_gradient_once_and_in_order(
    name: str, gradients: list[Gradient], limit: float | None, shrink: float
) -> None:
    buckets = fusion.load_policy(name).fuse(gradients, context(gradients, limit, shrink=shrink))
    assert [g for bucket in buckets for g in bucket.gradients] == gradients
    assert all(bucket.gradients for bucket in buckets)
    ready = [bucket.ready_s for bucket in buckets]
    assert ready == sorted(ready)
    for bucket in buckets:
        last_s = max(gradient.ready_s for gradient in bucket.gradients)
        assert bucket.ready_s == last_s or (name in SENT_LATER and bucket.ready_s > last_s)


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_to_send_makes_no_bucket(name: str) -> None:
    assert fusion.load_policy(name).fuse([], context([])) == []


@given(gradient_lists())
def test_none_and_whole_are_the_two_ends(gradients: list[Gradient]) -> None:
    ctx = context(gradients)
    assert len(fusion.load_policy("none").fuse(gradients, ctx)) == len(gradients)
    (bucket,) = fusion.load_policy("whole").fuse(gradients, ctx)
    assert bucket.size_bytes == sum(gradient.size_bytes for gradient in gradients)
    assert bucket.elements == sum(gradient.elements for gradient in gradients)


# -- PyTorch DDP ----------------------------------------------------------------------------------


def test_size_makes_the_buckets_of_pytorchs_own_test_with_one_limit() -> None:
    # pytorch/pytorch, test/distributed/test_c10d_common.py, ComputeBucketAssignmentTest
    gradients = tensors((100, 0), (200, 0), (100, 0), (50, 0))
    buckets = fusion.load_policy("size").fuse(gradients, context(gradients, 400.0))
    assert places(buckets) == [[0], [1], [2], [3]]


def test_size_makes_the_buckets_of_pytorchs_own_test_with_two_limits() -> None:
    gradients = tensors((10, 0), (10, 0), (10, 0), (10, 0))
    buckets = fusion.load_policy("size").fuse(
        gradients, context(gradients, 80.0, first_bucket="40B")
    )
    assert places(buckets) == [[0], [1, 2], [3]]


def test_size_starts_with_one_mebibyte_unless_a_limit_is_given() -> None:
    quarter = MIB // 16  # elements of a quarter of a MiB
    gradients = tensors(*[(quarter, place * 1e-3) for place in range(120)])
    size = fusion.load_policy("size").fuse
    assert [len(b.gradients) for b in size(gradients, context(gradients))] == [4, 100, 16]
    explicit = context(gradients, 25.0 * MIB)
    assert [len(b.gradients) for b in size(gradients, explicit)] == [100, 20]
    older = context(gradients, 25.0 * MIB, first_bucket="1MiB")
    assert [len(b.gradients) for b in size(gradients, older)] == [4, 100, 16]


def test_size_counts_the_gradients_not_what_is_sent() -> None:
    gradients = tensors(*[(MIB, 0.0)] * 10)
    size = fusion.load_policy("size").fuse
    assert size(gradients, context(gradients, 8.0 * MIB)) == size(
        gradients, context(gradients, 8.0 * MIB, shrink=0.01)
    )


@given(gradient_lists(), st.floats(1, 30 * MIB))
def test_size_closes_with_the_gradient_that_crosses(
    gradients: list[Gradient], limit: float
) -> None:
    *closed, last = fusion.load_policy("size").fuse(gradients, context(gradients, limit))
    for bucket in closed:
        assert bucket.size_bytes >= limit
    for bucket in [*closed, last]:
        assert bucket.size_bytes - bucket.gradients[-1].size_bytes < limit


# -- ACP-SGD --------------------------------------------------------------------------------------


def test_compressed_scales_the_limit_with_what_is_sent() -> None:
    # Three tensors of 10 MiB sent as 1 MiB each: the limit of 25 MiB becomes 2.5 MiB.
    gradients = tensors(*[(10 * MIB // 4, 0.0)] * 3)
    buckets = fusion.load_policy("compressed").fuse(gradients, context(gradients, shrink=0.1))
    assert places(buckets) == [[0, 1], [2]]


@given(gradient_lists(), st.floats(1, 30 * MIB))
def test_compressed_makes_the_same_buckets_however_much_a_uniform_method_shrinks(
    gradients: list[Gradient], limit: float
) -> None:
    compressed = fusion.load_policy("compressed").fuse
    # Powers of two, so that the scaled sums are exact.
    plain = compressed(gradients, context(gradients, limit))
    assert compressed(gradients, context(gradients, limit, shrink=2.0**-7)) == plain
    for bucket in plain:
        assert len(bucket.gradients) == 1 or bucket.size_bytes <= limit * (1 + 1e-12)
