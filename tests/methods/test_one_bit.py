"""DeepSpeed's 1-bit optimizers: bytes, kernels and iterations by hand, and counts of steps.

Iterations are those of `support.averaged`: 42 ms without an exchange; 500,000 values, of which a
pass takes 2 us; four ranks, for which they need no padding (15,625 x 32).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsim.compute.kernel import elementwise
from perfsim.errors import RequestError
from perfsim.methods import load_method
from perfsim.methods.base import Compute, Method, MethodContext, Send
from perfsim.methods.building.one_bit_optimizer import (
    DENSE,
    ONE_BIT,
    dense_all_reduce,
    one_bit_all_reduce,
    padded,
)
from perfsim.methods.zero_one_adam import LOCAL, SYNCHRONISED, ZeroOneAdam
from support.averaged import mean_ms, plans, times
from support.builders import bucket, gradient, profile
from support.one_matrix import COLUMNS, ROWS, by_formula, mean, one_matrix

N = ROWS * COLUMNS
NAMES = ("onebit_adam", "onebit_lamb")

KERNELS_MS = (271.25 + 330.390625 + 169.3125) / 1e3
"""Worker: 25.53125 passes and 3/32 of one, 16 and 6 launches of 10 us. Server: 8.78125 passes, 12
launches; the same 25.53125 on a quarter of the values, 16; 1/32, 2. Result: 9.65625, 15."""

SENDS_MS = 2 * (3 + 3 * 0.015625) + 2 * (3 + 3 * 4e-6)
"""Three hops of 1 ms each: chunks of 15,625 B, scales of 4 B; twice."""


def sent(method: Method, ranks: int) -> float:
    """Return the mean bytes that a rank sends for the one matrix."""
    return mean(one_matrix(method, ranks), "sent_bytes")


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
@pytest.mark.parametrize("name", NAMES)
def test_signs_travel_twice_in_one_bit_each(name: str, ranks: int) -> None:
    """An all-to-all and an all-gather of n/8 bytes; two scales of 4 bytes to each other rank.

    Chunks are whole bytes on each rank: n is padded to a multiple of P and of 8, P times over.
    """
    block = ranks * ranks * 8 // gcd(ranks, 8)
    values = next(size for size in range(N, N + block) if size % block == 0)
    by_hand = 2 * (ranks - 1) / ranks * values / 8 + 8 * (ranks - 1)
    method = load_method(name, {"dense_share": 0})
    assert sent(method, ranks) == pytest.approx(by_hand, rel=1e-12)
    assert by_formula(method, ranks) == pytest.approx(by_hand, rel=1e-12)
    # 16 bits in a ring: 2 (P-1)/P 2 n, 16 times as much, but for padding and scales.
    dense = 2 * (ranks - 1) / ranks * 2 * N
    assert dense / 16 <= by_hand < dense / 16 * (1 + block / N) + 8 * ranks


def test_a_large_model_is_sent_in_a_sixteenth_of_16_bits() -> None:
    """336e6 values on 64 ranks: 2 x 63/64 x 42 MB against 2 x 63/64 x 672 MB."""
    stages = one_bit_all_reduce(336_000_000, 64)
    sizes = [stage.size_bytes for stage in stages if isinstance(stage, Send)]
    assert sum(sizes) * 63 / 64 == pytest.approx(2 * 63 / 64 * 672e6 / 16, rel=1e-4)


def test_padding_is_copied_where_there_is_some() -> None:
    """1000 values on 4 ranks are 1024: made and concatenated, 2 passes; a flat buffer has it."""
    assert padded(1000, 4) == 1024
    first, flat = (one_bit_all_reduce(1000, 4, pad=pad)[0] for pad in (True, False))
    assert isinstance(first, Compute) and isinstance(flat, Compute)
    assert first.kernels == (elementwise(1024, 2, 2), *flat.kernels)
    assert one_bit_all_reduce(1024, 4) == one_bit_all_reduce(1024, 4, pad=False)


def test_launches_grow_with_the_ranks_and_passes_do_not() -> None:
    """Scales made, three lists of tensors copied out: four launches a rank."""

    def kernels(ranks: int) -> tuple[float, int]:
        computed = [stage for stage in one_bit_all_reduce(2**20, ranks) if type(stage) is Compute]
        each = [kernel for stage in computed for kernel in stage.kernels]
        return sum(one.moved_bytes for one in each) / 2**22, sum(one.launches for one in each)

    few, many = kernels(4), kernels(64)
    assert many[1] - few[1] == 4 * 60
    # One chunk is encoded (25.53125), and written as the mean (1).
    assert few[0] - many[0] == pytest.approx((25.53125 + 1) * (1 / 4 - 1 / 64))


def test_nothing_of_the_exchange_overlaps_the_backward_pass() -> None:
    [(share, took)] = times(plans("onebit_adam", {"dense_share": 0}))
    assert share == 1
    assert took == pytest.approx(42 + KERNELS_MS + SENDS_MS)


def test_a_dense_share_of_one_is_dense_adam() -> None:
    """Flattened and divided: 8 us, 20 us of launches; 2 MB in 9 ms; copied back: 4 us, 20 us."""
    [(_, took)] = times(plans("onebit_adam", {"dense_share": 1}))
    assert took == pytest.approx(42 + 0.028 + 9 + 0.024)
    method = load_method("onebit_adam", {"dense_share": 1})
    assert sent(method, 16) == pytest.approx(sent(load_method("ssgd", {}), 16))


@given(share=st.floats(0.01, 0.99))
def test_both_stages_are_weighted_by_their_share(share: float) -> None:
    dense, compressed = (mean_ms(plans("onebit_adam", {"dense_share": one})) for one in (1, 0))
    both = mean_ms(plans("onebit_adam", {"dense_share": share}))
    assert both == pytest.approx(share * dense + (1 - share) * compressed)


def test_lamb_adds_its_coefficients_tensor_by_tensor() -> None:
    """Before: 4 passes, 2 launches a tensor; after: 23 and 15; dense: 6 and 9."""
    [(_, dense)] = times(plans("onebit_lamb", {"dense_share": 1}))
    assert dense == pytest.approx(51.052 + 0.012 + 0.18)
    [(_, compressed)] = times(plans("onebit_lamb", {"dense_share": 0}))
    assert compressed == pytest.approx(42 + KERNELS_MS + SENDS_MS + 0.008 + 0.04 + 0.046 + 0.3)


def test_lamb_keeps_one_buffer_however_it_is_fused() -> None:
    assert mean_ms(plans("onebit_lamb", {}, fusion="none")) == mean_ms(plans("onebit_lamb", {}))
    apart, whole = (
        plans("onebit_adam", {"dense_share": 0}, fusion=fused)[0] for fused in ("none", "whole")
    )
    assert (apart.calls, whole.calls) == (8, 4)


def test_lamb_launches_its_update_when_the_host_has_read_the_coefficients() -> None:
    assert load_method("onebit_lamb", {}).late_launches("adam") == 9
    assert load_method("onebit_adam", {}).late_launches("adam") == 0


def test_dense_gradients_fill_messages_of_just_above_5e8_values() -> None:
    """Of 3e8 values each, in forward order: the second takes the first message above the limit."""
    one = bucket(*(gradient(size, 0.0, str(size)) for size in (100, 300_000_001, 3 * 10**8)))
    sizes = [
        stage.size_bytes
        for stage in dense_all_reduce([one], MethodContext(4))
        if isinstance(stage, Send)
    ]
    assert sizes == [4 * 600_000_001, 400]


def test_half_precision_sends_16_bits_dense_and_as_many_signs() -> None:
    made = profile([1024], [0.01])
    half = MethodContext(4, profile=replace(made, precision="amp-fp16"))
    whole = bucket(*made.gradients)
    flatten, send, back = dense_all_reduce([whole], half)
    assert isinstance(send, Send) and send.size_bytes == 2 * 1024
    assert isinstance(flatten, Compute) and flatten.kernels == (elementwise(1024, 2, 2),)
    assert isinstance(back, Compute) and back.kernels == (elementwise(1024, 1, 1),)
    adam = load_method("onebit_adam", {})
    full = MethodContext(4, profile=made)
    assert adam.jobs([whole], half, ONE_BIT) == adam.jobs([whole], full, ONE_BIT)


@pytest.mark.parametrize(
    ("name", "options", "copies"),
    [
        ("onebit_adam", {}, 1 + 1 / 4),
        ("onebit_adam", {"dense_share": 1}, 0),
        ("onebit_lamb", {}, 2 + 1 / 4),
        ("onebit_lamb", {"dense_share": 1}, 1),
        ("zero_one_adam", {}, 2 + 1 / 4),
    ],
)
def test_errors_are_kept(name: str, options: dict[str, Any], copies: float) -> None:
    """The worker's of all values and the server's of a quarter; LAMB's variance, 0/1's sum."""
    gradients = profile([(32, 32)], [0.01]).gradients
    assert load_method(name, options).memory_bytes(gradients, 4) == copies * 4 * 1024


# -- 0/1 Adam ----------------------------------------------------------------------------------


def as_the_code_counts(method: ZeroOneAdam) -> Counter[int]:
    """Count steps by the conditions of deepspeed/runtime/fp16/onebit/zoadam.py, one by one."""
    kinds: Counter[int] = Counter()
    variance = local = 1
    variance_count = local_count = 0
    frozen, step = False, 1  # the state was made in a first step
    for _ in range(method.steps):
        step += 1
        if not frozen:
            dense = step % variance == 0
            kinds[DENSE if dense else ONE_BIT] += 1
            variance_count += dense
            if variance_count == method.var_update_scaler:
                variance_count, variance = 0, 2 * variance
        else:
            kinds[LOCAL if step % local else SYNCHRONISED] += 1
            local_count += 1
            if local_count == method.local_step_scaler:
                local_count, local = 0, min(method.local_step_clipper, 2 * local)
        frozen = frozen or step > method.var_freeze_step
    return kinds


@given(
    method=st.builds(
        ZeroOneAdam,
        steps=st.integers(1, 600),
        var_freeze_step=st.integers(1, 700),
        var_update_scaler=st.integers(1, 20),
        local_step_scaler=st.integers(1, 50),
        local_step_clipper=st.integers(1, 20),
    )
)
def test_steps_are_counted_as_the_code_counts_them(method: ZeroOneAdam) -> None:
    assert Counter(method.counts()) == as_the_code_counts(method)
    assert sum(one.count for one in method.rounds()) == method.steps


def test_each_kind_of_step() -> None:
    """Of 8 steps, numbered 2 to 9: dense at 2, one bit at 3; then 4, 6 and 8 synchronise.

    The interval of the variance is 1 for one update, so that the next would be at 4. Locally the
    interval is 1 at step 4, then 2. A local step adds up: 10 us, 20 us of launches. One that
    synchronises has 34 us and 70 before, 38 us and 90 after.
    """
    options = {
        "steps": 8,
        "var_freeze_step": 2,
        "var_update_scaler": 1,
        "local_step_scaler": 1,
        "local_step_clipper": 2,
    }
    found = plans("zero_one_adam", options)
    exchange = KERNELS_MS + SENDS_MS
    assert times(found) == [
        (1, pytest.approx(51.052)),
        (1, pytest.approx(42 + exchange)),
        (3, pytest.approx(42 + 0.03)),
        (3, pytest.approx(42 + 0.104 + exchange + 0.128)),
    ]
    assert [plan.sent_bytes > 0 for plan in found] == [True, True, False, True]


def test_an_interval_of_one_synchronises_every_step_and_a_long_one_hardly_any() -> None:
    options = {"steps": 1000, "var_freeze_step": 1, "local_step_scaler": 1}
    every = ZeroOneAdam(local_step_clipper=1, **options).counts()
    assert every == {DENSE: 1, ONE_BIT: 0, LOCAL: 0, SYNCHRONISED: 999}
    rare = ZeroOneAdam(local_step_clipper=2**20, **options)
    assert rare.counts()[LOCAL] > 980
    # What is left is the one dense step: 2 x 7/8 x 4 n of 1000.
    dense = 2 * 7 / 8 * 4 * N / 1000
    assert dense < sent(rare, 8) < dense * 1.1


def test_frozen_at_once_or_never() -> None:
    never = ZeroOneAdam(steps=100, var_freeze_step=10**6).counts()
    assert never[LOCAL] == never[SYNCHRONISED] == 0
    # 16 of each interval: 2 to 17; 18 to 48; 52 to 100 in steps of 4 are 13 more.
    assert never[DENSE] == 16 + 16 + 13


# -- published -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "times_less", "within"),
    # docs/_posts/2020-09-09-onebit-adam-blog-post.md: "an overall communication reduction of 5x";
    # arXiv 2104.06069: "up to 4.6x"; docs/_tutorials/zero-one-adam.md: "by up to 26x".
    [("onebit_adam", 5, 0.02), ("onebit_lamb", 4.6, 0.01), ("zero_one_adam", 26, 0.05)],
)
def test_the_volume_falls_as_published(name: str, times_less: float, within: float) -> None:
    """A dense step sends 16 bits a value, a compressed or synchronised one a single bit."""
    bits = {DENSE: 16, ONE_BIT: 1, LOCAL: 0, SYNCHRONISED: 1}
    rounds = load_method(name, {}).rounds()
    steps = sum(one.count for one in rounds)
    volume = sum(one.count * bits[kind] for one in rounds for kind in one.iterations)
    assert 16 * steps / volume == pytest.approx(times_less, rel=within)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(RequestError, match="dense_share"):
        load_method("onebit_adam", {"dense_share": share})


def test_the_step_exchanges_once_an_iteration() -> None:
    method = load_method("onebit_adam", {})
    assert [method.exchanges_each(asked) for asked in (None, False)] == [False, False]
    with pytest.raises(RequestError, match="after the last micro-batch"):
        method.exchanges_each(True)
