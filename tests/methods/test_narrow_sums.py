"""Gradients summed in fewer bits: bf16, fp8 and integers, by hand.

Iterations are those of `support.averaged` and `support.dense`: 42 ms without an exchange, two
gradients of 250,000 values, of which a pass takes 1 us each; an all-reduce of n bytes takes 6 ms +
1.5 n at 1 ns, a launch 10 us.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perfsim import fusion
from perfsim.by_size import one_by_one
from perfsim.compute.kernel import elementwise
from perfsim.compute.profile import Layer, Profile
from perfsim.fusion.buckets import FusionContext
from perfsim.methods import load_method
from perfsim.methods.base import Compute, Job, MethodContext, Send
from support.averaged import mean_ms, plans
from support.builders import bucket, gradient, profile
from support.dense import planned, took_ms
from support.one_matrix import by_formula, mean, one_matrix


def sent(name: str, options: dict[str, Any] | None = None, ranks: int = 8) -> float:
    """Return the bytes that a rank sends for the one matrix."""
    return mean(one_matrix(load_method(name, options or {}), ranks), "sent_bytes")


def sizes(jobs: list[Job]) -> list[list[float]]:
    """Return the bytes of each job's messages."""
    return [[one.size_bytes for one in job.stages if isinstance(one, Send)] for job in jobs]


# -- bf16 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_bf16_sends_half_of_fp32_and_what_fp16_does(ranks: int) -> None:
    assert sent("bf16", ranks=ranks) == pytest.approx(sent("ssgd", ranks=ranks) / 2)
    assert sent("bf16", ranks=ranks) == sent("fp16", ranks=ranks)


def test_the_bf16_hook_runs_as_the_fp16_hook() -> None:
    """Per MB of fp32: cast 1.5 us and division 1 us, a launch each; half a MB takes 6.75 ms."""
    plan = planned("bf16", fused="none")
    assert took_ms(plan) == pytest.approx(10 + 30 + 2 * 0.0225 + 6.75 + 0.0115 + 2)
    assert plan.graph.tasks == planned("fp16", fused="none").graph.tasks


# -- fp8 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_fp8_sends_a_quarter_of_fp32_and_four_bytes_a_tensor(ranks: int) -> None:
    maximum = 2 * (ranks - 1) / ranks * 4
    quarter = sent("ssgd", ranks=ranks) / 4
    assert sent("fp8_gradients", ranks=ranks) == pytest.approx(quarter + maximum)


def test_the_backward_pass_waits_for_the_maxima_and_the_casts() -> None:
    """A tensor: 3 passes and 6 launches, 63 us; 4 B; 7/4 passes and 27 launches, 271.75 us.

    The second tensor's all-reduce of 250,000 B is exposed, and its cast back: 5/4 passes, a launch.
    """
    waits = 0.063 + 6 + 6e-6 + 0.27175
    took = mean_ms(plans("fp8_gradients", {}, fusion="none"))
    assert took == pytest.approx(42 + 2 * waits + 6.375 + 0.01125)


def test_maxima_queue_behind_the_all_reduce_before() -> None:
    """The second tensor is ready 5 us after the first, whose 250,000 B then take 6.375 ms."""
    plan = planned("fp8_gradients", ready_ms=(29.995, 30), fused="none")
    first = 29.995 + 0.063 + 6 + 6e-6 + 0.27175
    second = first + 6.375 + 6 + 6e-6 + 0.27175 + 6.375
    assert took_ms(plan) == pytest.approx(10 + second + 0.01125 + 2)


def model() -> Profile:
    """Return a model of an embedding, a linear layer with bias and a convolution."""
    made = profile([(8, 3, 3, 3), 16, (16, 32), (100, 32)], [0.01, 0.02, 0.03, 0.04])
    layers = tuple(Layer(name, name, 0.0, 0.01) for name in ("embedding", "linear", "conv"))
    places = (0, 1, 1, 2)
    return replace(
        made,
        layers=layers,
        gradients=tuple(
            one.at(one.ready_s, at) for one, at in zip(made.gradients, places, strict=True)
        ),
    )


def test_linear_layers_alone_go_in_fp8() -> None:
    """The bucket's 16 x 32 weights in bytes, with their maximum; 216 + 16 + 3200 values in fp32."""
    made = model()
    world = MethodContext(4, profile=made)
    method = load_method("fp8_gradients", {})
    jobs = method.jobs([bucket(*reversed(made.gradients))], world, 0)
    assert sizes(jobs) == [[4.0, 512.0], [4.0 * (216 + 16 + 3200)]]
    assert [job.begins.seconds for job in jobs] == [0.03, 0.04]
    assert method.memory_in(world) == 512


def test_half_precision_makes_gradients_of_two_bytes() -> None:
    made = profile([(10, 100)], [0.01])
    half = MethodContext(4, profile=replace(made, precision="amp-bf16"))
    [job] = load_method("fp8_gradients", {}).jobs([bucket(*made.gradients)], half, 0)
    largest, _, cast, _, back = job.stages
    assert isinstance(largest, Compute) and largest.kernels == (elementwise(1000, 1.5, 6),)
    assert isinstance(cast, Compute) and cast.kernels == (elementwise(1000, 1.25, 27),)
    assert isinstance(back, Compute) and back.kernels == (elementwise(1000, 1.25, 1),)


def test_buckets_fill_by_the_bytes_that_are_sent() -> None:
    """Matrices of 10 and vectors of 5 values: 10 and 20 bytes; a bucket closes at 20 or more."""
    method = load_method("fp8_gradients", {})
    shapes: list[int | tuple[int, ...]] = [(2, 5), 5, (2, 5), (2, 5), (2, 5)]
    gradients = [gradient(shape) for shape in shapes]
    context = FusionContext(
        20.0, 0.0, lambda one: method.message_bytes(one, 0), lambda _: one_by_one(float)
    )
    policy = fusion.load_policy(method.default_fusion())
    found = policy.fuse(gradients, context)
    assert [len(one.gradients) for one in found] == [2, 2, 1]
    assert policy.limit_bytes == 25 * 2**20


# -- integers ------------------------------------------------------------------------------------


def test_integers_that_sums_leave_no_room_are_refused() -> None:
    """128/P rounds to zero beyond 128 ranks; integers of 32 bits have room."""
    narrow, wide = (load_method("intsgd", {"bits": bits}) for bits in (8, 32))
    assert not narrow.refusal(MethodContext(128))
    assert "leaves zeros on 129 GPUs; give `options` bits=32" in narrow.refusal(MethodContext(129))
    assert not wide.refusal(MethodContext(129))


PACKED, ROUNDED, SUMMED, COPIED, SCALE = 0.038, 0.0545, 6.75, 0.0505, 0.13
"""500,000 values in two tensors: 4 passes, 3 launches; 7.25 and 4; 500,000 B; 5.25 and 4; 5 and
12."""


@pytest.mark.parametrize(
    ("options", "more"),
    # Random rounding: 25 passes and 10 launches more. The heuristic: 3 passes, 2 launches and 4 B,
    # and no scale for the next iteration. 32 bits: 0.75 passes more on both sides, 1.5 MB more.
    [
        ({}, SCALE),
        ({"rounding": "random"}, SCALE + 0.05 + 0.1),
        ({"scale": "heuristic"}, 0.026 + 6 + 6e-6),
        ({"bits": 32}, SCALE + 2 * 0.0015 + 2.25),
    ],
)
def test_integers_are_summed_after_the_backward_pass(options: dict[str, Any], more: float) -> None:
    took = mean_ms(plans("intsgd", options))
    assert took == pytest.approx(42 + PACKED + ROUNDED + SUMMED + COPIED + more)


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_bytes_are_a_quarter_of_fp32_and_integers_of_32_bits_as_many(ranks: int) -> None:
    dense = sent("ssgd", ranks=ranks)
    assert sent("intsgd", ranks=ranks) == pytest.approx(dense / 4)
    assert sent("intsgd", {"bits": 32}, ranks) == pytest.approx(dense)
    options = {"scale": "heuristic"}
    found = sent("intsgd", options, ranks)
    assert found == pytest.approx(dense / 4 + 2 * (ranks - 1) / ranks * 4)
    assert found == pytest.approx(by_formula(load_method("intsgd", options), ranks))
