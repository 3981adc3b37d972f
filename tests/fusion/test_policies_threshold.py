"""Horovod's fusion: what each cycle takes, what it waits for, and when its buffers go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim import fusion
from perfsim.compute.profile import Gradient
from perfsim.errors import RequestError
from support.tensors import MIB, context, gradient_lists, places, tensors


def test_threshold_takes_what_is_ready_at_each_tick() -> None:
    gradients = tensors((1, 0.2e-3), (1, 1e-3), (1, 1.1e-3), (1, 3.5e-3))
    buckets = fusion.load_policy("threshold").fuse(gradients, context(gradients, hook="1s"))
    assert places(buckets) == [[0, 1], [2], [3]]
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([1e-3, 2e-3, 4e-3])
    slow = context(gradients, cycle_time="5ms", hook="1s")
    [bucket] = fusion.load_policy("threshold").fuse(gradients, slow)
    assert bucket.ready_s == pytest.approx(5e-3)


def test_threshold_takes_nothing_while_it_waits_for_the_gpu() -> None:
    # Hooks at 0.3, 0.6, ... 1.8 ms. The cycle at 1 ms takes three tensors and waits for the third
    # until 6 ms; by then all other hooks have run.
    gradients = tensors(*[(1, ready * 1e-3) for ready in (2, 4, 6, 8, 10, 12)])
    buckets = fusion.load_policy("threshold").fuse(gradients, context(gradients, hook="0.3ms"))
    assert places(buckets) == [[0, 1, 2], [3, 4, 5]]
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([6e-3, 12e-3])
    # Buffers of two tensors: each goes when its own last gradient is there.
    buckets = fusion.load_policy("threshold").fuse(gradients, context(gradients, 8.0, hook="0.3ms"))
    assert places(buckets) == [[0, 1], [2], [3, 4], [5]]
    assert [bucket.ready_s for bucket in buckets] == pytest.approx([4e-3, 6e-3, 10e-3, 12e-3])


def test_threshold_has_a_hook_every_fifth_of_a_millisecond() -> None:
    gradients = tensors(*[(1, 0.05)] * 6)
    buckets = fusion.load_policy("threshold").fuse(
        gradients, context(gradients, cycle_time="0.9ms")
    )
    assert places(buckets) == [[0, 1, 2, 3], [4, 5]]


def test_threshold_may_be_ahead_of_the_gpu() -> None:
    # Hooks at 0.1 and 0.2 ms, taken at 1 ms; 2 ms ahead they run at -1.7 and -1.4, taken at -1.
    gradients = tensors((1, 0.1e-3), (1, 0.2e-3))
    for ahead, sent_s in (("0s", 1e-3), ("2ms", 0.2e-3)):
        ctx = context(gradients, hook="0.3ms", ahead=ahead)
        [bucket] = fusion.load_policy("threshold").fuse(gradients, ctx)
        assert bucket.ready_s == pytest.approx(sent_s)


def test_threshold_never_exceeds_its_limit_and_sends_a_large_tensor_alone() -> None:
    gradients = tensors((10, 0), (10, 0), (30, 0), (10, 0), (11, 0))
    buckets = fusion.load_policy("threshold").fuse(gradients, context(gradients, 80.0))
    assert places(buckets) == [[0, 1], [2], [3], [4]]


def test_threshold_of_zero_turns_fusion_off() -> None:
    gradients = tensors((10, 0), (10, 0))
    buckets = fusion.load_policy("threshold").fuse(gradients, context(gradients, 0.0))
    assert places(buckets) == [[0], [1]]


def test_threshold_holds_128_mebibytes() -> None:
    gradients = tensors(*[(4 * MIB, 0.0)] * 9)  # 16 MiB each
    buckets = fusion.load_policy("threshold").fuse(gradients, context(gradients))
    assert places(buckets) == [[0, 1, 2, 3, 4, 5, 6, 7], [8]]


@given(gradient_lists(), st.sampled_from(["0ms", "1ms", "3.3ms", "20ms"]))
def test_threshold_waits_less_than_a_cycle(gradients: list[Gradient], cycle: str) -> None:
    ctx = context(gradients, cycle_time=cycle, hook="1s")
    buckets = fusion.load_policy("threshold").fuse(gradients, ctx)
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
    for bucket in fusion.load_policy("threshold").fuse(gradients, ctx):
        late_s = bucket.ready_s - bucket.gradients[-1].ready_s
        assert 0 <= late_s <= cycle_s * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("option", ["hook", "ahead"])
def test_a_hook_time_without_unit_is_refused(option: str) -> None:
    gradients = tensors((1, 0))
    with pytest.raises(RequestError, match=rf"fusion_options\.{option}: '5' is not a time"):
        fusion.load_policy("threshold").fuse(gradients, context(gradients, **{option: "5"}))


def test_a_cycle_time_without_unit_is_refused() -> None:
    gradients = tensors((1, 0))
    with pytest.raises(RequestError, match=r"fusion_options\.cycle_time: '5' is not a time"):
        fusion.load_policy("threshold").fuse(gradients, context(gradients, cycle_time="5"))


@pytest.mark.parametrize("cycle", ["1e-320ms", "1e300s", "0.9us", "101s"])
def test_a_cycle_time_outside_its_limits_is_refused(cycle: str) -> None:
    gradients = tensors((1, 1.0))
    with pytest.raises(
        RequestError,
        match=rf"fusion_options\.cycle_time: '{cycle}' is not allowed: .* 1us to 100s, or 0s",
    ) as error:
        fusion.load_policy("threshold").fuse(gradients, context(gradients, cycle_time=cycle))
    assert error.value.value == cycle


@pytest.mark.parametrize("cycle", ["1us", "100s"])
def test_a_cycle_time_at_its_limits_is_taken(cycle: str) -> None:
    gradients = tensors((1, 1e-6))
    [bucket] = fusion.load_policy("threshold").fuse(gradients, context(gradients, cycle_time=cycle))
    assert bucket.ready_s == pytest.approx(1e-6 if cycle == "1us" else 100.0)
